//! The stand-in for Redis: a stream per federation, and a member that follows them.
//!
//! An entry whose `<term>-<sequence>` is not higher than the last one's is refused, unless it is
//! that very entry, which the real script drops as a duplicate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_core::action::Envelope;
use sunward_core::event::StreamEnd;
use sunward_core::protocol::outbox::Cursor;
use sunward_core::time::Timestamp;

/// Entries that a restart without full persistence forgets.
const ROLLED_BACK: usize = 2;

/// Redis.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) away_until: Timestamp,
    streams: BTreeMap<Arc<str>, Vec<Envelope>>,
    /// Where the member stands.
    read: BTreeMap<Arc<str>, Cursor>,
    acted: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// Why an entry was not taken.
#[derive(Debug)]
pub(super) enum Refused {
    Away,
    Fenced(StreamEnd),
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams {
            away_until: Timestamp::MIN,
            streams: BTreeMap::new(),
            read: BTreeMap::new(),
            acted: BTreeMap::new(),
        }
    }

    pub(super) fn is_away(&self, now: Timestamp) -> bool {
        now < self.away_until
    }

    /// Where the streams of these federations end.
    pub(super) fn ends(&self) -> Vec<StreamEnd> {
        let ends = self.streams.iter().filter_map(|(federation, entries)| {
            let last = entries.last()?;
            Some(StreamEnd {
                federation: federation.clone(),
                term: last.term,
                sequence: last.sequence,
            })
        });
        ends.collect()
    }

    /// The end of one stream.
    pub(super) fn end(&self, federation: &str) -> Cursor {
        let last = self
            .streams
            .get(federation)
            .and_then(|entries| entries.last());
        last.map_or_else(Cursor::default, Cursor::of)
    }

    /// Appends entries. Returns those sequence numbers that did not follow the one before.
    pub(super) fn publish(
        &mut self,
        now: Timestamp,
        entries: &[Envelope],
    ) -> Result<Vec<(u64, u64)>, Refused> {
        if self.is_away(now) {
            return Err(Refused::Away);
        }
        let mut gaps = Vec::new();
        for entry in entries {
            let stream = self.streams.entry(entry.federation.clone()).or_default();
            if let Some(last) = stream.last() {
                if Cursor::of(last) >= Cursor::of(entry) {
                    let same = |known: &&Envelope| {
                        Cursor::of(known) == Cursor::of(entry) && known.id == entry.id
                    };
                    if stream.iter().rev().find(same).is_some() {
                        continue;
                    }
                    return Err(Refused::Fenced(StreamEnd {
                        federation: entry.federation.clone(),
                        term: last.term,
                        sequence: last.sequence,
                    }));
                }
                if entry.sequence != last.sequence + 1 {
                    gaps.push((last.sequence, entry.sequence));
                }
            }
            stream.push(entry.clone());
        }
        self.read();
        Ok(gaps)
    }

    /// The member reads on; it acts once per id.
    fn read(&mut self) {
        for (federation, entries) in &self.streams {
            let at = self.read.entry(federation.clone()).or_default();
            let acted = self.acted.entry(federation.clone()).or_default();
            let first = entries.partition_point(|entry| Cursor::of(entry) <= *at);
            for entry in &entries[first..] {
                acted.insert(entry.id.clone());
                *at = Cursor::of(entry);
            }
        }
    }

    /// True when the member acted upon that id.
    pub(super) fn has_acted(&self, federation: &str, id: &str) -> bool {
        self.acted
            .get(federation)
            .is_some_and(|acted| acted.contains(id))
    }

    /// A restart without persistence. The member finds its place gone and begins anew.
    pub(super) fn empty(&mut self) {
        self.streams.clear();
        self.read.clear();
    }

    /// A restart that has lost the last entries. The member goes back to what is there.
    pub(super) fn roll_back(&mut self) {
        for (federation, entries) in &mut self.streams {
            entries.truncate(entries.len().saturating_sub(ROLLED_BACK));
            let end = entries.last().map_or_else(Cursor::default, Cursor::of);
            if let Some(at) = self.read.get_mut(federation) {
                *at = (*at).min(end);
            }
        }
    }
}
