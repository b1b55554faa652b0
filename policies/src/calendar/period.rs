//! Calendar periods: the hour, day, week, month or year that an instant lies in.

use super::zone::{Around, DAY_MS, HOUR_MS, change, local_day, offset};
use super::{EARLIEST_MS, LATEST_MS};
use crate::time::{Timestamp, civil_from_days, days_from_civil};

/// A calendar period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// A clock hour. A change of the clocks ends one and begins another, so none is longer than an hour: an hour that
    /// the clocks show twice is two.
    Hour,
    /// From midnight to midnight; 23 or 25 hours where the clocks change.
    Day,
    /// From Monday.
    Week,
    /// From the first.
    Month,
    /// From 1 January.
    Year,
}

/// A period in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// Which period.
    pub period: Period,
    /// In which zone it begins.
    pub zone: chrono_tz::Tz,
}

impl Recurrence {
    /// The period that `at` lies in: its first instant, and the first instant after it, which is the first of the next
    /// one. Where the clocks skip midnight, a day begins with the first instant after the gap; where they show it
    /// twice, with the first. An instant outside the years 0 to 9999 counts as the nearest within.
    pub fn bounds(&self, at: Timestamp) -> (Timestamp, Timestamp) {
        let at = at.as_millis().clamp(EARLIEST_MS, LATEST_MS);
        let (from, to) = if self.period == Period::Hour {
            self.hour(at)
        } else {
            let (first, next) = self.days(local_day(self.zone, at));
            let (from, to) = (self.midnight(first), self.midnight(next));
            // Clocks that are put back over midnight show a date again that has ended.
            if at < to {
                (from, to)
            } else {
                (to, self.midnight(self.days(next).1))
            }
        };
        (Timestamp::from_millis(from), Timestamp::from_millis(to))
    }

    fn hour(self, at: i64) -> (i64, i64) {
        let now = offset(self.zone, at);
        let mut from = at - (at + now).rem_euclid(HOUR_MS);
        let mut to = from + HOUR_MS;
        if offset(self.zone, from) != now {
            from = change(self.zone, from, at);
        }
        if offset(self.zone, to - 1) != now {
            to = change(self.zone, at, to - 1);
        }
        (from, to)
    }

    /// The first day of the period that a day lies in, and the first of the next one.
    fn days(self, day: i64) -> (i64, i64) {
        let (year, month, _) = civil_from_days(day);
        match self.period {
            Period::Hour | Period::Day => (day, day + 1),
            Period::Week => {
                // 1970-01-01 was a Thursday.
                let monday = day - (day + 3).rem_euclid(7);
                (monday, monday + 7)
            }
            Period::Month => {
                let next = if month == 12 {
                    days_from_civil(year + 1, 1, 1)
                } else {
                    days_from_civil(year, month + 1, 1)
                };
                (days_from_civil(year, month, 1), next)
            }
            Period::Year => (days_from_civil(year, 1, 1), days_from_civil(year + 1, 1, 1)),
        }
    }

    /// The first instant of a day.
    fn midnight(self, day: i64) -> i64 {
        let local = day * DAY_MS;
        Around::local(self.zone, local, local).first(local)
    }
}
