//! `POST /v1/signals`: readings and grid events in, one answer per item out.
//!
//! The order of checks is the order of what they cost: token and quota, headers, size, syntax,
//! then each item by itself: words, grant, fleet, times. What is good goes to the engine loop in one request, and
//! 202 is said only after its commit. Nothing that was answered 202 is lost; nothing that was
//! answered otherwise is known to be kept, and may be sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use sunward_core::event::Event;
use sunward_core::grid_event::GridEvent;
use sunward_signal_adapters::intake::{DedupeKey, ItemResult, SubmitError};
use sunward_signal_adapters::wire::{
    self, Answer, Code, Context, Item, Malformed, Rejected, Rejection,
};

use super::auth::Authenticated;
use super::problem::Problem;
use super::{ApiState, RETRY_BUSY, RETRY_CLOSED};
use crate::metric_definitions::{SIGNALS_ACCEPTED, SIGNALS_REFUSED};
use crate::tokens::Partner;

/// Bytes of a body that is too long which are still read, so that the sender hears the answer
/// instead of a broken connection.
const DRAIN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The readings of a request that were admitted, in order, as they go to the engine loop.
#[derive(Default)]
struct Admitted {
    /// Where each stands in the request.
    items: Vec<u64>,
    events: Vec<Event>,
    keys: Vec<DedupeKey>,
    /// Runs of readings of one source.
    sources: Vec<(Arc<str>, usize)>,
}

impl Admitted {
    fn add(&mut self, item: u64, (event, key): (Event, DedupeKey)) {
        match self.sources.last_mut() {
            Some((source, count)) if **source == *key.source => *count += 1,
            _ => self.sources.push((key.source.clone(), 1)),
        }
        self.items.push(item);
        self.events.push(event);
        self.keys.push(key);
    }
}

/// The handler.
pub(super) async fn signals(
    State(state): State<ApiState>,
    Authenticated(partner): Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match take_in(&state, &partner, &headers, body).await {
        Ok(answer) => (StatusCode::ACCEPTED, Json(answer)).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn take_in(
    state: &ApiState,
    partner: &Partner,
    headers: &HeaderMap,
    body: Body,
) -> Result<Answer, Problem> {
    check_headers(headers)?;
    let body = tokio::time::timeout(
        state.limits.body_timeout,
        read_body(headers, body, state.limits.body_bytes_max),
    )
    .await
    .unwrap_or_else(|_| Err(body_too_slow(state)))?;
    let arrived = Instant::now();
    let (admitted, mut rejected) = judge(state, partner, &body)?;
    let mut answer = Answer::default();
    if !admitted.items.is_empty() {
        let Admitted {
            items,
            events,
            keys,
            sources,
        } = admitted;
        let mut settled = items
            .iter()
            .zip(commit(state, events, keys, arrived).await?);
        let single = wire_is_single(&body);
        for (source, count) in sources {
            let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
            for (item, result) in settled.by_ref().take(count) {
                match settle(result, &mut answer) {
                    Ok(word) => *counts.entry(word).or_default() += 1,
                    Err(code) => rejected.push(refusal_of(code, *item, single)),
                }
            }
            let source = state.sources.label(&source);
            for (result, count) in counts {
                metrics::counter!(SIGNALS_ACCEPTED, "source" => source.clone(), "result" => result)
                    .increment(count);
            }
        }
    }
    rejected.sort_by_key(|rejected| rejected.item);
    count_rejected(&rejected);
    answer.rejected = rejected;
    whole(answer)
}

/// Adds one result to the answer; an error is the code of a rejection.
fn settle(result: ItemResult, answer: &mut Answer) -> Result<&'static str, Code> {
    let (count, word) = match result {
        ItemResult::Accepted => (&mut answer.accepted, "accepted"),
        ItemResult::Duplicate => (&mut answer.duplicate, "duplicate"),
        ItemResult::Superseded => (&mut answer.superseded, "superseded"),
        ItemResult::Conflict => return Err(Code::Conflict),
        ItemResult::BoardFull => return Err(Code::BoardFull),
    };
    *count += 1;
    Ok(word)
}

fn refusal_of(code: Code, item: u64, single: bool) -> Rejected {
    let (field, detail) = match code {
        Code::Conflict => (
            "/id",
            "this id (or, without one, the same stream, interval, issue time and sequence) was accepted before with another content: give a revised reading an id of its own, a later `issued_at` or a higher `sequence`, and a revised grid event a higher `revision`",
        ),
        _ => (
            "",
            "there is no room for another stream: send fewer different sources, kinds and places, or ask the operator",
        ),
    };
    let at = if single {
        String::new()
    } else {
        format!("/{item}")
    };
    Rejected {
        item,
        pointer: at + field,
        code: code.as_str().into(),
        detail: detail.into(),
    }
}

/// 202 when something was taken in or nothing was sent; else the problem that the items share.
fn whole(answer: Answer) -> Result<Answer, Problem> {
    if answer.rejected.is_empty() || answer.accepted + answer.duplicate + answer.superseded > 0 {
        return Ok(answer);
    }
    let all = |code: Code| {
        answer
            .rejected
            .iter()
            .all(|rejected| rejected.code == code.as_str())
    };
    let (status, code, title, detail) = if all(Code::NotGranted) {
        (
            StatusCode::FORBIDDEN,
            "not_granted",
            "Not granted",
            "the token has no grant for any of these readings: see `errors`, and ask the operator for a grant",
        )
    } else if all(Code::Conflict) {
        (
            StatusCode::CONFLICT,
            "conflict",
            "Same id, another content",
            "these readings were accepted before with another content: see `errors`",
        )
    } else {
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            "all_items_refused",
            "No reading could be taken in",
            "every reading was refused: see `errors` for what to mend in each",
        )
    };
    Err(Problem::new(status, code, title, detail).with_errors(answer.rejected))
}

fn count_rejected(rejected: &[Rejected]) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for one in rejected {
        *counts.entry(&one.code).or_default() += 1;
    }
    for (code, count) in counts {
        metrics::counter!(SIGNALS_REFUSED, "reason" => code.to_owned()).increment(count);
    }
}

fn check_headers(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |code, detail: String| {
        Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code,
            "Not a form that is read here",
            detail,
        ))
    };
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| value.split(';').next().unwrap_or_default().trim());
    if !media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
        return refuse(
            "content_type",
            format!(
                "the content type is {}: send `Content-Type: application/json`",
                media.map_or("absent".to_owned(), |media| format!("`{media}`"))
            ),
        );
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => refuse(
            "content_encoding",
            "the body is compressed: send it as it is".into(),
        ),
        _ => Ok(()),
    }
}

/// The whole body, or 413 beyond `bytes_max`.
async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    let too_long = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "Too large",
            format!(
                "the body has more than {bytes_max} bytes: send the readings in several requests"
            ),
        )
    };
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if announced.is_some_and(|length| length > DRAIN_BYTES_MAX) {
        return Err(too_long());
    }
    let mut whole = BytesMut::with_capacity(announced.unwrap_or(0).min(bytes_max));
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "body_incomplete",
                "The body broke off",
                "the connection ended before the body did: send it again",
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > DRAIN_BYTES_MAX {
            return Err(too_long());
        }
        if length <= bytes_max {
            whole.extend_from_slice(&data);
        }
    }
    if length > bytes_max {
        Err(too_long())
    } else {
        Ok(whole.freeze())
    }
}

fn body_too_slow(state: &ApiState) -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "body_too_slow",
        "The body came too slowly",
        format!(
            "the body was not whole after {:?}: send it again, in smaller requests",
            state.limits.body_timeout
        ),
    )
    .retry_after(RETRY_BUSY)
}

fn wire_is_single(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'[')
}

/// Every item of the body, judged by itself.
fn judge(
    state: &ApiState,
    partner: &Partner,
    body: &[u8],
) -> Result<(Admitted, Vec<Rejected>), Problem> {
    let items = wire::decode_items(body, state.limits.readings.items_max).map_err(malformed)?;
    let fleet = state.engine.fleet.load();
    if fleet.sites().next().is_none() {
        return Err(no_fleet());
    }
    let context = Context {
        now: state.clock.now(),
        fleet: &fleet,
        limits: &state.limits.readings,
    };
    let single = wire_is_single(body);
    let mut rejected = Vec::new();
    let mut admitted = Admitted {
        items: Vec::with_capacity(items.len()),
        events: Vec::with_capacity(items.len()),
        keys: Vec::with_capacity(items.len()),
        sources: Vec::new(),
    };
    for (item, read) in items.into_iter().enumerate() {
        let judged = read.and_then(|read| {
            // Only a rejection needs its place.
            admit(read, partner, &context).map_err(|rejection| {
                if single {
                    rejection
                } else {
                    rejection.within(item)
                }
            })
        });
        let item = item as u64;
        match judged {
            Ok(event) => admitted.add(item, event),
            Err(rejection) => rejected.push(rejection.of_item(item)),
        }
    }
    Ok((admitted, rejected))
}

/// One item as an event. The grant comes before the fleet, which is nobody's business without one.
fn admit(
    item: Item,
    partner: &Partner,
    context: &Context<'_>,
) -> Result<(Event, DedupeKey), Rejection> {
    match item {
        Item::Reading(reading) if partner.may_push(&reading.stream, context.fleet) => {
            let (level, key) = wire::admit(reading, "", context)?;
            Ok((Event::SignalAccepted(level), key))
        }
        Item::Reading(reading) => Err(not_granted(partner, &reading.stream.to_string())),
        Item::GridEvent(event) if partner.may_call(&event.source, &event.scope, context.fleet) => {
            let (event, key) = wire::admit_grid_event(event, "", context)?;
            Ok((Event::GridEventAccepted(event), key))
        }
        Item::GridEvent(event) => Err(calls_not_granted(partner, &event)),
    }
}

fn calls_not_granted(partner: &Partner, event: &GridEvent) -> Rejection {
    Rejection {
        pointer: String::new(),
        code: Code::NotGranted,
        detail: format!(
            "`{}` has no grant for grid events of {} at {}: ask the operator for `--grant source=...,sites=...,kinds=grid_event` \
             that covers it (a zone: every site in it)",
            partner.name, event.source, event.scope
        ),
    }
}

/// At a first start the fleet is read a moment after the port is bound; until then no place is unknown.
fn no_fleet() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "no_fleet",
        "No fleet yet",
        "the daemon knows no site yet: no good fleet file was taken in so far (see /readyz); send the same \
         request again later",
    )
    .retry_after(RETRY_BUSY)
}

fn not_granted(partner: &Partner, stream: &str) -> Rejection {
    Rejection {
        pointer: String::new(),
        code: Code::NotGranted,
        detail: format!(
            "`{}` has no grant for the stream {stream}: ask the operator for `--grant source=...,sites=...,kinds=...` that covers it",
            partner.name
        ),
    }
}

fn malformed(error: Malformed) -> Problem {
    let (status, title) = match error {
        Malformed::Syntax { .. } => (StatusCode::BAD_REQUEST, "Not JSON"),
        Malformed::Depth { .. } => (StatusCode::BAD_REQUEST, "Nested too deep"),
        Malformed::TooManyItems { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "Too many items"),
    };
    Problem::new(status, error.code(), title, error.to_string())
}

/// Hands the readings to the engine loop and waits until they are durable.
pub(super) async fn commit(
    state: &ApiState,
    events: Vec<Event>,
    keys: Vec<DedupeKey>,
    arrived: Instant,
) -> Result<Vec<ItemResult>, Problem> {
    let unavailable = |code, title, detail: String, wait| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, title, detail).retry_after(wait)
    };
    let count = events.len();
    let ticket = state.intake.submit_events(events, keys, arrived).map_err(|error| match error {
        SubmitError::Full => unavailable("busy", "The daemon is busy", format!("{error}; nothing of this request was taken in"), RETRY_BUSY),
        SubmitError::Closed => unavailable("not_taking_readings", "The daemon takes in nothing now", format!("{error}: it is stopping, or its journal refuses writes (see /readyz); send the same request again later"), RETRY_CLOSED),
        SubmitError::TooLarge(_) => Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "Too large",
            format!("{error}: send the readings in several requests"),
        ),
    })?;
    let uncertain = || {
        unavailable(
            "not_confirmed",
            "It is not known whether the readings were kept",
            "the commit was not confirmed in time; send the same request again: what was kept is then a duplicate".into(),
            RETRY_BUSY,
        )
    };
    let results = tokio::time::timeout(state.limits.commit_timeout, ticket)
        .await
        .map_err(|_| uncertain())?
        .map_err(|_| uncertain())?;
    if results.len() == count {
        Ok(results)
    } else {
        Err(uncertain())
    }
}
