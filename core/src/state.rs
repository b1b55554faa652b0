//! What the engine keeps: the snapshot. Everything else is derived from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::document::SourceFile;
use sunward_policies::time::Timestamp;

use crate::board::Board;
use crate::coordination::Accounts;
use crate::draw::DrawHistory;
use crate::grid_event::KnownGridEvent;
use crate::overrides::Override;
use crate::policy_history::PolicyHistory;
use crate::pools::Pools;
use crate::rounds::Federation;

/// The part of the engine that is kept: everything else is derived from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Journal index of the last group applied.
    pub index: u64,
    /// Stamp of the last group applied.
    pub at: Timestamp,
    /// The current term; 0 before the first `started`.
    pub term: u64,
    /// Seed of the named random streams.
    pub seed: u64,
    /// True between a step of the wall clock and its return.
    pub clock_stepped: bool,
    /// The fleet file in force.
    pub fleet: Option<SourceFile>,
    /// The policy files in force.
    pub policies: Vec<SourceFile>,
    /// The set in force before, and what an operator took back.
    pub policy_history: PolicyHistory,
    /// What is known.
    pub board: Board,
    /// Grid events by source and id: those that act, will act, or ended a little while ago.
    pub grid_events: BTreeMap<(Arc<str>, Arc<str>), KnownGridEvent>,
    /// Overrides by id.
    pub overrides: BTreeMap<Arc<str>, Override>,
    /// Sites whose workers are held to a share of their training power, in percent; all others run at 100.
    pub power_percent: BTreeMap<Arc<str>, u8>,
    /// What our workers drew, at the sites where a policy adds it back to a meter's value.
    pub draws: BTreeMap<Arc<str>, DrawHistory>,
    /// Every pool of the fleet.
    pub pools: Pools,
    /// What pools spent and did together.
    pub accounts: Accounts,
    /// Every federation that ever issued an event.
    pub federations: BTreeMap<Arc<str>, Federation>,
    /// Clusters that can't be reached, and why.
    pub unreachable: BTreeMap<Arc<str>, String>,
    /// Sinks that are connected.
    pub sinks_up: BTreeSet<Arc<str>>,
}

/// The state's fingerprint: SHA-256 over its canonical encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
