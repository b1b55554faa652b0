//! Creating, opening and examining a journal file.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::redb::{Builder, Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend};

use super::Options;
use super::dedupe::Ids;
use super::header::Header;
use super::storage::{Handle, JournalFile, OpenError, Overlay, Storage};
use super::tables::{
    CURSORS, DECISIONS, DEDUPE, META, RECORDS, SNAPSHOTS, TRUNCATED_AT_KEY, Trouble, unseal_number,
    unseal_record, usable_snapshot,
};
use crate::journal::{Error, FORMAT_VERSION};

/// No index: not one record was read, or none is stored.
const UNKNOWN: u64 = u64::MAX;

/// What an opened journal holds.
pub(super) struct Extent {
    pub(super) first_index: u64,
    pub(super) last_index: u64,
    pub(super) last_at_ms: Option<i64>,
    pub(super) cursor_names: BTreeSet<String>,
    pub(super) ids: Ids,
}

/// Runs `work` on redb and turns a panic inside into damage: redb trusts its pages and may panic on
/// one that was altered. `progress` is the index to blame when `work` knows no better.
pub(super) fn contained<T>(
    path: &Path,
    doing: &'static str,
    progress: &Cell<u64>,
    work: impl FnOnce() -> Result<T, Trouble>,
) -> Result<T, Error> {
    let trouble = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(trouble)) => trouble,
        Err(panic) => Trouble::broken(panic_text(panic.as_ref())),
    };
    Err(error(path, doing, progress.get(), trouble))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("redb: {}", text.unwrap_or("panicked"))
}

/// The journal's error for what went wrong below it.
pub(super) fn error(path: &Path, doing: &'static str, progress: u64, trouble: Trouble) -> Error {
    let path = path.to_owned();
    match trouble {
        Trouble::Locked => Error::InUse { path },
        Trouble::Os(source) if is_full(&source) => Error::Full {
            path,
            doing,
            source,
        },
        Trouble::Os(source) => Error::Io {
            path,
            doing,
            source,
        },
        Trouble::Broken { index, detail } => Error::Damaged {
            path,
            first_unreadable_index: index.unwrap_or(progress),
            detail,
        },
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Opens and locks an existing journal file.
pub(super) fn open_file(path: &Path, writable: bool) -> Result<Arc<dyn StorageBackend>, Error> {
    let file = JournalFile::open(path, writable).map_err(|error| file_error(path, error))?;
    if writable {
        return Ok(Arc::new(file));
    }
    let overlay = Overlay::new(Arc::new(file))
        .map_err(|source| error(path, "opening", 0, Trouble::Os(source)))?;
    Ok(Arc::new(overlay))
}

fn file_error(path: &Path, failed: OpenError) -> Error {
    let path = path.to_owned();
    match failed {
        OpenError::Absent => Error::NotFound { path },
        OpenError::Locked => Error::InUse { path },
        OpenError::Os(source) => error(&path, "opening", 0, Trouble::Os(source)),
    }
}

/// Creates an empty journal file where none is. It appears under its name only when it is whole and
/// durable: a crash on the way leaves a file `NAME.new`, which the next creation reuses, and never
/// an empty or half-made journal, which would be refused.
pub(super) fn create_file(path: &Path) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let os = |source| error(path, "creating", 0, Trouble::Os(source));
    let file = Arc::new(JournalFile::create(&new).map_err(|failed| file_error(path, failed))?);
    // Whoever holds the lock on NAME.new is the only one who may rename it: look again now.
    if !path.try_exists().map_err(os)? {
        initialise(
            path,
            &Storage::new(Arc::clone(&file) as Arc<dyn StorageBackend>),
        )?;
        file.sync_all().map_err(os)?;
        fs::rename(&new, path).map_err(os)?;
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(os)
}

/// Makes an empty storage an empty journal.
pub(super) fn initialise(path: &Path, storage: &Arc<Storage>) -> Result<(), Error> {
    contained(path, "creating", &Cell::new(0), || {
        storage.begin(FORMAT_VERSION).map_err(Trouble::Os)?;
        let handle = Handle(Arc::clone(storage));
        let database = Builder::new().create_with_backend(handle)?;
        let txn = database.begin_write()?;
        // Created once and for all, so that reading never meets a table that is not there.
        txn.open_table(META)?;
        txn.open_table(RECORDS)?;
        txn.open_table(SNAPSHOTS)?;
        txn.open_table(CURSORS)?;
        txn.open_table(DEDUPE)?;
        txn.open_table(DECISIONS)?;
        txn.commit()?;
        database.close()?;
        Ok(())
    })
}

/// Opens a storage and proves that the journal in it is whole.
///
/// Two checks: redb's own, over the checksums of all its pages (without it a flipped bit in an inner
/// page could hide an id that was seen), and ours, over every record from the snapshot on. The first
/// reads the whole file, which redb does after a crash in any case.
pub(super) fn open_database(
    path: &Path,
    storage: &Arc<Storage>,
    options: &Options,
) -> Result<(Database, Extent), Error> {
    let cache_bytes = options.cache_bytes;
    let acknowledged = acknowledged(path, storage)?;
    let progress = Cell::new(UNKNOWN);
    let opened = contained(path, "opening", &progress, || {
        let database = Builder::new()
            .set_cache_size(cache_bytes)
            .set_check_integrity_on_open(true)
            .create_with_backend(Handle(Arc::clone(storage)))?;
        let ids_max = options.dedupe_ids_per_source_max;
        let extent = extent(&database.begin_read()?, ids_max, &progress)?;
        if extent.last_index < acknowledged {
            let detail = format!("records up to {acknowledged} were acknowledged");
            return Err(Trouble::at(extent.last_index + 1, detail));
        }
        Ok((database, extent))
    });
    match opened {
        Err(Error::Damaged {
            path,
            first_unreadable_index: found,
            detail,
        }) => {
            let walked = first_unreadable(&path, storage.raw(), cache_bytes);
            Err(Error::Damaged {
                path,
                first_unreadable_index: match found.min(walked) {
                    UNKNOWN => 1,
                    known => known,
                },
                detail,
            })
        }
        other => other,
    }
}

/// Reads the first page: the highest index known to be acknowledged, or why the file is not for this
/// program.
fn acknowledged(path: &Path, storage: &Storage) -> Result<u64, Error> {
    let os = |source| error(path, "opening", 0, Trouble::Os(source));
    let path = path.to_owned();
    let (found, acknowledged) = match storage.header().map_err(os)? {
        Header::Journal {
            format_version,
            acknowledged,
        } => (format_version, acknowledged),
        Header::Foreign => {
            let empty = storage.len().map_err(os)? == 0;
            let detail = if empty {
                "it is empty"
            } else {
                "its first page is not a journal's, or damaged"
            };
            return Err(Error::NotAJournal {
                path,
                detail: detail.to_owned(),
            });
        }
    };
    if found > FORMAT_VERSION {
        return Err(Error::NewerFormat {
            path,
            found,
            supported: FORMAT_VERSION,
        });
    }
    acknowledged.ok_or_else(|| Error::Damaged {
        path,
        first_unreadable_index: 1,
        detail: "both notes of the last acknowledged index are damaged".to_owned(),
    })
}

/// Reads what the journal holds: every record from the usable snapshot (or the first) on, and every
/// id.
fn extent(
    txn: &ReadTransaction,
    ids_per_source_max: u64,
    progress: &Cell<u64>,
) -> Result<Extent, Trouble> {
    let records = txn.open_table(RECORDS)?;
    let snapshots = txn.open_table(SNAPSHOTS)?;
    let newest_snapshot = snapshots.last()?.map_or(0, |(index, _)| index.value());
    let first_stored = records.first()?.map(|(index, _)| index.value());
    let last_index = records.last()?.map_or(newest_snapshot, |(i, _)| i.value());
    let first_index = first_stored.unwrap_or(last_index + 1);
    let covered = usable_snapshot(&snapshots, first_index)?.map_or(0, |s| s.index);
    if first_index > covered + 1 {
        // Only without any snapshot: a usable one has the records after it.
        return Err(Trouble::at(1, "the record is missing"));
    }
    if last_index < newest_snapshot {
        return Err(Trouble::at(last_index + 1, "the record is missing"));
    }
    let from = first_index.max(covered + 1);
    let mut last_at_ms = read_whole(&records, from, last_index, progress)?;
    if last_at_ms.is_none() && first_stored.is_some() {
        // The snapshot covers everything, but the last record is still there and has the stamp.
        last_at_ms = read_whole(&records, last_index, last_index, progress)?;
    }
    if last_at_ms.is_none()
        && let Some(value) = txn.open_table(META)?.get(TRUNCATED_AT_KEY)?
    {
        let stamp = unseal_number("the entry", TRUNCATED_AT_KEY, value.value())?;
        last_at_ms = Some(stamp.cast_signed());
    }
    let mut cursor_names = BTreeSet::new();
    for entry in txn.open_table(CURSORS)?.iter()? {
        cursor_names.insert(entry?.0.value().to_owned());
    }
    let ids = Ids::read(txn, ids_per_source_max, last_at_ms.unwrap_or(i64::MIN))?;
    Ok(Extent {
        first_index,
        last_index,
        last_at_ms,
        cursor_names,
        ids,
    })
}

/// Reads every record of `from..=last` and returns the last one's stamp; `progress` is the first
/// index not yet read whole.
fn read_whole(
    records: &impl ReadableTable<u64, &'static [u8]>,
    from: u64,
    last: u64,
    progress: &Cell<u64>,
) -> Result<Option<i64>, Trouble> {
    let mut last_at_ms = None;
    let mut next = from;
    progress.set(next);
    for entry in records.range(from..=last)? {
        let (index, value) = entry?;
        if index.value() != next {
            break;
        }
        last_at_ms = Some(unseal_record(next, value.value())?.0);
        next += 1;
        progress.set(next);
    }
    if next <= last {
        return Err(Trouble::at(next, "the record is missing"));
    }
    Ok(last_at_ms)
}

/// The first index of a damaged file that can't be read whole, found by reading record by record
/// without redb's own check and without changing the file.
fn first_unreadable(path: &Path, raw: Arc<dyn StorageBackend>, cache_bytes: usize) -> u64 {
    let progress = Cell::new(1);
    let read = contained(path, "examining", &progress, || {
        let overlay = Overlay::new(raw).map_err(Trouble::Os)?;
        let database = Builder::new()
            .set_cache_size(cache_bytes)
            .create_with_backend(Handle(Storage::new(Arc::new(overlay))))?;
        let txn = database.begin_read()?;
        let records = txn.open_table(RECORDS)?;
        let Some(first) = records.first()?.map(|(index, _)| index.value()) else {
            progress.set(UNKNOWN);
            return Ok(());
        };
        let last = records.last()?.map_or(first, |(index, _)| index.value());
        read_whole(&records, first, last, &progress)?;
        Ok(())
    });
    match read {
        Err(Error::Damaged {
            first_unreadable_index,
            ..
        }) => first_unreadable_index,
        _ => progress.get(),
    }
}
