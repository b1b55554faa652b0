//! One cluster: connects, follows, probes, and tells the engine. A task of its own, so that a
//! cluster that hangs delays no other; it ends only with the engine.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use kube::Api;
use serde::de::IgnoredAny;
use sunward_core::event::{Event, PoolObservation};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cache::{Cache, Targets};
use super::call;
use super::connect::{Connection, Connector, serves};
use super::health::{Change, Health, Part};
use super::object::{ApiVersion, GROUP, PLURAL};
use super::watch::{Backoff, Follower, Report};
use super::{HealthCallback, WATCHED_NAMESPACES_MAX};
use crate::engine_handle::{EngineHandle, Stopped};
use crate::metric_definitions::DEPENDENCY_UP;

/// Reports that wait for the engine at most.
const REPORTS_MAX: usize = 64;
/// Between two probes.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// Probes between two looks for a better version of the API.
const PROBES_PER_UPGRADE_CHECK: u32 = 30;
/// A connection that fails is kept for this long before it is made anew from the kubeconfig.
const CONNECTION_LIFE_MIN: Duration = Duration::from_secs(10);

/// What a cluster's task and the actuator share.
pub(crate) struct Shared {
    /// The cluster's name in the fleet file.
    pub(crate) name: Arc<str>,
    connection: ArcSwapOption<Connection>,
    trouble: ArcSwap<String>,
    cache: Mutex<Cache>,
}

impl Shared {
    pub(super) fn new(name: Arc<str>, targets: &Targets) -> Shared {
        Shared {
            name,
            connection: ArcSwapOption::empty(),
            trouble: ArcSwap::from_pointee("it is being connected to".to_owned()),
            cache: Mutex::new(Cache::new(targets)),
        }
    }

    /// The connection, or why there is none.
    pub(crate) fn connection(&self) -> Result<Arc<Connection>, String> {
        let connection = self.connection.load_full();
        connection.ok_or_else(|| self.trouble.load().as_str().to_owned())
    }

    /// The cache; hold it for no await.
    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        // No change of the cache can be seen half done, so a panic elsewhere spoils nothing.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection: what was known by the old one does not count any more.
    pub(super) fn adopt(&self, connection: Arc<Connection>) {
        self.cache().reset();
        self.connection.store(Some(connection));
    }
}

/// The namespaces to watch: each one that pools live in, so that a Role in each is enough; `None`
/// (all) where there are more than [`WATCHED_NAMESPACES_MAX`].
pub(super) fn namespaces(targets: &Targets) -> Vec<Option<Arc<str>>> {
    let namespaces: BTreeSet<&Arc<str>> = targets.keys().map(|(namespace, _)| namespace).collect();
    if namespaces.len() > WATCHED_NAMESPACES_MAX {
        return vec![None];
    }
    namespaces.into_iter().cloned().map(Some).collect()
}

/// The task of one cluster.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) targets: Arc<Targets>,
    pub(super) connector: Connector,
    pub(super) engine: EngineHandle,
    pub(super) on_health: HealthCallback,
    pub(super) seed: u64,
}

impl Task {
    /// Runs until the engine stops.
    pub(super) async fn run(self) {
        let namespaces = namespaces(&self.targets);
        let watches = namespaces.iter().cloned().map(Part::Watch);
        let health = Health::new(watches.chain([Part::Connect, Part::Probe]));
        let backoff = Backoff::new(self.seed, self.shared.name.to_string());
        let mut running = Running {
            task: self,
            namespaces,
            health,
            backoff,
        };
        let Stopped = running.run().await;
    }
}

struct Running {
    task: Task,
    namespaces: Vec<Option<Arc<str>>>,
    health: Health,
    backoff: Backoff,
}

impl Running {
    async fn run(&mut self) -> Stopped {
        loop {
            let started = Instant::now();
            let done = match self.task.connector.connect().await {
                Ok(connection) => {
                    self.health.works(&Part::Connect);
                    self.follow(Arc::new(connection)).await
                }
                Err(reason) => {
                    let reason = format!("connecting: {reason}");
                    self.task.shared.trouble.store(Arc::new(reason.clone()));
                    self.health.fails(Part::Connect, started, reason);
                    Ok(())
                }
            };
            let delay = self.backoff.next();
            let paused = match done {
                Ok(()) => self.pause(delay).await,
                Err(stopped) => Err(stopped),
            };
            if let Err(stopped) = paused {
                return stopped;
            }
        }
    }

    /// Waits, and tells meanwhile what becomes due.
    async fn pause(&mut self, delay: Duration) -> Result<(), Stopped> {
        let end = Instant::now() + delay;
        loop {
            self.announce().await?;
            if Instant::now() >= end {
                return Ok(());
            }
            let due = self.health.due().unwrap_or(end);
            tokio::time::sleep_until(due.min(end)).await;
        }
    }

    /// Follows over one connection until a new one has to be made.
    async fn follow(&mut self, connection: Arc<Connection>) -> Result<(), Stopped> {
        let connected_at = Instant::now();
        tracing::info!(cluster = %self.task.shared.name, version = connection.version.as_str(), "connected");
        self.task.shared.adopt(connection.clone());
        let (reports, mut inbox) = mpsc::channel(REPORTS_MAX);
        // Dropped on return, which aborts them all.
        let mut parts = JoinSet::new();
        for namespace in &self.namespaces {
            parts.spawn(
                self.follower(&connection, namespace.as_ref(), &reports)
                    .run(),
            );
        }
        let first = self.namespaces.first().cloned().flatten();
        parts.spawn(probe(connection, first, reports));
        loop {
            let give_up = self
                .health
                .failing_long_at()
                .map(|at| at.max(connected_at + CONNECTION_LIFE_MIN));
            if give_up.is_some_and(|at| at <= Instant::now()) {
                return Ok(());
            }
            let wake = [self.health.due(), give_up].into_iter().flatten().min();
            tokio::select! {
                report = inbox.recv() => match report {
                    Some(report) => {
                        if self.take(report).await? {
                            return Ok(());
                        }
                    }
                    None => return Ok(()),
                },
                () = until(wake) => {}
            }
            self.announce().await?;
        }
    }

    fn follower(
        &self,
        connection: &Connection,
        namespace: Option<&Arc<str>>,
        reports: &mpsc::Sender<Report>,
    ) -> Follower {
        let resource = connection.version.resource();
        let client = connection.client.clone();
        let name = &self.task.shared.name;
        Follower {
            api: match namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            },
            namespace: namespace.cloned(),
            targets: self.task.targets.clone(),
            reports: reports.clone(),
            backoff: Backoff::new(
                self.task.seed,
                format!("{name}/{}", namespace.map_or("", |namespace| namespace)),
            ),
        }
    }

    /// Takes one report in; true when the connection has to be made anew.
    async fn take(&mut self, report: Report) -> Result<bool, Stopped> {
        let shared = self.task.shared.clone();
        match report {
            Report::Works(part) => {
                self.health.works(&part);
                self.backoff.reset();
            }
            Report::Fails {
                part,
                since,
                reason,
                unserved,
            } => {
                tracing::debug!(cluster = %shared.name, reason, "failing");
                self.health.fails(part, since, reason);
                return Ok(unserved);
            }
            Report::Upgraded => return Ok(true),
            Report::Listed {
                part,
                seen,
                absent,
                version,
            } => {
                self.health.works(&part);
                shared.cache().absent(&absent, version);
                for (pool, snapshot) in seen {
                    let observation = shared.cache().seen(&pool, snapshot);
                    self.tell(observation).await?;
                }
            }
            Report::Seen(pool, snapshot) => {
                let observation = shared.cache().seen(&pool, snapshot);
                self.tell(observation).await?;
            }
            Report::Gone(pool, version) => {
                tracing::warn!(cluster = %shared.name, pool = %pool, "its MachineDeployment was deleted");
                shared.cache().gone(&pool, version);
                // What is not there wants and has no workers; writes are refused with the remedy.
                let nothing = PoolObservation {
                    pool,
                    wanted: 0,
                    ready: 0,
                    stopping: 0,
                    version,
                    term: None,
                    changed_at: None,
                };
                self.tell(Some(nothing)).await?;
            }
        }
        Ok(false)
    }

    async fn tell(&self, observation: Option<PoolObservation>) -> Result<(), Stopped> {
        match observation {
            Some(observation) => {
                self.task
                    .engine
                    .tell(Event::PoolObserved(observation))
                    .await
            }
            None => Ok(()),
        }
    }

    /// Tells a change of health, if there is one.
    async fn announce(&mut self) -> Result<(), Stopped> {
        let Some(change) = self.health.change(Instant::now()) else {
            return Ok(());
        };
        let cluster = self.task.shared.name.clone();
        let up = metrics::gauge!(DEPENDENCY_UP, "kind" => "cluster", "name" => cluster.to_string());
        let event = match change {
            Change::Reachable => {
                tracing::info!(%cluster, "reachable");
                up.set(1.0);
                (self.task.on_health)(&cluster, Ok(()));
                Event::ClusterReachable { cluster }
            }
            Change::Unreachable(reason) => {
                tracing::warn!(%cluster, reason, "unreachable");
                up.set(0.0);
                (self.task.on_health)(&cluster, Err(reason.clone()));
                Event::ClusterUnreachable { cluster, reason }
            }
        };
        self.task.engine.tell(event).await
    }
}

/// Sleeps until then; for ever where there is no such instant.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Lists one object every few seconds, with the rights that the watch has anyway: a server that
/// hangs is noticed in seconds, while a quiet watch would not notice for a minute. On v1beta1 it
/// also looks for v1beta2 from time to time.
pub(super) async fn probe(
    connection: Arc<Connection>,
    namespace: Option<Arc<str>>,
    reports: mpsc::Sender<Report>,
) {
    let version = connection.version.as_str();
    let place = namespace.map_or(String::new(), |name| format!("/namespaces/{name}"));
    let path = format!("/apis/{GROUP}/{version}{place}/{PLURAL}?limit=1");
    let mut done = 0_u32;
    loop {
        let since = Instant::now();
        let report = match call::get::<IgnoredAny>(&connection.client, &path).await {
            Ok(_) => Report::Works(Part::Probe),
            Err(failure) => Report::Fails {
                part: Part::Probe,
                since,
                reason: format!("listing MachineDeployments: {failure}"),
                unserved: failure.is_not_found(),
            },
        };
        if reports.send(report).await.is_err() {
            return;
        }
        done = done.wrapping_add(1);
        if connection.version == ApiVersion::V1Beta1
            && done.is_multiple_of(PROBES_PER_UPGRADE_CHECK)
            && serves(&connection.client, ApiVersion::V1Beta2).await == Ok(true)
            && reports.send(Report::Upgraded).await.is_err()
        {
            return;
        }
        tokio::time::sleep(PROBE_EVERY).await;
    }
}
