//! What must hold after every step, whatever goes wrong around it.
//!
//! The rules are the numbered invariants of the architecture as far as this world can see them,
//! the core's own [`invariants`], the [`history`] of writes and events, and the [`oracle`]'s
//! independent reading of the policy, and what the policy [`language`] promises. A checker only looks; it never
//! repairs.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::action::{Action, Effects, Scale};
use sunward_core::engine::{Digest, Engine};
use sunward_core::event::Event;
use sunward_core::invariants;
use sunward_core::time::Timestamp;

use self::history::{Broken, History};
use self::language::Language;
use self::oracle::Oracle;
use crate::scenario::Scenario;

pub mod history;
pub mod language;
pub mod oracle;

/// Violations kept per run; the first one is the one to read.
pub const VIOLATIONS_MAX: usize = 20;

/// Digests are compared at every index that this divides, and at the end; where every index is
/// asked for, at each: an encoding of the whole state costs more than all else that is checked.
pub const DIGEST_EVERY: u64 = 16;

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Timestamp,
    /// The rule; a leading number is the architecture's.
    pub rule: &'static str,
    /// What happened.
    pub detail: String,
}

/// The checkers of one run.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// Writes and events.
    pub history: History,
    oracle: Oracle,
    language: Language,
    digests: BTreeMap<u64, Digest>,
    every_digest: bool,
    policies: Option<String>,
    broken: Vec<Broken>,
}

impl Checks {
    /// Checkers for a scenario; with `every_digest` they compare digests at every index.
    pub fn new(scenario: &Scenario, every_digest: bool) -> Checks {
        Checks {
            every_digest,
            oracle: Oracle::new(&scenario.policy_files, &scenario.fleet),
            language: Language::new(scenario),
            ..Checks::default()
        }
    }

    /// A rule did not hold.
    pub fn report(&mut self, at: Timestamp, rule: &'static str, detail: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at, rule, detail });
        }
    }

    /// True once enough was found.
    pub fn is_full(&self) -> bool {
        self.violations.len() >= VIOLATIONS_MAX
    }

    /// How many pools the oracle judges.
    pub fn judged_pools(&self) -> usize {
        self.oracle.pools()
    }

    /// A group was appended and stepped for the first time, by replica `by`.
    pub fn stepped(
        &mut self,
        at: Timestamp,
        by: (usize, u32),
        group: &[Event],
        engine: &Engine,
        effects: &Effects,
    ) {
        self.invariants(at, engine);
        let mut broken = std::mem::take(&mut self.broken);
        self.history
            .stepped(by, group, engine, effects, &mut broken);
        let actions = &effects.actions;
        self.language
            .follow(at, group, engine, actions, &mut broken);
        self.take(at, broken);
        for difference in self.oracle.follow(at, group, engine) {
            let detail = format!(
                "pool {}: {} workers wanted, the policy asks for {}",
                difference.pool, difference.found, difference.expected
            );
            let rule = match difference {
                _ if difference.grew_blind => "10 absence of data never raises capacity",
                _ if difference.found > difference.expected => "policy: no more than it asks",
                _ => "policy: no less than it asks, in time",
            };
            self.report(at, rule, detail);
        }
        self.effects(at, engine, effects);
        self.good_policies_stay(at, engine);
        self.digest(at, engine);
    }

    fn effects(&mut self, at: Timestamp, engine: &Engine, effects: &Effects) {
        let index = engine.state().index;
        for action in &effects.actions {
            let cause = match action {
                Action::Claim { cause, .. } | Action::Refuse { cause, .. } => cause,
                Action::Scale(scale) => &scale.cause,
                Action::Broadcast(envelope) => &envelope.cause,
                Action::Reply { .. } => continue,
            };
            if cause.index > index || cause.by.is_empty() {
                self.report(at, "every action has its cause", format!("{action:?}"));
            }
        }
    }

    /// Only the scenario's own files are ever in force once they are.
    fn good_policies_stay(&mut self, at: Timestamp, engine: &Engine) {
        if engine.policies().policies().is_empty() {
            if self.policies.is_some() {
                self.report(
                    at,
                    "9 a bad file never replaces a good one",
                    "none left".into(),
                );
            }
            return;
        }
        if self.policies.is_none() {
            self.policies = Some(engine.policies().hash());
        }
    }

    /// A replica has stepped to an index that another stepped before.
    pub fn followed(&mut self, at: Timestamp, engine: &Engine) {
        self.invariants(at, engine);
        self.digest(at, engine);
    }

    fn invariants(&mut self, at: Timestamp, engine: &Engine) {
        for broken in invariants::check(engine) {
            self.report(at, "core invariants", broken.0);
        }
    }

    fn digest(&mut self, at: Timestamp, engine: &Engine) {
        let index = engine.state().index;
        if self.every_digest || index.is_multiple_of(DIGEST_EVERY) {
            self.compare(at, index, engine.digest());
        }
    }

    /// Compares a digest with the one first seen at that index.
    pub fn compare(&mut self, at: Timestamp, index: u64, digest: Digest) {
        let known = *self.digests.entry(index).or_insert(digest);
        if known != digest {
            let detail = format!("index {index}: {known} and {digest}");
            self.report(at, "3 one journal, one digest", detail);
        }
    }

    /// A sender was answered.
    pub fn acknowledged(&mut self, at: Timestamp, id: &Arc<str>, durable: bool) {
        if !durable {
            let detail = format!("reading {id} was acknowledged before it was durable");
            self.report(
                at,
                "4 no acknowledgement before its event is durable",
                detail,
            );
        }
    }

    /// A replica sends a call.
    pub fn sent(&mut self, at: Timestamp, by: (usize, u32), term: u64) {
        let mut broken = std::mem::take(&mut self.broken);
        self.history.sent(by, term, &mut broken);
        self.take(at, broken);
    }

    /// A write of ours moved a pool.
    pub fn moved(&mut self, at: Timestamp, scale: &Scale) {
        let mut broken = std::mem::take(&mut self.broken);
        self.history.moved(scale, &mut broken);
        self.take(at, broken);
    }

    /// A write that carries `term` took effect on an object that carried `before`.
    pub fn landed(&mut self, at: Timestamp, pool: &Arc<str>, before: Option<u64>, term: u64) {
        if let Some(before) = before.filter(|before| *before > term) {
            let detail = format!("pool {pool}: term {term} writes over term {before}");
            self.report(at, "5 an object's term never falls", detail);
        }
    }

    /// The journal was lost: what it said binds nobody any more, but for what members acted upon.
    pub fn journal_lost(&mut self, acted: &dyn Fn(&str, &str) -> bool) {
        self.history.journal_lost(acted);
        self.oracle.journal_lost();
        self.language.journal_lost();
        self.digests.clear();
        self.policies = None;
    }

    fn take(&mut self, at: Timestamp, mut broken: Vec<Broken>) {
        for (rule, detail) in broken.drain(..) {
            self.report(at, rule, detail);
        }
        self.broken = broken;
    }
}
