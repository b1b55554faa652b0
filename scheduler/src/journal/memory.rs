//! A journal in memory, for tests and simulations: the same rules, nothing durable.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::{
    Append, BodyHash, CURSOR_BYTES_MAX, CURSORS_MAX, DEDUPE_AGED_OUT_PER_APPEND_MAX,
    DEDUPE_IDS_PER_SOURCE_MAX, DecisionRecord, DedupeEntry, DedupeKey, Error, Journal,
    NAME_BYTES_MAX, READ_BYTES_MAX, Record, SNAPSHOTS_KEPT, Snapshot, aged_out, check_append,
    check_follows, check_size, check_snapshot,
};

/// Bytes of records, decisions and snapshots after which a journal in memory is full.
pub const MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// (at_ms, index, ordinal): the order of one pool's decisions.
type DecisionKey = (i64, u64, u32);

#[derive(Clone, Debug)]
struct Remembered {
    hash: BodyHash,
    at_ms: i64,
    order: u64,
}

/// The ids of one source, by id and by age.
#[derive(Clone, Debug, Default)]
struct SourceIds {
    by_id: BTreeMap<String, Remembered>,
    by_age: BTreeMap<u64, String>,
}

/// A journal in memory.
#[derive(Clone, Debug)]
pub struct Memory {
    records: BTreeMap<u64, Record>,
    last_index: u64,
    last_at_ms: Option<i64>,
    snapshots: BTreeMap<u64, Vec<u8>>,
    cursors: BTreeMap<String, Vec<u8>>,
    sources: BTreeMap<String, SourceIds>,
    decisions: BTreeMap<String, BTreeMap<DecisionKey, Vec<u8>>>,
    dedupe_ids_per_source_max: u64,
    dedupe_evictions: u64,
    next_order: u64,
    size_bytes: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(DEDUPE_IDS_PER_SOURCE_MAX)
    }
}

impl Memory {
    /// An empty journal that remembers at most `dedupe_ids_per_source_max` ids per source.
    pub fn new(dedupe_ids_per_source_max: u64) -> Self {
        Self {
            records: BTreeMap::new(),
            last_index: 0,
            last_at_ms: None,
            snapshots: BTreeMap::new(),
            cursors: BTreeMap::new(),
            sources: BTreeMap::new(),
            decisions: BTreeMap::new(),
            dedupe_ids_per_source_max,
            dedupe_evictions: 0,
            next_order: 0,
            size_bytes: 0,
        }
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let grown = self.size_bytes + bytes as u64;
        if grown > MEMORY_BYTES_MAX {
            return Err(Error::Full {
                path: PathBuf::from("(memory)"),
                doing: "storing",
                source: io::Error::from(io::ErrorKind::StorageFull),
            });
        }
        self.size_bytes = grown;
        Ok(())
    }

    fn remember(&mut self, entry: &DedupeEntry<'_>, at_ms: i64) {
        let order = self.next_order;
        self.next_order += 1;
        let ids = self.sources.entry(entry.source.to_owned()).or_default();
        let remembered = Remembered {
            hash: entry.hash,
            at_ms,
            order,
        };
        if let Some(replaced) = ids.by_id.insert(entry.id.to_owned(), remembered) {
            ids.by_age.remove(&replaced.order);
        }
        ids.by_age.insert(order, entry.id.to_owned());
    }

    /// Forgets what is over the cap or aged out, oldest first.
    fn forget(&mut self, source: &str, now_ms: i64) {
        let Some(ids) = self.sources.get_mut(source) else {
            return;
        };
        let mut aged_left = DEDUPE_AGED_OUT_PER_APPEND_MAX;
        while let Some(oldest) = ids.by_age.first_entry() {
            let entry = ids.by_id.get(oldest.get());
            let aged = entry.is_none_or(|entry| aged_out(entry.at_ms, now_ms));
            let over = ids.by_id.len() as u64 > self.dedupe_ids_per_source_max;
            if !over && (!aged || aged_left == 0) {
                break;
            }
            aged_left = aged_left.saturating_sub(usize::from(aged));
            self.dedupe_evictions += u64::from(!aged);
            ids.by_id.remove(&oldest.remove());
        }
    }

    fn drop_decisions_before(&mut self, index: u64, stands: &dyn Fn(&str) -> bool) {
        for (pool, decisions) in &mut self.decisions {
            let before = |(_, of_index, _): &&(i64, u64, u32)| *of_index < index;
            let standing = decisions.keys().rev().find(before).copied();
            let standing = standing.filter(|_| stands(pool));
            decisions.retain(|key, bytes| {
                let keep = key.1 >= index || standing == Some(*key);
                if !keep {
                    self.size_bytes -= bytes.len() as u64;
                }
                keep
            });
        }
        self.decisions.retain(|_, decisions| !decisions.is_empty());
    }
}

impl Journal for Memory {
    fn last_index(&self) -> u64 {
        self.last_index
    }

    fn first_index(&self) -> u64 {
        self.records
            .first_key_value()
            .map_or(self.last_index + 1, |(index, _)| *index)
    }

    fn last_at_ms(&self) -> Option<i64> {
        self.last_at_ms
    }

    fn append(&mut self, expected_last: u64, entry: &Append<'_>) -> Result<u64, Error> {
        check_append(entry)?;
        check_follows(expected_last, self.last_index, entry.at_ms, self.last_at_ms)?;
        let decision_bytes: usize = entry.decisions.iter().map(|d| d.bytes.len()).sum();
        self.grow(entry.record.len() + decision_bytes)?;
        let index = self.last_index + 1;
        let record = Record {
            index,
            at_ms: entry.at_ms,
            bytes: entry.record.to_vec(),
        };
        self.records.insert(index, record);
        self.last_index = index;
        self.last_at_ms = Some(entry.at_ms);
        for key in entry.dedupe {
            self.remember(key, entry.at_ms);
        }
        for key in entry.dedupe {
            self.forget(key.source, entry.at_ms);
        }
        for decision in entry.decisions {
            let key = (decision.at_ms, decision.index, decision.ordinal);
            let of_pool = self.decisions.entry(decision.pool.clone()).or_default();
            if let Some(replaced) = of_pool.insert(key, decision.bytes.clone()) {
                self.size_bytes -= replaced.len() as u64;
            }
        }
        Ok(index)
    }

    fn read_from(&self, index: u64, max_records: usize) -> Result<Vec<Record>, Error> {
        let first_index = self.first_index();
        if index < first_index {
            return Err(Error::Truncated { index, first_index });
        }
        let mut bytes = 0;
        let mut records = Vec::new();
        for record in self.records.range(index..).take(max_records) {
            if bytes >= READ_BYTES_MAX {
                break;
            }
            bytes += record.1.bytes.len();
            records.push(record.1.clone());
        }
        Ok(records)
    }

    fn truncate_before(&mut self, index: u64, stands: &dyn Fn(&str) -> bool) -> Result<u64, Error> {
        let covered_before = self.snapshots.last_key_value().map_or(1, |(s, _)| s + 1);
        if index > covered_before {
            return Err(Error::NotCovered {
                index,
                covered_before,
            });
        }
        let kept = self.records.split_off(&index);
        let dropped = std::mem::replace(&mut self.records, kept);
        self.size_bytes -= dropped.values().map(|r| r.bytes.len() as u64).sum::<u64>();
        if !dropped.is_empty() {
            self.drop_decisions_before(index, stands);
        }
        Ok(dropped.len() as u64)
    }

    fn save_snapshot(&mut self, index: u64, bytes: &[u8]) -> Result<(), Error> {
        let newest = self.snapshots.last_key_value().map(|(index, _)| *index);
        check_snapshot(index, bytes, newest, self.first_index(), self.last_index)?;
        self.grow(bytes.len())?;
        if let Some(replaced) = self.snapshots.insert(index, bytes.to_vec()) {
            self.size_bytes -= replaced.len() as u64;
        }
        while self.snapshots.len() > SNAPSHOTS_KEPT {
            if let Some((_, dropped)) = self.snapshots.pop_first() {
                self.size_bytes -= dropped.len() as u64;
            }
        }
        Ok(())
    }

    fn latest_snapshot(&self) -> Result<Option<Snapshot>, Error> {
        let newest = self.snapshots.last_key_value();
        Ok(newest.map(|(index, bytes)| Snapshot {
            index: *index,
            bytes: bytes.clone(),
        }))
    }

    fn cursor(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.cursors.get(name).cloned())
    }

    fn save_cursor(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        check_size("cursor name", name.len(), NAME_BYTES_MAX)?;
        check_size("cursor", bytes.len(), CURSOR_BYTES_MAX)?;
        if !self.cursors.contains_key(name) {
            check_size("number of cursors", self.cursors.len() + 1, CURSORS_MAX)?;
        }
        self.cursors.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn seen(&self, keys: &[DedupeKey<'_>]) -> Result<Vec<Option<BodyHash>>, Error> {
        let now_ms = self.last_at_ms.unwrap_or(i64::MIN);
        let look_up = |key: &DedupeKey<'_>| {
            let remembered = self.sources.get(key.source)?.by_id.get(key.id)?;
            (!aged_out(remembered.at_ms, now_ms)).then_some(remembered.hash)
        };
        Ok(keys.iter().map(look_up).collect())
    }

    fn dedupe_evictions(&self) -> u64 {
        self.dedupe_evictions
    }

    fn decisions(
        &self,
        pool: &str,
        from_ms: i64,
        to_ms: i64,
        max: usize,
    ) -> Result<Vec<DecisionRecord>, Error> {
        let mut found = Vec::new();
        let Some(decisions) = self.decisions.get(pool).filter(|_| from_ms < to_ms) else {
            return Ok(found);
        };
        let mut size = 0;
        let range = (from_ms, 0, 0)..(to_ms, 0, 0);
        for ((at_ms, index, ordinal), bytes) in decisions.range(range).take(max) {
            if size >= READ_BYTES_MAX {
                break;
            }
            size += bytes.len();
            found.push(DecisionRecord {
                pool: pool.to_owned(),
                at_ms: *at_ms,
                index: *index,
                ordinal: *ordinal,
                bytes: bytes.clone(),
            });
        }
        Ok(found)
    }

    fn decision_at(&self, pool: &str, at_ms: i64) -> Result<Option<DecisionRecord>, Error> {
        let found = self
            .decisions
            .get(pool)
            .and_then(|decisions| decisions.range(..=(at_ms, u64::MAX, u32::MAX)).next_back());
        Ok(
            found.map(|((at_ms, index, ordinal), bytes)| DecisionRecord {
                pool: pool.to_owned(),
                at_ms: *at_ms,
                index: *index,
                ordinal: *ordinal,
                bytes: bytes.clone(),
            }),
        )
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn needs_reopen(&self) -> bool {
        false
    }

    fn reopen(&mut self) -> Result<u64, Error> {
        Ok(self.last_index)
    }
}
