//! The HTTP surface: ingest, health and metrics. One file per surface; the routes of the operator
//! are added by [`router_with`] and stand under the same counting, timeouts and answers.
//!
//! Every route but health and metrics needs a token. Every answer that is not a success is a
//! [`problem::Problem`].

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::future::BoxFuture;
use metrics_exporter_prometheus::PrometheusHandle;
use sunward_signal_adapters::intake::Intake;
use sunward_signal_adapters::wire::Limits;
use tower_http::catch_panic::CatchPanicLayer;

use self::problem::{Problem, RefusedAs};
use self::quota::{Quota, Rate};
use crate::clock::Clock;
use crate::engine_handle::EngineHandle;
use crate::metric_definitions::{HTTP_REQUESTS, SIGNALS_REFUSED};
use crate::readiness::Readiness;
use crate::tokens::Tokens;

pub mod auth;
pub mod budgets;
mod events;
pub mod explain;
mod health;
mod ingest;
mod operate;
pub mod overrides;
pub mod problem;
pub mod quota;
pub mod rollback;
pub mod serve;
pub mod status;
#[cfg(test)]
mod tests;

/// Where readings are pushed to.
const SIGNALS_ROUTE: &str = "/v1/signals";
/// Longest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Most sources with a label of their own; more share `other`.
pub const SOURCE_LABELS_MAX: usize = 1_000;
/// What a sender should wait when the daemon is behind.
const RETRY_BUSY: Duration = Duration::from_secs(1);
/// What a sender should wait when the daemon takes in nothing.
const RETRY_CLOSED: Duration = Duration::from_secs(5);

/// Renders the metrics, after refreshing what is only known on asking.
pub type RenderMetrics = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// The bounds of the HTTP surface.
#[derive(Clone, Debug)]
pub struct ApiLimits {
    /// Longest body, in bytes.
    pub body_bytes_max: usize,
    /// What a reading may look like, and how many a request may hold.
    pub readings: Limits,
    /// Requests of one partner.
    pub rate: Rate,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a commit may take.
    pub commit_timeout: Duration,
    /// How long a request may take in all; longer than the two before it together.
    pub request_timeout: Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        ApiLimits {
            body_bytes_max: BODY_BYTES_MAX,
            readings: Limits::default(),
            rate: Rate::default(),
            body_timeout: Duration::from_secs(10),
            commit_timeout: Duration::from_secs(15),
            request_timeout: Duration::from_secs(30),
        }
    }
}

/// What the handlers stand on. Cheap to clone: the router does so several times per request.
#[derive(Clone)]
pub struct ApiState(Arc<Shared>);

impl Deref for ApiState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// What every request shares.
pub struct Shared {
    /// The way into the engine loop.
    pub intake: Intake,
    /// The engine loop, for questions.
    pub engine: EngineHandle,
    /// Who may push and ask.
    pub tokens: Arc<Tokens>,
    /// What keeps the daemon from being ready.
    pub readiness: Readiness,
    /// Engine time.
    pub clock: Clock,
    /// The bounds.
    pub limits: ApiLimits,
    /// Renders `/metrics`.
    pub render_metrics: RenderMetrics,
    quota: Quota,
    sources: SourceLabels,
}

impl ApiState {
    /// The state of one HTTP surface.
    pub fn new(
        intake: Intake,
        engine: EngineHandle,
        tokens: Arc<Tokens>,
        readiness: Readiness,
        clock: Clock,
        limits: ApiLimits,
        render_metrics: RenderMetrics,
    ) -> ApiState {
        ApiState(Arc::new(Shared {
            intake,
            engine,
            tokens,
            readiness,
            clock,
            quota: Quota::new(limits.rate),
            limits,
            render_metrics,
            sources: SourceLabels::default(),
        }))
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiState")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Renders the metrics of `handle`; `refresh` runs before each time.
pub fn render_metrics(
    handle: PrometheusHandle,
    refresh: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> RenderMetrics {
    Arc::new(move || {
        let (handle, refreshed) = (handle.clone(), refresh());
        Box::pin(async move {
            refreshed.await;
            handle.run_upkeep();
            handle.render()
        })
    })
}

/// The labels of sources in metrics: a bounded set, since a grant of `*` lets a partner invent
/// names.
#[derive(Debug, Default)]
struct SourceLabels {
    known: Mutex<BTreeSet<Box<str>>>,
}

impl SourceLabels {
    fn label(&self, source: &str) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(source) {
            source.to_owned()
        } else if known.len() < SOURCE_LABELS_MAX {
            known.insert(source.into());
            source.to_owned()
        } else {
            "other".to_owned()
        }
    }
}

/// Everything that this version serves but the operator's routes.
pub fn router(state: ApiState) -> Router {
    router_with(state, Router::new())
}

/// The same with more routes; [`auth::Operator`] as a handler's argument keeps others out.
pub fn router_with(state: ApiState, more: Router<ApiState>) -> Router {
    let routes = Router::new()
        .route(
            SIGNALS_ROUTE,
            post(ingest::signals).layer(DefaultBodyLimit::disable()),
        )
        .route("/v1/events/{id}/cancel", post(events::cancel))
        .merge(more);
    guarded(state, routes.merge(health_routes()))
}

/// Health and metrics alone, for an address of their own.
pub fn health_router(state: ApiState) -> Router {
    guarded(state, health_routes())
}

fn health_routes() -> Router<ApiState> {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
}

/// Counting outermost, then a timeout, then panics become answers.
fn guarded(state: ApiState, routes: Router<ApiState>) -> Router {
    routes
        .fallback(|request: Request| async move {
            Problem::not_found(&format!("`{}` here", request.uri().path()))
        })
        .method_not_allowed_fallback(|request: Request| async move {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "Not with this method",
                format!(
                    "{} can't be used on `{}`: see the header `Allow`",
                    request.method(),
                    request.uri().path()
                ),
            )
        })
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(state.clone(), in_time))
        .layer(middleware::from_fn(count))
        .with_state(state)
}

async fn in_time(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(state.limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "timeout",
            "It took too long",
            format!(
                "no answer within {:?}: try again; what was kept is then a duplicate",
                state.limits.request_timeout
            ),
        )
        .retry_after(RETRY_BUSY)
        .into_response(),
    }
}

async fn count(matched: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let method = method_label(request.method());
    let route = matched.map_or_else(|| "none".to_owned(), |matched| matched.as_str().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16().to_string();
    // What was refused item by item is counted by item.
    if route == SIGNALS_ROUTE
        && let Some(refused) = response.extensions().get::<RefusedAs>()
    {
        metrics::counter!(SIGNALS_REFUSED, "reason" => refused.0.clone()).increment(1);
    }
    metrics::counter!(HTTP_REQUESTS, "route" => route, "method" => method, "status" => status)
        .increment(1);
    response
}

/// A sender may invent methods; a label may not.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text");
    tracing::error!(panic = what, "a request met a fault; please report it");
    Problem::internal().into_response()
}
