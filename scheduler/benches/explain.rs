//! Explaining as a lookup: the decision that held for a pool at an instant, in a journal with as many decision records as
//! 30 days of 10,000 pools leave.
//!
//! `cargo bench -p sunward --bench explain` looks into 200,000 records; with `SUNWARD_LONG=1` into 10 million, 1,000 per
//! pool (about 7 GB beside the build, and some minutes to write). The shipped policy takes 23 decisions in the 18 hours and at
//! the three sites of `sunward demo --fast`, which is 307 per pool in 30 days and 3 million for 10,000 pools: a third of that.
//!
//! The records are written in the order of the table, which a bulk load can and a daemon can't; the tree that a lookup
//! goes down is as deep either way. What is measured is what the engine loop does for one question: the decision at an
//! instant and the one after it, read, checked and decoded.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

#[path = "../../tests/figures.rs"]
mod figures;

use std::path::Path;
use std::time::{Duration, Instant};

use figures::{Figure, Goal};
use sunward::journal::{
    Append, DECISION_BYTES_PER_APPEND_MAX, DECISIONS_PER_APPEND_MAX, DecisionRecord, Journal as _,
    Options, Redb,
};
use sunward::writer::Writer;
use sunward_core::action::{Decision, Input, Loser};
use sunward_core::event::Event;
use sunward_core::protocol::group::{Group, Request};
use sunward_core::time::{Span, Timestamp};

const COMMAND: &str = "cargo bench -p sunward --bench explain";
const COMMAND_LONG: &str = "SUNWARD_LONG=1 cargo bench -p sunward --bench explain";
const POOLS: u64 = 10_000;
/// Decisions of a pool, in the short and in the long form.
const PER_POOL: u64 = 20;
const PER_POOL_LONG: u64 = 1_000;
/// The window of history that the decisions lie in.
const WINDOW: Span = Span::from_mins(30 * 24 * 60);
/// 2026-03-01T00:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_772_323_200_000);
const QUESTIONS: usize = 20_000;
/// What a question may take.
const GOAL_MS: f64 = 50.0;

fn main() {
    // `cargo test --benches` and `cargo nextest` pass flags; a plain run measures.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let long = std::env::var_os("SUNWARD_LONG").is_some_and(|value| value == "1");
    let per_pool = if long { PER_POOL_LONG } else { PER_POOL };
    // On the file system of the build, not on one in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("journal.redb");
    let began = Instant::now();
    fill(&path, per_pool);
    let size = std::fs::metadata(&path).unwrap().len();
    println!(
        "{} records, {} MB, written in {:?}",
        POOLS * per_pool,
        size / 1_000_000,
        began.elapsed()
    );
    let began = Instant::now();
    let journal = Redb::open(&path, Options::default()).unwrap();
    let writer = Writer::recover(Box::new(journal)).unwrap();
    println!("opened in {:?}", began.elapsed());
    let took = ask(&writer, per_pool);
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1_000.0;
    let records = POOLS * per_pool;
    for (percentile, name) in [(50, "median"), (99, "p99"), (100, "worst")] {
        Figure {
            name: &format!("a decision explained, of {records} records ({name})"),
            value: at(percentile),
            unit: "ms",
            goal: if percentile == 99 {
                Goal::AtMost(GOAL_MS)
            } else {
                Goal::None
            },
            against: None,
            command: if long { COMMAND_LONG } else { COMMAND },
        }
        .report();
    }
}

/// When the decision of that number was taken: evenly over the window.
fn taken_at(number: u64, per_pool: u64) -> Timestamp {
    let each = WINDOW.as_millis() / per_pool as i64;
    START + Span::from_millis(number as i64 * each)
}

/// Writes the decisions of every pool, as many per append as one takes.
fn fill(path: &Path, per_pool: u64) {
    let mut journal = Redb::open(path, Options::default()).unwrap();
    let mut batch: Vec<DecisionRecord> = Vec::new();
    let mut bytes = 0;
    for pool in 0..POOLS {
        for number in 0..per_pool {
            let record = record(pool, number, per_pool);
            let full = batch.len() == DECISIONS_PER_APPEND_MAX
                || bytes + record.bytes.len() > DECISION_BYTES_PER_APPEND_MAX;
            if full {
                append(&mut journal, &batch);
                batch.clear();
                bytes = 0;
            }
            bytes += record.bytes.len();
            batch.push(record);
        }
    }
    append(&mut journal, &batch);
    journal.close().unwrap();
}

fn append(journal: &mut Redb, decisions: &[DecisionRecord]) {
    let mut group = Group::default();
    group.add(Request::new(vec![Event::Tick]).unwrap());
    let entry = Append {
        at_ms: (START + WINDOW).as_millis(),
        record: group.record(START + WINDOW),
        dedupe: &[],
        decisions,
    };
    journal.append(journal.last_index(), &entry).unwrap();
}

/// A decision as the core writes it: three inputs, one loser.
fn record(pool: u64, number: u64, per_pool: u64) -> DecisionRecord {
    let at = taken_at(number, per_pool);
    let input = |name: &str, kind: &str, value: f64| Input {
        name: name.to_owned(),
        stream: format!("watttime/{kind}/wt:ZONE_{}", pool % 100),
        value: Some(value),
        unit: "gCO2e/kWh".to_owned(),
        age_ms: Some(184_250),
        state: "fresh".to_owned(),
    };
    let decision = Decision {
        pool: name(pool).into(),
        at,
        index: number + 1,
        target: u32::from(number.is_multiple_of(2)) * 8,
        before: u32::from(!number.is_multiple_of(2)) * 8,
        rule: "curtailment/threshold".into(),
        reason:
            "the release condition holds; releases at 2026-03-01T12:10:00Z; kept by min_run until \
                 2026-03-01T12:35:00Z"
                .to_owned(),
        inputs: vec![
            input("carbon", "carbon_intensity.marginal", 92.5 + number as f64),
            input("surplus", "surplus_power", 310.0),
            input("price", "energy_price.day_ahead", -4.25),
        ],
        losers: vec![Loser {
            rule: "night/calendar".to_owned(),
            reason: "released; the activate condition does not hold; another rule comes first"
                .to_owned(),
        }],
        next_possible_change: Some(at + Span::from_mins(10)),
    };
    DecisionRecord {
        pool: name(pool),
        at_ms: at.as_millis(),
        index: number + 1,
        ordinal: 0,
        bytes: rmp_serde::to_vec_named(&decision).unwrap(),
    }
}

fn name(pool: u64) -> String {
    format!("site-{:04}-pool-{pool:05}", pool / 10)
}

/// Asks about random pools at random instants, checks each answer, and returns what each took, ascending.
fn ask(writer: &Writer, per_pool: u64) -> Vec<Duration> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        // xorshift64*, Vigna 2016.
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        random.wrapping_mul(0x2545_f491_4f6c_dd1d) % below
    };
    let mut took = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let (pool, at) = (name(next(POOLS)), next(WINDOW.as_millis() as u64));
        let at = START + Span::from_millis(at as i64);
        let began = Instant::now();
        let held = writer.decision_at(&pool, at).unwrap().unwrap();
        let after = writer.decision_after(&pool, at).unwrap();
        took.push(began.elapsed());
        assert_eq!(*held.pool, *pool);
        assert!(held.at <= at && after.is_none_or(|after| after.at > at));
        assert!(at - held.at <= Span::from_millis(WINDOW.as_millis() / per_pool as i64));
    }
    took.sort_unstable();
    took
}
