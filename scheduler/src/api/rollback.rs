//! `POST /v1/policies/rollback`: the policy set that was in force before comes back.
//!
//! It is journaled like any other set. The files on disk are not touched: while their content is the one that was
//! taken back they stay out of force, also after a restart, until somebody changes them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sunward_core::event::{Event, PackedFile};
use sunward_core::fleet::{Fleet, check};
use sunward_core::policy_history::FormerSet;
use sunward_core::time::Timestamp;
use sunward_policies::diagnostic::{Diagnostic, Severity};
use sunward_policies::policy::PolicySet;

use super::ApiState;
use super::auth::Operator;
use super::operate::commit;
use super::problem::Problem;

/// What a rollback did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBackView {
    /// The content hash of the set that is in force now.
    pub policies_hash: String,
    /// Its policies, by name.
    pub policies: Vec<String>,
    /// When that set had first come into force, RFC 3339.
    pub first_in_force: String,
    /// The content hash of the set that was taken back.
    pub taken_back: String,
    /// Whose token did it.
    pub by: String,
    /// The journal index of the change.
    pub index: u64,
}

/// The route.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/v1/policies/rollback", post(rollback))
}

async fn rollback(Operator(operator): Operator, State(state): State<ApiState>) -> Response {
    match roll_back(&state, &operator.name).await {
        Ok(view) => Json(view).into_response(),
        Err(problem) => problem.into_response(),
    }
}

/// What the engine has to say about a rollback.
struct Looked {
    former: Option<FormerSet>,
    hash: String,
    rolled_back: Option<(String, Timestamp)>,
}

async fn roll_back(state: &ApiState, by: &str) -> Result<RolledBackView, Problem> {
    let looked = state.engine.ask(|engine| {
        let history = &engine.state().policy_history;
        Looked {
            former: history.before.clone(),
            hash: engine.policies().hash(),
            rolled_back: history
                .rolled_back
                .as_ref()
                .map(|done| (done.by.clone(), done.at)),
        }
    });
    let looked = looked.await.map_err(|_| Problem::stopping())?;
    let Some(former) = looked.former else {
        return Err(nothing_before(looked.rolled_back));
    };
    let policies = compile(&former, &state.engine.fleet.load())?;
    let hash: Arc<str> = looked.hash.into();
    let events = vec![
        Event::PoliciesReplaced {
            files: former.files,
        },
        Event::PoliciesRolledBack {
            hash: hash.clone(),
            by: by.to_owned(),
        },
    ];
    let index = commit(state, events).await?;
    tracing::info!(by, taken_back = %hash, in_force = policies.hash(), index, "policies rolled back");
    Ok(RolledBackView {
        policies_hash: policies.hash(),
        policies: policies
            .policies()
            .iter()
            .map(|policy| policy.name.clone())
            .collect(),
        first_in_force: former.since.to_string(),
        taken_back: hash.to_string(),
        by: by.to_owned(),
        index,
    })
}

fn nothing_before(rolled_back: Option<(String, Timestamp)>) -> Problem {
    let why = match rolled_back {
        Some((by, at)) => format!(
            "{by} rolled back at {at} already, and only one set before is kept: to go further back, change the files"
        ),
        None => "no other set was in force since this journal began: to change the policies, change the files"
            .to_owned(),
    };
    Problem::new(
        StatusCode::CONFLICT,
        "nothing_to_roll_back",
        "Nothing to roll back to",
        why,
    )
}

/// The former set, checked again: the fleet may have changed since it was in force.
fn compile(former: &FormerSet, fleet: &Fleet) -> Result<PolicySet, Problem> {
    let files: Vec<_> = former.files.iter().filter_map(PackedFile::unpack).collect();
    let policies = PolicySet::compile(&files).map_err(|found| does_not_fit(&found))?;
    let found = check::policies_on_fleet(&policies, fleet);
    let refused = found.iter().any(|one| one.severity == Severity::Error);
    if refused {
        return Err(does_not_fit(&found));
    }
    Ok(policies)
}

fn does_not_fit(found: &[Diagnostic]) -> Problem {
    let errors = found.iter().filter(|one| one.severity == Severity::Error);
    let listed: Vec<String> = errors.map(ToString::to_string).collect();
    let detail = format!(
        "the set before no longer passes the checks with the fleet of today: {}; the set in force stays",
        listed.join("; ")
    );
    Problem::new(
        StatusCode::CONFLICT,
        "does_not_fit",
        "The set before does not fit any more",
        detail,
    )
}
