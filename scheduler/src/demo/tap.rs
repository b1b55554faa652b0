//! A journal that also hands every record to someone who follows it.
//!
//! The follower folds the records through an engine of its own, as every replica of a daemon
//! does, so it sees exactly what the loop's engine saw without ever standing in its way.

use sunward_core::action::Effects;
use sunward_core::engine::Engine;
use sunward_core::protocol::group::{RecordError, decode_record};
use sunward_core::time::Timestamp;
use tokio::sync::mpsc;

use super::score::Score;
use crate::journal::{
    Append, BodyHash, DecisionRecord, DedupeKey, Error, Journal, Memory, Record, Snapshot,
};

/// Records that wait for the follower at most; the loop then waits for it. The follower looks
/// ten times a second, and the demo journals a few records in that time.
pub const RECORDS_MAX: usize = 4_096;

/// A journal in memory with a tap.
pub struct Tap {
    journal: Memory,
    records: mpsc::Sender<Vec<u8>>,
}

/// Folds the records that come through a [`Tap`].
pub struct Follower {
    engine: Engine,
    /// The account of what was followed.
    pub score: Score,
    records: mpsc::Receiver<Vec<u8>>,
    effects: Effects,
    end: Timestamp,
}

/// A journal in memory, and the follower of it that keeps `score` up to `end`.
pub fn tapped(score: Score, end: Timestamp) -> (Tap, Follower) {
    let (sender, records) = mpsc::channel(RECORDS_MAX);
    let follower = Follower {
        engine: Engine::new(),
        score,
        records,
        effects: Effects::default(),
        end,
    };
    (
        Tap {
            journal: Memory::default(),
            records: sender,
        },
        follower,
    )
}

impl Follower {
    /// Takes in what was journaled, and accounts up to `now`.
    pub fn catch_up(&mut self, now: Timestamp) -> Result<(), RecordError> {
        while let Ok(record) = self.records.try_recv() {
            let (at, events) = decode_record(&record)?;
            if at >= self.end {
                continue;
            }
            self.score.advance(&self.engine, at);
            self.engine.step(at, &events, &mut self.effects);
            self.score.record(&self.engine, at, &events, &self.effects);
        }
        // A group that is stamped already may still be on its way: stay behind it.
        self.score.look(&self.engine, now.min(self.end));
        Ok(())
    }

    /// Accounts up to `now`, after which nothing more is journaled.
    pub fn finish(&mut self, now: Timestamp) -> Result<(), RecordError> {
        self.catch_up(now)?;
        self.score.advance(&self.engine, now.min(self.end));
        Ok(())
    }

    /// The follower's engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Journal for Tap {
    fn append(&mut self, expected_last: u64, entry: &Append<'_>) -> Result<u64, Error> {
        let index = self.journal.append(expected_last, entry)?;
        // Nobody follows any more once the demo is over.
        let _ = self.records.blocking_send(entry.record.to_vec());
        Ok(index)
    }

    fn last_index(&self) -> u64 {
        self.journal.last_index()
    }

    fn first_index(&self) -> u64 {
        self.journal.first_index()
    }

    fn last_at_ms(&self) -> Option<i64> {
        self.journal.last_at_ms()
    }

    fn read_from(&self, index: u64, max_records: usize) -> Result<Vec<Record>, Error> {
        self.journal.read_from(index, max_records)
    }

    fn truncate_before(&mut self, index: u64, stands: &dyn Fn(&str) -> bool) -> Result<u64, Error> {
        self.journal.truncate_before(index, stands)
    }

    fn save_snapshot(&mut self, index: u64, bytes: &[u8]) -> Result<(), Error> {
        self.journal.save_snapshot(index, bytes)
    }

    fn latest_snapshot(&self) -> Result<Option<Snapshot>, Error> {
        self.journal.latest_snapshot()
    }

    fn cursor(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.journal.cursor(name)
    }

    fn save_cursor(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.journal.save_cursor(name, bytes)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.journal.flush()
    }

    fn seen(&self, keys: &[DedupeKey<'_>]) -> Result<Vec<Option<BodyHash>>, Error> {
        self.journal.seen(keys)
    }

    fn dedupe_evictions(&self) -> u64 {
        self.journal.dedupe_evictions()
    }

    fn decisions(
        &self,
        pool: &str,
        from_ms: i64,
        to_ms: i64,
        max: usize,
    ) -> Result<Vec<DecisionRecord>, Error> {
        self.journal.decisions(pool, from_ms, to_ms, max)
    }

    fn decision_at(&self, pool: &str, at_ms: i64) -> Result<Option<DecisionRecord>, Error> {
        self.journal.decision_at(pool, at_ms)
    }

    fn size_bytes(&self) -> u64 {
        self.journal.size_bytes()
    }

    fn needs_reopen(&self) -> bool {
        self.journal.needs_reopen()
    }

    fn reopen(&mut self) -> Result<u64, Error> {
        self.journal.reopen()
    }
}
