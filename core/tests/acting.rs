//! Overrides and grid events: what they do to pools, in which order of precedence, and that they end.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod world;

use sunward_core::engine::Engine;
use sunward_core::event::Event;
use sunward_core::grid_event::{
    GRID_EVENTS_MAX, GridEvent, GridEventKind, GridEventStatus, GridTarget,
};
use sunward_core::overrides::{OVERRIDES_MAX, Override, OverrideEffect, OverrideScope};
use sunward_core::signal::Scope;
use world::{FLEET, POLICY, World, minute};

/// An override by alice from minute `from` to `to`.
fn set(id: &str, scope: OverrideScope, effect: OverrideEffect, from: i64, to: i64) -> Event {
    Event::OverrideSet(Override {
        id: id.into(),
        scope,
        effect,
        owner: "alice".into(),
        reason: "new switchgear".into(),
        set_by: "ops".into(),
        set_at: minute(from),
        expires_at: minute(to),
    })
}

fn pool(name: &str) -> OverrideScope {
    OverrideScope::Pool(name.into())
}

fn event(
    id: &str,
    kind: GridEventKind,
    from: i64,
    to: i64,
    target: Option<GridTarget>,
) -> GridEvent {
    GridEvent {
        source: "iso".into(),
        id: id.into(),
        revision: 1,
        kind,
        scope: Scope::Site("caiso".into()),
        starts_at: minute(from),
        ends_at: Some(minute(to)),
        target,
        status: GridEventStatus::Scheduled,
    }
}

fn accept(event: &GridEvent) -> Event {
    Event::GridEventAccepted(event.clone())
}

/// Both sites green from minute `from` to minute `to`, pushed every five minutes.
fn green(world: &mut World, from: i64, to: i64) {
    for m in (from..to).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
        world.carbon(m, "SPP_TX", 60.0);
    }
}

fn wanted(world: &World, pool: &str) -> u32 {
    world.homes[pool].wanted
}

/// Lines of the transcript that contain `part`.
fn lines(world: &World, part: &str) -> Vec<String> {
    let all = world.transcript.lines().filter(|line| line.contains(part));
    all.map(|line| line.trim().to_owned()).collect()
}

/// A fleet whose site caiso has power tiers, a pool of two workers beside the one of three, and both in a federation.
fn tiered() -> String {
    let second = "    - {name: caiso-b, site: caiso, labels: {energy: surplus}, unit: worker, max_workers: 2, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 250s, actuator: {memory: {start: 250s, stop: 60s}}}\n    - {name: spp-a,";
    FLEET
        .replace("    - {name: spp-a,", second)
        .replace(
            "power_limit_kw: 100,",
            "power_limit_kw: 100, power_tiers: [100, 90, 75, 50],",
        )
        .replace(
            "pools: [caiso-a, spp-a]",
            "pools: [caiso-a, caiso-b, spp-a]",
        )
}

#[test]
fn off_waits_for_no_minimum_run_and_ends_at_its_expiry() {
    let mut world = World::new(FLEET, &[POLICY]);
    green(&mut world, 15, 30);
    assert_eq!(wanted(&world, "caiso-a"), 3);
    world.transcript.clear();
    world.submit(
        minute(30),
        vec![set("mend", pool("caiso-a"), OverrideEffect::Off, 30, 40)],
    );
    assert_eq!(wanted(&world, "caiso-a"), 0);
    assert_eq!(wanted(&world, "spp-a"), 4);
    green(&mut world, 30, 60);
    assert_eq!(
        lines(&world, "decide"),
        [
            "30.00 decide caiso-a 3 -> 0 by override/mend: off by alice until 2026-01-01T00:40:00Z: new switchgear",
            "40.00 decide caiso-a 0 -> 3 by curtailment/threshold: activated; the release condition does not hold",
        ]
    );
    assert!(world.engine.state().overrides.is_empty());
}

#[test]
fn on_runs_without_data_waits_for_no_rest_and_then_the_policy_decides_again() {
    let mut world = World::new(FLEET, &[POLICY]);
    world.run_to(minute(20));
    world.submit(
        minute(20),
        vec![
            set(
                "show",
                OverrideScope::Fleet,
                OverrideEffect::On { workers: None },
                20,
                60,
            ),
            set(
                "half",
                pool("spp-a"),
                OverrideEffect::On { workers: Some(2) },
                20,
                60,
            ),
        ],
    );
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (3, 2));
    world.run_to(minute(61));
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (0, 0));
}

#[test]
fn freeze_beats_off_and_off_beats_on() {
    let mut world = World::new(FLEET, &[POLICY]);
    green(&mut world, 15, 30);
    let federation = OverrideScope::Federation("job".into());
    let site = OverrideScope::Site("caiso".into());
    world.submit(
        minute(30),
        vec![
            set("hold", federation, OverrideEffect::Freeze, 30, 90),
            set("down", site, OverrideEffect::Off, 30, 120),
            set(
                "up",
                pool("caiso-a"),
                OverrideEffect::On { workers: None },
                30,
                150,
            ),
        ],
    );
    // Nothing comes any more, and nothing moves.
    world.run_to(minute(89));
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (3, 4));
    world.run_to(minute(90));
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (0, 0));
    world.run_to(minute(120));
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (3, 0));
    world.run_to(minute(150));
    assert_eq!(wanted(&world, "caiso-a"), 0);
}

#[test]
fn an_override_ends_early_survives_a_restart_and_replaces_its_namesake() {
    let mut world = World::new(FLEET, &[POLICY]);
    green(&mut world, 15, 30);
    world.submit(
        minute(30),
        vec![set(
            "mend",
            OverrideScope::Fleet,
            OverrideEffect::Off,
            30,
            300,
        )],
    );
    let bytes = world.engine.snapshot();
    let mut restored = Engine::restore(Engine::decode_snapshot(&bytes).unwrap());
    assert_eq!(restored.digest(), world.engine.digest());
    assert_eq!(restored.next_wakeup(), world.engine.next_wakeup());
    std::mem::swap(&mut world.engine, &mut restored);
    green(&mut world, 30, 65);
    assert_eq!(wanted(&world, "caiso-a"), 0);
    world.submit(
        minute(61),
        vec![set("mend", pool("nowhere"), OverrideEffect::Off, 61, 300)],
    );
    assert_eq!(wanted(&world, "caiso-a"), 3);
    world.submit(
        minute(62),
        vec![set(
            "mend",
            OverrideScope::Fleet,
            OverrideEffect::Off,
            62,
            300,
        )],
    );
    assert_eq!(wanted(&world, "caiso-a"), 0);
    let cleared = Event::OverrideCleared {
        id: "mend".into(),
        by: "bob".into(),
    };
    world.submit(minute(63), vec![cleared]);
    green(&mut world, 65, 80);
    assert_eq!(wanted(&world, "caiso-a"), 3);
}

#[test]
fn overrides_are_bounded_and_one_that_has_expired_is_refused() {
    let mut world = World::new(FLEET, &[POLICY]);
    let many = (0..=OVERRIDES_MAX).map(|i| {
        set(
            &format!("o{i}"),
            pool("nowhere"),
            OverrideEffect::Off,
            10,
            60,
        )
    });
    world.submit(minute(10), many.collect());
    assert_eq!(world.engine.state().overrides.len(), OVERRIDES_MAX);
    assert_eq!(lines(&world, "refuse overrides_full").len(), 1);
    world.submit(
        minute(11),
        vec![set(
            "late",
            OverrideScope::Fleet,
            OverrideEffect::Off,
            0,
            11,
        )],
    );
    assert_eq!(lines(&world, "refuse override_expired").len(), 1);
    world.run_to(minute(60));
    assert!(world.engine.state().overrides.is_empty());
}

#[test]
fn an_emergency_waits_for_nothing_beats_on_and_freeze_and_rest_counts_from_its_stop() {
    let mut world = World::new(FLEET, &[POLICY]);
    green(&mut world, 15, 25);
    assert_eq!(wanted(&world, "caiso-a"), 3);
    world.submit(
        minute(25),
        vec![
            set("keep", OverrideScope::Fleet, OverrideEffect::Freeze, 25, 26),
            set(
                "run",
                OverrideScope::Fleet,
                OverrideEffect::On { workers: None },
                25,
                60,
            ),
            accept(&event("e1", GridEventKind::Emergency, 26, 30, None)),
        ],
    );
    green(&mut world, 25, 30);
    world.run_to(minute(29));
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (0, 4));
    let cleared = Event::OverrideCleared {
        id: "run".into(),
        by: "bob".into(),
    };
    world.submit(minute(29), vec![cleared]);
    green(&mut world, 30, 50);
    let decisions = lines(&world, "decide caiso-a");
    assert_eq!(
        decisions[decisions.len() - 3..],
        [
            "26.00 decide caiso-a 3 -> 0 by grid_event/e1: emergency by iso until 2026-01-01T00:30:00Z (event e1); at most 0 workers",
            "30.00 decide caiso-a 0 -> 0 by curtailment/threshold: activated; the release condition does not hold; kept by min_rest until 2026-01-01T00:36:00Z",
            "36.00 decide caiso-a 0 -> 3 by curtailment/threshold: activated; the release condition does not hold",
        ],
        "{}",
        world.transcript
    );
}

#[test]
fn a_limit_takes_the_highest_power_tier_that_fits_and_only_then_workers() {
    let mut world = World::new(&tiered(), &[POLICY]);
    green(&mut world, 15, 30);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 2)
    );
    world.transcript.clear();
    // Five workers of 2 kW: 10 kW; 75 % of it fits under 8 kW.
    let mut limit = event(
        "l1",
        GridEventKind::Limit,
        31,
        60,
        Some(GridTarget::Kilowatts(8.0)),
    );
    world.submit(minute(30), vec![accept(&limit)]);
    world.run_to(minute(32));
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 2)
    );
    assert_eq!(world.engine.state().power_percent["caiso"], 75);
    // 4 kW: half power of four workers; the last by name loses one.
    limit.revision = 2;
    limit.target = Some(GridTarget::Kilowatts(4.0));
    world.submit(minute(33), vec![accept(&limit)]);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 1)
    );
    assert_eq!(world.engine.state().power_percent["caiso"], 50);
    // An older revision comes late.
    limit.revision = 1;
    limit.target = None;
    world.submit(minute(34), vec![accept(&limit)]);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 1)
    );
    // 1 kW: nothing is left of the pool that is all or nothing.
    limit.revision = 3;
    limit.target = Some(GridTarget::Kilowatts(1.0));
    world.submit(minute(35), vec![accept(&limit)]);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (0, 0)
    );
    green(&mut world, 35, 60);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (0, 0)
    );
    green(&mut world, 60, 65);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 2)
    );
    let power: Vec<_> = lines(&world, "site.power");
    assert_eq!(
        power,
        [
            "31.00 event job site.power 1-3 caiso",
            "33.00 event job site.power 1-4 caiso",
            "35.00 event job site.power 1-5 caiso",
        ],
        "{}",
        world.transcript
    );
}

#[test]
fn nothing_starts_beyond_a_limit_but_up_to_it() {
    let mut world = World::new(&tiered(), &[POLICY]);
    let limit = event(
        "l1",
        GridEventKind::Limit,
        5,
        60,
        Some(GridTarget::Kilowatts(8.0)),
    );
    world.submit(minute(1), vec![accept(&limit)]);
    green(&mut world, 15, 55);
    // 6 kW of the first, then one worker of the second.
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 1)
    );
    assert!(world.engine.state().power_percent.is_empty());
    green(&mut world, 55, 70);
    assert_eq!(
        (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
        (3, 2)
    );
}

#[test]
fn a_power_percentage_is_the_tier_at_or_below_it_and_the_minimum_where_there_is_none() {
    for (percent, held, left) in [
        (80, Some(75), (3, 2)),
        (50, Some(50), (3, 2)),
        (40, None, (0, 0)),
    ] {
        let mut world = World::new(&tiered(), &[POLICY]);
        green(&mut world, 15, 30);
        let target = Some(GridTarget::PowerPercent(percent));
        world.submit(
            minute(30),
            vec![accept(&event("l1", GridEventKind::Limit, 30, 60, target))],
        );
        let state = world.engine.state();
        assert_eq!(state.power_percent.get("caiso").copied(), held);
        assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "caiso-b")), left);
        green(&mut world, 30, 80);
        assert!(world.engine.state().power_percent.is_empty());
        assert_eq!(
            (wanted(&world, "caiso-a"), wanted(&world, "caiso-b")),
            (3, 2)
        );
    }
}

#[test]
fn a_zone_event_acts_on_every_site_of_the_zone_and_a_cancelled_one_on_none() {
    let mut world = World::new(FLEET, &[POLICY]);
    green(&mut world, 15, 30);
    let mut emergency = event("e1", GridEventKind::Emergency, 30, 300, None);
    emergency.ends_at = None;
    emergency.scope = Scope::Zone {
        scheme: "wt".into(),
        code: "SPP_TX".into(),
    };
    world.submit(minute(30), vec![accept(&emergency)]);
    assert_eq!((wanted(&world, "caiso-a"), wanted(&world, "spp-a")), (3, 0));
    green(&mut world, 30, 60);
    assert_eq!(wanted(&world, "spp-a"), 0);
    emergency.revision = 2;
    emergency.status = GridEventStatus::Cancelled;
    world.submit(minute(60), vec![accept(&emergency)]);
    green(&mut world, 60, 65);
    assert_eq!(wanted(&world, "spp-a"), 4);
    // Its late first revision stays what it is for a day.
    emergency.revision = 1;
    emergency.status = GridEventStatus::Scheduled;
    world.submit(minute(70), vec![accept(&emergency)]);
    assert_eq!(wanted(&world, "spp-a"), 4);
    world.run_to(minute(60 + 24 * 60));
    assert!(world.engine.state().grid_events.is_empty());
}

#[test]
fn a_test_changes_nothing_but_the_log_and_a_dispatch_what_the_policy_says() {
    let mut world = World::new(FLEET, &[POLICY]);
    green(&mut world, 15, 30);
    world.transcript.clear();
    world.submit(
        minute(30),
        vec![
            accept(&event("t1", GridEventKind::Test, 30, 60, None)),
            accept(&event("d1", GridEventKind::Dispatch, 30, 60, None)),
        ],
    );
    green(&mut world, 30, 60);
    assert_eq!(lines(&world, "").len(), 1, "{}", world.transcript);
    assert_eq!(lines(&world, "refuse grid_event_test").len(), 1);
    assert_eq!(wanted(&world, "caiso-a"), 3);
}

#[test]
fn grid_events_are_bounded_and_one_that_is_over_makes_room() {
    let mut world = World::new(FLEET, &[POLICY]);
    let many = |from: usize, to: i64| {
        (from..from + GRID_EVENTS_MAX).map(move |i| {
            accept(&event(
                &format!("e{i}"),
                GridEventKind::Dispatch,
                1,
                to,
                None,
            ))
        })
    };
    world.submit(minute(1), many(0, 300).collect());
    world.submit(
        minute(2),
        vec![accept(&event(
            "more",
            GridEventKind::Dispatch,
            1,
            300,
            None,
        ))],
    );
    assert_eq!(world.engine.state().grid_events.len(), GRID_EVENTS_MAX);
    assert_eq!(lines(&world, "reply 0 BoardFull").len(), 1);
    world.run_to(minute(301));
    world.submit(
        minute(301),
        vec![accept(&event(
            "more",
            GridEventKind::Dispatch,
            1,
            900,
            None,
        ))],
    );
    assert_eq!(world.engine.state().grid_events.len(), GRID_EVENTS_MAX);
    assert_eq!(lines(&world, "reply 0 BoardFull").len(), 1);
}

#[test]
fn power_tiers_begin_with_all_and_descend() {
    for (tiers, found) in [
        ("[90, 50]", "begin with 90"),
        ("[100, 50, 75]", "tier 75"),
        ("[100, 0]", "tier 0"),
    ] {
        let text = tiered().replace("[100, 90, 75, 50]", tiers);
        let file = sunward_policies::document::SourceFile {
            path: "fleet.yaml".into(),
            text,
        };
        let diagnostics = sunward_core::fleet::Fleet::parse(&file).unwrap_err();
        assert_eq!(diagnostics.len(), 1);
        assert_eq!(diagnostics[0].code, "SUN-F013");
        assert!(
            diagnostics[0].message.contains(found),
            "{}",
            diagnostics[0].message
        );
    }
}
