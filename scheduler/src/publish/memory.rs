//! An event sink that keeps what it is given: for tests, and for the demo, which has no Redis.
//!
//! It takes and refuses exactly what a stream does: an envelope whose position is not higher
//! than the last one's is fenced, unless it is that very envelope.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sunward_core::action::Envelope;
use sunward_core::event::StreamEnd;
use sunward_core::protocol::outbox::Cursor;
use sunward_core::rounds::OUTBOX_MAX;

use super::{EventSink, SinkError, SiteNow};

#[derive(Debug, Default)]
struct Kept {
    streams: BTreeMap<Arc<str>, VecDeque<Envelope>>,
    sites: BTreeMap<(Arc<str>, Arc<str>), SiteNow>,
    taken: u64,
}

/// Keeps the last [`OUTBOX_MAX`] envelopes of each federation, and the last state of each site.
#[derive(Debug, Default)]
pub struct MemorySink {
    kept: Mutex<Kept>,
}

impl MemorySink {
    /// A sink that holds nothing yet.
    pub fn new() -> MemorySink {
        MemorySink::default()
    }

    /// The envelopes of one federation, oldest first.
    pub fn envelopes(&self, federation: &str) -> Vec<Envelope> {
        let kept = self.lock();
        let stream = kept.streams.get(federation);
        stream.into_iter().flatten().cloned().collect()
    }

    /// The state that a site of a federation was last restated with.
    pub fn restated(&self, federation: &str, site: &str) -> Option<SiteNow> {
        let key = (Arc::from(federation), Arc::from(site));
        self.lock().sites.get(&key).cloned()
    }

    /// Envelopes taken so far, those forgotten since included; a duplicate counts once.
    pub fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// Forgets what it holds, as a server without persistence does when it restarts.
    pub fn clear(&self) {
        let mut kept = self.lock();
        kept.streams.clear();
        kept.sites.clear();
    }

    /// Nothing is left half done by a panic: each change is one insertion.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl EventSink for MemorySink {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn ends(&self, federations: &[Arc<str>]) -> Result<Vec<StreamEnd>, SinkError> {
        let kept = self.lock();
        let end = |federation: &Arc<str>| {
            let last = kept.streams.get(federation)?.back()?;
            Some(StreamEnd {
                federation: federation.clone(),
                term: last.term,
                sequence: last.sequence,
            })
        };
        Ok(federations.iter().filter_map(end).collect())
    }

    async fn restate(
        &self,
        federation: &Arc<str>,
        sites: &[(Arc<str>, SiteNow)],
    ) -> Result<(), SinkError> {
        let mut kept = self.lock();
        for (site, state) in sites {
            let key = (federation.clone(), site.clone());
            kept.sites.insert(key, state.clone());
        }
        Ok(())
    }

    async fn publish(&self, envelopes: &[Envelope]) -> Result<(), SinkError> {
        let mut kept = self.lock();
        for envelope in envelopes {
            let stream = kept.streams.entry(envelope.federation.clone()).or_default();
            if let Some(last) = stream.back()
                && Cursor::of(last) >= Cursor::of(envelope)
            {
                let same = |known: &Envelope| {
                    Cursor::of(known) == Cursor::of(envelope) && known.id == envelope.id
                };
                if stream.iter().rev().any(same) {
                    continue;
                }
                return Err(SinkError::Fenced(StreamEnd {
                    federation: envelope.federation.clone(),
                    term: last.term,
                    sequence: last.sequence,
                }));
            }
            if stream.len() == OUTBOX_MAX {
                stream.pop_front();
            }
            stream.push_back(envelope.clone());
            kept.taken += 1;
        }
        Ok(())
    }
}
