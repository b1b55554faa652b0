//! A mocked API server for scenarios: replies in turn, and what was asked.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// What the mocked server answers.
pub(crate) enum Reply {
    /// This status, `Retry-After` and body.
    Text(u16, Option<&'static str>, String),
    /// Nothing, for ever.
    Silence,
}

pub(crate) fn json_reply(status: u16, body: &Value) -> Reply {
    Reply::Text(status, None, body.to_string())
}

/// The API server's own form of an error.
pub(crate) fn status_reply(code: u16, message: &str) -> Reply {
    json_reply(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}),
    )
}

/// A client whose server gives these replies in turn, and what it was asked.
pub(crate) fn server(replies: Vec<Reply>) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (asked, requests) = mpsc::unbounded_channel();
    let replies = Arc::new(Mutex::new(VecDeque::from(replies)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (asked, replies) = (asked.clone(), replies.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let kind = head
                .headers
                .get("content-type")
                .map_or("", |kind| kind.to_str().unwrap());
            let kind = kind.strip_prefix("application/").unwrap_or_default();
            let line = format!(
                "{} {} {kind} {}",
                head.method,
                head.uri,
                String::from_utf8_lossy(&body)
            );
            asked.send(line.trim().replace("  ", " ")).unwrap();
            let reply = replies
                .lock()
                .unwrap()
                .pop_front()
                .expect("no reply is left");
            match reply {
                Reply::Text(status, retry_after, body) => {
                    let mut response = Response::builder().status(status);
                    if let Some(after) = retry_after {
                        response = response.header("retry-after", after);
                    }
                    Ok::<_, Infallible>(response.body(Body::from(body.into_bytes())).unwrap())
                }
                Reply::Silence => std::future::pending().await,
            }
        }
    });
    (Client::new(service, "default"), requests)
}

/// What was asked so far.
pub(crate) fn asked(requests: &mut mpsc::UnboundedReceiver<String>) -> Vec<String> {
    std::iter::from_fn(|| requests.try_recv().ok()).collect()
}
