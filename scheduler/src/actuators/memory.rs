//! Simulated workers inside the daemon: for the demo, for trying policies, for tests.
//!
//! [`MemoryPools`] is the world: sans-I/O, time is an argument. [`MemoryActuator`] puts it behind
//! the [`Actuator`] trait, and its observer reports what it does on the engine's clock. Neither
//! decides anything: a pool becomes what it is told to be, after the delays that `fleet.yaml`
//! gives its pool.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sunward_core::action::Scale;
use sunward_core::event::{Event, Outcome, PoolObservation};
use sunward_core::fleet::{POOLS_MAX, Pool, Target};
use sunward_core::time::{Span, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Actuator, Command};
use crate::clock::Clock;
use crate::engine_handle::EngineHandle;

/// Workers whose delay ends at the same instant: instant -> how many.
type Due = BTreeMap<Timestamp, u32>;

/// Most instants at which workers of one pool are due to be gone; those of a further release
/// leave with the last of them. Instants at which workers become ready are bounded by the workers.
pub const STOPPING_INSTANTS_MAX: usize = 1_024;

/// The simulated pools.
#[derive(Debug)]
pub struct MemoryPools {
    pools: BTreeMap<Arc<str>, Workers>,
    /// What a pool has when it is first heard of.
    confirmed: BTreeMap<Arc<str>, u32>,
}

/// The workers of one pool. `wanted` = ready + starting, always.
#[derive(Debug)]
struct Workers {
    wanted: u32,
    ready: u32,
    starting: Due,
    stopping: Due,
    version: u64,
    term: Option<u64>,
    changed_at: Option<Timestamp>,
    /// Changed by an accepted scale at this instant, and not reported by an observation yet.
    unreported_since: Option<Timestamp>,
}

impl MemoryPools {
    /// Pools of a daemon whose ledger last confirmed these replicas; they are all ready. A pool
    /// that is absent has no worker.
    pub fn new(confirmed: BTreeMap<Arc<str>, u32>) -> MemoryPools {
        MemoryPools {
            pools: BTreeMap::new(),
            confirmed,
        }
    }

    /// Carries out one command at `now`.
    pub fn apply(&mut self, command: &Command, now: Timestamp) -> Outcome {
        let (Command::Claim { pool, .. } | Command::Scale { pool, .. }) = command;
        let Target::Memory { start, stop } = pool.target else {
            return Outcome::Refused {
                reason: format!(
                    "pool `{}` is not simulated: its actuator in the fleet file is another one",
                    pool.name
                ),
            };
        };
        let Some(workers) = self.workers(pool) else {
            return Outcome::Refused {
                reason: format!(
                    "{POOLS_MAX} simulated pools have workers already; release some of them first"
                ),
            };
        };
        workers.advance(now);
        match command {
            Command::Claim { term, .. } => workers.claim(&pool.name, *term),
            Command::Scale { scale, .. } => workers.scale(scale, start, stop, now),
        }
    }

    /// The observations that are due at `now`: one of each pool where a delay has ended or a
    /// scale was accepted since the last call.
    pub fn observe_due(&mut self, now: Timestamp) -> Vec<PoolObservation> {
        let mut seen = Vec::new();
        for (name, workers) in &mut self.pools {
            if workers.next_due().is_some_and(|due| due <= now) {
                workers.advance(now);
                workers.unreported_since = None;
                seen.push(workers.observation(name));
            }
        }
        seen
    }

    /// When the next observation is due; may lie in the past.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.pools.values().filter_map(Workers::next_due).min()
    }

    fn workers(&mut self, pool: &Pool) -> Option<&mut Workers> {
        if !self.pools.contains_key(&pool.name) && self.pools.len() >= POOLS_MAX {
            // Pools that left the fleet long ago; the one that comes back starts from nothing.
            self.pools.retain(|_, workers| !workers.is_empty());
            if self.pools.len() >= POOLS_MAX {
                return None;
            }
        }
        let confirmed = &mut self.confirmed;
        let new = || Workers::ready(confirmed.remove(&pool.name).unwrap_or(0));
        Some(self.pools.entry(pool.name.clone()).or_insert_with(new))
    }
}

impl Workers {
    fn ready(ready: u32) -> Workers {
        Workers {
            wanted: ready,
            ready,
            starting: Due::new(),
            stopping: Due::new(),
            version: 1,
            term: None,
            changed_at: None,
            unreported_since: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.wanted == 0 && self.stopping.is_empty()
    }

    fn next_due(&self) -> Option<Timestamp> {
        let first = |due: &Due| due.first_key_value().map(|(at, _)| *at);
        [
            self.unreported_since,
            first(&self.starting),
            first(&self.stopping),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Lets every delay end that is over at `now`.
    fn advance(&mut self, now: Timestamp) {
        let started = take_due(&mut self.starting, now);
        let gone = take_due(&mut self.stopping, now);
        self.ready += started;
        if started + gone > 0 {
            self.version += 1;
            // Whoever ends a delay owes the observation of it.
            self.unreported_since.get_or_insert(now);
        }
    }

    fn claim(&mut self, name: &Arc<str>, term: u64) -> Outcome {
        if let Some(higher) = self.term.filter(|known| *known > term) {
            return Outcome::HigherTerm { term: higher };
        }
        if self.term != Some(term) {
            self.term = Some(term);
            self.version += 1;
        }
        Outcome::Accepted(self.observation(name))
    }

    fn scale(&mut self, scale: &Scale, start: Span, stop: Span, now: Timestamp) -> Outcome {
        if let Some(higher) = self.term.filter(|known| *known > scale.term) {
            return Outcome::HigherTerm { term: higher };
        }
        if self.wanted != scale.from {
            return Outcome::Conflict;
        }
        if scale.replicas > self.wanted {
            *self.starting.entry(now + start).or_default() += scale.replicas - self.wanted;
        } else {
            self.release(self.wanted - scale.replicas, now + stop);
        }
        self.wanted = scale.replicas;
        self.version += 1;
        self.changed_at = Some(now);
        self.unreported_since = Some(now);
        self.advance(now);
        Outcome::Accepted(self.observation(&scale.pool))
    }

    /// Releases `count` workers: those that would be ready last go first.
    fn release(&mut self, count: u32, gone_at: Timestamp) {
        let mut left = count;
        while left > 0
            && let Some(mut last) = self.starting.last_entry()
        {
            let released = left.min(*last.get());
            left -= released;
            *last.get_mut() -= released;
            if *last.get() == 0 {
                last.remove();
            }
        }
        self.ready -= left;
        if count == 0 {
            return;
        }
        let last = self.stopping.last_key_value().map(|(at, _)| *at);
        let gone_at = match last {
            Some(last) if self.stopping.len() >= STOPPING_INSTANTS_MAX => last,
            _ => gone_at,
        };
        *self.stopping.entry(gone_at).or_default() += count;
    }

    fn observation(&self, name: &Arc<str>) -> PoolObservation {
        PoolObservation {
            pool: name.clone(),
            wanted: self.wanted,
            ready: self.ready,
            stopping: self.stopping.values().sum(),
            version: self.version,
            term: self.term,
            changed_at: self.changed_at,
        }
    }
}

fn take_due(due: &mut Due, now: Timestamp) -> u32 {
    let mut ended = 0;
    while let Some(first) = due.first_entry()
        && *first.key() <= now
    {
        ended += first.remove();
    }
    ended
}

/// The simulated pools behind the [`Actuator`] trait.
#[derive(Debug)]
pub struct MemoryActuator {
    pools: Mutex<MemoryPools>,
    clock: Clock,
    changed: Notify,
}

impl MemoryActuator {
    /// Simulated pools on the engine's clock; `confirmed` as for [`MemoryPools::new`].
    pub fn new(confirmed: BTreeMap<Arc<str>, u32>, clock: Clock) -> MemoryActuator {
        MemoryActuator {
            pools: Mutex::new(MemoryPools::new(confirmed)),
            clock,
            changed: Notify::new(),
        }
    }

    /// Reports every accepted scale and the end of every delay to the engine, until `shutdown`
    /// or until the engine loop has stopped.
    pub async fn observe(&self, engine: EngineHandle, shutdown: CancellationToken) {
        loop {
            let due = self.pools().next_due();
            let wait = async {
                match due {
                    Some(at) => tokio::time::sleep(self.clock.until(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.changed.notified() => {}
                () = wait => {}
            }
            let seen = self.pools().observe_due(self.clock.now());
            for observation in seen {
                if engine.tell(Event::PoolObserved(observation)).await.is_err() {
                    return;
                }
            }
        }
    }

    fn pools(&self) -> MutexGuard<'_, MemoryPools> {
        // No call between lock and unlock leaves the pools half changed.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Actuator for MemoryActuator {
    async fn apply(&self, command: &Command) -> Outcome {
        let outcome = self.pools().apply(command, self.clock.now());
        self.changed.notify_one();
        outcome
    }
}

#[cfg(test)]
mod tests;
