//! Readings of a signal, for questions about its cadence and about windows.

use crate::policy::{BindingScope, SignalBinding};
use crate::time::{Span, Timestamp};
use crate::units::{Basis, Kind};

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesReading {
    /// First instant at which it holds.
    pub from: Timestamp,
    /// First instant at which it no longer holds.
    pub to: Timestamp,
    /// In the kind's canonical unit; `None`: the source says that there is none.
    pub value: Option<f64>,
    /// Issued for the future.
    pub forecast: bool,
}

/// The readings of one stream.
#[derive(Clone, Debug)]
pub struct Series {
    source: String,
    kind: Kind,
    basis: Option<Basis>,
    scope: BindingScope,
    place: String,
    readings: Vec<SeriesReading>,
    has_forecast: bool,
    cadence: Option<Span>,
}

impl Series {
    /// The readings of the stream of `source`, `kind` and `basis` at `place`: a site, or the code of a zone of the
    /// scope's scheme. They may come in any order.
    pub fn new(
        source: &str,
        kind: Kind,
        basis: Option<Basis>,
        scope: BindingScope,
        place: &str,
        mut readings: Vec<SeriesReading>,
    ) -> Series {
        let has_forecast = readings.iter().any(|reading| reading.forecast);
        if readings.iter().any(|reading| !reading.forecast) {
            readings.retain(|reading| !reading.forecast);
        }
        readings.sort_by_key(|reading| (reading.from, reading.to));
        let mut steps: Vec<Span> = readings
            .windows(2)
            .map(|pair| pair[1].from - pair[0].from)
            .filter(|step| !step.is_zero())
            .collect();
        steps.sort_unstable();
        Series {
            source: source.to_owned(),
            kind,
            basis,
            scope,
            place: place.to_owned(),
            cadence: steps.get(steps.len() / 2).copied(),
            has_forecast,
            readings,
        }
    }

    /// Whether it is a stream that the signal may read.
    pub(super) fn is_of(&self, signal: &SignalBinding) -> bool {
        self.source == signal.source
            && self.kind == signal.kind
            && self.basis == signal.basis
            && self.scope == signal.scope
    }

    /// The usual time from one reading to the next: the median; `None` for fewer than two.
    pub fn cadence(&self) -> Option<Span> {
        self.cadence
    }

    /// Whether any reading was issued for the future.
    pub(super) fn has_forecast(&self) -> bool {
        self.has_forecast
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// From the first reading to the end of the last.
    pub(super) fn length(&self) -> Span {
        let first = self.readings.first().map(|reading| reading.from);
        let last = self.readings.iter().map(|reading| reading.to).max();
        first.zip(last).map_or(Span::ZERO, |(from, to)| to - from)
    }

    /// Every instant at which a reading begins or ends.
    pub(super) fn instants(&self) -> impl Iterator<Item = Timestamp> {
        self.readings
            .iter()
            .flat_map(|reading| [reading.from, reading.to])
    }

    /// The value at an instant: of those that hold, the one that began last.
    pub(super) fn at(&self, t: Timestamp) -> Option<f64> {
        let begun = self.readings.partition_point(|reading| reading.from <= t);
        let last = self.readings.get(begun.checked_sub(1)?)?;
        if t < last.to { last.value } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cadence_is_the_usual_step_and_gaps_hold_no_value() {
        let reading = |from: i64, value| SeriesReading {
            from: Timestamp::from_millis(from * 60_000),
            to: Timestamp::from_millis(from * 60_000 + 300_000),
            value: Some(value),
            forecast: false,
        };
        let readings = vec![
            reading(5, 2.0),
            reading(0, 1.0),
            reading(30, 3.0),
            reading(35, 4.0),
        ];
        let series = Series::new("s", Kind::Index, None, BindingScope::Site, "a", readings);
        assert_eq!(series.cadence(), Some(Span::from_mins(5)));
        assert_eq!(series.length(), Span::from_mins(40));
        let at = |minute: i64| series.at(Timestamp::from_millis(minute * 60_000));
        assert_eq!(
            (at(0), at(9), at(10), at(34)),
            (Some(1.0), Some(2.0), None, Some(3.0))
        );
        assert_eq!(at(-1), None);
    }
}
