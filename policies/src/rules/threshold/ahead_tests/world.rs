//! A small world for tests, known in full: what came, what was forecast when, and when a calendar is open. Times are in
//! minutes.

use super::super::*;
use crate::expr::{Expected, Scope};
use crate::facts::{Ahead, CalendarFact, Outlook, PoolFacts};
use crate::units::Unit;

pub(super) const GONE: f64 = f64::NAN;
pub(super) const SCOPE: Scope<'_> = Scope {
    signals: &[("a", Unit::GramPerKilowattHour), ("b", Unit::Kilowatt)],
    calendars: &["night"],
};

/// What the two signals are from an instant on; NaN is missing.
pub(super) type Segment = (i64, [f64; 2]);

/// One policy's world, known in full.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    /// What is read.
    pub(super) actual: Vec<Segment>,
    /// From an instant on, what is known ahead.
    pub(super) forecasts: Vec<(i64, Vec<Segment>)>,
    /// When the calendar is open, in order.
    pub(super) nights: Vec<(i64, i64)>,
    pub(super) ready_after: i64,
}

/// What was known at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'w> {
    pub(super) world: &'w World,
    pub(super) now: Timestamp,
}

pub(super) fn minute(at: i64) -> Timestamp {
    Timestamp::from_millis(at * 60_000)
}

pub(super) fn reading(value: f64) -> Reading {
    if value.is_nan() {
        Reading::Missing
    } else {
        Reading::Fresh { value }
    }
}

impl World {
    pub(super) fn forecast(&self, now: Timestamp) -> &[Segment] {
        let known = self
            .forecasts
            .iter()
            .rev()
            .find(|issue| minute(issue.0) <= now);
        known.map_or(&[], |issue| &issue.1)
    }

    pub(super) fn night(&self, at: Timestamp) -> CalendarFact {
        for (from, to) in &self.nights {
            let (from, to) = (minute(*from), minute(*to));
            if at < to {
                let open = from <= at;
                return CalendarFact {
                    open,
                    until: Some(if open { to } else { from }),
                };
            }
        }
        CalendarFact {
            open: false,
            until: None,
        }
    }

    pub(super) fn facts<T>(&self, now: Timestamp, with: impl FnOnce(&Facts<'_>) -> T) -> T {
        let came = self
            .actual
            .iter()
            .filter(|segment| minute(segment.0) <= now)
            .count();
        let values = came
            .checked_sub(1)
            .map_or([GONE; 2], |last| self.actual[last].1);
        let readings = values.map(reading);
        let calendars = [self.night(now)];
        let outlook = Known { world: self, now };
        with(&Facts {
            now,
            readings: &readings,
            samples: &[came as u64; 2],
            calendars: &calendars,
            outlook: &outlook,
            pool: PoolFacts {
                wanted: 0,
                ready: 0,
                min: 0,
                max: 8,
                training_kw: 2.0,
                ready_after: Span::from_mins(self.ready_after),
                site_power_limit_kw: None,
            },
        })
    }

    /// Instants at which something changes that a rule looks at.
    pub(super) fn changes(&self) -> Vec<Timestamp> {
        let actual = self.actual.iter().map(|segment| segment.0);
        let issues = self.forecasts.iter().map(|issue| issue.0);
        let nights = self.nights.iter().flat_map(|night| [night.0, night.1]);
        actual.chain(issues).chain(nights).map(minute).collect()
    }

    /// The last instant at which anything is known to change.
    pub(super) fn last_change(&self) -> Timestamp {
        let forecasts = self.forecasts.iter().flat_map(|issue| &issue.1);
        let ahead = forecasts.map(|segment| minute(segment.0));
        ahead.chain(self.changes()).max().unwrap_or_default()
    }

    /// Judges at each change, each reported instant and each of `extra`.
    pub(super) fn walk(
        &self,
        rule: &Threshold,
        memory: &mut Memory,
        extra: &[Timestamp],
        end: i64,
        mut see: impl FnMut(Timestamp, Verdict, &Memory),
    ) {
        let mut now = minute(0);
        let changes = self.changes();
        loop {
            let judged = self.facts(now, |facts| rule.judge(facts, memory));
            assert!(
                judged.next_change_at.is_none_or(|next| next > now),
                "{judged:?} at {now}"
            );
            see(now, judged.verdict.unwrap(), memory);
            let next = changes
                .iter()
                .chain(extra)
                .copied()
                .chain(judged.next_change_at)
                .filter(|at| *at > now)
                .min();
            match next {
                Some(next) if next <= minute(end) => now = next,
                _ => return,
            }
        }
    }

    /// When the intent or the count of workers changes, and to what.
    pub(super) fn outcomes(
        &self,
        rule: &Threshold,
        latched: bool,
        extra: &[Timestamp],
        end: i64,
    ) -> Vec<(Timestamp, Intent, Option<u32>)> {
        let mut out: Vec<(Timestamp, Intent, Option<u32>)> = Vec::new();
        self.walk(
            rule,
            &mut Memory::new(latched),
            extra,
            end,
            |now, verdict, _| {
                if out
                    .last()
                    .is_none_or(|last| (last.1, last.2) != (verdict.intent, verdict.workers))
                {
                    out.push((now, verdict.intent, verdict.workers));
                }
            },
        );
        out
    }

    pub(super) fn check(&self, rule: &Threshold, latched: bool, expected: &str) {
        let at = |until: Timestamp| until.as_millis() / 60_000;
        let mut found: Vec<String> = Vec::new();
        self.walk(
            rule,
            &mut Memory::new(latched),
            &[],
            1_000,
            |now, verdict, _| {
                let workers = verdict
                    .workers
                    .map_or_else(String::new, |workers| format!(" {workers}"));
                let reason = match verdict.reason {
                    Reason::ActivatePending { until } => format!("activates at {}", at(until)),
                    Reason::ReleasePending { until } => format!("releases at {}", at(until)),
                    Reason::ActivateSamples { seen, needed }
                    | Reason::ReleaseSamples { seen, needed } => format!("{seen} of {needed}"),
                    Reason::WindowTooShort {
                        ends: Some(ends), ..
                    } => format!("too short: ends {}", at(ends)),
                    Reason::WindowTooShort { ends: None, .. } => {
                        "too short: nothing known".to_owned()
                    }
                    Reason::LeavingAhead { ends } => format!("left ahead of {}", at(ends)),
                    Reason::MissingHolding { signal, until } => {
                        format!("signal {signal} missing until {}", at(until))
                    }
                    Reason::Running => "running".to_owned(),
                    Reason::Resting => "resting".to_owned(),
                    Reason::Undecidable => "undecidable".to_owned(),
                    Reason::MissingReleased { signal } => {
                        format!("signal {signal} missing: released")
                    }
                    Reason::MissingKept { signal } => format!("signal {signal} missing: kept"),
                    other => other.to_string(),
                };
                let line = format!("{}{workers} {reason}", verdict.intent);
                if found
                    .last()
                    .is_none_or(|last| last.split_once(": ").unwrap().1 != line)
                {
                    found.push(format!("{}: {line}", at(now)));
                }
            },
        );
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(found, expected);
    }
}

impl Outlook for Known<'_> {
    fn signal(&self, index: usize, at: Timestamp) -> Ahead {
        assert!(at >= self.now, "only what lies ahead is asked for");
        let forecast = self.world.forecast(self.now);
        let next = forecast.partition_point(|segment| minute(segment.0) <= at);
        let value = next
            .checked_sub(1)
            .map_or(GONE, |last| forecast[last].1[index]);
        Ahead {
            reading: reading(value),
            until: forecast.get(next).map(|segment| minute(segment.0)),
        }
    }

    fn calendar(&self, index: usize, at: Timestamp) -> CalendarFact {
        assert_eq!(index, 0);
        self.world.night(at)
    }
}

pub(super) fn side(when: &str, held_for: i64, samples: u32) -> Side {
    Side {
        when: Condition::compile(when, SCOPE).unwrap(),
        held_for: Span::from_mins(held_for),
        samples,
    }
}

pub(super) fn parts(activate: Side, release: Option<Side>) -> ThresholdParts {
    let missing = OnMissing {
        hold: Span::from_mins(10),
        then: Then::Release,
    };
    ThresholdParts {
        activate,
        release,
        window: None,
        workers: None,
        on_missing: Box::new([missing; 2]),
    }
}

pub(super) fn window(expect: Expectation, at_least: i64, leave: Option<i64>) -> Window {
    let (at_least, start_cost) = (Span::from_mins(at_least), Span::from_mins(2));
    Window {
        expect,
        at_least,
        start_cost,
        leave_before_end: leave.map(Span::from_mins),
    }
}

pub(super) fn workers(text: &str) -> Quantity {
    Quantity::compile(text, SCOPE, Expected::Workers).unwrap()
}

pub(super) fn readings(values: &[(i64, f64)]) -> Vec<Segment> {
    values
        .iter()
        .map(|(at, value)| (*at, [*value, 0.0]))
        .collect()
}
