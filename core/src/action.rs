//! What the engine wants done: one closed enum, every action with its cause.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::time::Timestamp;

/// What one step asks for, besides the new state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// To be carried out, in this order, once the group is durable.
    pub actions: Vec<Action>,
    /// Why each changed pool stands where it stands.
    pub decisions: Vec<Decision>,
}

impl Effects {
    /// True where nothing is asked for and nothing was decided.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.decisions.is_empty()
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.actions.clear();
        self.decisions.clear();
    }
}

/// One thing to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write this term on the pool's object and answer with what it is now.
    Claim {
        /// The pool.
        pool: Arc<str>,
        /// The claiming term.
        term: u64,
        /// Why.
        cause: Cause,
    },
    /// Set the pool's wanted workers.
    Scale(Scale),
    /// Tell the members of a federation.
    Broadcast(Envelope),
    /// Answer the sender of one event of the group otherwise than with "accepted".
    Reply {
        /// Position of the event in its group.
        position: u32,
        /// The answer.
        reply: Reply,
    },
    /// Something was not done, and this is why.
    Refuse {
        /// The pool, where it concerns one.
        pool: Option<Arc<str>>,
        /// A stable word for metrics: `foreign_change`, `clock_stepped`, ...
        reason: &'static str,
        /// In words.
        detail: String,
        /// Why it was wanted.
        cause: Cause,
    },
}

/// An absolute order to a pool: "these many workers should remain".
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The pool.
    pub pool: Arc<str>,
    /// The writing term.
    pub term: u64,
    /// Counted per pool; a retry keeps it.
    pub generation: u64,
    /// Workers that should remain.
    pub replicas: u32,
    /// Workers wanted now, as far as the engine knows; if the object says otherwise, the call
    /// is not made and the outcome is a conflict.
    pub from: u32,
    /// When the decision was taken.
    pub decided_at: Timestamp,
    /// Why.
    pub cause: Cause,
}

/// What an ingest ticket is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A higher sequence of this stream was seen before; kept as history.
    Superseded,
    /// The board holds as many streams as it may.
    BoardFull,
}

/// Why an action was taken: the journal index that led to it, and the words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Index of the group that led to it; also the trace id.
    pub index: u64,
    /// `policy/rule` that decided, or the daemon's own reason.
    pub by: Arc<str>,
    /// In words.
    pub why: Arc<str>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (index {})", self.by, self.why, self.index)
    }
}

/// A federation event, as every sink delivers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// `<term>-<sequence>` at first issue; kept when it is issued anew. Act once per id.
    pub id: Arc<str>,
    /// The term that issues it.
    pub term: u64,
    /// Continuous per federation, over leaders.
    pub sequence: u64,
    /// The federation, or `_none`.
    pub federation: Arc<str>,
    /// What it says.
    pub kind: EventKind,
    /// The site it concerns.
    pub site: Arc<str>,
    /// When it was issued.
    pub time: Timestamp,
    /// The instant after which the sender no longer waits.
    pub deadline: Option<Timestamp>,
    /// With [`EventKind::SitePower`]: percent of training power still allowed.
    pub power_percent: Option<u8>,
    /// Why.
    pub cause: Cause,
}

/// The kinds of federation events that exist without participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The site's wanted workers left 0.
    SiteJoining,
    /// The site's first worker can train.
    SiteReady,
    /// The site's wanted workers go to 0.
    SiteDraining,
    /// The leave is done; replicas are written next.
    SiteDrained,
    /// The share of training power that the site may use has changed.
    SitePower,
}

impl EventKind {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::SiteJoining => "site.joining",
            EventKind::SiteReady => "site.ready",
            EventKind::SiteDraining => "site.draining",
            EventKind::SiteDrained => "site.drained",
            EventKind::SitePower => "site.power",
        }
    }
}

/// Why a pool stands where it stands, from `at` on: the record that explaining looks up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The pool.
    pub pool: Arc<str>,
    /// From when on.
    pub at: Timestamp,
    /// The journal index that brought the change.
    pub index: u64,
    /// Workers wanted from here on.
    pub target: u32,
    /// Workers wanted before.
    pub before: u32,
    /// `policy/rule` that won, or `none`.
    pub rule: Arc<str>,
    /// The winner's reason and what the planner made of it, in words.
    pub reason: String,
    /// What the winner's policy read.
    pub inputs: Vec<Input>,
    /// Who else had a verdict, and why it did not count.
    pub losers: Vec<Loser>,
    /// When time alone could change it.
    pub next_possible_change: Option<Timestamp>,
}

/// One input of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The name in the policy file.
    pub name: String,
    /// The stream, as text.
    pub stream: String,
    /// The value in the kind's canonical unit, if one holds.
    pub value: Option<f64>,
    /// The canonical unit.
    pub unit: String,
    /// Since receipt, in milliseconds.
    pub age_ms: Option<i64>,
    /// `fresh`, `stale` or `missing`.
    pub state: String,
}

/// A verdict that did not win.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loser {
    /// `policy/rule`.
    pub rule: String,
    /// Its own reason, and why it lost.
    pub reason: String,
}
