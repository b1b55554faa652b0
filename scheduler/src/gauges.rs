//! Gauges: what `/metrics` says about the state of the engine, read from it at each scrape.

use std::time::Duration;

use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use sunward_core::engine::Engine;
use sunward_core::time::Timestamp;
use sunward_signal_adapters::intake::Intake;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::clock::Clock;
use crate::engine_handle::EngineHandle;
use crate::metric_definitions as names;

/// How often buffered measurements are taken in where nobody scrapes.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Renders `/metrics`, after reading from the engine what is a state and not an occurrence.
pub fn refreshing(
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

/// Takes in what histograms have buffered, until `stop`: a scrape does so too, but where nobody
/// scrapes the buffers would grow without end.
pub async fn keep_up(handle: PrometheusHandle, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(UPKEEP_EVERY) => handle.run_upkeep(),
        }
    }
}

fn refresh(engine: &Engine, now: Timestamp) {
    let state = engine.state();
    gauge!(names::JOURNAL_INDEX).set(state.index as f64);
    counter!(names::BOARD_DROPPED).absolute(state.board.dropped);
    for stream in state.board.streams() {
        let Some(received_at) = stream.received_at else {
            continue;
        };
        let age = (now - received_at).as_millis() as f64 / 1_000.0;
        gauge!(names::BOARD_AGE, "stream" => stream.key.to_string()).set(age);
    }
    let fleet = engine.fleet();
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
