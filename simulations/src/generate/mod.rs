//! Series generators, one file per kind.
//!
//! The published tables ([`t1`]) turn facts into rows and draw nothing; the others draw from a
//! stream that the caller names. They run outside the engine. Functions such as `sin` and `exp`
//! may differ in their last bits from one platform's library to another's, so every generated
//! value is rounded to a grid of 0.01 before it becomes a reading: a digest then depends on the
//! platform only where a value lies within that last bit of the middle between two grid points.

pub mod curtailment;
pub mod prices;
pub mod solar;
pub mod t1;
pub mod wind;

use sunward_core::time::{Span, Timestamp};

/// The grid on which generated values lie, in parts of a unit.
const GRID: f64 = 100.0;

/// The nearest point of the grid; never a negative zero.
pub(crate) fn grid(value: f64) -> f64 {
    (value * GRID + 0.5).floor() / GRID + 0.0
}

/// One value of a series and the half-open interval for which it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// First instant at which the value holds.
    pub from: Timestamp,
    /// First instant at which it no longer holds.
    pub to: Timestamp,
    /// The value, in the unit of the series.
    pub value: f64,
}

/// A value that holds until `until_s` seconds after the start of its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// End of the window (exclusive), in seconds since the start of the series.
    pub until_s: u32,
    /// The value until then, in the unit of the series.
    pub value: f64,
}

/// A series of one zone, given by its windows: each value holds from the end of the window before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSeries {
    /// The zone's code.
    pub zone: &'static str,
    /// First instant of the series.
    pub start: Timestamp,
    /// Length of one row.
    pub step: Span,
    /// By rising end.
    pub windows: &'static [Window],
    /// The value after the last window, for ever.
    pub afterwards: f64,
}

impl WindowSeries {
    /// The value at an instant; before the start it is the first one.
    pub fn value_at(&self, at: Timestamp) -> f64 {
        let since_start_ms = (at - self.start).as_millis();
        self.windows
            .iter()
            .find(|window| since_start_ms < i64::from(window.until_s) * 1_000)
            .map_or(self.afterwards, |window| window.value)
    }

    /// Rows of one step each that cover `length` from the start on; each row has the value that
    /// holds at its first instant. A rest shorter than a step is a row of a whole step.
    pub fn rows(&self, length: Span) -> impl Iterator<Item = Row> + use<> {
        let series = *self;
        let end = series.start + length;
        let mut from = series.start;
        std::iter::from_fn(move || {
            if from >= end || series.step <= Span::ZERO {
                return None;
            }
            let row = Row {
                from,
                to: from + series.step,
                value: series.value_at(from),
            };
            from = row.to;
            Some(row)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: WindowSeries = WindowSeries {
        zone: "Z",
        start: Timestamp::from_millis(1_000_000),
        step: Span::from_secs(60),
        windows: &[
            Window {
                until_s: 60,
                value: 5.0,
            },
            Window {
                until_s: 150,
                value: -1.0,
            },
        ],
        afterwards: 7.0,
    };

    #[test]
    fn a_window_ends_before_its_last_instant_and_rows_take_the_value_at_their_start() {
        let rows: Vec<(i64, f64)> = SERIES
            .rows(Span::from_secs(230))
            .map(|row| ((row.from - SERIES.start).as_millis() / 1_000, row.value))
            .collect();
        assert_eq!(rows, [(0, 5.0), (60, -1.0), (120, -1.0), (180, 7.0)]);
        assert_eq!(SERIES.value_at(SERIES.start + Span::from_secs(149)), -1.0);
        assert_eq!(SERIES.value_at(SERIES.start + Span::from_secs(150)), 7.0);
    }

    #[test]
    fn rows_follow_each_other_without_gap() {
        let rows: Vec<Row> = SERIES.rows(Span::from_secs(600)).collect();
        assert_eq!(rows.len(), 10);
        for pair in rows.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
        }
    }

    #[test]
    fn a_series_without_a_step_has_no_rows() {
        let broken = WindowSeries {
            step: Span::ZERO,
            ..SERIES
        };
        assert_eq!(broken.rows(Span::from_secs(60)).count(), 0);
    }
}
