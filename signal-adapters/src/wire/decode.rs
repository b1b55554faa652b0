//! From bytes to readings: JSON syntax, field names, types, stamps and words.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sunward_core::signal::{Quality, Scope, StreamKey};
use sunward_core::time::{TimeError, Timestamp};
use sunward_core::units::{Basis, Kind};

use super::{Code, DEPTH_MAX, Malformed, Reading, Rejection, Shown, TEXT_BYTES_MAX};

/// The fields of a reading, in the order in which they are looked at.
const FIELDS: [&str; 13] = [
    "source",
    "kind",
    "basis",
    "site",
    "zone",
    "valid_from",
    "valid_to",
    "quality",
    "value",
    "unit",
    "issued_at",
    "sequence",
    "id",
];
/// The fields of a zone.
const ZONE_FIELDS: [&str; 2] = ["scheme", "code"];

/// Reads the body of a request: one object, or an array of at most `items_max`.
///
/// Answers one result per item. Numbers out of range, wrong types and the like are rejections of
/// their item; only what is not JSON, too deep or too many refuses the whole.
pub fn decode(body: &[u8], items_max: usize) -> Result<Vec<Result<Reading, Rejection>>, Malformed> {
    let depth = nesting(body);
    if depth > DEPTH_MAX {
        return Err(Malformed::Depth { depth });
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let in_array = begins_with_bracket(body);
    let (drafts, items) = if in_array {
        Items { items_max }.deserialize(&mut json)
    } else {
        Draft::deserialize(&mut json).map(|draft| (vec![draft], 1))
    }
    .map_err(|error| syntax(body, &error))?;
    json.end().map_err(|error| syntax(body, &error))?;
    if items > items_max {
        return Err(Malformed::TooManyItems {
            items,
            max: items_max,
        });
    }
    Ok(drafts
        .into_iter()
        .enumerate()
        .map(|(item, draft)| {
            draft.read(&if in_array {
                format!("/{item}")
            } else {
                String::new()
            })
        })
        .collect())
}

/// Reads a file of readings: one object, an array, or one object after the other (JSON lines). The
/// pointers of all but a single object begin with the item's number.
pub fn decode_file(
    file: &[u8],
    items_max: usize,
) -> Result<Vec<Result<Reading, Rejection>>, Malformed> {
    if begins_with_bracket(file) {
        return decode(file, items_max);
    }
    let depth = nesting(file);
    if depth > DEPTH_MAX {
        return Err(Malformed::Depth { depth });
    }
    let mut drafts = Vec::new();
    for draft in serde_json::Deserializer::from_slice(file).into_iter::<Draft<'_>>() {
        drafts.push(draft.map_err(|error| syntax(file, &error))?);
        if drafts.len() > items_max {
            return Err(Malformed::TooManyItems {
                items: drafts.len(),
                max: items_max,
            });
        }
    }
    let single = drafts.len() == 1;
    Ok(drafts
        .into_iter()
        .enumerate()
        .map(|(item, draft)| {
            draft.read(&if single {
                String::new()
            } else {
                format!("/{item}")
            })
        })
        .collect())
}

fn begins_with_bracket(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// The deepest nesting of arrays and objects, without understanding the rest. A body that is not
/// JSON may be counted wrongly; the parser refuses it anyway.
fn nesting(body: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in body {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn syntax(body: &[u8], error: &serde_json::Error) -> Malformed {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let near = body
        .split(|byte| *byte == b'\n')
        .nth(line.saturating_sub(1))
        .map(|bytes| {
            let from = column.saturating_sub(2).min(bytes.len());
            String::from_utf8_lossy(&bytes[from..bytes.len().min(from + 12)]).into_owned()
        })
        .unwrap_or_default();
    let help = if near.contains("NaN") || near.contains("Inf") || near.contains("nan") {
        "; NaN and Infinity are not JSON: where there is no value, leave `value` out and send `quality: missing`"
    } else if body.iter().all(u8::is_ascii_whitespace) {
        "; the body is empty: send one reading as a JSON object, or an array of them"
    } else {
        "; send JSON (RFC 8259) in UTF-8: one reading as an object, or an array of them"
    };
    Malformed::Syntax {
        line,
        column,
        problem: problem + help,
    }
}

/// The items of an array, at most `items_max` of them kept, all of them counted.
struct Items {
    items_max: usize,
}

impl<'de> DeserializeSeed<'de> for Items {
    type Value = (Vec<Draft<'de>>, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = (Vec<Draft<'de>>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of readings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut drafts = Vec::new();
        while drafts.len() < self.items_max {
            match items.next_element()? {
                Some(draft) => drafts.push(draft),
                None => {
                    let count = drafts.len();
                    return Ok((drafts, count));
                }
            }
        }
        let mut count = drafts.len();
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((drafts, count))
    }
}

/// The fields of one object as they stand in the body, each looked at only once its object is
/// whole, so that a bad one does not end the parse of the others.
struct Members<'de, const N: usize> {
    raw: [Option<&'de RawValue>; N],
    fault: Option<Fault>,
}

/// What is wrong with an object before its fields are looked at.
enum Fault {
    NotAnObject,
    Unknown(String),
    Twice(&'static str),
}

type Draft<'de> = Members<'de, 13>;

/// The names that an object may have; the type that carries the number of its fields.
trait Names {
    const NAMES: &'static [&'static str];
}

impl Names for Members<'_, 13> {
    const NAMES: &'static [&'static str] = &FIELDS;
}

impl Names for Members<'_, 2> {
    const NAMES: &'static [&'static str] = &ZONE_FIELDS;
}

impl<'de, const N: usize> Deserialize<'de> for Members<'de, N>
where
    Members<'de, N>: Names,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MembersVisitor::<N>)
    }
}

struct MembersVisitor<const N: usize>;

/// Answers "not an object" for every scalar type.
macro_rules! not_an_object {
    ($($visit:ident: $of:ty),*) => {$(
        fn $visit<E: serde::de::Error>(self, _: $of) -> Result<Self::Value, E> {
            Ok(Members { raw: [None; N], fault: Some(Fault::NotAnObject) })
        }
    )*};
}

impl<'de, const N: usize> Visitor<'de> for MembersVisitor<N>
where
    Members<'de, N>: Names,
{
    type Value = Members<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    not_an_object!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(Members {
            raw: [None; N],
            fault: Some(Fault::NotAnObject),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Members {
            raw: [None; N],
            fault: Some(Fault::NotAnObject),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members {
            raw: [None; N],
            fault: None,
        };
        while let Some(Key(key)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            match Members::<'de, N>::NAMES
                .iter()
                .position(|name| *name == key)
            {
                Some(field) if members.raw[field].is_none() => members.raw[field] = Some(value),
                Some(field) => {
                    members
                        .fault
                        .get_or_insert(Fault::Twice(Members::<'de, N>::NAMES[field]));
                }
                None => {
                    let shown = key.chars().take(TEXT_BYTES_MAX).collect();
                    members.fault.get_or_insert(Fault::Unknown(shown));
                }
            }
        }
        Ok(members)
    }
}

/// A key, borrowed from the body where it holds no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl<'de, const N: usize> Members<'de, N>
where
    Members<'de, N>: Names,
{
    /// Refuses what is no object, or one with a field that is unknown or stands there twice.
    fn check(&self, at: &str) -> Result<(), Rejection> {
        match &self.fault {
            None => Ok(()),
            Some(Fault::NotAnObject) => Err(Rejection {
                pointer: at.to_owned(),
                code: Code::NotAnObject,
                detail: format!(
                    "an object with the fields {} belongs here",
                    Self::NAMES.join(", ")
                ),
            }),
            Some(Fault::Unknown(name)) => Err(Rejection::field(
                at,
                name,
                Code::UnknownField,
                format!(
                    "no field is called {}: the fields are {}",
                    Shown(name),
                    Self::NAMES.join(", ")
                ),
            )),
            Some(Fault::Twice(name)) => Err(Rejection::field(
                at,
                name,
                Code::DuplicateField,
                format!(
                    "`{name}` stands there twice, and which one is meant can't be known: leave one out"
                ),
            )),
        }
    }

    /// The raw text of a field; `null` is the same as absent.
    fn raw(&self, name: &str) -> Option<&'de str> {
        let field = Self::NAMES.iter().position(|known| *known == name)?;
        self.raw[field]
            .map(RawValue::get)
            .filter(|text| *text != "null")
    }

    /// A text, unescaped, not empty, bounded, without control characters.
    fn text(&self, at: &str, name: &str) -> Result<Option<Cow<'de, str>>, Rejection> {
        let Some(raw) = self.raw(name) else {
            return Ok(None);
        };
        let Some(inner) = raw
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
        else {
            return Err(Rejection::field(
                at,
                name,
                Code::WrongType,
                format!("`{name}` is a text: write it in double quotes"),
            ));
        };
        let text = if inner.contains('\\') {
            Cow::Owned(serde_json::from_str::<String>(raw).map_err(|_| {
                Rejection::field(
                    at,
                    name,
                    Code::BadText,
                    format!("`{name}` has an escape that names no character: write it in UTF-8"),
                )
            })?)
        } else {
            Cow::Borrowed(inner)
        };
        if text.len() > TEXT_BYTES_MAX {
            return Err(Rejection::field(
                at,
                name,
                Code::StringTooLong,
                format!(
                    "`{name}` has {} bytes; at most {TEXT_BYTES_MAX} are allowed: shorten it",
                    text.len()
                ),
            ));
        }
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(Rejection::field(
                at,
                name,
                Code::BadText,
                format!(
                    "`{name}` is empty or has control characters: write a plain name, or leave it out where it may be absent"
                ),
            ));
        }
        Ok(Some(text))
    }

    fn required_text(&self, at: &str, name: &str) -> Result<Cow<'de, str>, Rejection> {
        self.text(at, name)?.ok_or_else(|| missing(at, name))
    }

    fn stamp(&self, at: &str, name: &str) -> Result<Option<Timestamp>, Rejection> {
        let Some(text) = self.text(at, name)? else {
            return Ok(None);
        };
        Timestamp::parse_rfc3339(&text).map(Some).map_err(|error| {
            let code = match error {
                TimeError::LocalTime { .. } => Code::StampWithoutOffset,
                _ => Code::BadStamp,
            };
            Rejection::field(at, name, code, error.to_string())
        })
    }

    fn required_stamp(&self, at: &str, name: &str) -> Result<Timestamp, Rejection> {
        self.stamp(at, name)?.ok_or_else(|| missing(at, name))
    }

    /// A word of a closed list.
    fn word<T>(
        &self,
        at: &str,
        name: &str,
        code: Code,
        parse: impl FnOnce(&str) -> Option<T>,
        words: &[&str],
    ) -> Result<Option<T>, Rejection> {
        let Some(text) = self.text(at, name)? else {
            return Ok(None);
        };
        parse(&text).map(Some).ok_or_else(|| {
            let detail = format!(
                "{} is not a {name}: use one of {}",
                Shown(&text),
                words.join(", ")
            );
            Rejection::field(at, name, code, detail)
        })
    }
}

impl Draft<'_> {
    /// The reading, or the first thing that is wrong with it. `at` is its JSON pointer.
    fn read(&self, at: &str) -> Result<Reading, Rejection> {
        self.check(at)?;
        let stream = self.stream(at)?;
        let (valid_from, valid_to) = (
            self.required_stamp(at, "valid_from")?,
            self.required_stamp(at, "valid_to")?,
        );
        let words = [
            Quality::Measured,
            Quality::Estimated,
            Quality::Forecast,
            Quality::Missing,
        ];
        let quality = self
            .word(
                at,
                "quality",
                Code::UnknownQuality,
                Quality::parse,
                &words.map(Quality::as_str),
            )?
            .unwrap_or(Quality::Measured);
        let value = self.value(at, quality)?;
        let unit = self.text(at, "unit")?.map(Arc::from);
        if unit.is_none() && quality != Quality::Missing {
            return Err(missing(at, "unit"));
        }
        Ok(Reading {
            id: self.text(at, "id")?.map(Arc::from),
            stream,
            valid_from,
            valid_to,
            value,
            unit,
            quality,
            issued_at: self.stamp(at, "issued_at")?,
            sequence: self.sequence(at)?,
        })
    }

    fn stream(&self, at: &str) -> Result<StreamKey, Rejection> {
        let source = self.required_text(at, "source")?.into();
        let kind = self
            .word(
                at,
                "kind",
                Code::UnknownKind,
                Kind::parse,
                &Kind::ALL.map(Kind::as_str),
            )?
            .ok_or_else(|| missing(at, "kind"))?;
        let basis = self.word(
            at,
            "basis",
            Code::UnknownBasis,
            Basis::parse,
            &Basis::ALL.map(Basis::as_str),
        )?;
        if let Some(basis) = basis.filter(|basis| !basis.fits(kind)) {
            let fitting: Vec<_> = Basis::ALL
                .into_iter()
                .filter(|basis| basis.fits(kind))
                .map(Basis::as_str)
                .collect();
            let help = if fitting.is_empty() {
                "leave it out".to_owned()
            } else {
                format!("use one of {}", fitting.join(", "))
            };
            let detail = format!("`{basis}` is not a basis of {kind}: {help}");
            return Err(Rejection::field(at, "basis", Code::BasisDoesNotFit, detail));
        }
        Ok(StreamKey {
            source,
            kind,
            scope: self.scope(at)?,
            basis,
        })
    }

    fn scope(&self, at: &str) -> Result<Scope, Rejection> {
        match (self.text(at, "site")?, self.raw("zone")) {
            (Some(site), None) => Ok(Scope::Site(site.into())),
            (None, Some(raw)) => {
                let at = format!("{at}/zone");
                // The raw text was valid JSON; what can still fail is a number out of range.
                let zone: Members<'_, 2> = serde_json::from_str(raw).unwrap_or(Members {
                    raw: [None; 2],
                    fault: Some(Fault::NotAnObject),
                });
                zone.check(&at)?;
                Ok(Scope::Zone {
                    scheme: zone.required_text(&at, "scheme")?.into(),
                    code: zone.required_text(&at, "code")?.into(),
                })
            }
            (None, None) => Err(Rejection::field(
                at,
                "site",
                Code::MissingField,
                "neither `site` nor `zone` says where the value holds: add one of them",
            )),
            (Some(_), Some(_)) => Err(Rejection::field(
                at,
                "zone",
                Code::TwoScopes,
                "`site` and `zone` both say where the value holds: leave one out",
            )),
        }
    }

    fn value(&self, at: &str, quality: Quality) -> Result<Option<f64>, Rejection> {
        let reject = |code, detail: String| Err(Rejection::field(at, "value", code, detail));
        let Some(raw) = self.raw("value") else {
            return if quality == Quality::Missing {
                Ok(None)
            } else {
                reject(Code::ValueMissing, "there is no `value`: add one, or send `quality: missing` where the source has none".into())
            };
        };
        if quality == Quality::Missing {
            return reject(
                Code::ValueWithMissingQuality,
                format!(
                    "`quality: missing` says that there is no value, yet `value` is {}: leave one of them out",
                    Shown(raw)
                ),
            );
        }
        if let Some(text) = raw.strip_prefix('"') {
            let text = text.trim_end_matches('"');
            // Rust reads `nan`, `inf` and `infinity` in any case.
            return match text.trim().parse::<f64>() {
                Ok(number) if !number.is_finite() => reject(
                    Code::NotFinite,
                    format!(
                        "{} is not a finite number: where there is no value, leave `value` out and send `quality: missing`",
                        Shown(text)
                    ),
                ),
                _ => reject(
                    Code::WrongType,
                    format!(
                        "the value {} is a text: send a number without quotes",
                        Shown(text)
                    ),
                ),
            };
        }
        match raw.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            Ok(_) => reject(
                Code::NotFinite,
                format!(
                    "{} is too large for a 64-bit floating-point number: check the value and its unit",
                    Shown(raw)
                ),
            ),
            Err(_) => reject(
                Code::WrongType,
                format!("the value {} is not a number", Shown(raw)),
            ),
        }
    }

    fn sequence(&self, at: &str) -> Result<Option<u64>, Rejection> {
        let Some(raw) = self.raw("sequence") else {
            return Ok(None);
        };
        raw.parse().map(Some).map_err(|_| {
            let detail = format!(
                "{} is not a sequence number: send a whole number from 0 to {}, without quotes",
                Shown(raw),
                u64::MAX
            );
            Rejection::field(at, "sequence", Code::WrongType, detail)
        })
    }
}

fn missing(at: &str, name: &str) -> Rejection {
    Rejection::field(
        at,
        name,
        Code::MissingField,
        format!("`{name}` is required: add it"),
    )
}
