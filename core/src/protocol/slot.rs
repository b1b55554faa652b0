//! One pool, one call at a time; of those that wait, only the newest.

/// The slot of one pool. `T` is the order that is handed to the actuator.
#[derive(Debug)]
pub struct Slot<T> {
    busy: bool,
    waiting: Option<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            busy: false,
            waiting: None,
        }
    }
}

/// What became of an order that was put into a slot.
#[derive(Debug, PartialEq, Eq)]
pub enum Placed<T> {
    /// Carry it out now.
    Go(T),
    /// It waits for the one under way; what waited before, if anything, is replaced and will
    /// never be carried out.
    Waiting {
        /// The older order that waited.
        replaced: Option<T>,
    },
}

impl<T> Slot<T> {
    /// Puts an order into the slot.
    pub fn place(&mut self, order: T) -> Placed<T> {
        if self.busy {
            return Placed::Waiting {
                replaced: self.waiting.replace(order),
            };
        }
        self.busy = true;
        Placed::Go(order)
    }

    /// The call under way has ended: the next order, if one waits.
    pub fn finished(&mut self) -> Option<T> {
        let next = self.waiting.take();
        self.busy = next.is_some();
        next
    }

    /// True when nothing is under way.
    pub fn is_idle(&self) -> bool {
        !self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runs_and_only_the_newest_waits() {
        let mut slot = Slot::default();
        assert_eq!(slot.place(1), Placed::Go(1));
        assert_eq!(slot.place(2), Placed::Waiting { replaced: None });
        assert_eq!(slot.place(3), Placed::Waiting { replaced: Some(2) });
        assert_eq!(slot.finished(), Some(3));
        assert!(!slot.is_idle());
        assert_eq!(slot.finished(), None);
        assert!(slot.is_idle());
        assert_eq!(slot.place(4), Placed::Go(4));
    }
}
