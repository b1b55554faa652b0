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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::action::Effects;
    use crate::engine::Engine;
    use crate::event::Event;

    const POLICY: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: NAME}
spec:
  pools: {energy: surplus}
  signals:
    carbon: {source: w, kind: carbon_intensity, scope: site, max_age: 10m, on_missing: {hold: 10m, then: release}}
  activate: {when: carbon < 100}
";

    fn set(name: &str) -> Vec<SourceFile> {
        vec![SourceFile {
            path: "p.yaml".into(),
            text: POLICY.replace("NAME", name),
        }]
    }

    /// Journals a set, and that another was taken back where `taken_back` says so.
    fn load(engine: &mut Engine, name: &str, taken_back: Option<&str>) {
        let at = Timestamp::from_millis(1_000 * (engine.state().index as i64 + 1));
        let files = set(name).iter().map(PackedFile::pack).collect();
        let mut events = vec![Event::PoliciesReplaced { files }];
        events.extend(taken_back.map(|hash| Event::PoliciesRolledBack {
            hash: hash.into(),
            by: "ops".into(),
        }));
        engine.step(at, &events, &mut Effects::default());
    }

    fn before(engine: &Engine) -> Option<Vec<SourceFile>> {
        let former = engine.state().policy_history.before.as_ref()?;
        Some(
            former
                .files
                .iter()
                .map(|file| file.unpack().unwrap())
                .collect(),
        )
    }

    #[test]
    fn the_set_before_is_kept_and_a_rollback_ends_with_the_next_set() {
        let mut engine = Engine::new();
        load(&mut engine, "first", None);
        assert_eq!(
            before(&engine),
            None,
            "nothing was in force before the first"
        );
        load(&mut engine, "second", None);
        assert_eq!(before(&engine), Some(set("first")));
        let history = &engine.state().policy_history;
        assert_eq!(
            (
                history.since_index,
                history.before.as_ref().unwrap().since_index
            ),
            (2, 1)
        );
        // The same set again is no other set.
        load(&mut engine, "second", None);
        assert_eq!(before(&engine), Some(set("first")));
        assert_eq!(engine.state().policy_history.since_index, 2);

        load(&mut engine, "first", Some("hash of second"));
        assert_eq!(engine.state().policies, set("first"));
        assert_eq!(before(&engine), None, "one step back");
        let rolled_back = engine.state().policy_history.rolled_back.clone().unwrap();
        assert_eq!(
            (rolled_back.hash.as_ref(), rolled_back.by.as_str()),
            ("hash of second", "ops")
        );
        let restored = Engine::restore(Engine::decode_snapshot(&engine.snapshot()).unwrap());
        assert_eq!(
            restored.state().policy_history,
            engine.state().policy_history
        );

        // Files that hold again what is in force end the rollback, and so does another set.
        load(&mut engine, "first", None);
        assert_eq!(engine.state().policy_history.rolled_back, None);
        load(&mut engine, "first", Some("hash of second"));
        load(&mut engine, "third", None);
        assert_eq!(engine.state().policy_history.rolled_back, None);
        assert_eq!(before(&engine), Some(set("first")));
    }
}
