//! Grid events: calls with a life cycle, from a grid operator or an energy partner.
//!
//! A level says how green or how much; a grid event says what must happen: draw less, draw nothing. Its newest
//! revision counts. Limits and emergencies come before everything else and wait for no hold, ramp or minimum run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::time::{Span, Timestamp};

use crate::signal::Scope;

/// The most grid events that are kept, ended ones included.
pub const GRID_EVENTS_MAX: usize = 10_000;

/// How long an event is kept once it is over, so that a late lower revision is known for what it is.
pub const GRID_EVENT_KEPT: Span = Span::from_mins(24 * 60);

/// What a grid event calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridEventKind {
    /// A call for demand response; the policies say what it does (`on_dispatch`).
    Dispatch,
    /// The site may not draw more than the target.
    Limit,
    /// The site must come down at once: to the target, or to the pools' minimum where there is none.
    Emergency,
    /// A drill: it changes nothing but the log.
    Test,
}

/// Where a grid event stands, as its source says. Whether it acts now also depends on its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridEventStatus {
    /// It will act, or acts, as its interval says.
    Scheduled,
    /// As `Scheduled`; some sources say so once it began.
    Active,
    /// It is over, whatever its interval says.
    Completed,
    /// It was called off.
    Cancelled,
    /// Another one stands in its place.
    Superseded,
}

/// How far down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridTarget {
    /// The most that our pools at a site may draw together, kW; zero or more.
    Kilowatts(f64),
    /// The share of training power still allowed, 0 to 100.
    PowerPercent(u8),
}

/// One revision of a grid event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GridEvent {
    /// The source, as granted to the partner.
    pub source: Arc<str>,
    /// The source's identifier of the event; all revisions share it.
    pub id: Arc<str>,
    /// Counted by the source; a lower one than known changes nothing.
    pub revision: u64,
    /// What it calls for.
    pub kind: GridEventKind,
    /// For which site, or for the sites of which zone.
    pub scope: Scope,
    /// First instant at which it acts.
    pub starts_at: Timestamp,
    /// First instant at which it no longer acts; `None`: until it is completed or cancelled.
    pub ends_at: Option<Timestamp>,
    /// How far down; `None`: to the pools' minimum (dispatch: as the policy says).
    pub target: Option<GridTarget>,
    /// Where it stands.
    pub status: GridEventStatus,
}

impl GridEvent {
    /// Whether it acts at `at`.
    pub fn acts(&self, at: Timestamp) -> bool {
        let stands = matches!(
            self.status,
            GridEventStatus::Scheduled | GridEventStatus::Active
        );
        stands && self.starts_at <= at && self.ends_at.is_none_or(|end| at < end)
    }
}

/// A grid event as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownGridEvent {
    /// Its highest revision.
    pub event: GridEvent,
    /// When that was received.
    pub received_at: Timestamp,
}

impl KnownGridEvent {
    /// When it is over: at its end, or when it was said to be. `None`: nobody knows yet.
    pub fn over_at(&self) -> Option<Timestamp> {
        match self.event.status {
            GridEventStatus::Scheduled | GridEventStatus::Active => self.event.ends_at,
            _ => Some(self.received_at),
        }
    }

    /// When it is forgotten.
    pub fn forgotten_at(&self) -> Option<Timestamp> {
        self.over_at()
            .map(|over| over.max(self.received_at) + GRID_EVENT_KEPT)
    }

    /// The instants at which something about it changes.
    pub fn instants(&self) -> impl Iterator<Item = Timestamp> {
        let starts = Some(self.event.starts_at);
        [starts, self.over_at(), self.forgotten_at()]
            .into_iter()
            .flatten()
    }
}
