//! Follows `spec.replicas` from outside, with the wall clock beside it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Client;
use tokio::task::JoinHandle;

use crate::pool::Pool;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A value of `spec.replicas`, and when it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// At most 50 ms and a call after it was written.
    pub at: DateTime<Utc>,
    /// The replicas.
    pub replicas: i64,
}

/// Looks at a MachineDeployment 20 times a second and notes each change. Ends when dropped. For times only: what was there
/// between two looks is in [`crate::servers::Kubernetes::moves`].
#[derive(Debug)]
pub struct Follower {
    seen: Arc<Mutex<Vec<Sighting>>>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Starts on the runtime of the case.
    pub fn start(client: Client, pool: &Pool) -> Self {
        let seen = Arc::new(Mutex::new(Vec::<Sighting>::new()));
        let (log, pool) = (Arc::clone(&seen), pool.clone());
        let task = tokio::spawn(async move {
            loop {
                if let Ok(replicas) = pool.replicas(&client).await {
                    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                    if log.last().is_none_or(|last| last.replicas != replicas) {
                        let at = Utc::now();
                        log.push(Sighting { at, replicas });
                    }
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Self { seen, task }
    }

    /// Every change seen so far; the first is the value that was found.
    pub fn seen(&self) -> Vec<Sighting> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}
