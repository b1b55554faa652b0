//! The least window worth starting for, and leaving ahead of its end.
//!
//! When a window is expected to end is asked anew at each judging, from what is known then. Losing knowledge of what
//! lies ahead never moves an end out, so it never causes a start.

use super::Threshold;
use crate::facts::{CalendarFact, Facts, Reading};
use crate::policy::{Expectation, Window};
use crate::rules::{CALENDARS_MAX, Memory, Reason, SIGNALS_MAX};
use crate::time::{Span, Timestamp};

/// The most instants ahead at which a forecast is looked at: more than three days of values for five minutes each.
pub const LOOK_AHEAD_STEPS_MAX: usize = 1_024;

/// When a window ends, as far as the question goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At that instant: it is known to, or known no longer.
    At { at: Timestamp, known: bool },
    /// Not before that instant, which is late enough.
    NotBefore(Timestamp),
    /// Not before an instant up to which as many steps as are allowed were needed, beginning with `first`.
    OutOfSteps { first: Timestamp, last: Timestamp },
    /// Nothing will end it.
    Never,
    /// Nothing says how long it lasts; `until` the first later instant at which that may change by time alone.
    Unsaid { until: Option<Timestamp> },
}

/// Why a start is not worth its cost, and the first later instant at which time alone may change that.
pub(super) struct TooShort {
    pub(super) reason: Reason,
    pub(super) next: Option<Timestamp>,
}

const TICK: Span = Span::from_millis(1);

impl Threshold {
    /// Notes when a guaranteed window begins: at the judging that finds the activate condition true after one that
    /// found it false, or at the first.
    pub(super) fn track_window(&self, facts: &Facts<'_>, memory: &mut Memory) {
        let Some(Window {
            expect: Expectation::Guarantee { .. },
            ..
        }) = self.window
        else {
            return;
        };
        match self.activate.when.evaluate(facts) {
            Some(true) if !memory.window_open => {
                memory.window_open = true;
                memory.window_since = Some(facts.now);
            }
            Some(false) => memory.window_open = false,
            _ => {}
        }
    }

    /// Whether the window lasts long enough for a start to be worth its cost.
    pub(super) fn worth_starting(
        &self,
        facts: &Facts<'_>,
        memory: &Memory,
    ) -> Result<(), TooShort> {
        let Some(window) = &self.window else {
            return Ok(());
        };
        let now = facts.now;
        let mut needed = now + facts.pool.ready_after + window.start_cost + window.at_least;
        // What would be left at once is not started.
        if let Some(leave) = window.leave_before_end {
            needed = needed.max(now + leave + TICK);
        }
        let too_short = |ends, next: Option<Timestamp>| {
            Err(TooShort {
                reason: Reason::WindowTooShort { ends, needed },
                next: next.filter(|next| *next > now),
            })
        };
        match self.end(window, facts, memory, needed) {
            End::At { at, .. } if at < needed => too_short(Some(at), Some(at)),
            End::OutOfSteps { first, last } if last < needed => too_short(Some(last), Some(first)),
            End::Unsaid { until } => too_short(None, until),
            _ => Ok(()),
        }
    }

    /// The known end that it is time to leave ahead of; else the first later instant at which time alone may make it so.
    pub(super) fn leaves(
        &self,
        facts: &Facts<'_>,
        memory: &Memory,
    ) -> Result<Timestamp, Option<Timestamp>> {
        let Some((window, leave)) = self
            .window
            .as_ref()
            .and_then(|window| Some((window, window.leave_before_end?)))
        else {
            return Err(None);
        };
        let now = facts.now;
        let next = match self.end(window, facts, memory, now + leave + TICK) {
            End::At { at, known: true } if at <= now + leave => return Ok(at),
            End::At { at, known: true } | End::NotBefore(at) => Some(at - leave),
            End::At { at, known: false } => Some(at),
            End::OutOfSteps { first, .. } => Some(first),
            End::Unsaid { until } => until,
            End::Never => None,
        };
        Err(next.filter(|next| *next > now))
    }

    /// When the window that is open now ends. Whether it ends at `enough` or later makes no difference.
    fn end(&self, window: &Window, facts: &Facts<'_>, memory: &Memory, enough: Timestamp) -> End {
        match window.expect {
            Expectation::Forecast => self.forecast_end(facts, enough),
            Expectation::Schedule { calendar } => match facts.calendars.get(calendar) {
                Some(CalendarFact {
                    open: true,
                    until: Some(until),
                }) => End::At {
                    at: *until,
                    known: true,
                },
                Some(CalendarFact {
                    open: true,
                    until: None,
                }) => End::Never,
                Some(CalendarFact { until, .. }) => End::Unsaid { until: *until },
                None => End::Unsaid { until: None },
            },
            Expectation::Guarantee { lasts } => {
                memory
                    .window_since
                    .map_or(End::Unsaid { until: None }, |since| End::At {
                        at: since + lasts,
                        known: true,
                    })
            }
        }
    }

    /// The first instant ahead at which the release condition is said to hold, or is not known. What the pool is like
    /// now is taken to stay.
    fn forecast_end(&self, facts: &Facts<'_>, enough: Timestamp) -> End {
        let ending = self
            .release
            .as_ref()
            .map_or(&self.activate.when, |release| &release.when);
        let (signals, calendars) = (ending.signals(), ending.calendars());
        let mut readings = [Reading::Missing; SIGNALS_MAX];
        let mut calendar_facts = [CalendarFact {
            open: false,
            until: None,
        }; CALENDARS_MAX];
        let mut at = facts.now;
        let mut first = None;
        for _ in 0..LOOK_AHEAD_STEPS_MAX {
            let mut next: Option<Timestamp> = None;
            let mut note = |until: Option<Timestamp>| {
                if let Some(until) = until.filter(|until| *until > at) {
                    next = Some(next.map_or(until, |next| next.min(until)));
                }
            };
            for index in signals.iter() {
                let ahead = facts.outlook.signal(index, at);
                readings[index] = ahead.reading;
                note(ahead.until);
            }
            for index in calendars.iter() {
                let fact = facts.outlook.calendar(index, at);
                calendar_facts[index] = fact;
                note(fact.until);
            }
            // What holds now is what the rule was judged by, whatever was forecast.
            if at > facts.now {
                let ahead = Facts {
                    now: at,
                    readings: &readings,
                    calendars: &calendar_facts,
                    ..*facts
                };
                if let end @ (Some(true) | None) = self.release_condition(&ahead) {
                    let known = end.is_some();
                    return End::At { at, known };
                }
            }
            let Some(next) = next else {
                return match (signals.is_empty(), first) {
                    (true, _) => End::Never,
                    (false, None) => End::Unsaid { until: None },
                    (false, Some(_)) => End::At { at, known: false },
                };
            };
            if next >= enough {
                return End::NotBefore(next);
            }
            first = first.or(Some(next));
            at = next;
        }
        End::OutOfSteps {
            first: first.unwrap_or(at),
            last: at,
        }
    }
}
