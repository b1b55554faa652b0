//! Which policy set was in force before the present one, and which set an operator took back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::document::SourceFile;
use sunward_policies::time::Timestamp;

use crate::event::PackedFile;

/// The present set's beginning, the set before it, and a set that was rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyHistory {
    /// Journal index from which on the present set is in force; 0 before the first.
    pub since_index: u64,
    /// The stamp of that index.
    pub since: Timestamp,
    /// What a rollback brings back. One set only: two steps back is a change of the files.
    pub before: Option<FormerSet>,
    /// The set that an operator took back. Files with its content stay out of force until they change.
    pub rolled_back: Option<RolledBack>,
}

/// A policy set that was in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerSet {
    /// Its files, deflated: they lie in every snapshot.
    pub files: Vec<PackedFile>,
    /// Journal index from which on it was in force.
    pub since_index: u64,
    /// The stamp of that index.
    pub since: Timestamp,
}

/// A rollback that still holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// The content hash of the set that was taken back.
    pub hash: Arc<str>,
    /// Who did it.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

impl PolicyHistory {
    /// Another set takes over from `old` at `index`, stamped `at`.
    pub fn replaced(&mut self, old: &[SourceFile], index: u64, at: Timestamp) {
        self.before = (self.since_index != 0).then(|| FormerSet {
            files: old.iter().map(PackedFile::pack).collect(),
            since_index: self.since_index,
            since: self.since,
        });
        self.since_index = index;
        self.since = at;
        self.rolled_back = None;
    }

    /// The set with that content was taken back: the one that took over is no way back to it.
    pub fn took_back(&mut self, hash: Arc<str>, by: String, at: Timestamp) {
        self.before = None;
        self.rolled_back = Some(RolledBack { hash, by, at });
    }
}
