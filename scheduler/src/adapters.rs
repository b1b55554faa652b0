//! Adapters at work: what the daemon lends to them, and when they begin.

use std::sync::Arc;

use metrics::counter;
use sunward_signal_adapters::intake::{Intake, ItemResult};
use sunward_signal_adapters::wire::Limits;
use sunward_signal_adapters::{AdapterError, Report, SignalAdapter, Surroundings};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::engine_handle::EngineHandle;
use crate::metric_definitions as names;

/// Runs one adapter until its source ends or the daemon stops.
pub async fn run(
    name: &'static str,
    adapter: Box<dyn SignalAdapter>,
    intake: Intake,
    engine: EngineHandle,
    stop: CancellationToken,
) {
    // Before a fleet is in force every zone is unknown.
    if !fleet_in_force(&engine, &stop).await {
        return;
    }
    let ended: Result<(), AdapterError> = adapter.run(intake, stop).await;
    match ended {
        Ok(()) => tracing::info!(adapter = name, "the adapter has read its source to the end"),
        Err(error) => tracing::error!(adapter = name, %error, "the adapter has stopped"),
    }
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

/// What adapters are lent.
pub fn surroundings(engine: &EngineHandle, clock: &Clock, limits: Limits) -> Surroundings {
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
