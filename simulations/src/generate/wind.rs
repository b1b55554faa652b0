//! Wind generation: a speed that wanders, through a turbine's power curve.
//!
//! The speed is a bounded random walk around its mean, so that windy hours follow windy hours.
//! Below cut-in (3 m/s) and from cut-out (25 m/s) on the turbine stands; between cut-in and the
//! rated speed (12 m/s) its power grows with the cube of the speed.

use sunward_core::time::{Span, Timestamp};

use super::{Row, grid};
use crate::draw::Draws;

/// A park.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wind {
    /// Mean speed, m/s.
    pub mean_speed: f64,
    /// Output at and above 12 m/s, kW.
    pub rated_kw: f64,
}

/// Output as a share of the rated one, at a speed in m/s.
pub fn power_share(speed: f64) -> f64 {
    const CUT_IN: f64 = 3.0;
    const RATED: f64 = 12.0;
    const CUT_OUT: f64 = 25.0;
    let cube = |v: f64| v * v * v;
    match speed {
        v if !(CUT_IN..CUT_OUT).contains(&v) => 0.0,
        v if v >= RATED => 1.0,
        v => (cube(v) - cube(CUT_IN)) / (cube(RATED) - cube(CUT_IN)),
    }
}

impl Wind {
    /// Rows of one `step` each that cover `length` from `start` on.
    pub fn rows(&self, start: Timestamp, length: Span, step: Span, draws: &mut Draws) -> Vec<Row> {
        // Pulled back to its mean within about six hours, whatever the step is.
        let hours = step.as_millis() as f64 / 3_600_000.0;
        let pull = (hours / 6.0).min(1.0);
        let mut speed = self.mean_speed;
        let mut rows = Vec::new();
        let mut from = start;
        while from < start + length && step > Span::ZERO {
            let gust = (2.0 * draws.unit() - 1.0) * 3.0 * hours.sqrt();
            speed = (speed + pull * (self.mean_speed - speed) + gust).clamp(0.0, 30.0);
            rows.push(Row {
                from,
                to: from + step,
                value: grid(self.rated_kw * power_share(speed)),
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
    fn the_power_curve_has_its_four_parts() {
        assert_eq!(power_share(2.9), 0.0);
        assert!(power_share(6.0) > 0.1 && power_share(6.0) < 0.12);
        assert_eq!(power_share(12.0), 1.0);
        assert_eq!(power_share(25.0), 0.0);
    }

    #[test]
    fn a_windier_place_gives_more() {
        let mean = |mean_speed| {
            let wind = Wind {
                mean_speed,
                rated_kw: 100.0,
            };
            let mut draws = Draws::new(2, "wind");
            let rows = wind.rows(
                Timestamp::from_millis(0),
                Span::from_mins(60 * 24 * 100),
                Span::from_mins(15),
                &mut draws,
            );
            rows.iter().map(|row| row.value).sum::<f64>() / rows.len() as f64
        };
        let (calm, windy) = (mean(5.0), mean(9.0));
        assert!(
            calm > 0.0 && windy > 2.0 * calm && windy < 100.0,
            "{calm} {windy}"
        );
    }
}
