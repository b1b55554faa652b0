//! Day-ahead prices: dear in the morning and the evening, cheap at noon, below zero at times.

use sunward_core::time::{Span, Timestamp};

use super::{Row, grid};
use crate::draw::Draws;

/// A market.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Mean price, money per MWh.
    pub mean: f64,
    /// How far the daily shape swings, money per MWh.
    pub swing: f64,
    /// Share of the noon hours (10 to 15 UTC) with a price below zero, 0 to 1.
    pub negative: f64,
}

/// The daily shape by the hour (UTC), from -1 at noon to 1 in the evening.
const SHAPE: [f64; 24] = [
    -0.3, -0.4, -0.5, -0.5, -0.4, -0.1, 0.3, 0.7, 0.6, 0.1, -0.4, -0.8, -1.0, -1.0, -0.8, -0.3,
    0.3, 0.8, 1.0, 1.0, 0.7, 0.4, 0.1, -0.1,
];

impl Prices {
    /// Rows of one `step` each that cover `length` from `start` on; a price holds for its hour.
    pub fn rows(&self, start: Timestamp, length: Span, step: Span, draws: &mut Draws) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut from = start;
        let (mut hour_of_price, mut price) = (i64::MIN, self.mean);
        while from < start + length && step > Span::ZERO {
            let hour = from.as_millis().div_euclid(3_600_000);
            if hour != hour_of_price {
                hour_of_price = hour;
                let of_day = hour.rem_euclid(24) as usize;
                let noise = self.swing / 4.0 * (2.0 * draws.unit() - 1.0);
                price = self.mean + self.swing * SHAPE[of_day] + noise;
                if (10..15).contains(&of_day) && draws.chance(self.negative) {
                    price = -self.swing * draws.unit() / 4.0 - 0.01;
                }
            }
            rows.push(Row {
                from,
                to: from + step,
                value: grid(price),
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
    fn noon_goes_below_zero_as_often_as_asked() {
        let prices = Prices {
            mean: 80.0,
            swing: 60.0,
            negative: 0.4,
        };
        let mut draws = Draws::new(5, "prices");
        let hour = Span::from_mins(60);
        let rows = prices.rows(
            Timestamp::from_millis(0),
            Span::from_mins(60 * 24 * 365),
            hour,
            &mut draws,
        );
        let noon = |row: &&Row| (10..15).contains(&(row.from.as_millis() / 3_600_000 % 24));
        let below: Vec<_> = rows.iter().filter(|row| row.value < 0.0).collect();
        let share = below.len() as f64 / rows.iter().filter(noon).count() as f64;
        assert!(
            below.iter().all(noon) && (share - 0.4).abs() < 0.05,
            "{share}"
        );
    }
}
