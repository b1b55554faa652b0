//! The fast way through a body in which everything is as it should be, which is nearly every body: one
//! parse into borrowed fields, no raw text kept. It says nothing about what is wrong. Where anything
//! is, or is only unusual (an escape in a text), it gives up, and the body is read again the slow way
//! (`decode.rs`), which finds the same readings and says what is wrong with the others.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use sunward_core::signal::{Quality, Scope, StreamKey};
use sunward_core::time::Timestamp;
use sunward_core::units::{Basis, Kind};

use super::decode::{Shared, share};
use super::members::is_plain_name;
use super::{Reading, Rejection};

/// What a reading usually takes at least, in bytes, to make room for a body's readings at once.
const READING_BYTES_LOW: usize = 128;

/// The readings of `text`, if nothing about any of them is wrong or unusual.
pub(super) fn readings(
    text: &str,
    in_array: bool,
    items_max: usize,
) -> Option<Vec<Result<Reading, Rejection>>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let readings = if in_array {
        let room = (text.len() / READING_BYTES_LOW).min(items_max);
        let items = Items { room, items_max };
        json.deserialize_seq(items).ok()?
    } else {
        let plain = Plain::deserialize(&mut json).ok()?;
        vec![Ok(plain.read(&mut Shared::default())?)]
    };
    json.end().ok()?;
    Some(readings)
}

/// The items of an array, each made a reading as soon as it is parsed.
struct Items {
    room: usize,
    items_max: usize,
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<Result<Reading, Rejection>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of readings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut readings = Vec::with_capacity(self.room);
        let mut shared = Shared::default();
        while let Some(plain) = items.next_element::<Plain<'de>>()? {
            let reading = plain.read(&mut shared);
            let reading = reading.filter(|_| readings.len() < self.items_max);
            readings.push(Ok(reading.ok_or_else(|| A::Error::custom("unusual"))?));
        }
        Ok(readings)
    }
}

/// A field: absent, `null` (which says the same), or there.
type Field<T> = Option<Option<T>>;

/// The fields of a reading, without escapes.
#[derive(Default)]
struct Plain<'de> {
    id: Field<&'de str>,
    source: Field<&'de str>,
    kind: Field<&'de str>,
    basis: Field<&'de str>,
    site: Field<&'de str>,
    zone: Field<PlainZone<'de>>,
    valid_from: Field<&'de str>,
    valid_to: Field<&'de str>,
    quality: Field<&'de str>,
    value: Field<f64>,
    unit: Field<&'de str>,
    issued_at: Field<&'de str>,
    sequence: Field<u64>,
}

/// The fields of a zone, without escapes.
#[derive(Default)]
struct PlainZone<'de> {
    scheme: Field<&'de str>,
    code: Field<&'de str>,
}

/// An object with known fields.
trait Object<'de>: Default {
    /// Takes the value of the field `name`.
    fn take<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

impl<'de> Object<'de> for Plain<'de> {
    fn take<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "id" => put(&mut self.id, map),
            "source" => put(&mut self.source, map),
            "kind" => put(&mut self.kind, map),
            "basis" => put(&mut self.basis, map),
            "site" => put(&mut self.site, map),
            "zone" => put(&mut self.zone, map),
            "valid_from" => put(&mut self.valid_from, map),
            "valid_to" => put(&mut self.valid_to, map),
            "quality" => put(&mut self.quality, map),
            "value" => put(&mut self.value, map),
            "unit" => put(&mut self.unit, map),
            "issued_at" => put(&mut self.issued_at, map),
            "sequence" => put(&mut self.sequence, map),
            _ => Err(A::Error::custom("unknown")),
        }
    }
}

impl<'de> Object<'de> for PlainZone<'de> {
    fn take<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "scheme" => put(&mut self.scheme, map),
            "code" => put(&mut self.code, map),
            _ => Err(A::Error::custom("unknown")),
        }
    }
}

/// Takes a value that was not there before.
fn put<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Field<T>,
    map: &mut A,
) -> Result<(), A::Error> {
    if field.is_some() {
        return Err(A::Error::custom("twice"));
    }
    *field = Some(map.next_value()?);
    Ok(())
}

/// Reads an object. A derived form would read an array of the fields' values as well.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Object<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut object = T::default();
        while let Some(name) = map.next_key::<&'de str>()? {
            object.take(name, &mut map)?;
        }
        Ok(object)
    }
}

impl<'de> Deserialize<'de> for Plain<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for PlainZone<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A text that may be absent; `Err` where it is no plain name.
fn name(field: Field<&str>) -> Result<Option<&str>, ()> {
    match field.flatten() {
        Some(text) if !is_plain_name(text) => Err(()),
        text => Ok(text),
    }
}

/// A text that must be there.
fn required(field: Field<&str>) -> Option<&str> {
    name(field).ok()?
}

impl Plain<'_> {
    /// The reading, unless anything is wrong with it.
    fn read(self, shared: &mut Shared) -> Option<Reading> {
        let source = required(self.source)?;
        let kind = Kind::parse(required(self.kind)?)?;
        let basis = match name(self.basis).ok()? {
            Some(basis) => Some(Basis::parse(basis).filter(|basis| basis.fits(kind))?),
            None => None,
        };
        let scope = match (name(self.site).ok()?, self.zone.flatten()) {
            (Some(site), None) => Scope::Site(share(&mut shared.place, site)),
            (None, Some(zone)) => Scope::Zone {
                scheme: share(&mut shared.scheme, required(zone.scheme)?),
                code: share(&mut shared.place, required(zone.code)?),
            },
            _ => return None,
        };
        let quality = match name(self.quality).ok()? {
            Some(quality) => Quality::parse(quality)?,
            None => Quality::Measured,
        };
        let (value, unit) = (self.value.flatten(), name(self.unit).ok()?);
        let whole = match quality {
            Quality::Missing => value.is_none(),
            _ => value.is_some_and(f64::is_finite) && unit.is_some(),
        };
        let issued_at = match name(self.issued_at).ok()? {
            Some(text) => Some(Timestamp::parse_rfc3339(text).ok()?),
            None => None,
        };
        whole.then_some(())?;
        Some(Reading {
            id: name(self.id).ok()?.map(Into::into),
            stream: StreamKey {
                source: share(&mut shared.source, source),
                kind,
                scope,
                basis,
            },
            valid_from: Timestamp::parse_rfc3339(required(self.valid_from)?).ok()?,
            valid_to: Timestamp::parse_rfc3339(required(self.valid_to)?).ok()?,
            value,
            unit: unit.map(|unit| share(&mut shared.unit, unit)),
            quality,
            issued_at,
            sequence: self.sequence.flatten(),
        })
    }
}
