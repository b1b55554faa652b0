//! A small HTTP client for the daemon's surface: one base address, an optional bearer token, no TLS.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// How long a call may take. Longer than the daemon's own deadlines, so that its answer is seen.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one server. Cheap to clone; connections are kept and belong to the runtime of the case.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    token: Option<String>,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The header lines.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Http {
    /// A client for `base`, for example `http://127.0.0.1:7117`.
    pub fn new(base: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self {
            client,
            base: base.trim_end_matches('/').to_owned(),
            token: None,
        }
    }

    /// The same client with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    /// GET.
    ///
    /// # Errors
    /// When there is no answer; an answer of any status is `Ok`. So for all calls here.
    pub async fn get(&self, path: &str) -> Result<Response> {
        self.call(Method::GET, path, &[], Bytes::new()).await
    }

    /// POST of a JSON document.
    pub async fn post_json(&self, path: &str, body: &Value) -> Result<Response> {
        self.post(path, "application/json", body.to_string()).await
    }

    /// POST of any bytes, also of those that are no JSON.
    pub async fn post(
        &self,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response> {
        self.call(
            Method::POST,
            path,
            &[("content-type", content_type)],
            body.into(),
        )
        .await
    }

    /// Any call.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response> {
        let uri = format!("{}{path}", self.base);
        let mut request = Request::builder().method(method.clone()).uri(&uri);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body))?;
        let answer = async {
            let response = self.client.request(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Response {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body,
            })
        };
        tokio::time::timeout(CALL_TIMEOUT, answer)
            .await
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("{method} {uri}"))
    }
}

impl Response {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("no JSON in {}: {}", self.status, self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
