//! The fault layer: a workload on a disk that loses, tears, refuses or alters at 1,000 points.
//!
//! What must hold: after a crash or a refused write everything acknowledged is there, and the write
//! in flight is there whole or not at all; after a flipped bit nothing is ever read that differs.
//! The oracle is a `Memory` journal that gets what was acknowledged.
//!
//! Every point follows from (kind, workload, point). A failure prints them; to run one alone:
//! `SUNWARD_FAULT_POINT=kind:workload:point cargo test -p sunward --lib fault_points`.
//! `SUNWARD_FAULT_SCALE=10` runs ten times as many.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::fault::{EIO, ENOSPC, Fault, FaultStorage, Random};
use super::super::{DedupeKey, Error, ErrorKind, Journal, Memory, Options, Redb};
use super::workload::{CURSORS, IDS, POOLS, SOURCES, Step, append_step, perform, workload};
use super::{DISK, new_disk, options};

/// Small, so that caps and evictions are part of the workload.
const IDS_MAX: u64 = 5;
const POINTS_PER_WORKLOAD: u64 = 10;

/// So little that pages are read again, and written before the commit, within a workload.
const CACHE_BYTES: usize = 64 * 1024;

fn open(disk: &FaultStorage) -> Result<Redb, Error> {
    let options = Options {
        cache_bytes: CACHE_BYTES,
        ..options(IDS_MAX)
    };
    Redb::open_storage(Path::new(DISK), Arc::new(disk.clone()), options)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Dropped,
    Subset,
    Torn,
    NoSpaceOnce,
    NoSpaceLasting,
    IoOnce,
    IoLasting,
    IoRead,
    Flipped,
    FlippedAfterCrash,
}

/// The kinds, their names, and how many points each gets: 1,000 in total.
const KINDS: [(Kind, &str, u64); 10] = [
    (Kind::Dropped, "dropped", 120),
    (Kind::Subset, "subset", 160),
    (Kind::Torn, "torn", 120),
    (Kind::NoSpaceOnce, "enospc-once", 80),
    (Kind::NoSpaceLasting, "enospc-lasting", 80),
    (Kind::IoOnce, "eio-once", 80),
    (Kind::IoLasting, "eio-lasting", 80),
    (Kind::IoRead, "eio-read", 80),
    (Kind::Flipped, "flipped", 120),
    (Kind::FlippedAfterCrash, "flipped-after-crash", 80),
];

impl Kind {
    fn fault(self) -> Option<Fault> {
        let refuse = |code, lasting| Some(Fault::Refuse { code, lasting });
        match self {
            Self::Dropped => Some(Fault::LoseUnsynced),
            Self::Subset => Some(Fault::KeepSome),
            Self::Torn => Some(Fault::TearLast),
            Self::NoSpaceOnce => refuse(ENOSPC, false),
            Self::NoSpaceLasting => refuse(ENOSPC, true),
            Self::IoOnce => refuse(EIO, false),
            Self::IoLasting => refuse(EIO, true),
            Self::IoRead => Some(Fault::RefuseRead { code: EIO }),
            Self::Flipped | Self::FlippedAfterCrash => None,
        }
    }
}

/// What must be there.
#[derive(Clone)]
struct Oracle {
    journal: Memory,
    /// What a cursor may be: its last durable value, or any saved after it.
    cursors: BTreeMap<&'static str, Vec<Option<Vec<u8>>>>,
}

impl Oracle {
    fn new() -> Self {
        let unset = |name| (name, vec![None]);
        Self {
            journal: Memory::new(IDS_MAX),
            cursors: CURSORS.into_iter().map(unset).collect(),
        }
    }

    fn perform(&mut self, step: &Step) {
        perform(step, &mut self.journal).expect("the workload is valid");
        match step {
            Step::Cursor(name, bytes) => {
                let values = self.cursors.get_mut(CURSORS[*name]).unwrap();
                values.push(Some(bytes.clone()));
            }
            Step::Append { .. } | Step::Snapshot(_) | Step::Restart => self.cursors_are_durable(),
            // May have nothing to remove, and then commits nothing.
            Step::Truncate(_) => {}
        }
    }

    fn cursors_are_durable(&mut self) {
        for values in self.cursors.values_mut() {
            values.drain(..values.len() - 1);
        }
    }

    /// Compares all that can be read. `Err` when a read fails, `Ok(Some)` names a difference.
    fn difference(&self, journal: &Redb) -> Result<Option<String>, Error> {
        let oracle = &self.journal;
        let ends = |j: &dyn Journal| (j.first_index(), j.last_index(), j.last_at_ms());
        if ends(journal) != ends(oracle) {
            return Ok(Some(format!("{:?}, not {:?}", ends(journal), ends(oracle))));
        }
        let mut next = oracle.first_index();
        while next <= oracle.last_index() {
            let records = journal.read_from(next, 7)?;
            if records.is_empty() || records != oracle.read_from(next, 7)? {
                return Ok(Some(format!("records from {next} on")));
            }
            next += records.len() as u64;
        }
        if journal.latest_snapshot()? != oracle.latest_snapshot()? {
            return Ok(Some("the snapshot".to_owned()));
        }
        for pool in POOLS {
            let all = |j: &dyn Journal| j.decisions(pool, i64::MIN, i64::MAX, usize::MAX);
            if all(journal)? != all(oracle)? {
                return Ok(Some(format!("the decisions of {pool}")));
            }
        }
        let ids: Vec<_> = (0..IDS).map(|nth| format!("id-{nth}")).collect();
        for source in SOURCES {
            let keys: Vec<_> = ids.iter().map(|id| DedupeKey { source, id }).collect();
            if journal.seen(&keys)? != oracle.seen(&keys)? {
                return Ok(Some(format!("the ids of {source}")));
            }
        }
        for (name, possible) in &self.cursors {
            if !possible.contains(&journal.cursor(name)?) {
                return Ok(Some(format!("the cursor {name}")));
            }
        }
        Ok(None)
    }

    /// After a loss of power a cursor is what it is, from then on.
    fn adopt_cursors(&mut self, journal: &Redb) -> Result<(), Error> {
        for (name, values) in &mut self.cursors {
            *values = vec![journal.cursor(name)?];
        }
        Ok(())
    }
}

/// How a point ended; the table counts these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The write in flight was there afterwards.
    Landed,
    /// The write in flight was not there afterwards.
    Absent,
    /// The fault failed no step: it hit a read that is not part of one, or the closing.
    NoStepFailed,
    /// A flipped bit: refused on opening.
    RefusedOpening,
    /// A flipped bit: refused on reading.
    RefusedReading,
    /// A flipped bit that no read reaches.
    NotReached,
}

/// A point that went wrong: what was expected, and what was found.
type Wrong = String;

fn wrong(what: &str) -> impl FnOnce(Error) -> Wrong {
    move |error| format!("{what}: {error}")
}

struct Run {
    disk: FaultStorage,
    journal: Option<Redb>,
    oracle: Oracle,
    outcome: Outcome,
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = new_disk(seed);
        let journal = Some(open(&disk).unwrap());
        Self {
            disk,
            journal,
            oracle: Oracle::new(),
            outcome: Outcome::NoStepFailed,
        }
    }

    /// Runs the workload until its end, or until the power goes.
    fn run(&mut self, steps: &[Step]) -> Result<(), Wrong> {
        for step in steps {
            if self.disk.is_off() {
                break;
            }
            let result = match self.journal.take() {
                Some(journal) if matches!(step, Step::Restart) => self.restart(journal),
                Some(mut journal) => {
                    let result = perform(step, &mut journal);
                    self.journal = Some(journal);
                    result
                }
                None => return Err("no journal".to_owned()),
            };
            match result {
                Ok(()) => self.oracle.perform(step),
                Err(error) if !self.disk.fired() => {
                    return Err(format!("{} failed without a fault: {error}", step.name()));
                }
                Err(error) => self.recover(step, &error)?,
            }
        }
        Ok(())
    }

    fn restart(&mut self, journal: Redb) -> Result<(), Error> {
        let closed = journal.close();
        // Also when closing failed, the journal is opened again, as a supervisor would.
        let opened = open(&self.disk).map(|journal| self.journal = Some(journal));
        closed.and(opened)
    }

    /// Settles a step that failed: by power off and on, or by reopening.
    fn recover(&mut self, step: &Step, error: &Error) -> Result<(), Wrong> {
        let landed = {
            let mut landed = self.oracle.clone();
            landed.perform(step);
            landed
        };
        let cursors = self.oracle.cursors.clone();
        if !self.disk.is_off() {
            self.reopen(error)?;
        }
        let power_cycled = self.journal.is_none() || self.disk.is_off();
        if power_cycled {
            drop(self.journal.take());
            self.disk.restart();
            let opened = open(&self.disk).map_err(wrong("after power off and on"))?;
            self.journal = Some(opened);
        }
        let journal = self.journal.as_ref().ok_or("no journal")?;
        let read = wrong("reading after recovery");
        let absent = self.oracle.difference(journal).map_err(read)?;
        // A step that changes nothing that is compared (a cursor) is as good as absent.
        if let Some(absent) = absent {
            let mut landed = landed;
            // Which of the unsaved cursors became durable is only known after a loss of power.
            landed.cursors = cursors;
            let read = wrong("reading after recovery");
            if let Some(difference) = landed.difference(journal).map_err(read)? {
                return Err(format!(
                    "neither before nor after {}: before differs in {absent}, after in {difference}",
                    step.name()
                ));
            }
            self.oracle = landed;
            self.outcome = Outcome::Landed;
        } else {
            self.outcome = Outcome::Absent;
        }
        // A restart that failed half-way forgets unsaved cursors too.
        if power_cycled || matches!(step, Step::Restart) {
            self.oracle
                .adopt_cursors(journal)
                .map_err(wrong("reading cursors"))?;
        }
        Ok(())
    }

    /// Reopens as the engine would after a failed write; while the disk goes on refusing, reopening
    /// must fail too. Leaves no journal where only a power cycle helps.
    fn reopen(&mut self, error: &Error) -> Result<(), Wrong> {
        let expected = [ErrorKind::Full, ErrorKind::Io, ErrorKind::NeedsReopen];
        if !expected.contains(&error.kind()) {
            return Err(format!("a refused operation was reported as: {error}"));
        }
        let Some(journal) = &mut self.journal else {
            self.disk.heal();
            return Ok(());
        };
        if !journal.needs_reopen() {
            return Ok(());
        }
        let acknowledged = self.oracle.journal.last_index();
        if journal.last_index() != acknowledged {
            return Err("a failed append moved the last index".to_owned());
        }
        let last = match journal.reopen() {
            Ok(last) => last,
            Err(error) if expected.contains(&error.kind()) => {
                self.disk.heal();
                journal.reopen().map_err(wrong("reopening a healed disk"))?
            }
            Err(error) => return Err(format!("reopening: {error}")),
        };
        if last != acknowledged && last != acknowledged + 1 {
            return Err(format!(
                "reopened at {last}, acknowledged was {acknowledged}"
            ));
        }
        Ok(())
    }

    /// What was settled must be durable, and the journal must go on: power off and on, compare,
    /// append, restart, compare.
    fn finish(mut self) -> Result<Outcome, Wrong> {
        self.disk.heal();
        if !self.disk.is_off() {
            self.disk.arm(self.disk.operations(), Fault::LoseUnsynced);
        }
        drop(self.journal.take());
        self.disk.restart();
        let mut journal = open(&self.disk).map_err(wrong("opening at the end"))?;
        self.compare(&journal, "at the end")?;
        self.oracle
            .adopt_cursors(&journal)
            .map_err(wrong("reading cursors"))?;
        let mut random = Random::new(1);
        for _ in 0..2 {
            let step = append_step(&mut random);
            perform(&step, &mut journal).map_err(wrong("going on"))?;
            self.oracle.perform(&step);
        }
        journal.close().map_err(wrong("closing"))?;
        let journal = open(&self.disk).map_err(wrong("opening after going on"))?;
        self.compare(&journal, "after going on")?;
        Ok(self.outcome)
    }

    fn compare(&self, journal: &Redb, when: &str) -> Result<(), Wrong> {
        match self.oracle.difference(journal) {
            Ok(None) => Ok(()),
            Ok(Some(difference)) => Err(format!("{when}: {difference} differs")),
            Err(error) => Err(format!("{when}: {error}")),
        }
    }
}

/// What a workload does without a fault.
struct Undisturbed {
    steps: Vec<Step>,
    seed: u64,
    /// Changing operations and reads after the journal was opened: (before, after).
    operations: (u64, u64),
    reads: (u64, u64),
    oracle: Oracle,
    /// The file to flip bits in.
    image: Vec<u8>,
}

fn undisturbed(kind: Kind, workload_number: u64) -> Result<Undisturbed, Wrong> {
    let seed = Random::new((kind as u64) << 32 | workload_number).next();
    let mut steps = workload(seed);
    if kind == Kind::FlippedAfterCrash {
        // Ends with an append: a commit of anything else may be lost, as then nothing acknowledged is.
        steps.push(append_step(&mut Random::new(seed)));
    }
    let mut run = Run::new(seed);
    let before = (run.disk.operations(), run.disk.reads());
    run.run(&steps)?;
    let after = (run.disk.operations(), run.disk.reads());
    let journal = run.journal.take().ok_or("no journal")?;
    run.compare(&journal, "undisturbed")?;
    let crashed_image = run.disk.image();
    journal.close().map_err(wrong("closing undisturbed"))?;
    run.oracle.cursors_are_durable();
    let image = match kind {
        Kind::FlippedAfterCrash => crashed_image,
        _ => run.disk.image(),
    };
    Ok(Undisturbed {
        steps,
        seed,
        operations: (before.0, after.0),
        reads: (before.1, after.1),
        oracle: run.oracle,
        image,
    })
}

fn run_point(kind: Kind, of: &Undisturbed, point: u64) -> Result<Outcome, Wrong> {
    let mut random = Random::new(of.seed ^ (point + 1).wrapping_mul(0xA076_1D64_78BD_642F));
    let Some(fault) = kind.fault() else {
        return flip(kind, of, &mut random);
    };
    let (from, to) = match kind {
        Kind::IoRead => of.reads,
        _ => of.operations,
    };
    let mut run = Run::new(of.seed);
    run.disk.arm(from + random.below(to - from), fault);
    run.run(&of.steps)?;
    if !run.disk.fired() {
        return Err("the fault did not happen".to_owned());
    }
    run.finish()
}

fn flip(kind: Kind, of: &Undisturbed, random: &mut Random) -> Result<Outcome, Wrong> {
    let mut image = of.image.clone();
    // Half of the points anywhere, half where something is written.
    let anywhere = random.below(2) == 0;
    let byte = loop {
        let byte = random.below(image.len() as u64) as usize;
        if anywhere || image[byte] != 0 {
            break byte;
        }
    };
    image[byte] ^= 1 << random.below(8);
    let disk = FaultStorage::from_bytes(image.clone());
    let opened = open(&disk);
    let refused_opening = opened.is_err();
    let result = opened.and_then(|journal| of.oracle.difference(&journal));
    // After a crash redb may have begun to repair before the damage is found.
    if kind == Kind::Flipped && refused_opening && disk.image() != image {
        return Err(format!("byte {byte}: refused, but the file was changed"));
    }
    let refused = if refused_opening {
        Outcome::RefusedOpening
    } else {
        Outcome::RefusedReading
    };
    let (first, last) = (
        of.oracle.journal.first_index(),
        of.oracle.journal.last_index(),
    );
    match result {
        Ok(None) => Ok(Outcome::NotReached),
        Ok(Some(difference)) => Err(format!("byte {byte}: {difference} differs, silently")),
        Err(Error::NotAJournal { .. }) => Ok(refused),
        Err(Error::Damaged {
            first_unreadable_index: unreadable,
            ..
        }) => {
            // 1 where not one record can be read.
            if unreadable != 1 && !(first..=last + 1).contains(&unreadable) {
                return Err(format!(
                    "byte {byte}: index {unreadable} named, stored are {first}..={last}"
                ));
            }
            Ok(refused)
        }
        Err(other) => Err(format!("byte {byte}: reported as {other}")),
    }
}

/// The one point to run, from the environment.
fn chosen_point() -> Option<(String, u64, u64)> {
    let text = std::env::var("SUNWARD_FAULT_POINT").ok()?;
    let mut parts = text.split(':');
    let kind = parts.next()?.to_owned();
    let mut number = || parts.next()?.parse().ok();
    Some((kind, number()?, number()?))
}

#[test]
#[allow(clippy::print_stdout)]
fn fault_points_lose_nothing_and_alter_nothing() {
    let chosen = chosen_point();
    let scale = std::env::var("SUNWARD_FAULT_SCALE").map_or(1, |text| text.parse().unwrap());
    let mut failures = Vec::new();
    let mut total = 0;
    println!("{:20} {:>6}  outcomes", "kind", "points");
    for (kind, name, points) in KINDS {
        let mut outcomes: BTreeMap<Outcome, u64> = BTreeMap::new();
        let points = points * scale;
        for workload_number in 0..points / POINTS_PER_WORKLOAD {
            let wanted = |point: u64| {
                chosen
                    .as_ref()
                    .is_none_or(|(k, w, p)| (k.as_str(), *w, *p) == (name, workload_number, point))
            };
            if !(0..POINTS_PER_WORKLOAD).any(wanted) {
                continue;
            }
            let of = match undisturbed(kind, workload_number) {
                Ok(of) => of,
                Err(wrong) => {
                    failures.push(format!("{name}:{workload_number}, undisturbed: {wrong}"));
                    continue;
                }
            };
            for point in (0..POINTS_PER_WORKLOAD).filter(|point| wanted(*point)) {
                total += 1;
                match run_point(kind, &of, point) {
                    Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                    Err(wrong) => failures.push(format!(
                        "SUNWARD_FAULT_POINT={name}:{workload_number}:{point}: {wrong}"
                    )),
                }
            }
        }
        println!("{name:20} {points:>6}  {outcomes:?}");
    }
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(chosen.is_some() || total == 1_000 * scale, "{total} points");
}
