//! The journal: one ordered log with one writer, and the small indexes that must change in the same
//! commit as the log (duplicates, decision records, cursors, snapshots).
//!
//! A record is one group of events as stored; the journal never looks inside. It orders records,
//! makes them durable before `append` returns, proves on reading that they are what was written,
//! and forgets them only when told to. It must never decide anything, never read a clock, and
//! never hand out bytes whose checksum is wrong.
//!
//! The trait is synchronous because its only caller, the engine loop, is one thread of its own that
//! owns the engine and the journal. An implementation that talks to a network blocks on its runtime.

mod error;
mod memory;
mod redb;

#[cfg(test)]
mod fault;
#[cfg(test)]
mod tests;

pub use error::{Error, ErrorKind};
pub use memory::{MEMORY_BYTES_MAX, Memory};
pub use redb::{Access, CACHE_BYTES_DEFAULT, Options, Redb};

/// Version of the layout of a journal file. A file with a higher one is refused.
pub const FORMAT_VERSION: u32 = 1;
/// Largest record, in bytes (one group of events as encoded).
pub const GROUP_BYTES_MAX: usize = 768 * 1024;
/// Most duplicate keys in one append: a group has at most this many events.
pub const DEDUPE_ENTRIES_PER_APPEND_MAX: usize = 1_024;
/// How long an (source, id) pair is remembered, in milliseconds of journal time: 7 days.
pub const DEDUPE_AGE_MS: i64 = 7 * 24 * 3_600 * 1_000;
/// Most ids remembered per source; the oldest is evicted, and counted, beyond that.
pub const DEDUPE_IDS_PER_SOURCE_MAX: u64 = 1_000_000;
/// Most ids remembered in all; beyond that the oldest of any source is evicted, and counted.
pub const DEDUPE_IDS_MAX: usize = 4_000_000;
/// Most sources whose ids are remembered; the one whose oldest id is the oldest goes first.
pub const DEDUPE_SOURCES_MAX: usize = 20_000;
/// Aged-out ids forgotten per append, so that no commit grows with the length of a pause.
pub const DEDUPE_AGED_OUT_PER_APPEND_MAX: usize = 2_048;
/// Most decision records in one append.
pub const DECISIONS_PER_APPEND_MAX: usize = 16_384;
/// Most bytes of decision records in one append.
pub const DECISION_BYTES_PER_APPEND_MAX: usize = 32 * 1024 * 1024;
/// Longest source, id, pool or cursor name, in bytes.
pub const NAME_BYTES_MAX: usize = 1_024;
/// Largest cursor, in bytes.
pub const CURSOR_BYTES_MAX: usize = 64 * 1024;
/// Most cursors (one per sink and federation).
pub const CURSORS_MAX: usize = 4_096;
/// Largest snapshot, in bytes.
pub const SNAPSHOT_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Snapshots kept: the newest, and the one before it in case the newest can't be read.
pub const SNAPSHOTS_KEPT: usize = 2;
/// Bytes after which `read_from` and `decisions` stop early (they always return at least one entry).
pub const READ_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Digest of a request's body, to tell a repeat from a different request under the same id.
pub type BodyHash = [u8; 32];

/// What one call of [`Journal::append`] makes durable, all of it or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// The group's stamp, in milliseconds since 1970 (UTC). Never below the previous append's.
    pub at_ms: i64,
    /// The group as encoded, at most [`GROUP_BYTES_MAX`].
    pub record: &'a [u8],
    /// Ids to remember from now on, at most [`DEDUPE_ENTRIES_PER_APPEND_MAX`].
    pub dedupe: &'a [DedupeEntry<'a>],
    /// Decision records of earlier indexes (a group's decisions are known only once it was stepped).
    pub decisions: &'a [DecisionRecord],
}

/// An id to be remembered, with the digest of the body it came with.
#[derive(Clone, Copy, Debug)]
pub struct DedupeEntry<'a> {
    /// Who sent it; ids are unique per source.
    pub source: &'a str,
    /// The sender's id.
    pub id: &'a str,
    /// Digest of the body.
    pub hash: BodyHash,
}

/// A question to [`Journal::seen`].
#[derive(Clone, Copy, Debug)]
pub struct DedupeKey<'a> {
    /// Who sent it.
    pub source: &'a str,
    /// The sender's id.
    pub id: &'a str,
}

/// Why a verdict changed, for `explain`. The key is (pool, at_ms, index, ordinal); storing the same
/// key again replaces the entry, so that a replay after a crash may simply store them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The pool it is about.
    pub pool: String,
    /// The stamp of the group that caused it, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The index of the group that caused it.
    pub index: u64,
    /// Which decision of that pool in that group, from 0.
    pub ordinal: u32,
    /// The decision as encoded; the journal never looks inside.
    pub bytes: Vec<u8>,
}

/// One stored group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the order; the first ever is 1.
    pub index: u64,
    /// Its stamp, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The group as encoded.
    pub bytes: Vec<u8>,
}

/// The engine's state after the record `index` was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that went into it.
    pub index: u64,
    /// The state as encoded.
    pub bytes: Vec<u8>,
}

/// One ordered log with one writer, with snapshots, cursors and indexes beside it.
///
/// # Errors
/// Reads fail with [`Error::Damaged`] when something stored can't be read whole: nothing is ever
/// returned that differs from what was written. After a failed write see [`Journal::needs_reopen`].
pub trait Journal: Send {
    /// Index of the newest record; 0 when there has never been one.
    fn last_index(&self) -> u64;

    /// Lowest index still stored; `last_index() + 1` when no record is.
    fn first_index(&self) -> u64;

    /// Stamp of the newest append that is known, in milliseconds since 1970 (UTC).
    fn last_at_ms(&self) -> Option<i64>;

    /// Adds one record if `expected_last` is still the last index (compare-and-set), with its
    /// duplicate keys and decision records, in ONE durable commit. Returns the new record's index.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::TooLarge`] and [`Error::Backwards`] change nothing. After
    /// [`Error::Full`] and [`Error::Io`] the record counts as not appended; whether it did land is
    /// known after [`Journal::reopen`].
    fn append(&mut self, expected_last: u64, entry: &Append<'_>) -> Result<u64, Error>;

    /// Up to `max_records` records from `index` on: contiguous, each one's checksum verified. Stops
    /// early after [`READ_BYTES_MAX`]; empty when `index` lies beyond the last.
    ///
    /// # Errors
    /// [`Error::Truncated`] when `index` is no longer stored; [`Error::Damaged`].
    fn read_from(&self, index: u64, max_records: usize) -> Result<Vec<Record>, Error>;

    /// Forgets the records below `index` and the decision records they caused. Returns how many
    /// records went. Done in several commits when there are many, so a crash may leave it half done.
    ///
    /// Of a pool for which `stands` is true the newest of those decisions is kept: it says why the
    /// pool still stands where it stands.
    ///
    /// # Errors
    /// [`Error::NotCovered`] when `index` lies beyond the newest snapshot's index + 1.
    fn truncate_before(&mut self, index: u64, stands: &dyn Fn(&str) -> bool) -> Result<u64, Error>;

    /// Stores the state after record `index`, and forgets all but the newest [`SNAPSHOTS_KEPT`].
    ///
    /// # Errors
    /// [`Error::SnapshotIndex`] when `index` is beyond the last record, or below the newest snapshot.
    fn save_snapshot(&mut self, index: u64, bytes: &[u8]) -> Result<(), Error>;

    /// The newest snapshot that can be read and after which every record is still stored.
    ///
    /// # Errors
    /// [`Error::Damaged`] when snapshots are stored but none is usable.
    fn latest_snapshot(&self) -> Result<Option<Snapshot>, Error>;

    /// The cursor saved under `name`, as last saved in this process or made durable before it.
    fn cursor(&self, name: &str) -> Result<Option<Vec<u8>>, Error>;

    /// Saves a cursor. It becomes durable with the next append, snapshot, truncation or `flush`, not
    /// at once: a cursor that a crash loses only means that something is published again, under
    /// the same id, and a commit of its own would double the cost of an event.
    fn save_cursor(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error>;

    /// Makes the saved cursors durable.
    fn flush(&mut self) -> Result<(), Error>;

    /// For each key the digest stored for it within the last [`DEDUPE_AGE_MS`] before the newest
    /// append, in the order of `keys`.
    fn seen(&self, keys: &[DedupeKey<'_>]) -> Result<Vec<Option<BodyHash>>, Error>;

    /// Ids forgotten before their time because their source had more than the cap, since opening.
    fn dedupe_evictions(&self) -> u64;

    /// Decision records of `pool` with `from_ms <= at_ms < to_ms`, oldest first, at most `max`.
    fn decisions(
        &self,
        pool: &str,
        from_ms: i64,
        to_ms: i64,
        max: usize,
    ) -> Result<Vec<DecisionRecord>, Error>;

    /// The newest decision record of `pool` with `at_ms` at or before this one: what held then.
    fn decision_at(&self, pool: &str, at_ms: i64) -> Result<Option<DecisionRecord>, Error>;

    /// Bytes the journal occupies.
    fn size_bytes(&self) -> u64;

    /// True after a write failed: every call but the getters then returns [`Error::NeedsReopen`]
    /// until [`Journal::reopen`] succeeds. `last_index` still says what was last acknowledged.
    fn needs_reopen(&self) -> bool;

    /// Settles what became of a failed write, and returns the true last index. When it is higher
    /// than before, the append that failed did land: read it with [`Journal::read_from`] before
    /// going on. Does nothing when no write had failed.
    fn reopen(&mut self) -> Result<u64, Error>;
}

/// The checks of an append that don't depend on where it goes.
fn check_append(entry: &Append<'_>) -> Result<(), Error> {
    check_size("record", entry.record.len(), GROUP_BYTES_MAX)?;
    check_size(
        "number of duplicate keys",
        entry.dedupe.len(),
        DEDUPE_ENTRIES_PER_APPEND_MAX,
    )?;
    check_size(
        "number of decision records",
        entry.decisions.len(),
        DECISIONS_PER_APPEND_MAX,
    )?;
    for key in entry.dedupe {
        check_size("source", key.source.len(), NAME_BYTES_MAX)?;
        check_size("id", key.id.len(), NAME_BYTES_MAX)?;
    }
    let mut decision_bytes = 0;
    for decision in entry.decisions {
        check_size("pool", decision.pool.len(), NAME_BYTES_MAX)?;
        decision_bytes += decision.bytes.len();
    }
    check_size(
        "decision records",
        decision_bytes,
        DECISION_BYTES_PER_APPEND_MAX,
    )
}

/// Refuses what is larger than its named bound.
fn check_size(what: &'static str, size: usize, max: usize) -> Result<(), Error> {
    if size > max {
        return Err(Error::TooLarge { what, size, max });
    }
    Ok(())
}

/// Refuses an append that does not follow the last one.
fn check_follows(
    expected_last: u64,
    last: u64,
    at_ms: i64,
    last_at_ms: Option<i64>,
) -> Result<(), Error> {
    if expected_last != last {
        return Err(Error::Conflict {
            expected: expected_last,
            last,
        });
    }
    match last_at_ms {
        Some(last_at_ms) if at_ms < last_at_ms => Err(Error::Backwards { at_ms, last_at_ms }),
        _ => Ok(()),
    }
}

/// Refuses a snapshot of a state that the log does not have, or an older one than the newest.
fn check_snapshot(
    index: u64,
    bytes: &[u8],
    newest: Option<u64>,
    first: u64,
    last: u64,
) -> Result<(), Error> {
    check_size("snapshot", bytes.len(), SNAPSHOT_BYTES_MAX)?;
    let lowest = newest.unwrap_or(0).max(first.saturating_sub(1));
    if index < lowest || index > last {
        return Err(Error::SnapshotIndex {
            index,
            lowest,
            last,
        });
    }
    Ok(())
}

/// Whether an id stored at `at_ms` is too old at `now_ms` to count as seen.
fn aged_out(at_ms: i64, now_ms: i64) -> bool {
    at_ms < now_ms.saturating_sub(DEDUPE_AGE_MS)
}
