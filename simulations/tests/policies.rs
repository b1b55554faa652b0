//! The policy library in a simulated world: operators, the grid and budgets beside every kind of fault.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use sunward_simulations::fault::Fault;
use sunward_simulations::report::{Report, run_seeds};
use sunward_simulations::world::Core;

use common::{long, policies, say, scenario};

/// Kinds of disturbance that the scenario is there for.
const ITS_OWN: [Fault; 13] = [
    Fault::LeaderAway,
    Fault::ForecastLate,
    Fault::ForecastMissing,
    Fault::OverrideSet,
    Fault::OverrideCleared,
    Fault::OverrideExpired,
    Fault::GridDispatch,
    Fault::GridLimit,
    Fault::GridEmergency,
    Fault::GridTest,
    Fault::GridRevised,
    Fault::GridCancelled,
    Fault::BudgetNearlySpent,
];

fn passes(first: u64, seeds: u64) -> Report {
    let scenario = policies();
    let report = run_seeds(
        &scenario,
        "policies",
        first,
        seeds,
        2,
        &Core::default(),
        &|_| {},
    );
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    report
}

#[test]
fn every_policy_of_the_library_survives_operators_and_the_grid() {
    let report = passes(1, if long() { 1_000 } else { 2 });
    let faults: u64 = report.faults.values().sum();
    let per_site_hour = faults as f64 / report.simulated_site_hours;
    assert!(
        per_site_hour >= 1.0,
        "{per_site_hour} disturbances per site and hour"
    );
    for fault in ITS_OWN.into_iter().filter(|_| long()) {
        assert!(
            report.faults.contains_key(fault.as_str()),
            "{fault:?} never struck"
        );
    }
    say(&format!("{:?}", report.faults));
    assert!(
        report.totals.starts >= 20,
        "{} starts",
        report.totals.starts
    );
}

/// A policy that is added to the library has to be added to the scenario, with pools that it governs.
#[test]
fn every_policy_of_the_library_is_in_the_scenario_and_governs_something() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/library");
    let files = std::fs::read_dir(library)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    #[expect(
        clippy::case_sensitive_file_extension_comparisons,
        reason = "our own files"
    )]
    let is_policy = |name: &String| name.ends_with(".yaml") && !name.ends_with(".test.yaml");
    let there: BTreeSet<String> = files
        .map(|name| name.into_string().unwrap())
        .filter(is_policy)
        .collect();
    let scenario = scenario("policies");
    let named = scenario
        .policy_files
        .iter()
        .filter_map(|file| file.path.rsplit_once("library/"));
    let named: BTreeSet<String> = named.map(|(_, name)| name.to_owned()).collect();
    assert!(!there.is_empty());
    assert_eq!(named, there, "in the scenario, and in the library");
    let set = sunward_policies::policy::PolicySet::compile(&scenario.policy_files).unwrap();
    for policy in set.policies() {
        let pools = scenario
            .fleet
            .pools()
            .iter()
            .filter(|pool| policy.selects(&pool.labels));
        assert!(
            pools.count() >= 2,
            "{} governs fewer than two pools",
            policy.name
        );
    }
}
