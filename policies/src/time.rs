//! Instants and durations as integer milliseconds. Nothing here asks what time it is.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

const MS_PER_SECOND: i64 = 1_000;
const MS_PER_MINUTE: i64 = 60 * MS_PER_SECOND;
const MS_PER_HOUR: i64 = 60 * MS_PER_MINUTE;
const MS_PER_DAY: i64 = 24 * MS_PER_HOUR;

/// An instant: milliseconds since 1970-01-01T00:00:00Z, without leap seconds. Arithmetic saturates.
///
/// Serialised as that integer; shown as RFC 3339 in UTC, with milliseconds only where there are any.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// A length of time in milliseconds; may be negative as the difference of two instants. Arithmetic saturates.
///
/// Serialised as that integer in state and journals; written `1d`, `1h30m`, `250s`, `500ms` by people, which is
/// [`Span::parse`] and `Display`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(i64);

/// Why a text is not an instant or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A date and time without `Z` or `+hh:mm`: which instant it means depends on where it was written.
    #[error(
        "`{text}` has no offset from UTC, so it names no instant: end it with `Z` or an offset such as `+02:00`"
    )]
    LocalTime {
        /// The text as given.
        text: String,
    },
    /// Not RFC 3339.
    #[error("`{text}` is not an RFC 3339 time ({problem}): write it like `2023-06-01T12:30:00Z`")]
    NotRfc3339 {
        /// The text as given.
        text: String,
        /// The part that does not fit.
        problem: &'static str,
    },
    /// A number without a unit.
    #[error("`{text}` has no unit: write `{text}s` for seconds, or `m`, `h`, `d`, `ms`")]
    NoUnit {
        /// The text as given.
        text: String,
    },
    /// Not a duration.
    #[error(
        "`{text}` is not a duration ({problem}): write it like `250s`, `10m`, `1h30m`, `1d` or `500ms`"
    )]
    NotADuration {
        /// The text as given.
        text: String,
        /// The part that does not fit.
        problem: &'static str,
    },
}

impl Timestamp {
    /// The first representable instant.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// The last representable instant; arithmetic that would pass it stays here.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// From milliseconds since 1970-01-01T00:00:00Z.
    pub const fn from_millis(ms: i64) -> Self {
        Timestamp(ms)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339 (years 0000 to 9999). The offset is required; digits beyond the millisecond are dropped;
    /// the second 60 of a leap second is the instant after it.
    pub fn parse_rfc3339(text: &str) -> Result<Self, TimeError> {
        Rfc3339 {
            text,
            bytes: text.as_bytes(),
        }
        .parse()
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest length; arithmetic that would pass it stays here.
    pub const MAX: Span = Span(i64::MAX);

    /// From milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Span(ms)
    }

    /// From seconds, saturating.
    pub const fn from_secs(seconds: i64) -> Self {
        Span(seconds.saturating_mul(MS_PER_SECOND))
    }

    /// From minutes, saturating.
    pub const fn from_mins(minutes: i64) -> Self {
        Span(minutes.saturating_mul(MS_PER_MINUTE))
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whether this is exactly no time.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Reads a duration: whole numbers with units `d`, `h`, `m`, `s`, `ms`, the longer unit first, each at most
    /// once: `250s`, `10m`, `1h30m`, `1d`, `500ms`.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let not = |problem| TimeError::NotADuration {
            text: text.to_owned(),
            problem,
        };
        if text.is_empty() {
            return Err(not("it is empty"));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(TimeError::NoUnit {
                text: text.to_owned(),
            });
        }
        let mut rest = text;
        let mut total: i64 = 0;
        let mut last_unit_ms = i64::MAX;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            if number.is_empty() {
                return Err(not("a whole number was expected"));
            }
            let number: i64 = number.parse().map_err(|_| not("it is too long a time"))?;
            let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, tail) = tail.split_at(letters);
            let unit_ms = match unit {
                "d" => MS_PER_DAY,
                "h" => MS_PER_HOUR,
                "m" => MS_PER_MINUTE,
                "s" => MS_PER_SECOND,
                "ms" => 1,
                "" => return Err(not("a number has no unit")),
                _ => return Err(not("the units are d, h, m, s and ms")),
            };
            if unit_ms >= last_unit_ms {
                return Err(not("the longer unit comes first, each once"));
            }
            last_unit_ms = unit_ms;
            total = number
                .checked_mul(unit_ms)
                .and_then(|part| total.checked_add(part))
                .ok_or_else(|| not("it is too long a time"))?;
            rest = tail;
        }
        Ok(Span(total))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.0.unsigned_abs();
        for (unit_ms, unit) in [
            (MS_PER_DAY, "d"),
            (MS_PER_HOUR, "h"),
            (MS_PER_MINUTE, "m"),
            (MS_PER_SECOND, "s"),
            (1, "ms"),
        ] {
            let unit_ms = unit_ms.unsigned_abs();
            if rest >= unit_ms {
                write!(f, "{}{unit}", rest / unit_ms)?;
                rest %= unit_ms;
            }
        }
        Ok(())
    }
}

impl Add<Span> for Timestamp {
    type Output = Timestamp;
    fn add(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Timestamp {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Timestamp {
    type Output = Timestamp;
    fn sub(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_sub(span.0))
    }
}

impl Sub for Timestamp {
    type Output = Span;
    fn sub(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(MS_PER_DAY);
        let ms = self.0.rem_euclid(MS_PER_DAY);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (ms / MS_PER_HOUR, ms / MS_PER_MINUTE % 60);
        let (second, fraction) = (ms / MS_PER_SECOND % 60, ms % MS_PER_SECOND);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if fraction != 0 {
            write!(f, ".{fraction:03}")?;
        }
        f.write_str("Z")
    }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
///
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`]: year, month, day. Same source, `civil_from_days`.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

struct Rfc3339<'a> {
    text: &'a str,
    bytes: &'a [u8],
}

impl Rfc3339<'_> {
    fn fail(&self, problem: &'static str) -> TimeError {
        TimeError::NotRfc3339 {
            text: self.text.to_owned(),
            problem,
        }
    }

    fn number(&self, from: usize, digits: usize, problem: &'static str) -> Result<i64, TimeError> {
        let field = self
            .bytes
            .get(from..from + digits)
            .ok_or_else(|| self.fail(problem))?;
        field.iter().try_fold(0_i64, |n, b| match b {
            b'0'..=b'9' => Ok(n * 10 + i64::from(b - b'0')),
            _ => Err(self.fail(problem)),
        })
    }

    fn expect(&self, at: usize, allowed: &[u8], problem: &'static str) -> Result<(), TimeError> {
        match self.bytes.get(at) {
            Some(b) if allowed.contains(b) => Ok(()),
            _ => Err(self.fail(problem)),
        }
    }

    fn in_range(
        &self,
        value: i64,
        from: i64,
        to: i64,
        problem: &'static str,
    ) -> Result<i64, TimeError> {
        if (from..=to).contains(&value) {
            Ok(value)
        } else {
            Err(self.fail(problem))
        }
    }

    fn parse(&self) -> Result<Timestamp, TimeError> {
        let days = self.date()?;
        self.expect(10, b"Tt ", "a `T` belongs between date and time")?;
        let hour = self.in_range(
            self.number(11, 2, "the hour has two digits")?,
            0,
            23,
            "no such hour",
        )?;
        self.expect(13, b":", "a `:` belongs after the hour")?;
        let minute = self.in_range(
            self.number(14, 2, "the minute has two digits")?,
            0,
            59,
            "no such minute",
        )?;
        self.expect(16, b":", "seconds are required")?;
        let second = self.in_range(
            self.number(17, 2, "the second has two digits")?,
            0,
            60,
            "no such second",
        )?;
        if second == 60 && minute != 59 {
            return Err(self.fail("no such second"));
        }
        let (fraction_ms, at) = self.fraction(19)?;
        let offset_ms = self.offset(at)?;
        let ms = days * MS_PER_DAY
            + hour * MS_PER_HOUR
            + minute * MS_PER_MINUTE
            + second * MS_PER_SECOND
            + if second == 60 { 0 } else { fraction_ms };
        Ok(Timestamp(ms - offset_ms))
    }

    fn date(&self) -> Result<i64, TimeError> {
        let year = self.number(0, 4, "the year has four digits")?;
        self.expect(4, b"-", "a `-` belongs after the year")?;
        let month = self.in_range(
            self.number(5, 2, "the month has two digits")?,
            1,
            12,
            "no such month",
        )?;
        self.expect(7, b"-", "a `-` belongs after the month")?;
        let day = self.number(8, 2, "the day has two digits")?;
        let day = self.in_range(
            day,
            1,
            days_in_month(year, month),
            "no such day in that month",
        )?;
        Ok(days_from_civil(year, month, day))
    }

    /// Milliseconds after the dot, and where the offset begins.
    fn fraction(&self, at: usize) -> Result<(i64, usize), TimeError> {
        if self.bytes.get(at) != Some(&b'.') {
            return Ok((0, at));
        }
        let digits = self.bytes[at + 1..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        if digits == 0 {
            return Err(self.fail("digits belong after the `.`"));
        }
        let kept = digits.min(3);
        let number = self.number(at + 1, kept, "digits belong after the `.`")?;
        Ok((number * 10_i64.pow(3 - kept as u32), at + 1 + digits))
    }

    fn offset(&self, at: usize) -> Result<i64, TimeError> {
        let sign = match self.bytes.get(at) {
            None => {
                return Err(TimeError::LocalTime {
                    text: self.text.to_owned(),
                });
            }
            Some(b'Z' | b'z') => {
                return if self.bytes.len() == at + 1 {
                    Ok(0)
                } else {
                    Err(self.fail("text follows the offset"))
                };
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            Some(_) => return Err(self.fail("the offset is `Z` or `+hh:mm`")),
        };
        let problem = "the offset is `Z` or `+hh:mm`";
        let hours = self.in_range(self.number(at + 1, 2, problem)?, 0, 23, "no such offset")?;
        self.expect(at + 3, b":", problem)?;
        let minutes = self.in_range(self.number(at + 4, 2, problem)?, 0, 59, "no such offset")?;
        if self.bytes.len() != at + 6 {
            return Err(self.fail("text follows the offset"));
        }
        Ok(sign * (hours * MS_PER_HOUR + minutes * MS_PER_MINUTE))
    }
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;
