//! What holds of every rule in every world.

use super::*;
use crate::facts::Outlook as _;

fn any_window() -> impl Strategy<Value = Option<Window>> {
    let expect = prop_oneof![
        3 => Just(Expectation::Forecast),
        1 => Just(Expectation::Schedule { calendar: 0 }),
        1 => (5..80_i64).prop_map(|lasts| Expectation::Guarantee { lasts: Span::from_mins(lasts) }),
    ];
    let some = (expect, 0..25_i64, prop::option::of(0..15_i64))
        .prop_map(|(expect, at_least, leave)| Some(window(expect, at_least, leave)));
    prop_oneof![1 => Just(None), 4 => some]
}

fn any_rule() -> impl Strategy<Value = Threshold> {
    let activate = prop::sample::select(vec![
        "a < 100",
        "a < 100 && b > 5",
        "a < 100 || b > 9",
        "a < 100 && calendar.night",
        "a < 100 && (b > 5 || calendar.night)",
        "calendar.night",
    ]);
    let release = prop::sample::select(vec![
        "",
        "a >= 120",
        "a >= 120 || b < 3",
        "a >= 120 && !calendar.night",
        "!calendar.night",
    ]);
    let counted = prop::sample::select(vec![
        "",
        "b / pool.training_kw",
        "b / (b - 8)",
        "calendar.night ? b / pool.training_kw : 3",
    ]);
    let then = || prop_oneof![Just(Then::Release), Just(Then::Keep)];
    let action = || {
        (0..12_i64, then()).prop_map(|(hold, then)| OnMissing {
            hold: Span::from_mins(hold),
            then,
        })
    };
    let timers = || (prop_oneof![2 => Just(0_i64), 1 => 1..8_i64], 0..4_u32);
    (
        activate,
        timers(),
        release,
        timers(),
        any_window(),
        counted,
        action(),
        action(),
    )
        .prop_map(|(activate, up, release, down, window, counted, a, b)| {
            let release = (!release.is_empty()).then(|| side(release, down.0, down.1));
            Threshold::new(ThresholdParts {
                activate: side(activate, up.0, up.1),
                release,
                window,
                workers: (!counted.is_empty()).then(|| workers(counted)),
                on_missing: Box::new([a, b]),
            })
        })
}

fn any_segments(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Segment>> {
    let a = prop::sample::select(vec![80.0, 90.0, 95.0, 110.0, 125.0, GONE]);
    let b = prop::sample::select(vec![1.0, 4.0, 8.0, 20.0, GONE]);
    prop::collection::vec((1..20_i64, (a, b)), steps).prop_map(|steps| {
        let mut at = 0;
        steps
            .into_iter()
            .map(|(wait, (a, b))| {
                at += wait;
                (at, [a, b])
            })
            .collect()
    })
}

fn any_world() -> impl Strategy<Value = World> {
    let issues = prop::collection::vec((1..50_i64, any_segments(0..20)), 0..5);
    let nights = prop::collection::vec((1..40_i64, 1..60_i64), 0..5);
    (any_segments(1..25), issues, nights, 0..5_i64).prop_map(
        |(actual, issues, nights, ready_after)| {
            let mut at = -1;
            let forecasts = issues
                .into_iter()
                .map(|(wait, segments)| {
                    at += wait;
                    (at, segments)
                })
                .collect();
            let mut at = 0;
            let nights = nights
                .into_iter()
                .map(|(wait, length)| {
                    let from = at + wait;
                    at = from + length;
                    (from, at)
                })
                .collect();
            World {
                actual,
                forecasts,
                nights,
                ready_after,
            }
        },
    )
}

/// The end of the window that is open at `now`, by looking at each minute ahead: the end, and whether it is known.
/// `None`: it never ends, as far as is known. `now` itself: nothing is known.
fn expected_end(
    world: &World,
    rule: &Threshold,
    memory: &Memory,
    now: Timestamp,
) -> Option<(Timestamp, bool)> {
    match rule.window.unwrap().expect {
        Expectation::Guarantee { lasts } => Some(
            memory
                .window_since
                .map_or((now, false), |since| (since + lasts, true)),
        ),
        Expectation::Schedule { .. } => {
            let night = world.night(now);
            Some(if night.open {
                (night.until.unwrap(), true)
            } else {
                (now, false)
            })
        }
        Expectation::Forecast => {
            let ending = rule
                .release
                .as_ref()
                .map_or(&rule.activate.when, |release| &release.when);
            let outlook = Known { world, now };
            let mut last_boundary = now;
            let mut at = Timestamp::from_millis(now.as_millis() / 60_000 * 60_000);
            // The first boundary is the first at which what is said ahead differs from what is said now.
            let said = |at: Timestamp| {
                let next = world
                    .forecast(now)
                    .partition_point(|segment| minute(segment.0) <= at);
                (next, world.night(at).open)
            };
            let reads_signals = !ending.signals().is_empty();
            while at <= world.last_change() {
                let before = said(at.max(now));
                at += Span::from_mins(1);
                let after = said(at);
                let crossed = (reads_signals && before.0 != after.0)
                    || (!ending.calendars().is_empty() && before.1 != after.1);
                if !crossed {
                    continue;
                }
                last_boundary = at;
                let readings = [0, 1].map(|index| outlook.signal(index, at).reading);
                let calendars = [world.night(at)];
                let holds = world.facts(now, |facts| {
                    rule.release_condition(&Facts {
                        now: at,
                        readings: &readings,
                        calendars: &calendars,
                        ..*facts
                    })
                });
                if holds != Some(false) {
                    return Some((at, holds.is_some()));
                }
            }
            reads_signals.then_some((last_boundary, false))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn judging_at_extra_instants_changes_no_outcome(
        rule in any_rule(), world in any_world(), latched: bool, extra in prop::collection::vec(0..400_i64 * 60_000, 0..60),
    ) {
        let expected = world.outcomes(&rule, latched, &[], 400);
        let extra: Vec<Timestamp> = extra.into_iter().map(Timestamp::from_millis).collect();
        prop_assert_eq!(world.outcomes(&rule, latched, &extra, 400), expected.clone());
        let minutes: Vec<Timestamp> = (0..400).map(minute).collect();
        prop_assert_eq!(world.outcomes(&rule, latched, &minutes, 400), expected);
    }

    #[test]
    fn a_second_judging_at_the_same_instant_answers_the_same(rule in any_rule(), world in any_world(), latched: bool) {
        let mut again = Vec::new();
        world.walk(&rule, &mut Memory::new(latched), &[], 400, |now, verdict, memory| {
            let second = world.facts(now, |facts| rule.judge(facts, &mut memory.clone()));
            again.push((now, verdict.intent, verdict.workers, second.verdict.unwrap()));
        });
        for (now, intent, workers, second) in again {
            prop_assert_eq!((second.intent, second.workers), (intent, workers), "{}", now);
        }
    }

    #[test]
    fn a_start_is_made_only_in_a_window_that_is_long_enough(rule in any_rule(), world in any_world(), latched: bool) {
        let mut was_latched = latched;
        let mut wrong = None;
        world.walk(&rule, &mut Memory::new(latched), &[], 400, |now, verdict, memory| {
            let started = !was_latched && memory.latched;
            was_latched = memory.latched;
            let Some(window) = rule.window.filter(|_| started) else {
                return;
            };
            let needed = now + Span::from_mins(world.ready_after) + window.start_cost + window.at_least;
            let end = expected_end(&world, &rule, memory, now);
            let known_now = rule.activate.when.signals().is_empty() || verdict.intent == Intent::Activate;
            if !known_now || end.is_some_and(|(end, _)| end < needed) {
                wrong = Some((now, end, needed));
            }
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn nothing_runs_into_a_known_end_that_it_was_to_leave_ahead_of(rule in any_rule(), world in any_world(), latched: bool) {
        let Some(leave) = rule.window.and_then(|window| window.leave_before_end) else {
            return Ok(());
        };
        let mut wrong = None;
        let mut left: Option<Timestamp> = None;
        let minutes: Vec<Timestamp> = (0..400).map(minute).collect();
        world.walk(&rule, &mut Memory::new(latched), &minutes, 400, |now, verdict, memory| {
            let end = expected_end(&world, &rule, memory, now);
            if memory.latched && end.is_some_and(|(end, known)| known && end <= now + leave) {
                wrong = Some((now, "it runs on", end));
            }
            // Left ahead of an end, it comes back after it, or for one that is worth while.
            if memory.latched && left.is_some_and(|left| now < left) && end.is_some_and(|(end, _)| end <= now + leave) {
                wrong = Some((now, "it came back", end));
            }
            if let Reason::LeavingAhead { ends } = verdict.reason {
                left = Some(ends);
            }
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn losing_what_is_known_never_starts_and_only_goes_down(rule in any_rule(), world in any_world(), latched: bool, from in 0..150_i64) {
        // From some instant on nothing is read and nothing is forecast; calendars go on.
        let reads = |side: &Side| !side.when.signals().is_empty() && side.when.calendars().is_empty();
        if !reads(&rule.activate) || rule.release.as_ref().is_some_and(|release| !reads(release)) {
            return Ok(());
        }
        let mut dark = world;
        dark.actual.retain(|segment| segment.0 < from);
        dark.actual.push((from, [GONE; 2]));
        dark.forecasts.retain(|issue| issue.0 < from);
        dark.forecasts.push((from, Vec::new()));
        let mut after = Vec::new();
        dark.walk(&rule, &mut Memory::new(latched), &[], 500, |now, verdict, _| {
            if now >= minute(from) {
                after.push(verdict.intent);
            }
        });
        prop_assert!(after.iter().all(|intent| *intent != Intent::Activate), "{:?}", after);
        prop_assert!(after.windows(2).all(|pair| pair[1] <= pair[0]), "{:?}", after);
    }

    #[test]
    fn losing_the_forecast_alone_starts_nothing(rule in any_rule(), world in any_world(), latched: bool, from in 0..150_i64) {
        // A window by forecast whose end is told by signals alone: without a forecast there is no start.
        let by_signals = rule.release.as_ref().map_or(&rule.activate, |release| release);
        let forecast = rule.window.is_some_and(|window| window.expect == Expectation::Forecast);
        if !forecast || by_signals.when.signals().is_empty() || !by_signals.when.calendars().is_empty() {
            return Ok(());
        }
        let mut dark = world;
        dark.forecasts.retain(|issue| issue.0 < from);
        dark.forecasts.push((from, Vec::new()));
        let mut running = None;
        let mut wrong = None;
        dark.walk(&rule, &mut Memory::new(latched), &[], 400, |now, _, memory| {
            if now >= minute(from) && memory.latched && running == Some(false) {
                wrong = Some(now);
            }
            running = Some(memory.latched);
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn a_start_takes_all_of_its_readings(rule in any_rule(), world in any_world(), latched: bool) {
        let needed = rule.activate.samples.max(1);
        let signals = rule.activate.when.signals();
        let mut was_latched = latched;
        let (mut seen, mut counted) = (0_u32, 0_u64);
        let mut wrong = None;
        world.walk(&rule, &mut Memory::new(latched), &[], 400, |now, _, memory| {
            world.facts(now, |facts| {
                let total = readings_of(facts, signals);
                match rule.activate.when.evaluate(facts) {
                    Some(true) if seen == 0 || total > counted => seen += 1,
                    Some(false) => seen = 0,
                    _ => {}
                }
                counted = total;
            });
            if !was_latched && memory.latched && seen < needed {
                wrong = Some((now, seen));
            }
            was_latched = memory.latched;
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn memory_survives_its_serialised_form(rule in any_rule(), world in any_world(), latched: bool) {
        let mut wrong = None;
        world.walk(&rule, &mut Memory::new(latched), &[], 400, |_, _, memory| {
            let text = serde_json::to_string(memory).unwrap();
            if serde_json::from_str::<Memory>(&text).unwrap() != *memory {
                wrong = Some(text);
            }
        });
        prop_assert_eq!(wrong, None);
    }
}
