//! Windows that recur, and periods of budgets, in named time zones; right over both changes of summer time.
//!
//! Zones are data compiled into this crate (chrono-tz, [`zone_database_version`]); nothing here asks what time it is.
//! chrono-tz knows each zone's changes up to the end of its table, decades ahead.
//!
//! A calendar is a cron expression of five fields, a length of time and a zone. Its windows are a function of those
//! three alone: one that began before anyone looked is open all the same.
//!
//! - **Fields**: minute 0-59, hour 0-23, day of the month 1-31, month 1-12 or JAN-DEC, day of the week 0-7 or SUN-SAT
//!   (0 and 7 are Sunday); `*`, lists `1,15`, ranges `MON-FRI`, steps `*/15` and `8-18/2`. Where neither field of days
//!   begins with `*`, a day that is in either counts; else it must be in both.
//! - **Times of day** (`0 22 * * *`: neither minute nor hour begins with `*`). A start that the clocks skip in spring
//!   is made at the first instant after the gap; one that they show twice in autumn is made once, the first time.
//! - **Every so often** (`*/15 * * * *`, `0 * * * *`: minute or hour begins with `*`). It starts whenever the clocks
//!   show such a time: not at all at one that they skip, and twice at one that they show twice.
//! - **`lasts`** is elapsed time: a window of 8 hours from 22:00 ends at 07:00 in the night that the clocks go forward,
//!   and at 05:00 in the night that they go back.
//! - Windows that overlap or touch are one.

use std::ops::{ControlFlow, Range};

use crate::facts::CalendarFact;
use crate::time::{Span, Timestamp};

mod cron;
mod period;
mod zone;

pub use cron::CRON_MAX;
pub use period::{Period, Recurrence};

use cron::Cron;
use zone::{Around, DAY_MS, MINUTE_MS, local_day};

/// How far ahead the next start is looked for. 29 February falls on a given day of the week at least once in 40 years.
pub const SEARCH_DAYS_MAX: i64 = 41 * 366;
/// How far from an instant the ends of a window that is open then are looked for: more than a year, so that both
/// changes of the clocks are passed.
pub const OPEN_DAYS_MAX: i64 = 400;
/// The longest that a window may last from its start.
pub const LASTS_MAX: Span = Span::from_mins(366 * 24 * 60);

/// The years 0 to 9999, in milliseconds since 1970-01-01T00:00:00Z.
const EARLIEST_MS: i64 = -62_167_219_200_000;
const LATEST_MS: i64 = 253_402_300_799_999;

/// Why a calendar can't be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {help}")]
pub struct CalendarError {
    /// Bytes of the cron expression; `None`: it is about `lasts`.
    pub span: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: String,
}

/// Windows that begin as a cron expression says, in a named zone, and last a fixed time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    cron: Cron,
    zone: chrono_tz::Tz,
    lasts_ms: i64,
    /// The minutes of a day at which it starts.
    minutes: Box<[u16]>,
    /// Of a day without a change of the clocks: the first and the last start of each window, from midnight.
    runs: Box<[(i64, i64)]>,
    /// Where the clocks do not change, a window never ends: the first and the last start of a day, from midnight.
    endless: Option<(i64, i64)>,
}

/// The version of the zone data, such as `2025b`.
pub const fn zone_database_version() -> &'static str {
    chrono_tz::IANA_TZDB_VERSION
}

impl Calendar {
    /// Reads a cron expression of five fields. Refuses what is not one, what names a day that no year has, and a
    /// length that is not above zero and at most [`LASTS_MAX`].
    pub fn compile(
        cron: &str,
        lasts: Span,
        zone: chrono_tz::Tz,
    ) -> Result<Calendar, CalendarError> {
        let cron = Cron::parse(cron)?;
        if lasts <= Span::ZERO || lasts > LASTS_MAX {
            let help = format!("a window lasts more than 0s and at most {LASTS_MAX}");
            return Err(CalendarError {
                span: None,
                message: format!("a window can't last {lasts}"),
                help,
            });
        }
        let lasts_ms = lasts.as_millis();
        let minutes: Box<[u16]> = (0..24 * 60)
            .filter(|minute| cron.at_minute(*minute))
            .collect();
        let starts = minutes.iter().map(|minute| i64::from(*minute) * MINUTE_MS);
        let runs = merged(starts, lasts_ms).into_boxed_slice();
        let endless = match *runs {
            [(first, latest)] if cron.is_daily() && first + DAY_MS - latest <= lasts_ms => {
                Some((first, latest))
            }
            _ => None,
        };
        Ok(Calendar {
            cron,
            zone,
            lasts_ms,
            minutes,
            runs,
            endless,
        })
    }

    /// Whether a window is open at `at`, and when that changes. A window that began while nobody looked is open.
    ///
    /// `until` is exact; it is `None` where no window begins within [`SEARCH_DAYS_MAX`] days, or the open one does not
    /// end within [`OPEN_DAYS_MAX`]. Outside the years 0 to 9999 no window is open.
    pub fn at(&self, at: Timestamp) -> CalendarFact {
        let now = at.as_millis();
        if !(EARLIEST_MS..=LATEST_MS).contains(&now) {
            return CalendarFact {
                open: false,
                until: None,
            };
        }
        let today = local_day(self.zone, now);
        // What began before this has ended.
        let mut day = local_day(self.zone, now - self.lasts_ms) - 1;
        let mut end: Option<i64> = None;
        loop {
            if let (Some(open), Some(endless)) = (&mut end, self.endless) {
                day = self.pass_weeks(day, today + OPEN_DAYS_MAX, endless, open);
            }
            // A window that is open at `end` began on its day or before.
            let last = match end {
                Some(end) => (local_day(self.zone, end) + 1).min(today + OPEN_DAYS_MAX),
                None => today + SEARCH_DAYS_MAX,
            };
            let Some(date) = self.cron.next_date(day, last) else {
                break;
            };
            let found = self.runs_of(date, |first, latest| {
                let ends = latest + self.lasts_ms;
                match end {
                    None if first > now => return ControlFlow::Break((false, first)),
                    None if ends <= now => {}
                    Some(end) if first > end => return ControlFlow::Break((true, end)),
                    _ => end = Some(ends),
                }
                ControlFlow::Continue(())
            });
            if let ControlFlow::Break((open, until)) = found {
                return CalendarFact {
                    open,
                    until: Some(Timestamp::from_millis(until)),
                };
            }
            day = date + 1;
        }
        CalendarFact {
            open: end.is_some(),
            until: end
                .filter(|end| local_day(self.zone, *end) < today + OPEN_DAYS_MAX)
                .map(Timestamp::from_millis),
        }
    }

    /// Passes over weeks from `day` on in which nothing can end a window that is open until `end`: the first day that
    /// is left to look at.
    fn pass_weeks(&self, day: i64, last: i64, endless: (i64, i64), end: &mut i64) -> i64 {
        let (first, latest) = endless;
        let here = zone::offset(self.zone, day * DAY_MS - zone::REACH_MS);
        if *end < day * DAY_MS - here + first {
            return day;
        }
        let mut next = day;
        while next + 7 <= last
            && zone::offset(self.zone, (next + 7) * DAY_MS + zone::REACH_MS) == here
        {
            next += 7;
        }
        if next > day {
            *end = (next - 1) * DAY_MS - here + latest + self.lasts_ms;
        }
        next
    }

    /// The window that is open at `at`: its first instant, and the first after it. An end that lies further than
    /// [`OPEN_DAYS_MAX`] days away is given as [`Timestamp::MIN`] or [`Timestamp::MAX`].
    pub fn window(&self, at: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let fact = self.at(at);
        if !fact.open {
            return None;
        }
        let begins = self
            .begin(at.as_millis())
            .map_or(Timestamp::MIN, Timestamp::from_millis);
        Some((begins, fact.until.unwrap_or(Timestamp::MAX)))
    }

    /// The first instant of the window that is open at `now`; `None` where it lies too far back.
    fn begin(&self, now: i64) -> Option<i64> {
        let today = local_day(self.zone, now);
        let mut begin = now;
        let mut day = today + 1;
        // What starts earlier has ended when that which is known begins.
        while day >= local_day(self.zone, begin - self.lasts_ms) - 1 {
            if day < today - OPEN_DAYS_MAX {
                return None;
            }
            let mut runs = Vec::new();
            if self.cron.on(day) {
                let _ = self.runs_of(day, |first, latest| {
                    runs.push((first, latest));
                    ControlFlow::<()>::Continue(())
                });
            }
            for (first, latest) in runs.into_iter().rev() {
                if first <= begin && latest + self.lasts_ms >= begin {
                    begin = first;
                }
            }
            day -= 1;
        }
        Some(begin)
    }

    /// The first and the last start of each window of a day on which the cron expression starts, in order. Only what
    /// starts on that day is merged.
    fn runs_of<T>(
        &self,
        day: i64,
        mut visit: impl FnMut(i64, i64) -> ControlFlow<T>,
    ) -> ControlFlow<T> {
        let midnight = day * DAY_MS;
        let around = Around::local(self.zone, midnight, midnight + DAY_MS);
        if let Around::Constant(offset) = around {
            for (first, latest) in &self.runs {
                visit(midnight - offset + first, midnight - offset + latest)?;
            }
            return ControlFlow::Continue(());
        }
        for (first, latest) in merged(self.starts(midnight, around), self.lasts_ms) {
            visit(first, latest)?;
        }
        ControlFlow::Continue(())
    }

    /// The starts of a day near a change of the clocks, in order.
    fn starts(&self, midnight: i64, around: Around) -> impl Iterator<Item = i64> {
        let (recurring, shown) = match around {
            Around::Change { before, after, at } if self.cron.is_recurring() => {
                // Local times until the change, and from it on: some are in neither, some in both.
                (
                    true,
                    [
                        (i64::MIN, at + before, before),
                        (at + after, i64::MAX, after),
                    ],
                )
            }
            _ => (false, [(i64::MIN, i64::MAX, 0), (0, 0, 0)]),
        };
        shown.into_iter().flat_map(move |(from, to, offset)| {
            self.minutes
                .iter()
                .map(move |minute| midnight + i64::from(*minute) * MINUTE_MS)
                .filter(move |local| (from..to).contains(local))
                .map(move |local| {
                    if recurring {
                        local - offset
                    } else {
                        around.first(local)
                    }
                })
        })
    }
}

/// The first and the last of each group of starts of which none is further than `lasts` from the one before.
fn merged(starts: impl Iterator<Item = i64>, lasts: i64) -> Vec<(i64, i64)> {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for start in starts {
        match runs.last_mut() {
            Some((_, latest)) if start - *latest <= lasts => *latest = start,
            _ => runs.push((start, start)),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
