//! Many seeds of the stormy scenarios: nothing is violated, and a seed means the same everywhere.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use sunward_core::engine::Engine;
use sunward_core::plant::Plant;
use sunward_core::time::{Span, Timestamp};
use sunward_simulations::fault::Fault;
use sunward_simulations::report::run_seeds;
use sunward_simulations::world::{Core, Options, run};

use common::{long, scenario};

/// Nothing is violated, and faults were not spared.
fn passes(name: &str, seeds: u64) {
    let scenario = scenario(name);
    let report = run_seeds(&scenario, name, 1, seeds, 2, &Core::default(), &|_| {});
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let faults: u64 = report.faults.values().sum();
    let per_site_hour = faults as f64 / report.simulated_site_hours;
    assert!(
        per_site_hour >= 1.0,
        "{name}: {per_site_hour} faults per site and hour"
    );
}

#[test]
fn the_storm_breaks_nothing() {
    passes("storm", if long() { 1_000 } else { 24 });
}

#[test]
fn the_same_seed_gives_the_same_transcript() {
    let scenario = scenario("storm");
    let play = |seed| {
        let options = Options {
            seed,
            transcript: true,
            ..Options::default()
        };
        let outcome = run(&scenario, &options);
        (outcome.transcript, outcome.digest)
    };
    assert_eq!(play(5), play(5));
    assert_ne!(play(5).0, play(6).0);
}

/// One journal, one digest, at every single index.
#[test]
fn every_index_has_one_digest() {
    for name in ["storm", "alone"] {
        let scenario = scenario(name);
        for seed in 1..=if long() { 50 } else { 1 } {
            let options = Options {
                seed,
                every_digest: true,
                ..Options::default()
            };
            let outcome = run(&scenario, &options);
            assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
        }
    }
}

/// The journal is lost again and again while servers are away: every start is above what it can
/// see, goes on above what it sees later, and holds what runs.
#[test]
fn an_empty_journal_beside_a_running_fleet() {
    let mut storm = scenario("storm");
    storm.faults = vec![
        (Fault::JournalLost, 1.0),
        (Fault::LeaderKilled, 10.0),
        (Fault::ApiAway, 6.0),
        (Fault::RedisAway, 4.0),
    ];
    let (mut raised, mut held, mut lost) = (0, 0, 0);
    for seed in 1..=if long() { 200 } else { 5 } {
        let options = Options {
            seed,
            transcript: true,
            ..Options::default()
        };
        let outcome = run(&storm, &options);
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {:#?}",
            outcome.violations
        );
        let has = |line: &str, words: &str| usize::from(line.contains(words));
        for line in outcome.transcript.lines() {
            raised += has(line, "goes on above term");
            lost += has(line, "fault journal_lost");
            let holds = ["1 -> 1", "2 -> 2", "3 -> 3", "4 -> 4"];
            let holds = holds.iter().any(|same| line.contains(same));
            held += usize::from(holds && line.contains("; holding until"));
        }
    }
    common::say(&format!(
        "{lost} journals lost, {raised} terms raised, {held} pools held"
    ));
    assert!(raised > 0 && held > 0, "{raised} {held}");
}

/// What was decided and ordered for the sites whose cluster is not `mgmt-a`, and when.
fn elsewhere(seed: u64, core: Core, broken: bool) -> Vec<(Timestamp, String)> {
    let mut calm = scenario("storm");
    calm.faults.clear();
    let at = calm.start + Span::from_mins(100);
    let options = Options {
        seed,
        unchecked: true,
        transcript: true,
        broken: broken.then(|| ("mgmt-a".into(), at)),
        core,
        ..Options::default()
    };
    let transcript = run(&calm, &options).transcript;
    let line = |line: &str| {
        let (at, rest) = line.split_once(' ')?;
        let (what, pool) = rest.split_once(' ')?;
        let about_others = pool.starts_with("b-") || pool.starts_with("c-");
        if !about_others || !["decide", "scale"].contains(&what) {
            return None;
        }
        // Reasons name instants, and these differ by the milliseconds that the network draws.
        let words = rest.split(" by ").next()?;
        Some((Timestamp::parse_rfc3339(at).unwrap(), words.to_owned()))
    };
    transcript.lines().filter_map(line).collect()
}

/// True where the same happens, each within a second.
fn same_timing(a: &[(Timestamp, String)], b: &[(Timestamp, String)]) -> bool {
    let near = |a: Timestamp, b: Timestamp| (a - b).as_millis().abs() <= 1_000;
    let pairs = a.iter().zip(b);
    a.len() == b.len() && pairs.into_iter().all(|(a, b)| a.1 == b.1 && near(a.0, b.0))
}

/// Architecture invariant 11.
#[test]
fn a_broken_site_changes_no_other_sites_timing() {
    for seed in 1..=if long() { 100 } else { 2 } {
        let whole = elsewhere(seed, Core::default(), false);
        let broken = elsewhere(seed, Core::default(), true);
        assert!(whole.len() > 30, "{}", whole.len());
        assert!(
            same_timing(&whole, &broken),
            "seed {seed}: {whole:#?} {broken:#?}"
        );
    }
    // A loop that waits for one pool's start must be noticed.
    let blocking = || Core {
        engine: Arc::new(|state| Engine::restore(state).planted(Some(Plant::BlockingStart))),
        ..Core::default()
    };
    let noticed = |seed| {
        let whole = elsewhere(seed, blocking(), false);
        !same_timing(&whole, &elsewhere(seed, blocking(), true))
    };
    assert!((1..=5).any(noticed), "the comparison sees nothing");
}

#[test]
fn a_daemon_alone_survives_it_too() {
    passes("alone", if long() { 1_000 } else { 24 });
}
