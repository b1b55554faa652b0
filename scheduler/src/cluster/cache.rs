//! The newest known state of each pool's object, fed by the watch and by the answers to our own
//! writes. It never goes backwards, and says which change the engine has to hear of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_core::event::PoolObservation;

use super::object::Snapshot;

/// The pools of a cluster by what they live in: (namespace, MachineDeployment) -> pool.
pub(crate) type Targets = BTreeMap<(Arc<str>, Arc<str>), Arc<str>>;

/// What the engine is told about; a change of anything else is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Projection {
    wanted: u32,
    ready: u32,
    stopping: u32,
    term: Option<u64>,
}

impl Projection {
    fn of(snapshot: &Snapshot) -> Projection {
        Projection {
            wanted: snapshot.replicas,
            ready: snapshot.ready,
            stopping: snapshot.stopping(),
            term: snapshot.term,
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    snapshot: Option<Snapshot>,
    /// What the watch told last. The answers to our writes do not count: an answer can be lost
    /// between here and the engine, so the watch says it again.
    told: Option<Projection>,
}

/// One entry per pool of a cluster.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: BTreeMap<Arc<str>, Entry>,
}

impl Cache {
    /// Nothing is known of these pools yet.
    pub(crate) fn new(targets: &Targets) -> Cache {
        let entry = |pool: &Arc<str>| (pool.clone(), Entry::default());
        Cache {
            entries: targets.values().map(entry).collect(),
        }
    }

    /// The newest known state.
    pub(crate) fn get(&self, pool: &str) -> Option<&Snapshot> {
        self.entries.get(pool)?.snapshot.as_ref()
    }

    /// The watch saw the object; returns what the engine has to hear.
    pub(crate) fn seen(&mut self, pool: &Arc<str>, seen: Snapshot) -> Option<PoolObservation> {
        let entry = self.entries.get_mut(pool)?;
        let outdated = |known: &Snapshot| seen.version < known.version;
        if entry.snapshot.as_ref().is_some_and(outdated) {
            return None;
        }
        let projection = Projection::of(&seen);
        let observation = (entry.told != Some(projection)).then(|| seen.observation(pool));
        entry.told = Some(projection);
        entry.snapshot = Some(seen);
        observation
    }

    /// A write or a read of ours was answered with the object.
    pub(crate) fn answered(&mut self, pool: &str, answer: Snapshot) {
        if let Some(entry) = self.entries.get_mut(pool) {
            let outdated = |known: &Snapshot| answer.version <= known.version;
            if !entry.snapshot.as_ref().is_some_and(outdated) {
                entry.snapshot = Some(answer);
            }
        }
    }

    /// The watch saw the object's end, at `version`.
    pub(crate) fn gone(&mut self, pool: &str, version: u64) {
        if let Some(entry) = self.entries.get_mut(pool)
            && entry
                .snapshot
                .as_ref()
                .is_none_or(|known| known.version <= version)
        {
            *entry = Entry::default();
        }
    }

    /// A list of everything at `version` had none of these pools: they are gone.
    pub(crate) fn absent(&mut self, pools: &BTreeSet<Arc<str>>, version: u64) {
        for pool in pools {
            self.gone(pool, version);
        }
    }

    /// A new connection: what it lists counts, even if it is older than what was known (a
    /// cluster restored from a backup counts its versions from there).
    pub(crate) fn reset(&mut self) {
        for entry in self.entries.values_mut() {
            entry.snapshot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sunward_core::time::Timestamp;

    use super::*;

    fn snapshot(version: u64, replicas: u32, ready: u32) -> Snapshot {
        Snapshot {
            version,
            replicas,
            existing: ready,
            ready,
            term: Some(7),
            claim: None,
            command: None,
            changed_at: None,
        }
    }

    fn cache() -> (Cache, Arc<str>) {
        let pool: Arc<str> = "caiso-a".into();
        let targets = Targets::from([(("gpu".into(), "caiso-a".into()), pool.clone())]);
        (Cache::new(&targets), pool)
    }

    /// Wanted, ready, stopping and version of what the engine hears.
    fn heard(observation: Option<PoolObservation>) -> Option<(u32, u32, u32, u64)> {
        observation.map(|seen| (seen.wanted, seen.ready, seen.stopping, seen.version))
    }

    #[test]
    fn only_a_changed_projection_is_told_and_it_carries_the_newest_version() {
        let (mut cache, pool) = cache();
        assert_eq!(
            heard(cache.seen(&pool, snapshot(5, 3, 0))),
            Some((3, 0, 0, 5))
        );
        // A status write that changes nothing for us.
        let mut other = snapshot(6, 3, 0);
        other.command = Some("7.1".into());
        assert_eq!(heard(cache.seen(&pool, other)), None);
        assert_eq!(cache.get("caiso-a").unwrap().version, 6);
        assert_eq!(
            heard(cache.seen(&pool, snapshot(9, 3, 1))),
            Some((3, 1, 0, 9))
        );
        assert_eq!(
            heard(cache.seen(&pool, snapshot(10, 0, 1))),
            Some((0, 1, 1, 10))
        );
        let mut taken = snapshot(11, 0, 1);
        taken.term = Some(8);
        assert_eq!(cache.seen(&pool, taken).unwrap().term, Some(8));
        assert_eq!(
            heard(cache.seen(&"unknown".into(), snapshot(1, 1, 1))),
            None
        );
    }

    #[test]
    fn the_answer_to_a_write_is_newer_than_a_watch_that_lags() {
        let (mut cache, pool) = cache();
        let before = snapshot(5, 0, 0);
        cache.seen(&pool, before.clone());
        let after = before.scaled(8, 3, 0, Timestamp::from_millis(1_000));
        cache.answered(&pool, after.clone());
        // The watch is still at 7: nothing goes backwards, and nobody hears of it.
        assert_eq!(heard(cache.seen(&pool, snapshot(7, 0, 0))), None);
        assert_eq!(cache.get(&pool), Some(&after));
        // It arrives at the write: the engine may have lost the answer, so it is told.
        assert_eq!(
            heard(cache.seen(&pool, snapshot(8, 3, 0))),
            Some((3, 0, 0, 8))
        );
        // An answer that comes late changes nothing.
        cache.seen(&pool, snapshot(12, 1, 0));
        cache.answered(&pool, snapshot(9, 3, 0));
        assert_eq!(cache.get(&pool).unwrap().version, 12);
    }

    #[test]
    fn an_object_that_left_is_forgotten_unless_something_newer_is_known() {
        let (mut cache, pool) = cache();
        cache.seen(&pool, snapshot(5, 3, 3));
        cache.absent(&BTreeSet::from([pool.clone()]), 4);
        assert_eq!(cache.get(&pool).unwrap().version, 5);
        cache.gone(&pool, 6);
        assert_eq!(cache.get(&pool), None);
        // Made again just as it was: told again.
        assert_eq!(
            heard(cache.seen(&pool, snapshot(9, 3, 3))),
            Some((3, 3, 0, 9))
        );
    }

    #[test]
    fn a_new_connection_may_list_older_versions() {
        let (mut cache, pool) = cache();
        cache.seen(&pool, snapshot(50, 3, 3));
        cache.reset();
        assert_eq!(cache.get(&pool), None);
        assert_eq!(heard(cache.seen(&pool, snapshot(20, 3, 3))), None);
        assert_eq!(cache.get(&pool).unwrap().version, 20);
    }
}
