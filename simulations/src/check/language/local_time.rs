//! Calendars and periods by the local clock, found by looking at it minute by minute.

use chrono::{DateTime, Datelike as _, Timelike as _};
use chrono_tz::Tz;
use sunward_core::time::{Span, Timestamp};

use super::text::Cron;

const MINUTE: Span = Span::from_mins(1);
/// The longest search for the end of a period: more than a month of minutes.
const MINUTES_MAX: u32 = 50_000;

/// What a clock on the wall shows.
fn local(zone: Tz, at: Timestamp) -> Option<DateTime<Tz>> {
    let utc = DateTime::from_timestamp_millis(at.as_millis())?;
    Some(utc.with_timezone(&zone))
}

/// The windows of a calendar that begin between two instants.
pub(super) fn windows(
    cron: &Cron,
    from: Timestamp,
    to: Timestamp,
) -> Option<Vec<(Timestamp, Timestamp)>> {
    let zone: Tz = cron.time_zone.parse().ok()?;
    let lasts = Span::parse(&cron.lasts).ok()?;
    let fields: Vec<&str> = cron.cron.split_whitespace().collect();
    // Only the plain form: a minute, an hour, days of the week.
    let [minute, hour, "*", "*", days] = fields[..] else {
        return None;
    };
    let (minute, hour): (u32, u32) = (minute.parse().ok()?, hour.parse().ok()?);
    let days = weekdays(days)?;
    let mut windows = Vec::new();
    let minute_ms = MINUTE.as_millis();
    let mut at = Timestamp::from_millis(from.as_millis().div_euclid(minute_ms) * minute_ms);
    while at < to {
        let shows = local(zone, at)?;
        let day = shows.weekday().num_days_from_monday() as usize;
        if shows.minute() == minute && shows.hour() == hour && days[day] {
            windows.push((at, at + lasts));
        }
        at += MINUTE;
    }
    Some(windows)
}

/// `SAT`, `MON-FRI`, or `*`; Monday first.
fn weekdays(text: &str) -> Option<[bool; 7]> {
    const NAMES: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];
    if text == "*" {
        return Some([true; 7]);
    }
    let day = |name: &str| NAMES.iter().position(|known| *known == name);
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (day(first)?, day(last)?),
        None => (day(text)?, day(text)?),
    };
    let mut days = [false; 7];
    days.get_mut(first..=last)?.fill(true);
    Some(days)
}

/// How long a sum runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    Day,
    Week,
    Month,
}

impl Period {
    pub(super) fn read(text: &str) -> Option<Period> {
        match text {
            "day" => Some(Period::Day),
            "week" => Some(Period::Week),
            "month" => Some(Period::Month),
            _ => None,
        }
    }

    /// The first minute after `at` at which another one has begun in `zone`.
    pub(super) fn end(self, zone: Tz, at: Timestamp) -> Timestamp {
        let number = |at: Timestamp| {
            local(zone, at).map(|shows| match self {
                Period::Day => shows.num_days_from_ce(),
                // Monday is the first day of a week; day 1 of the common era was one.
                Period::Week => (shows.num_days_from_ce() - 1).div_euclid(7),
                Period::Month => shows.year() * 12 + shows.month0() as i32,
            })
        };
        let now = number(at);
        let minute_ms = MINUTE.as_millis();
        let mut next = Timestamp::from_millis(at.as_millis().div_euclid(minute_ms) * minute_ms);
        for _ in 0..MINUTES_MAX {
            next += MINUTE;
            if number(next) != now {
                break;
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).unwrap()
    }

    fn cron(text: &str, lasts: &str) -> Cron {
        Cron {
            cron: text.to_owned(),
            lasts: lasts.to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
        }
    }

    #[test]
    fn windows_begin_by_the_local_clock_on_both_sides_of_its_change() {
        let (from, to) = (at("2026-03-27T00:00:00Z"), at("2026-03-31T00:00:00Z"));
        let nights = windows(&cron("0 22 * * MON-FRI", "8h"), from, to).unwrap();
        let begins = [at("2026-03-27T21:00:00Z"), at("2026-03-30T20:00:00Z")];
        assert_eq!(
            nights.iter().map(|window| window.0).collect::<Vec<_>>(),
            begins
        );
        let weekends = windows(&cron("0 0 * * SAT", "2d"), from, to).unwrap();
        assert_eq!(
            weekends,
            [(at("2026-03-27T23:00:00Z"), at("2026-03-29T23:00:00Z"))]
        );
        assert!(windows(&cron("*/5 22 * * *", "8h"), from, to).is_none());
    }

    #[test]
    fn periods_end_at_local_midnight() {
        let zone = chrono_tz::Europe::Berlin;
        let noon = at("2026-03-28T12:00:00Z");
        assert_eq!(Period::Day.end(zone, noon), at("2026-03-28T23:00:00Z"));
        assert_eq!(
            Period::Day.end(zone, at("2026-03-29T12:00:00Z")),
            at("2026-03-29T22:00:00Z")
        );
        assert_eq!(Period::Week.end(zone, noon), at("2026-03-29T22:00:00Z"));
        assert_eq!(
            Period::Month.end(chrono_tz::UTC, noon),
            at("2026-04-01T00:00:00Z")
        );
    }
}
