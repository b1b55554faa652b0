//! The latch, tested by whole transcripts and by properties. Times are in minutes.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::expr::Scope;
use crate::facts::PoolFacts;
use crate::units::Unit;

const POOL: PoolFacts = PoolFacts {
    wanted: 0,
    ready: 0,
    min: 0,
    max: 3,
    training_kw: 2.0,
    ready_after: Span::ZERO,
    site_power_limit_kw: None,
};

fn side(when: &str, held_for: i64) -> Side {
    let scope = Scope {
        signals: &[("a", Unit::GramPerKilowattHour), ("b", Unit::Kilowatt)],
        calendars: &["night"],
    };
    Side {
        when: Condition::compile(when, scope).unwrap(),
        held_for: Span::from_mins(held_for),
        samples: 0,
    }
}

/// A rule without window and worker count.
fn plain(activate: Side, release: Option<Side>, on_missing: Box<[OnMissing]>) -> Threshold {
    Threshold::new(ThresholdParts {
        activate,
        release,
        window: None,
        workers: None,
        on_missing,
    })
}

fn action(hold: i64, then: Then) -> OnMissing {
    OnMissing {
        hold: Span::from_mins(hold),
        then,
    }
}

fn minute(at: i64) -> Timestamp {
    Timestamp::from_millis(at * 60_000)
}

/// The readings of `a` and `b` from an instant on; NaN is missing.
type Change = (i64, [f64; 2]);
const GONE: f64 = f64::NAN;

fn reading(value: f64) -> Reading {
    if value.is_nan() {
        Reading::Missing
    } else {
        Reading::Fresh { value }
    }
}

fn judge(rule: &Threshold, memory: &mut Memory, now: Timestamp, values: [f64; 2]) -> Judgement {
    let readings = values.map(reading);
    let judgement = rule.judge(&Facts::present(now, &readings, POOL), memory);
    if let Some(next) = judgement.next_change_at {
        assert!(next > now, "the next change lies in the future");
    }
    judgement
}

/// Judges at each change, at each wake-up that the rule asks for and at `extra` instants, until `end`; gives the
/// instants at which the intent changed.
fn intents(
    rule: &Threshold,
    memory: &mut Memory,
    changes: &[Change],
    extra: &[Timestamp],
    end: i64,
) -> Vec<(Timestamp, Intent)> {
    let mut out: Vec<(Timestamp, Intent)> = Vec::new();
    walk(rule, memory, changes, extra, end, |now, verdict| {
        if out.last().is_none_or(|last| last.1 != verdict.intent) {
            out.push((now, verdict.intent));
        }
    });
    out
}

fn walk(
    rule: &Threshold,
    memory: &mut Memory,
    changes: &[Change],
    extra: &[Timestamp],
    end: i64,
    mut see: impl FnMut(Timestamp, Verdict),
) {
    let mut now = minute(changes[0].0);
    loop {
        let values = changes
            .iter()
            .rev()
            .find(|change| minute(change.0) <= now)
            .unwrap()
            .1;
        let judgement = judge(rule, memory, now, values);
        see(now, judgement.verdict.unwrap());
        let later = changes
            .iter()
            .map(|change| minute(change.0))
            .chain(extra.iter().copied());
        let next = later
            .chain(judgement.next_change_at)
            .filter(|at| *at > now)
            .min();
        match next {
            Some(next) if next <= minute(end) => now = next,
            _ => return,
        }
    }
}

/// One line per judging whose verdict differs from the one before: minute, intent, reason.
fn transcript(rule: &Threshold, mut memory: Memory, changes: &[Change]) -> String {
    let mut out = String::new();
    let mut last = None;
    walk(rule, &mut memory, changes, &[], 1_000, |now, verdict| {
        if last != Some(verdict) {
            last = Some(verdict);
            let at = |until: Timestamp| until.as_millis() / 60_000;
            let reason = match verdict.reason {
                Reason::ActivatePending { until } => format!("activates at {}", at(until)),
                Reason::ReleasePending { until } => format!("releases at {}", at(until)),
                Reason::MissingHolding { signal, until } => {
                    format!("signal {signal} missing until {}", at(until))
                }
                Reason::MissingReleased { signal } => format!("signal {signal} missing: released"),
                Reason::MissingKept { signal } => format!("signal {signal} missing: kept"),
                Reason::Running => "running".to_owned(),
                Reason::Resting => "resting".to_owned(),
                Reason::BothHold => "both hold".to_owned(),
                Reason::Undecidable => "undecidable".to_owned(),
                other => other.to_string(),
            };
            let _ = writeln!(out, "{} {} {reason}", at(now), verdict.intent);
        }
    });
    out
}

fn check(rule: &Threshold, memory: Memory, changes: &[Change], expected: &str) {
    let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
    let found = transcript(rule, memory, changes);
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

/// carbon below 100 for 5 minutes starts, 120 or more for 10 stops; missing for 10 minutes releases.
fn curtailment(then: Then) -> Threshold {
    let on_missing = Box::new([action(10, then), action(10, then)]);
    plain(side("a < 100", 5), Some(side("a >= 120", 10)), on_missing)
}

#[test]
fn it_activates_and_releases_after_the_hold_times() {
    check(
        &curtailment(Then::Release),
        Memory::new(false),
        &[
            (0, [150.0, 0.0]),
            (10, [90.0, 0.0]),
            (12, [110.0, 0.0]),
            (20, [99.9, 0.0]),
            (40, [119.9, 0.0]),
            (50, [120.0, 0.0]),
            (55, [100.0, 0.0]),
            (60, [130.0, 0.0]),
        ],
        "0 release resting
         10 release activates at 15
         12 release resting
         20 release activates at 25
         25 activate running
         50 activate releases at 60
         55 activate running
         60 activate releases at 70
         70 release resting",
    );
}

#[test]
fn a_pool_that_was_running_stays_until_the_release_condition_says_so() {
    check(
        &curtailment(Then::Release),
        Memory::new(true),
        &[(0, [110.0, 0.0]), (5, [120.0, 0.0])],
        "0 activate running
         5 activate releases at 15
         15 release resting",
    );
}

#[test]
fn without_a_release_the_condition_itself_keeps_it() {
    let rule = plain(
        side("a < 100", 5),
        None,
        Box::new([action(10, Then::Release)]),
    );
    check(
        &rule,
        Memory::new(false),
        &[(0, [90.0, 0.0]), (7, [100.0, 0.0])],
        "0 release activates at 5
         5 activate running
         7 release resting",
    );
}

#[test]
fn missing_data_holds_then_releases() {
    check(
        &curtailment(Then::Release),
        Memory::new(true),
        &[
            (0, [90.0, 0.0]),
            (3, [GONE, 0.0]),
            (6, [90.0, 0.0]),
            (10, [GONE, 0.0]),
            (30, [90.0, 0.0]),
        ],
        "0 activate running
         3 hold signal 0 missing until 13
         6 activate running
         10 hold signal 0 missing until 20
         20 release signal 0 missing: released
         30 release activates at 35
         35 activate running",
    );
}

#[test]
fn missing_data_holds_then_keeps_without_ever_raising() {
    check(
        &curtailment(Then::Keep),
        Memory::new(true),
        &[(0, [120.0, 0.0]), (8, [GONE, 0.0]), (60, [120.0, 0.0])],
        "0 activate releases at 10
         8 hold signal 0 missing until 18
         18 hold signal 0 missing: kept
         60 activate releases at 70
         70 release resting",
    );
}

#[test]
fn a_timer_neither_resets_nor_completes_while_unknown() {
    check(
        &curtailment(Then::Release),
        Memory::new(false),
        &[(0, [90.0, 0.0]), (3, [GONE, 0.0]), (9, [90.0, 0.0])],
        "0 release activates at 5
         3 release signal 0 missing until 13
         9 activate running",
    );
    check(
        &curtailment(Then::Release),
        Memory::new(false),
        &[(0, [90.0, 0.0]), (3, [GONE, 0.0]), (14, [90.0, 0.0])],
        "0 release activates at 5
         3 release signal 0 missing until 13
         13 release signal 0 missing: released
         14 release activates at 19
         19 activate running",
    );
}

#[test]
fn of_several_missing_signals_release_beats_keep_each_at_its_own_end() {
    let rule = |a, b| plain(side("a < 100 && b > 5", 0), None, Box::new([a, b]));
    let changes = [(0, [90.0, 9.0]), (1, [GONE, GONE])];
    check(
        &rule(action(10, Then::Keep), action(20, Then::Release)),
        Memory::new(true),
        &changes,
        "0 activate running
         1 hold signal 0 missing until 11
         11 hold signal 0 missing: kept
         21 release signal 1 missing: released",
    );
    check(
        &rule(action(20, Then::Keep), action(10, Then::Release)),
        Memory::new(true),
        &changes,
        "0 activate running
         1 hold signal 1 missing until 11
         11 release signal 1 missing: released",
    );
    check(
        &rule(action(10, Then::Keep), action(10, Then::Release)),
        Memory::new(true),
        &changes,
        "0 activate running
         1 hold signal 0 missing until 11
         11 release signal 1 missing: released",
    );
}

#[test]
fn a_missing_signal_that_decides_nothing_is_no_matter() {
    let rule = plain(
        side("a < 100 || b > 5", 0),
        Some(side("a >= 120 && b <= 5", 0)),
        Box::new([action(10, Then::Release), action(10, Then::Release)]),
    );
    check(
        &rule,
        Memory::new(false),
        &[(0, [GONE, 9.0]), (30, [90.0, GONE])],
        "0 activate running",
    );
}

#[test]
fn what_could_not_be_stopped_is_not_started() {
    let rule = plain(
        side("a < 100", 0),
        Some(side("b < 5", 0)),
        Box::new([action(10, Then::Release), action(10, Then::Release)]),
    );
    check(
        &rule,
        Memory::new(false),
        &[(0, [90.0, GONE]), (40, [90.0, 9.0])],
        "0 release signal 1 missing until 10
         10 release signal 1 missing: released
         40 activate running",
    );
}

#[test]
fn a_result_that_is_not_finite_takes_the_actions_of_the_signals_it_read() {
    let rule = plain(
        side("a < 100 && b / (b - b) > 1", 0),
        None,
        Box::new([action(10, Then::Keep), action(5, Then::Keep)]),
    );
    check(
        &rule,
        Memory::new(true),
        &[(0, [1.0, 1.0])],
        "0 hold signal 1 missing until 5
         5 hold signal 1 missing: kept
         10 hold signal 0 missing: kept",
    );
    let rule = plain(side("site.power_limit_kw > 1", 0), None, Box::new([]));
    check(
        &rule,
        Memory::new(true),
        &[(0, [1.0, 1.0])],
        "0 release undecidable",
    );
}

#[test]
fn both_conditions_at_once_release_wins_where_neither_has_a_hold_time() {
    let rule = |activate, release| {
        plain(
            side("a < 100", activate),
            Some(side("b < 5", release)),
            Box::new([action(10, Then::Keep); 2]),
        )
    };
    let changes = [(0, [90.0, 1.0]), (1, [90.0, 1.0]), (2, [90.0, 9.0])];
    for latched in [false, true] {
        check(
            &rule(0, 0),
            Memory::new(latched),
            &changes,
            "0 release both hold\n2 activate running",
        );
    }
    check(
        &rule(0, 3),
        Memory::new(false),
        &changes,
        "0 activate releases at 3\n2 activate running",
    );
}

#[test]
fn a_stale_or_infinite_value_is_not_evaluated() {
    let rule = curtailment(Then::Release);
    for gone in [
        Reading::Stale { value: 90.0 },
        Reading::Fresh {
            value: f64::INFINITY,
        },
        Reading::Missing,
    ] {
        let mut memory = Memory::new(true);
        let readings = [gone, Reading::Fresh { value: 0.0 }];
        let judged = rule.judge(&Facts::present(minute(0), &readings, POOL), &mut memory);
        let reason = Reason::MissingHolding {
            signal: 0,
            until: minute(10),
        };
        assert_eq!(
            judged.verdict,
            Some(Verdict {
                intent: Intent::Hold,
                workers: None,
                reason
            })
        );
        assert_eq!(judged.next_change_at, Some(minute(10)));
    }
}

#[test]
fn after_a_restart_the_hold_runs_from_the_start() {
    let rule = curtailment(Then::Release);
    let mut memory = Memory::new(true);
    judge(&rule, &mut memory, minute(0), [GONE, 0.0]);
    memory.restarted(minute(500));
    let judged = judge(&rule, &mut memory, minute(502), [GONE, 0.0]);
    assert_eq!(judged.next_change_at, Some(minute(510)));
    assert_eq!(judged.verdict.unwrap().intent, Intent::Hold);
    judge(&rule, &mut memory, minute(503), [90.0, 0.0]);
    let judged = judge(&rule, &mut memory, minute(504), [GONE, 0.0]);
    assert_eq!(
        judged.next_change_at,
        Some(minute(514)),
        "a start counts only for what was unknown at it"
    );
}

#[test]
fn memory_survives_its_serialised_form() {
    let mut memory = Memory::new(true);
    judge(
        &curtailment(Then::Keep),
        &mut memory,
        minute(3),
        [130.0, 0.0],
    );
    let text = serde_json::to_string(&memory).unwrap();
    assert_eq!(serde_json::from_str::<Memory>(&text).unwrap(), memory);
}

fn any_then() -> impl Strategy<Value = Then> {
    prop_oneof![Just(Then::Release), Just(Then::Keep)]
}

fn any_rule() -> impl Strategy<Value = Threshold> {
    let activate = prop::sample::select(vec![
        "a < 100",
        "a < 100 && b > 5",
        "a < 100 || b > 5",
        "b / (b - 8) > 0",
        "b > 5",
    ]);
    let release = prop::sample::select(vec![
        "",
        "a >= 120",
        "b < 3",
        "a >= 120 || b < 3",
        "a > 90 && b < 9",
    ]);
    (
        activate,
        0..8_i64,
        release,
        0..8_i64,
        (0..12_i64, any_then()),
        (0..12_i64, any_then()),
    )
        .prop_map(|(activate, activate_for, release, release_for, a, b)| {
            let release = (!release.is_empty()).then(|| side(release, release_for));
            plain(
                side(activate, activate_for),
                release,
                Box::new([action(a.0, a.1), action(b.0, b.1)]),
            )
        })
}

fn any_value(levels: &'static [f64]) -> impl Strategy<Value = f64> {
    prop::sample::select(levels)
}

fn any_changes() -> impl Strategy<Value = Vec<Change>> {
    let values = (
        any_value(&[80.0, 95.0, 100.0, 110.0, 125.0, GONE, GONE]),
        any_value(&[1.0, 4.0, 8.0, 20.0, GONE]),
    );
    prop::collection::vec((1..15_i64, values), 1..25).prop_map(|steps| {
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn judging_at_extra_instants_changes_no_outcome(
        rule in any_rule(),
        changes in any_changes(),
        latched: bool,
        extra in prop::collection::vec(0..400_i64 * 60_000, 0..60),
    ) {
        let extra: Vec<Timestamp> = extra.into_iter().map(Timestamp::from_millis).collect();
        let (mut plain, mut pestered) = (Memory::new(latched), Memory::new(latched));
        let expected = intents(&rule, &mut plain, &changes, &[], 500);
        prop_assert_eq!(intents(&rule, &mut pestered, &changes, &extra, 500), expected);
        prop_assert_eq!(plain.latched, pestered.latched);
    }

    #[test]
    fn the_same_situation_until_the_next_change_means_the_same_judgement(
        rule in any_rule(), changes in any_changes(), latched: bool, later in any_changes(), wait in 0..20_i64,
    ) {
        let situation = |now, values: [f64; 2]| {
            let readings = values.map(reading);
            rule.situation(&Facts::present(now, &readings, POOL))
        };
        let mut memory = Memory::new(latched);
        for (at, values) in changes {
            let judgement = judge(&rule, &mut memory, minute(at), values);
            let before = situation(minute(at), values);
            let now = minute(at + wait);
            for (_, values) in &later {
                let same = before.is_some() && situation(now, *values) == before;
                if same && judgement.next_change_at.is_none_or(|next| now < next) {
                    let mut other = memory.clone();
                    prop_assert_eq!(judge(&rule, &mut other, now, *values), judgement);
                    prop_assert_eq!(&other, &memory);
                }
            }
        }
    }

    #[test]
    fn absence_of_data_never_activates(
        rule in any_rule(), changes in any_changes(), latched: bool, from in 0..200_i64,
    ) {
        // From some instant on nothing is known. Whatever came before, the intent is never again to activate.
        let mut known: Vec<Change> = changes.into_iter().filter(|change| change.0 < from).collect();
        known.push((from, [GONE, GONE]));
        let mut memory = Memory::new(latched);
        let mut after = Vec::new();
        walk(&rule, &mut memory, &known, &[], 500, |now, verdict| {
            if now >= minute(from) {
                after.push(verdict.intent);
            }
        });
        prop_assert!(after.iter().all(|intent| *intent != Intent::Activate), "{:?}", after);
        // And it only ever goes down.
        prop_assert!(after.windows(2).all(|pair| pair[1] <= pair[0]), "{:?}", after);
    }

    #[test]
    fn going_up_takes_the_whole_hold_time_and_a_known_condition(
        rule in any_rule(), changes in any_changes(), latched: bool,
    ) {
        let mut memory = Memory::new(latched);
        let mut was_released = !latched;
        // Since when the condition has not been known to be false.
        let mut true_since: Option<Timestamp> = None;
        let mut wrong = None;
        walk(&rule, &mut memory, &changes, &[], 500, |now, verdict| {
            let values = changes.iter().rev().find(|change| minute(change.0) <= now).unwrap().1.map(reading);
            let holds = rule.activate.when.evaluate(&Facts::present(now, &values, POOL));
            match holds {
                Some(false) => true_since = None,
                Some(true) => true_since = true_since.or(Some(now)),
                None => {}
            }
            let risen = was_released && verdict.intent == Intent::Activate;
            let held = true_since.is_some_and(|since| now - since >= rule.activate.held_for);
            if risen && !(holds == Some(true) && held) {
                wrong = Some((now, true_since));
            }
            was_released = verdict.intent == Intent::Release || (was_released && !risen);
        });
        prop_assert_eq!(wrong, None);
    }
}
