//! What rules are told beside plain readings: counts, calendars, a look ahead, estimates, our own draw.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod world;

use sunward_core::action::Decision;
use sunward_core::engine::Engine;
use sunward_core::event::{Event, Started};
use sunward_core::grid_event::{GridEvent, GridEventKind, GridEventStatus, GridTarget};
use sunward_core::signal::{Level, Quality, Scope, StreamKey};
use sunward_core::time::Timestamp;
use sunward_core::units::Kind;
use world::{FLEET, POLICY, World, carbon, level, minute};

/// The usual policy with other lines from `activate` on, and `signal` added to its signal.
fn policy(signal: &str, rest: &str) -> String {
    let head = POLICY.split("  activate:").next().unwrap();
    let head = head.replace("then: release}}", &format!("then: release}}{signal}}}"));
    format!("{head}{rest}")
}

fn wanted(world: &World, pool: &str) -> u32 {
    world.homes.get(pool).map_or(0, |home| home.wanted)
}

/// Who decided last about a pool.
fn last<'a>(world: &'a World, pool: &str) -> &'a Decision {
    let of = world.decisions.iter().rev();
    of.into_iter()
        .find(|decision| decision.pool.as_ref() == pool)
        .unwrap()
}

fn post(world: &mut World, at: i64, level: Level) {
    world.submit(minute(at), vec![Event::SignalAccepted(level)]);
}

/// A carbon level that is issued at minute `issued` for the minutes from `from` to `to`.
fn issued(issued: i64, from: i64, to: i64, value: f64, quality: Quality) -> Level {
    Level {
        quality,
        issued_at: Some(minute(issued)),
        ..level(
            &carbon("CAISO_NORTH"),
            minute(from),
            minute(to),
            Some(value),
        )
    }
}

#[test]
fn a_condition_that_counts_acts_at_the_third_reading_in_a_row() {
    let text = policy("", "  activate: {when: carbon < 100, samples: 3}\n");
    let mut world = World::new(FLEET, &[&text]);
    world.carbon(15, "CAISO_NORTH", 60.0);
    world.carbon(20, "CAISO_NORTH", 60.0);
    // One for later and one that comes too late say nothing about now.
    let (later, late) = (
        issued(21, 40, 45, 60.0, Quality::Forecast),
        issued(21, 5, 10, 60.0, Quality::Measured),
    );
    post(&mut world, 21, later);
    post(&mut world, 22, late);
    world.run_to(minute(24));
    assert_eq!(wanted(&world, "caiso-a"), 0);
    world.carbon(25, "CAISO_NORTH", 60.0);
    assert_eq!(wanted(&world, "caiso-a"), 3, "{}", world.transcript);
}

const NIGHT: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: nights}
spec:
  pools: {energy: surplus}
  calendars:
    night: {cron: \"0 1 * * *\", lasts: 2h, time_zone: UTC}
  activate: {when: calendar.night}
";

#[test]
fn a_calendar_opens_and_closes_by_time_alone_and_the_record_names_its_window() {
    let mut world = World::new(FLEET, &[NIGHT]);
    world.run_to(minute(59));
    assert_eq!(wanted(&world, "caiso-a"), 0);
    world.run_to(minute(60));
    assert_eq!(wanted(&world, "caiso-a"), 3);
    let input = &last(&world, "caiso-a").inputs[0];
    assert_eq!(input.name, "calendar.night");
    assert_eq!(
        input.state,
        "open from 2026-01-01T01:00:00Z to 2026-01-01T03:00:00Z"
    );
    let version = sunward_policies::calendar::zone_database_version();
    assert_eq!(
        input.stream,
        format!("0 1 * * * for 2h in UTC (tzdb {version})")
    );
    world.run_to(minute(180));
    assert_eq!(wanted(&world, "caiso-a"), 0);
    world.run_to(minute(24 * 60 + 60));
    assert_eq!(wanted(&world, "caiso-a"), 3);
}

#[test]
fn a_window_that_began_while_the_daemon_was_down_is_open() {
    let mut world = World::new(FLEET, &[NIGHT]);
    world.run_to(minute(30));
    world.engine = Engine::restore(Engine::decode_snapshot(&world.engine.snapshot()).unwrap());
    let mut effects = sunward_core::action::Effects::default();
    let started = Event::Started(Started {
        term: 2,
        seed: 7,
        version: "t".into(),
    });
    world.engine.step(minute(100), &[started], &mut effects);
    let decided: Vec<_> = effects
        .decisions
        .iter()
        .map(|d| (d.pool.as_ref(), d.target))
        .collect();
    assert_eq!(decided, [("caiso-a", 3), ("spp-a", 4)]);
    assert!(
        world
            .engine
            .next_wakeup()
            .is_some_and(|at| at <= minute(180))
    );
}

#[test]
fn an_estimated_value_counts_or_not_as_the_policy_says() {
    for (says, runs) in [
        ("", 3),
        (", on_estimated: use", 3),
        (", on_estimated: missing", 0),
    ] {
        let text = policy(says, "  activate: {when: carbon < 100}\n");
        let mut world = World::new(FLEET, &[&text]);
        world.run_to(minute(14));
        post(&mut world, 15, issued(15, 15, 20, 60.0, Quality::Estimated));
        assert_eq!(
            wanted(&world, "caiso-a"),
            runs,
            "{says}: {}",
            world.transcript
        );
        if runs > 0 {
            let input = &last(&world, "caiso-a").inputs[0];
            assert_eq!(
                (input.state.as_str(), input.value),
                ("estimated", Some(60.0))
            );
            continue;
        }
        post(&mut world, 16, issued(16, 15, 20, 70.0, Quality::Measured));
        assert_eq!(wanted(&world, "caiso-a"), 3);
        assert_eq!(last(&world, "caiso-a").inputs[0].state, "fresh");
    }
}

/// A world in which a green measured value holds from minute 15 to 20, and a forecast says that it stays so to `end`.
fn forecast(end: i64, believed: &str, issued_before: i64) -> World {
    let rest = "  activate: {when: carbon < 100}\n  window: {expect: forecast, at_least: 30m}\n";
    let text = policy(&format!(", forecast_max_age: {believed}"), rest);
    let mut world = World::new(FLEET, &[&text]);
    world.run_to(minute(14));
    let at = 14 - issued_before;
    post(&mut world, 14, issued(at, 15, end, 50.0, Quality::Forecast));
    post(
        &mut world,
        14,
        issued(at, end, end + 120, 300.0, Quality::Forecast),
    );
    post(&mut world, 15, issued(15, 15, 20, 60.0, Quality::Measured));
    world
}

#[test]
fn a_start_is_made_only_if_the_forecast_says_that_it_pays() {
    // 250 s to be ready and 30 min to train: to minute 49:10 at least.
    assert_eq!(wanted(&forecast(49, "26h", 0), "caiso-a"), 0);
    assert_eq!(wanted(&forecast(50, "26h", 0), "caiso-a"), 3);
    // A forecast that is not believed any more says nothing.
    assert_eq!(wanted(&forecast(50, "30m", 30), "caiso-a"), 0);
}

#[test]
fn workers_follow_the_expression_by_steps_only_where_the_trainer_is_elastic() {
    let rest =
        "  activate: {when: carbon < 100}\n  workers: \"carbon < 50 ? 1 : carbon < 70 ? 2 : 3\"\n";
    let text = policy("", rest);
    let mut world = World::new(FLEET, &[&text]);
    world.carbon(15, "CAISO_NORTH", 60.0);
    world.carbon(15, "SPP_TX", 60.0);
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (0, 2));
    world.carbon(20, "CAISO_NORTH", 80.0);
    world.carbon(20, "SPP_TX", 80.0);
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (3, 3));
    // What runs as a whole is not cut.
    world.carbon(25, "CAISO_NORTH", 30.0);
    world.carbon(25, "SPP_TX", 30.0);
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (3, 1));
}

const SURPLUS: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: surplus}
spec:
  pools: {energy: surplus}
  signals:
    surplus: {source: meter, kind: surplus_power, scope: site, max_age: 10m, on_missing: {hold: 10m, then: release}, add_back_own_draw: true}
  activate: {when: surplus > 5}
";

/// The meter at caiso, from minute `m` for five minutes.
fn meter(world: &mut World, m: i64, kw: f64) {
    let stream = StreamKey {
        source: "meter".into(),
        kind: Kind::SurplusPower,
        scope: Scope::Site("caiso".into()),
        basis: None,
    };
    post(world, m, level(&stream, minute(m), minute(m + 5), Some(kw)));
}

#[test]
fn a_surplus_does_not_erase_itself() {
    let mut world = World::new(FLEET, &[SURPLUS]);
    meter(&mut world, 15, 8.0);
    assert_eq!(wanted(&world, "caiso-a"), 3);
    world.at_home(minute(18), "caiso-a", |home| home.ready = 3);
    // Our own 6 kW are missing from what the meter sees.
    for m in (20..60).step_by(5) {
        meter(&mut world, m, 2.0);
    }
    assert_eq!(wanted(&world, "caiso-a"), 3, "{}", world.transcript);
    // The sun goes down.
    meter(&mut world, 60, -2.0);
    assert_eq!(wanted(&world, "caiso-a"), 0);
    let input = &last(&world, "caiso-a").inputs[0];
    assert_eq!(input.value, Some(4.0));
    assert!(
        input.stream.ends_with("+ own draw of 6 kW"),
        "{}",
        input.stream
    );
}

#[test]
fn a_limit_keeps_the_pool_with_the_better_score() {
    let second = "    - {name: caiso-b, site: caiso, labels: {energy: surplus, kind: b}, max_workers: 3, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 250s, actuator: {memory: {start: 250s, stop: 60s}}}\n    - {name: spp-a,";
    let fleet = FLEET.replace("    - {name: spp-a,", second);
    let plain = policy("", "  activate: {when: carbon < 100}\n");
    let scored = policy(
        "",
        "  activate: {when: carbon < 100}\n  score: 0 - carbon\n",
    )
    .replace("name: curtailment", "name: scored")
    .replace("priority: 100", "priority: 200")
    .replace("pools: {energy: surplus}", "pools: {kind: b}");
    let mut world = World::new(&fleet, &[&plain, &scored]);
    world.carbon(15, "CAISO_NORTH", 60.0);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 3)
    );
    let limit = GridEvent {
        source: "iso".into(),
        id: "l1".into(),
        revision: 0,
        kind: GridEventKind::Limit,
        scope: Scope::Site("caiso".into()),
        starts_at: Timestamp::default(),
        ends_at: None,
        target: Some(GridTarget::Kilowatts(7.0)),
        status: GridEventStatus::Active,
    };
    world.submit(minute(16), vec![Event::GridEventAccepted(limit)]);
    // A score that is known comes before none; without it, the first by name would have stayed.
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (0, 3),
        "{}",
        world.transcript
    );
}

#[test]
fn a_dispatch_releases_or_throttles_as_the_winning_policy_says() {
    for (says, runs, held) in [
        ("keep", 3, None),
        ("release", 0, None),
        ("75%", 3, Some(75)),
        ("40%", 0, None),
    ] {
        let rest =
            format!("  activate: {{when: carbon < 100}}\n  min_run: 2h\n  on_dispatch: {says}\n");
        let fleet = FLEET.replace(
            "power_limit_kw: 100,",
            "power_limit_kw: 100, power_tiers: [100, 90, 75, 50],",
        );
        let mut world = World::new(&fleet, &[&policy("", &rest)]);
        world.carbon(15, "CAISO_NORTH", 60.0);
        assert_eq!(wanted(&world, "caiso-a"), 3);
        let dispatch = GridEvent {
            source: "iso".into(),
            id: "d1".into(),
            revision: 0,
            kind: GridEventKind::Dispatch,
            scope: Scope::Site("caiso".into()),
            starts_at: minute(16),
            ends_at: Some(minute(30)),
            target: None,
            status: GridEventStatus::Scheduled,
        };
        world.submit(minute(16), vec![Event::GridEventAccepted(dispatch)]);
        assert_eq!(wanted(&world, "caiso-a"), runs, "{says}");
        assert_eq!(
            world.engine.state().power_percent.get("caiso").copied(),
            held,
            "{says}"
        );
        if runs == 0 {
            let decision = last(&world, "caiso-a");
            assert_eq!(decision.rule.as_ref(), "curtailment/threshold");
            assert!(
                decision.reason.starts_with("dispatch by iso until"),
                "{}",
                decision.reason
            );
        }
        for m in (20..40).step_by(5) {
            world.carbon(m, "CAISO_NORTH", 60.0);
        }
        assert_eq!(wanted(&world, "caiso-a"), 3, "{says}: {}", world.transcript);
        assert!(world.engine.state().power_percent.is_empty());
    }
}
