//! The embedded journal: one redb file, one process, one volume.
//!
//! Responsible for making each append durable in one commit, for proving on opening that the file
//! is whole, and for settling what became of a write that failed. It must never return data whose
//! checksum is wrong, and never repair damage by forgetting records.
//!
//! How redb is set up, and why:
//! - Durability is immediate: `commit` returns after the `fdatasync` that holds the whole append.
//! - Two-phase commit stays off: it costs a second sync per commit. The one-phase commit is safe
//!   because redb verifies the newest commit's checksums after a crash and falls back to the one
//!   before it. That a damaged newest commit is not taken for an interrupted one is ensured by
//!   closing in two phases, and by the note of acknowledged indexes in the first page (`header.rs`).
//!   What remains: a bit that flips in the last commit before a loss of *power*.
//! - Quick repair stays off: it needs two-phase commit and writes the allocator's state with every
//!   commit. The price is that redb reads the whole file after a crash, which we want on any start.
//! - The cache is bounded by [`CACHE_BYTES_DEFAULT`]; redb's own default is 1 GiB.

mod dedupe;
mod header;
mod opening;
mod records;
mod storage;
mod tables;

#[cfg(test)]
pub(super) use self::header::first_page;
#[cfg(test)]
pub(super) use self::storage::{Handle, JournalFile, Storage as RawStorage};

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, WriteTransaction,
};

use self::dedupe::Ids;
use self::opening::{contained, create_file, error, open_database, open_file};
use self::records::{remove_before, store_decisions, store_record};
use self::storage::Storage;
use self::tables::{
    CURSORS, DECISIONS, RECORDS, SNAPSHOTS, Trouble, seal_snapshot, seal_text, unseal_decision,
    unseal_record, unseal_text, usable_snapshot,
};
use super::{
    Append, BodyHash, CURSOR_BYTES_MAX, CURSORS_MAX, DEDUPE_IDS_PER_SOURCE_MAX, DecisionRecord,
    DedupeKey, Error, Journal, NAME_BYTES_MAX, READ_BYTES_MAX, Record, SNAPSHOTS_KEPT, Snapshot,
    check_append, check_follows, check_size, check_snapshot,
};

/// Memory that redb may use for pages, in bytes.
pub const CACHE_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// Records that one commit of a truncation removes: bounds the memory and the pause.
const TRUNCATED_PER_COMMIT_MAX: u64 = 4_096;

/// How a journal file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For writing; created when it is absent.
    CreateIfAbsent,
    /// For writing; must exist.
    Existing,
    /// For reading, for example to replay a copy. The file is not changed, not even to repair what
    /// a crash left; a writer elsewhere is refused meanwhile, and this one while there is a writer.
    ReadOnly,
}

/// Settings of [`Redb::open`].
#[derive(Clone, Debug)]
pub struct Options {
    /// For writing or reading.
    pub access: Access,
    /// Memory for redb's pages, in bytes.
    pub cache_bytes: usize,
    /// Most ids remembered per source.
    pub dedupe_ids_per_source_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::CreateIfAbsent,
            cache_bytes: CACHE_BYTES_DEFAULT,
            dedupe_ids_per_source_max: DEDUPE_IDS_PER_SOURCE_MAX,
        }
    }
}

/// A journal in a redb file.
pub struct Redb {
    path: PathBuf,
    storage: Arc<Storage>,
    /// Present but while a failed database is being replaced.
    database: Option<Database>,
    options: Options,
    first_index: u64,
    last_index: u64,
    last_at_ms: Option<i64>,
    /// Cursors that go with the next commit.
    unsaved_cursors: BTreeMap<String, Vec<u8>>,
    cursor_names: BTreeSet<String>,
    ids: Ids,
    dedupe_evictions: u64,
    /// A write failed, or redb panicked: what is in memory can't be relied on.
    failed: Cell<bool>,
}

impl std::fmt::Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redb")
            .field("path", &self.path)
            .field("first_index", &self.first_index)
            .field("last_index", &self.last_index)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Redb {
    /// Opens the journal at `path`, and reads it through: every page's checksum, every record from
    /// the snapshot on.
    ///
    /// # Errors
    /// [`Error::InUse`] when another process has it open; [`Error::NotFound`];
    /// [`Error::NotAJournal`] for an empty or foreign file; [`Error::NewerFormat`];
    /// [`Error::Damaged`]; [`Error::Full`] and [`Error::Io`] when the storage refuses.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let absent = || path.try_exists().is_ok_and(|exists| !exists);
        if options.access == Access::CreateIfAbsent && absent() {
            create_file(path)?;
        }
        let raw = open_file(path, options.access != Access::ReadOnly)?;
        Self::open_storage(path, raw, options)
    }

    /// Opens a journal in a storage that is already locked; `path` is its name in errors.
    pub(crate) fn open_storage(
        path: &Path,
        raw: Arc<dyn StorageBackend>,
        options: Options,
    ) -> Result<Self, Error> {
        let storage = Storage::new(raw);
        let (database, extent) = open_database(path, &storage, &options)?;
        let journal = Self {
            path: path.to_owned(),
            storage,
            database: Some(database),
            options,
            first_index: extent.first_index,
            last_index: extent.last_index,
            last_at_ms: extent.last_at_ms,
            unsaved_cursors: BTreeMap::new(),
            cursor_names: extent.cursor_names,
            ids: extent.ids,
            dedupe_evictions: 0,
            failed: Cell::new(false),
        };
        if journal.options.access != Access::ReadOnly {
            // Opening commits, so that a record which landed before a crash is durable by now; from
            // here on the caller may act on it.
            journal.acknowledge(journal.last_index);
        }
        Ok(journal)
    }

    /// Makes an empty storage an empty journal.
    #[cfg(test)]
    pub(crate) fn create_storage(path: &Path, raw: Arc<dyn StorageBackend>) -> Result<(), Error> {
        opening::initialise(path, &Storage::new(raw))
    }

    /// Makes the cursors durable and closes the file, reporting what dropping would only log.
    pub fn close(mut self) -> Result<(), Error> {
        let flushed = match self.options.access {
            Access::ReadOnly => Ok(()),
            _ => self.flush(),
        };
        let closed = match self.database.take() {
            Some(database) => contained(&self.path, "closing", &self.after_last(), || {
                Ok(database.close()?)
            }),
            None => Ok(()),
        };
        let result = flushed.and(closed);
        if result.is_err() {
            self.settle_storage("closing")?;
        }
        result
    }

    /// After a failure: makes what is on the disk what reads back, see [`Storage`].
    fn settle_storage(&self, doing: &'static str) -> Result<(), Error> {
        self.storage
            .settle()
            .map_err(|source| error(&self.path, doing, 0, Trouble::Os(source)))
    }

    fn after_last(&self) -> Cell<u64> {
        Cell::new(self.last_index + 1)
    }

    fn database(&self) -> Result<&Database, Error> {
        match &self.database {
            Some(database) if !self.failed.get() => Ok(database),
            _ => Err(Error::NeedsReopen {
                path: self.path.clone(),
            }),
        }
    }

    /// Runs a read. Damage in what is read leaves the journal usable; a refusing storage or a panic
    /// inside redb does not.
    fn read<T>(
        &self,
        doing: &'static str,
        progress: &Cell<u64>,
        work: impl FnOnce(&ReadTransaction) -> Result<T, Trouble>,
    ) -> Result<T, Error> {
        let database = self.database()?;
        let finished = Cell::new(false);
        let result = contained(&self.path, doing, progress, || {
            let result = database
                .begin_read()
                .map_err(Trouble::from)
                .and_then(|txn| work(&txn));
            finished.set(!matches!(result, Err(Trouble::Os(_))));
            result
        });
        self.failed.set(!finished.get());
        result
    }

    /// Runs one write transaction, with the unsaved cursors, to its durable end. Whatever fails
    /// leaves the journal to be reopened: only then is it known whether the commit landed.
    fn write<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Ids, &WriteTransaction) -> Result<T, Trouble>,
    ) -> Result<T, Error> {
        if self.options.access == Access::ReadOnly {
            return Err(Error::ReadOnly {
                path: self.path.clone(),
            });
        }
        let database = self.database()?;
        let (cursors, ids) = (&self.unsaved_cursors, &self.ids);
        let result = contained(&self.path, doing, &self.after_last(), || {
            let txn = database.begin_write()?;
            let value = work(ids, &txn)?;
            if !cursors.is_empty() {
                let mut table = txn.open_table(CURSORS)?;
                for (name, bytes) in cursors {
                    table.insert(name.as_str(), seal_text(name, bytes).as_slice())?;
                }
            }
            txn.commit()?;
            Ok(value)
        });
        match result {
            Ok(value) => {
                self.unsaved_cursors.clear();
                Ok(value)
            }
            Err(error) => {
                self.failed.set(true);
                Err(error)
            }
        }
    }

    /// Notes an acknowledgement. The record is durable, so a failure here must not fail the append;
    /// the next write meets the same disk.
    fn acknowledge(&self, index: u64) {
        if let Err(error) = self.storage.acknowledge(index) {
            tracing::warn!(%error, path = %self.path.display(), index, "the acknowledged index could not be noted");
        }
    }

    fn drop_database(&mut self) {
        let database = self.database.take();
        // After a panic inside redb its locks may be poisoned, and dropping it may panic again.
        if catch_unwind(AssertUnwindSafe(|| drop(database))).is_err() {
            tracing::error!(path = %self.path.display(), "closing the failed journal panicked");
        }
    }

    fn newest_snapshot(&self) -> Result<Option<u64>, Error> {
        self.read("reading the snapshots", &self.after_last(), |txn| {
            let snapshots = txn.open_table(SNAPSHOTS)?;
            let newest = snapshots.last()?;
            Ok(newest.map(|(index, _)| index.value()))
        })
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        if self.database.is_none() {
            return;
        }
        if !self.unsaved_cursors.is_empty()
            && let Err(error) = self.flush()
        {
            tracing::warn!(%error, "the last cursors are lost; what they covered is published again");
        }
        self.drop_database();
        if self.failed.get()
            && let Err(error) = self.settle_storage("closing")
        {
            tracing::warn!(%error, "closed with a write that is not settled");
        }
    }
}

impl Journal for Redb {
    fn last_index(&self) -> u64 {
        self.last_index
    }

    fn first_index(&self) -> u64 {
        self.first_index
    }

    fn last_at_ms(&self) -> Option<i64> {
        self.last_at_ms
    }

    fn append(&mut self, expected_last: u64, entry: &Append<'_>) -> Result<u64, Error> {
        check_append(entry)?;
        self.database()?;
        check_follows(expected_last, self.last_index, entry.at_ms, self.last_at_ms)?;
        let index = self.last_index + 1;
        self.write("appending", |ids, txn| {
            store_record(txn, index, entry)?;
            store_decisions(txn, entry.decisions)?;
            ids.store(txn, (index, entry.at_ms), entry.dedupe)
        })?;
        self.acknowledge(index);
        self.last_index = index;
        self.last_at_ms = Some(entry.at_ms);
        self.dedupe_evictions += self.ids.remember(index, entry.at_ms, entry.dedupe);
        Ok(index)
    }

    fn read_from(&self, index: u64, max_records: usize) -> Result<Vec<Record>, Error> {
        let first_index = self.first_index;
        if index < first_index {
            return Err(Error::Truncated { index, first_index });
        }
        let last = self.last_index;
        let wanted = (last + 1).saturating_sub(index).min(max_records as u64);
        let progress = Cell::new(index);
        self.read("reading records", &progress, |txn| {
            let table = txn.open_table(RECORDS)?;
            let mut records = Vec::new();
            let mut bytes = 0;
            let mut next = index;
            for entry in table.range(index..index + wanted)? {
                if bytes >= READ_BYTES_MAX {
                    return Ok(records);
                }
                let (stored, value) = entry?;
                if stored.value() != next {
                    break;
                }
                let (at_ms, record) = unseal_record(next, value.value())?;
                bytes += record.len();
                records.push(Record {
                    index: next,
                    at_ms,
                    bytes: record.to_vec(),
                });
                next += 1;
                progress.set(next);
            }
            if next < index + wanted {
                return Err(Trouble::at(next, "the record is missing"));
            }
            Ok(records)
        })
    }

    fn truncate_before(&mut self, index: u64, stands: &dyn Fn(&str) -> bool) -> Result<u64, Error> {
        let covered_before = self.newest_snapshot()?.map_or(1, |newest| newest + 1);
        if index > covered_before {
            return Err(Error::NotCovered {
                index,
                covered_before,
            });
        }
        let mut removed = 0;
        while self.first_index < index {
            let first = self.first_index;
            let end = index.min(first + TRUNCATED_PER_COMMIT_MAX);
            self.write("truncating", |_, txn| {
                remove_before(txn, first, end, stands)
            })?;
            self.first_index = end;
            removed += end - first;
        }
        Ok(removed)
    }

    fn save_snapshot(&mut self, index: u64, bytes: &[u8]) -> Result<(), Error> {
        let newest = self.newest_snapshot()?;
        check_snapshot(index, bytes, newest, self.first_index, self.last_index)?;
        self.write("saving a snapshot", |_, txn| {
            let mut snapshots = txn.open_table(SNAPSHOTS)?;
            snapshots.insert(index, seal_snapshot(index, bytes).as_slice())?;
            let indexes = snapshots
                .iter()?
                .rev()
                .skip(SNAPSHOTS_KEPT)
                .map(|entry| entry.map(|(index, _)| index.value()))
                .collect::<Result<Vec<_>, _>>()?;
            for old in indexes {
                snapshots.remove(old)?;
            }
            Ok(())
        })
    }

    fn latest_snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.read("reading the snapshot", &self.after_last(), |txn| {
            usable_snapshot(&txn.open_table(SNAPSHOTS)?, self.first_index)
        })
    }

    fn cursor(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.database()?;
        if let Some(bytes) = self.unsaved_cursors.get(name) {
            return Ok(Some(bytes.clone()));
        }
        self.read("reading a cursor", &self.after_last(), |txn| {
            let value = txn.open_table(CURSORS)?.get(name)?;
            value.map_or(Ok(None), |value| {
                unseal_text("cursor", name, value.value()).map(|bytes| Some(bytes.to_vec()))
            })
        })
    }

    fn save_cursor(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        check_size("cursor name", name.len(), NAME_BYTES_MAX)?;
        check_size("cursor", bytes.len(), CURSOR_BYTES_MAX)?;
        if self.options.access == Access::ReadOnly {
            return Err(Error::ReadOnly {
                path: self.path.clone(),
            });
        }
        self.database()?;
        if !self.cursor_names.contains(name) {
            check_size(
                "number of cursors",
                self.cursor_names.len() + 1,
                CURSORS_MAX,
            )?;
            self.cursor_names.insert(name.to_owned());
        }
        self.unsaved_cursors.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.unsaved_cursors.is_empty() {
            return self.database().map(|_| ());
        }
        self.write("saving cursors", |_, _| Ok(()))
    }

    fn seen(&self, keys: &[DedupeKey<'_>]) -> Result<Vec<Option<BodyHash>>, Error> {
        self.database()?;
        let places = self.ids.places(keys, self.last_at_ms.unwrap_or(i64::MIN));
        if places.iter().all(Option::is_none) {
            return Ok(vec![None; keys.len()]);
        }
        self.read("looking up ids", &self.after_last(), |txn| {
            dedupe::seen(txn, keys, &places)
        })
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
        if from_ms >= to_ms {
            return Ok(Vec::new());
        }
        self.read("reading decisions", &self.after_last(), |txn| {
            let table = txn.open_table(DECISIONS)?;
            let mut found = Vec::new();
            let mut size = 0;
            let range = (pool, from_ms, 0, 0)..(pool, to_ms, 0, 0);
            for entry in table.range(range)?.take(max) {
                if size >= READ_BYTES_MAX {
                    break;
                }
                let (key, value) = entry?;
                let (_, at_ms, index, ordinal) = key.value();
                let bytes = unseal_decision(key.value(), value.value())?.to_vec();
                size += bytes.len();
                found.push(DecisionRecord {
                    pool: pool.to_owned(),
                    at_ms,
                    index,
                    ordinal,
                    bytes,
                });
            }
            Ok(found)
        })
    }

    fn decision_at(&self, pool: &str, at_ms: i64) -> Result<Option<DecisionRecord>, Error> {
        self.read("reading a decision", &self.after_last(), |txn| {
            let table = txn.open_table(DECISIONS)?;
            let until = (pool, i64::MIN, 0, 0)..=(pool, at_ms, u64::MAX, u32::MAX);
            let Some(entry) = table.range(until)?.next_back() else {
                return Ok(None);
            };
            let (key, value) = entry?;
            let (_, at_ms, index, ordinal) = key.value();
            Ok(Some(DecisionRecord {
                pool: pool.to_owned(),
                at_ms,
                index,
                ordinal,
                bytes: unseal_decision(key.value(), value.value())?.to_vec(),
            }))
        })
    }

    fn size_bytes(&self) -> u64 {
        self.storage.len().unwrap_or(0)
    }

    fn needs_reopen(&self) -> bool {
        self.failed.get() || self.database.is_none()
    }

    fn reopen(&mut self) -> Result<u64, Error> {
        if !self.needs_reopen() {
            return Ok(self.last_index);
        }
        self.drop_database();
        self.settle_storage("reopening")?;
        let (database, extent) = open_database(&self.path, &self.storage, &self.options)?;
        if extent.last_index < self.last_index {
            // The first page would say so too, if the file is still the one it was.
            return Err(Error::Damaged {
                path: self.path.clone(),
                first_unreadable_index: extent.last_index + 1,
                detail: format!("records up to {} were acknowledged", self.last_index),
            });
        }
        self.database = Some(database);
        self.first_index = extent.first_index;
        self.last_index = extent.last_index;
        self.last_at_ms = extent.last_at_ms;
        self.ids = extent.ids;
        self.failed.set(false);
        self.acknowledge(self.last_index);
        Ok(self.last_index)
    }
}
