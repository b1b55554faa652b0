//! One request to an API server, and what its failure means.
//!
//! kube's own calls hide the status line and the headers of an error; an outcome needs both (was
//! it sent at all, who answered, `Retry-After`), so requests are written here. Nothing retries.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sunward_core::event::Outcome;

use super::object::{GROUP, PLURAL};

/// Longest answer that is read, in bytes: etcd holds objects of 1.5 MiB at most.
pub const ANSWER_MAX: usize = 4 * 1024 * 1024;
/// How long one request may take; `dispatch.rs` sets a deadline of its own around a command.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The field manager of our writes.
pub const FIELD_MANAGER: &str = "sunward";

/// Why a request did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection: nothing was sent.
    NotSent(String),
    /// Sent, or perhaps sent, and no whole answer came.
    Unanswered(String),
    /// Done, but the answer can't be read.
    Unreadable(String),
    /// Answered with something else than success.
    Answered(Answer),
}

/// An answer other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The server's words.
    pub(crate) message: String,
    /// True when the API server itself wrote it, and not something between.
    pub(crate) by_api_server: bool,
    /// `Retry-After`, where it was given in seconds.
    pub(crate) retry_after_ms: Option<u64>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotSent(why) => write!(f, "not connected: {why}"),
            Failure::Unanswered(why) => write!(f, "no answer: {why}"),
            Failure::Unreadable(why) => write!(f, "the answer can't be read: {why}"),
            Failure::Answered(Answer {
                status, message, ..
            }) => write!(f, "{status} {message}"),
        }
    }
}

impl Failure {
    /// True where the server says that the thing does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Failure::Answered(answer) if answer.status == 404)
    }
}

/// What is patched or read, for requests and for messages.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The path of the MachineDeployment.
    path: String,
    /// `namespace/name` and the cluster, for messages.
    name: String,
}

/// The forms of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 7396.
    Merge,
    /// RFC 6902; the only one with a `test`.
    Json,
}

impl Object {
    /// A MachineDeployment in a version of the API. Names that are no DNS names are refused: they
    /// exist in no cluster, and would end up in the path.
    pub(crate) fn new(
        cluster: &str,
        version: super::object::ApiVersion,
        namespace: &str,
        name: &str,
    ) -> Result<Object, String> {
        for part in [namespace, name] {
            let fits = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
            };
            if part.is_empty() || part.starts_with('.') || !part.bytes().all(fits) {
                return Err(format!(
                    "`{part}` is no name of a Kubernetes object (RFC 1123: lower case, digits, `-` and `.`): \
                     correct the pool's k0smotron actuator in the fleet file"
                ));
            }
        }
        let version = version.as_str();
        Ok(Object {
            path: format!("/apis/{GROUP}/{version}/namespaces/{namespace}/{PLURAL}/{name}"),
            name: format!("{namespace}/{name} in cluster {cluster}"),
        })
    }

    /// Reads the object, as new as the store has it.
    pub(crate) async fn get<T: DeserializeOwned>(&self, client: &Client) -> Result<T, Failure> {
        get(client, &self.path).await
    }

    /// Patches the object, or with `subresource` a part of it.
    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        client: &Client,
        subresource: Option<&str>,
        kind: PatchKind,
        body: &Value,
    ) -> Result<T, Failure> {
        let content_type = match kind {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
        };
        let slash = subresource.map_or("", |_| "/");
        let subresource = subresource.unwrap_or_default();
        let request = Request::patch(format!(
            "{}{slash}{subresource}?fieldManager={FIELD_MANAGER}",
            self.path
        ))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, "application/json");
        send(client, request, body.to_string().into_bytes()).await
    }

    /// The outcome of a failed read: nothing was written, whatever happened.
    pub(crate) fn read_outcome(&self, failure: &Failure) -> Outcome {
        let reason = format!("reading MachineDeployment {}: {failure}", self.name);
        match failure {
            Failure::Answered(answer) if is_final(answer.status) => Outcome::Refused {
                reason: reason + &remedy(answer.status, "get", PLURAL),
            },
            Failure::Answered(answer) => Outcome::Failed {
                reason,
                retry_after_ms: answer.retry_after_ms,
            },
            _ => Outcome::Failed {
                reason,
                retry_after_ms: None,
            },
        }
    }

    /// The outcome of a failed write.
    ///
    /// - 409: the object moved on.
    /// - 429: turned away before it was looked at.
    /// - 503 in the API server's own form: turned away as well (it starts, stops, or has no room).
    ///   Any other 503 comes from a proxy, which may have passed the request on before its
    ///   connection broke: unknown, as every other 5xx and 408.
    /// - Everything else (400, 401, 403, 404, 422, ...): refused until someone changes something.
    pub(crate) fn write_outcome(&self, failure: &Failure, resource: &str) -> Outcome {
        let reason = format!("patching {resource} {}: {failure}", self.name);
        match failure {
            Failure::NotSent(_) => Outcome::Failed {
                reason,
                retry_after_ms: None,
            },
            Failure::Unanswered(_) | Failure::Unreadable(_) => Outcome::Unknown { reason },
            Failure::Answered(answer) => match answer.status {
                409 => Outcome::Conflict,
                429 => Outcome::Failed {
                    reason,
                    retry_after_ms: answer.retry_after_ms,
                },
                503 if answer.by_api_server => Outcome::Failed {
                    reason,
                    retry_after_ms: answer.retry_after_ms,
                },
                status if is_final(status) => Outcome::Refused {
                    reason: reason + &remedy(status, "patch", resource),
                },
                _ => Outcome::Unknown { reason },
            },
        }
    }
}

/// True for an answer that the same request would get again.
fn is_final(status: u16) -> bool {
    !matches!(status, 408 | 409 | 425 | 429 | 500..)
}

/// What to do about a refusal.
fn remedy(status: u16, verb: &str, resource: &str) -> String {
    match status {
        401 => "; renew the credentials in the cluster's kubeconfig, it is read again at the next connection".to_owned(),
        403 => format!(
            "; grant `{verb}` on `{resource}` of API group {GROUP} (deploy/rbac/management-cluster.yaml), \
             unless an admission policy says otherwise"
        ),
        404 => "; create the MachineDeployment, or correct namespace and name in the fleet file".to_owned(),
        422 => "; an admission policy or the schema forbids it: see the server's words".to_owned(),
        _ => "; see the server's words, and its log".to_owned(),
    }
}

/// Reads a path.
pub(crate) async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Failure> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(ACCEPT, "application/json");
    send(client, request, Vec::new()).await
}

async fn send<T: DeserializeOwned>(
    client: &Client,
    request: hyper::http::request::Builder,
    body: Vec<u8>,
) -> Result<T, Failure> {
    let request = request
        .body(Body::from(body))
        .map_err(|error| Failure::NotSent(error.to_string()))?;
    let whole = async {
        let response = client.send(request).await.map_err(|error| unsent(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes);
        if !head.status.is_success() {
            let text = body.unwrap_or_default();
            return Err(Failure::Answered(answer(head.status, &head.headers, &text)));
        }
        let body = body.map_err(|error| Failure::Unanswered(describe(error.as_ref())))?;
        serde_json::from_slice(&body).map_err(|error| Failure::Unreadable(error.to_string()))
    };
    match tokio::time::timeout(CALL_TIMEOUT, whole).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Unanswered(format!(
            "nothing for {} s",
            CALL_TIMEOUT.as_secs()
        ))),
    }
}

/// Sorts out whether a request that failed was sent.
fn unsent(error: &kube::Error) -> Failure {
    if let kube::Error::Auth(_) = error {
        // Its text may quote what a credentials plugin printed.
        return Failure::NotSent(
            "the credentials of the kubeconfig could not be had; try them with kubectl".to_owned(),
        );
    }
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>()
            && error.is_connect()
        {
            return Failure::NotSent(describe(error));
        }
        source = error.source();
    }
    Failure::Unanswered(describe(error))
}

/// An error and its causes in one line, each said once.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// The `Status` object that the API server answers with.
#[derive(Deserialize)]
struct Status {
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// Longest text of a server in a message, in characters.
const WORDS_MAX: usize = 400;

fn answer(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Answer {
    let object = serde_json::from_slice::<Status>(body)
        .ok()
        .filter(|object| object.kind == "Status");
    let header = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let words = match &object {
        Some(object) if !object.message.is_empty() => object.message.clone(),
        _ => String::from_utf8_lossy(body).trim().to_owned(),
    };
    let words: String = words.chars().take(WORDS_MAX).collect();
    let seconds = header.or_else(|| object.as_ref()?.details.retry_after_seconds);
    Answer {
        status: status.as_u16(),
        message: if words.is_empty() {
            status
                .canonical_reason()
                .unwrap_or("without a word")
                .to_owned()
        } else {
            words
        },
        by_api_server: object.is_some(),
        retry_after_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
    }
}
