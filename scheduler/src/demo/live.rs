//! The demo in series time: the daemon's own engine loop, dispatcher, actuator, observer and HTTP
//! surface, on a clock that runs as fast as the series is to be played.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sunward_core::engine::Engine;
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::signal::{Level, Scope};
use sunward_core::time::Timestamp;
use sunward_signal_adapters::intake::{DedupeKey, Intake, ItemResult, SubmitError};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fast::{SEED, opening};
use super::scenario::{Scenario, Step};
use super::score::Score;
use super::tap::{Follower, tapped};
use crate::actuators::memory::MemoryActuator;
use crate::api::{self, ApiLimits, ApiState};
use crate::clock::Clock;
use crate::dispatch::{self, Actuators, Dispatcher};
use crate::engine_handle::{EngineHandle, INTERNAL_MESSAGES_MAX, Stopped};
use crate::engine_loop::{EngineLoop, Parts};
use crate::metric_definitions as names;
use crate::readiness::Readiness;
use crate::tokens::{self, Grant, Tokens, TokensError};
use crate::writer::{self, Writer};

/// Series seconds per real second: 18 h in 50 s.
pub const SPEED: f64 = 1_296.0;
/// Where it serves if nobody else does; else a free port.
const PORT: u16 = 7_117;
/// Pause before readings are submitted again to a full inbox.
const RETRY: Duration = Duration::from_millis(10);
/// The value that the curl line pushes, in gCO2e/kWh: clean enough for the policy.
const INVITED_VALUE: u32 = 20;

/// Why the demo could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No port on loopback.
    #[error("no address on loopback to serve on: {0}")]
    Listen(#[source] io::Error),
    /// The journal in memory could not be read.
    #[error("the demo's journal could not be opened: {0}")]
    Writer(#[from] writer::Error),
    /// No one-time token.
    #[error("no token could be made: {0}")]
    Token(#[from] TokensError),
    /// The engine loop ended before it had begun.
    #[error("the demo could not start: {0}")]
    Stopped(#[from] Stopped),
}

/// A demo under way.
pub struct Live {
    /// Series time.
    pub clock: Clock,
    /// Where it serves.
    pub address: SocketAddr,
    /// A command line that pushes a reading.
    pub curl: String,
    /// Follows what happens.
    pub follower: Follower,
    engine_thread: std::thread::JoinHandle<Writer>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

/// The ends that connect the engine loop with everyone else.
struct Ends {
    handle: EngineHandle,
    intake: Intake,
    orders: mpsc::Receiver<dispatch::Order>,
}

impl Live {
    /// Starts playing `scenario`, `speed` times as fast as real time, on the runtime of the caller.
    pub async fn start(scenario: &Arc<Scenario>, speed: f64) -> Result<Live, Error> {
        let listener = listen().await.map_err(Error::Listen)?;
        let address = listener.local_addr().map_err(Error::Listen)?;
        let (tap, follower) = tapped(Score::new(scenario), scenario.end);
        let writer = Writer::recover(Box::new(tap))?;
        let shutdown = CancellationToken::new();
        let tasks = TaskTracker::new();
        let readiness = Readiness::default();
        let clock = Clock::series(scenario.start, speed);
        let (parts, ends) = connect(writer, &clock, &readiness, &shutdown);
        let engine_thread = EngineLoop::spawn(parts, tokio::runtime::Handle::current());
        let Ends {
            handle,
            intake,
            orders,
        } = ends;

        let memory = Arc::new(MemoryActuator::new(
            std::collections::BTreeMap::new(),
            clock.clone(),
        ));
        tasks.spawn({
            let (memory, handle, shutdown) = (memory.clone(), handle.clone(), shutdown.clone());
            async move { memory.observe(handle, shutdown).await }
        });
        let actuators = Actuators {
            k0smotron: memory.clone(),
            memory,
        };
        tasks.spawn(dispatch::run(
            orders,
            actuators,
            handle.clone(),
            tasks.clone(),
            shutdown.clone(),
        ));
        let (partner, secret) =
            tokens::issue("demo", vec![grant(scenario)], false, scenario.start)?;
        let tokens = Tokens::fixed(vec![partner], Instant::now())?;
        let state = ApiState::new(
            intake.clone(),
            handle.clone(),
            Arc::new(tokens),
            readiness,
            clock.clone(),
            ApiLimits::default(),
            api::render_metrics(record_metrics(), refresh(&handle, &clock)),
        );
        tasks.spawn(serve(listener, state, shutdown.clone()));
        let [_, files] = opening(scenario, 1);
        handle.tell_all_and_wait(files).await?;
        tasks.spawn(play(
            scenario.clone(),
            intake,
            clock.clone(),
            shutdown.clone(),
        ));
        let curl = curl(scenario, address, secret.reveal());
        Ok(Live {
            clock,
            address,
            curl,
            follower,
            engine_thread,
            shutdown,
            tasks,
        })
    }

    /// Stops everything and accounts up to now. Returns the follower, and the loop's engine and
    /// journal.
    pub async fn stop(self) -> (Follower, Option<Writer>) {
        let Live {
            clock,
            mut follower,
            engine_thread,
            shutdown,
            tasks,
            ..
        } = self;
        let now = clock.now();
        shutdown.cancel();
        tasks.close();
        let joined = tokio::task::spawn_blocking(move || engine_thread.join());
        let writer = joined.await.ok().and_then(Result::ok);
        if let Err(error) = follower.finish(now) {
            tracing::error!(%error, "a record of the demo's own journal can't be read");
        }
        (follower, writer)
    }
}

async fn listen() -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
        }
        other => other,
    }
}

fn connect(
    writer: Writer,
    clock: &Clock,
    readiness: &Readiness,
    shutdown: &CancellationToken,
) -> (Parts, Ends) {
    let (intake, submissions) = Intake::channel();
    let (sender, messages) = mpsc::channel(INTERNAL_MESSAGES_MAX);
    let (dispatcher, orders) = Dispatcher::channel();
    let (index, stepped) = watch::channel(0);
    let fleet = Arc::new(ArcSwap::default());
    let gate = Arc::new(Mutex::new(LeaderGate::new(1)));
    let parts = Parts {
        writer,
        clock: clock.clone(),
        intake: submissions,
        messages,
        dispatcher,
        index,
        fleet: fleet.clone(),
        gate: gate.clone(),
        readiness: readiness.clone(),
        seed: SEED,
        shutdown: shutdown.clone(),
    };
    (
        parts,
        Ends {
            handle: EngineHandle::new(sender, fleet, gate, stepped),
            intake,
            orders,
        },
    )
}

async fn serve(listener: TcpListener, state: ApiState, shutdown: CancellationToken) {
    let served = axum::serve(listener, api::router(state))
        .with_graceful_shutdown(async move { shutdown.cancelled().await })
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the demo no longer serves");
    }
}

/// Submits the readings of the series, each a step ahead of its time, as a grid operator
/// publishes them: so no interval begins before its value is known.
async fn play(scenario: Arc<Scenario>, intake: Intake, clock: Clock, shutdown: CancellationToken) {
    let mut ahead: Option<Timestamp> = None;
    for step in scenario.steps() {
        let due = ahead.replace(step.at).unwrap_or(step.at);
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(clock.until(due)) => {}
        }
        if submit(&intake, &step).await.is_err() {
            return;
        }
    }
}

/// Submits one step, again and again while the inbox is full, and waits for its commit.
async fn submit(intake: &Intake, step: &Step) -> Result<(), SubmitError> {
    loop {
        let readings = step
            .readings
            .iter()
            .map(|level| (level.clone(), key(level)))
            .collect();
        match intake.submit(readings, Instant::now()) {
            Ok(ticket) => {
                count(step, &ticket.await.unwrap_or_default());
                return Ok(());
            }
            Err(SubmitError::Full) => tokio::time::sleep(RETRY).await,
            Err(error) => return Err(error),
        }
    }
}

/// Counts what was taken in, as for every source of readings.
fn count(step: &Step, results: &[ItemResult]) {
    for (level, result) in step.readings.iter().zip(results) {
        if *result == ItemResult::Accepted {
            let source = level.stream.source.to_string();
            counter!(names::SIGNALS_ACCEPTED, "source" => source, "result" => "accepted")
                .increment(1);
        }
    }
}

fn key(level: &Level) -> DedupeKey {
    let id = format!("{} {}", level.stream, level.valid_from);
    let content = format!("{id} {} {:?}", level.valid_to, level.value);
    DedupeKey {
        source: level.stream.source.clone(),
        id: id.into(),
        hash: Sha256::digest(content).into(),
    }
}

/// What the one-time token may push: the invited stream's source and kind, at the sites of its
/// zone.
fn grant(scenario: &Scenario) -> Grant {
    let stream = scenario.invited_stream();
    let sites = scenario.fleet.sites().filter(|site| match &stream.scope {
        Scope::Site(name) => site.name == *name,
        Scope::Zone { scheme, code } => site.zones.get(scheme) == Some(code),
    });
    Grant {
        source: stream.source.to_string(),
        sites: sites.map(|site| site.name.to_string()).collect(),
        kinds: vec![stream.kind.as_str().to_owned()],
    }
}

/// A line for a shell that pushes a reading which holds to the series' end.
fn curl(scenario: &Scenario, address: SocketAddr, token: &str) -> String {
    let stream = scenario.invited_stream();
    let mut reading = json!({
        "source": stream.source.as_ref(),
        "kind": stream.kind.as_str(),
        "valid_from": scenario.start.to_string(),
        "valid_to": scenario.end.to_string(),
        "value": INVITED_VALUE,
        "unit": stream.kind.unit().as_str(),
    });
    if let Some(basis) = stream.basis {
        reading["basis"] = json!(basis.as_str());
    }
    match &stream.scope {
        Scope::Site(site) => reading["site"] = json!(site.as_ref()),
        Scope::Zone { scheme, code } => {
            reading["zone"] = json!({"scheme": scheme.as_ref(), "code": code.as_ref()});
        }
    }
    format!(
        "curl -sS http://{address}/v1/signals -H 'Authorization: Bearer {token}' \
         -H 'Content-Type: application/json' -d '{reading}'"
    )
}

/// Installs the recorder of this process; a second one in the same process only renders.
fn record_metrics() -> PrometheusHandle {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &names::SECONDS_BUCKETS)
        .expect("there are buckets");
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // Installed already: that one records, and this demo's page stays empty.
    if metrics::set_global_recorder(recorder).is_ok() {
        names::describe();
    }
    handle
}

/// Refreshes what is only known on asking.
fn refresh(
    engine: &EngineHandle,
    clock: &Clock,
) -> impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static {
    let (engine, clock) = (engine.clone(), clock.clone());
    move || {
        let (engine, now) = (engine.clone(), clock.now());
        Box::pin(async move {
            // Stopping: the page shows what was.
            let _ = engine.ask(move |engine| set_gauges(engine, now)).await;
        })
    }
}

fn set_gauges(engine: &Engine, now: Timestamp) {
    for pool in engine.fleet().pools() {
        let Some(state) = engine.state().pools.get(&pool.name) else {
            continue;
        };
        let labels = [
            ("pool", pool.name.to_string()),
            ("site", pool.site.to_string()),
        ];
        let ready = state.ledger.confirmed.map_or(0, |seen| seen.ready);
        gauge!(names::POOL_DESIRED, &labels).set(f64::from(state.ledger.desired.unwrap_or(0)));
        gauge!(names::POOL_READY, &labels).set(f64::from(ready));
    }
    for stream in engine.state().board.streams() {
        let Some(received_at) = stream.received_at else {
            continue;
        };
        let age_seconds = (now - received_at).as_millis() as f64 / 1_000.0;
        gauge!(names::BOARD_AGE, "stream" => stream.key.to_string()).set(age_seconds);
    }
    gauge!(names::JOURNAL_INDEX).set(engine.state().index as f64);
}
