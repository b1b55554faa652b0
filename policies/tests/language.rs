//! Every key of a policy file: what it compiles to, what a rule's memory depends on, and what nothing reads.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use sunward_policies::{
    Budget, BudgetScope, Deadline, Diagnostic, Expectation, Floor, Measure, OnDispatch,
    OnEstimated, Period, Policy, PolicySet, Recurrence, SourceFile, Span, Timestamp, Weight,
};

fn every_key() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good/every-key.yaml");
    fs::read_to_string(path).unwrap()
}

fn compile(text: &str) -> Result<PolicySet, Vec<Diagnostic>> {
    PolicySet::compile(&[SourceFile {
        path: "a.yaml".to_owned(),
        text: text.to_owned(),
    }])
}

fn policy(text: &str) -> Policy {
    let set = compile(text).unwrap_or_else(|found| panic!("{found:?}\n{text}"));
    assert_eq!(set.warnings(), []);
    set.policies()[0].clone()
}

/// The text with one part replaced, which stands in it once.
fn with(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn signals_and_calendars_arrive() {
    let policy = policy(&every_key());
    let names: Vec<&str> = policy.signals.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["carbon", "price", "surplus"]);
    let [carbon, price, surplus] = policy.signals.as_slice() else {
        panic!("three")
    };
    assert_eq!(carbon.on_estimated, OnEstimated::Missing);
    assert_eq!(carbon.forecast_max_age, Some(Span::from_mins(26 * 60)));
    assert_eq!(
        (
            price.on_estimated,
            price.forecast_max_age,
            price.add_back_own_draw
        ),
        (OnEstimated::Use, None, false)
    );
    assert!(surplus.add_back_own_draw && !carbon.add_back_own_draw);
    let calendars: Vec<(&str, u32)> = policy
        .calendars
        .iter()
        .map(|calendar| (calendar.name.as_str(), calendar.range.line))
        .collect();
    assert_eq!(calendars, [("lunch", 24), ("night", 23)]);
    // Monday, 4 January 2027, 23:00 in Berlin.
    let night = policy.calendars[1]
        .calendar
        .at(Timestamp::parse_rfc3339("2027-01-04T22:00:00Z").unwrap());
    assert!(night.open);
    assert_eq!(
        night.until,
        Some(Timestamp::parse_rfc3339("2027-01-05T05:00:00Z").unwrap())
    );
    let rule = &policy.rules[0];
    assert_eq!(rule.rule.signals().iter().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(rule.rule.calendars().iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(policy.score.unwrap().text(), "0 - price");
    assert_eq!(policy.max_changing_sites, Some(2));
    assert_eq!(policy.on_dispatch, OnDispatch::PowerPercent(75));
}

#[test]
fn budgets_arrive() {
    let policy = policy(&every_key());
    let in_berlin = |period| {
        Some(Recurrence {
            period,
            zone: chrono_tz::Europe::Berlin,
        })
    };
    let in_utc = |period| {
        Some(Recurrence {
            period,
            zone: chrono_tz::UTC,
        })
    };
    let weight = |signal, assume| Some(Weight { signal, assume });
    let rows = [
        (
            "feeder",
            Measure::Power,
            60_000,
            "kW",
            None,
            BudgetScope::Site,
            None,
        ),
        (
            "co2",
            Measure::Carbon,
            500_000_000,
            "kgCO2e",
            in_berlin(Period::Month),
            BudgetScope::Federation,
            weight(0, 900.0),
        ),
        (
            "money",
            Measure::Money,
            1_000_000,
            "EUR",
            in_utc(Period::Week),
            BudgetScope::Fleet,
            weight(1, 300.0),
        ),
        (
            "energy",
            Measure::Energy,
            2_000_000_000,
            "MWh",
            in_utc(Period::Day),
            BudgetScope::Pool,
            None,
        ),
        (
            "count",
            Measure::Workers,
            12,
            "workers",
            None,
            BudgetScope::Fleet,
            None,
        ),
    ];
    assert_eq!(policy.budgets.len(), rows.len());
    for (budget, row) in policy.budgets.iter().zip(rows) {
        let (name, measure, limit, unit, period, scope, weight) = row;
        let expected = Budget {
            name: name.to_owned(),
            measure,
            limit,
            unit: unit.to_owned(),
            period,
            scope,
            weight,
            range: budget.range,
        };
        assert_eq!(*budget, expected);
        assert!(budget.range.line >= 36);
    }
}

#[test]
fn floors_and_deadlines_arrive() {
    let policy = policy(&every_key());
    let [quorum, any] = policy.floors.as_slice() else {
        panic!("two")
    };
    let floor = |name: &str, federation: Option<&str>, sites, run_on_missing, range| Floor {
        name: name.to_owned(),
        federation: federation.map(str::to_owned),
        sites,
        run_on_missing,
        range,
    };
    assert_eq!(*quorum, floor("quorum", Some("job"), 1, true, quorum.range));
    assert_eq!(*any, floor("any", None, 2, false, any.range));
    let [paper] = policy.deadlines.as_slice() else {
        panic!("one")
    };
    let expected = Deadline {
        name: "paper".to_owned(),
        federation: Some("job".to_owned()),
        finish_by: Timestamp::parse_rfc3339("2026-12-24T11:00:00Z").unwrap(),
        work: 400 * 3_600_000,
        margin: Span::from_mins(12 * 60),
        range: paper.range,
    };
    assert_eq!(*paper, expected);
}

#[test]
fn what_is_left_out_has_the_stated_default() {
    let text = "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: least}\nspec:\n  pools: {a: b}\n  \
                activate: {when: pool.ready_workers < 3}\n";
    let policy = policy(text);
    assert_eq!(policy.on_dispatch, OnDispatch::Keep);
    assert!(policy.score.is_none() && policy.max_changing_sites.is_none());
    assert!(policy.budgets.is_empty() && policy.floors.is_empty() && policy.deadlines.is_empty());
    assert_eq!((policy.min_run, policy.min_rest), (Span::ZERO, Span::ZERO));
}

/// Each of the words `keep`, `release` and the percentages from 1 to 99.
#[test]
fn a_dispatch_takes_words_and_percentages() {
    for (word, expected) in [
        ("keep", OnDispatch::Keep),
        ("release", OnDispatch::Release),
        ("1%", OnDispatch::PowerPercent(1)),
        ("99%", OnDispatch::PowerPercent(99)),
    ] {
        let text = with(
            &every_key(),
            "on_dispatch: 75%",
            &format!("on_dispatch: {word}"),
        );
        assert_eq!(policy(&text).on_dispatch, expected);
    }
}

/// A window stands in the rule alone, so it is read back from what the rule says of itself.
#[test]
fn windows_of_all_three_expectations_arrive() {
    let forecast =
        "window: {expect: forecast, at_least: 45m, start_cost: 10m, leave_before_end: 5m}";
    for (window, expected) in [
        (forecast, Expectation::Forecast),
        (
            "window: {expect: schedule, calendar: night}",
            Expectation::Schedule { calendar: 1 },
        ),
        (
            "window: {expect: guarantee, lasts: 2h}",
            Expectation::Guarantee {
                lasts: Span::from_mins(120),
            },
        ),
    ] {
        let policy = policy(&with(&every_key(), forecast, window));
        let said = format!("{:?}", policy.rules[0].rule);
        assert!(said.contains(&format!("expect: {expected:?}")), "{said}");
    }
}

#[test]
fn a_rules_hash_covers_all_that_its_memory_depends_on() {
    let text = every_key();
    let hash = |text: &str| compile(text).unwrap().policies()[0].rules[0].hash;
    let before = hash(&text);
    for (from, to) in [
        ("for: 5m, samples: 3", "for: 6m, samples: 3"),
        ("for: 5m, samples: 3", "for: 5m, samples: 4"),
        ("carbon >= 120", "carbon >= 121"),
        ("for: 10m, samples: 2", "for: 10m"),
        ("expect: forecast", "expect: guarantee, lasts: 3h"),
        ("at_least: 45m", "at_least: 46m"),
        ("start_cost: 10m", "start_cost: 11m"),
        (", leave_before_end: 5m", ""),
        ("leave_before_end: 5m", "leave_before_end: 0s"),
        ("surplus * 0.9", "surplus * 0.8"),
        ("on_estimated: missing", "on_estimated: use"),
        ("forecast_max_age: 26h", "forecast_max_age: 27h"),
        (", add_back_own_draw: true", ""),
        ("hold: 90s", "hold: 91s"),
        ("0 22 * * MON-FRI", "0 23 * * MON-FRI"),
        ("lasts: 90m", "lasts: 91m"),
        (
            "lasts: 90m, time_zone: UTC",
            "lasts: 90m, time_zone: Europe/London",
        ),
    ] {
        assert_ne!(hash(&with(&text, from, to)), before, "{from} -> {to}");
    }
    let workers = text
        .lines()
        .find(|line| line.contains("workers: \""))
        .unwrap();
    assert_ne!(hash(&with(&text, workers, "")), before);
    // What the rule does not remember by, among it a signal that only the score and a budget read.
    for (from, to) in [
        ("priority: -7", "priority: 8"),
        ("min_run: 30m", "min_run: 31m"),
        ("score: 0 - price", "score: 1 - price"),
        ("source: nordpool", "source: entsoe"),
        ("limit: 60 kW", "limit: 61 kW"),
        ("sites: 2}", "sites: 3}"),
        ("margin: 12h", "margin: 11h"),
        ("on_dispatch: 75%", "on_dispatch: 50%"),
        ("max_changing_sites: 2", "max_changing_sites: 3"),
    ] {
        assert_eq!(hash(&with(&text, from, to)), before, "{from} -> {to}");
    }
}

/// The calendar that a window follows counts, though no expression reads it.
#[test]
fn a_rules_hash_covers_the_calendar_of_its_window() {
    let base = "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: x}\nspec:\n  pools: {a: b}\n  \
                calendars:\n    day: {cron: \"0 8 * * *\", lasts: 8h, time_zone: UTC}\n    \
                night: {cron: \"0 22 * * *\", lasts: 8h, time_zone: UTC}\n  \
                activate: {when: calendar.day || pool.ready_workers < 3}\n  \
                window: {expect: schedule, calendar: night, at_least: 1h}\n";
    let before = policy(base).rules[0].hash;
    for (from, to) in [("0 22", "0 21"), ("calendar: night", "calendar: day")] {
        let after = compile(&with(base, from, to)).unwrap().policies()[0].rules[0].hash;
        assert_ne!(after, before, "{from} -> {to}");
    }
}

/// A signal or calendar is used by whatever reads it: a condition of any rule, `workers`, `score`, a budget, a window.
#[test]
fn only_what_nothing_reads_is_told_of() {
    let head = "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: x}\nspec:\n  pools: {a: b}\n  \
                signals:\n    carbon: {source: s, kind: carbon_intensity, scope: site, max_age: 10m, on_missing: {hold: 1m, then: keep}}\n  \
                calendars:\n    night: {cron: \"0 22 * * *\", lasts: 8h, time_zone: UTC}\n";
    let plain = "  activate: {when: pool.ready_workers < 3}\n";
    let told = |rest: &str| -> Vec<&'static str> {
        let set = compile(&format!("{head}{rest}")).unwrap();
        set.warnings().iter().map(|found| found.code).collect()
    };
    assert_eq!(told(plain), ["SUN-P040", "SUN-P041"]);
    for (rest, left) in [
        ("  workers: \"carbon < 100 ? 2 : 1\"\n", "SUN-P041"),
        ("  score: 0 - carbon\n", "SUN-P041"),
        (
            "  budgets:\n  - {name: b, limit: 5 kgCO2e, per: day, scope: fleet, signal: carbon, assume: 900}\n",
            "SUN-P041",
        ),
        ("  score: \"calendar.night ? 1 : 0\"\n", "SUN-P040"),
        (
            "  window: {expect: schedule, calendar: night}\n",
            "SUN-P040",
        ),
    ] {
        assert_eq!(told(&format!("{plain}{rest}")), [left], "{rest}");
    }
}
