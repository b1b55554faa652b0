//! The pools of a test: they become what they are told to be, `ready_after` later. Released workers leave at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::action::Scale;
use sunward_core::event::{Outcome, PoolObservation};
use sunward_core::fleet::Fleet;
use sunward_core::time::{Span, Timestamp};

/// All pools of a fleet, whatever its actuators are.
#[derive(Debug)]
pub(super) struct Pools(BTreeMap<Arc<str>, Workers>);

/// The workers of one pool; `wanted` = ready + starting, always.
#[derive(Debug)]
struct Workers {
    wanted: u32,
    ready: u32,
    /// Instant -> workers that are ready then.
    starting: BTreeMap<Timestamp, u32>,
    ready_after: Span,
    version: u64,
    term: Option<u64>,
    changed_at: Option<Timestamp>,
}

impl Pools {
    /// Every pool at its minimum, or with so many as `running` says; all of them ready, and so since `since`.
    pub(super) fn new(fleet: &Fleet, running: &BTreeMap<Arc<str>, u32>, since: Timestamp) -> Pools {
        let of = |pool: &Arc<sunward_core::fleet::Pool>| {
            let ready = running.get(&pool.name).copied();
            let ready = ready.unwrap_or(pool.min_workers);
            let workers = Workers {
                wanted: ready,
                ready,
                starting: BTreeMap::new(),
                ready_after: pool.ready_after,
                version: 1,
                term: None,
                changed_at: Some(since),
            };
            (pool.name.clone(), workers)
        };
        Pools(fleet.pools().iter().map(of).collect())
    }

    /// Writes a term on a pool.
    pub(super) fn claim(&mut self, pool: &Arc<str>, term: u64) -> Outcome {
        let Some(workers) = self.0.get_mut(pool) else {
            return no_pool(pool);
        };
        if workers.term != Some(term) {
            workers.term = Some(term);
            workers.version += 1;
        }
        Outcome::Accepted(workers.observation(pool))
    }

    /// Sets a pool's wanted workers.
    pub(super) fn scale(&mut self, scale: &Scale, now: Timestamp) -> Outcome {
        let Some(workers) = self.0.get_mut(&scale.pool) else {
            return no_pool(&scale.pool);
        };
        if workers.wanted != scale.from {
            return Outcome::Conflict;
        }
        if scale.replicas > workers.wanted {
            let more = scale.replicas - workers.wanted;
            *workers
                .starting
                .entry(now + workers.ready_after)
                .or_default() += more;
        } else {
            workers.release(workers.wanted - scale.replicas);
        }
        workers.wanted = scale.replicas;
        workers.version += 1;
        workers.changed_at = Some(now);
        Outcome::Accepted(workers.observation(&scale.pool))
    }

    /// The next instant at which a worker becomes ready.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let first = |workers: &Workers| workers.starting.first_key_value().map(|(at, _)| *at);
        self.0.values().filter_map(first).min()
    }

    /// What is seen of the pools whose workers became ready by `now`.
    pub(super) fn observe_due(&mut self, now: Timestamp) -> Vec<PoolObservation> {
        let mut seen = Vec::new();
        for (name, workers) in &mut self.0 {
            let mut became = 0;
            while let Some(first) = workers.starting.first_entry()
                && *first.key() <= now
            {
                became += first.remove();
            }
            if became > 0 {
                workers.ready += became;
                workers.version += 1;
                seen.push(workers.observation(name));
            }
        }
        seen
    }
}

impl Workers {
    /// Those that would be ready last go first.
    fn release(&mut self, mut count: u32) {
        while count > 0
            && let Some(mut last) = self.starting.last_entry()
        {
            let released = count.min(*last.get());
            count -= released;
            *last.get_mut() -= released;
            if *last.get() == 0 {
                last.remove();
            }
        }
        self.ready = self.ready.saturating_sub(count);
    }

    fn observation(&self, pool: &Arc<str>) -> PoolObservation {
        PoolObservation {
            pool: pool.clone(),
            wanted: self.wanted,
            ready: self.ready,
            stopping: 0,
            version: self.version,
            term: self.term,
            changed_at: self.changed_at,
        }
    }
}

fn no_pool(pool: &str) -> Outcome {
    Outcome::Refused {
        reason: format!("the fleet has no pool `{pool}`"),
    }
}
