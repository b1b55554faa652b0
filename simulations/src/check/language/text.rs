//! The policy files as the checkers read them: only what they judge by, from the text itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sunward_core::signal::{Scope, StreamKey};
use sunward_core::time::Span;
use sunward_core::units::{Basis, Kind};

use sunward_core::fleet::{Fleet, Pool};

/// A policy file.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
}

/// Its name.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    pub(super) name: String,
}

/// What it says.
#[derive(Debug, Deserialize)]
pub(super) struct Spec {
    pub(super) pools: BTreeMap<String, String>,
    pub(super) mode: Option<String>,
    #[serde(default)]
    pub(super) signals: BTreeMap<String, Signal>,
    #[serde(default)]
    pub(super) calendars: BTreeMap<String, Cron>,
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
    pub(super) min_run: Option<String>,
    pub(super) min_rest: Option<String>,
    pub(super) max_changing_sites: Option<u32>,
    pub(super) on_dispatch: Option<String>,
    #[serde(default)]
    pub(super) budgets: Vec<BudgetText>,
    #[serde(default)]
    pub(super) floors: Vec<FloorText>,
    #[serde(default)]
    pub(super) deadlines: Vec<IgnoredAny>,
}

/// A signal.
#[derive(Debug, Deserialize)]
pub(super) struct Signal {
    source: String,
    kind: String,
    basis: Option<String>,
    scope: String,
    scheme: Option<String>,
    max_age: String,
    on_estimated: Option<String>,
}

/// A calendar.
#[derive(Debug, Deserialize)]
pub(super) struct Cron {
    pub(super) cron: String,
    pub(super) lasts: String,
    pub(super) time_zone: String,
}

/// A rule of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Rule {
    pub(super) activate: Side,
    pub(super) window: Option<WindowText>,
}

/// One side of a rule.
#[derive(Debug, Deserialize)]
pub(super) struct Side {
    pub(super) when: String,
    #[serde(rename = "for")]
    pub(super) held: Option<String>,
    pub(super) samples: Option<u32>,
}

/// The least window worth a start.
#[derive(Debug, Deserialize)]
pub(super) struct WindowText {
    pub(super) at_least: Option<String>,
    pub(super) start_cost: Option<String>,
}

/// A budget.
#[derive(Debug, Deserialize)]
pub(super) struct BudgetText {
    pub(super) name: String,
    pub(super) limit: String,
    pub(super) per: Option<String>,
    pub(super) time_zone: Option<String>,
    pub(super) scope: String,
    pub(super) signal: Option<String>,
    pub(super) assume: Option<f64>,
}

/// A floor.
#[derive(Debug, Deserialize)]
pub(super) struct FloorText {
    pub(super) on_missing: Option<String>,
}

/// Where a signal comes from for one pool, and how long it may be believed.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) key: StreamKey,
    pub(super) max_age: Span,
    /// What the source guesses counts, too.
    pub(super) guesses: bool,
}

impl Signal {
    /// The stream that it is for a pool; `None` where there is none.
    pub(super) fn stream(&self, pool: &Pool, fleet: &Fleet) -> Option<Stream> {
        let scope = match (self.scope.as_str(), &self.scheme) {
            ("site", _) => Scope::Site(pool.site.clone()),
            ("zone", Some(scheme)) => Scope::Zone {
                scheme: scheme.as_str().into(),
                code: fleet.site(&pool.site)?.zones.get(scheme.as_str())?.clone(),
            },
            _ => return None,
        };
        Some(Stream {
            key: StreamKey {
                source: self.source.as_str().into(),
                kind: Kind::parse(&self.kind)?,
                scope,
                basis: match &self.basis {
                    Some(basis) => Some(Basis::parse(basis)?),
                    None => None,
                },
            },
            max_age: Span::parse(&self.max_age).ok()?,
            guesses: self.on_estimated.as_deref() != Some("missing"),
        })
    }
}

/// A span that may be left out.
pub(super) fn span(text: Option<&str>) -> Span {
    text.and_then(|text| Span::parse(text).ok())
        .unwrap_or(Span::ZERO)
}
