//! `GET /v1/pools/{pool}/explanation?at=`: why a pool stands where it stands, or stood at an instant.
//!
//! A lookup: each change of a verdict left a decision record, and the newest at or before the instant holds. Asked
//! about now, the inputs are shown as they are now; what the record says of them is what they were when it decided.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sunward_core::action::{Decision, Input, Loser};
use sunward_core::engine::Engine;
use sunward_core::event::PackedFile;
use sunward_core::fleet::Pool;
use sunward_core::grid_event::GridEvent;
use sunward_core::policy_history::FormerSet;
use sunward_core::signal::Scope;
use sunward_core::time::Timestamp;
use sunward_core::units::Kind;
use sunward_policies::policy::PolicySet;

use super::ApiState;
use super::auth::Operator;
use super::operate::no_such_pool;
use super::overrides::covers;
use super::problem::Problem;
use crate::writer::{DecisionError, Writer};

/// Why a pool stands where it stands. Field names are a promise; new ones may be added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The pool.
    pub pool: String,
    /// The instant that was asked about, RFC 3339; now where none was.
    pub at: String,
    /// Workers wanted.
    pub target: u32,
    /// `policy/rule` that decided, or the daemon's or an operator's own reason.
    pub rule: String,
    /// What the winner's policy read.
    pub inputs: Vec<InputView>,
    /// Who else had a verdict, and why it did not count.
    pub losers: Vec<LoserView>,
    /// When time alone could change it, RFC 3339; `null`: only a reading, an event or a file can.
    pub next_possible_change: Option<String>,
    /// Since when it stands so, RFC 3339.
    pub since: String,
    /// Until when it stood so; `null`: it still does.
    pub until: Option<String>,
    /// The journal index that brought it.
    pub index: u64,
    /// Workers wanted before.
    pub before: u32,
    /// The reason in words.
    pub reason: String,
    /// Why the pool is not above its minimum, in words; `null` where it is.
    pub why_not: Option<String>,
    /// Where the rule stands.
    pub place: Option<Place>,
    /// Workers that can train; only for now.
    pub ready: Option<u32>,
    /// Most workers; `null` where the pool has left the fleet.
    pub max_workers: Option<u32>,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputView {
    /// The name in the policy file.
    pub name: String,
    /// The stream.
    pub stream: String,
    /// The value in the canonical unit, where one holds.
    pub value: Option<f64>,
    /// The canonical unit.
    pub unit: String,
    /// Since it was received, in seconds.
    pub age_seconds: Option<f64>,
    /// Who sent it.
    pub source: String,
    /// `fresh`, `stale`, `estimated` or `missing`; for a calendar, its window.
    pub state: String,
}

/// A verdict that did not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoserView {
    /// `policy/rule`.
    pub rule: String,
    /// Its own reason, and why it lost.
    pub reason: String,
    /// Where the rule stands.
    pub place: Option<Place>,
}

/// A place in a policy file; lines and columns from 1, the end one past the last character.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file's path, as the daemon knows it.
    pub file: String,
    /// First line.
    pub line: u32,
    /// First column, in characters.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
    /// `then`: in the set that decided; `now`: that set is gone, and this is the rule of the same name in force.
    pub policies: String,
}

/// Why there is no explanation.
#[derive(Debug)]
enum Nothing {
    /// Neither in the fleet nor in the records.
    UnknownPool,
    /// Nothing was recorded until then; the first that was.
    NotYet { first: Option<Timestamp> },
    /// The journal can't say.
    Failed(DecisionError),
}

/// What the engine loop looks up; the places follow outside.
struct Found {
    decision: Decision,
    until: Option<Timestamp>,
    places: Places,
    /// Inputs and the next change as they are now, where now was asked about.
    now: Option<(Vec<Input>, Option<Timestamp>, u32)>,
    /// Fewest and most workers, where the pool is still in the fleet.
    bounds: Option<(u32, u32)>,
}

/// Where the rules stand.
enum Places {
    /// In the set in force, by `policy/rule`.
    InForce(BTreeMap<String, Place>),
    /// In the set before, which decided; it is compiled outside the engine loop.
    Former(FormerSet),
}

#[derive(Debug, Deserialize)]
struct Asked {
    at: Option<String>,
}

/// The route.
pub fn routes() -> Router<ApiState> {
    Router::new().route("/v1/pools/{pool}/explanation", get(explain))
}

async fn explain(
    _: Operator,
    State(state): State<ApiState>,
    Path(pool): Path<String>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    match answer(&state, pool, asked).await {
        Ok(explanation) => Json(explanation).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn answer(
    state: &ApiState,
    pool: String,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Explanation, Problem> {
    let now = state.clock.now();
    let asked = asked.map_err(|rejection| bad_instant(&rejection.to_string()))?;
    let at = asked.0.at.as_deref().map(|text| instant(text, now));
    let at = at.transpose()?;
    let name = pool.clone();
    let looked = state
        .engine
        .look_up(move |writer| look(writer, &name, at, now));
    let found = looked.await.map_err(|_| Problem::stopping())?;
    found
        .map(|found| found.explain(at.unwrap_or(now)))
        .map_err(|nothing| match nothing {
            Nothing::UnknownPool => no_such_pool(&state.engine.fleet.load(), &pool),
            Nothing::NotYet { first } => not_yet(&pool, at.unwrap_or(now), first),
            Nothing::Failed(error) => {
                tracing::error!(%error, pool, "a decision can't be looked up");
                let title = "The decision can't be read";
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Problem::new(status, "decision_unreadable", title, error.to_string())
            }
        })
}

fn bad_instant(problem: &str) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "bad_instant",
        "Not an instant",
        format!("{problem}: write `?at=` in RFC 3339 with an offset, a `+` in it as `%2B`"),
    )
}

/// Reads an instant that is not ahead. A `+` that was not escaped has become a space on the way.
fn instant(text: &str, now: Timestamp) -> Result<Timestamp, Problem> {
    let at = Timestamp::parse_rfc3339(&text.replace(' ', "+"))
        .map_err(|error| bad_instant(&error.to_string()))?;
    if at > now {
        return Err(bad_instant(&format!(
            "{at} is ahead of engine time ({now}), and what was not decided yet can't be explained"
        )));
    }
    Ok(at)
}

fn not_yet(pool: &str, at: Timestamp, first: Option<Timestamp>) -> Problem {
    let detail = match first {
        Some(first) => format!(
            "no decision recorded yet for pool {pool} at {at}: the first is of {first}; what is older than the \
             journal's window is gone"
        ),
        None => format!(
            "no decision recorded yet for pool {pool}: it is judged for the first time once it was claimed and seen \
             (see its state in `sunward status`)"
        ),
    };
    Problem::new(
        StatusCode::NOT_FOUND,
        "no_decision",
        "Nothing decided yet",
        detail,
    )
}

fn look(
    writer: &Writer,
    pool: &str,
    at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Found, Nothing> {
    let engine = writer.engine();
    let until = at.unwrap_or(now);
    let decision = writer.decision_at(pool, until).map_err(Nothing::Failed)?;
    let Some(decision) = decision else {
        let first = writer
            .decision_after(pool, Timestamp::MIN)
            .map_err(Nothing::Failed)?;
        return Err(match first {
            None if engine.fleet().pool(pool).is_none() => Nothing::UnknownPool,
            first => Nothing::NotYet {
                first: first.map(|first| first.at),
            },
        });
    };
    let next = match at {
        Some(at) => writer.decision_after(pool, at).map_err(Nothing::Failed)?,
        None => None,
    };
    Ok(Found {
        until: next.map(|next| next.at),
        places: places(engine, &decision),
        now: at
            .is_none()
            .then(|| standing(engine, &decision, now))
            .flatten(),
        bounds: engine
            .fleet()
            .pool(pool)
            .map(|pool| (pool.min_workers, pool.max_workers)),
        decision,
    })
}

/// What the winner's policy reads now, the pending timer, and the workers that can train; `None` where the pool has
/// left the fleet.
fn standing(
    engine: &Engine,
    decision: &Decision,
    now: Timestamp,
) -> Option<(Vec<Input>, Option<Timestamp>, u32)> {
    let known = engine.state().pools.get(&decision.pool)?;
    let pool = engine.fleet().pool(&decision.pool)?;
    // The policy that won, also where an operator or the grid comes before it.
    let policy = known.ask.policy(engine.policies());
    let inputs = policy.map(|policy| engine.inputs(&pool.name, &policy.name, now));
    let ready = known.ledger.confirmed.map_or(0, |known| known.ready);
    let next = next_order(engine, pool, now).into_iter();
    let next = next.chain(known.wake_at).min();
    Some((inputs.unwrap_or_default(), next, ready))
}

/// When an override or a grid event that is about the pool next begins or ends.
fn next_order(engine: &Engine, pool: &Pool, now: Timestamp) -> Option<Timestamp> {
    let state = engine.state();
    let overrides = state
        .overrides
        .values()
        .filter(|known| covers(&known.scope, pool))
        .map(|known| known.expires_at);
    let site = engine.fleet().site(&pool.site);
    let here = |event: &&GridEvent| match &event.scope {
        Scope::Site(name) => *name == pool.site,
        Scope::Zone { scheme, code } => {
            site.is_some_and(|site| site.zones.get(scheme) == Some(code))
        }
    };
    let events = state
        .grid_events
        .values()
        .map(|known| &known.event)
        .filter(here)
        .flat_map(|event| std::iter::once(event.starts_at).chain(event.ends_at));
    overrides.chain(events).filter(|at| *at > now).min()
}

fn places(engine: &Engine, decision: &Decision) -> Places {
    let history = &engine.state().policy_history;
    let index = decision.index;
    let former = history
        .before
        .as_ref()
        .filter(|former| index < history.since_index && index >= former.since_index);
    if let Some(former) = former {
        return Places::Former(former.clone());
    }
    let then = index >= history.since_index;
    Places::InForce(places_in(engine.policies(), decision, then))
}

/// The places of the rules that a decision names.
fn places_in(policies: &PolicySet, decision: &Decision, then: bool) -> BTreeMap<String, Place> {
    let losers = decision.losers.iter().map(|loser| loser.rule.as_str());
    let rules = std::iter::once(decision.rule.as_ref()).chain(losers);
    rules
        .filter_map(|rule| Some((rule.to_owned(), place(policies, rule, then)?)))
        .collect()
}

impl Found {
    fn explain(self, at: Timestamp) -> Explanation {
        let decision = self.decision;
        let places = match self.places {
            Places::InForce(places) => places,
            Places::Former(former) => {
                let files: Vec<_> = former.files.iter().filter_map(PackedFile::unpack).collect();
                let policies = PolicySet::compile(&files).unwrap_or_default();
                places_in(&policies, &decision, true)
            }
        };
        let place = |rule: &str| places.get(rule).cloned();
        let (inputs, next, ready) = match self.now {
            Some((inputs, next, ready)) => (inputs, next, Some(ready)),
            None => (decision.inputs, decision.next_possible_change, None),
        };
        let mut explanation = Explanation {
            pool: decision.pool.to_string(),
            at: at.to_string(),
            target: decision.target,
            place: place(&decision.rule),
            rule: decision.rule.to_string(),
            inputs: inputs.into_iter().map(input_view).collect(),
            losers: decision
                .losers
                .into_iter()
                .map(|Loser { rule, reason }| LoserView {
                    place: place(&rule),
                    rule,
                    reason,
                })
                .collect(),
            next_possible_change: next.map(|at| at.to_string()),
            since: decision.at.to_string(),
            until: self.until.map(|at| at.to_string()),
            index: decision.index,
            before: decision.before,
            reason: decision.reason,
            why_not: None,
            ready,
            max_workers: self.bounds.map(|(_, most)| most),
        };
        let fewest = self.bounds.map_or(0, |(fewest, _)| fewest);
        if explanation.target <= fewest {
            explanation.why_not = Some(why_not(&explanation));
        }
        explanation
    }
}

/// Why a pool is at its minimum, for someone who expected it to run.
fn why_not(explanation: &Explanation) -> String {
    let mut words = match explanation.rule.as_str() {
        "none" => "no policy selects its labels, so nothing asks it to run".to_owned(),
        rule => format!("{rule} decides: {}", explanation.reason),
    };
    for input in &explanation.inputs {
        let without = matches!(input.state.as_str(), "missing" | "stale");
        if without {
            let since = input.age_seconds.map_or_else(
                || "nothing was ever received".to_owned(),
                |age| format!("the last was received {age:.0} s ago"),
            );
            // Writing to a String can't fail.
            let _ = write!(
                words,
                "; {} is {} ({}, {since})",
                input.name, input.state, input.stream
            );
        }
    }
    for loser in &explanation.losers {
        let _ = write!(words, "; {} does not count: {}", loser.rule, loser.reason);
    }
    words
}

fn place(policies: &PolicySet, rule: &str, then: bool) -> Option<Place> {
    let (policy, rule) = rule.split_once('/')?;
    let policy = policies
        .policies()
        .iter()
        .find(|known| known.name == policy)?;
    let rule = policy.rules.iter().find(|known| known.name == rule)?;
    Some(Place {
        file: policy.file.clone(),
        line: rule.range.line,
        column: rule.range.column,
        end_line: rule.range.end_line,
        end_column: rule.range.end_column,
        policies: if then { "then" } else { "now" }.to_owned(),
    })
}

fn input_view(input: Input) -> InputView {
    InputView {
        source: source_of(&input.stream).to_owned(),
        name: input.name,
        stream: input.stream,
        value: input.value,
        unit: input.unit,
        age_seconds: input.age_ms.map(|ms| ms as f64 / 1_000.0),
        state: input.state,
    }
}

/// The source of a stream, which is written `source/kind[.basis]/scope`; empty for what is no stream.
fn source_of(stream: &str) -> &str {
    let kinds = Kind::ALL.map(|kind| format!("/{}", kind.as_str()));
    let ends = kinds.iter().filter_map(|kind| stream.find(kind.as_str()));
    stream.get(..ends.min().unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
