//! `POST /v1/events/{id}/cancel`: a partner calls off a grid event that its source sent.
//!
//! The cancellation is the event's next revision, taken in like any other: durable before it is answered.

use std::time::Instant;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use sunward_core::event::Event;
use sunward_core::grid_event::{GridEvent, GridEventStatus};
use sunward_signal_adapters::intake::ItemResult;
use sunward_signal_adapters::wire::grid_event;

use super::ApiState;
use super::auth::Authenticated;
use super::ingest::commit;
use super::operate::{read_json, unprocessable, wrong};
use super::problem::Problem;
use crate::tokens::Partner;

/// What a cancellation may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancellation {
    /// Whose event; needed where several sources of the partner have one of that id.
    #[serde(default)]
    source: Option<String>,
}

/// A cancelled event.
#[derive(Debug, Serialize)]
struct Cancelled {
    source: String,
    id: String,
    revision: u64,
    status: &'static str,
}

/// The handler.
pub(super) async fn cancel(
    State(state): State<ApiState>,
    Authenticated(partner): Authenticated,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match call_off(&state, &partner, &id, body).await {
        Ok(cancelled) => (StatusCode::ACCEPTED, Json(cancelled)).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn call_off(
    state: &ApiState,
    partner: &Partner,
    id: &str,
    body: Result<Bytes, BytesRejection>,
) -> Result<Cancelled, Problem> {
    let asked = match &body {
        Ok(bytes) if bytes.is_empty() => Cancellation::default(),
        _ => read_json(body)?,
    };
    let known = find(state, partner, id, asked.source.as_deref()).await?;
    let event = match known.status {
        GridEventStatus::Cancelled => return Ok(cancelled(&known)),
        GridEventStatus::Completed | GridEventStatus::Superseded => return Err(over(&known)),
        GridEventStatus::Scheduled | GridEventStatus::Active => GridEvent {
            revision: known.revision.saturating_add(1),
            status: GridEventStatus::Cancelled,
            ..known
        },
    };
    let key = grid_event::grid_event_key(&event);
    let accepted = vec![Event::GridEventAccepted(event.clone())];
    let results = commit(state, accepted, vec![key], Instant::now()).await?;
    match results.first() {
        Some(ItemResult::Accepted | ItemResult::Duplicate) => Ok(cancelled(&event)),
        _ => Err(Problem::new(
            StatusCode::CONFLICT,
            "conflict",
            "Another revision came first",
            format!(
                "event `{id}` of {} was revised at the same time: ask again",
                event.source
            ),
        )),
    }
}

/// The one event of that id which the partner's sources sent, for places that it is granted.
async fn find(
    state: &ApiState,
    partner: &Partner,
    id: &str,
    source: Option<&str>,
) -> Result<GridEvent, Problem> {
    let asked = id.to_owned();
    let known = state.engine.ask(move |engine| {
        let events = engine.state().grid_events.values();
        let events = events.map(|known| &known.event);
        let named = events.filter(|event| *event.id == *asked);
        named.cloned().collect::<Vec<GridEvent>>()
    });
    let fleet = state.engine.fleet.load();
    let mut known = known.await.map_err(|_| Problem::stopping())?;
    known.retain(|event| {
        source.is_none_or(|source| *event.source == *source)
            && partner.may_call(&event.source, &event.scope, &fleet)
    });
    match known.len() {
        0 => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "unknown_event",
            "No such event",
            format!(
                "no grid event `{}` of a source that `{}` is granted is known: check the id, and that it was accepted",
                id.escape_debug().take(80).collect::<String>(),
                partner.name
            ),
        )),
        1 => Ok(known.remove(0)),
        _ => {
            let sources: Vec<&str> = known.iter().map(|event| event.source.as_ref()).collect();
            let detail = format!(
                "several sources have an event of this id: say which in `source`, one of {}",
                sources.join(", ")
            );
            Err(unprocessable(vec![wrong(
                "source",
                "missing_field",
                detail,
            )]))
        }
    }
}

fn cancelled(event: &GridEvent) -> Cancelled {
    Cancelled {
        source: event.source.to_string(),
        id: event.id.to_string(),
        revision: event.revision,
        status: grid_event::status_word(event.status),
    }
}

fn over(event: &GridEvent) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "event_over",
        "The event is over",
        format!(
            "event `{}` of {} is {} already: there is nothing to call off",
            event.id,
            event.source,
            grid_event::status_word(event.status)
        ),
    )
}
