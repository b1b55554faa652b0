//! Wiring only: build the parts, spawn them, wait, stop them in order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use metrics_exporter_prometheus::PrometheusHandle;
use sunward_core::protocol::leader::LeaderGate;
use sunward_signal_adapters::AdapterConfig;
use sunward_signal_adapters::intake::Intake;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actuators::k0smotron::K0smotron;
use crate::actuators::memory::MemoryActuator;
use crate::adapters::{self, surroundings};
use crate::api::serve::serve;
use crate::api::{self, ApiLimits, ApiState};
use crate::clock::Clock;
use crate::cluster::{Clusters, HealthCallback};
use crate::dispatch::{self, Actuators, Dispatcher, Order};
use crate::engine_handle::{EngineHandle, INTERNAL_MESSAGES_MAX};
use crate::engine_loop::{EngineLoop, Parts};
use crate::files::{self, Findings, Loaded, Loader, Paths};
use crate::gauges::{keep_up, refreshing};
use crate::metric_definitions as names;
use crate::publish::EventSink;
use crate::publish::wiring::{publisher, saved_cursors};
use crate::readiness::Readiness;
use crate::tokens::Tokens;
use crate::writer::Writer;

/// How long calls under way are waited for at the stop.
const CALLS_MAX: Duration = Duration::from_secs(10);
/// How long the publishers are waited for at the stop.
const SINKS_MAX: Duration = Duration::from_secs(5);
/// How long requests under way are waited for at the stop.
const REQUESTS_MAX: Duration = Duration::from_secs(5);

/// Where fleet and policies come from.
#[derive(Clone, Debug)]
pub enum Files {
    /// Files that are watched.
    Watched(Paths),
    /// A set that does not change.
    Fixed(Loaded),
}

/// What a daemon is built from. The parts that touch the machine are already open.
pub struct Setup {
    /// The engine and its journal, recovered.
    pub writer: Writer,
    /// Engine time.
    pub clock: Clock,
    /// The first term of this process, above every term that could be read.
    pub term: u64,
    /// Seeds the named random streams.
    pub seed: u64,
    /// Fleet and policies.
    pub files: Files,
    /// Who may push and ask.
    pub tokens: Tokens,
    /// The address of the API.
    pub listen: SocketAddr,
    /// A separate address for health and metrics.
    pub metrics_listen: Option<SocketAddr>,
    /// The bounds of the API.
    pub limits: ApiLimits,
    /// Event sinks.
    pub sinks: Vec<Arc<dyn EventSink>>,
    /// Sources that the daemon reads by itself.
    pub adapters: Vec<AdapterConfig>,
    /// Renders metrics.
    pub metrics: PrometheusHandle,
}

/// A daemon that runs.
pub struct Daemon {
    /// The engine loop.
    pub engine: EngineHandle,
    /// The way in for readings.
    pub intake: Intake,
    /// What keeps it from being ready.
    pub readiness: Readiness,
    /// Bound addresses: `http`, and `metrics` where separate.
    pub addresses: BTreeMap<&'static str, SocketAddr>,
    tasks: Tasks,
    thread: std::thread::JoinHandle<Writer>,
}

/// What runs beside the engine loop, by when it is stopped.
#[derive(Default)]
struct Tasks {
    /// Ends what brings in readings and requests.
    stop_intake: CancellationToken,
    /// Ends the dispatcher and the observers.
    stop_orders: CancellationToken,
    /// Ends the publishers.
    stop_sinks: CancellationToken,
    /// Ends the engine loop.
    stop_engine: CancellationToken,
    /// The engine loop has ended.
    engine_ended: CancellationToken,
    servers: TaskTracker,
    calls: TaskTracker,
    sinks: TaskTracker,
}

/// Starts everything. Must be called inside a tokio runtime of several threads.
pub async fn start(setup: Setup) -> anyhow::Result<Daemon> {
    names::describe();
    let http = bind(setup.listen).await?;
    let health = match setup.metrics_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let tasks = Tasks::default();
    let readiness = Readiness::default();
    readiness.set("policies", Err("not loaded yet".to_owned()));
    let memory = MemoryActuator::new(confirmed(&setup.writer), setup.clock.clone());
    let cursors: Vec<_> = setup
        .sinks
        .iter()
        .map(|sink| saved_cursors(&setup.writer, sink.name()))
        .collect();

    let (engine, intake, orders, parts) = connect(
        setup.writer,
        setup.clock.clone(),
        (setup.term, setup.seed),
        readiness.clone(),
        (tasks.stop_engine.clone(), tasks.engine_ended.clone()),
    );
    let thread = EngineLoop::spawn(parts, tokio::runtime::Handle::current());
    tasks.actuate(orders, Arc::new(memory), &engine, &readiness);
    for (sink, cursors) in setup.sinks.into_iter().zip(cursors) {
        let publisher = publisher(sink, &engine, &readiness, setup.seed).with_cursors(cursors);
        tasks.sinks.spawn(publisher.run(tasks.stop_sinks.clone()));
    }
    let findings = Findings::default();
    tasks
        .load(setup.files, &engine, &readiness, &findings)
        .await?;
    let surroundings = surroundings(&engine, &setup.clock, setup.limits.readings.clone());
    for adapter in setup.adapters {
        let (name, adapter) = (adapter.name(), adapter.build(surroundings.clone())?);
        let stop = tasks.stop_intake.clone();
        tasks.servers.spawn(adapters::run(
            name,
            adapter,
            intake.clone(),
            engine.clone(),
            stop,
        ));
    }
    let metrics = setup.metrics.clone();
    let state = ApiState::new(
        intake.clone(),
        engine.clone(),
        Arc::new(setup.tokens),
        readiness.clone(),
        setup.clock.clone(),
        setup.limits,
        refreshing(setup.metrics, &engine, &intake, setup.clock),
    );
    tasks
        .servers
        .spawn(keep_up(metrics, tasks.stop_intake.clone()));
    let addresses = tasks.serve(http, health, state, findings)?;
    Ok(Daemon {
        engine,
        intake,
        readiness,
        addresses,
        tasks,
        thread,
    })
}

/// The ends that connect the engine loop with everyone else.
fn connect(
    writer: Writer,
    clock: Clock,
    (term, seed): (u64, u64),
    readiness: Readiness,
    (shutdown, ended): (CancellationToken, CancellationToken),
) -> (EngineHandle, Intake, mpsc::Receiver<Order>, Parts) {
    let fleet = Arc::new(ArcSwap::from_pointee(writer.engine().fleet().clone()));
    let gate = Arc::new(Mutex::new(LeaderGate::new(term)));
    let (intake, submissions) = Intake::channel();
    let (sender, messages) = mpsc::channel(INTERNAL_MESSAGES_MAX);
    let (index, stepped) = watch::channel(writer.engine().state().index);
    let engine = EngineHandle::new(sender, fleet.clone(), gate.clone(), stepped);
    let (dispatcher, orders) = Dispatcher::channel();
    let parts = Parts {
        writer,
        clock,
        intake: submissions,
        messages,
        dispatcher,
        index,
        fleet,
        gate,
        readiness,
        seed,
        shutdown,
        ended,
    };
    (engine, intake, orders, parts)
}

impl Tasks {
    /// The dispatcher, its actuators and their observers.
    fn actuate(
        &self,
        orders: mpsc::Receiver<Order>,
        memory: Arc<MemoryActuator>,
        engine: &EngineHandle,
        readiness: &Readiness,
    ) {
        let stop = &self.stop_orders;
        let clusters = Arc::new(Clusters::new(engine.clone(), cluster_health(readiness)));
        self.servers
            .spawn(follow_fleet(clusters.clone(), engine.clone(), stop.clone()));
        let actuators = Actuators {
            k0smotron: Arc::new(K0smotron::new(clusters)),
            memory: memory.clone(),
        };
        let calls = self.calls.clone();
        self.servers.spawn(dispatch::run(
            orders,
            actuators,
            engine.clone(),
            calls,
            stop.clone(),
        ));
        let (engine, stop) = (engine.clone(), stop.clone());
        self.servers
            .spawn(async move { memory.observe(engine, stop).await });
    }

    /// Fleet and policies, once or again and again.
    async fn load(
        &self,
        files: Files,
        engine: &EngineHandle,
        readiness: &Readiness,
        findings: &Findings,
    ) -> anyhow::Result<()> {
        match files {
            Files::Fixed(loaded) => {
                files::replace(engine, &loaded).await?;
                readiness.set("policies", Ok(()));
            }
            Files::Watched(paths) => {
                let loader = Loader {
                    paths,
                    engine: engine.clone(),
                    readiness: readiness.clone(),
                    findings: findings.clone(),
                };
                self.servers.spawn(loader.run(self.stop_intake.clone()));
            }
        }
        Ok(())
    }

    /// The HTTP surfaces; returns where they listen.
    fn serve(
        &self,
        http: TcpListener,
        health: Option<TcpListener>,
        state: ApiState,
        findings: Findings,
    ) -> anyhow::Result<BTreeMap<&'static str, SocketAddr>> {
        let mut addresses = BTreeMap::from([("http", http.local_addr()?)]);
        let operator = api::status::routes(findings)
            .merge(api::overrides::routes())
            .merge(api::budgets::routes())
            .merge(api::explain::routes())
            .merge(api::rollback::routes());
        let router = api::router_with(state.clone(), operator);
        self.servers
            .spawn(serve(http, router, self.stop_intake.clone()));
        if let Some(listener) = health {
            addresses.insert("metrics", listener.local_addr()?);
            let router = api::health_router(state);
            self.servers
                .spawn(serve(listener, router, self.stop_intake.clone()));
        }
        Ok(addresses)
    }
}

impl Daemon {
    /// Waits until the engine loop has ended by itself, which it only does when it is broken:
    /// nothing is decided any more, so the process must end, too.
    pub async fn broken(&self) {
        self.tasks.engine_ended.cancelled().await;
        self.readiness
            .set("engine", Err("the engine loop has stopped".to_owned()));
    }

    /// Stops in order: intake, calls under way, outbox, journal. Replicas stay as they are.
    pub async fn stop(self) -> anyhow::Result<()> {
        tracing::info!("stopping: no more readings are taken in");
        self.readiness
            .set("stopping", Err("the daemon is stopping".to_owned()));
        self.tasks.stop_intake.cancel();
        // No order is begun any more; those under way may end.
        self.tasks.stop_orders.cancel();
        self.tasks.calls.close();
        if tokio::time::timeout(CALLS_MAX, self.tasks.calls.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                "calls are still under way; what became of them is found out at the next start"
            );
        }
        self.tasks.servers.close();
        if tokio::time::timeout(REQUESTS_MAX, self.tasks.servers.wait())
            .await
            .is_err()
        {
            tracing::warn!("requests are still under way; their senders will try again");
        }
        self.tasks.stop_sinks.cancel();
        self.tasks.sinks.close();
        if tokio::time::timeout(SINKS_MAX, self.tasks.sinks.wait())
            .await
            .is_err()
        {
            tracing::warn!("events are still to be published; they are after the next start");
        }
        self.tasks.stop_engine.cancel();
        let thread = self.thread;
        let writer = tokio::task::spawn_blocking(move || thread.join())
            .await?
            .map_err(|_| anyhow::anyhow!("the engine loop panicked"))?;
        writer
            .close()
            .context("the journal could not be closed in order; the next start replays it")
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("can't listen on {address}: is another daemon running there?"))
}

/// What simulated pools are after a start: the ledger's last confirmed replicas.
fn confirmed(writer: &Writer) -> BTreeMap<Arc<str>, u32> {
    let pools = writer.engine().state().pools.iter();
    pools
        .filter_map(|(name, pool)| Some((name.clone(), pool.ledger.confirmed?.wanted)))
        .collect()
}

fn cluster_health(readiness: &Readiness) -> HealthCallback {
    let readiness = readiness.clone();
    Arc::new(move |cluster, state| readiness.set(&format!("cluster:{cluster}"), state))
}

/// Connects to the clusters of each new fleet once the engine has stepped it.
async fn follow_fleet(clusters: Arc<Clusters>, engine: EngineHandle, shutdown: CancellationToken) {
    let mut index = engine.index.clone();
    let mut known = engine.fleet.load_full();
    clusters.reconfigure(&known);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = index.changed() => if changed.is_err() { return },
        }
        let fleet = engine.fleet.load_full();
        if !Arc::ptr_eq(&fleet, &known) {
            clusters.reconfigure(&fleet);
            known = fleet;
        }
    }
}

/// Tokens from a file, which need not exist yet.
pub fn open_tokens(path: &std::path::Path) -> anyhow::Result<Tokens> {
    Tokens::open(path, Instant::now())
        .with_context(|| format!("the tokens in {} can't be used", path.display()))
}
