//! The engine as a whole: transcripts of small stories.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod world;

use sunward_core::engine::Engine;
use sunward_core::event::{Call, Event, Outcome, Started, StreamEnd};
use sunward_core::time::Span;
use world::{FLEET, POLICY, World, carbon, file, level, minute};

fn check(world: &World, expected: &str) {
    let expected: Vec<_> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let found: Vec<_> = world.transcript.lines().map(str::trim).collect();
    assert_eq!(found, expected, "\ntranscript:\n{}", world.transcript);
}

/// A story in which nothing before `from` matters.
fn after_start(world: &mut World) {
    world.run_to(minute(0));
    world.transcript.clear();
}

#[test]
fn a_window_opens_and_closes() {
    let mut world = World::new(FLEET, &[POLICY]);
    after_start(&mut world);
    for m in (15..60).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.at_home(minute(60), "caiso-a", |home| home.ready = 3);
    for m in (60..100).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 400.0);
    }
    let transcript: Vec<_> = world
        .transcript
        .lines()
        .filter(|line| !line.contains("spp-a"))
        .map(str::to_owned)
        .collect();
    world.transcript = transcript.join("\n");
    check(
        &world,
        "
        10.00 decide caiso-a 0 -> 0 by curtailment/threshold: signal carbon was missing or stale for its whole hold; released
        15.00 decide caiso-a 0 -> 0 by curtailment/threshold: the activate condition holds; activates at 2026-01-01T00:20:00Z
        20.00 decide caiso-a 0 -> 3 by curtailment/threshold: activated; the release condition does not hold
        20.00 event job site.joining 1-1 caiso
        20.00 scale caiso-a 0 -> 3 generation 1
        60.00 event job site.ready 1-2 caiso
        60.00 decide caiso-a 3 -> 3 by curtailment/threshold: the release condition holds; releases at 2026-01-01T01:10:00Z
        70.00 decide caiso-a 3 -> 0 by curtailment/threshold: released; the activate condition does not hold
        70.00 event job site.draining 1-3 caiso
        70.00 event job site.drained 1-4 caiso
        70.00 scale caiso-a 3 -> 0 generation 2
        ",
    );
    assert_eq!(world.moves.len(), 2);
}

/// Two pools of one site leave in one group: the site has left before either is written.
#[test]
fn a_site_of_two_pools_has_left_before_any_of_them_is_written() {
    let second = "    - {name: caiso-b, site: caiso, labels: {energy: surplus}, max_workers: 2, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 250s, actuator: {memory: {start: 250s, stop: 60s}}}\n    - {name: spp-a,";
    let fleet = FLEET.replace("    - {name: spp-a,", second).replace(
        "pools: [caiso-a, spp-a]",
        "pools: [caiso-a, caiso-b, spp-a]",
    );
    let mut world = World::new(&fleet, &[POLICY]);
    for m in (15..60).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.transcript.clear();
    for m in (60..75).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 400.0);
    }
    let actions: Vec<_> = world
        .transcript
        .lines()
        .filter(|line| line.contains("event") || line.contains("scale"))
        .map(|line| line.trim().to_owned())
        .collect();
    assert_eq!(
        actions,
        [
            "70.00 event job site.draining 1-2 caiso",
            "70.00 event job site.drained 1-3 caiso",
            "70.00 scale caiso-a 3 -> 0 generation 2",
            "70.00 scale caiso-b 2 -> 0 generation 2",
        ],
        "{}",
        world.transcript
    );
}

#[test]
fn missing_data_holds_and_then_releases_and_never_starts() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (0..40).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    assert_eq!(world.homes["caiso-a"].wanted, 3);
    // Nothing comes any more. The last interval ends at minute 40, and the hold ten minutes later.
    world.run_to(minute(49));
    assert_eq!(world.homes["caiso-a"].wanted, 3);
    world.run_to(minute(51));
    assert_eq!(world.homes["caiso-a"].wanted, 0);
    // A record that says "missing" is no value either, least of all 0.
    let gap = level(&carbon("CAISO_NORTH"), minute(60), minute(300), None);
    world.submit(minute(60), vec![Event::SignalAccepted(gap)]);
    world.run_to(minute(300));
    assert_eq!(world.homes["caiso-a"].wanted, 0);
}

#[test]
fn a_stale_value_is_not_evaluated() {
    let mut world = World::new(FLEET, &[POLICY]);
    // One value for a whole day is fresh for ten minutes, then nobody knows whether it still holds.
    let day = level(
        &carbon("CAISO_NORTH"),
        minute(15),
        minute(24 * 60),
        Some(60.0),
    );
    world.submit(minute(15), vec![Event::SignalAccepted(day)]);
    world.run_to(minute(21));
    assert_eq!(world.homes["caiso-a"].wanted, 3);
    // Stale from minute 25, released at the end of the hold, at 35; but the minimum run goes to 50.
    world.run_to(minute(49));
    assert_eq!(world.homes["caiso-a"].wanted, 3);
    world.run_to(minute(51));
    assert_eq!(world.homes["caiso-a"].wanted, 0);
}

#[test]
fn a_conflict_is_tried_again_with_the_same_generation() {
    let mut world = World::new(FLEET, &[POLICY]);
    let mut refused = 0;
    world.answer = Box::new(move |call| match call {
        Call::Scale { .. } if refused < 2 => {
            refused += 1;
            Some(Outcome::Conflict)
        }
        _ => None,
    });
    for m in (15..30).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.run_to(minute(31));
    assert_eq!(world.moves, vec![("caiso-a".into(), 1, 3)]);
    assert!(
        world.transcript.matches("generation 1").count() == 3,
        "{}",
        world.transcript
    );
}

#[test]
fn an_unknown_outcome_is_settled_by_a_claim_before_anything_is_written_again() {
    let mut world = World::new(FLEET, &[POLICY]);
    let mut lost = false;
    world.answer = Box::new(move |call| match call {
        Call::Scale { .. } if !lost => {
            lost = true;
            Some(Outcome::Unknown {
                reason: "no answer".into(),
            })
        }
        _ => None,
    });
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.run_to(minute(27));
    let story: Vec<_> = world
        .transcript
        .lines()
        .filter(|line| line.contains("caiso-a") && !line.contains("decide"))
        .map(|line| line[8..].to_owned())
        .collect();
    assert_eq!(
        story,
        [
            "claim caiso-a in term 1",
            "scale caiso-a 0 -> 3 generation 1",
            "claim caiso-a in term 1",
            "scale caiso-a 0 -> 3 generation 1",
        ]
    );
    assert_eq!(world.moves, vec![("caiso-a".into(), 1, 3)]);
}

#[test]
fn a_write_whose_answer_was_lost_but_that_landed_is_not_repeated() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..20).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.answer = Box::new(|call| match call {
        Call::Scale { .. } => Some(Outcome::Unknown {
            reason: "reset by peer".into(),
        }),
        // The claim is not answered either, until the story goes on.
        Call::Claim { .. } => Some(Outcome::Failed {
            reason: "down".into(),
            retry_after_ms: None,
        }),
    });
    world.carbon(20, "CAISO_NORTH", 60.0);
    let home = world.homes.get_mut("caiso-a").unwrap();
    home.wanted = 3;
    home.version += 1;
    world.answer = Box::new(|_| None);
    world.run_to(minute(23));
    assert_eq!(
        world.moves,
        vec![],
        "the write that landed was the only one"
    );
    let ledger = &world.engine.state().pools["caiso-a"].ledger;
    assert_eq!(
        (ledger.generation, ledger.accepted, ledger.unknown),
        (1, 1, None)
    );
}

#[test]
fn a_foreign_change_is_reported_and_answered_by_a_new_generation() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..30).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.at_home(minute(27), "caiso-a", |home| home.wanted = 1);
    world.run_to(minute(28));
    assert!(
        world.transcript.contains("refuse foreign_change"),
        "{}",
        world.transcript
    );
    assert_eq!(
        world.moves,
        vec![("caiso-a".into(), 1, 3), ("caiso-a".into(), 2, 3)]
    );
}

#[test]
fn an_outdated_observation_changes_nothing() {
    let mut world = World::new(FLEET, &[POLICY]);
    let old = world.observation("caiso-a");
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.submit(minute(22), vec![Event::PoolObserved(old)]);
    world.run_to(minute(24));
    assert_eq!(world.moves, vec![("caiso-a".into(), 1, 3)]);
    assert!(
        !world.transcript.contains("foreign"),
        "{}",
        world.transcript
    );
}

#[test]
fn a_restart_claims_every_pool_and_scales_nothing_twice() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..30).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.transcript.clear();
    world.submit(
        minute(31),
        vec![Event::Started(Started {
            term: 2,
            seed: 7,
            version: "t".into(),
        })],
    );
    world.run_to(minute(32));
    assert!(world.transcript.contains("claim caiso-a in term 2"));
    assert!(world.transcript.contains("claim spp-a in term 2"));
    assert!(!world.transcript.contains("scale"), "{}", world.transcript);
}

#[test]
fn an_empty_journal_beside_a_running_fleet_holds_what_runs_until_the_grace_ends() {
    let mut world = World::bare();
    world.homes.entry("caiso-a".into()).or_default().wanted = 3;
    world.submit(
        minute(0),
        vec![Event::Started(Started {
            term: 5,
            seed: 7,
            version: "t".into(),
        })],
    );
    world.submit(
        minute(0),
        vec![
            Event::FleetReplaced {
                file: file("fleet.yaml", FLEET),
            },
            Event::PoliciesReplaced {
                files: vec![file("p.yaml", POLICY)],
            },
        ],
    );
    world.run_to(minute(29));
    assert_eq!(
        world.homes["caiso-a"].wanted, 3,
        "the minimum run counts from the adoption"
    );
    world.run_to(minute(31));
    assert_eq!(world.homes["caiso-a"].wanted, 0);
}

#[test]
fn what_a_sink_does_not_have_is_issued_anew_in_a_new_term() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.at_home(minute(25), "caiso-a", |home| home.ready = 1);
    world.submit(
        minute(26),
        vec![Event::Started(Started {
            term: 4,
            seed: 7,
            version: "t".into(),
        })],
    );
    let end = |term, sequence| StreamEnd {
        federation: "job".into(),
        term,
        sequence,
    };
    world.submit(
        minute(26),
        vec![Event::SinkUp {
            sink: "redis".into(),
            ends: vec![end(1, 1)],
            taken: vec![],
        }],
    );
    let outbox: Vec<_> = world.engine.state().federations["job"]
        .outbox
        .iter()
        .map(|e| (e.id.to_string(), e.term, e.sequence))
        .collect();
    assert_eq!(outbox, [("1-1".to_owned(), 1, 1), ("1-2".to_owned(), 4, 2)]);
    // A stream that is ahead of this journal: the sequence goes on from there.
    world.submit(
        minute(27),
        vec![Event::Started(Started {
            term: 9,
            seed: 7,
            version: "t".into(),
        })],
    );
    world.submit(
        minute(27),
        vec![Event::SinkUp {
            sink: "redis".into(),
            ends: vec![end(8, 100)],
            taken: vec![end(4, 2)],
        }],
    );
    for m in (30..75).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 400.0);
    }
    let last = world.engine.state().federations["job"]
        .outbox
        .back()
        .unwrap()
        .clone();
    assert_eq!(
        (last.term, last.sequence, last.kind.as_str()),
        (9, 102, "site.drained")
    );
}

#[test]
fn events_of_an_empty_journal_go_behind_those_that_a_stream_already_has() {
    // The sink was away at the start: the first events were issued in term 1, and only then it
    // turned out that the stream ends in term 7.
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.submit(
        minute(26),
        vec![Event::Started(Started {
            term: 8,
            seed: 7,
            version: "t".into(),
        })],
    );
    let end = StreamEnd {
        federation: "job".into(),
        term: 7,
        sequence: 40,
    };
    world.submit(
        minute(26),
        vec![Event::SinkUp {
            sink: "redis".into(),
            ends: vec![end],
            taken: vec![],
        }],
    );
    let outbox = &world.engine.state().federations["job"].outbox;
    let found: Vec<_> = outbox
        .iter()
        .map(|e| (e.id.to_string(), e.term, e.sequence))
        .collect();
    assert_eq!(found, [("1-1".to_owned(), 8, 41)]);
    assert_eq!(
        world.engine.state().federations["job"].sites["caiso"].sequence,
        41
    );
}

#[test]
fn nothing_grows_while_the_clock_is_stepped() {
    let mut world = World::new(FLEET, &[POLICY]);
    world.submit(
        minute(0),
        vec![Event::ClockStepped {
            difference_ms: 3_600_000,
        }],
    );
    for m in (0..15).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.run_to(minute(15));
    assert_eq!(world.moves, vec![]);
    world.submit(minute(15), vec![Event::ClockRestored]);
    world.carbon(15, "CAISO_NORTH", 60.0);
    assert_eq!(world.moves, vec![("caiso-a".into(), 1, 3)]);
}

#[test]
fn a_ramp_takes_one_step_at_a_time() {
    let ramped = POLICY
        .replace("pools: {energy: surplus}", "pools: {gpu: amd}")
        .replace(
            "min_run: 30m",
            "min_run: 30m\n  ramp: {up: {workers: 1, every: 2m}}",
        );
    let fleet = FLEET.replace(
        "name: spp-a, site: spp, labels: {",
        "name: spp-a, site: spp, labels: {gpu: amd, ",
    );
    let mut world = World::new(&fleet, &[&ramped]);
    for m in (15..35).step_by(5) {
        world.carbon(m, "SPP_TX", 60.0);
    }
    let steps: Vec<_> = world
        .transcript
        .lines()
        .filter(|line| line.contains("scale spp-a"))
        .map(|line| line.trim().to_owned())
        .collect();
    assert_eq!(
        steps,
        [
            "20.00 scale spp-a 0 -> 1 generation 1",
            "22.00 scale spp-a 1 -> 2 generation 2",
            "24.00 scale spp-a 2 -> 3 generation 3",
            "26.00 scale spp-a 3 -> 4 generation 4",
        ]
    );
}

#[test]
fn the_same_groups_give_the_same_digest_from_the_start_and_from_any_snapshot() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (0..120).step_by(5) {
        world.carbon(m, "CAISO_NORTH", if m % 60 < 40 { 60.0 } else { 300.0 });
        world.carbon(m, "SPP_TX", if m % 40 < 20 { 10.0 } else { 300.0 });
    }
    let groups = world.groups.clone();
    let whole = world.engine.digest();
    for cut in [
        0,
        1,
        2,
        groups.len() / 3,
        groups.len() / 2,
        groups.len() - 1,
    ] {
        let mut engine = Engine::new();
        let mut effects = sunward_core::action::Effects::default();
        for (at, events) in &groups[..cut] {
            engine.step(*at, events, &mut effects);
        }
        let state = Engine::decode_snapshot(&engine.snapshot()).unwrap();
        let mut restored = Engine::restore(state);
        assert_eq!(
            restored.state(),
            engine.state(),
            "a snapshot reads back as it was written"
        );
        std::mem::swap(&mut engine, &mut restored);
        for (at, events) in &groups[cut..] {
            engine.step(*at, events, &mut effects);
        }
        assert_eq!(engine.digest(), whole, "cut at {cut}");
    }
}

#[test]
fn ticks_at_any_instants_change_no_outcome() {
    let story = |extra: &[i64]| {
        let mut world = World::new(FLEET, &[POLICY]);
        for m in (0..60).step_by(5) {
            for second in extra {
                let at = minute(m - 5) + Span::from_secs(*second);
                if at > minute(0) && at < minute(m) {
                    world.submit(at, vec![Event::Tick]);
                }
            }
            world.carbon(m, "CAISO_NORTH", if m < 30 { 60.0 } else { 300.0 });
        }
        world.run_to(minute(90));
        let lines = world
            .transcript
            .lines()
            .filter(|line| line.contains("scale"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(story(&[]), story(&[7, 61, 122, 299]));
}

#[test]
fn an_object_that_does_not_become_what_was_written_is_written_ever_more_rarely() {
    let mut world = World::new(FLEET, &[POLICY]);
    // Something in the cluster clamps every write to two workers.
    let mut version = 100;
    world.answer = Box::new(move |call| match call {
        Call::Scale { .. } => {
            version += 1;
            let mut seen = World::bare().observation("caiso-a");
            (seen.wanted, seen.version) = (2, version);
            Some(Outcome::Accepted(seen))
        }
        Call::Claim { .. } => None,
    });
    for m in (15..75).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    let writes = world.transcript.matches("scale caiso-a").count();
    // 55 minutes: at once, then 1 s doubling to a minute.
    assert!((55..70).contains(&writes), "{writes} writes");
}

#[test]
fn a_pool_that_changes_its_federation_leaves_one_and_joins_the_other() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.transcript.clear();
    let moved = FLEET.replace(
        "{name: job, pools: [caiso-a, spp-a]}",
        "{name: other, pools: [caiso-a]}",
    );
    world.submit(
        minute(21),
        vec![Event::FleetReplaced {
            file: file("fleet.yaml", &moved),
        }],
    );
    let events: Vec<_> = world
        .transcript
        .lines()
        .filter(|line| line.contains("event"))
        .map(str::trim)
        .collect();
    assert_eq!(
        events,
        [
            "21.00 event job site.draining 1-2 caiso",
            "21.00 event job site.drained 1-3 caiso",
            "21.00 event other site.joining 1-1 caiso",
        ]
    );
    assert_eq!(
        world.homes["caiso-a"].wanted, 3,
        "a change of federation is no change of workers"
    );
}

#[test]
fn a_lowered_maximum_takes_the_excess_and_nothing_more() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    // The window is over, but the minimum run is not; now the operator allows two workers.
    for m in (25..40).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 400.0);
    }
    let lower = FLEET.replace("max_workers: 3", "max_workers: 2");
    world.submit(
        minute(38),
        vec![Event::FleetReplaced {
            file: file("fleet.yaml", &lower),
        }],
    );
    assert_eq!(world.homes["caiso-a"].wanted, 2);
    world.run_to(minute(49));
    assert_eq!(world.homes["caiso-a"].wanted, 2);
    world.run_to(minute(51));
    assert_eq!(world.homes["caiso-a"].wanted, 0);
}

#[test]
fn files_that_change_together_cost_no_memory() {
    let mut world = World::new(FLEET, &[POLICY]);
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    world.carbon(25, "CAISO_NORTH", 400.0);
    let before = world.engine.state().pools["caiso-a"].memories.clone();
    // Labels and selector are renamed in one change: in between, the policy would govern nothing.
    let fleet = FLEET.replace("energy: surplus", "power: surplus");
    let policy = POLICY.replace("energy: surplus", "power: surplus");
    let files = vec![
        Event::FleetReplaced {
            file: file("fleet.yaml", &fleet),
        },
        Event::PoliciesReplaced {
            files: vec![file("p0.yaml", &policy)],
        },
    ];
    world.submit(minute(26), files);
    assert_eq!(world.engine.state().pools["caiso-a"].memories, before);
}

#[test]
fn a_pool_that_moves_to_another_cluster_is_claimed_there_before_anything_is_written() {
    let behind = |cluster: &str| {
        FLEET
            .replace("spec:", "spec:\n  clusters: [{name: a}, {name: b}]")
            .replace(
                "{name: caiso, time_zone",
                &format!("{{name: caiso, cluster: {cluster}, time_zone"),
            )
            .replacen(
                "{memory: {start: 250s, stop: 60s}}",
                "{k0smotron: {namespace: gpu, machine_deployment: w}}",
                1,
            )
    };
    let mut world = World::new(&behind("a"), &[POLICY]);
    for m in (15..25).step_by(5) {
        world.carbon(m, "CAISO_NORTH", 60.0);
    }
    assert_eq!(world.homes["caiso-a"].wanted, 3);
    // At the new home nothing runs, and versions count from a lower number.
    world.homes.insert("caiso-a".into(), world::Home::default());
    world.transcript.clear();
    world.submit(
        minute(21),
        vec![Event::FleetReplaced {
            file: file("fleet.yaml", &behind("b")),
        }],
    );
    let first = world
        .transcript
        .lines()
        .find(|line| line.contains("caiso-a") && !line.contains("decide"));
    assert_eq!(
        first.map(str::trim),
        Some("21.00 claim caiso-a in term 1"),
        "{}",
        world.transcript
    );
    assert_eq!(
        world.engine.state().pools["caiso-a"].ledger.desired,
        Some(0),
        "adopted as found"
    );
}
