//! `POST /v1/budgets/{policy}/{budget}`: an operator says what a budget has spent so far in its running period.
//!
//! Needed after an empty start beside a running fleet, where nobody knows, and after a correction by a meter.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sunward_core::event::Event;
use sunward_core::fleet::Fleet;
use sunward_policies::policy::{Budget, BudgetScope, PolicySet};
use sunward_signal_adapters::wire::Rejected;

use super::ApiState;
use super::auth::Operator;
use super::operate::{commit, no_such, read_json, unprocessable, wrong};
use super::problem::Problem;

/// What is said.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// The site, federation or pool whose sum it is; empty or absent for a budget of the fleet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// The amount with its unit, such as `12.5 kgCO2e`.
    pub spent: String,
}

/// What was taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BudgetView {
    /// `policy/budget`.
    pub budget: String,
    /// The site, federation or pool; empty for the fleet.
    pub part: String,
    /// As it was said.
    pub spent: String,
    /// Whose token said so.
    pub set_by: String,
    /// The journal index of the change.
    pub index: u64,
}

/// The route.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/v1/budgets/{policy}/{budget}", post(set))
}

async fn set(
    Operator(operator): Operator,
    State(state): State<ApiState>,
    Path((policy, budget)): Path<(String, String)>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match set_spent(&state, (&policy, &budget), body, &operator.name).await {
        Ok(view) => Json(view).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn set_spent(
    state: &ApiState,
    (policy, budget): (&str, &str),
    body: Result<Bytes, BytesRejection>,
    by: &str,
) -> Result<BudgetView, Problem> {
    let request: BudgetRequest = read_json(body)?;
    let asked = (policy.to_owned(), budget.to_owned());
    let found = state
        .engine
        .ask(move |engine| find(engine.policies(), &asked.0, &asked.1).cloned());
    let found = found.await.map_err(|_| Problem::stopping())?;
    let found = found.map_err(|detail| {
        let title = "No such budget";
        Problem::new(StatusCode::NOT_FOUND, "unknown_budget", title, detail)
    })?;
    let fleet = state.engine.fleet.load_full();
    let spent = admit(&found, &request, &fleet).map_err(unprocessable)?;
    let name: Arc<str> = format!("{policy}/{budget}").into();
    let event = Event::BudgetSet {
        budget: name.clone(),
        part: request.part.as_str().into(),
        spent,
        by: by.to_owned(),
    };
    let index = commit(state, vec![event]).await?;
    tracing::info!(budget = %name, part = request.part, spent = request.spent, by, "spend of a budget set");
    Ok(BudgetView {
        budget: name.to_string(),
        part: request.part,
        spent: request.spent,
        set_by: by.to_owned(),
        index,
    })
}

fn find<'a>(policies: &'a PolicySet, policy: &str, budget: &str) -> Result<&'a Budget, String> {
    let mut all = policies.policies().iter();
    let found = all.find(|known| known.name == policy).ok_or_else(|| {
        let names = policies.policies().iter().map(|known| known.name.as_str());
        no_such("policy", policy, names)
    })?;
    let mut budgets = found.budgets.iter();
    budgets.find(|known| known.name == budget).ok_or_else(|| {
        let names = found.budgets.iter().map(|known| known.name.as_str());
        no_such(&format!("budget of policy {policy}"), budget, names)
    })
}

fn admit(budget: &Budget, request: &BudgetRequest, fleet: &Fleet) -> Result<i64, Vec<Rejected>> {
    if budget.period.is_none() {
        let detail = format!(
            "budget `{}` is kept at every instant and sums nothing up: there is no spend to set",
            budget.name
        );
        return Err(vec![wrong("spent", "does_not_fit", detail)]);
    }
    let spent = budget
        .read_spent(&request.spent)
        .map_err(|detail| wrong("spent", "bad_amount", detail));
    match (check_part(budget.scope, &request.part, fleet), spent) {
        (Ok(()), Ok(spent)) => Ok(spent),
        (part, spent) => Err(part.err().into_iter().chain(spent.err()).collect()),
    }
}

fn check_part(scope: BudgetScope, part: &str, fleet: &Fleet) -> Result<(), Rejected> {
    let unknown = |what: &str, names: Vec<&str>| {
        if names.contains(&part) {
            return Ok(());
        }
        let detail = no_such(what, part, names.into_iter());
        let detail = format!("each {what} has a sum of its own: say which in `part`; {detail}");
        Err(wrong("part", "unknown_name", detail))
    };
    match scope {
        BudgetScope::Fleet if part.is_empty() => Ok(()),
        BudgetScope::Fleet => {
            let detail = "the budget is the whole fleet's: leave `part` out";
            Err(wrong("part", "does_not_fit", detail))
        }
        BudgetScope::Site => unknown(
            "site",
            fleet.sites().map(|site| site.name.as_ref()).collect(),
        ),
        BudgetScope::Federation => unknown(
            "federation",
            fleet
                .federations()
                .iter()
                .map(|known| known.name.as_ref())
                .collect(),
        ),
        BudgetScope::Pool => unknown(
            "pool",
            fleet
                .pools()
                .iter()
                .map(|pool| pool.name.as_ref())
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sunward_policies::SourceFile;

    use super::*;

    const POLICY: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: capped}
spec:
  pools: {energy: surplus}
  signals:
    carbon: {source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, on_missing: {hold: 10m, then: release}}
  activate: {when: carbon < 100}
  budgets:
  - {name: feeder, limit: 60 kW, scope: site}
  - {name: co2, limit: 500 kgCO2e, per: month, scope: site, signal: carbon, assume: 900}
  - {name: energy, limit: 2 MWh, per: day, scope: fleet}
";

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.into(),
            text: text.into(),
        }
    }

    fn judge(budget: &str, part: &str, spent: &str) -> Result<i64, String> {
        let policies = PolicySet::compile(&[file("capped.yaml", POLICY)]).unwrap();
        let fleet = include_str!("../../../signal-adapters/fixtures/fleet.yaml");
        let fleet = Fleet::parse(&file("fleet.yaml", fleet)).unwrap();
        let request = BudgetRequest {
            part: part.into(),
            spent: spent.into(),
        };
        let found = find(&policies, "capped", budget)?;
        admit(found, &request, &fleet).map_err(|wrongs| {
            let places: Vec<_> = wrongs
                .iter()
                .map(|one| format!("{} {}", one.pointer, one.detail))
                .collect();
            places.join("; ")
        })
    }

    #[test]
    fn a_spend_is_taken_for_a_part_that_there_is() {
        assert_eq!(judge("co2", "caiso", "12.5 kgCO2e"), Ok(12_500_000));
        assert_eq!(judge("energy", "", "0 kWh"), Ok(0));
    }

    #[test]
    fn what_does_not_fit_is_said_with_its_place() {
        for (budget, part, spent, says) in [
            ("co", "caiso", "1 kgCO2e", "did you mean `co2`?"),
            ("feeder", "caiso", "1 kW", "no spend to set"),
            ("co2", "", "1 kgCO2e", "/part"),
            ("co2", "caisa", "1 kgCO2e", "did you mean `caiso`?"),
            ("co2", "caiso", "1 kWh", "/spent"),
            ("energy", "caiso", "1 kWh", "leave `part` out"),
        ] {
            let refused = judge(budget, part, spent).unwrap_err();
            assert!(refused.contains(says), "{says:?} is not in: {refused}");
        }
        let policies = PolicySet::compile(&[file("capped.yaml", POLICY)]).unwrap();
        let refused = find(&policies, "caped", "co2").unwrap_err();
        assert!(refused.contains("did you mean `capped`?"), "{refused}");
    }
}
