//! A partner that never stops: it posts readings on schedule and keeps the answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::http::{Http, Response};

/// How long an interval of [`Feed`] is: longer than its period, so that a late post leaves no gap.
const VALID_FOR: chrono::TimeDelta = chrono::TimeDelta::milliseconds(2_000);

/// RFC 3339 in UTC with milliseconds, as readings and `--rebase` take it.
pub fn stamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A reading of marginal carbon intensity in the zone `wt/CAISO_NORTH` for `valid_for` from `from` on.
pub fn carbon(id: &str, from: DateTime<Utc>, valid_for: chrono::TimeDelta, value: f64) -> Value {
    json!({
        "id": id, "source": "watttime", "kind": "carbon_intensity", "basis": "marginal",
        "zone": {"scheme": "wt", "code": "CAISO_NORTH"},
        "valid_from": stamp(from), "valid_to": stamp(from + valid_for), "value": value, "unit": "gCO2e/kWh",
    })
}

/// What became of one post.
#[derive(Clone, Debug)]
pub struct Posted {
    /// What was sent.
    pub items: Vec<Value>,
    /// The status, or `None` without an answer.
    pub status: Option<u16>,
    /// The body of the answer.
    pub answer: Value,
}

impl Posted {
    /// What came back for `items`.
    fn new(items: Vec<Value>, answer: anyhow::Result<Response>) -> Self {
        match answer {
            Ok(response) => Self {
                items,
                status: Some(response.status),
                answer: response.json().unwrap_or(Value::Null),
            },
            Err(error) => Self {
                items,
                status: None,
                answer: json!(format!("{error:#}")),
            },
        }
    }
}

/// Posts a reading of carbon intensity every half second, of the value that is set then. Ends when dropped.
#[derive(Debug)]
pub struct Feed {
    value: Arc<Mutex<f64>>,
    posted: Arc<Mutex<Vec<Posted>>>,
    task: JoinHandle<()>,
}

impl Feed {
    /// The time between two posts.
    pub const PERIOD: Duration = Duration::from_millis(500);

    /// Starts with this value.
    pub fn start(http: Http, value: f64) -> Self {
        let value = Arc::new(Mutex::new(value));
        let posted = Arc::new(Mutex::new(Vec::new()));
        let (current, log) = (Arc::clone(&value), Arc::clone(&posted));
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Self::PERIOD);
            for sequence in 0_u64.. {
                ticks.tick().await;
                let value = *lock(&current);
                let item = carbon(&format!("feed-{sequence}"), Utc::now(), VALID_FOR, value);
                let answer = http.post_json("/v1/signals", &item).await;
                lock(&log).push(Posted::new(vec![item], answer));
            }
        });
        Self {
            value,
            posted,
            task,
        }
    }

    /// From the next post on.
    pub fn set(&self, value: f64) {
        *lock(&self.value) = value;
    }

    /// Every post that was answered or failed so far.
    pub fn posted(&self) -> Vec<Posted> {
        lock(&self.posted).clone()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Traffic that no policy reads: several senders post batches as fast as they are answered. Ends when dropped.
#[derive(Debug)]
pub struct Load {
    posted: Arc<Mutex<Vec<Posted>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Senders at once.
    const SENDERS: u64 = 3;
    /// Readings of a batch.
    const BATCH: u64 = 5;
    /// Between two batches of one sender: a steady stream, not all that the machine can do.
    const PAUSE: Duration = Duration::from_millis(20);

    /// Starts the senders, at a site of the fleet. Ids begin with `name`.
    pub fn start(http: &Http, name: &str, site: &str) -> Self {
        let posted = Arc::new(Mutex::new(Vec::new()));
        let tasks = (0..Self::SENDERS)
            .map(|sender| {
                let (http, log) = (http.clone(), Arc::clone(&posted));
                let (name, site) = (name.to_owned(), site.to_owned());
                tokio::spawn(async move {
                    for batch in 0_u64.. {
                        let now = Utc::now();
                        let items: Vec<Value> = (0..Self::BATCH)
                            .map(|item| {
                                json!({
                                    "id": format!("{name}-{sender}-{batch}-{item}"), "source": "load", "kind": "renewable_share",
                                    "site": site, "valid_from": stamp(now), "valid_to": stamp(now + VALID_FOR),
                                    "value": item as f64 / 10.0, "unit": "1",
                                })
                            })
                            .collect();
                        let answer = http.post_json("/v1/signals", &json!(items)).await;
                        lock(&log).push(Posted::new(items, answer));
                        tokio::time::sleep(Self::PAUSE).await;
                    }
                })
            })
            .collect();
        Self { posted, tasks }
    }

    /// Every post that was answered or failed so far.
    pub fn posted(&self) -> Vec<Posted> {
        lock(&self.posted).clone()
    }

    /// Every reading of a post that was answered 202.
    pub fn acknowledged(&self) -> Vec<Value> {
        let acknowledged = self
            .posted()
            .into_iter()
            .filter(|post| post.status == Some(202));
        acknowledged.flat_map(|post| post.items).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A panic elsewhere does not make what is kept here wrong.
fn lock<T>(kept: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
