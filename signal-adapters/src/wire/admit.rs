//! From a reading to a level: units, sites, zones, and the limits on time.

use sha2::{Digest as _, Sha256};
use sunward_core::signal::{Level, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::UnitError;

use super::{Code, Context, Limits, Reading, Rejection, Shown};
use crate::intake::DedupeKey;

/// Judges one reading. `at` is its JSON pointer in the body.
///
/// The id of a reading without one is the SHA-256 of source, stream, interval, issue time and
/// sequence; the hash beside it is that of the whole content, so that an id that comes again with
/// another content is a conflict and not a duplicate.
pub fn admit(
    reading: Reading,
    at: &str,
    context: &Context<'_>,
) -> Result<(Level, DedupeKey), Rejection> {
    check_scope(&reading.stream.scope, at, context)?;
    check_interval(&reading, at, context.limits)?;
    check_times(&reading, at, context)?;
    let value = canonical_value(&reading, at)?;
    let id = match reading.id {
        Some(id) => id,
        None => hex(&identity_hash(&reading)).into(),
    };
    let level = Level {
        id: id.clone(),
        stream: reading.stream,
        valid_from: reading.valid_from,
        valid_to: reading.valid_to,
        value,
        quality: reading.quality,
        issued_at: reading.issued_at,
        sequence: reading.sequence,
    };
    let key = DedupeKey {
        source: level.stream.source.clone(),
        id,
        hash: content_hash(&level),
    };
    Ok((level, key))
}

pub(super) fn check_scope(scope: &Scope, at: &str, context: &Context<'_>) -> Result<(), Rejection> {
    match scope {
        Scope::Site(site) if context.fleet.site(site).is_none() => Err(Rejection::field(
            at,
            "site",
            Code::UnknownSite,
            format!(
                "the fleet has no site {}: correct the name, or add the site to the fleet file",
                Shown(site)
            ),
        )),
        Scope::Zone { scheme, code } if !context.fleet.has_zone(scheme, code) => {
            Err(Rejection::field(
                at,
                "zone",
                Code::UnknownZone,
                format!(
                    "no site of the fleet lies in zone {} of scheme {}: correct it, or add it to a site's `zones` in the fleet file",
                    Shown(code),
                    Shown(scheme)
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn check_interval(reading: &Reading, at: &str, limits: &Limits) -> Result<(), Rejection> {
    let (from, to) = (reading.valid_from, reading.valid_to);
    let length = to - from;
    let (code, detail) = if length <= Span::ZERO {
        let detail = format!(
            "the interval ends at {to}, which is not after its start at {from}: the end is exclusive and later than the start"
        );
        (Code::IntervalOrder, detail)
    } else if length < limits.interval_min {
        (
            Code::IntervalTooShort,
            format!(
                "the interval lasts {length}; the shortest is {}",
                limits.interval_min
            ),
        )
    } else if length > limits.interval_max {
        (
            Code::IntervalTooLong,
            format!(
                "the interval lasts {length}; the longest is {}: split it",
                limits.interval_max
            ),
        )
    } else {
        return Ok(());
    };
    Err(Rejection::field(at, "valid_to", code, detail))
}

fn check_times(reading: &Reading, at: &str, context: &Context<'_>) -> Result<(), Rejection> {
    let (now, limits) = (context.now, context.limits);
    if reading.valid_to < now - limits.live_age_max {
        let detail = format!(
            "the interval ended at {}, more than {} before now ({now}): old readings are history and change no decision; to replay a series, rebase it (`sunward signal push --rebase now`)",
            reading.valid_to, limits.live_age_max
        );
        return Err(Rejection::field(at, "valid_to", Code::TooOld, detail));
    }
    if reading.valid_from > now + limits.horizon_max {
        let detail = format!(
            "the interval begins at {}, more than {} after now ({now}): send it later",
            reading.valid_from, limits.horizon_max
        );
        return Err(Rejection::field(at, "valid_from", Code::Horizon, detail));
    }
    if let Some(issued_at) = reading
        .issued_at
        .filter(|issued| *issued > now + limits.issued_ahead_max)
    {
        let detail = format!(
            "issued at {issued_at}, more than {} after now ({now}): check the sender's clock and the stamp's offset",
            limits.issued_ahead_max
        );
        return Err(Rejection::field(
            at,
            "issued_at",
            Code::IssuedInFuture,
            detail,
        ));
    }
    Ok(())
}

/// The value in the canonical unit of the kind. A unit is checked even where there is no value.
fn canonical_value(reading: &Reading, at: &str) -> Result<Option<f64>, Rejection> {
    let kind = reading.stream.kind;
    let Some(unit) = &reading.unit else {
        return Ok(None);
    };
    let converted = kind
        .convert(reading.value.unwrap_or(0.0), unit)
        .map_err(|error| {
            let (name, code) = match error {
                UnitError::Unknown { .. } => ("unit", Code::UnknownUnit),
                UnitError::NotFinite { .. } => ("value", Code::NotFinite),
            };
            Rejection::field(at, name, code, error.to_string())
        })?;
    Ok(reading.value.map(|_| converted))
}

/// What names a reading that has no id.
fn identity_hash(reading: &Reading) -> [u8; 32] {
    let mut hash = Content::new(b"sunward reading id 1");
    hash.stream(&reading.stream);
    hash.stamps(reading.valid_from, reading.valid_to, reading.issued_at);
    hash.number(reading.sequence);
    hash.finish()
}

/// Everything that a level says, but its id.
fn content_hash(level: &Level) -> [u8; 32] {
    let mut hash = Content::new(b"sunward reading content 1");
    hash.stream(&level.stream);
    hash.stamps(level.valid_from, level.valid_to, level.issued_at);
    hash.number(level.sequence);
    hash.number(level.value.map(f64::to_bits));
    hash.text(level.quality.as_str());
    hash.finish()
}

/// SHA-256 over fields that can't run into one another: each text carries its length, each number
/// has 8 bytes, and a leading byte says whether it is there. The purpose and its version stand
/// first, because the dedupe index keeps hashes over upgrades.
///
/// Gathered first and hashed at once: two dozen small updates cost as much as the hash.
pub(super) struct Content {
    hash: Sha256,
    gathered: [u8; Self::GATHERED_MAX],
    len: usize,
}

impl Content {
    /// More than the fields of a reading usually take.
    const GATHERED_MAX: usize = 320;

    pub(super) fn new(purpose: &[u8]) -> Content {
        let mut content = Content {
            hash: Sha256::new(),
            gathered: [0; Self::GATHERED_MAX],
            len: 0,
        };
        content.put(purpose);
        content
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.len + bytes.len() > Self::GATHERED_MAX {
            self.hash.update(&self.gathered[..self.len]);
            self.len = 0;
        }
        if bytes.len() > Self::GATHERED_MAX {
            self.hash.update(bytes);
            return;
        }
        self.gathered[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(super) fn text(&mut self, text: &str) {
        self.put(&(text.len() as u64).to_le_bytes());
        self.put(text.as_bytes());
    }

    pub(super) fn number(&mut self, number: Option<u64>) {
        self.put(&[u8::from(number.is_some())]);
        self.put(&number.unwrap_or(0).to_le_bytes());
    }

    fn stream(&mut self, stream: &StreamKey) {
        self.text(&stream.source);
        self.text(stream.kind.as_str());
        self.text(stream.basis.map_or("", |basis| basis.as_str()));
        match &stream.scope {
            Scope::Site(site) => {
                self.text("site");
                self.text(site);
            }
            Scope::Zone { scheme, code } => {
                self.text("zone");
                self.text(scheme);
                self.text(code);
            }
        }
    }

    fn stamps(&mut self, from: Timestamp, to: Timestamp, issued_at: Option<Timestamp>) {
        for stamp in [Some(from), Some(to), issued_at] {
            self.number(stamp.map(|stamp| stamp.as_millis() as u64));
        }
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        self.hash.update(&self.gathered[..self.len]);
        self.hash.finalize().into()
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}
