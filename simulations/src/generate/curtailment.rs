//! Curtailment windows by duty cycle: clean for a while, dirty for a while.

use sunward_core::time::{Span, Timestamp};

use super::{Row, grid};
use crate::draw::Draws;

/// A series of windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curtailment {
    /// Value inside a window, in the unit of the series.
    pub inside: f64,
    /// Value outside.
    pub outside: f64,
    /// Share of the time inside, 0 to 1.
    pub duty: f64,
    /// Mean length of one window and the gap after it, together.
    pub cycle: Span,
    /// Values waver by at most this share of themselves.
    pub noise: f64,
}

impl Curtailment {
    /// Rows of one `step` each that cover `length` from `start` on.
    pub fn rows(&self, start: Timestamp, length: Span, step: Span, draws: &mut Draws) -> Vec<Row> {
        let duty = self.duty.clamp(0.0, 1.0);
        let part = |share: f64| Span::from_millis((self.cycle.as_millis() as f64 * share) as i64);
        let mut inside = draws.chance(duty);
        let mut until = start;
        let mut rows = Vec::new();
        let mut from = start;
        while from < start + length && step > Span::ZERO {
            while until <= from {
                inside = !inside;
                let mean = if inside { part(duty) } else { part(1.0 - duty) };
                until += draws.around(mean).max(Span::from_millis(1));
            }
            let value = if inside { self.inside } else { self.outside };
            let wavers = 1.0 + self.noise * (2.0 * draws.unit() - 1.0);
            rows.push(Row {
                from,
                to: from + step,
                value: grid(value * wavers),
            });
            from += step;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duty_cycle_is_kept_in_the_long_run() {
        let series = Curtailment {
            inside: 20.0,
            outside: 400.0,
            duty: 0.3,
            cycle: Span::from_mins(300),
            noise: 0.1,
        };
        let mut draws = Draws::new(1, "curtailment");
        let start = Timestamp::from_millis(0);
        let step = Span::from_mins(5);
        let rows = series.rows(start, Span::from_mins(400 * 24 * 60), step, &mut draws);
        let clean = rows.iter().filter(|row| row.value < 100.0).count();
        let share = clean as f64 / rows.len() as f64;
        assert!((share - 0.3).abs() < 0.03, "{share}");
        assert!(rows.windows(2).all(|pair| pair[0].to == pair[1].from));
    }
}
