//! Who may act: the leader gate, and what a term seen outside means.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::event::{Event, Outcome};

/// The highest term that is followed: more than any daemon can count in its life. A higher one on
/// an object is a mistake or malice, and following it would leave no room above it.
pub const TERM_MAX: u64 = 1 << 48;

/// Whether this process may write to clusters and sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It leads in its term.
    Leading,
    /// Another writer was seen; nothing is written any more until a restart.
    Resigned {
        /// The object or stream that carries the higher term.
        object: String,
        /// The term seen there.
        term: u64,
    },
}

/// What a term read on an object or a stream asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermSeen {
    /// Nothing.
    Ours,
    /// Go on above it: append `started` again with a term higher than this one.
    Raise {
        /// The term seen.
        above: u64,
    },
    /// Another writer lives: write nothing more.
    Resign,
    /// Above [`TERM_MAX`]: nobody's term. The object is not written, and everything else goes on.
    Absurd,
}

/// The leader gate of one process.
#[derive(Debug)]
pub struct LeaderGate {
    term: u64,
    written: BTreeSet<Arc<str>>,
    leadership: Leadership,
    #[cfg(feature = "plant")]
    plant: Option<crate::plant::Plant>,
}

impl LeaderGate {
    /// The gate of a process that leads in `term`.
    pub fn new(term: u64) -> LeaderGate {
        LeaderGate {
            term,
            written: BTreeSet::new(),
            leadership: Leadership::Leading,
            #[cfg(feature = "plant")]
            plant: None,
        }
    }

    /// The same with a planted bug.
    #[cfg(feature = "plant")]
    #[must_use]
    pub fn planted(mut self, plant: Option<crate::plant::Plant>) -> LeaderGate {
        self.plant = plant;
        self
    }

    /// The current term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether it leads.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// True while effects may go out.
    pub fn is_open(&self) -> bool {
        self.leadership == Leadership::Leading
    }

    /// A `started` with a higher term was appended: nothing is claimed in it yet.
    pub fn raised(&mut self, term: u64) {
        self.term = term;
        self.written.clear();
    }

    /// Another writer appended to the journal: write nothing more.
    pub fn resign(&mut self, object: &str, term: u64) {
        if planted!(self.plant, TwoLeaders) {
            return;
        }
        self.leadership = Leadership::Resigned {
            object: object.to_owned(),
            term,
        };
    }

    /// An object or stream was claimed or written in this term.
    pub fn wrote(&mut self, object: &Arc<str>) {
        self.written.insert(object.clone());
    }

    /// A term was read on an object (`pool:NAME`) or a stream (`stream:FEDERATION`).
    pub fn saw(&mut self, object: &Arc<str>, term: u64) -> TermSeen {
        if term <= self.term || !self.is_open() {
            return TermSeen::Ours;
        }
        if term > TERM_MAX {
            return TermSeen::Absurd;
        }
        if planted!(self.plant, TwoLeaders) {
            return TermSeen::Ours;
        }
        if self.written.contains(object) {
            self.leadership = Leadership::Resigned {
                object: object.to_string(),
                term,
            };
            return TermSeen::Resign;
        }
        TermSeen::Raise { above: term }
    }
}

/// The terms that events tell of, each with its pool: those of observations and of calls' outcomes.
pub fn terms_seen(events: &[Event]) -> impl Iterator<Item = (&Arc<str>, u64)> {
    events.iter().filter_map(|event| match event {
        Event::PoolObserved(seen) => Some((&seen.pool, seen.term?)),
        Event::ActionSettled(settled) => match &settled.outcome {
            Outcome::HigherTerm { term } => Some((&settled.pool, *term)),
            Outcome::Accepted(seen) => Some((&settled.pool, seen.term?)),
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_term_on_something_not_yet_claimed_raises_and_on_something_claimed_resigns() {
        let mut gate = LeaderGate::new(3);
        let (a, b): (Arc<str>, Arc<str>) = ("pool:a".into(), "pool:b".into());
        assert_eq!(gate.saw(&a, 3), TermSeen::Ours);
        assert_eq!(gate.saw(&a, 9), TermSeen::Raise { above: 9 });
        gate.raised(10);
        gate.wrote(&a);
        assert_eq!(gate.saw(&b, 10), TermSeen::Ours);
        assert_eq!(gate.saw(&b, 11), TermSeen::Raise { above: 11 });
        assert!(gate.is_open());
        assert_eq!(gate.saw(&a, u64::MAX), TermSeen::Absurd);
        assert!(gate.is_open());
        assert_eq!(gate.saw(&a, 11), TermSeen::Resign);
        assert!(!gate.is_open());
        assert_eq!(
            gate.leadership(),
            &Leadership::Resigned {
                object: "pool:a".into(),
                term: 11
            }
        );
        // Once resigned, always resigned: a later sight opens nothing again.
        assert_eq!(gate.saw(&b, 12), TermSeen::Ours);
        assert!(!gate.is_open());
    }
}
