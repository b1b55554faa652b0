//! What a journal file must survive, and what must be refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ::redb::{Builder, Database, TableDefinition};

use super::super::fault::{EIO, ENOSPC, Fault, FaultStorage};
use super::super::redb::{Handle, JournalFile, RawStorage, first_page};
use super::super::{Access, Error, ErrorKind, FORMAT_VERSION, Journal, Options, Redb};
use super::{append_many, new_disk, open_disk, options, plain};

const RECORDS: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("records");
const SNAPSHOTS: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("snapshots");

fn open(path: &Path) -> Result<Redb, Error> {
    Redb::open(path, Options::default())
}

fn open_as(path: &Path, access: Access) -> Result<Redb, Error> {
    let options = Options {
        access,
        ..Options::default()
    };
    Redb::open(path, options)
}

/// A closed journal with records 1 to 10, snapshots at 4 and 7, and one cursor.
fn ten_records(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("journal.redb");
    let mut journal = open(&path).unwrap();
    append_many(&mut journal, 10);
    journal.save_snapshot(4, b"state 4").unwrap();
    journal.save_snapshot(7, b"state 7").unwrap();
    journal.save_cursor("redis", b"1-9").unwrap();
    journal.close().unwrap();
    path
}

/// Alters a closed journal behind its back but in redb's own way, so that only the journal's own
/// checksums can tell.
fn alter(
    path: &Path,
    table: TableDefinition<'static, u64, &'static [u8]>,
    change: impl Fn(&mut ::redb::Table<'_, u64, &'static [u8]>),
) {
    let file = JournalFile::open(path, true).unwrap();
    let handle = Handle(RawStorage::new(Arc::new(file)));
    let database = Builder::new().create_with_backend(handle).unwrap();
    let txn = database.begin_write().unwrap();
    change(&mut txn.open_table(table).unwrap());
    txn.commit().unwrap();
}

fn flip_last_byte(table: &mut ::redb::Table<'_, u64, &'static [u8]>, key: u64) {
    let mut bytes = table.remove(key).unwrap().unwrap().value().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    table.insert(key, bytes.as_slice()).unwrap();
}

fn damaged_at(result: Result<impl std::fmt::Debug, Error>) -> u64 {
    match result {
        Err(Error::Damaged {
            first_unreadable_index,
            ..
        }) => first_unreadable_index,
        other => panic!("expected damage, got {other:?}"),
    }
}

#[test]
fn everything_is_there_after_closing() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    let mut journal = open(&path).unwrap();
    assert_eq!((journal.first_index(), journal.last_index()), (1, 10));
    assert_eq!(journal.last_at_ms(), Some(10_000));
    assert_eq!(journal.read_from(1, 99).unwrap().len(), 10);
    assert_eq!(
        journal.latest_snapshot().unwrap().unwrap().bytes,
        b"state 7"
    );
    assert_eq!(journal.cursor("redis").unwrap().unwrap(), b"1-9");
    assert!(journal.size_bytes() > 0);
    append_many(&mut journal, 1);
    // Dropping saves the cursors like closing does.
    journal.save_cursor("redis", b"1-10").unwrap();
    drop(journal);
    let journal = open(&path).unwrap();
    assert_eq!(journal.last_index(), 11);
    assert_eq!(journal.cursor("redis").unwrap().unwrap(), b"1-10");
}

#[test]
fn a_second_opener_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    let first = open(&path).unwrap();
    for access in [Access::CreateIfAbsent, Access::Existing, Access::ReadOnly] {
        let error = open_as(&path, access).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        assert!(error.to_string().contains("journal.redb"), "{error}");
    }
    drop(first);
    let reader = open_as(&path, Access::ReadOnly).unwrap();
    assert!(matches!(open(&path), Err(Error::InUse { .. })));
    drop(reader);
    open(&path).unwrap();
}

#[test]
fn reading_only_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    // As a crash leaves it: not closed, so that redb must repair it.
    let writer = open(&path).unwrap();
    let crashed = folder.path().join("crashed.redb");
    fs::copy(&path, &crashed).unwrap();
    drop(writer);
    let before = fs::read(&crashed).unwrap();
    let mut reader = open_as(&crashed, Access::ReadOnly).unwrap();
    assert_eq!(reader.read_from(1, 99).unwrap().len(), 10);
    assert!(matches!(
        reader.append(10, &plain(99_000, b"x")),
        Err(Error::ReadOnly { .. })
    ));
    assert!(matches!(
        reader.save_cursor("c", b"x"),
        Err(Error::ReadOnly { .. })
    ));
    reader.close().unwrap();
    assert!(
        fs::read(&crashed).unwrap() == before,
        "the file was changed"
    );
}

#[test]
fn what_is_no_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    assert!(matches!(
        open_as(&path, Access::Existing),
        Err(Error::NotFound { .. })
    ));
    fs::write(&path, b"").unwrap();
    assert!(matches!(open(&path), Err(Error::NotAJournal { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"", "the empty file was filled");
    fs::write(&path, b"Dear diary, ".repeat(1_000)).unwrap();
    assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Damaged);
    fs::write(&path, vec![0; 100_000]).unwrap();
    assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Damaged);
    fs::remove_file(&path).unwrap();
    let foreign = Database::create(&path).unwrap();
    drop(foreign);
    assert!(matches!(open(&path), Err(Error::NotAJournal { .. })));
}

#[test]
fn a_newer_format_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    let mut bytes = fs::read(&path).unwrap();
    let page = first_page(FORMAT_VERSION + 1);
    bytes[..page.len()].copy_from_slice(&page);
    fs::write(&path, &bytes).unwrap();
    let error = open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.contains("format version 2") && text.contains("up to 1"),
        "{text}"
    );
    assert!(
        text.contains("Start the version of sunward that wrote it"),
        "{text}"
    );
    assert!(
        fs::read(&path).unwrap() == bytes,
        "the newer file was changed"
    );
}

#[test]
fn an_interrupted_creation_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    fs::write(folder.path().join("journal.redb.new"), b"half a jour").unwrap();
    let mut journal = open(&path).unwrap();
    append_many(&mut journal, 1);
    drop(journal);
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["journal.redb"]);
    assert_eq!(open(&path).unwrap().last_index(), 1);
}

#[test]
fn an_altered_record_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    let whole = fs::read(&path).unwrap();
    for index in [8, 10] {
        fs::write(&path, &whole).unwrap();
        alter(&path, RECORDS, |records| flip_last_byte(records, index));
        assert_eq!(damaged_at(open(&path)), index);
        alter(&path, RECORDS, |records| {
            drop(records.remove(index).unwrap());
        });
        if index == 8 {
            assert_eq!(damaged_at(open(&path)), 8);
        }
    }
    // A record moved to another index is noticed too.
    fs::write(&path, &whole).unwrap();
    alter(&path, RECORDS, |records| {
        let moved = records.remove(10).unwrap().unwrap().value().to_vec();
        records.insert(9, moved.as_slice()).unwrap();
    });
    assert_eq!(damaged_at(open(&path)), 9);
}

#[test]
fn older_history_is_checked_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    alter(&path, RECORDS, |records| {
        flip_last_byte(records, 3);
        records.remove(5).unwrap();
    });
    let mut journal = open(&path).unwrap();
    assert_eq!(damaged_at(journal.read_from(1, 99)), 3);
    assert_eq!(damaged_at(journal.read_from(4, 99)), 5);
    assert_eq!(journal.read_from(1, 2).unwrap().len(), 2);
    // Damage in old history does not stop the present.
    assert!(!journal.needs_reopen());
    append_many(&mut journal, 1);
    assert_eq!(journal.read_from(6, 99).unwrap().len(), 6);
}

#[test]
fn a_damaged_snapshot_falls_back_while_the_records_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    let whole = fs::read(&path).unwrap();
    alter(&path, SNAPSHOTS, |snapshots| flip_last_byte(snapshots, 7));
    let journal = open(&path).unwrap();
    assert_eq!(journal.latest_snapshot().unwrap().unwrap().index, 4);
    drop(journal);
    // A hole after the older snapshot: nothing to fall back on.
    alter(&path, RECORDS, |records| drop(records.remove(6).unwrap()));
    assert_eq!(damaged_at(open(&path)), 6);
    // The same with the records truncated up to the newest snapshot.
    fs::write(&path, &whole).unwrap();
    let mut journal = open(&path).unwrap();
    journal.truncate_before(8, &|_| false).unwrap();
    drop(journal);
    alter(&path, SNAPSHOTS, |snapshots| flip_last_byte(snapshots, 7));
    assert_eq!(damaged_at(open(&path)), 7);
    // And with no good snapshot at all, although the records start at 1.
    fs::write(&path, &whole).unwrap();
    alter(&path, SNAPSHOTS, |snapshots| {
        flip_last_byte(snapshots, 4);
        flip_last_byte(snapshots, 7);
    });
    assert_eq!(damaged_at(open(&path)), 7);
}

#[test]
fn missing_records_before_or_behind_the_snapshot_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = ten_records(folder.path());
    let whole = fs::read(&path).unwrap();
    alter(&path, RECORDS, |records| {
        records.retain_in(6.., |_, _| false).unwrap();
    });
    assert_eq!(damaged_at(open(&path)), 6);
    fs::write(&path, &whole).unwrap();
    alter(&path, RECORDS, |records| {
        records.retain_in(..9, |_, _| false).unwrap();
    });
    assert_eq!(damaged_at(open(&path)), 8);
}

#[test]
fn a_long_truncation_takes_several_commits() {
    let disk = new_disk(1);
    let mut journal = open_disk(&disk, 3).unwrap();
    append_many(&mut journal, 5_000);
    journal.save_snapshot(5_000, b"state").unwrap();
    let before = disk.operations();
    assert_eq!(journal.truncate_before(4_999, &|_| false).unwrap(), 4_998);
    assert!(disk.operations() > before);
    assert_eq!(journal.read_from(4_999, 9).unwrap().len(), 2);
    assert_eq!(journal.truncate_before(5_001, &|_| false).unwrap(), 2);
    journal.close().unwrap();
    // The journal's time outlives its records.
    let mut journal = open_disk(&disk, 3).unwrap();
    assert_eq!(
        (journal.first_index(), journal.last_index()),
        (5_001, 5_000)
    );
    assert_eq!(journal.last_at_ms(), Some(5_000_000));
    let error = journal.append(5_000, &plain(4_999_999, b"x")).unwrap_err();
    assert!(matches!(error, Error::Backwards { .. }), "{error}");
}

#[test]
fn a_cursor_is_durable_with_the_next_commit() {
    let disk = new_disk(2);
    let mut journal = open_disk(&disk, 3).unwrap();
    journal.save_cursor("redis", b"1-1").unwrap();
    append_many(&mut journal, 1);
    journal.save_cursor("redis", b"1-2").unwrap();
    disk.arm(disk.operations(), Fault::LoseUnsynced);
    drop(journal);
    disk.restart();
    let journal = open_disk(&disk, 3).unwrap();
    assert_eq!(journal.cursor("redis").unwrap().unwrap(), b"1-1");
}

#[test]
fn a_full_disk_stops_appends_until_there_is_room() {
    let disk = new_disk(3);
    let mut journal = open_disk(&disk, 3).unwrap();
    append_many(&mut journal, 2);
    let lasting = Fault::Refuse {
        code: ENOSPC,
        lasting: true,
    };
    disk.arm(disk.operations(), lasting);
    let error = journal.append(2, &plain(9_000, b"x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(journal.needs_reopen());
    assert_eq!(journal.last_index(), 2);
    let error = journal.append(2, &plain(9_000, b"x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NeedsReopen, "{error}");
    assert_eq!(journal.reopen().unwrap_err().kind(), ErrorKind::Full);
    disk.heal();
    let last = journal.reopen().unwrap();
    assert_eq!(last, journal.last_index());
    append_many(&mut journal, 1);
    assert_eq!(journal.read_from(1, 99).unwrap().len() as u64, last + 1);
}

/// The sync of an append fails, the data still reads back, and later the power goes: what reopening
/// called appended must be there.
#[test]
fn what_reopening_finds_is_durable() {
    let mut landed = 0;
    for seed in 0..40 {
        let disk = new_disk(seed);
        let mut journal = open_disk(&disk, 3).unwrap();
        append_many(&mut journal, 2);
        let once = Fault::Refuse {
            code: EIO,
            lasting: false,
        };
        // Some operation of the append; the last but few are its sync.
        disk.arm(disk.operations() + seed % 8, once);
        if journal.append(2, &plain(9_000, b"in doubt")).is_ok() {
            continue;
        }
        let last = journal.reopen().unwrap();
        landed += u64::from(last == 3);
        let read = journal.read_from(1, 99).unwrap();
        assert_eq!(read.len() as u64, last);
        disk.arm(disk.operations(), Fault::LoseUnsynced);
        drop(journal);
        disk.restart();
        let journal = open_disk(&disk, 3).unwrap();
        assert_eq!(journal.read_from(1, 99).unwrap(), read, "seed {seed}");
    }
    assert!(
        landed > 0,
        "no failed append landed: the case was not tested"
    );
}

#[test]
fn acknowledged_records_that_vanish_are_reported_by_reopening() {
    let disk = new_disk(4);
    let mut journal = open_disk(&disk, 3).unwrap();
    append_many(&mut journal, 3);
    let old = FaultStorage::from_bytes(disk.image());
    append_many(&mut journal, 2);
    let once = Fault::Refuse {
        code: EIO,
        lasting: false,
    };
    disk.arm(disk.operations(), once);
    journal.append(5, &plain(9_000, b"x")).unwrap_err();
    // Somebody puts an old copy in place under the running process.
    disk.replace(&old);
    assert_eq!(damaged_at(journal.reopen()), 4);
    assert!(journal.needs_reopen());
}

#[test]
fn errors_name_file_index_and_remedy() {
    let raw = Arc::new(FaultStorage::from_bytes(vec![0; 8_192]));
    let error = Redb::open_storage(Path::new("here.redb"), raw, options(3)).unwrap_err();
    let text = error.to_string();
    for part in ["here.redb", "copy", "empty journal"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
}
