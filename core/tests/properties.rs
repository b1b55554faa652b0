//! What holds for any input: one timeline whatever the order, no invented value, no broken bound.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod story;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use story::{Happening, happenings, play, policy};
use sunward_core::board::Board;
use sunward_core::event::Event;
use sunward_core::grid_event::GridEvent;
use sunward_core::overrides::Override;
use sunward_core::signal::{Level, Quality};
use sunward_core::time::{Span, Timestamp};
use sunward_policies::facts::Reading;
use world::{POLICY, carbon, minute};

/// What puts all pools of the policy into one group.
const TOGETHER: &str = "
  score: 0 - carbon
  max_changing_sites: 1
  budgets:
    - {name: workers, limit: 5 workers, scope: fleet}
    - {name: power, limit: 11 kW, scope: fleet}
    - {name: energy, limit: 20 kWh, per: day, scope: fleet}
    - {name: co2, limit: 3 kgCO2e, per: hour, time_zone: Asia/Kolkata, scope: federation, signal: carbon, assume: 500}
  floors: [{name: quorum, sites: 1}]
  deadlines: [{name: paper, finish_by: 2026-01-01T06:00:00Z, work: 3 worker-hours, margin: 10m}]
";

const MAX_AGE: Span = Span::from_mins(10);

/// A level of one stream somewhere in three hours, with the minute of its receipt.
fn any_level() -> impl Strategy<Value = (i64, Level)> {
    let quality = prop_oneof![
        3 => Just(Quality::Measured),
        1 => Just(Quality::Estimated),
        2 => Just(Quality::Forecast),
        1 => Just(Quality::Missing),
    ];
    (
        0..180_i64,
        1..60_i64,
        0..180_i64,
        0..400_i32,
        quality,
        prop::option::of(0..4_u64),
        prop::option::of(0..3_i64),
    )
        .prop_map(
            |(from, length, received, value, quality, sequence, issued)| {
                let level = Level {
                    id: "".into(),
                    stream: carbon("CAISO_NORTH"),
                    valid_from: minute(from),
                    valid_to: minute(from + length),
                    value: (quality != Quality::Missing).then(|| f64::from(value) / 4.0),
                    quality,
                    issued_at: issued.map(|before| minute(received - before)),
                    sequence,
                };
                (received, level)
            },
        )
}

fn board_of<'a>(levels: impl IntoIterator<Item = &'a (i64, Level)>) -> Board {
    let mut board = Board::default();
    for (received, level) in levels {
        board.post(level, minute(*received));
    }
    board
}

fn reading(board: &Board, t: Timestamp) -> Reading {
    board
        .find(&carbon("CAISO_NORTH"))
        .map_or(Reading::Missing, |id| {
            board.stream(id).answer(t, MAX_AGE).reading
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_order_of_the_same_records_gives_one_timeline(
        levels in prop::collection::vec(any_level(), 1..24),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let mut other = levels.clone();
        let turn = shuffled.index(levels.len());
        other.rotate_left(turn);
        other.reverse();
        let (a, b) = (board_of(&levels), board_of(&other));
        // From the last receipt on: before that, one order knows what the other does not.
        let last = levels.iter().map(|(received, _)| *received).max().unwrap();
        for m in last..260 {
            prop_assert_eq!(reading(&a, minute(m)), reading(&b, minute(m)), "at minute {}", m);
        }
    }

    #[test]
    fn a_value_was_issued_for_its_instant_and_never_outlives_its_interval(
        levels in prop::collection::vec(any_level(), 1..24),
        lost in any::<prop::sample::Index>(),
    ) {
        let lost = lost.index(levels.len());
        let kept = levels.iter().enumerate().filter(|(i, _)| *i != lost).map(|(_, level)| level);
        let board = board_of(kept);
        for m in 0..260 {
            let t = minute(m);
            let (Reading::Fresh { value } | Reading::Stale { value }) = reading(&board, t) else { continue };
            let issued = levels.iter().any(|(_, level)| {
                level.value == Some(value) && level.valid_from <= t && t < level.valid_to
            });
            prop_assert!(issued, "minute {}: {} was never issued for it", m, value);
        }
    }

    #[test]
    fn what_is_said_of_later_is_what_would_be_said_then_if_nothing_more_came(
        levels in prop::collection::vec(any_level(), 1..24),
    ) {
        let board = board_of(&levels);
        let Some(id) = board.find(&carbon("CAISO_NORTH")) else { return Ok(()) };
        let (stream, now) = (board.stream(id), minute(180));
        let kept = |m: i64| stream.holds(minute(m)).and_then(|issue| issue.value);
        for m in 180..260 {
            let ahead = stream.ahead(minute(m), now, Span::from_mins(24 * 60));
            let value = match ahead.reading {
                Reading::Fresh { value } => Some(value),
                _ => None,
            };
            prop_assert_eq!(value, kept(m), "at minute {}", m);
            let until = ahead.until.unwrap_or(minute(261));
            for later in (m + 1..261).take_while(|later| minute(*later) < until) {
                prop_assert_eq!(kept(later), value, "at minute {}", later);
            }
            let doubted = stream.ahead(minute(m), now, Span::ZERO).reading;
            prop_assert_eq!(doubted, Reading::Missing);
        }
    }

    #[test]
    fn nothing_changes_between_now_and_the_announced_next_change(
        levels in prop::collection::vec(any_level(), 1..24),
    ) {
        let board = board_of(&levels);
        let Some(id) = board.find(&carbon("CAISO_NORTH")) else { return Ok(()) };
        for m in 0..260 {
            let answer = board.stream(id).answer(minute(m), MAX_AGE);
            let until = answer.next_change_at.unwrap_or(minute(261));
            prop_assert!(until > minute(m));
            for later in m + 1..261 {
                if minute(later) >= until {
                    break;
                }
                prop_assert_eq!(board.stream(id).answer(minute(later), MAX_AGE).reading, answer.reading);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_story_breaks_an_invariant_and_every_pool_settles(story in happenings(), planned in any::<bool>()) {
        let world = play(&story, &[policy(planned)]);
        for (name, state) in world.engine.state().pools.iter() {
            prop_assert!(state.is_settled(), "{} is {:?}\n{}", name, state.ledger, world.transcript);
            // Four hours without data: released, whatever happened before.
            prop_assert_eq!(world.homes[name].wanted, 0, "{}", world.transcript);
        }
        // Scaled twice = two moves by one generation of one pool.
        let mut moves: Vec<_> = world.moves.iter().map(|(pool, generation, _)| (pool.clone(), *generation)).collect();
        let all = moves.len();
        moves.sort();
        moves.dedup();
        prop_assert_eq!(moves.len(), all, "{}", world.transcript);
    }

    #[test]
    fn absence_of_data_never_raises_capacity(story in happenings(), planned in any::<bool>()) {
        // The same story with every value taken out: nothing may ever be scaled above 0 but to
        // undo a foreign change.
        let silent: Vec<_> = story
            .into_iter()
            .filter(|h| !matches!(h, Happening::Carbon { .. } | Happening::Forecast { .. } | Happening::Foreign { .. }))
            // An operator may start without data: that is what `on` is for.
            .filter(|h| !matches!(h, Happening::Override { effect: 2.., .. }))
            .collect();
        let world = play(&silent, &[policy(planned)]);
        prop_assert!(world.moves.is_empty(), "{}", world.transcript);
    }

    #[test]
    fn bounds_hold_and_only_the_grid_and_operators_cut_a_minimum_run_short(story in happenings(), planned in any::<bool>()) {
        let world = play(&story, &[policy(planned)]);
        let mut started: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for decision in &world.decisions {
            let most = if decision.pool.as_ref() == "caiso-a" { 3 } else { 4 };
            prop_assert!(decision.target <= most, "{decision:?}");
            if decision.target > 0 && decision.before == 0 {
                started.insert(&decision.pool, decision.at);
            }
            let cut = decision.target < decision.before;
            let run = started.get(decision.pool.as_ref()).map(|from| decision.at - *from);
            if cut && run.is_some_and(|run| run < Span::from_mins(30)) {
                let by = decision.rule.split('/').next();
                let grid = decision.reason.starts_with("dispatch");
                prop_assert!(grid || matches!(by, Some("override" | "grid_event")), "{:?}\n{}", decision, world.transcript);
            }
        }
    }

    #[test]
    fn nothing_is_decided_by_an_override_or_a_grid_event_that_is_over(story in happenings(), planned in any::<bool>()) {
        let world = play(&story, &[policy(planned)]);
        // What each id was when something was decided by it, from the events alone.
        let mut overrides: BTreeMap<Arc<str>, Override> = BTreeMap::new();
        let mut events: BTreeMap<Arc<str>, GridEvent> = BTreeMap::new();
        let mut decisions = world.decisions.iter().peekable();
        for (index, (at, group)) in world.groups.iter().enumerate() {
            for event in group {
                match event {
                    Event::OverrideSet(set) => _ = overrides.insert(set.id.clone(), set.clone()),
                    Event::OverrideCleared { id, .. } => _ = overrides.remove(id),
                    Event::GridEventAccepted(event) => {
                        let known = events.get(&event.id);
                        if known.is_none_or(|known| known.revision <= event.revision) {
                            events.insert(event.id.clone(), event.clone());
                        }
                    }
                    _ => {}
                }
            }
            while let Some(decision) = decisions.next_if(|d| d.index == index as u64 + 1) {
                let (by, id) = decision.rule.split_once('/').unwrap_or(("", ""));
                let stands = match by {
                    "override" => overrides.get(id).is_some_and(|known| *at < known.expires_at),
                    "grid_event" => events.get(id).is_some_and(|known| known.acts(*at)),
                    _ => true,
                };
                prop_assert!(stands, "{:?}\n{}", decision, world.transcript);
            }
        }
        prop_assert!(decisions.next().is_none());
    }

    #[test]
    fn an_engine_restored_in_the_middle_goes_on_as_if_nothing_had_been(
        story in happenings(),
        planned in any::<bool>(),
        middle in any::<prop::sample::Index>(),
    ) {
        let world = play(&story, &[policy(planned)]);
        let middle = middle.index(world.groups.len());
        let mut engine = sunward_core::engine::Engine::new();
        let mut effects = sunward_core::action::Effects::default();
        for (index, (at, events)) in world.groups.iter().enumerate() {
            if index == middle {
                let state = sunward_core::engine::Engine::decode_snapshot(&engine.snapshot()).unwrap();
                let restored = sunward_core::engine::Engine::restore(state);
                prop_assert_eq!(restored.next_wakeup(), engine.next_wakeup());
                engine = restored;
            }
            engine.step(*at, events, &mut effects);
        }
        prop_assert_eq!(engine.digest(), world.engine.digest());
    }

    /// The invariants hold after every step, also where all pools are planned together, and a restored engine goes on.
    #[test]
    fn no_story_breaks_budgets_floors_or_the_blast_radius(
        story in happenings(),
        middle in any::<prop::sample::Index>(),
    ) {
        let together = format!("{POLICY}{TOGETHER}");
        let world = play(&story, &[&together]);
        let middle = middle.index(world.groups.len());
        let mut engine = sunward_core::engine::Engine::new();
        let mut effects = sunward_core::action::Effects::default();
        for (index, (at, events)) in world.groups.iter().enumerate() {
            if index == middle {
                let state = sunward_core::engine::Engine::decode_snapshot(&engine.snapshot()).unwrap();
                let restored = sunward_core::engine::Engine::restore(state);
                prop_assert_eq!(restored.next_wakeup(), engine.next_wakeup());
                engine = restored;
            }
            engine.step(*at, events, &mut effects);
        }
        prop_assert_eq!(engine.digest(), world.engine.digest());
    }

    #[test]
    fn a_replay_of_any_story_gives_the_same_digest(story in happenings(), planned in any::<bool>()) {
        let world = play(&story, &[policy(planned)]);
        let mut engine = sunward_core::engine::Engine::new();
        let mut effects = sunward_core::action::Effects::default();
        for (at, events) in &world.groups {
            let mut group = sunward_core::protocol::group::Group::default();
            group.add(sunward_core::protocol::group::Request::new(events.clone()).unwrap());
            let (stamp, events) =
                sunward_core::protocol::group::decode_record(group.record(*at)).unwrap();
            engine.step(stamp, &events, &mut effects);
        }
        prop_assert_eq!(engine.digest(), world.engine.digest());
    }
}
