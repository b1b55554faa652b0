//! The engine and its journal as one thing: what is stepped is durable, and nothing else is.
//!
//! Recovery, group commit, snapshots and truncation live here, synchronous and without a clock:
//! the engine loop gives stamps and carries out effects.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use sunward_core::action::{Action, Decision, Effects};
use sunward_core::engine::Engine;
use sunward_core::event::Event;
use sunward_core::protocol::group::{Group, RecordError, Request, decode_record};
use sunward_core::time::{Span, Timestamp};

use crate::journal::{self, Append, DecisionRecord, DedupeEntry, Journal};

/// Groups after which a snapshot is taken, so that a start replays at most these.
pub const SNAPSHOT_GROUPS: u64 = 20_000;
/// Groups after which a snapshot that failed is tried again: it costs an encoding of the state.
const SNAPSHOT_RETRY_GROUPS: u64 = SNAPSHOT_GROUPS / 10;
/// Decisions that wait for the next append at most; the oldest go first, and are counted.
pub const DECISIONS_WAITING_MAX: usize = 65_536;
/// Their bytes at most.
pub const DECISION_BYTES_WAITING_MAX: usize = 64 * 1024 * 1024;
/// Records read at once during recovery.
const RECOVERY_RECORDS: usize = 1_024;
/// Groups kept behind the snapshot, by age.
pub const HISTORY: Span = Span::from_mins(30 * 24 * 60);

/// Why the engine and the journal can't go on together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal refused or failed.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A record is whole, but not understood.
    #[error("record {index}: {source}")]
    Record {
        /// Its index.
        index: u64,
        /// Why.
        source: RecordError,
    },
    /// The fleet or a policy in force does not pass this version's checks.
    #[error(
        "the fleet or the policies that were in force do not pass the checks of this version ({found}): start \
         the version that wrote the journal, mend the files there, and upgrade again"
    )]
    Files {
        /// What is wrong with them.
        found: String,
    },
    /// History before the oldest snapshot is gone.
    #[error(
        "index {to} can't be replayed: the journal begins at its snapshot of index {lowest}; ask for a later index"
    )]
    Forgotten {
        /// What was asked for.
        to: u64,
        /// The lowest index that can be replayed to.
        lowest: u64,
    },
    /// A snapshot is whole, but not understood.
    #[error(
        "the snapshot of index {index} was written by another version of the core ({source}): start the \
         version that wrote it, or start beside an empty journal"
    )]
    Snapshot {
        /// Its index.
        index: u64,
        /// Why.
        source: rmp_serde::decode::Error,
    },
}

/// Why a decision can't be looked up.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// Its record is whole, but not understood.
    #[error("the decision record was written by another version of the core ({0})")]
    Record(#[from] rmp_serde::decode::Error),
}

/// The engine and its journal.
pub struct Writer {
    engine: Engine,
    journal: Box<dyn Journal>,
    /// Decisions of groups already stepped, to be stored with the next groups.
    decisions: VecDeque<DecisionRecord>,
    decision_bytes: usize,
    decisions_dropped: u64,
    /// Index of the newest snapshot.
    snapshot_at: u64,
    /// Index from which on the next one is tried.
    snapshot_due: u64,
}

impl Writer {
    /// Recovers the engine: the newest snapshot, then every record after it.
    pub fn recover(journal: Box<dyn Journal>) -> Result<Writer, Error> {
        let (engine, snapshot_at) = restore_snapshot(journal.as_ref())?;
        if !engine.unreadable().is_empty() {
            return Err(Error::Files {
                found: engine.unreadable().join("; "),
            });
        }
        let mut writer = Writer {
            engine,
            journal,
            decisions: VecDeque::new(),
            decision_bytes: 0,
            decisions_dropped: 0,
            snapshot_at,
            snapshot_due: snapshot_at + SNAPSHOT_GROUPS,
        };
        // What the records asked for was done before, or is asked for anew after `started`.
        writer.catch_up(&mut |_, _| ())?;
        Ok(writer)
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The journal, to read.
    pub fn journal(&self) -> &dyn Journal {
        self.journal.as_ref()
    }

    /// The journal, for cursors.
    pub fn journal_mut(&mut self) -> &mut dyn Journal {
        self.journal.as_mut()
    }

    /// Steps every record that the engine has not seen, and hands its effects on.
    pub fn catch_up(&mut self, then: &mut dyn FnMut(&Engine, &Effects)) -> Result<(), Error> {
        let mut effects = Effects::default();
        loop {
            let next = self.engine.state().index + 1;
            let records = self.journal.read_from(next, RECOVERY_RECORDS)?;
            if records.is_empty() {
                return Ok(());
            }
            for record in records {
                let (at, events) =
                    decode_record(&record.bytes).map_err(|source| Error::Record {
                        index: record.index,
                        source,
                    })?;
                self.engine.step(at, &events, &mut effects);
                self.keep_decisions(&effects.decisions);
                then(&self.engine, &effects);
            }
        }
    }

    /// The stamp for a group taken now: engine time never goes back.
    pub fn stamp(&self, now: Timestamp) -> Timestamp {
        now.max(self.engine.state().at)
    }

    /// Makes the group durable, then steps it. On an error nothing was stepped.
    pub fn commit(
        &mut self,
        at: Timestamp,
        group: &mut Group,
        dedupe: &[DedupeEntry<'_>],
        effects: &mut Effects,
    ) -> Result<u64, journal::Error> {
        let record = group.record(at);
        let storing = self.storable();
        let entry = Append {
            at_ms: at.as_millis(),
            record,
            dedupe,
            decisions: &self.decisions.make_contiguous()[..storing],
        };
        let index = self.journal.append(self.engine.state().index, &entry)?;
        for stored in self.decisions.drain(..storing) {
            self.decision_bytes -= stored.bytes.len();
        }
        self.engine.step(at, group.events(), effects);
        debug_assert_eq!(index, self.engine.state().index, "one append, one step");
        self.keep_decisions(&effects.decisions);
        Ok(index)
    }

    /// Settles a failed write: if it did land after all, it is stepped now.
    pub fn reopen(&mut self, then: &mut dyn FnMut(&Engine, &Effects)) -> Result<(), Error> {
        self.journal.reopen()?;
        self.catch_up(then)
    }

    /// How many waiting decisions fit into one append.
    fn storable(&self) -> usize {
        let mut bytes = 0;
        let fits = self
            .decisions
            .iter()
            .take(journal::DECISIONS_PER_APPEND_MAX)
            .take_while(|decision| {
                bytes += decision.bytes.len();
                bytes <= journal::DECISION_BYTES_PER_APPEND_MAX
            });
        fits.count()
    }

    fn keep_decisions(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let bytes =
                rmp_serde::to_vec_named(decision).expect("a decision holds only encodable types");
            self.decision_bytes += bytes.len();
            self.decisions.push_back(DecisionRecord {
                pool: decision.pool.to_string(),
                at_ms: decision.at.as_millis(),
                index: decision.index,
                ordinal: 0,
                bytes,
            });
        }
        while self.decisions.len() > DECISIONS_WAITING_MAX
            || self.decision_bytes > DECISION_BYTES_WAITING_MAX
        {
            let Some(oldest) = self.decisions.pop_front() else {
                break;
            };
            self.decision_bytes -= oldest.bytes.len();
            self.decisions_dropped += 1;
        }
    }

    /// The decision that held for `pool` at `at`: the newest at or before it, stored or still waiting.
    pub fn decision_at(
        &self,
        pool: &str,
        at: Timestamp,
    ) -> Result<Option<Decision>, DecisionError> {
        let holds =
            |waiting: &&DecisionRecord| waiting.pool == pool && waiting.at_ms <= at.as_millis();
        // What waits is newer than everything that is stored.
        let waiting = self.decisions.iter().rev().find(holds);
        let stored = match waiting {
            Some(_) => None,
            None => self.journal.decision_at(pool, at.as_millis())?,
        };
        decoded(waiting.or(stored.as_ref()))
    }

    /// The first decision for `pool` later than `at`.
    pub fn decision_after(
        &self,
        pool: &str,
        at: Timestamp,
    ) -> Result<Option<Decision>, DecisionError> {
        let from_ms = at.as_millis().saturating_add(1);
        let stored = self.journal.decisions(pool, from_ms, i64::MAX, 1)?;
        let later = |waiting: &&DecisionRecord| waiting.pool == pool && waiting.at_ms >= from_ms;
        decoded(stored.first().or_else(|| self.decisions.iter().find(later)))
    }

    /// Decisions that were never stored because too many waited, since the start.
    pub fn decisions_dropped(&self) -> u64 {
        self.decisions_dropped
    }

    /// Takes a snapshot when one is due, and forgets what is older than the history window and
    /// covered. Decisions that wait would be lost behind it, so it waits for them.
    pub fn snapshot_if_due(&mut self) -> Result<bool, journal::Error> {
        let index = self.engine.state().index;
        if index < self.snapshot_due || !self.decisions.is_empty() {
            return Ok(false);
        }
        self.snapshot_due = index + SNAPSHOT_RETRY_GROUPS;
        self.snapshot()?;
        Ok(true)
    }

    /// Takes a snapshot now.
    pub fn snapshot(&mut self) -> Result<(), journal::Error> {
        let index = self.engine.state().index;
        if index == self.snapshot_at {
            return Ok(());
        }
        self.journal.save_snapshot(index, &self.engine.snapshot())?;
        self.snapshot_at = index;
        self.snapshot_due = index + SNAPSHOT_GROUPS;
        let keep_from = self.first_within(self.engine.state().at - HISTORY)?;
        let fleet = self.engine.fleet();
        let stands = |pool: &str| fleet.pool(pool).is_some();
        self.journal.truncate_before(keep_from, &stands)?;
        Ok(())
    }

    /// The lowest stored index whose stamp is `since` or later. Stamps never fall, so halving finds it.
    fn first_within(&self, since: Timestamp) -> Result<u64, journal::Error> {
        let (mut low, mut high) = (self.journal.first_index(), self.journal.last_index() + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let records = self.journal.read_from(middle, 1)?;
            match records.first() {
                Some(record) if record.at_ms < since.as_millis() => low = middle + 1,
                _ => high = middle,
            }
        }
        // The newest snapshot covers what lies before it; never truncate beyond.
        Ok(low.min(self.snapshot_at + 1))
    }

    /// Decisions, cursors and snapshot made durable, for a clean stop.
    pub fn close(mut self) -> Result<(), journal::Error> {
        while !self.decisions.is_empty() {
            // One more group carries what would else be lost behind the snapshot.
            let mut tick = Group::default();
            tick.add(Request::new(vec![Event::Tick]).expect("a tick fits into a group"));
            self.commit(
                self.engine.state().at,
                &mut tick,
                &[],
                &mut Effects::default(),
            )?;
            if self.storable() == 0 {
                break;
            }
        }
        self.snapshot()?;
        self.journal.flush()
    }
}

fn decoded(record: Option<&DecisionRecord>) -> Result<Option<Decision>, DecisionError> {
    Ok(record
        .map(|record| rmp_serde::from_slice(&record.bytes))
        .transpose()?)
}

fn restore_snapshot(journal: &dyn Journal) -> Result<(Engine, u64), Error> {
    let Some(snapshot) = journal.latest_snapshot()? else {
        return Ok((Engine::new(), 0));
    };
    let state = Engine::decode_snapshot(&snapshot.bytes).map_err(|source| Error::Snapshot {
        index: snapshot.index,
        source,
    })?;
    Ok((Engine::restore(state), snapshot.index))
}

/// What `sunward replay` prints: the decisions of a stretch of history, and the state's digest.
pub struct Replay {
    /// The last index stepped.
    pub index: u64,
    /// The engine at that index.
    pub engine: Engine,
    /// Every decision on the way.
    pub decisions: Vec<Decision>,
    /// Every scale write that was asked for on the way, retries included.
    pub scales: Vec<ReplayedScale>,
}

/// A scale write as the core asked for it; writes of one generation say the same replicas.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReplayedScale {
    /// The journal index that led to it.
    pub index: u64,
    /// The pool.
    pub pool: Arc<str>,
    /// The writing term.
    pub term: u64,
    /// The ledger's generation: one generation moves the replicas at most once.
    pub generation: u64,
    /// Workers that should remain.
    pub replicas: u32,
}

/// Runs the history of `journal` through the core, up to `to` (inclusive) where given.
///
/// The oldest stored snapshot is where it begins if the first records are gone.
pub fn replay(journal: &dyn Journal, to: Option<u64>) -> Result<Replay, Error> {
    let last = to.unwrap_or(u64::MAX).min(journal.last_index());
    let mut engine = Engine::new();
    if journal.first_index() > 1 {
        engine = restore_snapshot(journal)?.0;
        let lowest = engine.state().index;
        if last < lowest {
            return Err(Error::Forgotten { to: last, lowest });
        }
    }
    let (mut decisions, mut scales) = (Vec::new(), Vec::new());
    let mut effects = Effects::default();
    while engine.state().index < last {
        let next = engine.state().index + 1;
        let records = journal.read_from(next, RECOVERY_RECORDS)?;
        if records.is_empty() {
            break;
        }
        for record in records
            .into_iter()
            .take_while(|record| record.index <= last)
        {
            let (at, events) = decode_record(&record.bytes).map_err(|source| Error::Record {
                index: record.index,
                source,
            })?;
            engine.step(at, &events, &mut effects);
            decisions.append(&mut effects.decisions);
            scales.extend(
                effects
                    .actions
                    .iter()
                    .filter_map(|action| replayed_scale(record.index, action)),
            );
        }
    }
    Ok(Replay {
        index: engine.state().index,
        engine,
        decisions,
        scales,
    })
}

fn replayed_scale(index: u64, action: &Action) -> Option<ReplayedScale> {
    let Action::Scale(scale) = action else {
        return None;
    };
    Some(ReplayedScale {
        index,
        pool: scale.pool.clone(),
        term: scale.term,
        generation: scale.generation,
        replicas: scale.replicas,
    })
}

/// The file name of the journal in a data folder.
pub const JOURNAL_FILE: &str = "journal.redb";

/// The journal's path in a data folder.
pub fn journal_path(data: &Path) -> std::path::PathBuf {
    data.join(JOURNAL_FILE)
}
