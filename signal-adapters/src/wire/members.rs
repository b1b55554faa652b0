//! One JSON object, its fields kept as raw text and looked at one by one.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sunward_core::time::{TimeError, Timestamp};

use super::{Code, DEPTH_MAX, Rejection, Shown, TEXT_BYTES_MAX};

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

/// The fields of one object as they stand in the body, each looked at only once its object is
/// whole, so that a bad one does not end the parse of the others.
pub(super) struct Members<'de, const N: usize> {
    raw: [Option<&'de RawValue>; N],
    fault: Option<Fault>,
}

/// What is wrong with an object before its fields are looked at.
enum Fault {
    NotAnObject,
    Unknown(String),
    Twice(&'static str),
}

/// A reading.
pub(super) type Draft<'de> = Members<'de, 13>;
/// A zone.
pub(super) type Zone<'de> = Members<'de, 2>;

/// The names that an object may have; the type that carries the number of its fields.
pub(super) trait Names {
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
            Ok(Members::not_an_object())
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
        Ok(Members::not_an_object())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Members::not_an_object())
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
    /// What is no object.
    pub(super) fn not_an_object() -> Self {
        Members {
            raw: [None; N],
            fault: Some(Fault::NotAnObject),
        }
    }

    /// Refuses what is no object, or one with a field that is unknown or stands there twice.
    pub(super) fn check(&self, at: &str) -> Result<(), Rejection> {
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

    /// Whether a part of it may be nested deeper than [`DEPTH_MAX`]: only what was skipped, or a field
    /// that is long and no text or number.
    pub(super) fn may_be_deep(&self) -> bool {
        self.fault.is_some()
            || self
                .raw
                .iter()
                .flatten()
                .any(|raw| raw.get().len() >= DEPTH_MAX && raw.get().starts_with(['[', '{']))
    }

    /// The raw text of a field; `null` is the same as absent.
    #[inline]
    pub(super) fn raw(&self, name: &'static str) -> Option<&'de str> {
        let field = Self::NAMES.iter().position(|known| *known == name)?;
        self.raw[field]
            .map(RawValue::get)
            .filter(|text| *text != "null")
    }

    /// A text, unescaped, not empty, bounded, without control characters.
    pub(super) fn text(
        &self,
        at: &str,
        name: &'static str,
    ) -> Result<Option<Cow<'de, str>>, Rejection> {
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
        if text.is_empty() || has_control(&text) {
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

    pub(super) fn required_text(
        &self,
        at: &str,
        name: &'static str,
    ) -> Result<Cow<'de, str>, Rejection> {
        self.text(at, name)?.ok_or_else(|| missing(at, name))
    }

    pub(super) fn stamp(
        &self,
        at: &str,
        name: &'static str,
    ) -> Result<Option<Timestamp>, Rejection> {
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

    pub(super) fn required_stamp(
        &self,
        at: &str,
        name: &'static str,
    ) -> Result<Timestamp, Rejection> {
        self.stamp(at, name)?.ok_or_else(|| missing(at, name))
    }

    /// A word of a closed list.
    pub(super) fn word<T>(
        &self,
        at: &str,
        name: &'static str,
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

/// Whether a text has control characters. Nearly all texts are ASCII, where that is told without a
/// branch per byte.
fn has_control(text: &str) -> bool {
    if text.is_ascii() {
        let control = |found, byte: u8| found | byte.is_ascii_control();
        text.bytes().fold(false, control)
    } else {
        text.chars().any(char::is_control)
    }
}

pub(super) fn missing(at: &str, name: &str) -> Rejection {
    Rejection::field(
        at,
        name,
        Code::MissingField,
        format!("`{name}` is required: add it"),
    )
}
