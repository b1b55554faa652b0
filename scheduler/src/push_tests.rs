#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};
use sunward_signal_adapters::series::Rebase;

use super::*;
use crate::client::REQUEST_TIMEOUT;
use crate::tokens::Secret;

/// Status, `Retry-After` and body.
type Scripted = (u16, Option<&'static str>, Value);

/// What a server received and what it shall answer; when nothing is left, everything is accepted.
#[derive(Clone, Default)]
struct Script {
    bodies: Arc<Mutex<Vec<Bytes>>>,
    answers: Arc<Mutex<VecDeque<Scripted>>>,
}

impl Script {
    fn answer(&self, headers: &HeaderMap, body: Bytes) -> Response {
        assert_eq!(headers["authorization"], "Bearer sw_a_b");
        let items = serde_json::from_slice::<Vec<Value>>(&body).unwrap().len();
        self.bodies.lock().unwrap().push(body);
        let accepted = json!({"accepted": items, "duplicate": 0, "superseded": 0, "rejected": []});
        let (status, retry_after, body) = self
            .answers
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or((202, None, accepted));
        let mut response =
            (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response();
        if let Some(seconds) = retry_after {
            response
                .headers_mut()
                .insert("retry-after", seconds.parse().unwrap());
        }
        response
    }

    async fn serve(&self) -> Client {
        let script = self.clone();
        let router = Router::new().route(
            "/v1/signals",
            post(
                move |headers: HeaderMap, body: Bytes| async move { script.answer(&headers, body) },
            ),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Client::new(&server, Some(Secret::new("sw_a_b")), REQUEST_TIMEOUT).unwrap()
    }

    fn then(self, status: u16, retry_after: Option<&'static str>, body: Value) -> Script {
        self.answers
            .lock()
            .unwrap()
            .push_back((status, retry_after, body));
        self
    }

    fn sizes(&self) -> Vec<usize> {
        let bodies = self.bodies.lock().unwrap();
        bodies
            .iter()
            .map(|body| serde_json::from_slice::<Vec<Value>>(body).unwrap().len())
            .collect()
    }
}

fn patience(retry_for: Duration) -> Patience {
    Patience {
        retry_for,
        first_wait: Duration::from_millis(1),
    }
}

fn start() -> Timestamp {
    Timestamp::parse_rfc3339("2026-03-01T12:00:00Z").unwrap()
}

/// JSON lines, one reading a minute; every 100th has an interval without an offset.
fn series(readings: usize, rebase: Option<Rebase>) -> Series {
    let lines: String = (0..readings)
        .map(|n| {
            let zone = if n % 100 == 99 { "" } else { "Z" };
            let at = |n: usize| format!("2026-03-01T{:02}:{:02}:00{zone}", n / 60 % 24, n % 60);
            json!({"source": "meter", "kind": "surplus_power", "site": "caiso", "valid_from": at(n),
                   "valid_to": at(n + 1), "value": n, "unit": "kW"})
            .to_string()
                + "\n"
        })
        .collect();
    Series::read(lines.as_bytes(), None, rebase).unwrap()
}

async fn run(
    script: &Script,
    series: &Series,
    retry_for: Duration,
) -> (Result<(), PushError>, Answer, Vec<String>) {
    let client = script.serve().await;
    let (mut answer, mut seen) = (Answer::default(), Vec::new());
    let done = push(
        series,
        &client,
        start,
        patience(retry_for),
        &mut answer,
        &mut |progress| {
            seen.push(format!(
                "{}/{} {} {}",
                progress.answered,
                progress.total,
                progress.rejected,
                progress.waiting.is_some()
            ));
        },
    )
    .await;
    (done, answer, seen)
}

#[tokio::test]
async fn batches_of_a_hundred_and_one_sum() {
    let script = Script::default();
    let (done, answer, seen) = run(&script, &series(250, None), Duration::ZERO).await;
    done.unwrap();
    assert_eq!(script.sizes(), [100, 100, 48]);
    assert_eq!((answer.accepted, answer.rejected.len()), (248, 2));
    assert_eq!(answer.rejected[0].pointer, "/99/valid_from");
    assert_eq!(
        seen,
        ["100/248 2 false", "200/248 2 false", "248/248 2 false"]
    );
}

#[tokio::test]
async fn items_of_a_batch_become_items_of_the_file() {
    let rejected = json!([{"item": 0, "pointer": "/0/unit", "code": "unknown_unit", "detail": "d"},
                          {"item": 47, "pointer": "/47", "code": "not_granted", "detail": "d"}]);
    let problem = json!({"type": "t", "title": "t", "status": 422, "detail": "d", "code": "all_items_refused",
                         "retryable": false, "errors": [{"item": 3, "pointer": "/3/site", "code": "unknown_site", "detail": "d"}]});
    let script = Script::default()
        .then(
            202,
            None,
            json!({"accepted": 90, "duplicate": 7, "superseded": 1, "rejected": rejected}),
        )
        .then(422, None, problem);
    let (done, answer, _) = run(&script, &series(150, None), Duration::ZERO).await;
    done.unwrap();
    assert_eq!(
        (answer.accepted, answer.duplicate, answer.superseded),
        (90, 7, 1)
    );
    let pointers: Vec<_> = answer
        .rejected
        .iter()
        .map(|r| (r.item, r.pointer.as_str()))
        .collect();
    // The second batch begins with item 101, because 99 was refused here.
    assert_eq!(
        pointers,
        [
            (0, "/0/unit"),
            (47, "/47"),
            (99, "/99/valid_from"),
            (104, "/104/site")
        ]
    );
}

#[tokio::test]
async fn the_same_bytes_go_again_while_the_daemon_says_later() {
    let script = Script::default()
        .then(503, None, json!({}))
        .then(429, Some("0"), json!({}))
        .then(502, None, json!({}));
    let (done, answer, seen) = run(&script, &series(3, None), Duration::from_secs(60)).await;
    done.unwrap();
    assert_eq!(answer.accepted, 3);
    let bodies = script.bodies.lock().unwrap();
    assert_eq!(bodies.len(), 4);
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(seen.iter().filter(|line| line.ends_with("true")).count(), 3);
}

#[tokio::test]
async fn after_the_time_for_retries_it_gives_up() {
    let mut script = Script::default();
    for _ in 0..20 {
        script = script.then(503, Some("100"), json!({}));
    }
    let (done, ..) = run(&script, &series(3, None), Duration::from_millis(50)).await;
    assert!(matches!(done, Err(PushError::Unreachable { .. })));
    // Once at first, and once more when the time was over, though 100 s were asked for.
    assert_eq!(script.sizes(), [3, 3]);
}

#[tokio::test]
async fn an_unreachable_daemon_is_told_from_one_that_refuses() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let client = Client::new(&format!("http://127.0.0.1:{port}"), None, REQUEST_TIMEOUT).unwrap();
    let mut answer = Answer::default();
    let done = push(
        &series(1, None),
        &client,
        start,
        patience(Duration::ZERO),
        &mut answer,
        &mut |_| {},
    )
    .await;
    assert!(
        matches!(done, Err(PushError::Unreachable { .. })),
        "{done:?}"
    );
    for status in [401, 404, 500] {
        let script = Script::default().then(status, None, json!({"error": "x"}));
        let (done, ..) = run(&script, &series(1, None), Duration::from_secs(60)).await;
        assert!(matches!(done, Err(PushError::Refused(_))), "{status}");
        assert_eq!(script.sizes(), [1]);
    }
}

#[tokio::test]
async fn rebased_readings_wait_for_their_time() {
    // A clock that jumps ahead each time it is asked: 5 s a look, and intervals of 10 s.
    let rebase = Rebase {
        start: start(),
        speed: 6.0,
    };
    let series = series(4, Some(rebase));
    let script = Script::default();
    let client = script.serve().await;
    let looks = std::sync::atomic::AtomicI64::new(0);
    let mut answer = Answer::default();
    let now = || {
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        start() + sunward_core::time::Span::from_millis(9_990 * look)
    };
    push(
        &series,
        &client,
        now,
        patience(Duration::ZERO),
        &mut answer,
        &mut |_| {},
    )
    .await
    .unwrap();
    assert_eq!(answer.accepted, 4);
    assert!(script.sizes().len() > 1, "{:?}", script.sizes());
    let bodies = script.bodies.lock().unwrap();
    let first: Vec<Value> = serde_json::from_slice(&bodies[0]).unwrap();
    assert_eq!(first[0]["valid_from"], "2026-03-01T12:00:00Z");
    assert_eq!(first[0]["valid_to"], "2026-03-01T12:00:10Z");
}
