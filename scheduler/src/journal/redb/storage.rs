//! What lies between redb and the disk: the locked file, the memory of what is not yet synced, and
//! an overlay that lets a file be read without being changed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redb::StorageBackend;

use super::header::{self, HEADER_BYTES, Header};

/// Most bytes of unsynced writes that are kept. The largest commit (a snapshot of the largest size
/// and its pages) fits; more can't be written again after a failed sync.
pub(super) const UNSYNCED_BYTES_MAX: usize = 2 * crate::journal::SNAPSHOT_BYTES_MAX;
/// Most bytes that an overlay holds. The repair of a file left by a crash writes far less.
const OVERLAY_BYTES_MAX: usize = 256 * 1024 * 1024;
const BLOCK_BYTES: u64 = 4096;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // None of the holders below can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a file could not be opened.
#[derive(Debug)]
pub(in crate::journal) enum OpenError {
    Absent,
    Locked,
    Os(io::Error),
}

/// A file on disk, locked for as long as this value lives: exclusively for writing, shared for
/// reading. The lock is the file's own (`flock`), which redb's own tools respect as well.
#[derive(Debug)]
pub(in crate::journal) struct JournalFile(File);

impl JournalFile {
    /// Opens and locks an existing file.
    pub(in crate::journal) fn open(path: &Path, writable: bool) -> Result<Self, OpenError> {
        let file = OpenOptions::new().read(true).write(writable).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::Absent,
            _ => OpenError::Os(error),
        })?;
        Self::locked(file, writable)
    }

    /// Opens a file that may be left over from an interrupted creation, locks it and empties it.
    pub(super) fn create(path: &Path) -> Result<Self, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(OpenError::Os)?;
        let locked = Self::locked(file, true)?;
        locked.0.set_len(0).map_err(OpenError::Os)?;
        Ok(locked)
    }

    fn locked(file: File, exclusive: bool) -> Result<Self, OpenError> {
        let lock = if exclusive {
            file.try_lock()
        } else {
            file.try_lock_shared()
        };
        match lock {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked),
            Err(TryLockError::Error(error)) => Err(OpenError::Os(error)),
        }
    }

    /// Makes the content and the length durable.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

// The range locks keep their default (unsupported): redb then relies on the caller for locking, and
// `JournalFile` holds the lock from before redb sees the file until after redb has let go of it,
// also while a failed database is being reopened.
impl StorageBackend for JournalFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

#[derive(Debug)]
enum Unsynced {
    Write(u64, Box<[u8]>),
    Length(u64),
}

#[derive(Debug, Default)]
struct UnsyncedWrites {
    in_order: Vec<Unsynced>,
    bytes: usize,
    /// More was written since the last sync than is kept here.
    overflown: bool,
    /// A sync failed while that was so: what the disk holds can't be known any more.
    lost: bool,
}

/// A storage with the journal's own first page, that remembers what redb wrote since the last
/// successful sync.
///
/// Why: after a failed `fsync`, Linux marks the pages clean. They still read back as written, the
/// next `fsync` succeeds, and yet they may never reach the disk. A journal that were merely reopened
/// would take a record for durable that a later power loss takes away. So before redb looks at the
/// file again, everything unsynced is written again and synced: then what reads back is durable.
#[derive(Debug)]
pub(in crate::journal) struct Storage {
    raw: Arc<dyn StorageBackend>,
    unsynced: Mutex<UnsyncedWrites>,
}

impl Storage {
    pub(in crate::journal) fn new(raw: Arc<dyn StorageBackend>) -> Arc<Self> {
        Arc::new(Self {
            raw,
            unsynced: Mutex::default(),
        })
    }

    /// The storage below, for reading without redb.
    pub(super) fn raw(&self) -> Arc<dyn StorageBackend> {
        Arc::clone(&self.raw)
    }

    /// Bytes the storage occupies.
    pub(super) fn len(&self) -> io::Result<u64> {
        self.raw.len()
    }

    /// Makes an empty storage one with a first page.
    pub(super) fn begin(&self, format_version: u32) -> io::Result<()> {
        self.raw.set_len(HEADER_BYTES)?;
        self.raw.write(0, &header::first_page(format_version))
    }

    /// Reads the first page.
    pub(super) fn header(&self) -> io::Result<Header> {
        header::read(self.raw.as_ref())
    }

    /// Notes in the first page that `index` is acknowledged.
    pub(super) fn acknowledge(&self, index: u64) -> io::Result<()> {
        header::acknowledge(self.raw.as_ref(), index)
    }

    /// Writes again what was not synced, and syncs it.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut unsynced = lock(&self.unsynced);
        if unsynced.lost {
            return Err(io::Error::other(
                "a large write could not be synced; restart the machine, so that only what is on the disk is read",
            ));
        }
        for operation in &unsynced.in_order {
            match operation {
                Unsynced::Write(offset, data) => self.raw.write(HEADER_BYTES + offset, data)?,
                Unsynced::Length(len) => self.raw.set_len(HEADER_BYTES + len)?,
            }
        }
        self.raw.sync_data()?;
        *unsynced = UnsyncedWrites::default();
        Ok(())
    }

    fn keep(&self, operation: Unsynced) {
        let mut unsynced = lock(&self.unsynced);
        if let Unsynced::Write(_, data) = &operation {
            if unsynced.bytes + data.len() > UNSYNCED_BYTES_MAX {
                unsynced.overflown = true;
                return;
            }
            unsynced.bytes += data.len();
        }
        unsynced.in_order.push(operation);
    }
}

/// What redb is given: the part of a storage behind the first page. The storage outlives each
/// database opened on it.
#[derive(Debug)]
pub(in crate::journal) struct Handle(pub(in crate::journal) Arc<Storage>);

// `close` keeps its default and does nothing: the lock belongs to the file, not to a database.
impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.raw.len()?.saturating_sub(HEADER_BYTES))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.raw.read(HEADER_BYTES + offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.raw.set_len(HEADER_BYTES + len)?;
        self.0.keep(Unsynced::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let result = self.0.raw.sync_data();
        let mut unsynced = lock(&self.0.unsynced);
        match &result {
            Ok(()) => *unsynced = UnsyncedWrites::default(),
            Err(_) => unsynced.lost |= unsynced.overflown,
        }
        result
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.raw.write(HEADER_BYTES + offset, data)?;
        self.0.keep(Unsynced::Write(offset, data.into()));
        Ok(())
    }
}

#[derive(Debug)]
struct OverlayState {
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// Bytes of the storage below that are still visible: a shrink hides what lay beyond.
    base_len: u64,
    len: u64,
}

/// A storage whose writes stay in memory: redb repairs and commits while opening, and a damaged
/// file, or one that is only to be read, must stay as it was found.
#[derive(Debug)]
pub(super) struct Overlay {
    base: Arc<dyn StorageBackend>,
    state: Mutex<OverlayState>,
}

impl Overlay {
    pub(super) fn new(base: Arc<dyn StorageBackend>) -> io::Result<Self> {
        let len = base.len()?;
        let state = Mutex::new(OverlayState {
            blocks: BTreeMap::new(),
            base_len: len,
            len,
        });
        Ok(Self { base, state })
    }

    fn base_block(&self, base_len: u64, block: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; BLOCK_BYTES as usize].into_boxed_slice();
        let start = block * BLOCK_BYTES;
        if start < base_len {
            let present = BLOCK_BYTES.min(base_len - start) as usize;
            self.base.read(start, &mut bytes[..present])?;
        }
        Ok(bytes)
    }
}

/// The part of `block` that `offset..offset + len` covers: (start in the block, start in the
/// buffer, length).
fn overlap(block: u64, offset: u64, len: usize) -> (usize, usize, usize) {
    let block_start = block * BLOCK_BYTES;
    let from = offset.max(block_start);
    let to = (offset + len as u64).min(block_start + BLOCK_BYTES);
    (
        (from - block_start) as usize,
        (from - offset) as usize,
        (to - from) as usize,
    )
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.state).len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.state);
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > state.len) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let out_len = out.len();
        if out_len == 0 {
            return Ok(());
        }
        for block in offset / BLOCK_BYTES..=(offset + out_len as u64 - 1) / BLOCK_BYTES {
            let (in_block, in_out, count) = overlap(block, offset, out_len);
            let target = &mut out[in_out..in_out + count];
            if let Some(bytes) = state.blocks.get(&block) {
                target.copy_from_slice(&bytes[in_block..in_block + count]);
            } else {
                let bytes = self.base_block(state.base_len, block)?;
                target.copy_from_slice(&bytes[in_block..in_block + count]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        if len < state.len {
            state.base_len = state.base_len.min(len);
            state.blocks.split_off(&len.div_ceil(BLOCK_BYTES));
            let tail = (len % BLOCK_BYTES) as usize;
            if let Some(bytes) = state.blocks.get_mut(&(len / BLOCK_BYTES)) {
                bytes[tail..].fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let mut state = lock(&self.state);
        for block in offset / BLOCK_BYTES..=(offset + data.len() as u64 - 1) / BLOCK_BYTES {
            if !state.blocks.contains_key(&block) {
                if state.blocks.len() * BLOCK_BYTES as usize >= OVERLAY_BYTES_MAX {
                    return Err(io::Error::from(io::ErrorKind::OutOfMemory));
                }
                let bytes = self.base_block(state.base_len, block)?;
                state.blocks.insert(block, bytes);
            }
            let (in_block, in_data, count) = overlap(block, offset, data.len());
            if let Some(bytes) = state.blocks.get_mut(&block) {
                bytes[in_block..in_block + count].copy_from_slice(&data[in_data..in_data + count]);
            }
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::journal::fault::{FaultStorage, Random};

    #[test]
    fn an_overlay_reads_like_a_file_and_leaves_the_base_alone() {
        let base = FaultStorage::from_bytes((0..20_000u32).map(|i| i as u8).collect());
        let before = base.image();
        let overlay = Overlay::new(Arc::new(base.clone())).unwrap();
        let mut expected = before.clone();
        let mut random = Random::new(7);
        for _ in 0..500 {
            match random.below(4) {
                0 => {
                    let len = random.below(30_000);
                    overlay.set_len(len).unwrap();
                    expected.resize(len as usize, 0);
                }
                1 | 2 if !expected.is_empty() => {
                    let offset = random.below(expected.len() as u64);
                    let data = random.bytes(random.clone().below(9_000) as usize);
                    let end = offset as usize + data.len();
                    expected.resize(expected.len().max(end), 0);
                    expected[offset as usize..end].copy_from_slice(&data);
                    overlay.write(offset, &data).unwrap();
                }
                _ => {}
            }
            assert_eq!(overlay.len().unwrap(), expected.len() as u64);
            let mut read = vec![0; expected.len()];
            overlay.read(0, &mut read).unwrap();
            assert!(read == expected, "the overlay reads differently");
        }
        assert!(overlay.read(expected.len() as u64, &mut [0]).is_err());
        assert!(base.image() == before, "the base was changed");
    }
}
