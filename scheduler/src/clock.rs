//! The daemon's one clock. An enum, not a trait: the wall, or a series that runs at its own speed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use sunward_core::time::{Span, Timestamp};

/// From this difference on, wall clock and engine clock no longer agree: nothing is slewed.
pub const STEP_MS: i64 = 60_000;

/// Where engine time comes from. Cheap to clone; clones agree.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The wall clock at the start plus monotonic time since, slewed slowly towards the wall
    /// clock, so that a step of the wall clock never reaches the engine unseen.
    Wall {
        /// Engine time at the start.
        start: Timestamp,
        /// The monotonic clock at the start.
        since: Instant,
        /// Milliseconds slewed so far.
        slewed_ms: Arc<AtomicI64>,
    },
    /// A recorded or generated series that begins at `start` and runs `speed` times as fast as
    /// real time.
    Series {
        /// The series' first instant.
        start: Timestamp,
        /// The monotonic clock at that instant.
        since: Instant,
        /// Series seconds per real second, above zero.
        speed: f64,
    },
}

impl Clock {
    /// The wall clock, from now on, but not before `at_least`.
    pub fn wall(at_least: Timestamp) -> Clock {
        Clock::Wall {
            start: wall_now().max(at_least),
            since: Instant::now(),
            slewed_ms: Arc::new(AtomicI64::new(0)),
        }
    }

    /// A series from `start`, beginning now.
    pub fn series(start: Timestamp, speed: f64) -> Clock {
        Clock::Series {
            start,
            since: Instant::now(),
            speed,
        }
    }

    /// Engine time now.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::Wall {
                start,
                since,
                slewed_ms,
            } => {
                let monotonic = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
                *start + Span::from_millis(monotonic + slewed_ms.load(Ordering::Relaxed))
            }
            Clock::Series {
                start,
                since,
                speed,
            } => {
                *start
                    + Span::from_millis(
                        (since.elapsed().as_secs_f64() * 1_000.0 * speed).floor() as i64
                    )
            }
        }
    }

    /// Real time until engine time reaches `at`; zero when it has.
    pub fn until(&self, at: Timestamp) -> Duration {
        let left = (at - self.now()).as_millis().max(0) as f64 / 1_000.0;
        let speed = match self {
            Clock::Wall { .. } => 1.0,
            Clock::Series { speed, .. } => *speed,
        };
        Duration::from_secs_f64(left / speed)
    }

    /// Slews engine time towards the wall clock and returns what still lies between them, in
    /// milliseconds (wall minus engine). `elapsed` is the real time since the last call. A series
    /// has no wall clock to agree with.
    pub fn discipline(&self, elapsed: Duration) -> i64 {
        let Clock::Wall { slewed_ms, .. } = self else {
            return 0;
        };
        let difference_ms = (wall_now() - self.now()).as_millis();
        let slew = slew_ms(
            difference_ms,
            i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX),
        );
        slewed_ms.fetch_add(slew, Ordering::Relaxed);
        difference_ms - slew
    }
}

/// How much of `difference_ms` may be made good after `elapsed_ms`: at most 1 % of it, and nothing
/// of a difference of [`STEP_MS`] or more.
fn slew_ms(difference_ms: i64, elapsed_ms: i64) -> i64 {
    if difference_ms.abs() >= STEP_MS {
        return 0;
    }
    let most = elapsed_ms / 100;
    difference_ms.clamp(-most, most)
}

/// The wall clock, as the operating system has it.
pub fn wall_now() -> Timestamp {
    Timestamp::from_millis(chrono::Utc::now().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_difference_is_slewed_by_one_percent_and_a_step_not_at_all() {
        assert_eq!(slew_ms(5_000, 1_000), 10);
        assert_eq!(slew_ms(-5_000, 1_000), -10);
        assert_eq!(slew_ms(3, 1_000), 3);
        assert_eq!(slew_ms(59_999, 100_000), 1_000);
        assert_eq!(slew_ms(60_000, 100_000), 0);
        assert_eq!(slew_ms(-3_600_000, 100_000), 0);
    }

    #[test]
    fn a_series_runs_at_its_speed_from_its_start() {
        let start = Timestamp::from_millis(1_000_000);
        let clock = Clock::series(start, 3_600.0);
        let now = clock.now();
        assert!(now >= start && now < start + Span::from_mins(60));
        let in_an_hour = clock.until(start + Span::from_mins(60));
        assert!(in_an_hour <= Duration::from_secs(1), "{in_an_hour:?}");
        assert_eq!(clock.until(start), Duration::ZERO);
    }
}
