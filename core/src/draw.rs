//! What our own pools drew at a site, from when on.
//!
//! A meter at a site's connection sees what our workers draw; a surplus that it reports has shrunk by it. To know the
//! surplus as it would be without us, the draw at the start of the value's interval is added back, which is why the
//! past of the draw is kept for a while.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use sunward_policies::time::{Span, Timestamp};

/// The most steps kept per site; the oldest go first.
pub const DRAW_STEPS_MAX: usize = 256;
/// How long a step is kept: no value that is still evaluated began earlier.
pub const DRAW_KEPT: Span = Span::from_mins(24 * 60);

/// The draw of our ready workers at one site, as nameplate power times the site's power percentage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrawHistory {
    /// From when on, and kW; oldest first.
    steps: VecDeque<(Timestamp, f64)>,
}

impl DrawHistory {
    /// The draw is `kw` from `at` on.
    pub fn record(&mut self, at: Timestamp, kw: f64) {
        if let Some(last) = self.steps.back_mut() {
            if last.1.to_bits() == kw.to_bits() {
                return;
            }
            if last.0 == at {
                last.1 = kw;
                return;
            }
        }
        let past = |steps: &VecDeque<(Timestamp, f64)>| {
            // The step before the first that is young enough still says what held then.
            steps.get(1).is_some_and(|next| next.0 + DRAW_KEPT <= at)
        };
        while self.steps.len() >= DRAW_STEPS_MAX || past(&self.steps) {
            self.steps.pop_front();
        }
        self.steps.push_back((at, kw));
    }

    /// The draw just before `at`, kW; `None` where nobody knows any more, or not yet.
    pub fn before(&self, at: Timestamp) -> Option<f64> {
        let later = self.steps.partition_point(|step| step.0 < at);
        let step = self.steps.get(later.checked_sub(1)?)?;
        Some(step.1)
    }

    /// How many steps are kept.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True before the first step.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(m: i64) -> Timestamp {
        Timestamp::from_millis(m * 60_000)
    }

    #[test]
    fn the_draw_is_that_before_the_instant() {
        let mut draw = DrawHistory::default();
        assert_eq!(draw.before(minute(9)), None);
        draw.record(minute(5), 0.0);
        draw.record(minute(10), 6.0);
        draw.record(minute(10), 8.0);
        assert_eq!(draw.before(minute(5)), None);
        assert_eq!(draw.before(minute(10)), Some(0.0));
        assert_eq!(draw.before(minute(11)), Some(8.0));
    }

    #[test]
    fn neither_many_steps_nor_old_ones_are_kept() {
        let mut draw = DrawHistory::default();
        for m in 0..10_000 {
            draw.record(minute(m), f64::from((m % 7) as i32));
            assert!(draw.len() <= DRAW_STEPS_MAX);
        }
        let mut draw = DrawHistory::default();
        draw.record(minute(0), 1.0);
        draw.record(minute(10), 2.0);
        draw.record(minute(24 * 60 + 20), 3.0);
        assert_eq!(draw.before(minute(5)), None);
        assert_eq!(draw.before(minute(24 * 60)), Some(2.0));
    }
}
