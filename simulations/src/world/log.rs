//! The stand-in for the journal: one log shared by all replicas, compare-and-set.
//!
//! What is in it is durable; what dies on the way to it never was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_core::event::Event;
use sunward_core::protocol::outbox::Cursor;
use sunward_core::time::Timestamp;

/// One group as stored.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) at: Timestamp,
    pub(super) events: Arc<[Event]>,
}

/// The log and what is stored beside it.
#[derive(Debug, Default)]
pub(super) struct Log {
    last: u64,
    /// Records are kept only where somebody may read them again.
    pub(super) keep: bool,
    records: Vec<Record>,
    ids: BTreeSet<Arc<str>>,
    /// How far each federation's stream was written.
    pub(super) cursors: BTreeMap<Arc<str>, Cursor>,
    /// The newest snapshot, with its index.
    pub(super) snapshot: Option<(u64, Vec<u8>)>,
}

impl Log {
    pub(super) fn new(keep: bool) -> Log {
        Log {
            keep,
            ..Log::default()
        }
    }

    /// Everything is gone.
    pub(super) fn lose(&mut self) {
        *self = Log::new(self.keep);
    }

    /// Index of the last group.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Appends after `expected`, or says that somebody else did.
    pub(super) fn append(&mut self, expected: u64, record: Record) -> Result<u64, ()> {
        if expected != self.last {
            return Err(());
        }
        self.last += 1;
        for event in record.events.iter() {
            if let Event::SignalAccepted(level) = event
                && !level.id.is_empty()
            {
                self.ids.insert(level.id.clone());
            }
        }
        if self.keep {
            self.records.push(record);
        }
        Ok(self.last)
    }

    /// One more group, of a world in which nobody reads it again.
    pub(super) fn count(&mut self) {
        self.last += 1;
    }

    /// True when a reading of that id is durable.
    pub(super) fn has(&self, id: &Arc<str>) -> bool {
        self.ids.contains(id)
    }

    /// The group of an index, where it is kept.
    pub(super) fn record(&self, index: u64) -> Option<&Record> {
        self.records
            .get(usize::try_from(index.checked_sub(1)?).ok()?)
    }
}
