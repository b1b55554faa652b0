//! Samples, windows, leaving ahead and worker counts, by example and by property. Times are in minutes.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

mod properties;
mod world;

use world::*;

#[test]
fn samples_are_counted_in_a_row() {
    let world = World {
        actual: readings(&[
            (0, 90.0),
            (5, 110.0),
            (10, 90.0),
            (15, 80.0),
            (20, 85.0),
            (25, 130.0),
            (30, 119.0),
            (35, 130.0),
            (40, 130.0),
        ]),
        ..World::default()
    };
    let rule = Threshold::new(parts(side("a < 100", 0, 3), Some(side("a >= 120", 0, 2))));
    world.check(
        &rule,
        false,
        "0: release 1 of 3
         5: release resting
         10: release 1 of 3
         15: release 2 of 3
         20: activate running
         25: activate 1 of 2
         30: activate running
         35: activate 1 of 2
         40: release resting",
    );
}

#[test]
fn a_count_and_a_time_must_both_be_complete() {
    let world = World {
        actual: readings(&[(0, 90.0), (2, 90.0), (4, 90.0), (30, 90.0)]),
        ..World::default()
    };
    world.check(
        &Threshold::new(parts(side("a < 100", 10, 2), None)),
        false,
        "0: release 1 of 2\n2: release activates at 10\n10: activate running",
    );
    world.check(
        &Threshold::new(parts(side("a < 100", 10, 4), None)),
        false,
        "0: release 1 of 4\n2: release 2 of 4\n4: release 3 of 4\n30: activate running",
    );
}

#[test]
fn readings_in_the_dark_are_not_counted() {
    let rows = [
        (0, [90.0, 1.0]),
        (5, [90.0, GONE]),
        (6, [90.0, GONE]),
        (7, [90.0, 1.0]),
        (9, [90.0, 1.0]),
    ];
    let world = World {
        actual: rows.to_vec(),
        ..World::default()
    };
    world.check(
        &Threshold::new(parts(side("a < 100 && b > 0", 0, 3), None)),
        false,
        "0: release 1 of 3
         5: release signal 1 missing until 15
         7: release 2 of 3
         9: activate running",
    );
    // Here it is a calendar that ends the dark: the reading that came in it is not made up for.
    let rows = [
        (0, [90.0, 1.0]),
        (5, [90.0, GONE]),
        (9, [90.0, GONE]),
        (11, [90.0, GONE]),
    ];
    let world = World {
        actual: rows.to_vec(),
        nights: vec![(7, 60)],
        ..World::default()
    };
    let when = "a < 100 && (b > 0 || calendar.night)";
    world.check(
        &Threshold::new(parts(side(when, 0, 3), None)),
        false,
        "0: release 1 of 3
         5: release signal 1 missing until 15
         7: release 1 of 3
         9: release 2 of 3
         11: activate running
         60: hold signal 1 missing until 70
         70: release signal 1 missing: released",
    );
}

#[test]
fn what_a_calendar_makes_true_counts_the_reading_in_force() {
    let world = World {
        actual: readings(&[(0, 90.0), (12, 90.0)]),
        nights: vec![(10, 60)],
        ..World::default()
    };
    let when = "a < 100 && calendar.night";
    let rule = |samples| Threshold::new(parts(side(when, 0, samples), None));
    world.check(
        &rule(1),
        false,
        "0: release resting\n10: activate running\n60: release resting",
    );
    world.check(
        &rule(2),
        false,
        "0: release resting\n10: release 1 of 2\n12: activate running\n60: release resting",
    );
}

/// The carbon intensity is good now; the forecast says until when.
fn forecast(segments: &[(i64, f64)]) -> World {
    World {
        actual: readings(&[(0, 90.0)]),
        forecasts: vec![(0, readings(segments))],
        ready_after: 3,
        ..World::default()
    }
}

fn by_forecast(at_least: i64, leave: Option<i64>) -> Threshold {
    let release = Some(side("a >= 120", 5, 0));
    Threshold::new(ThresholdParts {
        window: Some(window(Expectation::Forecast, at_least, leave)),
        ..parts(side("a < 100", 0, 0), release)
    })
}

#[test]
fn a_window_is_started_only_if_it_is_forecast_to_be_long_enough() {
    // 3 minutes to be ready, 2 of start cost and 25 of training: 30.
    let long = forecast(&[(0, 90.0), (10, 110.0), (30, 130.0), (60, 90.0)]);
    long.check(&by_forecast(25, None), false, "0: activate running");
    long.check(
        &by_forecast(26, None),
        false,
        "0: release too short: ends 30\n30: release too short: ends 60\n60: release too short: nothing known",
    );
    let mut short = forecast(&[(0, 90.0), (20, 130.0), (25, 90.0), (80, 90.0), (90, 130.0)]);
    short.check(
        &by_forecast(25, None),
        false,
        "0: release too short: ends 20\n20: activate running",
    );
    short
        .forecasts
        .push((5, readings(&[(0, 90.0), (34, 130.0)])));
    short
        .forecasts
        .push((7, readings(&[(0, 90.0), (37, 130.0)])));
    short.check(
        &by_forecast(25, None),
        false,
        "0: release too short: ends 20\n5: release too short: ends 34\n7: activate running",
    );
}

#[test]
fn where_the_forecast_ends_so_does_what_is_known() {
    forecast(&[]).check(
        &by_forecast(0, None),
        false,
        "0: release too short: nothing known",
    );
    forecast(&[(0, 90.0)]).check(
        &by_forecast(0, None),
        false,
        "0: release too short: nothing known",
    );
    let until = |end| forecast(&[(0, 90.0), (15, 95.0), (end, GONE)]);
    until(30).check(&by_forecast(25, Some(20)), false, "0: activate running");
    until(29).check(
        &by_forecast(25, Some(20)),
        false,
        "0: release too short: ends 29\n29: release too short: nothing known",
    );
}

#[test]
fn it_leaves_ahead_of_a_known_end_and_does_not_come_back_before() {
    let world = forecast(&[
        (0, 90.0),
        (40, 130.0),
        (45, 90.0),
        (90, 130.0),
        (95, 90.0),
        (500, 90.0),
    ]);
    world.check(
        &by_forecast(25, Some(10)),
        false,
        "0: activate running
         30: release left ahead of 40
         40: activate running
         80: release left ahead of 90
         90: activate running",
    );
    // The end moves out of reach: by too little at 32, far enough at 35.
    let mut moved = world.clone();
    moved
        .forecasts
        .push((32, readings(&[(0, 90.0), (60, 130.0)])));
    moved
        .forecasts
        .push((35, readings(&[(0, 90.0), (200, 130.0)])));
    moved.check(
        &by_forecast(25, Some(10)),
        false,
        "0: activate running\n30: release left ahead of 40\n35: activate running\n190: release left ahead of 200\n200: release too short: nothing known",
    );
    // The forecast is lost: that is no reason to leave, and none to come back.
    let mut lost = world.clone();
    lost.forecasts.push((31, Vec::new()));
    lost.check(
        &by_forecast(25, Some(10)),
        false,
        "0: activate running\n30: release left ahead of 40\n40: release too short: nothing known",
    );
    let mut lost = world;
    lost.forecasts
        .push((29, readings(&[(0, 90.0), (35, GONE)])));
    lost.check(&by_forecast(25, Some(10)), false, "0: activate running");
}

#[test]
fn a_forecast_that_never_ends_is_looked_at_in_bounded_steps() {
    let segments: Vec<(i64, f64)> = (0..4_000).map(|at| (at, 90.0)).collect();
    let world = forecast(&segments);
    let too_long = by_forecast(3_000, None);
    let judged = world.facts(minute(0), |facts| {
        too_long.judge(facts, &mut Memory::new(false))
    });
    let reason = Reason::WindowTooShort {
        ends: Some(minute(1_024)),
        needed: minute(3_005),
    };
    assert_eq!(judged.verdict.unwrap().reason, reason);
    assert_eq!(judged.next_change_at, Some(minute(1)));
    world.check(&by_forecast(1_000, None), false, "0: activate running");
}

#[test]
fn the_window_of_a_schedule_is_that_of_its_calendar() {
    let world = World {
        actual: readings(&[(0, 90.0), (35, 95.0)]),
        nights: vec![(10, 60), (100, 120), (200, 260)],
        ready_after: 3,
        ..World::default()
    };
    let schedule = Expectation::Schedule { calendar: 0 };
    let rule = |leave| {
        Threshold::new(ThresholdParts {
            window: Some(window(schedule, 25, leave)),
            ..parts(side("a < 100", 0, 0), None)
        })
    };
    world.check(
        &rule(None),
        false,
        "0: release too short: nothing known\n10: activate running",
    );
    world.check(
        &rule(Some(5)),
        false,
        "0: release too short: nothing known
         10: activate running
         55: release left ahead of 60
         60: release too short: nothing known
         100: release too short: ends 120
         120: release too short: nothing known
         200: activate running
         255: release left ahead of 260
         260: release too short: nothing known",
    );
}

#[test]
fn a_guarantee_runs_from_the_start_of_its_window() {
    let world = World {
        actual: readings(&[
            (0, 110.0),
            (10, 90.0),
            (14, GONE),
            (16, 90.0),
            (100, 130.0),
            (110, 90.0),
        ]),
        ready_after: 3,
        ..World::default()
    };
    let guarantee = Expectation::Guarantee {
        lasts: Span::from_mins(60),
    };
    let rule = |held_for, at_least| {
        let sides = parts(side("a < 100", held_for, 0), Some(side("a >= 120", 0, 0)));
        Threshold::new(ThresholdParts {
            window: Some(window(guarantee, at_least, Some(5))),
            ..sides
        })
    };
    world.check(
        &rule(12, 40),
        false,
        "0: release resting
         10: release activates at 22
         14: release signal 0 missing until 24
         16: release activates at 22
         22: activate running
         65: release left ahead of 70
         70: release activates at 82
         82: release too short: ends 70
         100: release resting
         110: release activates at 122
         122: activate running
         165: release left ahead of 170
         170: release activates at 182
         182: release too short: ends 170",
    );
    // The hold has used up what the window had to spare.
    world.check(
        &rule(12, 44),
        false,
        "0: release resting
         10: release activates at 22
         14: release signal 0 missing until 24
         16: release activates at 22
         22: release too short: ends 70
         100: release resting
         110: release activates at 122
         122: release too short: ends 170",
    );
}

#[test]
fn workers_follow_their_expression() {
    let rows = [
        (0, [90.0, 7.9]),
        (5, [90.0, -3.0]),
        (10, [90.0, 99.0]),
        (15, [90.0, 4.0]),
    ];
    let world = World {
        actual: rows.to_vec(),
        ..World::default()
    };
    let rule = Threshold::new(ThresholdParts {
        workers: Some(workers("b / pool.training_kw")),
        ..parts(side("a < 100", 0, 0), None)
    });
    world.check(&rule, false, "0: activate 3 running\n5: activate 0 running\n10: activate 8 running\n15: activate 2 running");
    for (value, whole) in [
        (f64::NAN, 0),
        (-1.5, 0),
        (0.999, 0),
        (2.0, 2),
        (1e300, 8),
        (f64::NEG_INFINITY, 0),
    ] {
        assert_eq!(whole_workers(value, 8), whole, "{value}");
    }
}

#[test]
fn an_unknown_count_of_workers_holds_and_then_acts() {
    let rows = [
        (0, [90.0, 8.0]),
        (5, [90.0, GONE]),
        (30, [90.0, 6.0]),
        (35, [130.0, GONE]),
        (38, [90.0, GONE]),
        (60, [90.0, 2.0]),
    ];
    let world = World {
        actual: rows.to_vec(),
        ..World::default()
    };
    let rule = |then| {
        let release = OnMissing {
            hold: Span::from_mins(10),
            then: Then::Release,
        };
        let keep = OnMissing {
            hold: Span::from_mins(10),
            then,
        };
        let sides = parts(side("a < 100", 0, 0), Some(side("a >= 120", 5, 0)));
        Threshold::new(ThresholdParts {
            workers: Some(workers("b / pool.training_kw")),
            on_missing: Box::new([release, keep]),
            ..sides
        })
    };
    world.check(
        &rule(Then::Release),
        false,
        "0: activate 4 running
         5: hold signal 1 missing until 15
         15: release signal 1 missing: released
         30: activate 3 running
         35: hold signal 1 missing until 45
         45: release signal 1 missing: released
         60: activate 1 running",
    );
    world.check(
        &rule(Then::Keep),
        false,
        "0: activate 4 running
         5: hold signal 1 missing until 15
         15: hold signal 1 missing: kept
         30: activate 3 running
         35: hold signal 1 missing until 45
         45: hold signal 1 missing: kept
         60: activate 1 running",
    );
    let limit = Threshold::new(ThresholdParts {
        workers: Some(workers("site.power_limit_kw / pool.training_kw")),
        ..parts(side("a < 100", 0, 0), None)
    });
    world.check(
        &limit,
        true,
        "0: release undecidable\n35: release resting\n38: release undecidable",
    );
}
