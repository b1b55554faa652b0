//! Answers that say what went wrong: RFC 9457 problem details, `application/problem+json`.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use sunward_signal_adapters::wire::Rejected;

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// One problem. The members after `detail` are extensions of RFC 9457.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A URI that names the kind of problem.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    /// What kind of problem it is, for people.
    pub title: Cow<'static, str>,
    /// The status of the answer.
    pub status: u16,
    /// What is wrong here, why, and how to mend it.
    pub detail: Box<str>,
    /// The stable word for programs and metrics.
    pub code: Cow<'static, str>,
    /// True when the same request may succeed later.
    pub retryable: bool,
    /// What is wrong with each item.
    pub errors: Vec<Rejected>,
    /// Goes into the header `Retry-After`: whole seconds.
    #[serde(skip)]
    pub retry_after_seconds: Option<u32>,
}

impl Problem {
    /// A problem without items that may not succeed later.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Box<str>>,
    ) -> Problem {
        Problem {
            kind: format!("https://sunward.dev/problems/{code}").into(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into(),
            retryable: false,
            errors: Vec::new(),
            retry_after_seconds: None,
        }
    }

    /// The same request may succeed after `wait`.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Problem {
        self.retryable = true;
        // Rounded up: whoever comes early is only sent away again.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.retry_after_seconds = Some(u32::try_from(seconds).unwrap_or(u32::MAX).max(1));
        self
    }

    /// With what is wrong with each item.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<Rejected>) -> Problem {
        self.errors = errors;
        self
    }

    /// 401: who asks is not known.
    pub fn unauthenticated(detail: &str) -> Problem {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "No valid token",
            detail,
        )
    }

    /// 403: the route is for operators.
    pub fn operator_only(partner: &str) -> Problem {
        Problem::new(
            StatusCode::FORBIDDEN,
            "operator_only",
            "For operators only",
            format!(
                "the token of `{partner}` is not an operator's: use one made with `sunward partner add NAME --operator`"
            ),
        )
    }

    /// 404: nothing is here.
    pub fn not_found(what: &str) -> Problem {
        Problem::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "Nothing is here",
            format!("there is no {what}: check the path"),
        )
    }

    /// 503: nothing is decided any more.
    pub fn stopping() -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "The daemon is stopping",
            "ask again once it has been started",
        )
        .retry_after(Duration::from_secs(5))
    }

    /// 500: a fault of ours.
    pub fn internal() -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "A fault of the daemon",
            "the request met a fault in the daemon; its log has the details. Nothing that was answered 202 is lost",
        )
    }
}

/// Marks a response with the code of the problem that refused the whole request; a problem with
/// items leaves none, because its items are counted by themselves.
#[derive(Clone, Debug)]
pub(super) struct RefusedAs(pub(super) Cow<'static, str>);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("a problem holds only texts and numbers");
        let mut response = (status, body).into_response();
        if self.errors.is_empty() {
            response.extensions_mut().insert(RefusedAs(self.code));
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"sunward\""),
            );
        }
        response
    }
}
