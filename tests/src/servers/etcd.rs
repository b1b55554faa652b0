//! Reads the history of an object from etcd: every version that ever was, also those written while a watch was broken.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::http::Http;

/// Versions of one object that are read at most.
const REVISIONS_MAX: usize = 100_000;

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Its `metadata.resourceVersion` (etcd's revision), which orders the versions of all objects.
    pub resource_version: i64,
    /// The object as stored, in the storage version of its kind.
    pub object: Value,
}

/// A change of `spec.replicas`. Who wrote it cannot be told from the object: the API server (1.36) notes the field manager of a
/// custom resource's scale subresource at its first write only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The version that brought it.
    pub resource_version: i64,
    /// The new value; `None` where the field is absent.
    pub replicas: Option<i64>,
    /// `metadata.generation` then.
    pub generation: i64,
}

/// Every version of the object under `key`, oldest first, back to its creation; empty when it is not there.
///
/// etcd keeps old versions until it is compacted, which [`super::Kubernetes`] switches off. Read backwards: the version
/// before the one of revision r is what a read at revision r - 1 gives.
pub(super) async fn history(etcd: &Http, key: &str) -> Result<Vec<Revision>> {
    let mut revisions = Vec::new();
    let mut at = 0;
    while let Some((revision, version)) = read(etcd, key, at).await? {
        at = revision.resource_version - 1;
        revisions.push(revision);
        if version == 1 || revisions.len() == REVISIONS_MAX {
            break;
        }
    }
    revisions.reverse();
    Ok(revisions)
}

/// The changes of `spec.replicas` in a history; the first is the value at creation.
pub(super) fn moves(history: &[Revision]) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    for revision in history {
        let object = &revision.object;
        let replicas = object["spec"]["replicas"].as_i64();
        if moves.last().is_some_and(|last| last.replicas == replicas) {
            continue;
        }
        moves.push(Move {
            resource_version: revision.resource_version,
            replicas,
            generation: object["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default(),
        });
    }
    moves
}

/// The object at a revision (0: now) and etcd's count of its versions, through etcd's JSON gateway.
async fn read(etcd: &Http, key: &str, revision: i64) -> Result<Option<(Revision, i64)>> {
    let request = json!({"key": BASE64.encode(key), "revision": revision});
    let answer = etcd.post_json("/v3/kv/range", &request).await?.json()?;
    anyhow::ensure!(
        answer["error"].is_null() && answer["code"].is_null(),
        "etcd: {answer}"
    );
    let found = &answer["kvs"][0];
    if found.is_null() {
        return Ok(None);
    }
    // The gateway writes 64 bit numbers as text.
    let number = |field: &str| {
        found[field]
            .as_str()
            .and_then(|text| text.parse::<i64>().ok())
            .with_context(|| format!("no {field} in {found}"))
    };
    let bytes = BASE64.decode(found["value"].as_str().context("no value")?)?;
    let object =
        serde_json::from_slice(&bytes).with_context(|| format!("{key} is not stored as JSON"))?;
    Ok(Some((
        Revision {
            resource_version: number("mod_revision")?,
            object,
        },
        number("version")?,
    )))
}
