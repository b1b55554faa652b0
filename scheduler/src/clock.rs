//! The daemon's one clock. An enum, not a trait: the wall, or a series that runs at its own speed.

use std::time::{Duration, Instant};

use sunward_core::time::{Span, Timestamp};

/// Where engine time comes from.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The wall clock at the start plus monotonic time since, so that a step of the wall clock
    /// never reaches the engine unseen.
    Wall {
        /// The wall clock at the start.
        start: Timestamp,
        /// The monotonic clock at the start.
        since: Instant,
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
    /// The wall clock, from now on.
    pub fn wall() -> Clock {
        Clock::Wall {
            start: wall_now(),
            since: Instant::now(),
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
        let (start, since, speed) = match self {
            Clock::Wall { start, since } => (*start, *since, 1.0),
            Clock::Series {
                start,
                since,
                speed,
            } => (*start, *since, *speed),
        };
        start + Span::from_millis((since.elapsed().as_secs_f64() * 1_000.0 * speed).floor() as i64)
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
}

/// The wall clock, as the operating system has it.
pub fn wall_now() -> Timestamp {
    Timestamp::from_millis(chrono::Utc::now().timestamp_millis())
}
