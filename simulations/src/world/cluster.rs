//! The stand-in for API servers: one MachineDeployment per pool, its machines, and its watches.
//!
//! An object has a version that every write moves, so that a write prepared from an older one is
//! refused. Machines boot and go after their delays; some never do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sunward_core::event::PoolObservation;
use sunward_core::fleet::{Pool, Target};
use sunward_core::time::{Span, Timestamp};

use super::{Happening, World};
use crate::draw::Draws;
use crate::fault::Fault;
use crate::scenario::Scenario;

/// Old states of an object that a watch cache of the API server may still list.
const HISTORY: usize = 8;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    Starting,
    /// Its host never boots, until somebody replaces it.
    Dead,
    Ready,
    Stopping,
    /// Can't be deleted, for now.
    Stuck,
}

/// One MachineDeployment.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) pool: Arc<Pool>,
    pub(super) cluster: usize,
    pub(super) site: usize,
    pub(super) wanted: u32,
    pub(super) version: u64,
    pub(super) term: Option<u64>,
    changed_at: Option<Timestamp>,
    workers: BTreeMap<u64, Worker>,
    next_worker: u64,
    history: VecDeque<PoolObservation>,
    start: Span,
    stop: Span,
}

/// One API server.
#[derive(Debug)]
pub(super) struct ApiServer {
    pub(super) name: Arc<str>,
    pub(super) away_until: Timestamp,
    /// While away, calls hang instead of failing.
    pub(super) hangs: bool,
    version: u64,
}

/// All of them, with what lives behind them.
#[derive(Debug)]
pub(super) struct Clusters {
    pub(super) servers: Vec<ApiServer>,
    /// One per pool, in the order of the fleet.
    pub(super) homes: Vec<Home>,
}

/// What a daemon's watch cache knows of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Cached {
    snapshot: Option<PoolObservation>,
    told: Option<(u32, u32, u32, Option<u64>)>,
    /// A watch delivers in order: nothing before this instant.
    pub(super) delivered: Timestamp,
}

/// An object on its way through a watch.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) pool: usize,
    pub(super) object: PoolObservation,
    /// The watch was made anew: what was known before does not count.
    pub(super) anew: bool,
}

impl Home {
    fn count(&self, which: impl Fn(Worker) -> bool) -> u32 {
        self.workers
            .values()
            .filter(|worker| which(**worker))
            .count() as u32
    }

    pub(super) fn ready(&self) -> u32 {
        self.count(|worker| worker == Worker::Ready)
    }

    pub(super) fn observation(&self) -> PoolObservation {
        PoolObservation {
            pool: self.pool.name.clone(),
            wanted: self.wanted,
            ready: self.ready(),
            stopping: self.count(|w| matches!(w, Worker::Stopping | Worker::Stuck)),
            version: self.version,
            term: self.term,
            changed_at: self.changed_at,
        }
    }
}

impl Clusters {
    pub(super) fn new(scenario: &Scenario) -> Clusters {
        let fleet = &scenario.fleet;
        let mut servers: Vec<ApiServer> = Vec::new();
        let sites: Vec<_> = fleet.sites().map(|site| site.name.clone()).collect();
        let mut server = |name: &Arc<str>| {
            let known = servers.iter().position(|server| server.name == *name);
            known.unwrap_or_else(|| {
                servers.push(ApiServer {
                    name: name.clone(),
                    away_until: Timestamp::MIN,
                    hangs: false,
                    version: 100,
                });
                servers.len() - 1
            })
        };
        let local: Arc<str> = "local".into();
        let mut homes = Vec::new();
        for pool in fleet.pools() {
            let cluster = fleet
                .cluster_of(pool)
                .map_or(&local, |cluster| &cluster.name);
            homes.push(Home {
                pool: pool.clone(),
                cluster: server(cluster),
                site: sites
                    .iter()
                    .position(|site| *site == pool.site)
                    .unwrap_or(0),
                wanted: 0,
                version: 1,
                term: None,
                changed_at: None,
                workers: BTreeMap::new(),
                next_worker: 0,
                history: VecDeque::new(),
                start: Span::ZERO,
                stop: Span::ZERO,
            });
        }
        Clusters { servers, homes }
    }

    /// Mean delays of each pool: simulated workers have theirs in the fleet, others are drawn.
    pub(super) fn adopt_delays(&mut self, draws: &mut Draws) {
        for home in &mut self.homes {
            let a_while = draws.span(Span::from_secs(40), Span::from_secs(90));
            (home.start, home.stop) = match home.pool.target {
                Target::Memory { start, stop } => (start, stop),
                Target::K0smotron { .. } => (home.pool.ready_after, a_while),
            };
        }
    }

    pub(super) fn is_away(&self, cluster: usize, now: Timestamp) -> bool {
        now < self.servers[cluster].away_until
    }

    /// What the ready workers of a site draw in training, kW.
    pub(super) fn draw_kw(&self, site: usize) -> f64 {
        let here = self.homes.iter().filter(|home| home.site == site);
        here.map(|home| f64::from(home.ready()) * home.pool.training_kw)
            .sum()
    }

    /// The highest term on any object that can be read.
    pub(super) fn highest_term(&self, now: Timestamp) -> u64 {
        let readable = self
            .homes
            .iter()
            .filter(|home| !self.is_away(home.cluster, now));
        readable.filter_map(|home| home.term).max().unwrap_or(0)
    }

    pub(super) fn home_of(&self, pool: &str) -> Option<usize> {
        let found = self
            .homes
            .binary_search_by(|home| home.pool.name.as_ref().cmp(pool));
        found.ok()
    }

    /// The object is written: its version moves on.
    pub(super) fn touch(&mut self, pool: usize) {
        let server = &mut self.servers[self.homes[pool].cluster];
        server.version += 1;
        let home = &mut self.homes[pool];
        home.version = server.version;
        if home.history.len() == HISTORY {
            home.history.pop_front();
        }
        let object = home.observation();
        home.history.push_back(object);
    }
}

impl Cached {
    pub(super) fn get(&self) -> Option<&PoolObservation> {
        self.snapshot.as_ref()
    }

    /// The watch saw the object; true where the engine has to hear.
    fn seen(&mut self, seen: &Seen) -> bool {
        if seen.anew {
            self.snapshot = None;
        }
        let object = &seen.object;
        if self
            .snapshot
            .as_ref()
            .is_some_and(|known| object.version < known.version)
        {
            return false;
        }
        let projection = (object.wanted, object.ready, object.stopping, object.term);
        self.snapshot = Some(object.clone());
        self.told.replace(projection) != Some(projection)
    }

    /// A call of ours was answered with the object.
    pub(super) fn answered(&mut self, object: &PoolObservation) {
        if self
            .snapshot
            .as_ref()
            .is_none_or(|known| object.version > known.version)
        {
            self.snapshot = Some(object.clone());
        }
    }
}

impl World<'_> {
    /// The object has changed: every daemon that watches hears of it, each in its own time.
    pub(super) fn home_changed(&mut self, pool: usize) {
        self.clusters.touch(pool);
        self.accounts.ready(&self.clusters.homes, self.now);
        if self
            .clusters
            .is_away(self.clusters.homes[pool].cluster, self.now)
        {
            // The list after its return says it.
            return;
        }
        let object = self.clusters.homes[pool].observation();
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].gate.is_some() {
                self.deliver_object(replica, pool, object.clone(), false, Span::ZERO);
            }
        }
    }

    pub(super) fn deliver_object(
        &mut self,
        replica: usize,
        pool: usize,
        object: PoolObservation,
        anew: bool,
        wait: Span,
    ) {
        let trip = if self.log.keep {
            self.dice
                .network
                .span(Span::from_millis(3), Span::from_millis(80))
        } else {
            Span::from_millis(1)
        };
        let cached = &mut self.replicas[replica].cache[pool];
        let at = (self.now + trip + wait).max(cached.delivered);
        cached.delivered = at;
        let seen = Seen { pool, object, anew };
        let life = self.life(replica);
        self.push(at, Happening::Watch(life, seen.into()));
    }

    /// A watch delivers to a daemon.
    pub(super) fn watched(&mut self, replica: usize, seen: Seen) {
        if self.replicas[replica].gate.is_none() {
            return;
        }
        if self.replicas[replica].cache[seen.pool].seen(&seen) {
            let event = sunward_core::event::Event::PoolObserved(seen.object);
            self.tell(replica, vec![event], super::daemon::Ticket::Nobody);
        }
    }

    /// The first list of a new watch, of everything that can be reached.
    pub(super) fn list_everything(&mut self, replica: usize) {
        for pool in 0..self.clusters.homes.len() {
            if !self
                .clusters
                .is_away(self.clusters.homes[pool].cluster, self.now)
            {
                let object = self.clusters.homes[pool].observation();
                self.deliver_object(replica, pool, object, true, Span::from_millis(20));
            }
        }
    }

    /// A watch is made anew on a server whose own cache is behind: an old state, then the new.
    pub(super) fn list_stale(&mut self, replica: usize, pool: usize) {
        let home = &self.clusters.homes[pool];
        let behind = home.history.len().saturating_sub(4);
        let (Some(old), new) = (home.history.get(behind).cloned(), home.observation()) else {
            return;
        };
        self.deliver_object(replica, pool, old, true, Span::ZERO);
        let wait = self
            .dice
            .faults
            .span(Span::from_secs(1), Span::from_secs(30));
        self.deliver_object(replica, pool, new, false, wait);
    }

    /// Somebody sets `spec.replicas`; the machines follow.
    pub(super) fn set_wanted(&mut self, pool: usize, replicas: u32) {
        let home = &mut self.clusters.homes[pool];
        let before = home.wanted;
        home.wanted = replicas;
        for _ in before..replicas {
            self.add_worker(pool);
        }
        for _ in replicas..before {
            self.remove_worker(pool);
        }
    }

    fn add_worker(&mut self, pool: usize) {
        let fault = match self.armed_hosts.front() {
            Some(Fault::HostDead | Fault::HostSlow) => self.armed_hosts.pop_front(),
            _ => None,
        };
        let home = &mut self.clusters.homes[pool];
        let worker = home.next_worker;
        home.next_worker += 1;
        let mean = home.start;
        let mut wait = match home.pool.target {
            Target::Memory { start, .. } => start,
            Target::K0smotron { .. } => {
                let ms = mean.as_millis();
                let (low, high) = (ms * 4 / 5, ms * 13 / 10);
                self.dice
                    .hosts
                    .span(Span::from_millis(low), Span::from_millis(high))
            }
        };
        let mut state = Worker::Starting;
        match fault {
            Some(Fault::HostDead) => {
                state = Worker::Dead;
                wait = self.until_repaired(Span::from_mins(60), Span::from_mins(240));
            }
            Some(Fault::HostSlow) => wait = Span::from_millis(wait.as_millis() * 4),
            _ => {}
        }
        self.clusters.homes[pool].workers.insert(worker, state);
        if let Some(fault) = fault {
            self.count(fault);
        }
        self.after(wait, Happening::Worker { pool, worker });
    }

    /// Those that are not ready yet go first.
    fn remove_worker(&mut self, pool: usize) {
        let home = &mut self.clusters.homes[pool];
        let last = |state: Worker| {
            let mut found = home
                .workers
                .iter()
                .filter(move |(_, known)| **known == state);
            found.next_back().map(|(id, _)| *id)
        };
        let waiting = last(Worker::Dead).or_else(|| last(Worker::Starting));
        let Some(worker) = waiting.or_else(|| last(Worker::Ready)) else {
            return;
        };
        let stuck = self.armed_hosts.front() == Some(&Fault::DeleteStuck);
        let state = if stuck {
            Worker::Stuck
        } else {
            Worker::Stopping
        };
        home.workers.insert(worker, state);
        let mut wait = home.stop;
        if stuck {
            self.armed_hosts.pop_front();
            self.count(Fault::DeleteStuck);
            wait = self.until_repaired(Span::from_mins(60), Span::from_mins(240));
        }
        self.after(wait, Happening::Worker { pool, worker });
    }

    /// Whoever repairs things is done soon after the faults end.
    fn until_repaired(&mut self, low: Span, high: Span) -> Span {
        let wait = self.dice.hosts.span(low, high);
        let latest = self.scenario.faults_end + Span::from_mins(10);
        wait.min((latest - self.now).max(Span::from_secs(60)))
    }

    /// A machine's delay is over.
    pub(super) fn worker_due(&mut self, pool: usize, worker: u64) {
        let home = &mut self.clusters.homes[pool];
        match home.workers.get(&worker) {
            Some(Worker::Starting | Worker::Dead) => {
                home.workers.insert(worker, Worker::Ready);
            }
            Some(Worker::Stopping | Worker::Stuck) => {
                home.workers.remove(&worker);
            }
            Some(Worker::Ready) | None => return,
        }
        self.home_changed(pool);
    }

    /// When we last changed the replicas, as it is noted on the object.
    pub(super) fn note(&mut self, pool: usize, term: u64, at: Timestamp) {
        let home = &self.clusters.homes[pool];
        if home.term == Some(term) && !self.clusters.is_away(home.cluster, self.now) {
            self.clusters.homes[pool].changed_at = Some(at);
            self.home_changed(pool);
        }
    }
}
