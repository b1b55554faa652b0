//! Kinds of rule, one file each, and what they share: memory, verdict, reason.

use std::fmt;

mod sets;
pub mod threshold;

pub use sets::{CALENDARS_MAX, CalendarSet, SIGNALS_MAX, SignalSet};

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::policy::SignalBinding;
use crate::time::Timestamp;

/// What a rule wants of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// Go down to the minimum.
    Release,
    /// Keep what runs: neither more nor fewer.
    Hold,
    /// Run as much as the policy allows.
    Activate,
}

/// Why a rule wants what it wants. Small and `Copy`: it is made at every judging and put into words only when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Activated, and the release condition does not hold.
    Running,
    /// Released, and the activate condition does not hold.
    Resting,
    /// The activate condition holds, but not yet for long enough.
    ActivatePending {
        /// When it will have held for long enough.
        until: Timestamp,
    },
    /// The release condition holds, but not yet for long enough.
    ReleasePending {
        /// When it will have held for long enough.
        until: Timestamp,
    },
    /// A condition, or the count of workers, can't be decided; what runs is held for a while.
    MissingHolding {
        /// The signal whose hold ends next, as its index among the policy's bindings.
        signal: u16,
        /// When that hold ends.
        until: Timestamp,
    },
    /// A signal was missing for its whole hold, and its policy says release.
    MissingReleased {
        /// Its index among the policy's bindings.
        signal: u16,
    },
    /// A signal was missing for its whole hold, and its policy says keep.
    MissingKept {
        /// Its index among the policy's bindings.
        signal: u16,
    },
    /// Both conditions hold and neither has a hold time: release wins.
    BothHold,
    /// A condition or a count of workers that reads no signal can't be decided (an unknown fact, a division by zero):
    /// released at once.
    Undecidable,
    /// The activate condition holds, but has not yet held for enough readings.
    ActivateSamples {
        /// Readings that it has held for.
        seen: u32,
        /// Readings that it must hold for.
        needed: u32,
    },
    /// The release condition holds, but has not yet held for enough readings.
    ReleaseSamples {
        /// Readings that it has held for.
        seen: u32,
        /// Readings that it must hold for.
        needed: u32,
    },
    /// The activate condition holds, but the window is expected to end too early to be worth a start.
    WindowTooShort {
        /// When it is expected to end; `None`: nothing says how long it lasts.
        ends: Option<Timestamp>,
        /// When it would have to end at the earliest.
        needed: Timestamp,
    },
    /// Released ahead of the window's expected end.
    LeavingAhead {
        /// That end.
        ends: Timestamp,
    },
}

/// What a rule says about one pool at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verdict {
    /// What it wants.
    pub intent: Intent,
    /// With [`Intent::Activate`]: at most so many workers; `None`: as many as the pool has.
    pub workers: Option<u32>,
    /// Why.
    pub reason: Reason,
}

/// The answer of one judging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// `None`: the rule has nothing to say.
    pub verdict: Option<Verdict>,
    /// The next instant at which the rule's own timers may change its answer, all readings and facts unchanged.
    /// Always later than the instant of judging.
    pub next_change_at: Option<Timestamp>,
}

/// One kind of rule. Pure: the same facts and memory give the same answer.
pub trait Rule: Send + Sync + fmt::Debug {
    /// Judges one pool. Judging again at any instant, with readings and facts unchanged, never changes a later
    /// outcome.
    fn judge(&self, facts: &Facts<'_>, memory: &mut Memory) -> Judgement;

    /// Everything in the facts that its judgement depends on, in one number: once judged, and until that judgement's
    /// `next_change_at`, judging again where the situation is the same changes neither the judgement nor the memory
    /// (every replica must come to the same state, whether it judged or not). Most readings flip nothing, and this is
    /// how that is seen without judging. `None`: only judging tells, as for whatever looks ahead or counts readings.
    fn situation(&self, _facts: &Facts<'_>) -> Option<u64> {
        None
    }

    /// The bindings that it reads.
    fn signals(&self) -> SignalSet;

    /// The calendars that it reads.
    fn calendars(&self) -> CalendarSet;
}

/// What a rule remembers about one pool. Keyed by the caller (policy, rule name, pool); it survives a reload when
/// the rule's hash is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub(crate) latched: bool,
    /// Since when the condition to change state holds.
    pub(crate) pending_since: Option<Timestamp>,
    /// Since when it can't be decided.
    pub(crate) unknown_since: Option<Timestamp>,
    pub(crate) restarted_at: Option<Timestamp>,
    /// Readings that the condition to change state has held for, and what all of its signals had had by the last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seen: u32,
    #[serde(default, skip_serializing_if = "is_none_counted")]
    pub(crate) counted: u64,
    /// Since when, activated, the count of workers is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workers_unknown_since: Option<Timestamp>,
    /// When the last guaranteed window began, and whether its condition has held since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) window_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) window_open: bool,
    /// The end that the rule left ahead of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<Timestamp>,
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none_counted(count: &u64) -> bool {
    *count == 0
}

impl Memory {
    /// `running`: whether the pool was seen with more than its minimum wanted when it is first judged.
    pub fn new(running: bool) -> Self {
        Memory {
            latched: running,
            pending_since: None,
            unknown_since: None,
            restarted_at: None,
            seen: 0,
            counted: 0,
            workers_unknown_since: None,
            window_since: None,
            window_open: false,
            left: None,
        }
    }

    /// Whether the rule is in its activated state.
    pub fn is_latched(&self) -> bool {
        self.latched
    }

    /// The daemon started at `at`: what is unknown at the next judging counts as unknown from then on, so that
    /// streams get their hold to return, however long the daemon was down.
    pub fn restarted(&mut self, at: Timestamp) {
        self.unknown_since = None;
        self.workers_unknown_since = None;
        self.restarted_at = Some(at);
    }

    /// The condition to change state begins anew.
    pub(crate) fn reset_timers(&mut self) {
        self.pending_since = None;
        self.seen = 0;
    }
}

impl Reason {
    /// The reason in words; `bindings` are those of the policy whose rule gave it.
    pub fn describe(&self, bindings: &[SignalBinding]) -> String {
        let name = |index: u16| {
            bindings
                .get(usize::from(index))
                .map_or("?", |binding| binding.name.as_str())
        };
        match *self {
            Reason::Running => "activated; the release condition does not hold".to_owned(),
            Reason::Resting => "released; the activate condition does not hold".to_owned(),
            Reason::ActivatePending { until } => {
                format!("the activate condition holds; activates at {until}")
            }
            Reason::ReleasePending { until } => {
                format!("the release condition holds; releases at {until}")
            }
            Reason::MissingHolding { signal, until } => {
                format!(
                    "signal {} is missing or stale; holding until {until}",
                    name(signal)
                )
            }
            Reason::MissingReleased { signal } => {
                format!(
                    "signal {} was missing or stale for its whole hold; released",
                    name(signal)
                )
            }
            Reason::MissingKept { signal } => {
                format!(
                    "signal {} was missing or stale for its whole hold; kept as it was",
                    name(signal)
                )
            }
            Reason::BothHold => {
                "the activate and the release condition both hold; released".to_owned()
            }
            Reason::Undecidable => {
                "what reads no signal can't be decided (an unknown fact, or a division by zero); released".to_owned()
            }
            Reason::ActivateSamples { seen, needed } => {
                format!(
                    "the activate condition has held for {seen} of the {needed} readings in a row that a start needs"
                )
            }
            Reason::ReleaseSamples { seen, needed } => {
                format!(
                    "the release condition has held for {seen} of the {needed} readings in a row that a release needs"
                )
            }
            Reason::WindowTooShort {
                ends: Some(ends),
                needed,
            } => format!(
                "the activate condition holds, but the window is expected to end at {ends}; a start made now pays \
                 only if it lasts until {needed}"
            ),
            Reason::WindowTooShort { ends: None, needed } => {
                format!(
                    "the activate condition holds, but nothing says how long the window lasts; a start made now \
                     pays only if it lasts until {needed}"
                )
            }
            Reason::LeavingAhead { ends } => {
                format!(
                    "released ahead of the window's expected end at {ends}; no start before that has passed or \
                     moved out of reach"
                )
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&[]))
    }
}

impl Intent {
    /// The name in explanations and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Intent::Release => "release",
            Intent::Hold => "hold",
            Intent::Activate => "activate",
        }
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
