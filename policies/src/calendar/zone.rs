//! Local time as arithmetic on milliseconds: what a zone's offset is, when it changes, and at which instant a local
//! time comes round.

use chrono::{DateTime, Offset as _, TimeZone as _};
use chrono_tz::Tz;

pub(super) const MINUTE_MS: i64 = 60_000;
pub(super) const HOUR_MS: i64 = 60 * MINUTE_MS;
pub(super) const DAY_MS: i64 = 24 * HOUR_MS;
/// No offset from UTC has ever been further from zero, in any zone. Between two instants so far around a local time
/// lies every instant that could be it. No zone changes its offset twice within nine days.
pub(super) const REACH_MS: i64 = 16 * HOUR_MS;

/// Local time minus UTC at an instant.
pub(super) fn offset(zone: Tz, at: i64) -> i64 {
    DateTime::from_timestamp_millis(at).map_or(0, |utc| {
        let offset = zone.offset_from_utc_datetime(&utc.naive_utc()).fix();
        i64::from(offset.local_minus_utc()) * 1_000
    })
}

/// The day of an instant in its zone, counted from 1970-01-01.
pub(super) fn local_day(zone: Tz, at: i64) -> i64 {
    (at + offset(zone, at)).div_euclid(DAY_MS)
}

/// The first instant after `from`, up to `to`, at which the offset is no longer that of `from`; one is known to exist.
pub(super) fn change(zone: Tz, from: i64, to: i64) -> i64 {
    let before = offset(zone, from);
    let (mut same, mut other) = (from, to);
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if offset(zone, middle) == before {
            same = middle;
        } else {
            other = middle;
        }
    }
    other
}

/// The offsets around some local times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// It is the same all the while.
    Constant(i64),
    /// It changes.
    Change { before: i64, after: i64, at: i64 },
}

impl Around {
    /// Around the local times from `from` to `to`, which are at most a day apart.
    pub(super) fn local(zone: Tz, from: i64, to: i64) -> Around {
        let (earliest, latest) = (from - REACH_MS, to + REACH_MS);
        let (before, after) = (offset(zone, earliest), offset(zone, latest));
        if before == after {
            return Around::Constant(before);
        }
        let at = change(zone, earliest, latest);
        Around::Change { before, after, at }
    }

    /// The first instant at which it is that local time; where the clocks skip it, the first instant after the gap.
    pub(super) fn first(self, local: i64) -> i64 {
        match self {
            Around::Constant(offset) => local - offset,
            Around::Change { before, at, .. } if local < at + before => local - before,
            Around::Change { after, at, .. } => (local - after).max(at),
        }
    }
}
