//! The rules of `Journal`, run over every implementation.

use super::super::{
    Append, CURSOR_BYTES_MAX, DEDUPE_AGE_MS, DecisionRecord, Error, ErrorKind, GROUP_BYTES_MAX,
    Journal, READ_BYTES_MAX, Redb,
};
use super::{append_many, id, memory, new_disk, open_disk, options, plain, seen};

/// Ids remembered per source in these tests.
const IDS_MAX: u64 = 3;

type Make<'a> = &'a mut dyn FnMut() -> Box<dyn Journal>;

#[test]
fn memory_conforms() {
    conforms(&mut || memory(IDS_MAX));
}

#[test]
fn redb_on_a_simulated_disk_conforms() {
    conforms(&mut || Box::new(open_disk(&new_disk(0), IDS_MAX).unwrap()));
}

#[test]
fn redb_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = 0;
    conforms(&mut || {
        files += 1;
        let path = folder.path().join(format!("{files}.redb"));
        Box::new(Redb::open(&path, options(IDS_MAX)).unwrap())
    });
}

fn conforms(make: Make<'_>) {
    starts_empty(&mut *make());
    appends_by_compare_and_set(&mut *make());
    refuses_what_is_too_large(&mut *make());
    never_goes_back_in_time(&mut *make());
    reads_contiguously(&mut *make());
    stops_a_read_at_its_byte_bound(&mut *make());
    truncates_only_what_a_snapshot_covers(&mut *make());
    keeps_two_snapshots(&mut *make());
    keeps_cursors(&mut *make());
    remembers_ids_for_seven_days(&mut *make());
    evicts_the_oldest_id_over_the_cap(&mut *make());
    a_repeated_id_counts_as_the_newest(&mut *make());
    finds_decisions_by_pool_and_time(&mut *make());
    truncation_takes_decisions_along(&mut *make());
    what_still_stands_is_kept_by_a_truncation(&mut *make());
}

fn starts_empty(journal: &mut dyn Journal) {
    assert_eq!((journal.first_index(), journal.last_index()), (1, 0));
    assert_eq!(journal.last_at_ms(), None);
    assert_eq!(journal.read_from(1, 10).unwrap(), []);
    assert_eq!(journal.latest_snapshot().unwrap(), None);
    assert_eq!(journal.cursor("redis").unwrap(), None);
    assert_eq!(seen(journal, "a", "1"), None);
    assert_eq!(journal.decisions("p", i64::MIN, i64::MAX, 9).unwrap(), []);
    assert!(!journal.needs_reopen());
    assert_eq!(journal.reopen().unwrap(), 0);
}

fn appends_by_compare_and_set(journal: &mut dyn Journal) {
    assert_eq!(journal.append(0, &plain(10, b"one")).unwrap(), 1);
    for expected in [0, 2] {
        match journal.append(expected, &plain(20, b"two")).unwrap_err() {
            Error::Conflict { expected: e, last } => assert_eq!((e, last), (expected, 1)),
            other => panic!("{other}"),
        }
    }
    assert_eq!(journal.append(1, &plain(20, b"two")).unwrap(), 2);
    let records = journal.read_from(1, 10).unwrap();
    let read: Vec<_> = records
        .iter()
        .map(|r| (r.index, r.at_ms, r.bytes.as_slice()))
        .collect();
    assert_eq!(read, [(1, 10, &b"one"[..]), (2, 20, b"two")]);
    assert_eq!(journal.last_at_ms(), Some(20));
}

fn refuses_what_is_too_large(journal: &mut dyn Journal) {
    let record = vec![7; GROUP_BYTES_MAX + 1];
    let error = journal.append(0, &plain(1, &record)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let ids = vec![id("a", "x", 0); 1_025];
    let entry = Append {
        dedupe: &ids,
        ..plain(1, b"")
    };
    assert_eq!(
        journal.append(0, &entry).unwrap_err().kind(),
        ErrorKind::Refused
    );
    let error = journal.save_cursor("c", &vec![0; CURSOR_BYTES_MAX + 1]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(journal.last_index(), 0);
    let largest = &record[..GROUP_BYTES_MAX];
    assert_eq!(journal.append(0, &plain(1, largest)).unwrap(), 1);
    assert!(journal.read_from(1, 1).unwrap()[0].bytes == largest);
}

fn never_goes_back_in_time(journal: &mut dyn Journal) {
    journal.append(0, &plain(100, b"a")).unwrap();
    match journal.append(1, &plain(99, b"b")).unwrap_err() {
        Error::Backwards { at_ms, last_at_ms } => assert_eq!((at_ms, last_at_ms), (99, 100)),
        other => panic!("{other}"),
    }
    assert_eq!(journal.append(1, &plain(100, b"b")).unwrap(), 2);
}

fn reads_contiguously(journal: &mut dyn Journal) {
    append_many(journal, 20);
    let indexes = |from, max| {
        let records = journal.read_from(from, max).unwrap();
        let own = |r: &super::super::Record| r.bytes == r.index.to_string().as_bytes();
        assert!(records.iter().all(own));
        records.iter().map(|r| r.index).collect::<Vec<_>>()
    };
    assert_eq!(indexes(1, 3), [1, 2, 3]);
    assert_eq!(indexes(18, 100), [18, 19, 20]);
    assert_eq!(indexes(21, 5), [0; 0]);
    assert_eq!(indexes(1_000, 5), [0; 0]);
    assert_eq!(indexes(5, 0), [0; 0]);
    match journal.read_from(0, 1).unwrap_err() {
        Error::Truncated { index, first_index } => assert_eq!((index, first_index), (0, 1)),
        other => panic!("{other}"),
    }
}

fn stops_a_read_at_its_byte_bound(journal: &mut dyn Journal) {
    let record = vec![1; GROUP_BYTES_MAX];
    let count = (READ_BYTES_MAX / GROUP_BYTES_MAX + 3) as u64;
    for last in 0..count {
        journal.append(last, &plain(1, &record)).unwrap();
    }
    let read = journal.read_from(1, usize::MAX).unwrap().len();
    assert!(read >= 1 && read < count as usize, "{read} of {count}");
    let rest = journal.read_from(read as u64 + 1, usize::MAX).unwrap();
    assert_eq!(rest.len(), count as usize - read);
}

fn truncates_only_what_a_snapshot_covers(journal: &mut dyn Journal) {
    append_many(journal, 10);
    match journal.truncate_before(2, &|_| false).unwrap_err() {
        Error::NotCovered {
            index,
            covered_before,
        } => assert_eq!((index, covered_before), (2, 1)),
        other => panic!("{other}"),
    }
    assert_eq!(journal.truncate_before(1, &|_| false).unwrap(), 0);
    journal.save_snapshot(6, b"state").unwrap();
    let error = journal.truncate_before(8, &|_| false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(journal.truncate_before(4, &|_| false).unwrap(), 3);
    assert_eq!((journal.first_index(), journal.last_index()), (4, 10));
    assert_eq!(journal.truncate_before(4, &|_| false).unwrap(), 0);
    assert!(matches!(
        journal.read_from(3, 1),
        Err(Error::Truncated {
            index: 3,
            first_index: 4
        })
    ));
    assert_eq!(journal.truncate_before(7, &|_| false).unwrap(), 3);
    assert_eq!(journal.read_from(7, 100).unwrap().len(), 4);
    // Down to nothing: the order goes on where it was.
    journal.save_snapshot(10, b"state").unwrap();
    assert_eq!(journal.truncate_before(11, &|_| false).unwrap(), 4);
    assert_eq!((journal.first_index(), journal.last_index()), (11, 10));
    assert_eq!(journal.read_from(11, 100).unwrap(), []);
    append_many(journal, 1);
    assert_eq!((journal.first_index(), journal.last_index()), (11, 11));
}

fn keeps_two_snapshots(journal: &mut dyn Journal) {
    append_many(journal, 9);
    assert_eq!(
        journal.save_snapshot(10, b"x").unwrap_err().kind(),
        ErrorKind::Refused
    );
    for index in [2, 5, 9] {
        let state = format!("state {index}");
        journal.save_snapshot(index, state.as_bytes()).unwrap();
        let newest = journal.latest_snapshot().unwrap().unwrap();
        assert_eq!((newest.index, newest.bytes), (index, state.into_bytes()));
    }
    assert_eq!(
        journal.save_snapshot(5, b"x").unwrap_err().kind(),
        ErrorKind::Refused
    );
    // The same index again replaces it (after an upgrade the state is encoded anew).
    journal.save_snapshot(9, b"anew").unwrap();
    assert_eq!(journal.latest_snapshot().unwrap().unwrap().bytes, b"anew");
}

fn keeps_cursors(journal: &mut dyn Journal) {
    journal.save_cursor("redis", b"1-7").unwrap();
    journal.save_cursor("nats", b"1-3").unwrap();
    assert_eq!(journal.cursor("redis").unwrap().unwrap(), b"1-7");
    journal.flush().unwrap();
    journal.save_cursor("redis", b"1-8").unwrap();
    assert_eq!(journal.cursor("redis").unwrap().unwrap(), b"1-8");
    append_many(journal, 1);
    assert_eq!(journal.cursor("redis").unwrap().unwrap(), b"1-8");
    assert_eq!(journal.cursor("nats").unwrap().unwrap(), b"1-3");
    assert_eq!(journal.cursor("kafka").unwrap(), None);
    journal.flush().unwrap();
    journal.flush().unwrap();
}

fn append_ids(journal: &mut dyn Journal, at_ms: i64, ids: &[super::DedupeEntry<'_>]) {
    let entry = Append {
        dedupe: ids,
        ..plain(at_ms, b"r")
    };
    journal.append(journal.last_index(), &entry).unwrap();
}

fn remembers_ids_for_seven_days(journal: &mut dyn Journal) {
    append_ids(journal, 0, &[id("a", "old", 1), id("b", "old", 2)]);
    append_ids(journal, 10, &[id("a", "new", 3)]);
    let keys = [("a", "old"), ("b", "old"), ("a", "new"), ("b", "new")];
    let all = |journal: &dyn Journal| keys.map(|(source, id)| seen(journal, source, id));
    assert_eq!(all(journal), [Some(1), Some(2), Some(3), None]);
    append_ids(journal, DEDUPE_AGE_MS, &[]);
    assert_eq!(all(journal), [Some(1), Some(2), Some(3), None]);
    // Aged out for every source at once, also where nothing new came.
    append_ids(journal, DEDUPE_AGE_MS + 1, &[]);
    assert_eq!(all(journal), [None, None, Some(3), None]);
    append_ids(journal, DEDUPE_AGE_MS + 5, &[id("a", "newer", 4)]);
    append_ids(journal, DEDUPE_AGE_MS + 6, &[id("a", "old", 5)]);
    assert_eq!(all(journal), [Some(5), None, Some(3), None]);
    assert_eq!(journal.dedupe_evictions(), 0);
}

fn evicts_the_oldest_id_over_the_cap(journal: &mut dyn Journal) {
    append_ids(journal, 0, &[id("a", "1", 1), id("a", "2", 2)]);
    append_ids(journal, 1, &[id("a", "3", 3), id("b", "1", 9)]);
    assert_eq!(journal.dedupe_evictions(), 0);
    append_ids(journal, 2, &[id("a", "4", 4), id("a", "5", 5)]);
    let left = ["1", "2", "3", "4", "5"].map(|id| seen(journal, "a", id));
    assert_eq!(left, [None, None, Some(3), Some(4), Some(5)]);
    assert_eq!(seen(journal, "b", "1"), Some(9));
    assert_eq!(journal.dedupe_evictions(), 2);
}

fn a_repeated_id_counts_as_the_newest(journal: &mut dyn Journal) {
    append_ids(
        journal,
        0,
        &[id("a", "1", 1), id("a", "2", 2), id("a", "3", 3)],
    );
    append_ids(journal, 1, &[id("a", "1", 7)]);
    append_ids(journal, 2, &[id("a", "4", 4)]);
    let left = ["1", "2", "3", "4"].map(|id| seen(journal, "a", id));
    assert_eq!(left, [Some(7), None, Some(3), Some(4)]);
    assert_eq!(journal.dedupe_evictions(), 1);
}

fn decision(pool: &str, at_ms: i64, index: u64, ordinal: u32, text: &str) -> DecisionRecord {
    DecisionRecord {
        pool: pool.to_owned(),
        at_ms,
        index,
        ordinal,
        bytes: text.as_bytes().to_vec(),
    }
}

fn append_decisions(journal: &mut dyn Journal, decisions: &[DecisionRecord]) {
    let last = journal.last_index();
    let entry = Append {
        decisions,
        ..plain((last as i64 + 1) * 1_000, b"r")
    };
    journal.append(last, &entry).unwrap();
}

fn finds_decisions_by_pool_and_time(journal: &mut dyn Journal) {
    append_many(journal, 3);
    let first = decision("p", 1_000, 1, 0, "start");
    let second = decision("p", 2_000, 2, 0, "stop");
    let third = decision("p", 2_000, 2, 1, "start again");
    let other = decision("p2", 2_000, 2, 0, "other pool");
    append_decisions(journal, &[third.clone(), first.clone()]);
    append_decisions(journal, &[other.clone(), second.clone()]);
    let find = |pool, from, to, max| journal.decisions(pool, from, to, max).unwrap();
    let all = [first.clone(), second.clone(), third.clone()];
    assert_eq!(find("p", i64::MIN, i64::MAX, 9), all);
    assert_eq!(find("p", i64::MIN, i64::MAX, 2), all[..2]);
    assert_eq!(find("p", 1_000, 2_000, 9), all[..1]);
    assert_eq!(find("p", 1_001, 2_001, 9), all[1..]);
    assert_eq!(find("p", 5, 5, 9), []);
    assert_eq!(find("p", 9, 5, 9), []);
    assert_eq!(find("p2", 0, 9_000, 9), [other]);
    assert_eq!(find("p3", 0, 9_000, 9), []);
    let at = |pool, at| journal.decision_at(pool, at).unwrap();
    assert_eq!(at("p", 999), None);
    assert_eq!(at("p", 1_000), Some(first.clone()));
    assert_eq!(at("p", 1_999), Some(first.clone()));
    assert_eq!(at("p", 2_000), Some(third.clone()), "the last of one stamp");
    assert_eq!(at("p", i64::MAX), Some(third));
    assert_eq!(at("o", i64::MAX), None);
    assert_eq!(at("p1", i64::MAX), None, "another pool's are no answer");
    // Stored again by a replay: the same entry, not a second one.
    append_decisions(journal, &[second]);
    assert_eq!(journal.decisions("p", 0, 9_000, 9).unwrap(), all);
}

fn truncation_takes_decisions_along(journal: &mut dyn Journal) {
    append_many(journal, 2);
    // Two records with one stamp: their decisions are told apart by index.
    journal.append(2, &plain(2_000, b"3")).unwrap();
    let kept = decision("p", 2_000, 3, 0, "kept");
    let decisions = [
        decision("p", 1_000, 1, 0, "gone"),
        decision("p", 2_000, 2, 0, "gone"),
        decision("q", 2_000, 2, 0, "gone"),
        kept.clone(),
    ];
    append_decisions(journal, &decisions);
    journal.save_snapshot(3, b"state").unwrap();
    assert_eq!(journal.truncate_before(3, &|_| false).unwrap(), 2);
    assert_eq!(journal.decisions("p", 0, 9_000, 9).unwrap(), [kept]);
    assert_eq!(journal.decisions("q", 0, 9_000, 9).unwrap(), []);
}

fn what_still_stands_is_kept_by_a_truncation(journal: &mut dyn Journal) {
    append_many(journal, 5);
    let standing = [
        decision("p", 2_000, 2, 1, "stands since"),
        decision("q", 1_000, 1, 0, "the only one"),
    ];
    let later = decision("p", 5_000, 5, 0, "later");
    let gone = [
        decision("p", 1_000, 1, 0, "gone"),
        decision("p", 2_000, 2, 0, "gone"),
        decision("left", 2_000, 2, 0, "gone"),
    ];
    append_decisions(journal, &gone);
    append_decisions(journal, &standing);
    append_decisions(journal, std::slice::from_ref(&later));
    journal.save_snapshot(6, b"state").unwrap();
    let in_the_fleet = |pool: &str| pool != "left";
    // Twice: what was kept is kept again.
    assert_eq!(journal.truncate_before(4, &in_the_fleet).unwrap(), 3);
    assert_eq!(journal.truncate_before(5, &in_the_fleet).unwrap(), 1);
    let all = |pool: &str| journal.decisions(pool, i64::MIN, i64::MAX, 9).unwrap();
    assert_eq!(all("p"), [standing[0].clone(), later]);
    assert_eq!(all("q"), standing[1..]);
    assert_eq!(all("left"), []);
    assert_eq!(
        journal.decision_at("p", 4_999).unwrap(),
        Some(standing[0].clone())
    );
}
