//! One committed journal per format version: every later version must take it over.
//!
//! `BLESS=1 cargo test -p sunward --test journal_fixture` writes the one of this version, if its
//! format is new. A fixture that exists is never written again: it stands for journals in the field.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

use sunward::journal::{
    Access, DEDUPE_IDS_PER_SOURCE_MAX, DedupeEntry, DedupeKey, FORMAT_VERSION, Options, Redb,
};
use sunward::writer::{Writer, replay};
use sunward_core::action::{Action, Effects};
use sunward_core::event::{Call, Event, Outcome, PackedFile, PoolObservation, Settled, Started};
use sunward_core::protocol::group::{Group, Request};
use sunward_core::signal::{Level, Quality, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::document::SourceFile;

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Largest fixture, in bytes.
const FIXTURE_BYTES_MAX: u64 = 1024 * 1024;

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/journal-v{version}.redb"))
}

fn options(access: Access) -> Options {
    Options {
        access,
        dedupe_ids_per_source_max: DEDUPE_IDS_PER_SOURCE_MAX,
        ..Options::default()
    }
}

/// Commits one group and does what it asks for, as simulated pools would.
fn commit(writer: &mut Writer, at: Timestamp, events: Vec<Event>, ids: &[String]) {
    let mut waiting = vec![(events, ids)];
    while let Some((events, ids)) = waiting.pop() {
        let mut group = Group::default();
        group.add(Request::new(events).unwrap());
        let dedupe: Vec<_> = ids
            .iter()
            .map(|id| DedupeEntry {
                source: "watttime",
                id,
                hash: [7; 32],
            })
            .collect();
        let mut effects = Effects::default();
        writer
            .commit(at, &mut group, &dedupe, &mut effects)
            .unwrap();
        for action in effects.actions {
            let (pool, call, wanted) = match action {
                Action::Claim { pool, term, .. } => (pool, Call::Claim { term }, None),
                Action::Scale(scale) => (
                    scale.pool,
                    Call::Scale {
                        term: scale.term,
                        generation: scale.generation,
                    },
                    Some(scale.replicas),
                ),
                _ => continue,
            };
            let known = writer
                .engine()
                .state()
                .pools
                .get(&pool)
                .and_then(|pool| pool.ledger.confirmed);
            let wanted = wanted.or(known.map(|known| known.wanted)).unwrap_or(0);
            let seen = PoolObservation {
                pool: pool.clone(),
                wanted,
                ready: wanted,
                stopping: 0,
                version: writer.engine().state().index,
                term: Some(1),
                changed_at: None,
            };
            let settled = Settled {
                pool,
                call,
                outcome: Outcome::Accepted(seen),
            };
            waiting.insert(0, (vec![Event::ActionSettled(settled)], &[]));
        }
    }
}

/// Two days of two zones in a fleet of two pools, with a snapshot in the middle.
fn write(path: &Path) {
    let mut writer = Writer::recover(Box::new(
        Redb::open(path, options(Access::CreateIfAbsent)).unwrap(),
    ))
    .unwrap();
    let pack = |path: &str, text: &str| {
        PackedFile::pack(&SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        })
    };
    let started = Started {
        term: 1,
        seed: 7,
        version: "fixture".to_owned(),
    };
    commit(&mut writer, START, vec![Event::Started(started)], &[]);
    let files = vec![
        Event::FleetReplaced {
            file: pack("fleet.yaml", sunward::config::EXAMPLE_FLEET),
        },
        Event::PoliciesReplaced {
            files: vec![pack("curtailment.yaml", sunward::config::SHIPPED_POLICY)],
        },
    ];
    commit(&mut writer, START, files, &[]);
    for step in 0..288_i64 {
        let at = START + Span::from_mins(10 * step);
        let readings = [("CAISO_NORTH", 36), ("SPP_TX", 50)].map(|(zone, period)| {
            Event::SignalAccepted(Level {
                id: format!("{zone}-{step}").into(),
                stream: StreamKey {
                    source: "watttime".into(),
                    kind: Kind::CarbonIntensity,
                    scope: Scope::Zone {
                        scheme: "wt".into(),
                        code: zone.into(),
                    },
                    basis: Some(Basis::Marginal),
                },
                valid_from: at,
                valid_to: at + Span::from_mins(11),
                value: Some(if step % period < period / 2 {
                    40.0
                } else {
                    400.0
                }),
                quality: Quality::Measured,
                issued_at: None,
                sequence: Some(step as u64),
            })
        });
        let ids: Vec<_> = ["CAISO_NORTH", "SPP_TX"]
            .iter()
            .map(|zone| format!("{zone}-{step}"))
            .collect();
        commit(&mut writer, at, readings.to_vec(), &ids);
        if step == 144 {
            writer.snapshot().unwrap();
        }
    }
    writer
        .journal_mut()
        .save_cursor("redis/job", b"a cursor")
        .unwrap();
    writer.journal_mut().flush().unwrap();
}

#[test]
fn every_format_version_has_its_fixture_and_is_taken_over() {
    if std::env::var_os("BLESS").is_some() && !fixture(FORMAT_VERSION).exists() {
        std::fs::create_dir_all(fixture(FORMAT_VERSION).parent().unwrap()).unwrap();
        write(&fixture(FORMAT_VERSION));
    }
    for version in 1..=FORMAT_VERSION {
        let committed = fixture(version);
        let size = std::fs::metadata(&committed)
            .unwrap_or_else(|error| {
                panic!("{}: {error}; write it with BLESS=1", committed.display())
            })
            .len();
        assert!(size <= FIXTURE_BYTES_MAX, "{size} bytes");
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("journal.redb");
        std::fs::copy(&committed, &copy).unwrap();
        taken_over(&copy);
    }
}

fn taken_over(path: &Path) {
    let read_only = Redb::open(path, options(Access::ReadOnly)).unwrap();
    let whole = replay(&read_only, None).unwrap();
    assert!(
        whole
            .decisions
            .iter()
            .filter(|d| d.target > d.before)
            .count()
            >= 8,
        "{:?}",
        whole.decisions
    );
    drop(read_only);

    let mut writer = Writer::recover(Box::new(
        Redb::open(path, options(Access::Existing)).unwrap(),
    ))
    .unwrap();
    let state = writer.engine().state();
    assert_eq!(state.index, writer.journal().last_index());
    assert_eq!(state.index, whole.index);
    assert_eq!(state.term, 1);
    assert_eq!(writer.engine().fleet().pools().len(), 2);
    assert_eq!(writer.engine().policies().policies().len(), 1);
    assert!(state.federations["job"].sequence >= 8);
    assert_eq!(
        writer.journal().cursor("redis/job").unwrap().as_deref(),
        Some(b"a cursor".as_slice())
    );
    let key = |id| DedupeKey {
        source: "watttime",
        id,
    };
    let seen = writer
        .journal()
        .seen(&[key("SPP_TX-287"), key("never-sent")])
        .unwrap();
    assert_eq!(seen, [Some([7; 32]), None]);
    // And it goes on.
    let at = state.at + Span::from_mins(10);
    let started = Started {
        term: 2,
        seed: 8,
        version: "after".to_owned(),
    };
    commit(&mut writer, at, vec![Event::Started(started)], &[]);
    assert_eq!(writer.engine().state().term, 2);
    writer.close().unwrap();
}
