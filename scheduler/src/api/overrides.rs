//! `GET` and `POST /v1/overrides`, `DELETE /v1/overrides/{id}`: what operators want regardless of the policies.
//!
//! An override has an owner, a reason and an expiry, always. It is answered once it is durable, and the answer is
//! what the engine has then. Setting the same id again replaces the override; the same content again changes
//! nothing, so that a request whose answer was lost may be sent again.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use ring::rand::SecureRandom as _;
use serde::{Deserialize, Serialize};
use sunward_core::event::Event;
use sunward_core::fleet::{Fleet, Pool, WORKERS_MAX};
use sunward_core::overrides::{
    OVERRIDE_LASTS_MAX, OVERRIDE_TEXT_MAX, OVERRIDES_MAX, Override, OverrideEffect, OverrideScope,
};
use sunward_core::time::{Span, Timestamp};
use sunward_signal_adapters::wire::Rejected;

use super::ApiState;
use super::auth::Operator;
use super::operate::{commit, created, no_such, read_json, unprocessable, wrong};
use super::problem::Problem;

/// Longest id of an override, in bytes.
pub const OVERRIDE_ID_MAX: usize = 63;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideRequest {
    /// Names it; absent: the daemon makes one up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `fleet`, `site/NAME`, `federation/NAME` or `pool/NAME`.
    #[serde(default)]
    pub scope: String,
    /// `on`, `off` or `freeze`.
    #[serde(default)]
    pub effect: String,
    /// With `on`: so many workers; absent: as many as each pool has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Who answers for it; absent: the name of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// How long from now, for example `2h`; or else `expires_at`.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// Until when, RFC 3339 with an offset; or else `for`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// An override as it is shown. Field names are a promise; new ones may be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideView {
    /// Names it.
    pub id: String,
    /// `fleet`, `site/NAME`, `federation/NAME` or `pool/NAME`.
    pub scope: String,
    /// `on`, `off` or `freeze`.
    pub effect: String,
    /// With `on`: so many workers; `null`: as many as each pool has.
    pub workers: Option<u32>,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// Whose token set it.
    pub set_by: String,
    /// When, RFC 3339.
    pub set_at: String,
    /// Until when, RFC 3339.
    pub expires_at: String,
    /// From now, in seconds.
    pub expires_in_seconds: i64,
    /// Pools that it is about now.
    pub pools: usize,
}

/// The operator's routes for overrides.
pub fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/overrides", get(list).post(set))
        .route("/v1/overrides/{id}", delete(clear))
}

async fn list(_: Operator, State(state): State<ApiState>) -> Response {
    let now = state.clock.now();
    let looked = state.engine.ask(move |engine| {
        let overrides = engine.state().overrides.values();
        views(overrides, engine.fleet(), now)
    });
    match looked.await {
        Ok(views) => Json(views).into_response(),
        Err(_) => Problem::stopping().into_response(),
    }
}

async fn set(
    Operator(operator): Operator,
    State(state): State<ApiState>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let answered = async {
        let request = read_json(body)?;
        set_override(&state, request, &operator.name).await
    };
    match answered.await {
        Ok((new, view)) => created(new, view).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn set_override(
    state: &ApiState,
    mut request: OverrideRequest,
    by: &str,
) -> Result<(bool, OverrideView), Problem> {
    let id: Arc<str> = match request.id.take() {
        Some(id) => id.into(),
        None => made_up_id()?.into(),
    };
    let now = state.clock.now();
    let (known, in_force) = known(state, &id, now).await?;
    let fleet = state.engine.fleet.load_full();
    let wanted = admit(&request, &id, &fleet, now, by).map_err(unprocessable)?;
    if let Some(known) = known.as_ref().filter(|known| says_the_same(known, &wanted)) {
        return Ok((false, view(known, &fleet, now)));
    }
    if known.is_none() && in_force >= OVERRIDES_MAX {
        return Err(too_many());
    }
    commit(state, vec![Event::OverrideSet(wanted.clone())]).await?;
    // What counts is what the engine took, not what was asked for.
    let (taken, _) = self::known(state, &id, now).await?;
    let taken = taken.ok_or_else(too_many)?;
    tracing::info!(
        %id, by, owner = %taken.owner, scope = %taken.scope, effect = effect_word(taken.effect).0,
        expires_at = %taken.expires_at, reason = %taken.reason, "override set"
    );
    Ok((known.is_none(), view(&taken, &fleet, now)))
}

/// The override of that id that is in force, and how many are.
async fn known(
    state: &ApiState,
    id: &Arc<str>,
    now: Timestamp,
) -> Result<(Option<Override>, usize), Problem> {
    let id = id.clone();
    let looked = state.engine.ask(move |engine| {
        let overrides = &engine.state().overrides;
        let holds = |known: &&Override| now < known.expires_at;
        let known = overrides.get(&id).filter(holds).cloned();
        (known, overrides.values().filter(holds).count())
    });
    looked.await.map_err(|_| Problem::stopping())
}

async fn clear(
    Operator(operator): Operator,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Response {
    match clear_override(&state, &id, &operator.name).await {
        Ok(view) => Json(view).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn clear_override(state: &ApiState, id: &str, by: &str) -> Result<OverrideView, Problem> {
    let now = state.clock.now();
    let asked = id.to_owned();
    let looked = state.engine.ask(move |engine| {
        let overrides = &engine.state().overrides;
        overrides.get(asked.as_str()).cloned().ok_or_else(|| {
            let ids = overrides.keys().map(AsRef::as_ref);
            no_such("override", &asked, ids)
        })
    });
    let known = looked.await.map_err(|_| Problem::stopping())?;
    let known = known.map_err(|detail| {
        let title = "No such override";
        Problem::new(StatusCode::NOT_FOUND, "unknown_override", title, detail)
    })?;
    let event = Event::OverrideCleared {
        id: known.id.clone(),
        by: by.to_owned(),
    };
    commit(state, vec![event]).await?;
    tracing::info!(id, by, owner = %known.owner, scope = %known.scope, "override cleared");
    Ok(view(&known, &state.engine.fleet.load(), now))
}

fn too_many() -> Problem {
    let detail = format!(
        "{OVERRIDES_MAX} overrides are in force, which is the most: clear some (`sunward override list`), or use \
         one for a site or the fleet"
    );
    Problem::new(
        StatusCode::CONFLICT,
        "too_many_overrides",
        "Too many overrides",
        detail,
    )
}

/// 40 random bits: enough to never meet one of a thousand others.
fn made_up_id() -> Result<String, Problem> {
    let mut bits = [0_u8; 5];
    ring::rand::SystemRandom::new()
        .fill(&mut bits)
        .map_err(|_| Problem::internal())?;
    let digits = bits.iter().map(|byte| format!("{byte:02x}"));
    Ok(format!("o-{}", digits.collect::<String>()))
}

/// Judges what is asked for: every field that can't be taken, at once.
fn admit(
    request: &OverrideRequest,
    id: &Arc<str>,
    fleet: &Fleet,
    now: Timestamp,
    by: &str,
) -> Result<Override, Vec<Rejected>> {
    let mut wrongs = Vec::new();
    let mut keep = |found: Result<(), Rejected>| wrongs.extend(found.err());
    keep(check_id(id));
    let scope = scope(&request.scope, fleet);
    let effect = effect(request, scope.as_ref().ok(), fleet);
    let expires_at = expiry(request, now);
    let owner = request.owner.as_deref().unwrap_or(by).trim();
    keep(check_text("owner", owner, "say who answers for it"));
    let reason = request.reason.trim();
    keep(check_text(
        "reason",
        reason,
        "say why, for whoever reads this at night",
    ));
    match (scope, effect, expires_at) {
        (Ok(scope), Ok(effect), Ok(expires_at)) if wrongs.is_empty() => Ok(Override {
            id: id.clone(),
            scope,
            effect,
            owner: owner.to_owned(),
            reason: reason.to_owned(),
            set_by: by.to_owned(),
            set_at: now,
            expires_at,
        }),
        (scope, effect, expires_at) => {
            wrongs.extend(scope.err());
            wrongs.extend(effect.err());
            wrongs.extend(expires_at.err());
            Err(wrongs)
        }
    }
}

fn check_id(id: &str) -> Result<(), Rejected> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = (1..=OVERRIDE_ID_MAX).contains(&id.len()) && id.bytes().all(plain);
    // A path of `.` or `..` never reaches the daemon.
    if fits && !id.starts_with('.') {
        return Ok(());
    }
    let detail = format!(
        "an id has 1 to {OVERRIDE_ID_MAX} of the characters a-z, A-Z, 0-9, `-`, `_` and `.`, and does not begin \
         with `.`: choose another, or leave it out"
    );
    Err(wrong("id", "bad_id", detail))
}

fn check_text(name: &'static str, text: &str, help: &str) -> Result<(), Rejected> {
    if text.is_empty() {
        let detail = format!("`{name}` is empty: {help}");
        return Err(wrong(name, "missing_field", detail));
    }
    if text.len() > OVERRIDE_TEXT_MAX || text.chars().any(char::is_control) {
        let detail = format!(
            "`{name}` has {} bytes or a control character; one line of at most {OVERRIDE_TEXT_MAX} bytes is allowed",
            text.len()
        );
        return Err(wrong(name, "bad_text", detail));
    }
    Ok(())
}

/// Reads `fleet`, `site/NAME`, `federation/NAME`, `pool/NAME`; the name must be the fleet's.
fn scope(text: &str, fleet: &Fleet) -> Result<OverrideScope, Rejected> {
    let unknown = |what: &str, name: &str, known: Vec<&str>| {
        let detail = no_such(what, name, known.into_iter());
        wrong("scope", "unknown_name", detail)
    };
    match text.split_once('/') {
        None if text == "fleet" => Ok(OverrideScope::Fleet),
        Some(("pool", name)) => fleet
            .pool(name)
            .map(|pool| OverrideScope::Pool(pool.name.clone()))
            .ok_or_else(|| {
                let pools = fleet.pools().iter().map(|pool| pool.name.as_ref());
                unknown("pool", name, pools.collect())
            }),
        Some(("site", name)) => fleet
            .site(name)
            .map(|site| OverrideScope::Site(site.name.clone()))
            .ok_or_else(|| {
                let sites = fleet.sites().map(|site| site.name.as_ref());
                unknown("site", name, sites.collect())
            }),
        Some(("federation", name)) => {
            let all = fleet.federations();
            let named = all.iter().find(|known| *known.name == *name);
            named
                .map(|known| OverrideScope::Federation(known.name.clone()))
                .ok_or_else(|| {
                    let known = all.iter().map(|known| known.name.as_ref());
                    unknown("federation", name, known.collect())
                })
        }
        _ => {
            let detail =
                "write the scope as `fleet`, `site/NAME`, `federation/NAME` or `pool/NAME`";
            Err(wrong("scope", "bad_scope", detail))
        }
    }
}

fn effect(
    request: &OverrideRequest,
    scope: Option<&OverrideScope>,
    fleet: &Fleet,
) -> Result<OverrideEffect, Rejected> {
    let workers = request.workers;
    let most = match scope {
        Some(OverrideScope::Pool(name)) => fleet
            .pool(name)
            .map_or(WORKERS_MAX, |pool| pool.max_workers),
        _ => WORKERS_MAX,
    };
    match (request.effect.as_str(), workers) {
        ("on", Some(workers)) if !(1..=most).contains(&workers) => {
            let detail = format!(
                "{workers} workers: this scope takes 1 to {most}; for none, use the effect `off`"
            );
            Err(wrong("workers", "out_of_range", detail))
        }
        ("on", workers) => Ok(OverrideEffect::On { workers }),
        ("off" | "freeze", Some(_)) => {
            let detail = format!(
                "`workers` goes with the effect `on` alone, not with `{}`: leave it out",
                request.effect
            );
            Err(wrong("workers", "does_not_fit", detail))
        }
        ("off", None) => Ok(OverrideEffect::Off),
        ("freeze", None) => Ok(OverrideEffect::Freeze),
        _ => Err(wrong(
            "effect",
            "unknown_effect",
            "the effects are `on` (run), `off` (go to the minimum) and `freeze` (change nothing)",
        )),
    }
}

fn expiry(request: &OverrideRequest, now: Timestamp) -> Result<Timestamp, Rejected> {
    let most = format!("an override lasts at most {OVERRIDE_LASTS_MAX}");
    let (name, expires_at) = match (&request.lasts, &request.expires_at) {
        (Some(lasts), None) => {
            let lasts = Span::parse(lasts)
                .map_err(|error| wrong("for", "bad_duration", error.to_string()))?;
            if lasts.is_zero() {
                let detail = "it would end at once: say for how long, for example `2h`";
                return Err(wrong("for", "bad_duration", detail));
            }
            ("for", now + lasts)
        }
        (None, Some(until)) => {
            let until = Timestamp::parse_rfc3339(until)
                .map_err(|error| wrong("expires_at", "bad_stamp", error.to_string()))?;
            ("expires_at", until)
        }
        (None, None) => {
            let detail = format!(
                "every override ends: say `for` (for example `2h`) or `expires_at` (RFC 3339); {most}"
            );
            return Err(wrong("for", "missing_field", detail));
        }
        (Some(_), Some(_)) => {
            let detail = "`for` and `expires_at` both say when it ends: leave one out";
            return Err(wrong("expires_at", "two_expiries", detail));
        }
    };
    if expires_at <= now {
        let detail = format!("{expires_at} is over: engine time is {now}");
        Err(wrong(name, "expired", detail))
    } else if expires_at - now > OVERRIDE_LASTS_MAX {
        let detail = format!("{expires_at} is {} ahead; {most}", expires_at - now);
        Err(wrong(name, "too_long", detail))
    } else {
        Ok(expires_at)
    }
}

/// Whether a request was carried out already: everything is as it asks, and it ends at the same instant or, asked
/// for by length, lasts as long.
fn says_the_same(known: &Override, wanted: &Override) -> bool {
    let lasts = |one: &Override| one.expires_at - one.set_at;
    let ends = known.expires_at == wanted.expires_at || lasts(known) == lasts(wanted);
    let content = |one: &Override| {
        (
            one.scope.clone(),
            one.effect,
            one.owner.clone(),
            one.reason.clone(),
        )
    };
    ends && content(known) == content(wanted)
}

/// The effect in a word, and its workers.
pub(super) fn effect_word(effect: OverrideEffect) -> (&'static str, Option<u32>) {
    match effect {
        OverrideEffect::On { workers } => ("on", workers),
        OverrideEffect::Off => ("off", None),
        OverrideEffect::Freeze => ("freeze", None),
    }
}

/// Those that are in force, by id.
pub(super) fn views<'a>(
    overrides: impl Iterator<Item = &'a Override>,
    fleet: &Fleet,
    now: Timestamp,
) -> Vec<OverrideView> {
    overrides
        .filter(|known| now < known.expires_at)
        .map(|known| view(known, fleet, now))
        .collect()
}

fn view(known: &Override, fleet: &Fleet, now: Timestamp) -> OverrideView {
    let (effect, workers) = effect_word(known.effect);
    OverrideView {
        id: known.id.to_string(),
        scope: known.scope.to_string(),
        effect: effect.to_owned(),
        workers,
        owner: known.owner.clone(),
        reason: known.reason.clone(),
        set_by: known.set_by.clone(),
        set_at: known.set_at.to_string(),
        expires_at: known.expires_at.to_string(),
        expires_in_seconds: (known.expires_at - now).as_millis() / 1_000,
        pools: covered(&known.scope, fleet).count(),
    }
}

/// The names of the pools that a scope is about.
pub(super) fn covered<'a>(
    scope: &'a OverrideScope,
    fleet: &'a Fleet,
) -> impl Iterator<Item = &'a Arc<str>> {
    let pools = fleet.pools().iter();
    pools
        .filter(|pool| covers(scope, pool))
        .map(|pool| &pool.name)
}

/// Whether a scope is about a pool.
pub(super) fn covers(scope: &OverrideScope, pool: &Pool) -> bool {
    match scope {
        OverrideScope::Fleet => true,
        OverrideScope::Site(site) => pool.site == *site,
        OverrideScope::Federation(name) => pool.federation.as_ref() == Some(name),
        OverrideScope::Pool(name) => pool.name == *name,
    }
}

#[cfg(test)]
#[path = "overrides_tests.rs"]
mod tests;
