//! Reading YAML into typed documents, with every error as a [`Diagnostic`] at the place it is about.
//!
//! Reusable for any of our documents: `core` reads the fleet file with [`read_yaml`] and [`Source`] too.

use std::ops::Range;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_saphyr::{Error, Location, MessageFormatter as _, UserMessageFormatter};

pub use serde_saphyr::Spanned;

use crate::codes;
use crate::diagnostic::{Diagnostic, TextRange, nearest};

/// What aliases may expand a short document to, in nodes. A longer one may have as many nodes as bytes.
pub const DOCUMENT_NODES_MIN: usize = 4_096;

/// Reads one YAML document. Unknown keys are refused where the type says so (`deny_unknown_fields`); the nearest
/// known key is suggested. The error's code is one of [`crate::codes`]: syntax, unknown, missing or duplicate key,
/// wrong value, too large.
pub fn read_yaml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Diagnostic> {
    // Every node takes at least a byte, so only aliases can go beyond these.
    let size = text.len().max(DOCUMENT_NODES_MIN);
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: size, max_events: 2 * size, max_total_scalar_bytes: 4 * size },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let source = Source::new(file, text);
        source.diagnostic(error.without_snippet())
    })
}

/// A mapping whose keys are data: kept in the order of the file, with the place of each key and value.
#[derive(Clone, Debug)]
pub struct Entries<V>(pub Vec<(Spanned<String>, Spanned<V>)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
            type Value = Entries<V>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor(std::marker::PhantomData))
    }
}

/// A text with its name: turns byte offsets and [`Spanned`] values into lines and columns.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Source<'a> {
    /// `file` is the path as the caller names it.
    pub const fn new(file: &'a str, text: &'a str) -> Self {
        Source { file, text }
    }

    /// The path as the caller names it.
    pub const fn file(&self) -> &'a str {
        self.file
    }

    /// The range of a byte span of the text. Offsets past the end or inside a character move to the next boundary.
    pub fn range_of_bytes(&self, bytes: Range<usize>) -> TextRange {
        let (line, column) = self.place(bytes.start);
        let (end_line, end_column) = self.place(bytes.end.max(bytes.start));
        TextRange {
            line,
            column,
            end_line,
            end_column,
        }
    }

    /// Where a value stands; through an alias, where it is defined. A scalar is covered whole, quotes included; of a
    /// mapping or a sequence the first character is.
    pub fn range_of<T>(&self, value: &Spanned<T>) -> TextRange {
        match self.bytes_of(value.defined) {
            Some(bytes) => self.range_of_bytes(bytes),
            None => point(value.defined),
        }
    }

    /// Where a part of a text value stands in the file; `part` is in bytes of the value. Exact through plain,
    /// quoted and block scalars, folded lines included.
    pub fn range_within(&self, value: &Spanned<String>, part: Range<usize>) -> TextRange {
        let Some(bytes) = self.bytes_of(value.defined) else {
            return point(value.defined);
        };
        let places = align(&self.text[bytes.clone()], &value.value);
        let whole = 0..bytes.len();
        let at = |offset: usize| {
            places
                .iter()
                .find(|place| place.value_byte >= offset)
                .map(|place| &place.raw)
        };
        let start = at(part.start).map_or(whole.end, |raw| raw.start);
        let last = places
            .iter()
            .rev()
            .find(|place| place.value_byte < part.end && place.value_byte >= part.start);
        let end = last.map_or(start + 1, |place| place.raw.end).max(start);
        self.range_of_bytes(bytes.start + start..bytes.start + end)
    }

    /// The diagnostic of an error of the YAML reader.
    pub fn diagnostic(&self, error: &Error) -> Diagnostic {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        let error = match error {
            Error::AliasError { error, .. } => error,
            other => other,
        };
        let here = self
            .bytes_of(location)
            .map_or_else(|| point(location), |bytes| self.range_of_bytes(bytes));
        let report = |code, message: String| Diagnostic::error(code, self.file, here, message);
        match error {
            Error::SerdeUnknownField {
                field, expected, ..
            } => {
                let found = report(codes::UNKNOWN_KEY, format!("unknown key `{field}`"));
                if field.contains(['(', ')', '<', '>']) {
                    return found.with_help(
                        "within { } a comma ends the value before it: put that value in quotes",
                    );
                }
                found.with_help(suggestion(field, expected, "keys"))
            }
            Error::SerdeUnknownVariant {
                variant, expected, ..
            } => {
                let found = report(codes::UNKNOWN_WORD, format!("unknown word `{variant}`"));
                found.with_help(suggestion(variant, expected, "words"))
            }
            Error::SerdeMissingField { field, .. } => {
                report(codes::MISSING_KEY, format!("the key `{field}` is missing"))
                    .with_help(format!("add `{field}` to this mapping"))
            }
            Error::DuplicateMappingKey { key, .. } => {
                let key = key.as_deref().unwrap_or("of this entry");
                report(
                    codes::DUPLICATE_KEY,
                    format!("the key `{key}` stands here a second time"),
                )
                .with_help("keep one of the two: which would win is not defined")
            }
            Error::MultipleDocuments { .. } => report(
                codes::YAML_SYNTAX,
                "a second document begins here".to_owned(),
            )
            .with_help("a file holds one document: move what follows `---` to a file of its own"),
            Error::InvalidScalar { ty, .. } => report(
                codes::WRONG_VALUE,
                format!("this is not {}", type_in_words(ty)),
            ),
            Error::Unexpected { expected, .. } => report(
                codes::WRONG_VALUE,
                format!("{} was expected here", expected_in_words(expected)),
            ),
            Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasExpansionLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. } => report(
                codes::TOO_LARGE,
                "the document nests or repeats more than is allowed".to_owned(),
            )
            .with_help("write the values out instead of nesting or repeating them by alias"),
            _ => {
                let message = UserMessageFormatter.format_message(error).into_owned();
                if is_syntax(error) {
                    let help = "check brackets, quotes and indentation up to here; a value that begins with `*` or \
                                has `: `, ` #` or, within { }, a comma needs quotes";
                    report(codes::YAML_SYNTAX, message).with_help(help)
                } else {
                    report(codes::WRONG_VALUE, message)
                }
            }
        }
    }

    /// The bytes of a location, without what follows a block scalar's last line.
    fn bytes_of(&self, location: Location) -> Option<Range<usize>> {
        let span = location.span();
        let (start, length) = match (span.byte_offset(), span.byte_len()) {
            (Some(start), Some(length)) => {
                (usize::try_from(start).ok()?, usize::try_from(length).ok()?)
            }
            // The scanner's errors have characters alone. Its lines are no lines of ours: for YAML a lone CR ends one.
            _ if location != Location::UNKNOWN => {
                let start = self.byte_of_character(span.offset())?;
                let first = self.text[start..].chars().next();
                (start, first.map_or(1, char::len_utf8))
            }
            _ => return None,
        };
        let end = start.checked_add(length)?.min(self.text.len());
        let raw = self.text.get(start..end)?;
        let trimmed = raw.trim_end().len();
        Some(start..start + if trimmed == 0 { length.min(1) } else { trimmed })
    }

    fn byte_of_character(&self, index: u64) -> Option<usize> {
        let index = usize::try_from(index).ok()?;
        let starts = self.text.char_indices().map(|(at, _)| at);
        starts.chain([self.text.len()]).nth(index)
    }

    fn place(&self, byte: usize) -> (u32, u32) {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte += 1;
        }
        let before = &self.text[..byte];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        (
            u32::try_from(line).unwrap_or(u32::MAX),
            u32::try_from(column).unwrap_or(u32::MAX),
        )
    }
}

fn point(location: Location) -> TextRange {
    let line = u32::try_from(location.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(location.column()).unwrap_or(u32::MAX).max(1);
    TextRange {
        line,
        column,
        end_line: line,
        end_column: column.saturating_add(1),
    }
}

/// "did you mean" where something is near, and what there is.
pub fn suggestion(name: &str, known: &[&str], what: &str) -> String {
    let list = known
        .iter()
        .map(|key| format!("`{key}`"))
        .collect::<Vec<_>>()
        .join(", ");
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? the {what} known here are {list}"),
        None if known.is_empty() => format!("no {what} are known here"),
        None => format!("the {what} known here are {list}"),
    }
}

fn type_in_words(rust_type: &str) -> &str {
    match rust_type {
        "i8" | "i16" | "i32" | "i64" => "a whole number, or it is too large",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more, or it is too large",
        "f32" | "f64" => "a number",
        "bool" | "boolean" => "`true` or `false`",
        other => other,
    }
}

fn expected_in_words(expected: &str) -> &str {
    match expected {
        "mapping start" => "a mapping, `{key: value}`,",
        "sequence start" => "a list, `[a, b]`,",
        "string scalar" => "a text or a number",
        other => other,
    }
}

/// Whether the text itself is not YAML, rather than YAML of the wrong shape.
fn is_syntax(error: &Error) -> bool {
    !matches!(
        error,
        Error::Message { .. }
            | Error::SerdeInvalidType { .. }
            | Error::SerdeInvalidValue { .. }
            | Error::SerdeInvalidLength { .. }
            | Error::InvalidBooleanStrict { .. }
            | Error::NonFiniteFloat { .. }
            | Error::NullIntoString { .. }
            | Error::QuotingRequired { .. }
            | Error::UnexpectedValueForUnit { .. }
    )
}

/// One character of a scalar's value and the bytes of the file's text that it was read from.
struct Place {
    value_byte: usize,
    raw: Range<usize>,
}

/// Walks a scalar as written and as read side by side. White space is not aligned one to one, since folding and
/// indentation change it: a white-space character takes the place where the next other character begins.
fn align(raw: &str, value: &str) -> Vec<Place> {
    let quote = ['"', '\'']
        .into_iter()
        .find(|q| raw.starts_with(*q) && !value.starts_with(*q));
    let mut at = usize::from(quote.is_some());
    let mut places = Vec::with_capacity(value.len());
    for (value_byte, wanted) in value.char_indices() {
        if wanted.is_whitespace() {
            places.push(Place {
                value_byte,
                raw: at..at,
            });
            continue;
        }
        loop {
            let Some(next) = raw[at..].chars().next() else {
                places.push(Place {
                    value_byte,
                    raw: at..at,
                });
                break;
            };
            let length = written_length(&raw[at..], next, quote);
            let is_space =
                next.is_whitespace() || (length > 1 && escapes_space(&raw[at..at + length]));
            if is_space {
                at += length;
                continue;
            }
            places.push(Place {
                value_byte,
                raw: at..at + length,
            });
            at += length;
            break;
        }
    }
    places
}

/// How many bytes the character at the start of `raw` was written with.
fn written_length(raw: &str, first: char, quote: Option<char>) -> usize {
    let length = match (quote, first) {
        (Some('\''), '\'') => 2,
        (Some('"'), '\\') => match raw[1..].chars().next() {
            Some('x') => 4,
            Some('u') => 6,
            Some('U') => 10,
            Some(other) => 1 + other.len_utf8(),
            None => 1,
        },
        _ => first.len_utf8(),
    };
    let mut length = length.min(raw.len());
    while !raw.is_char_boundary(length) {
        length += 1;
    }
    length
}

fn escapes_space(written: &str) -> bool {
    matches!(
        written,
        "\\n" | "\\t" | "\\r" | "\\ " | "\\\n" | "\\x20" | "\\u0020"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct One {
        when: Spanned<String>,
    }

    /// The place of `part` within the value of `when:`, as text of the file.
    fn marked(text: &str, part: &str) -> (TextRange, String) {
        let one: One = serde_saphyr::from_str(text).unwrap();
        let start = one.when.value.find(part).unwrap();
        let range = Source::new("f", text).range_within(&one.when, start..start + part.len());
        assert_eq!(range.line, range.end_line);
        let line = text.lines().nth(range.line as usize - 1).unwrap();
        let length = (range.end_column - range.column) as usize;
        (
            range,
            line.chars()
                .skip(range.column as usize - 1)
                .take(length)
                .collect(),
        )
    }

    #[test]
    fn parts_of_scalars_are_found_in_every_style() {
        for text in [
            "when: é < 1 && carbon < 100 # c\n",
            "a: 1\r\nwhen: é < 1\r\n  && carbon < 100\r\n",
            "when: |-\r\n  é < 1\r\n  && carbon < 100\r\n",
            "when: \"é < 1 && carbon < 100\"\n",
            "when: 'é < 1 && carbon < 100'\n",
            "when: \"\\u00e9 \\u003c\\t1 \\x26& carbon < 100\"\n",
            "when: |\n    é < 1\n      && carbon < 100\n",
            "when: >-\n  é < 1 &&\n\n\n  carbon < 100\nother: 1\n",
            "when: é < 1 &&\n   carbon\n    < 100\n",
            "{a: &x 'é < 1 && carbon < 100', when: *x}\n",
        ] {
            assert_eq!(marked(text, "carbon").1, "carbon", "{text}");
            assert_eq!(marked(text, "100").1, "100", "{text}");
        }
        assert_eq!(
            marked("when: 'a'' b'\n", "b").0,
            TextRange {
                line: 1,
                column: 12,
                end_line: 1,
                end_column: 13
            }
        );
        assert_eq!(marked("when: 'a'' b'\n", "'").1, "''");
    }

    #[test]
    fn columns_count_characters() {
        let source = Source::new("f", "éé x\ny");
        let range = source.range_of_bytes(5..6);
        assert_eq!(
            range,
            TextRange {
                line: 1,
                column: 4,
                end_line: 1,
                end_column: 5
            }
        );
        let past = source.range_of_bytes(100..200);
        assert_eq!((past.line, past.column), (2, 2));
    }
}
