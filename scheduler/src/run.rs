//! Wiring only: build the parts, spawn them, wait, stop them in order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use sunward_core::fleet::Fleet;
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::protocol::outbox::Cursor;
use sunward_signal_adapters::intake::{Intake, ItemResult};
use sunward_signal_adapters::wire::Limits;
use sunward_signal_adapters::{AdapterConfig, Report, Surroundings};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actuators::k0smotron::K0smotron;
use crate::actuators::memory::MemoryActuator;
use crate::api::serve::serve;
use crate::api::{self, ApiLimits, ApiState};
use crate::clock::Clock;
use crate::cluster::{Clusters, HealthCallback};
use crate::dispatch::{self, Actuators, Dispatcher};
use crate::engine_handle::{EngineHandle, INTERNAL_MESSAGES_MAX};
use crate::engine_loop::{EngineLoop, Parts};
use crate::files::{self, Findings, Loaded, Loader, Paths};
use crate::metric_definitions as names;
use crate::publish::EventSink;
use crate::publish::publisher::{Hooks, Publisher};
use crate::readiness::Readiness;
use crate::tokens::Tokens;
use crate::writer::Writer;

/// How long calls under way are waited for at the stop.
const CALLS_MAX: Duration = Duration::from_secs(10);
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
    stop_intake: CancellationToken,
    stop_orders: CancellationToken,
    stop_sinks: CancellationToken,
    stop_engine: CancellationToken,
    servers: TaskTracker,
    calls: TaskTracker,
    sinks: TaskTracker,
    thread: std::thread::JoinHandle<Writer>,
}

/// Starts everything. Must be called inside a tokio runtime of several threads.
pub async fn start(setup: Setup) -> anyhow::Result<Daemon> {
    names::describe();
    let http = bind(setup.listen).await?;
    let health = match setup.metrics_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let readiness = Readiness::default();
    readiness.set("policies", Err("not loaded yet".to_owned()));
    let fleet = Arc::new(ArcSwap::from_pointee(setup.writer.engine().fleet().clone()));
    let gate = Arc::new(Mutex::new(LeaderGate::new(setup.term)));
    let (intake, submissions) = Intake::channel();
    let (messages_tx, messages) = mpsc::channel(INTERNAL_MESSAGES_MAX);
    let (index_tx, index) = watch::channel(setup.writer.engine().state().index);
    let engine = EngineHandle::new(messages_tx, fleet.clone(), gate.clone(), index);
    let (dispatcher, orders) = Dispatcher::channel();
    let memory = Arc::new(MemoryActuator::new(
        confirmed(&setup.writer),
        setup.clock.clone(),
    ));

    let cursors = setup.sinks.into_iter().map(|sink| {
        let cursors = saved_cursors(&setup.writer, sink.name());
        (sink, cursors)
    });
    let cursors: Vec<_> = cursors.collect();
    let (stop_intake, stop_orders) = (CancellationToken::new(), CancellationToken::new());
    let (stop_sinks, stop_engine) = (CancellationToken::new(), CancellationToken::new());
    let (servers, calls, sinks) = (TaskTracker::new(), TaskTracker::new(), TaskTracker::new());

    let parts = Parts {
        writer: setup.writer,
        clock: setup.clock.clone(),
        intake: submissions,
        messages,
        dispatcher,
        index: index_tx,
        fleet,
        gate,
        readiness: readiness.clone(),
        seed: setup.seed,
        shutdown: stop_engine.clone(),
    };
    let thread = EngineLoop::spawn(parts, tokio::runtime::Handle::current());

    let clusters = Arc::new(Clusters::new(engine.clone(), cluster_health(&readiness)));
    servers.spawn(follow_fleet(
        clusters.clone(),
        engine.clone(),
        stop_orders.clone(),
    ));
    let actuators = Actuators {
        k0smotron: Arc::new(K0smotron::new(clusters)),
        memory: memory.clone(),
    };
    let orders_end = dispatch::run(
        orders,
        actuators,
        engine.clone(),
        calls.clone(),
        stop_orders.clone(),
    );
    servers.spawn(orders_end);
    let (observer, told) = (engine.clone(), stop_orders.clone());
    servers.spawn(async move { memory.observe(observer, told).await });
    for (sink, cursors) in cursors {
        let publisher = publisher(sink, &engine, &readiness, setup.seed).with_cursors(cursors);
        sinks.spawn(publisher.run(stop_sinks.clone()));
    }
    let findings = Findings::default();
    match setup.files {
        Files::Fixed(loaded) => {
            files::replace(&engine, &loaded).await?;
            readiness.set("policies", Ok(()));
        }
        Files::Watched(paths) => {
            let loader = Loader {
                paths,
                engine: engine.clone(),
                readiness: readiness.clone(),
                findings: findings.clone(),
            };
            servers.spawn(loader.run(stop_intake.clone()));
        }
    }
    let surroundings = surroundings(&engine, &setup.clock, setup.limits.readings.clone());
    for adapter in setup.adapters {
        let name = adapter.name();
        let adapter = adapter.build(surroundings.clone())?;
        let (intake, stop, engine) = (intake.clone(), stop_intake.clone(), engine.clone());
        servers.spawn(async move {
            // Before a fleet is in force every zone is unknown.
            if fleet_in_force(&engine, &stop).await {
                match adapter.run(intake, stop).await {
                    Ok(()) => tracing::info!(adapter = name, "the adapter has read its source to the end"),
                    Err(error) => tracing::error!(adapter = name, %error, "the adapter has stopped"),
                }
            }
        });
    }

    let state = ApiState::new(
        intake.clone(),
        engine.clone(),
        Arc::new(setup.tokens),
        readiness.clone(),
        setup.clock.clone(),
        setup.limits,
        refreshing(setup.metrics, &engine, &intake, setup.clock),
    );
    let mut addresses = BTreeMap::new();
    addresses.insert("http", http.local_addr()?);
    let router = api::router_with(state.clone(), api::status::routes(findings));
    servers.spawn(serve(http, router, stop_intake.clone()));
    if let Some(listener) = health {
        addresses.insert("metrics", listener.local_addr()?);
        servers.spawn(serve(listener, api::health_router(state), stop_intake.clone()));
    }
    Ok(Daemon {
        engine,
        intake,
        readiness,
        addresses,
        stop_intake,
        stop_orders,
        stop_sinks,
        stop_engine,
        servers,
        calls,
        sinks,
        thread,
    })
}

impl Daemon {
    /// Stops in order: intake, calls under way, outbox, journal. Replicas stay as they are.
    pub async fn stop(self) -> anyhow::Result<()> {
        tracing::info!("stopping: no more readings are taken in");
        self.readiness
            .set("stopping", Err("the daemon is stopping".to_owned()));
        self.stop_intake.cancel();
        // No order is begun any more; those under way may end.
        self.stop_orders.cancel();
        self.calls.close();
        if tokio::time::timeout(CALLS_MAX, self.calls.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                "calls are still under way; what became of them is found out at the next start"
            );
        }
        self.servers.close();
        if tokio::time::timeout(REQUESTS_MAX, self.servers.wait())
            .await
            .is_err()
        {
            tracing::warn!("requests are still under way; their senders will try again");
        }
        self.stop_sinks.cancel();
        self.sinks.close();
        self.sinks.wait().await;
        self.stop_engine.cancel();
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

fn publisher(
    sink: Arc<dyn EventSink>,
    engine: &EngineHandle,
    readiness: &Readiness,
    seed: u64,
) -> Publisher {
    let (cursors, terms) = (engine.clone(), engine.clone());
    let runtime = tokio::runtime::Handle::current();
    let readiness = readiness.clone();
    let name = sink.name();
    let spawner = runtime.clone();
    let hooks = Hooks {
        save_cursor: Arc::new(move |federation, cursor| {
            let cursors = cursors.clone();
            let key = cursor_key(name, federation);
            let bytes = rmp_serde::to_vec_named(&cursor).expect("a cursor is two integers");
            spawner.spawn(async move { cursors.save_cursor(key, bytes).await });
        }),
        readiness: Arc::new(move |sink, state| {
            gauge!(names::DEPENDENCY_UP, "kind" => "sink", "name" => sink.to_owned())
                .set(f64::from(u8::from(state.is_ok())));
            readiness.set(&format!("sink:{sink}"), state);
        }),
        higher_term: Arc::new(move |object, term| {
            let terms = terms.clone();
            runtime.spawn(async move { terms.higher_term(object, term).await });
        }),
    };
    Publisher::new(sink, engine.clone(), hooks, seed)
}

/// Waits for the first fleet; false when the daemon stops before.
async fn fleet_in_force(engine: &EngineHandle, stop: &CancellationToken) -> bool {
    let mut index = engine.index.clone();
    while engine.fleet.load().pools().is_empty() {
        tokio::select! {
            () = stop.cancelled() => return false,
            changed = index.changed() => if changed.is_err() { return false },
        }
    }
    true
}

/// The key of a cursor beside the journal.
fn cursor_key(sink: &str, federation: &str) -> String {
    format!("{sink}/{federation}")
}

/// How far a sink had come when its cursors were last saved; one that is lost or unreadable only
/// means that something is published again, under the same id.
fn saved_cursors(writer: &Writer, sink: &str) -> BTreeMap<Arc<str>, Cursor> {
    let federations = writer.engine().state().federations.keys();
    let saved = federations.filter_map(|federation| {
        let bytes = writer
            .journal()
            .cursor(&cursor_key(sink, federation))
            .ok()??;
        Some((federation.clone(), rmp_serde::from_slice(&bytes).ok()?))
    });
    saved.collect()
}

fn surroundings(engine: &EngineHandle, clock: &Clock, limits: Limits) -> Surroundings {
    let (now, until, fleet) = (clock.clone(), clock.clone(), engine.fleet.clone());
    Surroundings {
        now: Arc::new(move || now.now()),
        until: Arc::new(move |at| until.until(at)),
        fleet: Arc::new(move || fleet.load_full()),
        report: Arc::new(|report| match report {
            Report::Answered { source, result } => {
                counter!(names::SIGNALS_ACCEPTED, "source" => source.to_owned(), "result" => word(result))
                    .increment(1);
            }
            Report::Refused { code } => {
                counter!(names::SIGNALS_REFUSED, "reason" => code.to_owned()).increment(1);
            }
        }),
        limits,
    }
}

fn word(result: ItemResult) -> &'static str {
    match result {
        ItemResult::Accepted => "accepted",
        ItemResult::Duplicate => "duplicate",
        ItemResult::Superseded => "superseded",
        ItemResult::Conflict => "conflict",
        ItemResult::BoardFull => "board_full",
    }
}

/// Renders `/metrics`, after reading from the engine what is a state and not an occurrence.
fn refreshing(
    handle: PrometheusHandle,
    engine: &EngineHandle,
    intake: &Intake,
    clock: Clock,
) -> api::RenderMetrics {
    let (engine, intake) = (engine.clone(), intake.clone());
    api::render_metrics(handle, move || {
        let (engine, intake, clock) = (engine.clone(), intake.clone(), clock.clone());
        Box::pin(async move {
            gauge!(names::QUEUE_DEPTH, "queue" => "ingest").set(intake.depth() as f64);
            gauge!(names::QUEUE_DEPTH, "queue" => "internal").set(engine.depth() as f64);
            let now = clock.now();
            // The engine loop has stopped: the last values stand.
            let _ = engine.ask(move |engine| refresh(engine, now)).await;
        })
    })
}

fn refresh(engine: &sunward_core::engine::Engine, now: sunward_core::time::Timestamp) {
    let state = engine.state();
    gauge!(names::JOURNAL_INDEX).set(state.index as f64);
    for stream in state.board.streams() {
        let Some(received_at) = stream.received_at else {
            continue;
        };
        let age = (now - received_at).as_millis() as f64 / 1_000.0;
        gauge!(names::BOARD_AGE, "stream" => stream.key.to_string()).set(age);
    }
    let fleet: &Fleet = engine.fleet();
    for pool in fleet.pools() {
        let Some(ledger) = state.pools.get(&pool.name).map(|pool| &pool.ledger) else {
            continue;
        };
        let labels = [
            ("pool", pool.name.to_string()),
            ("site", pool.site.to_string()),
        ];
        gauge!(names::POOL_DESIRED, &labels).set(f64::from(ledger.desired.unwrap_or(0)));
        let ready = ledger.confirmed.map_or(0, |known| known.ready);
        gauge!(names::POOL_READY, &labels).set(f64::from(ready));
    }
}

/// The highest term that can be read within 2 s on the sinks' streams; clusters tell theirs when
/// their pools are claimed.
pub async fn highest_term(sinks: &[Arc<dyn EventSink>], federations: &[Arc<str>]) -> u64 {
    let mut highest = 0;
    for sink in sinks {
        let ends = tokio::time::timeout(Duration::from_secs(2), sink.ends(federations)).await;
        match ends {
            Ok(Ok(ends)) => highest = ends.iter().map(|end| end.term).fold(highest, u64::max),
            Ok(Err(error)) => {
                tracing::warn!(sink = sink.name(), %error, "its terms are read later")
            }
            Err(_) => tracing::warn!(
                sink = sink.name(),
                "no answer within 2 s; its terms are read later"
            ),
        }
    }
    highest
}

/// Tokens from a file, which need not exist yet.
pub fn open_tokens(path: &std::path::Path) -> anyhow::Result<Tokens> {
    Tokens::open(path, Instant::now())
        .with_context(|| format!("the tokens in {} can't be used", path.display()))
}

/// The leader gate's state in words, for status.
pub fn leadership(gate: &Mutex<LeaderGate>) -> (u64, Result<(), String>) {
    let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let state = match gate.leadership() {
        sunward_core::protocol::leader::Leadership::Leading => Ok(()),
        sunward_core::protocol::leader::Leadership::Resigned { object, term } => {
            Err(format!("resigned: {object} carries term {term}"))
        }
    };
    (gate.term(), state)
}
