//! What the operator's writing routes share: a body in, events out, and an answer only after the commit.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sunward_core::event::Event;
use sunward_core::fleet::Fleet;
use sunward_policies::diagnostic::nearest;
use sunward_signal_adapters::wire::Rejected;

use super::problem::Problem;
use super::{ApiState, RETRY_BUSY, RETRY_CLOSED};

/// Names that a message lists at most where none is near.
const LISTED_MAX: usize = 10;

/// A JSON body. What it may hold is said by the type: unknown fields are refused.
pub(super) fn read_json<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
) -> Result<T, Problem> {
    let body = body.map_err(|rejection| {
        Problem::new(
            rejection.status(),
            "body",
            "The body can't be read",
            format!("{rejection}: send one small JSON object"),
        )
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "syntax",
            "Not what is read here",
            format!("{error}: send one JSON object with these fields"),
        )
    })
}

/// Journals events together and returns their index: they are durable, and the engine has seen them.
pub(super) async fn commit(state: &ApiState, events: Vec<Event>) -> Result<u64, Problem> {
    if let (_, Err(why)) = state.engine.leadership() {
        let detail = format!("{why}: ask the daemon that leads");
        return Err(unavailable(
            "not_leading",
            "This daemon does not lead",
            detail,
        ));
    }
    let told = state.engine.tell_all_and_wait(events);
    match tokio::time::timeout(state.limits.commit_timeout, told).await {
        Ok(Ok(index)) => Ok(index),
        Ok(Err(_)) => Err(Problem::stopping()),
        Err(_) => {
            let detail = "the journal did not confirm it in time (see /readyz), and it may still take effect: \
                          ask what is in force before you ask for it again";
            let title = "It is not known whether this was kept";
            Err(unavailable("not_confirmed", title, detail).retry_after(RETRY_BUSY))
        }
    }
}

fn unavailable(code: &'static str, title: &'static str, detail: impl Into<Box<str>>) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, title, detail).retry_after(RETRY_CLOSED)
}

/// 422: fields that can't be taken, each with its place; a single one is said in the detail, too.
pub(super) fn unprocessable(errors: Vec<Rejected>) -> Problem {
    let detail = match errors.as_slice() {
        [only] => only.detail.clone(),
        many => many
            .iter()
            .map(|error| {
                format!(
                    "{}: {}",
                    error.pointer.trim_start_matches('/'),
                    error.detail
                )
            })
            .collect::<Vec<_>>()
            .join("; "),
    };
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "not_valid",
        "It can't be taken as it is",
        detail,
    )
    .with_errors(errors)
}

/// What is wrong with the field `name`.
pub(super) fn wrong(name: &str, code: &'static str, detail: impl Into<String>) -> Rejected {
    Rejected {
        item: 0,
        pointer: format!("/{name}"),
        code: code.into(),
        detail: detail.into(),
    }
}

/// "there is no pool `x`": with the name that was probably meant, or those that there are.
pub(super) fn no_such<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let shown: String = name.escape_debug().take(80).collect();
    let help = if let Some(near) = nearest(name, known.clone()) {
        format!("did you mean `{near}`?")
    } else {
        let listed: Vec<&str> = known.clone().take(LISTED_MAX).collect();
        let more = known.skip(LISTED_MAX).count();
        match (listed.is_empty(), more) {
            (true, _) => "there is none yet".to_owned(),
            (_, 0) => format!("there are {}", listed.join(", ")),
            _ => format!("there are {} and {more} more", listed.join(", ")),
        }
    };
    format!("there is no {what} `{shown}`: {help}")
}

/// 404 for a pool that the fleet does not have.
pub(super) fn no_such_pool(fleet: &Fleet, name: &str) -> Problem {
    let pools = fleet.pools().iter().map(|pool| pool.name.as_ref());
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_pool",
        "No such pool",
        no_such("pool", name, pools),
    )
}

/// 201 for what is new, 200 else; with the resource.
pub(super) fn created<T: Serialize>(new: bool, value: T) -> (StatusCode, axum::Json<T>) {
    let status = if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    (status, axum::Json(value))
}
