//! Tests of the journals: rules that all share, what a file must survive, faults of the disk.
#![allow(clippy::unwrap_used)]

mod conformance;
mod faults;
mod files;
mod workload;

use std::path::Path;
use std::sync::Arc;

use super::fault::FaultStorage;
use super::{Append, DedupeEntry, DedupeKey, Error, Journal, Memory, Options, Redb};

/// The name that errors show for a simulated disk.
const DISK: &str = "disk";

fn options(ids_per_source_max: u64) -> Options {
    Options {
        dedupe_ids_per_source_max: ids_per_source_max,
        ..Options::default()
    }
}

fn open_disk(disk: &FaultStorage, ids_per_source_max: u64) -> Result<Redb, Error> {
    let raw = Arc::new(disk.clone());
    Redb::open_storage(Path::new(DISK), raw, options(ids_per_source_max))
}

/// An empty journal on a simulated disk.
fn new_disk(seed: u64) -> FaultStorage {
    let disk = FaultStorage::new(seed);
    Redb::create_storage(Path::new(DISK), Arc::new(disk.clone())).unwrap();
    disk
}

fn plain(at_ms: i64, record: &[u8]) -> Append<'_> {
    Append {
        at_ms,
        record,
        dedupe: &[],
        decisions: &[],
    }
}

fn id<'a>(source: &'a str, id: &'a str, hash: u8) -> DedupeEntry<'a> {
    DedupeEntry {
        source,
        id,
        hash: [hash; 32],
    }
}

fn seen(journal: &dyn Journal, source: &str, id: &str) -> Option<u8> {
    let found = journal.seen(&[DedupeKey { source, id }]).unwrap();
    found[0].map(|hash| hash[0])
}

/// Appends `count` records of their own index as text, one second apart.
fn append_many(journal: &mut dyn Journal, count: u64) {
    for _ in 0..count {
        let last = journal.last_index();
        let at_ms = (last as i64 + 1) * 1_000;
        let record = (last + 1).to_string();
        journal
            .append(last, &plain(at_ms, record.as_bytes()))
            .unwrap();
    }
}

fn memory(ids_per_source_max: u64) -> Box<dyn Journal> {
    Box::new(Memory::new(ids_per_source_max))
}
