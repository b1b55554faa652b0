//! Scales a MachineDeployment through its scale subresource.
//!
//! A **claim** reads the object and writes our term on it, never over a higher one; a **scale**
//! writes absolute replicas. Both carry the resource version of what they were prepared from, so
//! that a write prepared before someone else's (a claim by the next leader, say) gets 409. One
//! command is one try: whatever it becomes is the outcome, and the ledger decides what follows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use sunward_core::action::Scale;
use sunward_core::event::Outcome;
use sunward_core::fleet::Pool;

use super::{Actuator, Command};
use crate::cluster::{
    ApiVersion, CHANGED_AT_ANNOTATION, CLAIM_ANNOTATION, COMMAND_ANNOTATION, Clusters, Failure,
    MachineDeployment, Object, PLURAL, PatchKind, Route, Shared, Snapshot, TERM_ANNOTATION, count,
    parse_version,
};

/// How long the note after a scale write may take; it is dropped then.
const NOTE_TIMEOUT: Duration = Duration::from_secs(5);

/// The actuator for pools with a `k0smotron` target.
pub struct K0smotron {
    clusters: Arc<Clusters>,
    notes: Arc<Notes>,
}

impl K0smotron {
    /// Reaches the pools through these clusters.
    pub fn new(clusters: Arc<Clusters>) -> K0smotron {
        K0smotron {
            clusters,
            notes: Arc::default(),
        }
    }
}

#[async_trait]
impl Actuator for K0smotron {
    async fn apply(&self, command: &Command) -> Outcome {
        let (Command::Claim { pool, .. } | Command::Scale { pool, .. }) = command;
        let Some(route) = self.clusters.route(pool) else {
            return failed(format!(
                "pool {} is behind no cluster of the fleet in force",
                pool.name
            ));
        };
        let connection = match route.cluster.connection() {
            Ok(connection) => connection,
            Err(trouble) => {
                return failed(format!(
                    "cluster {} is not connected: {trouble}",
                    route.cluster.name
                ));
            }
        };
        let object = match object(&route, connection.version) {
            Ok(object) => object,
            Err(reason) => return Outcome::Refused { reason },
        };
        let call = Call {
            client: connection.client.clone(),
            cluster: route.cluster,
            object,
        };
        match command {
            Command::Claim { pool, term } => call.claim(pool, *term).await,
            Command::Scale { pool, scale } => {
                let outcome = call.scale(pool, scale).await;
                if let Outcome::Accepted(_) = outcome {
                    self.notes.leave(Note::of(scale), call);
                }
                outcome
            }
        }
    }
}

fn object(route: &Route, version: ApiVersion) -> Result<Object, String> {
    Object::new(
        &route.cluster.name,
        version,
        &route.namespace,
        &route.machine_deployment,
    )
}

fn failed(reason: String) -> Outcome {
    Outcome::Failed {
        reason,
        retry_after_ms: None,
    }
}

/// The answer to a scale write, as far as it is read.
#[derive(Deserialize)]
struct ScaleAnswer {
    metadata: ScaleMetadata,
    #[serde(default)]
    spec: Replicas,
    #[serde(default)]
    status: Replicas,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScaleMetadata {
    #[serde(default)]
    resource_version: String,
}

#[derive(Default, Deserialize)]
struct Replicas {
    replicas: Option<i64>,
}

/// One object, and the way to it.
struct Call {
    client: Client,
    cluster: Arc<Shared>,
    object: Object,
}

impl Call {
    async fn claim(&self, pool: &Pool, term: u64) -> Outcome {
        let found = match self.object.get::<MachineDeployment>(&self.client).await {
            Ok(found) => found,
            Err(failure) => return self.object.read_outcome(&failure),
        };
        let found = match Snapshot::of(&found) {
            Ok(found) => found,
            Err(error) => {
                return Outcome::Refused {
                    reason: error.to_string(),
                };
            }
        };
        self.cluster.cache().answered(&pool.name, found.clone());
        if let Some(higher) = found.term.filter(|found| *found > term) {
            return Outcome::HigherTerm { term: higher };
        }
        let body = json!({"metadata": {
            "resourceVersion": found.version.to_string(),
            "annotations": {
                TERM_ANNOTATION: term.to_string(),
                CLAIM_ANNOTATION: found.next_claim(term),
            },
        }});
        let patched = self
            .object
            .patch(&self.client, None, PatchKind::Merge, &body);
        let claimed = match patched.await {
            Ok(claimed) => Snapshot::of(&claimed),
            Err(failure) => return self.object.write_outcome(&failure, PLURAL),
        };
        match claimed {
            Ok(claimed) => {
                self.cluster.cache().answered(&pool.name, claimed.clone());
                Outcome::Accepted(claimed.observation(&pool.name))
            }
            Err(error) => Outcome::Unknown {
                reason: error.to_string(),
            },
        }
    }

    async fn scale(&self, pool: &Pool, scale: &Scale) -> Outcome {
        let known = self.cluster.cache().get(&pool.name).cloned();
        let Some(known) = known else {
            return Outcome::Conflict;
        };
        if let Some(higher) = known.term.filter(|known| *known > scale.term) {
            return Outcome::HigherTerm { term: higher };
        }
        if known.term != Some(scale.term) || known.replicas != scale.from {
            return Outcome::Conflict;
        }
        let body = json!({
            "metadata": {"resourceVersion": known.version.to_string()},
            "spec": {"replicas": scale.replicas},
        });
        let patched =
            self.object
                .patch::<ScaleAnswer>(&self.client, Some("scale"), PatchKind::Merge, &body);
        let answered = patched.await.and_then(|answer| {
            let text = &answer.metadata.resource_version;
            let version = parse_version(text).ok_or_else(|| {
                Failure::Unreadable(format!("the resourceVersion {text:?} is no number"))
            })?;
            Ok((version, answer))
        });
        let (version, answer) = match answered {
            Ok(answered) => answered,
            Err(failure) => {
                let resource = format!("{PLURAL}/scale");
                return self.object.write_outcome(&failure, &resource);
            }
        };
        let (replicas, existing) = (count(answer.spec.replicas), count(answer.status.replicas));
        let after = known.scaled(version, replicas, existing, scale.decided_at);
        self.cluster.cache().answered(&pool.name, after.clone());
        Outcome::Accepted(after.observation(&pool.name))
    }

    /// Writes down on the object who wrote its replicas, and when, while it is ours.
    async fn note(&self, note: &Note) {
        let path =
            |annotation: &str| format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
        let body = json!([
            {"op": "test", "path": path(TERM_ANNOTATION), "value": note.term.to_string()},
            {"op": "add", "path": path(COMMAND_ANNOTATION), "value": note.command},
            {"op": "add", "path": path(CHANGED_AT_ANNOTATION), "value": note.changed_at},
        ]);
        let patched =
            self.object
                .patch::<MachineDeployment>(&self.client, None, PatchKind::Json, &body);
        let error = match tokio::time::timeout(NOTE_TIMEOUT, patched).await {
            Ok(Ok(object)) => match Snapshot::of(&object) {
                // Ours was the last change of the object, and the next write has to know it.
                Ok(noted) => return self.cluster.cache().answered(&note.pool, noted),
                Err(error) => error.to_string(),
            },
            Ok(Err(failure)) => failure.to_string(),
            Err(_) => format!("nothing in {} s", NOTE_TIMEOUT.as_secs()),
        };
        tracing::debug!(pool = %note.pool, command = note.command, error, "the scale write was not noted on the object");
    }
}

/// What is noted on the object after a scale write.
struct Note {
    pool: Arc<str>,
    term: u64,
    command: String,
    changed_at: String,
}

impl Note {
    fn of(scale: &Scale) -> Note {
        Note {
            pool: scale.pool.clone(),
            term: scale.term,
            command: format!("{}.{}", scale.term, scale.generation),
            changed_at: scale.decided_at.to_string(),
        }
    }
}

/// The note that waits behind the one being written, per pool that has one being written.
type Waiting = BTreeMap<Arc<str>, Option<(Note, Call)>>;

/// Notes on their way: per pool one that is being written, and the newest that waits for it, so
/// that an older note never overwrites a newer one.
#[derive(Default)]
struct Notes {
    pools: Mutex<Waiting>,
}

impl Notes {
    /// Writes the note in the background; nothing waits for it.
    fn leave(self: &Arc<Self>, note: Note, call: Call) {
        let pool = note.pool.clone();
        let being_written = {
            let mut pools = self.pools();
            pools.insert(pool.clone(), Some((note, call))).is_some()
        };
        if being_written {
            return;
        }
        let notes = self.clone();
        tokio::spawn(async move {
            while let Some((note, call)) = notes.next(&pool) {
                call.note(&note).await;
            }
        });
    }

    /// The note that waits; where none does, the pool is done.
    fn next(&self, pool: &Arc<str>) -> Option<(Note, Call)> {
        let mut pools = self.pools();
        let next = pools.get_mut(pool).and_then(Option::take);
        if next.is_none() {
            pools.remove(pool);
        }
        next
    }

    fn pools(&self) -> MutexGuard<'_, Waiting> {
        // Each change is one map operation, so a panic elsewhere leaves nothing half done.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
