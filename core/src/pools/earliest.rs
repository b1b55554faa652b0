//! When a pool must be looked at again.

use sunward_policies::time::{Span, Timestamp};

/// The earliest of some instants, all later than now.
#[derive(Debug)]
pub(super) struct Earliest {
    now: Timestamp,
    pub(super) at: Option<Timestamp>,
}

impl Earliest {
    pub(super) fn after(now: Timestamp) -> Earliest {
        Earliest { now, at: None }
    }

    pub(super) fn add(&mut self, at: Option<Timestamp>) {
        // An instant that has come already would wake the pool for ever.
        let Some(at) = at.map(|at| at.max(self.now + Span::from_millis(1))) else {
            return;
        };
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
    }
}
