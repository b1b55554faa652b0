//! `/healthz`, `/readyz` and `/metrics`: for orchestrators and Prometheus, without a token.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::ApiState;

/// The answer of `/readyz`.
#[derive(Debug, Serialize)]
struct ReadyAnswer {
    ready: bool,
    not_ready: Vec<NotReady>,
}

#[derive(Debug, Serialize)]
struct NotReady {
    name: String,
    reason: String,
}

/// 200 as long as the process answers at all.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// 200 when nothing is wrong, else 503; the body lists what is.
pub(super) async fn readyz(State(state): State<ApiState>) -> Response {
    if let Some(problem) = state.tokens.problem(Instant::now()) {
        state.readiness.set("tokens", Err(problem));
    } else {
        state.readiness.forget("tokens");
    }
    let not_ready: Vec<NotReady> = state
        .readiness
        .parts()
        .into_iter()
        .filter_map(|(name, part)| part.err().map(|reason| NotReady { name, reason }))
        .collect();
    let status = if not_ready.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(ReadyAnswer {
            ready: not_ready.is_empty(),
            not_ready,
        }),
    )
        .into_response()
}

/// Prometheus text format 0.0.4, after the gauges that are only known on asking were refreshed.
pub(super) async fn metrics(State(state): State<ApiState>) -> Response {
    let text = (state.render_metrics)().await;
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        text,
    )
        .into_response()
}
