//! Whether a cluster can be reached, from what its watches and probes report. Pure: instants are
//! arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A cluster that fails for this long is unreachable; a shorter hiccup is nobody's business.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_secs(3);

/// What can work or fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Making a client and finding the API version.
    Connect,
    /// A small list every few seconds, which notices a server that hangs.
    Probe,
    /// The watch of a namespace; `None`: of all.
    Watch(Option<Arc<str>>),
}

/// A change that has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// With what failed first.
    Unreachable(String),
    /// Everything works.
    Reachable,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    reason: String,
}

/// The health of one cluster.
#[derive(Debug)]
pub(super) struct Health {
    failing: BTreeMap<Part, Failing>,
    pending: BTreeSet<Part>,
    told: Option<bool>,
}

impl Health {
    /// Nothing is known before `pending` have worked once.
    pub(super) fn new(pending: impl IntoIterator<Item = Part>) -> Health {
        Health {
            failing: BTreeMap::new(),
            pending: pending.into_iter().collect(),
            told: None,
        }
    }

    /// `part` works.
    pub(super) fn works(&mut self, part: &Part) {
        self.failing.remove(part);
        self.pending.remove(part);
    }

    /// `part` failed, in a try that began at `since`.
    pub(super) fn fails(&mut self, part: Part, since: Instant, reason: String) {
        let failing = self.failing.entry(part).or_insert(Failing {
            since,
            reason: String::new(),
        });
        failing.reason = reason;
    }

    fn first_failing(&self) -> Option<&Failing> {
        self.failing.values().min_by_key(|failing| failing.since)
    }

    /// When a failure that lasts becomes worth telling; `None` when it was told or nothing fails.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.told != Some(false))
            .then(|| self.failing_long_at())
            .flatten()
    }

    /// When what fails will have failed for [`UNREACHABLE_AFTER`]; `None` when nothing fails.
    pub(super) fn failing_long_at(&self) -> Option<Instant> {
        Some(self.first_failing()?.since + UNREACHABLE_AFTER)
    }

    /// The change to tell at `now`, once.
    pub(super) fn change(&mut self, now: Instant) -> Option<Change> {
        if self.due().is_some_and(|due| due <= now) {
            self.told = Some(false);
            let reason = self.first_failing().map(|failing| failing.reason.clone());
            return Some(Change::Unreachable(reason.unwrap_or_default()));
        }
        let works = self.failing.is_empty() && self.pending.is_empty();
        (works && self.told != Some(true)).then(|| {
            self.told = Some(true);
            Change::Reachable
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_a_hiccup_never() {
        let gpu = Part::Watch(Some("gpu".into()));
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut health = Health::new([Part::Connect, Part::Probe, gpu.clone()]);
        health.works(&Part::Connect);
        health.works(&Part::Probe);
        assert_eq!(health.change(at(0)), None);
        health.works(&gpu);
        assert_eq!(health.change(at(0)), Some(Change::Reachable));
        assert_eq!(health.change(at(1)), None);

        health.fails(gpu.clone(), at(1_000), "reset".into());
        assert_eq!(health.change(at(3_999)), None);
        health.works(&gpu);
        assert_eq!(health.due(), None);

        health.fails(Part::Probe, at(5_000), "refused".into());
        health.fails(gpu.clone(), at(5_500), "reset".into());
        health.fails(Part::Probe, at(7_000), "still refused".into());
        assert_eq!(health.due(), Some(at(8_000)));
        assert_eq!(health.change(at(7_999)), None);
        let told = Change::Unreachable("still refused".into());
        assert_eq!(health.change(at(8_000)), Some(told));
        assert_eq!(health.change(at(9_000)), None);
        assert_eq!(health.due(), None);
        assert_eq!(health.failing_long_at(), Some(at(8_000)));

        health.works(&Part::Probe);
        assert_eq!(health.change(at(10_000)), None);
        health.works(&gpu);
        assert_eq!(health.change(at(10_000)), Some(Change::Reachable));
    }

    #[test]
    fn a_cluster_that_never_worked_is_told_too() {
        let start = Instant::now();
        let mut health = Health::new([Part::Connect]);
        health.fails(Part::Connect, start, "no such file".into());
        assert_eq!(health.change(start), None);
        let told = Change::Unreachable("no such file".into());
        assert_eq!(health.change(start + UNREACHABLE_AFTER), Some(told));
    }
}
