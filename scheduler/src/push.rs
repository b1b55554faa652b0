//! Sending a series of readings to a daemon: in batches, on time, and again where it may help.

use std::time::Duration;

use bytes::Bytes;
use sunward_core::time::Timestamp;
use sunward_signal_adapters::series::{Entry, Series};
use sunward_signal_adapters::wire::{Answer, Rejected};
use tokio::time::Instant;

use crate::api::problem::Problem;
use crate::client::{Client, ClientError, Reply};

/// Longest wait that we choose; the daemon may ask for longer.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long a batch is tried.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From its first failure on.
    pub retry_for: Duration,
    /// First wait before the same bytes are sent again; it doubles.
    pub first_wait: Duration,
}

impl Patience {
    /// The usual waits, for so long.
    pub fn new(retry_for: Duration) -> Patience {
        Patience {
            retry_for,
            first_wait: Duration::from_millis(200),
        }
    }
}

/// How far a push has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Readings that have an answer.
    pub answered: usize,
    /// Readings of the file that can be sent.
    pub total: usize,
    /// Readings refused so far, here and by the daemon.
    pub rejected: usize,
    /// Why the same bytes will be sent again, where they will.
    pub waiting: Option<&'a str>,
}

/// Why a push ended early.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// No answer, or only "later", for as long as was allowed.
    #[error("gave up after {tried_for:?} of trying: {problem}")]
    Unreachable {
        /// How long.
        tried_for: Duration,
        /// The last problem.
        problem: String,
    },
    /// The daemon refused a whole request.
    #[error("the daemon refused the request: {0}")]
    Refused(String),
    /// Not a question of the daemon.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Sends what of `series` is due at `now`, waits for what is not, and adds every answer to
/// `answer`, with items and pointers as they are in the file.
///
/// A batch is retried with the same bytes for as long as `patience` says; ids make
/// what was kept the first time a duplicate.
pub async fn push(
    series: &Series,
    client: &Client,
    now: impl Fn() -> Timestamp,
    patience: Patience,
    answer: &mut Answer,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<(), PushError> {
    answer.rejected.extend(series.rejected.iter().cloned());
    let total = series.entries.len();
    let mut sent = 0;
    while let Some(due_at) = series.next_due(sent) {
        let early_ms = (due_at - now()).as_millis().max(0);
        tokio::time::sleep(Duration::from_millis(early_ms as u64)).await;
        let range = series.due(sent, now());
        let batch = &series.entries[range];
        if batch.is_empty() {
            continue;
        }
        let state = Progress {
            answered: sent,
            total,
            rejected: answer.rejected.len(),
            waiting: None,
        };
        let reply = deliver(client, encode(batch), patience, &mut |problem| {
            progress(Progress {
                waiting: Some(problem),
                ..state
            });
        })
        .await?;
        add(&reply, batch, answer)?;
        sent += batch.len();
        progress(Progress {
            answered: sent,
            rejected: answer.rejected.len(),
            ..state
        });
    }
    answer.rejected.sort_by_key(|rejected| rejected.item);
    Ok(())
}

fn encode(batch: &[Entry]) -> Bytes {
    let readings: Vec<_> = batch.iter().map(|entry| &entry.reading).collect();
    serde_json::to_vec(&readings)
        .expect("readings hold only texts and finite numbers")
        .into()
}

/// True for an answer that may be another one later: of the daemon, or of a proxy before it.
fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 502 | 503 | 504)
}

async fn deliver(
    client: &Client,
    body: Bytes,
    patience: Patience,
    waiting: &mut (dyn FnMut(&str) + Send),
) -> Result<Reply, PushError> {
    let Patience {
        retry_for,
        first_wait: mut backoff,
    } = patience;
    let mut failing_since = None;
    loop {
        let (problem, asked) = match client.post_json("/v1/signals", body.clone()).await {
            Ok(reply) if !is_transient(reply.status) => return Ok(reply),
            Ok(reply) => (reply.problem_text(), reply.retry_after),
            Err(error @ ClientError::Unreachable { .. }) => (error.to_string(), None),
            Err(error) => return Err(error.into()),
        };
        let since = *failing_since.get_or_insert_with(Instant::now);
        let left = retry_for.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(PushError::Unreachable {
                tried_for: retry_for,
                problem,
            });
        }
        waiting(&problem);
        tokio::time::sleep(backoff.max(asked.unwrap_or_default()).min(left)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Adds the answer to one batch.
fn add(reply: &Reply, batch: &[Entry], answer: &mut Answer) -> Result<(), PushError> {
    let refused = || PushError::Refused(reply.problem_text());
    let part = if reply.status == 202 {
        reply.json::<Answer>().map_err(|_| refused())?
    } else {
        let problem: Problem = reply.json().map_err(|_| refused())?;
        if problem.errors.is_empty() {
            return Err(refused());
        }
        Answer {
            rejected: problem.errors,
            ..Answer::default()
        }
    };
    answer.accepted += part.accepted;
    answer.duplicate += part.duplicate;
    answer.superseded += part.superseded;
    for rejected in part.rejected {
        let entry = usize::try_from(rejected.item)
            .ok()
            .and_then(|item| batch.get(item))
            .ok_or_else(refused)?;
        answer.rejected.push(in_file(rejected, entry.item));
    }
    Ok(())
}

/// A rejection of an item of a batch as one of the file's: `/3/unit` becomes `/103/unit`.
fn in_file(rejected: Rejected, item: u64) -> Rejected {
    let field = rejected
        .pointer
        .strip_prefix(&format!("/{}", rejected.item))
        .unwrap_or(&rejected.pointer);
    Rejected {
        pointer: format!("/{item}{field}"),
        item,
        ..rejected
    }
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
