//! Energy signals as the engine knows them: streams, levels and their quality.
//!
//! Wire forms (JSON, CSV, protobuf) never enter this crate; each edge converts its own, units and
//! zones included, before a [`Level`] exists.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::time::{Span, Timestamp};
use sunward_policies::units::{Basis, Kind};

/// Where a signal holds: one site, or one grid zone in one naming scheme.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A site of the fleet, by name.
    Site(Arc<str>),
    /// A grid zone, for example scheme `wt` and code `CAISO_NORTH`.
    Zone {
        /// `eic`, `em`, `wt`, `uk_region` or `iso_node`.
        scheme: Arc<str>,
        /// The zone's code in that scheme.
        code: Arc<str>,
    },
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Site(site) => write!(f, "site:{site}"),
            Scope::Zone { scheme, code } => write!(f, "{scheme}:{code}"),
        }
    }
}

/// The identity of a stream of levels: two levels compete for an instant only within one stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamKey {
    /// Who sends it, as granted to the partner or named by the adapter.
    pub source: Arc<str>,
    /// What it measures.
    pub kind: Kind,
    /// Where it holds.
    pub scope: Scope,
    /// How it is accounted (an average never silently replaces a marginal).
    pub basis: Option<Basis>,
}

impl StreamKey {
    /// A 64-bit hash of the key, the same on every machine: eight bytes at a time, multiplied and
    /// folded as in wyhash (Wang Yi). Only ever an index, never part of a decision.
    pub fn hash(&self) -> u64 {
        let (scope, a, b): (u64, &str, &str) = match &self.scope {
            Scope::Site(site) => (0, site, ""),
            Scope::Zone { scheme, code } => (1, scheme, code),
        };
        let basis = self.basis.map_or(0, |basis| basis as u64 + 1);
        let head = (self.kind as u64) << 16 | basis << 8 | scope;
        [self.source.as_ref(), a, b]
            .iter()
            .fold(mix(head, 0), |hash, text| {
                let (chunks, rest) = text.as_bytes().as_chunks::<8>();
                let hash = chunks
                    .iter()
                    .fold(hash, |hash, chunk| mix(hash, u64::from_le_bytes(*chunk)));
                let mut last = [0; 8];
                last[..rest.len()].copy_from_slice(rest);
                mix(hash, u64::from_le_bytes(last) ^ (text.len() as u64) << 56)
            })
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    (product as u64) ^ (product >> 64) as u64
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.kind.as_str())?;
        if let Some(basis) = self.basis {
            write!(f, ".{}", basis.as_str())?;
        }
        write!(f, "/{}", self.scope)
    }
}

/// How a level came about. The order is the order in which levels win: see [`Quality::rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// Read from a meter or published as final.
    Measured,
    /// Computed by the source for an instant that has passed or runs.
    Estimated,
    /// Issued for the future.
    Forecast,
    /// The source says that it has no value for this interval.
    Missing,
}

impl Quality {
    /// Higher wins. `missing` ranks with `measured`: a source that withdraws a value must be
    /// able to end one that it measured, and a newer measurement must be able to end the gap.
    pub fn rank(self) -> u8 {
        match self {
            Quality::Measured | Quality::Missing => 2,
            Quality::Estimated => 1,
            Quality::Forecast => 0,
        }
    }

    /// The wire name, as in `quality` of a pushed signal.
    pub fn as_str(self) -> &'static str {
        match self {
            Quality::Measured => "measured",
            Quality::Estimated => "estimated",
            Quality::Forecast => "forecast",
            Quality::Missing => "missing",
        }
    }

    /// The inverse of [`Quality::as_str`].
    pub fn parse(text: &str) -> Option<Quality> {
        [
            Quality::Measured,
            Quality::Estimated,
            Quality::Forecast,
            Quality::Missing,
        ]
        .into_iter()
        .find(|quality| quality.as_str() == text)
    }
}

/// One value for one half-open UTC interval, from one issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The sender's identifier, unique per source; empty only for generated series.
    pub id: Arc<str>,
    /// The stream that this level belongs to.
    pub stream: StreamKey,
    /// First instant at which the value holds.
    pub valid_from: Timestamp,
    /// First instant at which it no longer holds; later than `valid_from`.
    pub valid_to: Timestamp,
    /// The value in the canonical unit of the stream's kind; `None` exactly when the quality is
    /// [`Quality::Missing`].
    pub value: Option<f64>,
    /// How the value came about.
    pub quality: Quality,
    /// When the source issued it; `None` means when it was received.
    pub issued_at: Option<Timestamp>,
    /// The sender's counter within the stream.
    pub sequence: Option<u64>,
}

/// One level as the board stores it, with what decides between competing levels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    /// First instant at which the value holds.
    pub valid_from: Timestamp,
    /// First instant at which it no longer holds.
    pub valid_to: Timestamp,
    /// `None` when the source says that there is no value.
    pub value: Option<f64>,
    /// How the value came about.
    pub quality: Quality,
    /// When the source issued it.
    pub issued_at: Timestamp,
    /// The sender's counter within the stream.
    pub sequence: Option<u64>,
    /// When the daemon stamped it.
    pub received_at: Timestamp,
}

impl Issue {
    /// The stored form of `level`, received at `at`.
    pub fn new(level: &Level, at: Timestamp) -> Issue {
        Issue {
            valid_from: level.valid_from,
            valid_to: level.valid_to,
            value: level.value,
            quality: level.quality,
            issued_at: level.issued_at.unwrap_or(at),
            sequence: level.sequence,
            received_at: at,
        }
    }

    /// How long the interval is.
    pub fn lasts(&self) -> Span {
        self.valid_to - self.valid_from
    }

    /// True when the interval covers `t`.
    pub fn covers(&self, t: Timestamp) -> bool {
        self.valid_from <= t && t < self.valid_to
    }

    /// Total order of issues of one stream: the greater one holds where both cover an instant.
    ///
    /// Measured before estimated before forecast; then the newest `issued_at`; then the highest
    /// sequence; then the less green value, `missing` being the least green of all. What remains
    /// (value bits, interval, receipt) only makes the order total, so that any order of arrival
    /// gives one timeline.
    pub fn precedence(&self, other: &Issue, kind: Kind) -> Ordering {
        self.quality
            .rank()
            .cmp(&other.quality.rank())
            .then(self.issued_at.cmp(&other.issued_at))
            .then(self.sequence.cmp(&other.sequence))
            .then_with(|| match (self.value, other.value) {
                (None, None) => Ordering::Equal,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some(a), Some(b)) => kind
                    .less_green(a, b)
                    .then_with(|| a.to_bits().cmp(&b.to_bits())),
            })
            .then(self.valid_from.cmp(&other.valid_from))
            .then(self.valid_to.cmp(&other.valid_to))
            .then(self.received_at.cmp(&other.received_at))
            .then((self.quality as u8).cmp(&(other.quality as u8)))
    }
}
