//! The five fields of cron, as sets of bits.

use std::ops::Range;

use super::CalendarError;
use crate::time::{civil_from_days, days_in_month};

/// The most bytes of a cron expression.
pub const CRON_MAX: usize = 256;

/// Minute, hour, day of the month, month, day of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    minutes: u64,
    hours: u32,
    days: u32,
    months: u16,
    /// Sunday is bit 0.
    weekdays: u8,
    /// A field of days that begins with `*` does not widen the other.
    either_day: bool,
    /// The minute or the hour begins with `*`: it means "every so often", not "at this time of day".
    recurring: bool,
}

struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// Names of the values from `least` on.
    names: &'static [&'static str],
    example: &'static str,
}

const MONTHS: &[&str] = &[
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        least: 0,
        most: 59,
        names: &[],
        example: "0, 30 or */15",
    },
    Field {
        name: "hour",
        least: 0,
        most: 23,
        names: &[],
        example: "22, 8-18 or *",
    },
    Field {
        name: "day of the month",
        least: 1,
        most: 31,
        names: &[],
        example: "1, 1-7 or *",
    },
    Field {
        name: "month",
        least: 1,
        most: 12,
        names: MONTHS,
        example: "6, JUN-AUG or *",
    },
    // Both 0 and 7 are Sunday.
    Field {
        name: "day of the week",
        least: 0,
        most: 7,
        names: WEEKDAYS,
        example: "MON-FRI, 0,6 or *",
    },
];
const WEEKDAY: usize = 4;
const FORM: &str = "write five fields: minute, hour, day of the month, month, day of the week, such as `0 22 * * MON-FRI`";

/// What people write in other dialects, and what it is in this one.
const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

fn error(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> CalendarError {
    CalendarError {
        span: Some(span),
        message: message.into(),
        help: help.into(),
    }
}

impl Cron {
    pub(super) fn parse(text: &str) -> Result<Cron, CalendarError> {
        let whole = 0..text.len();
        if text.len() > CRON_MAX {
            let message = format!("the cron expression has {} bytes", text.len());
            return Err(error(whole, message, format!("{CRON_MAX} are allowed")));
        }
        let fields = words(text);
        if let Some(row) = NICKNAMES.iter().find(|row| row.0 == text.trim()) {
            let message = format!("`{}` is a nickname", row.0);
            return Err(error(whole, message, format!("write `{}`", row.1)));
        }
        if fields.len() == 6 {
            let help = format!("seconds and years have no field here: {FORM}");
            return Err(error(whole, "six fields where five belong", help));
        }
        if fields.len() != FIELDS.len() {
            let plural = if fields.len() == 1 { "" } else { "s" };
            let message = format!("{} field{plural} where five belong", fields.len());
            return Err(error(whole, message, FORM));
        }
        let mut sets = [0_u64; 5];
        let mut starred = [false; 5];
        for (index, span) in fields.into_iter().enumerate() {
            starred[index] = text[span.clone()].starts_with('*');
            sets[index] = set(text, span, index)?;
        }
        // Sunday as 7 is Sunday.
        let weekdays = (sets[4] | sets[4] >> 7) as u8 & 0x7f;
        let cron = Cron {
            minutes: sets[0],
            hours: sets[1] as u32,
            days: sets[2] as u32,
            months: sets[3] as u16,
            weekdays,
            either_day: !starred[2] && !starred[4],
            recurring: starred[0] || starred[1],
        };
        if cron.next_date(0, super::SEARCH_DAYS_MAX).is_none() {
            let message = "no year has such a day";
            let help =
                "take a day that the month has: February has 29 at most, and four months have 30";
            return Err(error(whole, message, help));
        }
        Ok(cron)
    }

    /// Whether it means "every so often" rather than times of day.
    pub(super) const fn is_recurring(&self) -> bool {
        self.recurring
    }

    /// Whether it starts at that minute of a day.
    pub(super) fn at_minute(&self, minute_of_day: u16) -> bool {
        self.hours >> (minute_of_day / 60) & 1 == 1 && self.minutes >> (minute_of_day % 60) & 1 == 1
    }

    /// Whether it starts on every day.
    pub(super) fn is_daily(&self) -> bool {
        self.months == 0x1ffe && self.days == 0xffff_fffe && self.weekdays == 0x7f
    }

    /// Whether it starts on that day, counted from 1970-01-01.
    pub(super) fn on(&self, day: i64) -> bool {
        let (_, month, of_month) = civil_from_days(day);
        self.months >> month & 1 == 1 && self.on_day(of_month, day)
    }

    fn on_day(&self, of_month: i64, day: i64) -> bool {
        let of_month = self.days >> of_month & 1 == 1;
        // 1970-01-01 was a Thursday.
        let weekday = self.weekdays >> (day + 4).rem_euclid(7) & 1 == 1;
        if self.either_day {
            of_month || weekday
        } else {
            of_month && weekday
        }
    }

    /// The first day on which it starts, from `day` to `last`, both counted from 1970-01-01. Steps over months in
    /// which it never does.
    pub(super) fn next_date(&self, day: i64, last: i64) -> Option<i64> {
        let mut day = day;
        let (mut year, mut month, mut of_month) = civil_from_days(day);
        while day <= last {
            let length = days_in_month(year, month);
            if self.months >> month & 1 == 1 {
                while of_month <= length && day <= last {
                    if self.on_day(of_month, day) {
                        return Some(day);
                    }
                    of_month += 1;
                    day += 1;
                }
            } else {
                day += length - of_month + 1;
            }
            of_month = 1;
            month += 1;
            if month > 12 {
                month = 1;
                year += 1;
            }
        }
        None
    }
}

/// The places of what stands between blanks.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut from = None;
    for (at, c) in text.char_indices() {
        match (c.is_whitespace(), from) {
            (true, Some(start)) => {
                words.push(start..at);
                from = None;
            }
            (false, None) => from = Some(at),
            _ => {}
        }
    }
    if let Some(start) = from {
        words.push(start..text.len());
    }
    words
}

/// The set that a field names.
fn set(text: &str, span: Range<usize>, index: usize) -> Result<u64, CalendarError> {
    let mut set = 0;
    let mut at = span.start;
    for item in text[span].split(',') {
        let place = at..at + item.len();
        set |= Item {
            text: item,
            place: place.clone(),
            index,
        }
        .set()?;
        at = place.end + 1;
    }
    Ok(set)
}

/// One entry of a list: `*`, a value or a range, with or without a step.
struct Item<'a> {
    text: &'a str,
    place: Range<usize>,
    index: usize,
}

impl Item<'_> {
    fn field(&self) -> &'static Field {
        &FIELDS[self.index]
    }

    fn fail(&self, message: impl Into<String>, help: impl Into<String>) -> CalendarError {
        error(self.place.clone(), message, help)
    }

    fn set(&self) -> Result<u64, CalendarError> {
        let field = self.field();
        let (part, step) = match self.text.split_once('/') {
            Some((part, step)) => (part, self.step(step)?),
            None => (self.text, 1),
        };
        let (first, last) = match part.split_once('-') {
            _ if part == "*" => (field.least, self.most()),
            Some((first, last)) => self.range(first, last)?,
            None => {
                let value = self.value(part)?;
                if self.text.contains('/') {
                    let message = format!("`{}` is a step without a range", self.text);
                    let help = format!("write `{part}-{}/{step}`", self.most());
                    return Err(self.fail(message, help));
                }
                (value, value)
            }
        };
        Ok((first..=last)
            .step_by(usize::from(step))
            .fold(0, |set, value| set | 1 << value))
    }

    /// The last value that `*` covers: Sunday counts once.
    fn most(&self) -> u8 {
        if self.index == WEEKDAY {
            6
        } else {
            self.field().most
        }
    }

    fn step(&self, text: &str) -> Result<u8, CalendarError> {
        let field = self.field();
        let most = self.most() - field.least;
        match text.parse::<u8>() {
            Ok(step) if (1..=most).contains(&step) => Ok(step),
            _ => {
                let message = format!("`{text}` is no step of the {}", field.name);
                Err(self.fail(message, format!("use a whole number from 1 to {most}")))
            }
        }
    }

    fn range(&self, first_text: &str, last_text: &str) -> Result<(u8, u8), CalendarError> {
        let (mut first, mut last) = (self.value(first_text)?, self.value(last_text)?);
        // The week may end with Sunday as well as begin with it.
        if self.index == WEEKDAY && last == 0 && first > 0 {
            last = 7;
        } else if self.index == WEEKDAY && first == 7 && last < 7 {
            first = 0;
        }
        if first > last {
            let message = format!("the range `{}` runs backwards", self.text);
            let field = self.field();
            let ends = match field.names {
                [] => (field.least.to_string(), self.most().to_string()),
                names => (names[0].to_owned(), names[names.len() - 1].to_owned()),
            };
            let help = format!(
                "split it in two: `{first_text}-{},{}-{last_text}`",
                ends.1, ends.0
            );
            return Err(self.fail(message, help));
        }
        Ok((first, last))
    }

    fn value(&self, text: &str) -> Result<u8, CalendarError> {
        let field = self.field();
        let named = field
            .names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text));
        if let Some(position) = named {
            return Ok(field.least + position as u8);
        }
        if text.is_empty() {
            let message = format!("a value of the {} is missing", field.name);
            return Err(self.fail(message, format!("write for example {}", field.example)));
        }
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse::<u8>() {
            Ok(value) if digits && (field.least..=field.most).contains(&value) => Ok(value),
            _ if digits => {
                let message = format!("there is no {} {text}", field.name);
                let help = format!("use {} to {}", field.least, field.most);
                Err(self.fail(message, help))
            }
            _ => {
                let message = format!("`{text}` is no {}", field.name);
                Err(self.fail(message, self.hint(text)))
            }
        }
    }

    fn hint(&self, text: &str) -> String {
        let field = self.field();
        if text.contains('?') {
            return "write `*` for any".to_owned();
        }
        if text.contains(['L', 'W', '#']) && field.names.is_empty() || text.contains('#') {
            return "`L`, `W` and `#` of other dialects are not known here: name the days"
                .to_owned();
        }
        let long = field
            .names
            .iter()
            .find(|name| text.len() > 3 && text.to_ascii_uppercase().starts_with(*name));
        match (long, field.names) {
            (Some(name), _) => format!("write `{name}`"),
            (None, []) => format!("write for example {}", field.example),
            (None, names) => format!("use a number, or one of {}", names.join(", ")),
        }
    }
}
