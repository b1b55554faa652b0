//! The order in which one group takes effect: durable first, then everything else.
//!
//! No acknowledgement and no effect before the event that led to it is durable. A driver takes
//! the phases one after another and gives up at the first that fails: what follows a failed
//! append must not happen. The engine loop and the simulated world take the same phases.

/// What happens to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Append the record to the journal, and wait until it is durable.
    Append,
    /// Step the engine with the group.
    Step,
    /// Answer the tickets of the group's requests.
    Answer,
    /// Hand the actions on.
    Dispatch,
}

/// The only order.
const ORDER: [Phase; 4] = [Phase::Append, Phase::Step, Phase::Answer, Phase::Dispatch];

/// The phases of one group, in order.
#[derive(Clone, Debug)]
pub struct Commit {
    order: [Phase; 4],
    next: usize,
}

impl Default for Commit {
    fn default() -> Self {
        Commit {
            order: ORDER,
            next: 0,
        }
    }
}

impl Commit {
    /// A group that nothing was done with yet.
    pub fn new() -> Commit {
        Commit::default()
    }

    /// The same with a planted bug.
    #[cfg(feature = "plant")]
    #[must_use]
    pub fn planted(mut self, plant: Option<crate::plant::Plant>) -> Commit {
        if plant == Some(crate::plant::Plant::ReplyBeforeFsync) {
            self.order = [Phase::Answer, Phase::Append, Phase::Step, Phase::Dispatch];
        }
        self
    }

    /// What comes next; `None` when the group is done.
    pub fn next_phase(&mut self) -> Option<Phase> {
        let phase = self.order.get(self.next).copied();
        self.next += 1;
        phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_before_the_append() {
        let mut commit = Commit::new();
        let phases: Vec<Phase> = std::iter::from_fn(|| commit.next_phase()).collect();
        assert_eq!(phases, ORDER);
        assert_eq!(commit.next_phase(), None);
    }
}
