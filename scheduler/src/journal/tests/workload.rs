//! What the fault tests do with a journal: steps that follow from a seed.

use super::super::fault::Random;
use super::super::{Append, BodyHash, DecisionRecord, DedupeEntry, Error, Journal};

const STEPS: usize = 20;
pub(super) const SOURCES: [&str; 3] = ["a", "b", "météo"];
/// Different ids per source.
pub(super) const IDS: u64 = 12;
pub(super) const POOLS: [&str; 3] = ["north/a", "north/b", "south"];
pub(super) const CURSORS: [&str; 2] = ["redis", "nats"];
const HOUR_MS: u64 = 3_600_000;

/// What one step of the workload does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Append {
        pause_ms: i64,
        record: Vec<u8>,
        ids: Vec<(usize, String, BodyHash)>,
        decisions: Vec<(usize, Vec<u8>)>,
    },
    Cursor(usize, Vec<u8>),
    Snapshot(Vec<u8>),
    /// Truncates this share (in percent) of what may be truncated.
    Truncate(u64),
    /// Closes the journal and opens it again.
    Restart,
}

impl Step {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Append { .. } => "append",
            Self::Cursor(..) => "cursor",
            Self::Snapshot(_) => "snapshot",
            Self::Truncate(_) => "truncate",
            Self::Restart => "restart",
        }
    }
}

pub(super) fn workload(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    (0..STEPS).map(|_| step(&mut random)).collect()
}

fn step(random: &mut Random) -> Step {
    match random.below(20) {
        0..=11 => append_step(random),
        12..=14 => {
            let len = random.below(40) as usize;
            Step::Cursor(random.below(2) as usize, random.bytes(len))
        }
        15 | 16 => {
            let len = random.below(60_000) as usize;
            Step::Snapshot(random.bytes(len))
        }
        17 | 18 => Step::Truncate(random.below(101)),
        _ => Step::Restart,
    }
}

pub(super) fn append_step(random: &mut Random) -> Step {
    // Mostly small groups, now and then one that takes many pages.
    let len_max = if random.below(8) == 0 { 100_000 } else { 2_000 };
    let len = random.below(len_max) as usize;
    let record = random.bytes(len);
    let ids = (0..random.below(5))
        .map(|_| {
            let id = format!("id-{}", random.below(IDS));
            let hash = [random.next() as u8; 32];
            (random.below(SOURCES.len() as u64) as usize, id, hash)
        })
        .collect();
    let decisions = (0..random.below(4))
        .map(|_| {
            let pool = random.below(POOLS.len() as u64) as usize;
            let len = random.below(300) as usize;
            (pool, random.bytes(len))
        })
        .collect();
    Step::Append {
        pause_ms: random.below(30 * HOUR_MS) as i64,
        record,
        ids,
        decisions,
    }
}

/// Does a step (all but a restart) on any journal: what it does follows from the step and the
/// journal's content, so that two journals with the same content go on alike.
pub(super) fn perform(step: &Step, journal: &mut dyn Journal) -> Result<(), Error> {
    match step {
        Step::Append {
            pause_ms,
            record,
            ids,
            decisions,
        } => {
            let last = journal.last_index();
            let last_at_ms = journal.last_at_ms().unwrap_or(0);
            let entry =
                |(source, id, hash): &'_ (usize, String, BodyHash)| (*source, id.clone(), *hash);
            let ids: Vec<_> = ids.iter().map(entry).collect();
            let dedupe: Vec<_> = ids
                .iter()
                .map(|(source, id, hash)| DedupeEntry {
                    source: SOURCES[*source],
                    id,
                    hash: *hash,
                })
                .collect();
            let decisions: Vec<_> = decisions
                .iter()
                .enumerate()
                .map(|(nth, (pool, bytes))| DecisionRecord {
                    pool: POOLS[*pool].to_owned(),
                    at_ms: last_at_ms,
                    index: last,
                    ordinal: nth as u32,
                    bytes: bytes.clone(),
                })
                .collect();
            let entry = Append {
                at_ms: last_at_ms + pause_ms,
                record,
                dedupe: &dedupe,
                decisions: &decisions,
            };
            journal.append(last, &entry).map(drop)
        }
        Step::Cursor(name, bytes) => journal.save_cursor(CURSORS[*name], bytes),
        Step::Snapshot(bytes) => journal.save_snapshot(journal.last_index(), bytes),
        Step::Truncate(percent) => {
            let newest = journal.latest_snapshot()?.map_or(0, |s| s.index);
            let first = journal.first_index();
            let before = first + (newest + 1).saturating_sub(first) * percent / 100;
            journal
                .truncate_before(before, &|pool| pool.starts_with("north"))
                .map(drop)
        }
        Step::Restart => Ok(()),
    }
}
