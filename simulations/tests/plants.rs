//! Plants bugs in the core, one by one, and demands that a checker catches each.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sunward_core::engine::Engine;
use sunward_core::plant::Plant;
use sunward_core::protocol::commit::Commit;
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::time::Span;
use sunward_simulations::fault::Fault;
use sunward_simulations::report::run_seed;
use sunward_simulations::scenario::Scenario;
use sunward_simulations::world::{Core, Options};

use common::scenario;

/// Each bug is caught within this time.
const CAUGHT_WITHIN: Duration = Duration::from_secs(60);
/// Seeds that are tried.
const SEEDS: u64 = 40;

/// The production core with one bug.
fn planted(plant: Plant) -> Core {
    Core {
        engine: Arc::new(move |state| Engine::restore(state).planted(Some(plant))),
        gate: Arc::new(move |term| LeaderGate::new(term).planted(Some(plant))),
        commit: Arc::new(move || Commit::new().planted(Some(plant))),
    }
}

/// The rules that must speak up, any of them first.
fn rules(plant: Plant) -> &'static [&'static str] {
    match plant {
        Plant::DeadLoop | Plant::StuckDelete => &["settles: what was decided is carried out"],
        Plant::BlockingStart
        | Plant::ZeroIsDirty
        | Plant::HoldThatResets
        | Plant::ForgottenRun
        | Plant::EmptyStart
        | Plant::ClockGrows => &["policy: "],
        Plant::LastValueForEver => &["policy: ", "10 absence"],
        Plant::DoubleDrain => &["events: joining, ready, draining, drained"],
        Plant::LostStop => &[
            "events: drained before replicas are written",
            "events: joining",
        ],
        Plant::EmptyIsZero | Plant::StartValueZero => &["10 absence of data"],
        Plant::TwoLeaders => &["5 only the leader acts", "5 one writer per term"],
        Plant::ReplyBeforeFsync => &["4 no acknowledgement before"],
        Plant::SequenceGap => &["events: sequence without gap"],
        Plant::StaleCacheScale | Plant::RetryCounts => &["generation: a retry keeps it"],
        Plant::UnclaimedWrite => &["5 a pool is written only once it is claimed"],
        Plant::OverrideThatNeverEnds => &["override: it ends when it was said to"],
        // Who was there when the window began, and who came back later, do not agree.
        Plant::MissedCalendarMinute => &[
            "calendar: inside its windows a pool runs",
            "3 one journal, one digest",
        ],
        Plant::BudgetThatForgets => &["budget: what was spent is counted"],
    }
}

/// Plants bugs into the runs of a scenario, and returns what was said about those that were missed.
fn missed(scenario: &Scenario, plants: &[Plant]) -> Vec<String> {
    let mut missed = Vec::new();
    for plant in plants.iter().copied() {
        let began = Instant::now();
        let caught = (1..=SEEDS).find_map(|seed| {
            let options = Options {
                seed,
                core: planted(plant),
                ..Options::default()
            };
            let outcome = run_seed(scenario, &options);
            let violations = outcome.map_or_else(
                |words| vec![("2 step is total", words)],
                |outcome| {
                    outcome
                        .violations
                        .into_iter()
                        .map(|v| (v.rule, v.detail))
                        .collect()
                },
            );
            let first = violations.into_iter().next()?;
            Some((seed, first))
        });
        let took = began.elapsed();
        let speaks = |rule: &str| rules(plant).iter().any(|known| rule.starts_with(known));
        let said = match &caught {
            Some((seed, (rule, detail))) => {
                let unexpected = if speaks(rule) { "" } else { " UNEXPECTED" };
                format!("{plant:?}: seed {seed} in {took:.1?}{unexpected}: {rule}: {detail}")
            }
            None => format!("{plant:?}: not caught by {SEEDS} seeds in {took:.1?}"),
        };
        common::say(&said);
        // A debug build asserts some of the core's invariants itself.
        let right = caught.is_some_and(|(_, (rule, _))| speaks(rule) || rule == "2 step is total");
        if !right || took > CAUGHT_WITHIN {
            missed.push(said);
        }
    }
    missed
}

#[test]
fn every_planted_bug_is_caught() {
    let missed = missed(&scenario("storm"), &Plant::ALL);
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Those that need operators, calendars and budgets to show.
#[test]
fn every_planted_bug_of_the_policy_language_is_caught() {
    let mut scenario = scenario("policies");
    // The evening in which a night begins, with a daemon that is often away for long.
    scenario.faults_end = scenario.start + Span::from_mins(5 * 60);
    scenario.end = scenario.start + Span::from_mins(6 * 60);
    for (fault, rate) in &mut scenario.faults {
        if *fault == Fault::LeaderAway {
            *rate = 0.25;
        }
    }
    let mut plants = Plant::OPERATED.to_vec();
    plants.push(Plant::BudgetThatForgets);
    let missed = missed(&scenario, &plants);
    assert!(missed.is_empty(), "{missed:#?}");
}
