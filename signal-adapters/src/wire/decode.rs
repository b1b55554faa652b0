//! From bytes to readings: JSON syntax, field names, types, stamps and words.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sunward_core::grid_event::GridEvent;
use sunward_core::signal::{Quality, Scope, StreamKey};
use sunward_core::units::{Basis, Kind};

use super::members::{Draft, Members, Names, Zone, missing};
use super::plain;
use super::{Code, DEPTH_MAX, Malformed, Reading, Rejection, Shown, grid_event};

/// Reads the body of a request: one object, or an array of at most `items_max`.
///
/// Answers one result per item. Numbers out of range, wrong types and the like are rejections of
/// their item; only what is not JSON, too deep or too many refuses the whole.
pub fn decode(body: &[u8], items_max: usize) -> Result<Vec<Result<Reading, Rejection>>, Malformed> {
    if let Ok(text) = std::str::from_utf8(body)
        && let Some(readings) = plain::readings(text, begins_with_bracket(body), items_max)
    {
        return Ok(readings);
    }
    decode_item_by_item(body, items_max)
}

/// The same, with an account of what is wrong.
pub(super) fn decode_item_by_item(
    body: &[u8],
    items_max: usize,
) -> Result<Vec<Result<Reading, Rejection>>, Malformed> {
    let in_array = begins_with_bracket(body);
    check_depth(body)?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let (drafts, items) = if in_array {
        Items::new(items_max).deserialize(&mut json)
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
    let mut shared = Shared::default();
    let read = |(item, draft): (usize, Draft<'_>)| {
        let reading = draft.read(&mut shared);
        if in_array {
            reading.map_err(|rejection| rejection.within(item))
        } else {
            reading
        }
    };
    Ok(drafts.into_iter().enumerate().map(read).collect())
}

/// What an item of a request is.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A reading: what has no `type`.
    Reading(Reading),
    /// A grid event: `type: grid_event`.
    GridEvent(GridEvent),
}

/// The same for items of every type.
pub fn decode_items(
    body: &[u8],
    items_max: usize,
) -> Result<Vec<Result<Item, Rejection>>, Malformed> {
    let in_array = begins_with_bracket(body);
    let plain = std::str::from_utf8(body)
        .ok()
        .and_then(|text| plain::readings(text, in_array, items_max));
    let readings = match plain {
        Some(readings) => readings,
        None if mentions_type(body) => return decode_typed(body, in_array, items_max),
        None => decode_item_by_item(body, items_max)?,
    };
    Ok(readings
        .into_iter()
        .map(|reading| reading.map(Item::Reading))
        .collect())
}

fn mentions_type(body: &[u8]) -> bool {
    let key = b"\"type\"";
    body.windows(key.len()).any(|bytes| bytes == key)
}

/// Each item by the type that it says it has.
fn decode_typed(
    body: &[u8],
    in_array: bool,
    items_max: usize,
) -> Result<Vec<Result<Item, Rejection>>, Malformed> {
    check_depth(body)?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let (raws, items) = if in_array {
        Items::new(items_max).deserialize(&mut json)
    } else {
        <&RawValue>::deserialize(&mut json).map(|raw| (vec![raw], 1))
    }
    .map_err(|error| syntax(body, &error))?;
    json.end().map_err(|error| syntax(body, &error))?;
    if items > items_max {
        return Err(Malformed::TooManyItems {
            items,
            max: items_max,
        });
    }
    let mut shared = Shared::default();
    let read = |(position, raw): (usize, &RawValue)| {
        let item = read_typed(raw.get(), &mut shared);
        if in_array {
            item.map_err(|rejection| rejection.within(position))
        } else {
            item
        }
    };
    Ok(raws.into_iter().enumerate().map(read).collect())
}

fn read_typed(raw: &str, shared: &mut Shared) -> Result<Item, Rejection> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, rename = "type")]
        of: Option<Cow<'a, str>>,
    }
    let typed = Some(raw).filter(|raw| raw.starts_with('{'));
    let typed = typed.and_then(|raw| serde_json::from_str::<Typed<'_>>(raw).ok()?.of);
    // The raw text was valid JSON; what can still fail is a number or a character that does not exist.
    match typed.as_deref() {
        None => {
            let draft: Draft<'_> =
                serde_json::from_str(raw).unwrap_or_else(|_| Draft::not_an_object());
            draft.read(shared).map(Item::Reading)
        }
        Some(grid_event::TYPE) => {
            let draft: grid_event::Draft<'_> =
                serde_json::from_str(raw).unwrap_or_else(|_| grid_event::Draft::not_an_object());
            draft.read(shared).map(Item::GridEvent)
        }
        Some(other) => Err(Rejection::field(
            "",
            "type",
            Code::UnknownType,
            format!(
                "{} is not a type of item: leave `type` out for a reading, or send `{}`",
                Shown(other),
                grid_event::TYPE
            ),
        )),
    }
}

fn check_depth(body: &[u8]) -> Result<(), Malformed> {
    let depth = nesting(body);
    if depth > DEPTH_MAX {
        return Err(Malformed::Depth { depth });
    }
    Ok(())
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
    check_depth(file)?;
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
    let mut shared = Shared::default();
    let read = |(item, draft): (usize, Draft<'_>)| {
        let reading = draft.read(&mut shared);
        if single {
            reading
        } else {
            reading.map_err(|rejection| rejection.within(item))
        }
    };
    Ok(drafts.into_iter().enumerate().map(read).collect())
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
struct Items<T> {
    items_max: usize,
    of: PhantomData<T>,
}

impl<T> Items<T> {
    fn new(items_max: usize) -> Items<T> {
        Items {
            items_max,
            of: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Items<T> {
    type Value = (Vec<T>, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = (Vec<T>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of readings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut drafts = Vec::new();
        while drafts.len() < self.items_max {
            let Some(draft) = items.next_element()? else {
                let count = drafts.len();
                return Ok((drafts, count));
            };
            drafts.push(draft);
        }
        let mut count = drafts.len();
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((drafts, count))
    }
}

/// Texts of the reading before, which the next one mostly repeats: shared, they are allocated once
/// per request and not once per reading.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) source: Option<Arc<str>>,
    pub(super) scheme: Option<Arc<str>>,
    /// A site or the code of a zone.
    pub(super) place: Option<Arc<str>>,
    pub(super) unit: Option<Arc<str>>,
}

pub(super) fn share(before: &mut Option<Arc<str>>, text: &str) -> Arc<str> {
    match before {
        Some(before) if **before == *text => Arc::clone(before),
        _ => Arc::clone(before.insert(text.into())),
    }
}

/// The place that an item is about.
pub(super) fn scope<'de, const N: usize>(
    members: &Members<'de, N>,
    at: &str,
    shared: &mut Shared,
) -> Result<Scope, Rejection>
where
    Members<'de, N>: Names,
{
    match (members.text(at, "site")?, members.raw("zone")) {
        (Some(site), None) => Ok(Scope::Site(share(&mut shared.place, &site))),
        (None, Some(raw)) => {
            let at = format!("{at}/zone");
            // The raw text was valid JSON; what can still fail is a number out of range.
            let zone = serde_json::from_str(raw).unwrap_or_else(|_| Zone::not_an_object());
            zone.check(&at)?;
            Ok(Scope::Zone {
                scheme: share(&mut shared.scheme, &zone.required_text(&at, "scheme")?),
                code: share(&mut shared.place, &zone.required_text(&at, "code")?),
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

impl Draft<'_> {
    /// The reading, or the first thing that is wrong with it, by its JSON pointer from the reading on.
    fn read(&self, shared: &mut Shared) -> Result<Reading, Rejection> {
        let at = "";
        self.check(at)?;
        let stream = self.stream(at, shared)?;
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
        let unit = self.text(at, "unit")?;
        let unit = unit.map(|unit| share(&mut shared.unit, &unit));
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

    fn stream(&self, at: &str, shared: &mut Shared) -> Result<StreamKey, Rejection> {
        let source = share(&mut shared.source, &self.required_text(at, "source")?);
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
            scope: scope(self, at, shared)?,
            basis,
        })
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
