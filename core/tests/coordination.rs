//! Pools that are planned together: what holds for any fleet, any policies and any story.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "group/mod.rs"]
mod group;

use group::{Kind, Move, Play, Setup, any_setup, any_story, minute};
use proptest::prelude::*;
use sunward_core::coordination::{Mode, Note, Why};
use sunward_core::pools::Pin;
use sunward_core::time::Span;
use sunward_policies::policy::Measure;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Bounds, budgets, blast radius, frozen pools, missing data: after every step of any story.
    #[test]
    fn no_story_breaks_what_is_promised((setup, story) in any_setup().prop_flat_map(|setup| {
        let pools = setup.pools.len();
        (Just(setup), any_story(pools, false))
    })) {
        let mut play = Play::new(&setup);
        for step in &story {
            play.take(step);
            play.check();
        }
    }

    /// What was counted is what an oracle adds up piece by piece, over restarts and reloads too.
    #[test]
    fn every_sum_is_exact((setup, story) in any_setup().prop_flat_map(|setup| {
        let pools = setup.pools.len();
        (Just(setup), any_story(pools, true))
    })) {
        let mut play = Play::new(&setup);
        for step in &story {
            play.take(step);
            play.check_sums();
        }
    }

    /// Where intensity stays, no start is cut within its minimum run by the budget that admitted it.
    #[test]
    fn a_start_that_was_admitted_is_paid_for((mut setup, story) in any_setup().prop_flat_map(|setup| {
        let pools = setup.pools.len();
        (Just(setup), any_story(pools, false))
    })) {
        setup.weights_change = false;
        let mut play = Play::new(&setup);
        for step in &story {
            // Freezes and operators' corrections are the stated exceptions.
            if !matches!(step.kind, Kind::Pin(_, Pin::Frozen) | Kind::BudgetSet(_)) {
                play.take(step);
                play.check_admitted();
            }
        }
    }

    #[test]
    fn planning_again_at_the_same_instant_changes_nothing((setup, story) in any_setup().prop_flat_map(|setup| {
        let pools = setup.pools.len();
        (Just(setup), any_story(pools, false))
    })) {
        let mut play = Play::new(&setup);
        for step in &story {
            play.take(step);
            play.check_again();
        }
    }

    #[test]
    fn the_order_of_the_members_does_not_matter(
        (setup, story) in any_setup().prop_flat_map(|setup| {
            let pools = setup.pools.len();
            (Just(setup), any_story(pools, false))
        }),
        turn in any::<prop::sample::Index>(),
    ) {
        let (mut play, mut other) = (Play::new(&setup), Play::new(&setup));
        other.turn = turn.index(setup.pools.len());
        for step in &story {
            play.take(step);
            other.take(step);
            prop_assert_eq!(play.targets(), other.targets());
        }
    }
}

/// Three pools of one worker each at three sites, 1 kW each.
fn three() -> Setup {
    let mut setup = Setup::of(3);
    for pool in &mut setup.pools {
        pool.max = 1;
    }
    setup
}

fn wants(play: &mut Play, minute: i64, pool: usize, workers: u32) {
    play.take(&Move {
        after: minute,
        kind: Kind::Ask(pool, workers),
    });
}

#[test]
fn a_budget_of_workers_goes_to_the_best_score_and_takes_nothing_from_who_runs() {
    let mut setup = three();
    setup.budget(Measure::Workers, 2, false);
    let mut play = Play::new(&setup);
    play.score(0, Some(-300.0));
    play.score(1, None);
    play.score(2, Some(-100.0));
    for pool in 0..3 {
        wants(&mut play, 0, pool, 1);
    }
    // One after the other asked: the first two have it, whoever is better.
    assert_eq!(play.targets(), [1, 1, 0]);
    wants(&mut play, 60, 0, 0);
    assert_eq!(play.targets(), [0, 1, 1]);
    wants(&mut play, 0, 0, 1);
    assert_eq!(play.targets(), [0, 1, 1]);
    assert_eq!(play.why(0), Some(Why::Budget(0)));
    assert_eq!(
        play.words(0),
        "budget p/budget-0 leaves no room for more: the limit is 2 workers"
    );
}

#[test]
fn a_sum_admits_what_it_can_pay_and_ends_at_once_and_begins_anew() {
    let mut setup = three();
    // 2 kWh a day; a start of 1 kW takes 35 minutes at least: 0.583 kWh.
    setup.budget(Measure::Energy, 2_000_000, true);
    let mut play = Play::new(&setup);
    for pool in 0..3 {
        wants(&mut play, 0, pool, 1);
    }
    // Three together take 1.75 kWh.
    assert_eq!(play.targets(), [1, 1, 1]);
    assert_eq!(play.run_to_change(), minute(40));
    assert_eq!(play.targets(), [0, 0, 0]);
    assert_eq!(play.why(1), Some(Why::Exhausted(0)));
    assert!(
        play.words(1)
            .starts_with("budget p/budget-0 is spent: 2 kWh of 2 kWh until 2026-01-02"),
        "{}",
        play.words(1)
    );
    assert_eq!(play.notes, [Note::BudgetExhausted { part: 0 }]);
    assert_eq!(play.run_to_change(), minute(24 * 60));
    assert_eq!(play.targets(), [1, 1, 1]);
    // The last hour of a day: what is left does not matter beyond it, but the next day's does.
    wants(&mut play, 24 * 60 - 10, 0, 1);
    play.check();
}

#[test]
fn what_a_restart_finds_unknown_starts_nothing_until_someone_says() {
    let mut setup = three();
    setup.budget(Measure::Energy, 2_000_000, true);
    setup.blind = true;
    let mut play = Play::new(&setup);
    wants(&mut play, 0, 0, 1);
    assert_eq!(play.targets(), [0, 0, 0]);
    assert_eq!(play.why(0), Some(Why::SpendUnknown(0)));
    play.take(&Move {
        after: 5,
        kind: Kind::BudgetSet(1_000_000),
    });
    assert_eq!(play.targets(), [1, 0, 0]);
    let mut later = Play::new(&setup);
    wants(&mut later, 0, 0, 1);
    assert_eq!(later.run_to_change(), minute(24 * 60));
    assert_eq!(later.targets(), [1, 0, 0]);
}

#[test]
fn a_floor_keeps_the_best_until_another_is_ready_and_then_lets_go() {
    let mut setup = three();
    setup.floor(1, false);
    let mut play = Play::new(&setup);
    play.score(0, Some(1.0));
    play.score(1, Some(2.0));
    wants(&mut play, 0, 0, 1);
    // It was started before anybody wanted anything; now its policy wants it as well.
    assert_eq!(play.targets(), [1, 0, 0]);
    play.run_to(minute(60));
    play.settle_ready();
    assert_eq!(play.targets(), [1, 0, 0]);
    wants(&mut play, 60, 0, 0);
    assert_eq!(play.targets(), [1, 0, 0], "kept");
    assert_eq!(play.why(0), Some(Why::Floor(0)));
    wants(&mut play, 1, 1, 1);
    assert_eq!(
        play.targets(),
        [1, 1, 0],
        "nobody leaves before his successor is there"
    );
    play.run_to(minute(130));
    play.settle_ready();
    assert_eq!(play.targets(), [0, 1, 0]);
}

#[test]
fn a_floor_starts_nothing_on_missing_data_but_where_it_says_so_and_is_blocked() {
    for run in [false, true] {
        let mut setup = three();
        setup.floor(2, run);
        let mut play = Play::new(&setup);
        for pool in 0..3 {
            play.missing(pool, true);
        }
        play.take(&Move {
            after: 1,
            kind: Kind::Wait,
        });
        let running: u32 = play.targets().iter().sum();
        // The very first plan was made before the data was missing.
        play.check();
        assert!(running == 2, "{running} run");
        play.take(&Move {
            after: 60,
            kind: Kind::Pin(0, Pin::Off),
        });
        let blocked = play.accounts.blocked.len();
        assert_eq!((play.targets()[0], blocked), (0, usize::from(!run)));
        if !run {
            assert_eq!(play.accounts.blocked[0].active, 1);
            let note = Note::FloorBlocked {
                floor: 0,
                active: 1,
            };
            assert_eq!(play.notes, [note]);
            assert!(
                play.coordination
                    .describe_note(note, &play.accounts)
                    .contains("p/floor-0 needs 2")
            );
        }
    }
}

#[test]
fn a_deadline_waits_for_the_best_hours_and_runs_all_when_there_is_no_slack() {
    let mut setup = three();
    setup.scored = true;
    // Six worker-hours by noon: two hours of all three.
    setup.deadline(12 * 60, 6 * 3_600_000);
    let mut play = Play::new(&setup);
    // Pool 0: the best hours are from 3 to 5; the others' scores are not known ahead.
    play.ahead.known = vec![(0, 0, 3, 1.0), (0, 3, 5, 9.0), (0, 5, 12, 2.0)];
    play.take(&Move {
        after: 1,
        kind: Kind::Wait,
    });
    // Six worker-hours are all of pool 0's known hours from 3 on, and one hour more at 5.
    assert_eq!(play.targets(), [0, 0, 0]);
    play.run_to(minute(3 * 60));
    assert_eq!(play.targets(), [1, 0, 0]);
    assert_eq!(play.why(0), Some(Why::DeadlineChose(0)));
    // It never gets ready: at the latest start all run that may.
    play.run_to(minute(12 * 60 - 2 * 60 - 4));
    assert_eq!(play.accounts.deadlines[0].mode, Mode::Needs);
    assert_eq!(play.targets(), [1, 1, 1]);
    play.settle_ready();
    play.run_to(minute(12 * 60 + 30));
    assert_eq!(play.accounts.deadlines[0].mode, Mode::Finished);
    assert!(
        play.targets().iter().sum::<u32>() == 0,
        "{:?}",
        play.targets()
    );
    assert!(play.notes.is_empty(), "{:?}", play.notes);
}

#[test]
fn a_deadline_that_passed_is_said_once_and_goes_on() {
    let mut setup = three();
    setup.deadline(60, 60 * 3_600_000);
    let mut play = Play::new(&setup);
    play.run_to(minute(300));
    assert_eq!(play.notes, [Note::DeadlineMissed { deadline: 0 }]);
    assert_eq!(play.targets(), [1, 1, 1]);
    assert!(
        play.words(0).contains(
            "deadline p/deadline-0 needs all its pools: 0 worker-hours of 60 worker-hours"
        ),
        "{}",
        play.words(0)
    );
}

#[test]
fn one_site_changes_at_a_time() {
    let mut setup = three();
    setup.blast = Some(1);
    let mut play = Play::new(&setup);
    play.score(2, Some(5.0));
    play.ask_together(&[(0, 1), (1, 1), (2, 1)]);
    assert_eq!(play.targets(), [0, 0, 1], "the best first");
    assert!(matches!(
        play.why(0),
        Some(Why::BlastRadius { sites: 1, .. })
    ));
    play.run_to(minute(5));
    play.settle_ready();
    assert_eq!(play.targets(), [1, 0, 1]);
    // The next does not get ready; after twice its time nobody waits for it.
    assert_eq!(play.run_to_change(), minute(15));
    assert_eq!(play.targets(), [1, 1, 1]);
}

#[test]
fn another_limit_keeps_the_account_and_another_period_does_not() {
    let mut setup = three();
    setup.budget(Measure::Energy, 2_000_000, true);
    let mut play = Play::new(&setup);
    wants(&mut play, 0, 0, 1);
    play.take(&Move {
        after: 30,
        kind: Kind::Reload,
    });
    let spent = play.accounts.budgets[0].spend.spent;
    assert_eq!(spent, 500_000);
    let mut smaller = setup.clone();
    smaller.budgets[0].limit = 400_000;
    play.reload(&smaller);
    assert_eq!(play.accounts.budgets[0].spend.spent, spent);
    assert_eq!(play.targets(), [0, 0, 0]);
    // Taken out and put back: it is still spent.
    let mut none = setup.clone();
    none.budgets.clear();
    play.reload(&none);
    assert_eq!(play.targets(), [1, 0, 0]);
    play.take(&Move {
        after: 30,
        kind: Kind::Wait,
    });
    play.reload(&smaller);
    assert_eq!(play.accounts.budgets[0].spend.spent, spent);
    let mut hourly = setup.clone();
    hourly.hourly = true;
    play.reload(&hourly);
    assert_eq!(play.accounts.budgets[0].spend.spent, 0);
    assert_eq!(play.since_start(0), Span::from_mins(60));
}
