//! Per pool: what is desired, what is in flight, what is unknown, what is confirmed.
//!
//! The ledger never decides how many workers there should be (the planner does) and never calls
//! anything: it turns a wanted number into at most one outstanding command per pool, with a
//! generation, and turns outcomes and observations into what is known.
//!
//! - A **generation** grows by one when the wanted number differs from the last generation's,
//!   and when the ledger writes again after a foreign change. A retry keeps it.
//! - After a start, and after an outcome that is unknown, nothing is written until the pool was
//!   claimed: the claim's write moves the object on, so that a write still on its way is refused.

use serde::{Deserialize, Serialize};
use sunward_policies::time::{Span, Timestamp};

use crate::event::{Outcome, PoolObservation};
use crate::rng::{Purpose, unit_draw};

/// Conflicts in a row after which the pool is claimed anew, lest a cache that stands still
/// keeps it waiting.
pub const CONFLICTS_MAX: u32 = 5;

/// First delay after a failure.
pub const RETRY_BASE: Span = Span::from_millis(500);
/// Longest delay after failures.
pub const RETRY_MAX: Span = Span::from_millis(30_000);
/// Delay after a refusal: someone has to change something first.
pub const REFUSED_RETRY: Span = Span::from_millis(60_000);
/// First delay after a conflict; the watch is usually a few milliseconds behind.
pub const CONFLICT_BASE: Span = Span::from_millis(50);
/// Longest delay after conflicts.
pub const CONFLICT_MAX: Span = Span::from_millis(1_000);
/// First pause between two rewrites of one number.
pub const CONTEST_BASE: Span = Span::from_millis(1_000);
/// Longest pause between two rewrites of one number.
pub const CONTEST_MAX: Span = Span::from_millis(60_000);
/// After so long without a rewrite the next one is given at once again.
pub const CONTEST_CALM: Span = Span::from_millis(300_000);
/// Longest wait that a server's Retry-After is granted.
pub const RETRY_AFTER_MAX: Span = Span::from_millis(600_000);

/// Whether the pool may be written under this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// Not yet asked for.
    Needed,
    /// Asked for, no answer yet.
    InFlight,
    /// Held.
    Held,
}

/// What the pool is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// Workers that the target asks for.
    pub wanted: u32,
    /// Workers that can train.
    pub ready: u32,
    /// Workers on their way out.
    pub stopping: u32,
    /// The object's version at that time.
    pub version: u64,
}

/// A scale write without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Its generation.
    pub generation: u64,
    /// Its replicas.
    pub replicas: u32,
    /// Workers wanted when it was written.
    pub from: u32,
    /// When it was decided.
    pub since: Timestamp,
}

/// The ledger of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Whether it may be written.
    pub claim: Claim,
    /// Counted up as the module says; 0 = nothing was ever written.
    pub generation: u64,
    /// The replicas of that generation; `None` until the first observation.
    pub desired: Option<u32>,
    /// The newest generation that was accepted.
    pub accepted: u64,
    /// The write without an answer.
    pub in_flight: Option<InFlight>,
    /// A write whose fate is unknown; settled by the next claim.
    pub unknown: Option<InFlight>,
    /// What is known.
    pub confirmed: Option<Confirmed>,
    /// Failures or conflicts in a row.
    pub attempts: u32,
    /// Not before this instant.
    pub retry_at: Option<Timestamp>,
    /// Rewrites of one number in a row, because the object did not stay or become what was written.
    pub contests: u32,
    /// When the number was last rewritten.
    pub contested_at: Option<Timestamp>,
}

/// What the ledger wants done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something happens.
    Nothing,
    /// Nothing before this instant.
    Wait(Timestamp),
    /// Claim the pool.
    Claim,
    /// Write these replicas.
    Scale {
        /// The generation.
        generation: u64,
        /// Workers that should remain.
        replicas: u32,
        /// Workers wanted now, as far as is known.
        from: u32,
    },
}

/// What an observation told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Older than what is known: ignored.
    Outdated,
    /// As expected.
    Expected,
    /// Someone else changed the wanted workers.
    Foreign {
        /// To this number.
        wanted: u32,
        /// From this number.
        from: u32,
    },
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            claim: Claim::Needed,
            generation: 0,
            desired: None,
            accepted: 0,
            in_flight: None,
            unknown: None,
            confirmed: None,
            attempts: 0,
            retry_at: None,
            contests: 0,
            contested_at: None,
        }
    }
}

impl Ledger {
    /// A new term began: what was in flight is unknown, and the pool must be claimed.
    pub fn restart(&mut self) {
        self.lose_track();
        self.claim = Claim::Needed;
        self.attempts = 0;
        self.retry_at = None;
    }

    /// The fate of what is in flight is unknown.
    fn lose_track(&mut self) {
        self.unknown = self.in_flight.take().or(self.unknown);
    }

    /// What was in the way is gone: the next try need not wait.
    pub fn hurry(&mut self) {
        self.retry_at = None;
        self.attempts = 0;
    }

    /// Sets the wanted workers; a number other than the last generation's opens a new one.
    pub fn desire(&mut self, replicas: u32) -> bool {
        if self.desired == Some(replicas) {
            return false;
        }
        let first = self.desired.is_none();
        self.desired = Some(replicas);
        if first
            && self
                .confirmed
                .is_some_and(|confirmed| confirmed.wanted == replicas)
        {
            // Adopted as found: nothing has to be written for it.
            return false;
        }
        self.generation += 1;
        self.attempts = 0;
        self.retry_at = None;
        true
    }

    /// Takes in what a watch or the memory actuator saw.
    pub fn observe(&mut self, seen: &PoolObservation) -> Observed {
        let known = self.confirmed;
        if known.is_some_and(|known| seen.version < known.version) {
            return Observed::Outdated;
        }
        self.confirmed = Some(Confirmed {
            wanted: seen.wanted,
            ready: seen.ready,
            stopping: seen.stopping,
            version: seen.version,
        });
        // Once the number moved while a write had no answer, the move may have been that write:
        // its generation is used up, whatever the answer will be.
        let written = self.in_flight.or(self.unknown);
        if let Some(sent) = written.filter(|sent| sent.from != seen.wanted) {
            self.accepted = self.accepted.max(sent.generation);
        }
        match known {
            Some(known) if known.wanted != seen.wanted && !self.expects(seen.wanted) => {
                Observed::Foreign {
                    wanted: seen.wanted,
                    from: known.wanted,
                }
            }
            _ => Observed::Expected,
        }
    }

    /// True when a write of ours may have made `wanted` true.
    fn expects(&self, wanted: u32) -> bool {
        let written = self.in_flight.or(self.unknown);
        written.is_some_and(|sent| sent.replicas == wanted)
    }

    /// The claim was answered.
    pub fn claimed(&mut self, outcome: &Outcome, now: Timestamp, draw: f64) -> Observed {
        let Outcome::Accepted(seen) = outcome else {
            self.claim = Claim::Needed;
            self.postpone(outcome, now, draw);
            return Observed::Expected;
        };
        self.claim = Claim::Held;
        self.attempts = 0;
        self.retry_at = None;
        // The claim's answer is the newest state there is, whatever was known before; a
        // restored cluster may count its versions from a lower number.
        if let Some(known) = &mut self.confirmed {
            known.version = known.version.min(seen.version);
        }
        // A write that was still on its way can't land any more: the claim moved the object on.
        let observed = self.observe(seen);
        self.unknown = None;
        observed
    }

    /// A scale write was answered. An answer to a write that no longer counts is ignored.
    pub fn settled(
        &mut self,
        generation: u64,
        outcome: &Outcome,
        now: Timestamp,
        draw: f64,
    ) -> bool {
        let Some(sent) = self.in_flight.filter(|sent| sent.generation == generation) else {
            return false;
        };
        if matches!(outcome, Outcome::Unknown { .. }) {
            self.lose_track();
        }
        self.in_flight = None;
        match outcome {
            Outcome::Accepted(seen) => {
                self.accepted = self.accepted.max(sent.generation);
                self.attempts = 0;
                self.retry_at = None;
                self.observe(seen);
            }
            Outcome::Unknown { .. } => {
                self.claim = Claim::Needed;
                self.postpone(outcome, now, draw);
            }
            Outcome::Conflict if self.attempts + 1 >= CONFLICTS_MAX => {
                self.claim = Claim::Needed;
                self.postpone(outcome, now, draw);
            }
            _ => self.postpone(outcome, now, draw),
        }
        true
    }

    fn postpone(&mut self, outcome: &Outcome, now: Timestamp, draw: f64) {
        self.retry_at = Some(now + retry_delay(self.attempts, outcome, draw));
        self.attempts = self.attempts.saturating_add(1);
    }

    /// What to do at `now` so that the pool becomes what is desired.
    pub fn next(&mut self, now: Timestamp) -> Next {
        if self.in_flight.is_some() || self.claim == Claim::InFlight {
            return Next::Nothing;
        }
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            // A pool that is as it should be needs no second try, but a claim does.
            if self.claim == Claim::Needed || !self.satisfied() {
                return Next::Wait(at);
            }
        }
        if self.claim == Claim::Needed {
            self.claim = Claim::InFlight;
            return Next::Claim;
        }
        let (Some(desired), Some(confirmed)) = (self.desired, self.confirmed) else {
            return Next::Nothing;
        };
        if desired == confirmed.wanted {
            return Next::Nothing;
        }
        if self.accepted >= self.generation {
            // Written once already, and the object is otherwise: someone changed it, or a policy
            // of the cluster did. That is a new order, and ever more rarely given.
            let due = self.contest_due();
            if due > now {
                return Next::Wait(due);
            }
            let calm = self.contested_at.is_none_or(|at| now - at > CONTEST_CALM);
            self.contests = if calm {
                1
            } else {
                self.contests.saturating_add(1)
            };
            self.contested_at = Some(now);
            self.generation += 1;
        }
        self.in_flight = Some(InFlight {
            generation: self.generation,
            replicas: desired,
            from: confirmed.wanted,
            since: now,
        });
        Next::Scale {
            generation: self.generation,
            replicas: desired,
            from: confirmed.wanted,
        }
    }

    /// When the number may be written again although it was written once: at once the first
    /// time, then 1 s after the last rewrite, doubling to a minute.
    fn contest_due(&self) -> Timestamp {
        let Some(at) = self.contested_at else {
            return Timestamp::default();
        };
        let doubled = CONTEST_BASE.as_millis() << self.contests.saturating_sub(1).min(20);
        at + Span::from_millis(doubled.min(CONTEST_MAX.as_millis()))
    }

    /// Where the pool stands, in a word.
    pub fn word(&self) -> &'static str {
        match self.claim {
            Claim::Needed => "claim_needed",
            Claim::InFlight => "claiming",
            Claim::Held if self.in_flight.is_some() => "in_flight",
            Claim::Held if self.unknown.is_some() => "unknown",
            Claim::Held if self.satisfied() => "settled",
            Claim::Held => "waiting",
        }
    }

    /// True when the object asks for what is desired and nothing is on its way.
    pub fn satisfied(&self) -> bool {
        self.in_flight.is_none()
            && self.unknown.is_none()
            && self.desired.is_some()
            && self.desired == self.confirmed.map(|confirmed| confirmed.wanted)
    }
}

/// How long to wait after the `attempt`-th failure in a row (0 = first), `draw` in `0..1`.
///
/// Failures and unknown outcomes: 0.5 s doubling to 30 s; conflicts: 50 ms doubling to 1 s;
/// refusals: 60 s; each spread by +-20 %. A server's Retry-After is a lower bound.
pub fn retry_delay(attempt: u32, outcome: &Outcome, draw: f64) -> Span {
    let (base, max) = match outcome {
        Outcome::Accepted(_) => return Span::from_millis(0),
        Outcome::Conflict => (CONFLICT_BASE, CONFLICT_MAX),
        Outcome::Refused { .. } | Outcome::HigherTerm { .. } => (REFUSED_RETRY, REFUSED_RETRY),
        Outcome::Failed { .. } | Outcome::Unknown { .. } => (RETRY_BASE, RETRY_MAX),
    };
    let doubled = base
        .as_millis()
        .saturating_mul(1_i64 << attempt.min(20))
        .min(max.as_millis());
    // The one place where a float becomes a delay: below 2^53, so exact before the floor.
    let spread = (doubled as f64 * (0.8 + 0.4 * draw)).floor() as i64;
    let asked = match outcome {
        Outcome::Failed {
            retry_after_ms: Some(ms),
            ..
        } => i64::try_from(*ms)
            .unwrap_or(i64::MAX)
            .min(RETRY_AFTER_MAX.as_millis()),
        _ => 0,
    };
    Span::from_millis(spread.max(asked))
}

/// The jitter draw for a pool's next try.
pub fn retry_draw(seed: u64, pool: &str, ledger: &Ledger) -> f64 {
    let counter = ledger
        .generation
        .wrapping_mul(1_000_003)
        .wrapping_add(u64::from(ledger.attempts));
    unit_draw(seed, Purpose::RetryJitter, pool, counter)
}
