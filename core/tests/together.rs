//! The engine with pools that are planned together: budgets, floors, deadlines, blast radius.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod world;

use std::fmt::Write as _;

use sunward_core::engine::Engine;
use sunward_core::event::{Event, Started};
use sunward_core::invariants;
use sunward_core::overrides::{Override, OverrideEffect, OverrideScope};
use sunward_core::signal::Quality;
use world::{FLEET, World, carbon, file, level, minute};

/// Five pools of one worker at five sites in one zone, 2 kW each, ready after 250 s.
fn fleet() -> String {
    let (mut sites, mut pools) = (String::new(), String::new());
    for i in 0..5 {
        writeln!(
            sites,
            "    - {{name: site-{i}, time_zone: UTC, zones: [{{scheme: wt, code: Z}}]}}"
        )
        .unwrap();
        writeln!(
            pools,
            "    - {{name: pool-{i}, site: site-{i}, labels: {{energy: surplus}}, max_workers: 1, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 8, gpu_vendor: nvidia, gpu_model: H100, ready_after: 250s, actuator: {{memory: {{start: 250s, stop: 60s}}}}}}"
        )
        .unwrap();
    }
    let head = FLEET.split("  sites:").next().unwrap();
    format!(
        "{head}  sites:\n{sites}  pools:\n{pools}  federations: [{{name: job, pools: [pool-0, pool-1, pool-2, pool-3, pool-4]}}]\n"
    )
}

fn policy(more: &str) -> String {
    format!(
        "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {{name: p}}
spec:
  pools: {{energy: surplus}}
  priority: 100
  mode: enforce
  signals:
    carbon: {{source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, on_missing: {{hold: 10m, then: release}}}}
  activate: {{when: carbon < 100}}
  release: {{when: carbon >= 120}}
{more}"
    )
}

fn running(world: &World) -> Vec<String> {
    let running = world.homes.iter().filter(|(_, home)| home.wanted > 0);
    running.map(|(pool, _)| pool.to_string()).collect()
}

fn settle(world: &mut World, m: i64) {
    let differs = world
        .homes
        .iter()
        .filter(|(_, home)| home.ready != home.wanted);
    let pools: Vec<_> = differs.map(|(pool, _)| pool.clone()).collect();
    for pool in pools {
        world.at_home(minute(m), &pool, |home| home.ready = home.wanted);
    }
}

/// The replay of all groups, and of the rest from a snapshot after each of them, gives the same digest.
fn check_replay(world: &World) {
    let mut whole = Engine::new();
    let mut effects = sunward_core::action::Effects::default();
    let half = world.groups.len() / 2;
    let mut kept = None;
    for (index, (at, group)) in world.groups.iter().enumerate() {
        whole.step(*at, group, &mut effects);
        if index == half {
            kept = Some(whole.snapshot());
        }
    }
    assert_eq!(whole.digest(), world.engine.digest());
    let mut rest = Engine::restore(Engine::decode_snapshot(&kept.unwrap()).unwrap());
    for (at, group) in &world.groups[half + 1..] {
        rest.step(*at, group, &mut effects);
    }
    assert_eq!(rest.digest(), world.engine.digest());
}

#[test]
fn a_budget_of_workers_holds_over_the_whole_fleet_and_is_explained() {
    let text = policy("  budgets: [{name: few, limit: 2 workers, scope: fleet}]\n");
    let mut world = World::new(&fleet(), &[&text]);
    world.run_to(minute(11));
    world.carbon(15, "Z", 60.0);
    assert_eq!(running(&world), ["pool-0", "pool-1"]);
    let line = world
        .transcript
        .lines()
        .find(|line| line.contains("decide pool-2 0 -> 0") && line.contains("few"));
    assert!(
        line.is_some_and(|line| line.ends_with(
            "activated; the release condition does not hold; budget p/few leaves no room for more: the limit is 2 workers"
        )),
        "{}",
        world.transcript
    );
    // A reload to a lower limit takes the worst away at once, whatever the minimum run says.
    let less = policy("  min_run: 2h\n  budgets: [{name: few, limit: 2 kW, scope: fleet}]\n");
    world.submit(
        minute(17),
        vec![Event::PoliciesReplaced {
            files: vec![file("p0.yaml", &less)],
        }],
    );
    assert_eq!(running(&world), ["pool-0"]);
    check_replay(&world);
}

#[test]
fn a_sum_over_a_day_ends_all_at_its_instant_and_begins_anew_at_midnight() {
    // 10 kW for 5 hours; a start is paid for 30 minutes and the time to get ready.
    let text = policy(
        "  min_run: 30m\n  budgets: [{name: energy, limit: 50 kWh, per: day, scope: fleet}]\n",
    );
    let mut world = World::new(&fleet(), &[&text]);
    world.run_to(minute(11));
    let day = 24 * 60;
    for m in (15..day + 60).step_by(5) {
        world.carbon(m, "Z", 60.0);
        let broken = invariants::check(&world.engine);
        assert!(broken.is_empty(), "{broken:?}");
        // Five hours after the first start at 0:15 all is spent.
        let expected = if m < 315 || m >= day { 5 } else { 0 };
        assert_eq!(
            running(&world).len(),
            expected,
            "at minute {m}\n{}",
            world.transcript
        );
    }
    assert!(
        world
            .transcript
            .contains("315.00 refuse budget_exhausted None: budget p/energy is spent: 50 kWh of 50 kWh until 2026-01-02T00:00:00Z"),
        "{}",
        world.transcript
    );
    assert_eq!(
        world.transcript.matches("refuse budget_exhausted").count(),
        1
    );
    check_replay(&world);
}

/// Five pools under a budget of 50 kWh a day, five hours of all of them; a restart after three. How many run by then at
/// each five minutes from 3:15 on.
fn over_a_restart(engine: Engine) -> (World, Vec<(i64, usize)>) {
    let text = policy("  budgets: [{name: energy, limit: 50 kWh, per: day, scope: fleet}]\n");
    let mut world = World::bare();
    world.engine = engine;
    world.begin(&fleet(), &[&text]);
    world.run_to(minute(11));
    for m in (15..195).step_by(5) {
        world.carbon(m, "Z", 60.0);
    }
    let started = Started {
        term: 2,
        seed: 7,
        version: "t".into(),
    };
    world.submit(minute(195), vec![Event::Started(started)]);
    let mut found = Vec::new();
    for m in (195..330).step_by(5) {
        world.carbon(m, "Z", 60.0);
        found.push((m, running(&world).len()));
    }
    (world, found)
}

#[test]
fn a_restart_forgets_nothing_of_what_was_spent() {
    let (world, found) = over_a_restart(Engine::new());
    for (m, running) in found {
        assert_eq!(running, if m < 315 { 5 } else { 0 }, "at minute {m}");
    }
    check_replay(&world);
}

/// That test fails where a restart forgets.
#[cfg(feature = "plant")]
#[test]
fn a_budget_that_forgets_is_noticed() {
    use sunward_core::plant::Plant;
    let (_, found) = over_a_restart(Engine::new().planted(Some(Plant::BudgetThatForgets)));
    assert!(found.iter().all(|(_, running)| *running == 5), "{found:?}");
}

#[test]
fn emissions_count_by_the_signal_and_by_what_is_assumed_while_it_is_missing() {
    let text = policy(
        "  min_run: 30m\n  budgets: [{name: co2, limit: 100 kgCO2e, per: day, scope: federation, signal: carbon, assume: 900}]\n",
    );
    let mut world = World::new(&fleet(), &[&text]);
    world.run_to(minute(11));
    // An hour at 60 g, then half an hour without data until min_run and hold are over: 10 kW throughout.
    for m in (15..75).step_by(5) {
        world.carbon(m, "Z", 60.0);
    }
    world.run_to(minute(85));
    assert_eq!(running(&world).len(), 0);
    settle(&mut world, 85);
    let accounts = &world.engine.state().accounts;
    let spend = accounts.budgets[0].spend;
    // 600 g, then 10 minutes of 10 kW at 900 g/kWh.
    assert_eq!(spend.spent, 600_000 + 1_500_000);
    check_replay(&world);
}

#[test]
fn an_operator_corrects_a_spend_and_what_nobody_knows_starts_nothing() {
    let text = policy("  budgets: [{name: energy, limit: 50 kWh, per: day, scope: fleet}]\n");
    let mut world = World::bare();
    let started = Started {
        term: 7,
        seed: 7,
        version: "t".into(),
    };
    world.submit(minute(0), vec![Event::Started(started)]);
    world.submit(
        minute(0),
        vec![
            Event::FleetReplaced {
                file: file("fleet.yaml", &fleet()),
            },
            Event::PoliciesReplaced {
                files: vec![file("p.yaml", &text)],
            },
        ],
    );
    world.run_to(minute(11));
    world.carbon(15, "Z", 60.0);
    assert!(running(&world).is_empty(), "{}", world.transcript);
    assert!(world.transcript.contains(
        "what budget p/energy has spent is not known: no new starts until an operator says it or 2026-01-02T00:00:00Z"
    ));
    let set = |budget: &str, spent| Event::BudgetSet {
        budget: budget.into(),
        part: "".into(),
        spent,
        by: "ops".into(),
    };
    world.submit(minute(16), vec![set("p/energie", 0)]);
    assert!(world.transcript.contains("refuse budget_unknown"));
    world.submit(minute(16), vec![set("p/energy", 49_000_000)]);
    // 1 kWh is left: one pool for the time to get ready, 0.14 kWh; all of them take 0.7.
    assert_eq!(running(&world).len(), 5);
    world.run_to(minute(22));
    assert!(running(&world).is_empty());
    check_replay(&world);
}

#[test]
fn a_floor_keeps_a_quorum_and_gives_way_to_an_operator_and_says_so() {
    let text = policy("  floors: [{name: quorum, federation: job, sites: 2}]\n");
    let mut world = World::new(&fleet(), &[&text]);
    world.run_to(minute(14));
    assert!(running(&world).is_empty(), "nothing starts on missing data");
    // Pools that were not seen yet might run: it is said again when the last of them turns out not to.
    let blocked = world.transcript.matches("refuse floor_blocked").count();
    assert_eq!(blocked, 2, "{}", world.transcript);
    assert!(
        world
            .transcript
            .contains("floor p/quorum needs 2 active sites and has 0")
    );
    assert_eq!(world.engine.state().accounts.blocked.len(), 1);
    world.carbon(15, "Z", 60.0);
    assert_eq!(running(&world).len(), 5);
    assert!(world.engine.state().accounts.blocked.is_empty());
    settle(&mut world, 19);
    world.carbon(20, "Z", 400.0);
    assert_eq!(
        running(&world),
        ["pool-0", "pool-1"],
        "{}",
        world.transcript
    );
    assert!(world.transcript.contains(
        "decide pool-0 1 -> 1 by p/threshold: released; the activate condition does not hold; floor p/quorum needs 2 active sites"
    ), "{}", world.transcript);
    let off = Override {
        id: "o".into(),
        scope: OverrideScope::Pool("pool-0".into()),
        effect: OverrideEffect::Off,
        owner: "ops".into(),
        set_by: "ops".into(),
        reason: "repair".into(),
        set_at: minute(21),
        expires_at: minute(60),
    };
    world.submit(minute(21), vec![Event::OverrideSet(off)]);
    assert_eq!(running(&world), ["pool-1", "pool-2"]);
    // Data is lost: what runs is kept, for good.
    world.run_to(minute(50));
    assert_eq!(running(&world), ["pool-1", "pool-2"]);
    check_replay(&world);
}

#[test]
fn one_site_after_the_other() {
    let text = policy("  max_changing_sites: 2\n");
    let mut world = World::new(&fleet(), &[&text]);
    world.run_to(minute(11));
    world.carbon(15, "Z", 60.0);
    assert_eq!(running(&world).len(), 2);
    settle(&mut world, 16);
    assert_eq!(running(&world).len(), 4);
    // The others do not get ready: after 500 s they no longer count.
    world.carbon(20, "Z", 60.0);
    world.run_to(minute(24));
    assert_eq!(running(&world).len(), 4);
    world.run_to(minute(25));
    assert_eq!(running(&world).len(), 5);
    check_replay(&world);
}

#[test]
fn a_deadline_takes_the_best_hours_and_then_all() {
    let text = policy(
        "  score: 0 - carbon\n  deadlines: [{name: paper, federation: job, finish_by: 2026-01-01T12:00:00Z, work: 10 worker-hours, margin: 1h}]\n",
    );
    let text = text.replace("max_age: 10m,", "max_age: 10m, forecast_max_age: 26h,");
    let mut world = World::new(&fleet(), &[&text]);
    world.run_to(minute(11));
    let forecast = (0..12).map(|hour| {
        let value = if (3..5).contains(&hour) { 150.0 } else { 400.0 };
        let (from, to) = (minute(60 * hour), minute(60 * hour + 60));
        let mut hour = level(&carbon("Z"), from, to, Some(value));
        hour.quality = Quality::Forecast;
        Event::SignalAccepted(hour)
    });
    world.submit(minute(12), forecast.collect());
    // Ten worker-hours are two hours of all five, and a little for getting ready; never is carbon below 120.
    for m in (15..11 * 60).step_by(5) {
        world.carbon(
            m,
            "Z",
            if (180..300).contains(&m) {
                150.0
            } else {
                400.0
            },
        );
        let expected = match m {
            180..300 => 5,
            ..180 | 320.. => 0,
            _ => running(&world).len(),
        };
        assert_eq!(running(&world).len(), expected, "at minute {m}");
        settle(&mut world, m + 4);
    }
    assert!(world.transcript.contains(
        "deadline p/paper runs in the best hours that are left: 0 worker-hours of 10 worker-hours by 2026-01-01T12:00:00Z"
    ), "{}", world.transcript);
    let accounts = &world.engine.state().accounts;
    let summary = accounts.deadline_summaries(
        world.engine.coordination(),
        world.engine.meters(),
        world.engine.state().at,
    );
    assert_eq!(summary[0].remaining, 0, "{summary:?}");
    assert!(running(&world).is_empty());
    check_replay(&world);
}
