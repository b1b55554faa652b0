//! What a threshold policy should do, written down a second time and as plainly as possible: one look every 50 ms.
//!
//! Shares nothing with the daemon, so that an error in one is not an error in both.

use crate::series::Random;

/// How often the model looks, ms.
const LOOK_MS: u64 = 50;
/// Delays of single readings that a steady stretch stands, ms: well above what a push over loopback takes.
const STEADY_DELAY_MS: u64 = 400;
/// How many draws of delays a steady stretch must stand.
const STEADY_DRAWS: u64 = 40;
/// Readings between two starts that are tried for a stretch.
const STEP: usize = 6;
/// A stretch begins quietly for this long: then the rest that a start of the daemon begins with is over.
pub const QUIET_MS: u64 = 4_000;

/// The policy of the tests: the shipped one with 5 minutes as a second, and holds that end between two readings, so that
/// nothing depends on which of two events in the same millisecond comes first.
#[derive(Clone, Copy, Debug)]
pub struct ReferencePolicy {
    /// Activates below this value.
    pub activate_below: f64,
    /// For this long, ms.
    pub activate_for_ms: u64,
    /// Releases from this value on.
    pub release_from: f64,
    /// For this long, ms.
    pub release_for_ms: u64,
    /// Once started, it runs this long, ms.
    pub min_run_ms: u64,
    /// Once stopped, it rests this long, ms.
    pub min_rest_ms: u64,
    /// Without data it holds this long, ms.
    pub hold_ms: u64,
    /// What follows: true keeps what runs, false releases it.
    pub then_keep: bool,
}

impl Default for ReferencePolicy {
    fn default() -> Self {
        Self {
            activate_below: 100.0,
            activate_for_ms: 1_500,
            release_from: 120.0,
            release_for_ms: 2_500,
            min_run_ms: 6_000,
            min_rest_ms: 2_000,
            hold_ms: 3_000,
            then_keep: false,
        }
    }
}

/// A change of what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Since the first reading's start, ms.
    pub at_ms: u64,
    /// Whether workers run from here on.
    pub runs: bool,
}

impl ReferencePolicy {
    /// The policy as the daemon reads it.
    pub fn yaml(&self, name: &str) -> String {
        format!(
            "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             pools: {{energy: surplus}}\n  priority: 100\n  mode: enforce\n  signals:\n    carbon: {{source: watttime, kind: \
             carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 3s, on_missing: {{hold: {}ms, then: {}}}}}\n  \
             activate: {{when: carbon < {}, for: {}ms}}\n  release: {{when: carbon >= {}, for: {}ms}}\n  min_run: {}ms\n  \
             min_rest: {}ms\n",
            self.hold_ms,
            if self.then_keep { "keep" } else { "release" },
            self.activate_below,
            self.activate_for_ms,
            self.release_from,
            self.release_for_ms,
            self.min_run_ms,
            self.min_rest_ms,
        )
    }

    /// What it does with readings of a second each, the `i`-th known `delay_ms(i)` after its interval began; until 20 s after
    /// the last. It begins at rest, and rested long enough.
    pub fn changes(&self, values: &[f64], delay_ms: impl Fn(usize) -> u64) -> Vec<Change> {
        let (mut activated, mut runs) = (false, false);
        let mut since: Option<u64> = None;
        let mut dark_since: Option<u64> = None;
        let mut changed_at: Option<u64> = None;
        let mut changes = Vec::new();
        let end = values.len() as u64 * 1_000 + 20_000;
        for now in (0..end).step_by(LOOK_MS as usize) {
            let index = (now / 1_000) as usize;
            let known = now % 1_000 >= delay_ms(index);
            let value = values.get(index).filter(|_| known);
            let leaves = value.map(|&value| {
                if activated {
                    value >= self.release_from
                } else {
                    value < self.activate_below
                }
            });
            match leaves {
                None => {
                    let dark_for = now - *dark_since.get_or_insert(now);
                    if dark_for >= self.hold_ms {
                        since = None;
                        activated &= self.then_keep;
                    }
                }
                Some(false) => (since, dark_since) = (None, None),
                Some(true) => {
                    dark_since = None;
                    let held = if activated {
                        self.release_for_ms
                    } else {
                        self.activate_for_ms
                    };
                    if now - *since.get_or_insert(now) >= held {
                        activated = !activated;
                        since = None;
                    }
                }
            }
            // In the dark nothing rises.
            let wanted = activated && (runs || value.is_some());
            let least = if runs {
                self.min_run_ms
            } else {
                self.min_rest_ms
            };
            if wanted != runs && changed_at.is_none_or(|at| now - at >= least) {
                runs = wanted;
                changed_at = Some(now);
                changes.push(Change { at_ms: now, runs });
            }
        }
        changes
    }

    /// True when delays of single readings up to 0.4 s change nothing in what is done and move no change by a second.
    pub fn is_steady(&self, values: &[f64]) -> bool {
        let plain = self.changes(values, |_| 0);
        self.delayed(values).all(|late| {
            plain.len() == late.len()
                && plain
                    .iter()
                    .zip(&late)
                    .all(|(a, b)| a.runs == b.runs && a.at_ms.abs_diff(b.at_ms) < 1_000)
        })
    }

    /// True when, with such delays too, it ends with workers that have run since `at_least_ms` before the last reading's end.
    pub fn ends_running(&self, values: &[f64], at_least_ms: u64) -> bool {
        let latest = (values.len() as u64 * 1_000).saturating_sub(at_least_ms);
        self.delayed(values).all(|changes| {
            changes
                .last()
                .is_some_and(|last| last.runs && last.at_ms <= latest)
        })
    }

    /// What it does with several draws of delays.
    fn delayed<'a>(&'a self, values: &'a [f64]) -> impl Iterator<Item = Vec<Change>> + 'a {
        (0..STEADY_DRAWS).map(|draw| {
            let mut random = Random::new(draw);
            let delays: Vec<u64> = values
                .iter()
                .map(|_| random.between(0, STEADY_DELAY_MS))
                .collect();
            self.changes(values, |index| delays.get(index).copied().unwrap_or(0))
        })
    }

    /// The stretch of `length` readings with the most changes, none in its first `QUIET_MS`, that `fits`: its start, and what
    /// should happen. A start is tried every half hour.
    pub fn busiest_stretch(
        &self,
        values: &[f64],
        length: usize,
        fits: impl Fn(&[f64]) -> bool,
    ) -> Option<(usize, Vec<Change>)> {
        let mut candidates: Vec<(usize, Vec<Change>)> = (0..)
            .step_by(STEP)
            .take_while(|start| start + length <= values.len())
            .map(|start| (start, self.changes(&values[start..start + length], |_| 0)))
            .filter(|(_, changes)| changes.first().is_some_and(|first| first.at_ms >= QUIET_MS))
            .collect();
        candidates.sort_by_key(|(start, changes)| (std::cmp::Reverse(changes.len()), *start));
        candidates
            .into_iter()
            .find(|(start, _)| fits(&values[*start..start + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{DAY, Month};

    fn change(at_ms: u64, runs: bool) -> Change {
        Change { at_ms, runs }
    }

    #[test]
    fn holds_run_rest_and_the_dark() {
        let policy = ReferencePolicy::default();
        // Low for 3 s: starts after 1.5 s, and runs at least 6 s.
        let values = [
            400.0, 400.0, 50.0, 50.0, 50.0, 400.0, 400.0, 400.0, 400.0, 400.0, 400.0,
        ];
        let started = change(3_500, true);
        assert_eq!(
            policy.changes(&values, |_| 0),
            [started, change(9_500, false)]
        );
        // One low reading is too short.
        assert_eq!(policy.changes(&[400.0, 50.0, 400.0, 400.0], |_| 0), []);
        // The series ends while it runs: 3 s later it is released, or kept.
        let low = [50.0; 10];
        assert_eq!(
            policy.changes(&low, |_| 0),
            [change(1_500, true), change(13_000, false)]
        );
        let keeps = ReferencePolicy {
            then_keep: true,
            ..policy
        };
        assert_eq!(keeps.changes(&low, |_| 0), [change(1_500, true)]);
        // Between the thresholds it stays as it is.
        let between = [
            50.0, 50.0, 110.0, 110.0, 110.0, 110.0, 110.0, 110.0, 110.0, 110.0,
        ];
        assert_eq!(policy.changes(&between, |_| 0)[0], change(1_500, true));
    }

    /// Where no recorded month is present, the generated one serves every case, short and long.
    #[test]
    fn a_generated_month_has_the_stretches_that_the_cases_look_for() {
        let month = Month::generated(Month::SEED);
        let policy = ReferencePolicy::default();
        for length in [110, DAY] {
            let found =
                policy.busiest_stretch(&month.values, length, |values| policy.is_steady(values));
            assert!(
                found
                    .as_ref()
                    .is_some_and(|(_, changes)| changes.len() >= 4),
                "{length}: {found:?}"
            );
        }
        let keeps = ReferencePolicy {
            then_keep: true,
            ..policy
        };
        for length in [75, DAY] {
            let found = keeps.busiest_stretch(&month.values, length, |values| {
                keeps.ends_running(values, 14_000)
            });
            assert!(
                found
                    .as_ref()
                    .is_some_and(|(_, changes)| changes.len() >= 3),
                "{length}: {found:?}"
            );
        }
    }

    #[test]
    fn a_late_reading_is_bridged_and_finds_the_same() {
        let policy = ReferencePolicy::default();
        let values = [
            400.0, 50.0, 50.0, 50.0, 400.0, 400.0, 400.0, 400.0, 400.0, 400.0, 400.0,
        ];
        assert!(policy.is_steady(&values));
        let late = policy.changes(&values, |_| 300);
        assert_eq!(late[0], change(2_800, true));
    }
}
