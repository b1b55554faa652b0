//! `GET /v1/status`: what the daemon knows now. For operators.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sunward_core::coordination::{BudgetSummary, DeadlineSummary, Mode};
use sunward_core::engine::{Digest, Engine};
use sunward_core::fleet::Fleet;
use sunward_core::grid_event::{GridEvent, GridTarget};
use sunward_core::overrides::OverrideEffect;
use sunward_core::time::Timestamp;
use sunward_policies::diagnostic::{Diagnostic, Severity};
use sunward_policies::policy::Budget;
use sunward_signal_adapters::wire::grid_event;

use super::ApiState;
use super::auth::Operator;
use super::overrides::{self, OverrideView};
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
    /// Which policy set is in force, and which is not.
    #[serde(default)]
    pub policy_state: PolicyState,
    /// Overrides in force, by id.
    #[serde(default)]
    pub overrides: Vec<OverrideView>,
    /// Pools that a freeze keeps as they are, by name.
    #[serde(default)]
    pub frozen_pools: Vec<String>,
    /// Grid events that are known, by source and id.
    #[serde(default)]
    pub grid_events: Vec<GridEventStatusView>,
    /// Every sum of every budget.
    #[serde(default)]
    pub budgets: Vec<BudgetStatus>,
    /// Floors that can't be met.
    #[serde(default)]
    pub blocked_floors: Vec<BlockedFloor>,
    /// Deadlines and how far they are.
    #[serde(default)]
    pub deadlines: Vec<DeadlineStatus>,
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

/// Which policy set is in force, and which is not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PolicyState {
    /// Its content hash.
    pub hash: String,
    /// Its files.
    pub files: Vec<String>,
    /// Since when, RFC 3339; `null` before the first set.
    pub since: Option<String>,
    /// Whether `sunward policy rollback` has a set to go back to.
    pub can_roll_back: bool,
    /// Why the files on disk were refused at the last load; empty where they were not.
    pub refused: Vec<String>,
    /// The set that an operator took back; files with its content stay out of force.
    pub rolled_back: Option<RolledBackStatus>,
}

/// A set that was taken back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RolledBackStatus {
    /// Its content hash.
    pub hash: String,
    /// Whose token did it.
    pub by: String,
    /// When, RFC 3339.
    pub at: String,
}

/// One grid event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GridEventStatusView {
    /// Who sent it.
    pub source: String,
    /// The source's id of it.
    pub id: String,
    /// The newest revision.
    pub revision: u64,
    /// `dispatch`, `limit`, `emergency` or `test`.
    pub kind: String,
    /// Its site, or its zone as `scheme:code`.
    pub scope: String,
    /// `scheduled`, `active`, `completed`, `cancelled` or `superseded`, as its source says.
    pub status: String,
    /// Whether it acts now.
    pub acts: bool,
    /// First instant at which it acts, RFC 3339.
    pub starts_at: String,
    /// First instant at which it no longer does; `null`: until it is completed or cancelled.
    pub ends_at: Option<String>,
    /// How far down, in words; `null`: to the pools' minimum.
    pub target: Option<String>,
}

/// One sum of a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// `policy/budget`.
    pub budget: String,
    /// The site, federation or pool; empty for the fleet.
    pub part: String,
    /// The unit of the amounts, as the file wrote it.
    pub unit: String,
    /// Spent in the running period, or in use now.
    pub spent: Option<f64>,
    /// The most.
    pub limit: Option<f64>,
    /// What is left; never below zero.
    pub remaining: Option<f64>,
    /// When the running period began, RFC 3339; `null` for a budget that is kept at every instant.
    pub period_from: Option<String>,
    /// When the next begins, RFC 3339.
    pub period_to: Option<String>,
    /// Nothing is left: its pools stay at their minimum.
    pub exhausted: bool,
    /// False while nobody knows what was spent before: nothing starts until an operator says so.
    pub known: bool,
}

/// A floor that can't be met.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockedFloor {
    /// `policy/floor`.
    pub floor: String,
    /// Sites that it needs.
    pub needed: u32,
    /// Sites that are active all the same.
    pub active: u32,
    /// Since when, RFC 3339.
    pub blocked_since: String,
}

/// One deadline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadlineStatus {
    /// `policy/deadline`.
    pub deadline: String,
    /// By when, RFC 3339.
    pub finish_by: String,
    /// Worker-hours in all.
    pub work_hours: f64,
    /// Worker-hours done.
    pub done_hours: f64,
    /// `choosing` (the best hours), `needs` (no slack is left) or `finished`.
    pub mode: String,
    /// It passed with work left.
    pub missed: bool,
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
    let found = findings.all();
    status.file_findings = found.iter().map(Diagnostic::to_string).collect();
    let errors = found.iter().filter(|one| one.severity == Severity::Error);
    status.policy_state.refused = errors.map(Diagnostic::to_string).collect();
    Json(status).into_response()
}

fn look(engine: &Engine, now: Timestamp) -> Status {
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
        policy_state: policy_state(engine),
        overrides: overrides::views(state.overrides.values(), fleet, now),
        frozen_pools: frozen_pools(engine, now),
        grid_events: state
            .grid_events
            .values()
            .map(|known| grid_event_status(&known.event, now))
            .collect(),
        budgets: engine.budgets(now).iter().map(budget_status).collect(),
        blocked_floors: engine
            .blocked_floors()
            .iter()
            .map(|floor| BlockedFloor {
                floor: floor.floor.to_string(),
                needed: floor.needed,
                active: floor.active,
                blocked_since: floor.blocked_since.to_string(),
            })
            .collect(),
        deadlines: engine.deadlines(now).iter().map(deadline_status).collect(),
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

fn policy_state(engine: &Engine) -> PolicyState {
    let state = engine.state();
    let history = &state.policy_history;
    PolicyState {
        hash: engine.policies().hash(),
        files: state
            .policies
            .iter()
            .map(|file| file.path.clone())
            .collect(),
        since: (history.since_index != 0).then(|| history.since.to_string()),
        can_roll_back: history.before.is_some(),
        refused: Vec::new(),
        rolled_back: history.rolled_back.as_ref().map(|done| RolledBackStatus {
            hash: done.hash.to_string(),
            by: done.by.clone(),
            at: done.at.to_string(),
        }),
    }
}

fn frozen_pools(engine: &Engine, now: Timestamp) -> Vec<String> {
    let freezes = engine
        .state()
        .overrides
        .values()
        .filter(|known| known.effect == OverrideEffect::Freeze && now < known.expires_at);
    let pools: BTreeSet<String> = freezes
        .flat_map(|freeze| overrides::covered(&freeze.scope, engine.fleet()))
        .map(ToString::to_string)
        .collect();
    pools.into_iter().collect()
}

fn budget_status(summary: &BudgetSummary) -> BudgetStatus {
    let amount = |amount| Budget::amount_in(amount, &summary.unit);
    BudgetStatus {
        budget: summary.budget.to_string(),
        part: summary.part.to_string(),
        unit: summary.unit.to_string(),
        spent: amount(summary.spent),
        limit: amount(summary.limit),
        remaining: amount(summary.remaining),
        period_from: summary.period.map(|(from, _)| from.to_string()),
        period_to: summary.period.map(|(_, to)| to.to_string()),
        exhausted: summary.exhausted,
        known: summary.known,
    }
}

fn deadline_status(summary: &DeadlineSummary) -> DeadlineStatus {
    let hours = |worker_ms: i64| worker_ms as f64 / 3_600_000.0;
    DeadlineStatus {
        deadline: summary.deadline.to_string(),
        finish_by: summary.finish_by.to_string(),
        work_hours: hours(summary.work),
        done_hours: hours(summary.done),
        mode: match summary.mode {
            Mode::Choosing => "choosing",
            Mode::Needs => "needs",
            Mode::Finished => "finished",
        }
        .to_owned(),
        missed: summary.missed,
    }
}

fn grid_event_status(event: &GridEvent, now: Timestamp) -> GridEventStatusView {
    GridEventStatusView {
        source: event.source.to_string(),
        id: event.id.to_string(),
        revision: event.revision,
        kind: grid_event::kind_word(event.kind).to_owned(),
        scope: event.scope.to_string(),
        status: grid_event::status_word(event.status).to_owned(),
        acts: event.acts(now),
        starts_at: event.starts_at.to_string(),
        ends_at: event.ends_at.map(|at| at.to_string()),
        target: event.target.map(|target| match target {
            GridTarget::Kilowatts(most) => format!("{most} kW"),
            GridTarget::PowerPercent(percent) => format!("{percent} %"),
        }),
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
