//! The bare side: the least that makes a reading durable. It parses the JSON into typed readings and hands them, with the
//! bytes, to one writer, which gathers whatever waits under the daemon's bounds, appends it, calls fdatasync once, and then answers.
//! No token, no grant, no units, no duplicates, no order in the file, no engine.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use sunward_core::protocol::group::{GROUP_BYTES_MAX, GROUP_EVENTS_MAX};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

#[derive(Deserialize)]
#[allow(
    dead_code,
    reason = "parsed, and no more: that is what the bare side does"
)]
struct Reading {
    id: String,
    source: String,
    kind: String,
    site: String,
    #[serde(deserialize_with = "stamp")]
    valid_from: i64,
    #[serde(deserialize_with = "stamp")]
    valid_to: i64,
    value: f64,
    unit: String,
}

/// RFC 3339 to milliseconds.
fn stamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = <&str>::deserialize(deserializer)?;
    let at = chrono::DateTime::parse_from_rfc3339(text).map_err(serde::de::Error::custom)?;
    Ok(at.timestamp_millis())
}

struct Waiting {
    body: Bytes,
    readings: Vec<Reading>,
    ticket: oneshot::Sender<()>,
}

/// Serves on a free port until the process ends.
pub async fn start(folder: &Path) -> SocketAddr {
    let (inbox, outlet) = mpsc::channel(1_024);
    let file = File::create(folder.join("bare.log")).unwrap();
    std::thread::spawn(move || write(outlet, file));
    let router = Router::new()
        .route("/v1/signals", post(take_in))
        .with_state(inbox);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(sunward::api::serve::serve(
        listener,
        router,
        CancellationToken::new(),
    ));
    address
}

async fn take_in(State(inbox): State<mpsc::Sender<Waiting>>, body: Bytes) -> (StatusCode, String) {
    let parsed = if body.first() == Some(&b'[') {
        serde_json::from_slice::<Vec<Reading>>(&body)
    } else {
        serde_json::from_slice::<Reading>(&body).map(|reading| vec![reading])
    };
    let readings = parsed.unwrap();
    let accepted = readings.len();
    let (ticket, durable) = oneshot::channel();
    inbox
        .send(Waiting {
            body,
            readings,
            ticket,
        })
        .await
        .unwrap();
    durable.await.unwrap();
    (StatusCode::ACCEPTED, format!("{{\"accepted\":{accepted}}}"))
}

fn write(mut outlet: mpsc::Receiver<Waiting>, mut file: File) {
    let mut held = None;
    while let Some(first) = held.take().or_else(|| outlet.blocking_recv()) {
        let (mut readings, mut record, mut tickets) = (0, Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(waiting) = next {
            if readings + waiting.readings.len() > GROUP_EVENTS_MAX
                || record.len() + waiting.body.len() > GROUP_BYTES_MAX
            {
                held = Some(waiting);
                break;
            }
            readings += waiting.readings.len();
            record.extend_from_slice(&waiting.body);
            tickets.push(waiting.ticket);
            next = outlet.try_recv().ok();
        }
        file.write_all(&(record.len() as u32).to_le_bytes())
            .unwrap();
        file.write_all(&record).unwrap();
        file.sync_data().unwrap();
        for ticket in tickets {
            // The client may have gone.
            let _ = ticket.send(());
        }
    }
}
