//! Overrides: what an operator wants regardless of the policies. Each has an owner, a reason and an expiry, always.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::time::{Span, Timestamp};

/// The most overrides in force at a time.
pub const OVERRIDES_MAX: usize = 1_000;
/// The longest that an override may be in force.
pub const OVERRIDE_LASTS_MAX: Span = Span::from_mins(90 * 24 * 60);
/// The longest owner or reason, in bytes.
pub const OVERRIDE_TEXT_MAX: usize = 512;

/// Which pools an override is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideScope {
    /// Every pool.
    Fleet,
    /// The pools of a site.
    Site(Arc<str>),
    /// The pools of a federation.
    Federation(Arc<str>),
    /// One pool.
    Pool(Arc<str>),
}

/// What an override does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideEffect {
    /// Run, so far as limits and hard budgets allow; `None`: as many workers as the pool has.
    On {
        /// So many workers.
        workers: Option<u32>,
    },
    /// Go to the minimum.
    Off,
    /// No target changes but by emergency or limit.
    Freeze,
}

/// An override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Names it; setting another of the same id replaces it.
    pub id: Arc<str>,
    /// About which pools.
    pub scope: OverrideScope,
    /// What it does.
    pub effect: OverrideEffect,
    /// Who wants it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Whose token set it.
    pub set_by: String,
    /// When it was set.
    pub set_at: Timestamp,
    /// First instant at which it no longer holds.
    pub expires_at: Timestamp,
}

impl fmt::Display for OverrideScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverrideScope::Fleet => f.write_str("fleet"),
            OverrideScope::Site(site) => write!(f, "site/{site}"),
            OverrideScope::Federation(federation) => write!(f, "federation/{federation}"),
            OverrideScope::Pool(pool) => write!(f, "pool/{pool}"),
        }
    }
}
