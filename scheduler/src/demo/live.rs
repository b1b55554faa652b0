//! The demo in series time: the daemon itself, wired as ever, on a clock that runs as fast as the
//! series is to be played and with a journal that can be followed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use metrics::counter;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sunward_core::signal::{Level, Scope};
use sunward_core::time::Timestamp;
use sunward_signal_adapters::intake::{DedupeKey, Intake, ItemResult, SubmitError};
use tokio_util::sync::CancellationToken;

use super::fast::SEED;
use super::scenario::{Scenario, Step};
use super::score::Score;
use super::tap::{Follower, tapped};
use crate::api::ApiLimits;
use crate::clock::Clock;
use crate::files::Loaded;
use crate::metric_definitions as names;
use crate::run::{self, Daemon, Files, Setup};
use crate::tokens::{self, Grant, Tokens};
use crate::writer::Writer;

/// Series seconds per real second: 18 h in 50 s.
pub const SPEED: f64 = 1_296.0;
/// Where it serves if nobody else does; else a free port.
const PORT: u16 = 7_117;
/// Pause before readings are submitted again to a full inbox.
const RETRY: Duration = Duration::from_millis(10);
/// The value that the curl line pushes, in gCO2e/kWh: clean enough for the policy.
const INVITED_VALUE: u32 = 20;

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
    /// The daemon.
    pub daemon: Daemon,
    playing: CancellationToken,
}

impl Live {
    /// Starts playing `scenario`, `speed` times as fast as real time, on the caller's runtime.
    pub async fn start(
        scenario: &Arc<Scenario>,
        speed: f64,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Live> {
        let (tap, follower) = tapped(Score::new(scenario), scenario.end);
        let (partner, secret) =
            tokens::issue("demo", vec![grant(scenario)], false, scenario.start)?;
        let listen = listen()?;
        let clock = Clock::series(scenario.start, speed);
        let setup = Setup {
            writer: Writer::recover(Box::new(tap))?,
            clock: clock.clone(),
            term: 1,
            seed: SEED,
            files: Files::Fixed(Loaded {
                fleet: scenario.fleet_file.clone(),
                policies: vec![scenario.policy_file.clone()],
            }),
            tokens: Tokens::fixed(vec![partner], Instant::now())?,
            listen,
            metrics_listen: None,
            limits: ApiLimits::default(),
            sinks: Vec::new(),
            adapters: Vec::new(),
            metrics,
        };
        let daemon = run::start(setup).await?;
        let address = daemon.addresses.get("http").copied().unwrap_or(listen);
        let playing = CancellationToken::new();
        let intake = daemon.intake.clone();
        tokio::spawn(play(
            scenario.clone(),
            intake,
            clock.clone(),
            playing.clone(),
        ));
        let curl = curl(scenario, address, secret.reveal());
        Ok(Live {
            clock,
            address,
            curl,
            follower,
            daemon,
            playing,
        })
    }

    /// Stops everything, and accounts up to now or to the end of the series.
    pub async fn stop(self) -> anyhow::Result<Follower> {
        let Live {
            clock,
            mut follower,
            daemon,
            playing,
            ..
        } = self;
        let now = clock.now();
        playing.cancel();
        daemon.stop().await?;
        follower
            .finish(now)
            .context("the demo's own journal can't be read")?;
        Ok(follower)
    }
}

/// The address to serve on: the daemon's usual one where it is free.
fn listen() -> anyhow::Result<SocketAddr> {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // Bound and released: the daemon binds it again at once.
    let free = std::net::TcpListener::bind(usual).or_else(|_| std::net::TcpListener::bind(any));
    free.and_then(|listener| listener.local_addr())
        .context("no address on loopback to serve on")
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
