//! Looks from outside: is what was decided carried out, and has everything settled at the end?

use std::sync::Arc;

use sunward_core::action::Effects;
use sunward_core::engine::{Engine, State};
use sunward_core::time::{Span, Timestamp};

use super::{Happening, Outcome, World};
use crate::check::VIOLATIONS_MAX;

/// A decision is carried out within this time, unless something disturbs calls.
const CARRIED_OUT_WITHIN: Span = Span::from_mins(6);
/// Workers are ready within this time after the last move.
const READY_WITHIN: Span = Span::from_mins(30);

/// What the looks remember.
#[derive(Debug)]
pub(super) struct Progress {
    /// The last fault that may delay a call.
    pub(super) disturbed: Timestamp,
    /// The newest index that the checkers have seen.
    pub(super) looked_at: u64,
    /// When each pool last moved.
    pub(super) moved: Vec<Timestamp>,
    /// Since when each pool is not what was decided.
    differs_since: Vec<Option<Timestamp>>,
    pub(super) acknowledged: Vec<Arc<str>>,
}

impl Progress {
    pub(super) fn new(pools: usize, start: Timestamp) -> Progress {
        Progress {
            disturbed: start,
            looked_at: 0,
            moved: vec![start; pools],
            differs_since: vec![None; pools],
            acknowledged: Vec::new(),
        }
    }
}

impl World<'_> {
    /// Once a minute.
    pub(super) fn look(&mut self) {
        self.after(Span::from_mins(1), Happening::Look);
        let Some(leader) = self.acting() else {
            self.progress.disturbed = self.now;
            return;
        };
        for pool in 0..self.clusters.homes.len() {
            let home = &self.clusters.homes[pool];
            let known = self.replicas[leader]
                .engine
                .state()
                .pools
                .get(&home.pool.name);
            let desired = known.and_then(|known| known.ledger.desired);
            if desired.is_none_or(|desired| desired == home.wanted) {
                self.progress.differs_since[pool] = None;
                continue;
            }
            if self.clusters.is_away(home.cluster, self.now) {
                self.progress.disturbed = self.now;
            }
            let since = *self.progress.differs_since[pool].get_or_insert(self.now);
            if self.now - since.max(self.progress.disturbed) > CARRIED_OUT_WITHIN {
                let detail = format!(
                    "pool {}: {} workers asked for, {desired:?} decided",
                    home.pool.name, home.wanted
                );
                self.report("settles: what was decided is carried out", detail);
                self.progress.differs_since[pool] = None;
            }
        }
    }

    fn report(&mut self, rule: &'static str, detail: String) {
        if let Some(checks) = &mut self.checks {
            checks.report(self.now, rule, detail);
        }
    }

    /// The end: everything has settled, and the log says the same to everyone.
    pub(super) fn finish(mut self) -> Outcome {
        self.now = self.now.max(self.scenario.end);
        let full = self
            .checks
            .as_ref()
            .is_some_and(|checks| checks.violations.len() >= VIOLATIONS_MAX);
        if full {
            self.now = self.scenario.end;
        } else if self.checks.is_some() {
            if self.scenario.faults_end < self.scenario.end {
                self.has_settled();
            }
            self.everyone_agrees();
            self.nothing_was_lost();
        }
        self.accounts.settle(self.now);
        let engine = self
            .replicas
            .iter()
            .max_by_key(|replica| replica.engine.state().index);
        let engine = engine.map(|replica| &replica.engine);
        let (checks, judged_pools) = match self.checks.take() {
            Some(checks) => {
                let judged = checks.judged_pools();
                (checks.violations, judged)
            }
            None => (Vec::new(), 0),
        };
        let blank = Engine::new();
        let engine = engine.unwrap_or(&blank);
        Outcome {
            digest: engine.digest(),
            index: engine.state().index,
            violations: checks,
            faults: self.faults,
            sites: self.accounts.figures(),
            length: self.scenario.length(),
            work_done_after: self
                .accounts
                .work_done_at()
                .map(|at| at - self.scenario.start),
            work_hours: self.accounts.work_hours(),
            transcript: self.transcript.unwrap_or_default(),
            judged_pools,
        }
    }

    fn has_settled(&mut self) {
        let Some(leader) = self.acting() else {
            let detail = "nobody leads at the end".to_owned();
            return self.report("settles: somebody leads", detail);
        };
        let engine = &self.replicas[leader].engine;
        let mut found = Vec::new();
        for (pool, home) in self.clusters.homes.iter().enumerate() {
            let name = &home.pool.name;
            let Some(state) = engine.state().pools.get(name) else {
                continue;
            };
            let fresh = self.progress.differs_since[pool].is_some()
                || self.now - self.progress.moved[pool] < Span::from_mins(2);
            if !state.is_settled() && !fresh {
                found.push(format!("pool {name}: {}", state.ledger.word()));
            }
            let still = self.now - self.progress.moved[pool] > READY_WITHIN;
            if still && home.ready() != home.wanted {
                found.push(format!(
                    "pool {name}: {} of {} ready",
                    home.ready(),
                    home.wanted
                ));
            }
        }
        for detail in found {
            self.report("settles: every pool, after the faults", detail);
        }
    }

    /// Every replica, and a replay from nothing and from the snapshot, come to one digest.
    fn everyone_agrees(&mut self) {
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].alive {
                self.catch_up(replica);
            }
        }
        let mut starts = vec![State::default()];
        if let Some((_, bytes)) = &self.log.snapshot {
            starts.extend(Engine::decode_snapshot(bytes).ok());
        }
        let mut engines: Vec<Engine> = Vec::new();
        for state in starts {
            let mut engine = (self.options.core.engine)(state);
            let mut effects = Effects::default();
            while let Some(record) = self.log.record(engine.state().index + 1) {
                engine.step(record.at, &record.events, &mut effects);
            }
            engines.push(engine);
        }
        let Some(checks) = &mut self.checks else {
            return;
        };
        let lives = self.replicas.iter().filter(|replica| replica.alive);
        for engine in lives.map(|replica| &replica.engine).chain(&engines) {
            checks.compare(self.now, engine.state().index, engine.digest());
        }
    }

    fn nothing_was_lost(&mut self) {
        let ids = std::mem::take(&mut self.progress.acknowledged);
        let lost: Vec<_> = ids.into_iter().filter(|id| !self.log.has(id)).collect();
        for id in lost {
            let detail = format!("reading {id} was acknowledged and is gone");
            self.report("4 no acknowledged reading is lost", detail);
        }
        if self.scenario.faults_end == self.scenario.end || self.streams.is_away(self.now) {
            return;
        }
        let Some(checks) = &self.checks else {
            return;
        };
        let streams = &self.streams;
        let missed: Vec<String> = checks
            .history
            .issued()
            .flat_map(|(federation, ids)| {
                let missing = ids.iter().filter(|id| !streams.has_acted(federation, id));
                missing.map(move |id| format!("federation {federation}: id {id}"))
            })
            .collect();
        for detail in missed.into_iter().take(3) {
            self.report("events: the member has acted upon each", detail);
        }
    }
}
