//! Many seeds of the stormy scenarios: nothing is violated, and a seed means the same everywhere.
#![allow(clippy::unwrap_used)]

mod common;

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
    passes("storm", if long() { 1_000 } else { 60 });
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

#[test]
fn a_daemon_alone_survives_it_too() {
    passes("alone", if long() { 1_000 } else { 60 });
}
