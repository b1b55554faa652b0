//! What is valid but wrong on a fleet: budgets against floors and starts, and policies that share pools.
#![allow(clippy::unwrap_used, missing_docs)]

use sunward_core::fleet::Fleet;
use sunward_core::fleet::lint::studies_on_fleet;
use sunward_policies::lint::studies;
use sunward_policies::{PolicySet, SourceFile};

/// Three sites with one pool each: two of three workers of 2 kW, all or nothing, and one of any number up to three.
const FLEET: &str = "
apiVersion: sunward.dev/v1alpha1
kind: Fleet
metadata: {name: fleet}
spec:
  sites:
  - {name: a, time_zone: UTC, zones: [{scheme: wt, code: A}]}
  - {name: b, time_zone: UTC, zones: [{scheme: wt, code: B}]}
  - {name: c, time_zone: UTC, zones: [{scheme: wt, code: C}]}
  pools:
  - {name: a1, site: a, labels: {energy: surplus, side: west}, max_workers: 3, training_kw: 2, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 5m, actuator: {memory: {start: 5m, stop: 1m}}}
  - {name: b1, site: b, labels: {energy: surplus}, max_workers: 3, training_kw: 2, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 5m, actuator: {memory: {start: 5m, stop: 1m}}}
  - {name: c1, site: c, labels: {energy: surplus}, unit: UNIT, min_workers: 1, max_workers: 3, training_kw: 2, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 5m, actuator: {memory: {start: 5m, stop: 1m}}}
  federations:
  - {name: job, pools: [a1, b1]}
";

fn policy(name: &str, labels: &str, rest: &str) -> SourceFile {
    let text = format!(
        "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {{name: {name}}}\nspec:\n  pools: {labels}\n  \
         signals:\n    carbon: {{source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, \
         max_age: 10m, on_missing: {{hold: 10m, then: release}}}}\n{rest}"
    );
    SourceFile {
        path: format!("{name}.yaml"),
        text,
    }
}

/// The findings on the fleet whose pool `c1` has that unit, in short.
fn look(unit: &str, files: &[SourceFile]) -> Vec<String> {
    let fleet = Fleet::parse(&SourceFile {
        path: "fleet.yaml".to_owned(),
        text: FLEET.replace("UNIT", unit),
    });
    let set = PolicySet::compile(files).unwrap();
    let found = studies_on_fleet(&studies(&set, files), &fleet.unwrap());
    found
        .iter()
        .map(|one| format!("{}:{} {} {}", one.file, one.line, one.code, one.message))
        .collect()
}

fn with(unit: &str, rest: &str) -> Vec<String> {
    let rest = format!(
        "  activate: {{when: carbon < 100, for: 5m}}\n  release: {{when: carbon >= 120, for: 5m}}\n{rest}"
    );
    look(unit, &[policy("p", "{energy: surplus}", &rest)])
}

#[test]
fn a_budget_pays_for_the_floor_beside_it_or_not() {
    let rest = |limit: &str, scope: &str, sites: u32| {
        format!(
            "  budgets:\n  - {{name: feeder, limit: {limit}, scope: {scope}}}\n  floors:\n  - {{name: quorum, sites: {sites}}}\n"
        )
    };
    // c1: one worker always runs (2 kW) and one more is its start (2 kW); a1 or b1 take 6 kW each.
    for (limit, scope, sites, hit) in [
        ("10 kW", "fleet", 2, false),
        ("9 kW", "fleet", 2, true),
        ("16 kW", "fleet", 3, false),
        ("15 kW", "fleet", 3, true),
        ("5 workers", "fleet", 2, false),
        ("4 workers", "fleet", 2, true),
        // Each site by itself: 6 kW for a and b, 4 kW for c.
        ("6 kW", "site", 3, false),
        ("5 kW", "site", 3, true),
        ("5 kW", "site", 1, false),
        ("5 kW", "pool", 2, true),
        // c1 is in no federation, and so under no such budget.
        ("12 kW", "federation", 2, false),
        ("11 kW", "federation", 2, true),
    ] {
        let found = with("worker", &rest(limit, scope, sites));
        let codes = found.iter().filter(|one| one.contains("SUN-L011")).count();
        assert_eq!(
            codes,
            usize::from(hit),
            "{limit} {scope} {sites}: {found:?}"
        );
        assert_eq!(found.len(), codes, "{found:?}");
    }
    let of_job = "  budgets:\n  - {name: feeder, limit: 9 kW, scope: fleet}\n  floors:\n  - {name: quorum, federation: job, sites: 2}\n";
    let found = with("worker", of_job);
    assert!(
        found[0].contains("pays for 1 sites") && found[0].contains("`quorum`"),
        "{found:?}"
    );
}

#[test]
fn a_budget_at_an_instant_lets_some_pool_start_or_not() {
    let budget =
        |limit: &str| format!("  budgets:\n  - {{name: feeder, limit: {limit}, scope: fleet}}\n");
    assert_eq!(with("worker", &budget("4 kW")), [""; 0]);
    let found = with("worker", &budget("3 kW"));
    assert!(
        found[0].contains("SUN-L012") && found[0].starts_with("p.yaml:11 "),
        "{found:?}"
    );
    // As all or nothing, c1 takes 6 kW, too.
    assert_eq!(with("pool", &budget("6 kW")), [""; 0]);
    assert!(with("pool", &budget("5 kW"))[0].contains("SUN-L012"));
}

#[test]
fn a_budget_over_a_period_pays_one_minimum_run_or_not() {
    // The least start is c1's: 2 kW for 55 + 5 minutes, 2 kWh; at 100 g/kWh 0.2 kg.
    let rest = |limit: &str| {
        let weight = if limit.contains("CO2e") {
            ", signal: carbon, assume: 900"
        } else {
            ""
        };
        format!(
            "  min_run: 55m\n  budgets:\n  - {{name: b, limit: {limit}, per: day, scope: fleet{weight}}}\n"
        )
    };
    for (limit, hit) in [
        ("2 kWh", false),
        ("1 kWh", true),
        ("0.2 kgCO2e", false),
        ("0.1 kgCO2e", true),
    ] {
        let found = with("worker", &rest(limit));
        assert_eq!(found.len(), usize::from(hit), "{limit}: {found:?}");
        assert!(!hit || found[0].contains("SUN-L012"), "{found:?}");
    }
    assert!(with("worker", &rest("1 kWh"))[0].contains("pays 50 %"));
    assert_eq!(
        with(
            "worker",
            &rest("1 kWh").replace("min_run: 55m", "min_rest: 55m")
        ),
        [""; 0]
    );
}

#[test]
fn policies_share_pools_of_the_fleet_and_not_only_labels() {
    let low =
        "  activate: {when: carbon < 100, for: 5m}\n  release: {when: carbon >= 120, for: 5m}\n";
    let high =
        "  activate: {when: carbon > 300, for: 5m}\n  release: {when: carbon <= 250, for: 5m}\n";
    let west = policy("west", "{side: west}", high);
    let found = look(
        "worker",
        &[policy("all", "{energy: surplus}", low), west.clone()],
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("SUN-L013") && found[0].contains("pool a1"),
        "{found:?}"
    );
    // West's one pool is governed by a policy of higher priority; not so the other way round.
    let above = policy("all", "{energy: surplus}", &format!("  priority: 9\n{low}"));
    let found = look("worker", &[above, west]);
    assert!(
        found.len() == 1 && found[0].contains("SUN-L003"),
        "{found:?}"
    );
    let above = policy("west", "{side: west}", &format!("  priority: 9\n{low}"));
    assert_eq!(
        look("worker", &[policy("all", "{energy: surplus}", low), above]),
        [""; 0]
    );
}
