//! The JSON wire form of a reading, shared by every door that takes JSON (`POST /v1/signals`,
//! files of readings, `sunward signal push`).
//!
//! Two steps, both pure. [`decode()`] turns bytes into [`Reading`]s: syntax, field names, types, stamps
//! and words. [`admit()`] turns one reading into a [`Level`](sunward_core::signal::Level) under a
//! [`Context`]: the fleet, the time and the [`Limits`]. A bad item is a [`Rejection`] and never
//! takes the good ones with it; only a body that is not JSON at all is [`Malformed`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use sunward_core::fleet::Fleet;
use sunward_core::signal::{Quality, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};

mod admit;
mod decode;
pub mod grid_event;
mod members;
mod plain;
#[cfg(test)]
mod tests;

pub use admit::admit;
pub(crate) use admit::hex;
pub use decode::{Item, decode, decode_file, decode_items};
pub use grid_event::admit_grid_event;

/// Most readings of one request.
pub const ITEMS_MAX: usize = 1_000;
/// Deepest nesting of arrays and objects in a body.
pub const DEPTH_MAX: usize = 64;
/// Longest text in a reading, in bytes.
pub const TEXT_BYTES_MAX: usize = 128;

/// What a reading may look like. The defaults are the daemon's promise to partners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most readings of one request.
    pub items_max: usize,
    /// Shortest interval.
    pub interval_min: Span,
    /// Longest interval.
    pub interval_max: Span,
    /// How far ahead of now an interval may begin.
    pub horizon_max: Span,
    /// How long ago an interval may have ended; older readings are history.
    pub live_age_max: Span,
    /// How far ahead of now `issued_at` may lie (the sender's clock may be a little fast).
    pub issued_ahead_max: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            items_max: ITEMS_MAX,
            interval_min: Span::from_secs(1),
            interval_max: Span::from_mins(7 * 24 * 60),
            horizon_max: Span::from_mins(7 * 24 * 60),
            live_age_max: Span::from_mins(15),
            issued_ahead_max: Span::from_mins(5),
        }
    }
}

/// What a reading is judged against.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Engine time.
    pub now: Timestamp,
    /// The fleet in force: which sites and zones exist.
    pub fleet: &'a Fleet,
    /// The limits in force.
    pub limits: &'a Limits,
}

/// One reading as its sender wrote it: every word understood, nothing judged yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The sender's identifier.
    pub id: Option<Arc<str>>,
    /// Source, kind, scope and basis.
    pub stream: StreamKey,
    /// First instant at which the value holds.
    pub valid_from: Timestamp,
    /// First instant at which it no longer holds.
    pub valid_to: Timestamp,
    /// The value, in `unit`.
    pub value: Option<f64>,
    /// The unit as sent; may be absent only without a value.
    pub unit: Option<Arc<str>>,
    /// How the value came about.
    pub quality: Quality,
    /// When the source issued it; absent = when it is received.
    pub issued_at: Option<Timestamp>,
    /// The sender's counter within the stream.
    pub sequence: Option<u64>,
}

impl Serialize for Reading {
    /// The wire form; absent fields are left out.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id.as_ref())?;
        }
        map.serialize_entry("source", self.stream.source.as_ref())?;
        map.serialize_entry("kind", self.stream.kind.as_str())?;
        if let Some(basis) = self.stream.basis {
            map.serialize_entry("basis", basis.as_str())?;
        }
        match &self.stream.scope {
            Scope::Site(site) => map.serialize_entry("site", site.as_ref())?,
            Scope::Zone { scheme, code } => map.serialize_entry(
                "zone",
                &std::collections::BTreeMap::from([
                    ("scheme", scheme.as_ref()),
                    ("code", code.as_ref()),
                ]),
            )?,
        }
        map.serialize_entry("valid_from", &self.valid_from.to_string())?;
        map.serialize_entry("valid_to", &self.valid_to.to_string())?;
        if let Some(value) = self.value {
            map.serialize_entry("value", &value)?;
        }
        if let Some(unit) = &self.unit {
            map.serialize_entry("unit", unit.as_ref())?;
        }
        if self.quality != Quality::Measured {
            map.serialize_entry("quality", self.quality.as_str())?;
        }
        if let Some(issued_at) = self.issued_at {
            map.serialize_entry("issued_at", &issued_at.to_string())?;
        }
        if let Some(sequence) = self.sequence {
            map.serialize_entry("sequence", &sequence)?;
        }
        map.end()
    }
}

/// Why one reading is refused: a stable word for programs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each says what `as_str` says; the details are in `Rejection::detail`"
)]
pub enum Code {
    NotAnObject,
    UnknownField,
    DuplicateField,
    MissingField,
    WrongType,
    BadText,
    StringTooLong,
    UnknownKind,
    UnknownBasis,
    BasisDoesNotFit,
    UnknownQuality,
    UnknownUnit,
    NotFinite,
    ValueMissing,
    ValueWithMissingQuality,
    BadStamp,
    StampWithoutOffset,
    IntervalOrder,
    IntervalTooShort,
    IntervalTooLong,
    IssuedInFuture,
    Horizon,
    TooOld,
    TwoScopes,
    UnknownSite,
    UnknownZone,
    NotGranted,
    Conflict,
    BoardFull,
    BadRow,
    BadNumber,
    UnknownType,
    UnknownStatus,
    OutOfRange,
    AmbiguousLocalTime,
    NonexistentLocalTime,
}

impl Code {
    /// The code on the wire and as a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::NotAnObject => "not_an_object",
            Code::UnknownField => "unknown_field",
            Code::DuplicateField => "duplicate_field",
            Code::MissingField => "missing_field",
            Code::WrongType => "wrong_type",
            Code::BadText => "bad_text",
            Code::StringTooLong => "string_too_long",
            Code::UnknownKind => "unknown_kind",
            Code::UnknownBasis => "unknown_basis",
            Code::BasisDoesNotFit => "basis_does_not_fit",
            Code::UnknownQuality => "unknown_quality",
            Code::UnknownUnit => "unknown_unit",
            Code::NotFinite => "not_finite",
            Code::ValueMissing => "value_missing",
            Code::ValueWithMissingQuality => "value_with_missing_quality",
            Code::BadStamp => "bad_stamp",
            Code::StampWithoutOffset => "stamp_without_offset",
            Code::IntervalOrder => "interval_order",
            Code::IntervalTooShort => "interval_too_short",
            Code::IntervalTooLong => "interval_too_long",
            Code::IssuedInFuture => "issued_in_future",
            Code::Horizon => "horizon",
            Code::TooOld => "too_old",
            Code::TwoScopes => "two_scopes",
            Code::UnknownSite => "unknown_site",
            Code::UnknownZone => "unknown_zone",
            Code::NotGranted => "not_granted",
            Code::Conflict => "conflict",
            Code::BoardFull => "board_full",
            Code::BadRow => "bad_row",
            Code::BadNumber => "bad_number",
            Code::UnknownType => "unknown_type",
            Code::UnknownStatus => "unknown_status",
            Code::OutOfRange => "out_of_range",
            Code::AmbiguousLocalTime => "ambiguous_local_time",
            Code::NonexistentLocalTime => "nonexistent_local_time",
        }
    }
}

/// One reading refused: where in the body, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// JSON pointer (RFC 6901) into the body, for example `/3/unit`.
    pub pointer: String,
    /// The stable code.
    pub code: Code,
    /// What is wrong, why, and how to mend it.
    pub detail: String,
}

impl Rejection {
    /// A rejection of the field `name` of the reading at `at`.
    pub(crate) fn field(at: &str, name: &str, code: Code, detail: impl Into<String>) -> Rejection {
        let name = name.replace('~', "~0").replace('/', "~1");
        Rejection {
            pointer: format!("{at}/{name}"),
            code,
            detail: detail.into(),
        }
    }

    /// The same, as part of the body whose item `item` was judged.
    #[must_use]
    pub fn within(mut self, item: usize) -> Rejection {
        self.pointer.insert_str(0, &format!("/{item}"));
        self
    }

    /// The form of an answer, for the reading at position `item` of the request or file.
    pub fn of_item(self, item: u64) -> Rejected {
        Rejected {
            item,
            pointer: self.pointer,
            code: self.code.as_str().into(),
            detail: self.detail,
        }
    }
}

/// Why no reading of a body could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not JSON (RFC 8259).
    #[error("line {line}, column {column}: {problem}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
        /// What the parser met, and how to mend it.
        problem: String,
    },
    /// Nested too deep.
    #[error(
        "arrays and objects are nested {depth} deep; a reading needs 2 levels, and {DEPTH_MAX} are allowed"
    )]
    Depth {
        /// The depth found.
        depth: usize,
    },
    /// Too many readings.
    #[error(
        "{items} items in one request; at most {max} are allowed: send them in several requests"
    )]
    TooManyItems {
        /// The number found.
        items: usize,
        /// The number allowed.
        max: usize,
    },
}

impl Malformed {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Malformed::Syntax { .. } => "syntax",
            Malformed::Depth { .. } => "depth",
            Malformed::TooManyItems { .. } => "too_many_items",
        }
    }
}

/// What became of the readings of a request: the same in HTTP and gRPC answers and as the result
/// of `sunward signal push`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Durable, and seen by the engine.
    pub accepted: u64,
    /// Accepted before.
    pub duplicate: u64,
    /// Durable, behind a higher sequence of the stream.
    pub superseded: u64,
    /// Refused, in the order of the items.
    pub rejected: Vec<Rejected>,
}

/// One refused reading in an [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Position in the request or file, from 0.
    pub item: u64,
    /// JSON pointer into the request or file.
    pub pointer: String,
    /// The stable code.
    pub code: Cow<'static, str>,
    /// What is wrong, why, and how to mend it.
    pub detail: String,
}

/// Shows a text of a sender in a message: short, and without line breaks.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_CHARS_MAX: usize = 40;
        f.write_str("`")?;
        for (position, c) in self.0.chars().enumerate() {
            if position == SHOWN_CHARS_MAX {
                return f.write_str("...`");
            }
            write!(f, "{}", c.escape_debug())?;
        }
        f.write_str("`")
    }
}
