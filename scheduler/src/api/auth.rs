//! Who asks: the bearer token of a request (RFC 6750) and the partner behind it.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use super::ApiState;
use super::problem::Problem;
use crate::tokens::Partner;

/// The partner whose token the request carries. As an argument of a handler it answers 401 for a
/// request without a valid token, and 429 for one over the partner's quota.
#[derive(Clone, Debug)]
pub struct Authenticated(pub Arc<Partner>);

/// The same, for routes that only operators may call: 403 for everybody else.
#[derive(Clone, Debug)]
pub struct Operator(pub Arc<Partner>);

impl FromRequestParts<ApiState> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        authenticate(state, &parts.headers, Instant::now()).map(Authenticated)
    }
}

impl FromRequestParts<ApiState> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        require_operator(state, &parts.headers, Instant::now()).map(Operator)
    }
}

/// The operator behind a request, for routes that take no extractor.
pub fn require_operator(
    state: &ApiState,
    headers: &HeaderMap,
    now: Instant,
) -> Result<Arc<Partner>, Problem> {
    let partner = authenticate(state, headers, now)?;
    if partner.operator {
        Ok(partner)
    } else {
        Err(Problem::operator_only(&partner.name))
    }
}

/// The partner behind a request, with one request taken from its quota.
pub fn authenticate(
    state: &ApiState,
    headers: &HeaderMap,
    now: Instant,
) -> Result<Arc<Partner>, Problem> {
    let partner = bearer(headers)
        .and_then(|token| {
            state.tokens.lookup(token, now).ok_or_else(|| {
                Problem::unauthenticated("the token is not known here: check that it is whole and of this daemon, or make one with `sunward partner add`")
            })
        })
        ?;
    state.quota.take(&partner.name, now).map_err(|wait| {
        Problem::new(
            axum::http::StatusCode::TOO_MANY_REQUESTS,
            "over_quota",
            "Too many requests",
            format!(
                "`{}` is over its quota: wait as long as Retry-After says, and send more readings per request",
                partner.name
            ),
        )
        .retry_after(wait)
    })?;
    Ok(partner)
}

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    const HELP: &str =
        "send the header `Authorization: Bearer TOKEN`; tokens are made with `sunward partner add`";
    let value = headers
        .get(header::AUTHORIZATION)
        .ok_or_else(|| Problem::unauthenticated(&format!("the request has no token: {HELP}")))?;
    value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| {
            Problem::unauthenticated(&format!(
                "the header `Authorization` holds no bearer token: {HELP}"
            ))
        })
}
