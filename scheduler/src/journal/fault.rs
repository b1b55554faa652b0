//! A disk for tests that forgets, tears and refuses at a chosen operation.
//!
//! It keeps two images: what reads return (as the operating system's page cache would) and what
//! would survive a power loss. A write reaches the second one only with a sync. What it models:
//! - a crash loses any of the writes since the last sync, in any combination, and tears the last one;
//!   changes of the length survive in order (file systems journal them), and a write beyond a length
//!   that did not survive is lost with it;
//! - a failed sync drops the writes it could not store: they still read back, the next sync
//!   succeeds, and they are gone after a power loss (what Linux does);
//! - a refused write may have stored its beginning.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redb::StorageBackend;

/// "No space left on device".
pub(crate) const ENOSPC: i32 = 28;
/// "Input/output error".
pub(crate) const EIO: i32 = 5;

/// Seeded randomness for tests: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// What happens at the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Power loss: nothing unsynced survives.
    LoseUnsynced,
    /// Power loss: any part of what is unsynced survives.
    KeepSome,
    /// Power loss: what is unsynced survives, but of the last write only the beginning.
    TearLast,
    /// The operation, and with `lasting` all that follow until `heal`, fails with this error code.
    Refuse { code: i32, lasting: bool },
    /// One read fails with this error code; the operation number counts reads.
    RefuseRead { code: i32 },
}

#[derive(Clone, Debug)]
enum Operation {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug)]
struct Disk {
    cached: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Operation>,
    /// Writes, syncs and changes of length so far; and reads.
    operations: u64,
    reads: u64,
    plan: Option<(u64, Fault)>,
    fired: bool,
    /// The power is off: everything fails until `restart`.
    off: bool,
    random: Random,
}

/// The disk; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct FaultStorage(Arc<Mutex<Disk>>);

impl FaultStorage {
    pub(crate) fn new(seed: u64) -> Self {
        let disk = Self::from_bytes(Vec::new());
        disk.disk().random = Random::new(seed);
        disk
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            cached: bytes.clone(),
            durable: bytes,
            unsynced: Vec::new(),
            operations: 0,
            reads: 0,
            plan: None,
            fired: false,
            off: false,
            random: Random::new(0),
        })))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What reads return.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.disk().cached.clone()
    }

    /// Lets `fault` happen at the operation with this number (the first is 0).
    pub(crate) fn arm(&self, operation: u64, fault: Fault) {
        self.disk().plan = Some((operation, fault));
    }

    /// Writes, syncs and changes of length so far.
    pub(crate) fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// Reads so far.
    pub(crate) fn reads(&self) -> u64 {
        self.disk().reads
    }

    /// Whether the fault has happened.
    pub(crate) fn fired(&self) -> bool {
        self.disk().fired
    }

    /// Whether the power is off.
    pub(crate) fn is_off(&self) -> bool {
        self.disk().off
    }

    /// Ends a lasting refusal.
    pub(crate) fn heal(&self) {
        self.disk().plan = None;
    }

    /// Puts the content of another disk in place of this one's.
    pub(crate) fn replace(&self, other: &Self) {
        let image = other.image();
        let mut disk = self.disk();
        disk.unsynced.clear();
        disk.durable.clone_from(&image);
        disk.cached = image;
    }

    /// Power off and on again: what the planned crash let survive, else only what was synced.
    pub(crate) fn restart(&self) {
        let mut disk = self.disk();
        disk.unsynced.clear();
        disk.cached = disk.durable.clone();
        disk.plan = None;
        disk.off = false;
    }
}

impl Disk {
    /// Counts a changing operation and fails it if it is the chosen one; `operation` is what would
    /// have been added, `None` for a sync.
    fn change(&mut self, operation: Option<Operation>) -> io::Result<()> {
        if self.off {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let number = self.operations;
        self.operations += 1;
        match self.plan {
            Some((_, Fault::RefuseRead { .. })) | None => {}
            Some((at, Fault::Refuse { code, lasting })) => {
                if number == at || (lasting && number > at) {
                    self.fired = true;
                    self.refused(operation);
                    return Err(io::Error::from_raw_os_error(code));
                }
            }
            Some((at, fault)) => {
                if number == at {
                    self.fired = true;
                    self.unsynced.extend(operation);
                    self.power_off(fault);
                    return Err(io::Error::from_raw_os_error(EIO));
                }
            }
        }
        match operation {
            Some(operation) => {
                apply(&mut self.cached, &operation, true);
                self.unsynced.push(operation);
            }
            None => {
                for operation in std::mem::take(&mut self.unsynced) {
                    apply(&mut self.durable, &operation, true);
                }
            }
        }
        Ok(())
    }

    fn refused(&mut self, operation: Option<Operation>) {
        match operation {
            Some(Operation::Write(offset, data)) => {
                let stored = self.random.below(data.len() as u64 + 1) as usize;
                let begun = Operation::Write(offset, data[..stored].to_vec());
                apply(&mut self.cached, &begun, true);
                self.unsynced.push(begun);
            }
            Some(Operation::Length(_)) => {}
            None => {
                for operation in std::mem::take(&mut self.unsynced) {
                    let kept = self.random.below(2) == 0;
                    if kept || matches!(operation, Operation::Length(_)) {
                        apply(&mut self.durable, &operation, true);
                    }
                }
            }
        }
    }

    fn power_off(&mut self, fault: Fault) {
        self.off = true;
        let unsynced = std::mem::take(&mut self.unsynced);
        let lengths = unsynced
            .iter()
            .filter(|operation| matches!(operation, Operation::Length(_)))
            .count() as u64;
        let mut lengths_kept = match fault {
            Fault::LoseUnsynced => return,
            Fault::KeepSome => self.random.below(lengths + 1),
            _ => lengths,
        };
        // Sometimes half is lost, sometimes next to nothing.
        let lost_percent = [50, 10, 2][self.random.below(3) as usize];
        let last_write = unsynced
            .iter()
            .rposition(|operation| matches!(operation, Operation::Write(..)));
        for (nth, operation) in unsynced.into_iter().enumerate() {
            let operation = match operation {
                Operation::Length(len) => {
                    if lengths_kept == 0 {
                        continue;
                    }
                    lengths_kept -= 1;
                    Operation::Length(len)
                }
                Operation::Write(offset, mut data) => {
                    if fault == Fault::KeepSome && self.random.below(100) < lost_percent {
                        continue;
                    }
                    if fault == Fault::TearLast && Some(nth) == last_write {
                        data.truncate(self.random.below(data.len() as u64 + 1) as usize);
                    }
                    Operation::Write(offset, data)
                }
            };
            apply(&mut self.durable, &operation, false);
        }
    }
}

/// Applies an operation to an image; a write beyond the end extends it only with `extend`.
fn apply(image: &mut Vec<u8>, operation: &Operation, extend: bool) {
    match operation {
        Operation::Length(len) => image.resize(*len, 0),
        Operation::Write(offset, data) => {
            let end = offset + data.len();
            if extend && end > image.len() {
                image.resize(end, 0);
            }
            let end = end.min(image.len());
            if *offset < end {
                image[*offset..end].copy_from_slice(&data[..end - offset]);
            }
        }
    }
}

impl StorageBackend for FaultStorage {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk().cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.off {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let number = disk.reads;
        disk.reads += 1;
        if let Some((at, Fault::RefuseRead { code })) = disk.plan
            && number == at
        {
            disk.fired = true;
            return Err(io::Error::from_raw_os_error(code));
        }
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = offset.checked_add(out.len());
        match end.and_then(|end| disk.cached.get(offset..end)) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk().change(Some(Operation::Length(len as usize)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk().change(None)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let operation = Operation::Write(offset as usize, data.to_vec());
        self.disk().change(Some(operation))
    }
}
