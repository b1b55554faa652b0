//! How many requests a partner may send: the generic cell rate algorithm (ITU-T I.371), one
//! number per partner, and the time is an argument.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::tokens::PARTNERS_MAX;

/// Most partners whose quota is remembered at once. As many as there can be in the tokens file;
/// names that left the file are forgotten first.
pub const QUOTA_CELLS_MAX: usize = PARTNERS_MAX;

/// The rate that a partner may keep up, and how much may come at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second, above zero.
    pub per_second: f64,
    /// Requests at once, at least one.
    pub burst: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Rate {
            per_second: 10.0,
            burst: 50,
        }
    }
}

/// The state of every partner's quota.
#[derive(Debug)]
pub struct Quota {
    rate: Rate,
    /// When each partner's credit will be whole again ("theoretical arrival time").
    whole_at: Mutex<BTreeMap<Arc<str>, Instant>>,
}

impl Quota {
    /// Everybody starts with the whole burst.
    pub fn new(rate: Rate) -> Quota {
        Quota {
            rate,
            whole_at: Mutex::new(BTreeMap::new()),
        }
    }

    /// Takes one request of `partner` at `now`, or says how long to wait before the next would be
    /// taken. A refused request costs nothing.
    pub fn take(&self, partner: &str, now: Instant) -> Result<(), Duration> {
        let interval = Duration::from_secs_f64(1.0 / self.rate.per_second);
        let tolerance = interval * self.rate.burst.saturating_sub(1);
        let mut cells = self.whole_at.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = cells.get_mut(partner);
        let whole_at = cell.as_deref().copied().unwrap_or(now).max(now);
        let ahead = whole_at - now;
        if ahead > tolerance {
            return Err(ahead.saturating_sub(tolerance));
        }
        if let Some(cell) = cell {
            *cell = whole_at + interval;
            return Ok(());
        }
        if cells.len() >= QUOTA_CELLS_MAX {
            forget(&mut cells, now);
        }
        cells.insert(partner.into(), whole_at + interval);
        Ok(())
    }
}

/// Makes room: partners whose credit is whole are as good as unknown; if there is none, the one
/// closest to it goes.
fn forget(cells: &mut BTreeMap<Arc<str>, Instant>, now: Instant) {
    cells.retain(|_, whole_at| *whole_at > now);
    if cells.len() >= QUOTA_CELLS_MAX
        && let Some(first) = cells
            .iter()
            .min_by_key(|(_, at)| **at)
            .map(|(name, _)| name.clone())
    {
        cells.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_burst_then_the_rate_and_idle_time_gives_credit_back() {
        let quota = Quota::new(Rate {
            per_second: 10.0,
            burst: 3,
        });
        let start = Instant::now();
        for _ in 0..3 {
            quota.take("a", start).unwrap();
        }
        let wait = quota.take("a", start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        // A refusal costs nothing: the wait is the same, and after it one request passes.
        assert_eq!(quota.take("a", start).unwrap_err(), wait);
        quota.take("a", start + wait).unwrap();
        assert!(quota.take("a", start + wait).is_err());
        let later = start + Duration::from_secs(60);
        for _ in 0..3 {
            quota.take("a", later).unwrap();
        }
        assert!(quota.take("a", later).is_err());
    }

    #[test]
    fn over_a_long_time_the_rate_holds_for_any_pattern() {
        for step_ms in [1_u64, 7, 33, 99, 100, 101, 250] {
            let quota = Quota::new(Rate {
                per_second: 10.0,
                burst: 5,
            });
            let start = Instant::now();
            let taken = (0..10_000 / step_ms)
                .filter(|n| {
                    quota
                        .take("a", start + Duration::from_millis(n * step_ms))
                        .is_ok()
                })
                .count() as u64;
            let offered = 10_000 / step_ms;
            assert!(
                taken <= 105 && taken >= offered.min(100),
                "{step_ms} ms: {taken} of {offered}"
            );
        }
    }

    #[test]
    fn partners_do_not_share_and_the_map_is_bounded() {
        let quota = Quota::new(Rate {
            per_second: 1.0,
            burst: 1,
        });
        let start = Instant::now();
        for n in 0..QUOTA_CELLS_MAX + 100 {
            quota.take(&format!("p{n}"), start).unwrap();
        }
        assert_eq!(quota.whole_at.lock().unwrap().len(), QUOTA_CELLS_MAX);
        assert!(
            quota
                .take(&format!("p{}", QUOTA_CELLS_MAX + 99), start)
                .is_err()
        );
        quota.take("new", start + Duration::from_secs(5)).unwrap();
        assert_eq!(quota.whole_at.lock().unwrap().len(), 1);
    }
}
