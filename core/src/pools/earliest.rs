//! When a pool must be looked at again.

use sunward_policies::time::{Span, Timestamp};

/// The earliest of some instants, all later than now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earliest {
    now: Timestamp,
    pub(super) at: Option<Timestamp>,
    /// The same without what the streams say.
    pub(super) own: Option<Timestamp>,
}

impl Earliest {
    pub(super) fn after(now: Timestamp) -> Earliest {
        Earliest {
            now,
            at: None,
            own: None,
        }
    }

    pub(super) fn add(&mut self, at: Option<Timestamp>) {
        let at = self.later(at);
        self.at = earlier(self.at, at);
        self.own = earlier(self.own, at);
    }

    /// A stream may say something else from then on.
    pub(super) fn add_reading(&mut self, at: Option<Timestamp>) {
        self.at = earlier(self.at, self.later(at));
    }

    pub(super) fn join(&mut self, other: Earliest) {
        self.at = earlier(self.at, other.at);
        self.own = earlier(self.own, other.own);
    }

    /// An instant that has come already would wake the pool for ever.
    fn later(&self, at: Option<Timestamp>) -> Option<Timestamp> {
        at.map(|at| at.max(self.now + Span::from_millis(1)))
    }
}

/// The earlier of two instants, or the only one.
pub(super) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
