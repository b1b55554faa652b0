//! Series of readings in one line, in the spirit of promtool: `90x6 150 _x3 90+5x4`.
//!
//! | item | readings |
//! |---|---|
//! | `90` | one of 90 |
//! | `90x6` | six of 90 |
//! | `90+5x4`, `90-5x4` | four: 90, 95, 100, 105; or 90, 85, 80, 75 |
//! | `~90`, `~90x6`, ... | the same, estimated by the source |
//! | `_`, `_x3` | none at all: nothing is sent |
//! | `missing`, `missingx3` | a record that says that there is no value |

use std::ops::Range;

use super::READINGS_MAX;

/// One interval of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item {
    /// A value.
    Value {
        value: f64,
        /// As the source estimated it, not measured.
        estimated: bool,
    },
    /// The source says that there is none.
    Missing,
    /// Nothing is sent.
    Silence,
}

/// What is wrong with a series, at which bytes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// Reads a series.
pub(super) fn parse(text: &str) -> Result<Vec<Item>, Problem> {
    let mut items = Vec::new();
    let mut at = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let start = at;
        at += word.len();
        let word = word.trim_end();
        if word.is_empty() {
            continue;
        }
        let fail = |message: String| Problem {
            span: start..start + word.len(),
            message,
        };
        let (first, step, times) = item(word).map_err(|what| fail(format!("`{word}`: {what}")))?;
        if times > READINGS_MAX - items.len() {
            return Err(fail(format!("more than {READINGS_MAX} readings")));
        }
        for index in 0..times {
            items.push(match first {
                Item::Value { value, estimated } => Item::Value {
                    value: value + step * index as f64,
                    estimated,
                },
                other => other,
            });
        }
    }
    if items.is_empty() {
        return Err(Problem {
            span: 0..text.len().max(1),
            message: "the series is empty".to_owned(),
        });
    }
    Ok(items)
}

/// What one word stands for: the first reading, the step to the next, and how many.
fn item(word: &str) -> Result<(Item, f64, usize), &'static str> {
    for (name, item) in [("_", Item::Silence), ("missing", Item::Missing)] {
        if let Some(rest) = word.strip_prefix(name) {
            return Ok((item, 0.0, times(rest)?.unwrap_or(1)));
        }
    }
    let (estimated, word) = match word.strip_prefix('~') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let (value, rest) = number(word)?;
    let first = Item::Value { value, estimated };
    if rest.starts_with(['+', '-']) {
        let (step, rest) = number(rest)?;
        let times = times(rest)?.ok_or("a step needs a number of readings, such as `90+5x4`")?;
        return Ok((first, step, times));
    }
    Ok((first, 0.0, times(rest)?.unwrap_or(1)))
}

/// `xN`, or nothing.
fn times(rest: &str) -> Result<Option<usize>, &'static str> {
    if rest.is_empty() {
        return Ok(None);
    }
    let count = rest
        .strip_prefix('x')
        .filter(|count| count.bytes().all(|b| b.is_ascii_digit()));
    match count.map(str::parse::<usize>) {
        Some(Ok(0)) => Err("no reading at all: leave it out"),
        Some(Ok(times)) => Ok(Some(times)),
        _ => Err("`x` and a whole number say how many readings, such as `90x6`"),
    }
}

/// The number that a word begins with, and what follows it.
fn number(word: &str) -> Result<(f64, &str), &'static str> {
    let sign = usize::from(word.starts_with(['+', '-']));
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let length = word[sign..].chars().take_while(|c| is_part(*c)).count();
    let (text, rest) = word.split_at(sign + length);
    match text.parse::<f64>() {
        Ok(value) if length > 0 && value.is_finite() => Ok((value, rest)),
        _ => Err("a number, `_` or `missing` was expected"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn value(value: f64) -> Item {
        Item::Value {
            value,
            estimated: false,
        }
    }

    #[test]
    fn every_item_is_understood() {
        let items = parse("90x2 -1.5 _x2 90+5x3 1-2x2 missing ~7x2\n_").unwrap();
        let about = |value| Item::Value {
            value,
            estimated: true,
        };
        let expected = [
            value(90.0),
            value(90.0),
            value(-1.5),
            Item::Silence,
            Item::Silence,
            value(90.0),
            value(95.0),
            value(100.0),
            value(1.0),
            value(-1.0),
            Item::Missing,
            about(7.0),
            about(7.0),
            Item::Silence,
        ];
        assert_eq!(items, expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, span, words) in [
            ("90 9ox3", 3..7, "how many"),
            ("90x", 0..3, "how many"),
            ("90x0", 0..4, "leave it out"),
            ("90+5", 0..4, "90+5x4"),
            ("a", 0..1, "a number"),
            ("90 1e400", 3..8, "how many"),
            ("_3", 0..2, "how many"),
            ("90x999999999", 0..12, "more than"),
            ("  ", 0..2, "empty"),
        ] {
            let found = parse(text).unwrap_err();
            assert_eq!(found.span, span, "{text}");
            assert!(found.message.contains(words), "{text}: {}", found.message);
        }
    }
}
