//! `GET /v1/status`: what the daemon knows now. For operators.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sunward_core::engine::{Digest, Engine};
use sunward_core::fleet::Fleet;
use sunward_policies::diagnostic::Diagnostic;

use super::ApiState;
use super::auth::Operator;
use super::problem::Problem;
use crate::files::Findings;

/// What `sunward status` prints. Field names are a promise; new ones may be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Journal index of the last group stepped.
    pub index: u64,
    /// The state's digest at that index, as hex.
    pub digest: String,
    /// The current term.
    pub term: u64,
    /// Whether this process writes to clusters and sinks.
    pub leading: bool,
    /// Whether everything that it needs is there.
    pub ready: bool,
    /// What is not, by name.
    pub not_ready: Vec<NotReady>,
    /// Engine time, RFC 3339.
    pub time: String,
    /// Every pool.
    pub pools: Vec<PoolStatus>,
    /// Every stream that was ever read or asked for.
    pub streams: Vec<StreamStatus>,
    /// Policies in force.
    pub policies: Vec<PolicyStatus>,
    /// SHA-256 over the policies in force.
    pub policies_hash: String,
    /// What was wrong with the files at the last load; the set in force stays.
    pub file_findings: Vec<String>,
    /// Federations and how far their events go.
    pub federations: Vec<FederationStatus>,
}

/// Something that the daemon needs and does not have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotReady {
    /// For example `sink:redis`.
    pub name: String,
    /// What is wrong.
    pub problem: String,
}

/// One pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub pool: String,
    /// Its site.
    pub site: String,
    /// Workers that should run.
    pub desired: Option<u32>,
    /// Workers that its target asks for.
    pub wanted: Option<u32>,
    /// Workers that can train.
    pub ready: u32,
    /// Most workers.
    pub max_workers: u32,
    /// Counted orders.
    pub generation: u64,
    /// `claim_needed`, `claiming`, `settled`, `in_flight`, `unknown` or `waiting`.
    pub state: String,
    /// The rule that decides, and its reason.
    pub rule: String,
    /// In a word.
    pub reason: String,
}

/// One stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Source, kind, basis and scope.
    pub stream: String,
    /// The value that holds now.
    pub value: Option<f64>,
    /// The canonical unit.
    pub unit: String,
    /// Since the newest level was received, in seconds.
    pub age_seconds: Option<f64>,
}

/// One policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Higher wins.
    pub priority: i32,
}

/// One federation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FederationStatus {
    /// Its name.
    pub federation: String,
    /// The sequence of its last event.
    pub sequence: u64,
}

/// The operator's routes.
pub fn routes(findings: Findings) -> Router<ApiState> {
    Router::new().route(
        "/v1/status",
        get(move |operator: Operator, state: State<ApiState>| status(operator, state, findings)),
    )
}

async fn status(_: Operator, State(state): State<ApiState>, findings: Findings) -> Response {
    let now = state.clock.now();
    let looked = state
        .engine
        .ask(move |engine| (engine.snapshot(), look(engine, now)))
        .await;
    let Ok((snapshot, mut status)) = looked else {
        return Problem::stopping().into_response();
    };
    // Hashed here, so that the engine loop only has to encode.
    status.digest = Digest(Sha256::digest(&snapshot).into()).to_string();
    let (term, leading) = state.engine.leadership();
    status.term = term;
    status.leading = leading.is_ok();
    let not_ready = state
        .readiness
        .parts()
        .into_iter()
        .filter_map(|(name, part)| part.err().map(|problem| NotReady { name, problem }));
    status.not_ready = not_ready.collect();
    status.ready = status.not_ready.is_empty();
    status.file_findings = findings.all().iter().map(Diagnostic::to_string).collect();
    Json(status).into_response()
}

fn look(engine: &Engine, now: sunward_core::time::Timestamp) -> Status {
    let state = engine.state();
    let fleet: &Fleet = engine.fleet();
    Status {
        index: state.index,
        digest: String::new(),
        term: state.term,
        leading: false,
        ready: false,
        not_ready: Vec::new(),
        time: now.to_string(),
        pools: fleet
            .pools()
            .iter()
            .filter_map(|pool| pool_status(engine, pool))
            .collect(),
        streams: state
            .board
            .streams()
            .iter()
            .map(|stream| StreamStatus {
                stream: stream.key.to_string(),
                value: stream.holds(now).and_then(|issue| issue.value),
                unit: stream.key.kind.unit().as_str().to_owned(),
                age_seconds: stream
                    .received_at
                    .map(|at| (now - at).as_millis() as f64 / 1_000.0),
            })
            .collect(),
        policies: engine
            .policies()
            .policies()
            .iter()
            .map(|policy| PolicyStatus {
                name: policy.name.clone(),
                file: policy.file.clone(),
                priority: policy.priority,
            })
            .collect(),
        policies_hash: engine.policies().hash(),
        file_findings: Vec::new(),
        federations: state
            .federations
            .iter()
            .map(|(name, federation)| FederationStatus {
                federation: name.to_string(),
                sequence: federation.sequence,
            })
            .collect(),
    }
}

fn pool_status(engine: &Engine, pool: &sunward_core::fleet::Pool) -> Option<PoolStatus> {
    let known = engine.state().pools.get(&pool.name)?;
    let standing = known.standing.as_ref();
    Some(PoolStatus {
        pool: pool.name.to_string(),
        site: pool.site.to_string(),
        desired: known.ledger.desired,
        wanted: known.ledger.confirmed.map(|confirmed| confirmed.wanted),
        ready: known
            .ledger
            .confirmed
            .map_or(0, |confirmed| confirmed.ready),
        max_workers: pool.max_workers,
        generation: known.ledger.generation,
        state: known.ledger.word().to_owned(),
        rule: standing.map_or_else(String::new, |standing| {
            if standing.policy.is_empty() {
                "none".to_owned()
            } else {
                format!("{}/{}", standing.policy, standing.rule)
            }
        }),
        reason: standing.map_or_else(String::new, |standing| standing.reason.clone()),
    })
}
