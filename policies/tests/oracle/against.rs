//! The comparisons.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::Arc;

use cel::Env;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use sunward_policies::expr::{Condition, EXPRESSION_MAX, Expected, Finding, Quantity};
use sunward_policies::facts::CalendarFact;
use sunward_policies::{PoolFacts, Reading, Span, Unit};

use super::reference::{World, number, truth};
use super::tree::{
    CALENDARS, SIGNALS, Truth, any_blanks, any_nearly_right, any_number, any_truth, joined,
};
use super::{SCOPE, oracle};

/// Cases of a property, in `tests/run` and in `tests/run --long`.
fn runner(short: u32, long: u32) -> TestRunner {
    let is_long = std::env::var_os("SUNWARD_LONG").is_some_and(|value| value == "1");
    TestRunner::new(ProptestConfig {
        cases: if is_long { long } else { short },
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

fn compile(text: &str) -> Result<Condition, Vec<Finding>> {
    Condition::compile(text, SCOPE)
}

/// Accepted, or the case fails; a text too long for an expression is no case.
fn compiled(text: &str) -> Result<Condition, TestCaseError> {
    if text.len() > EXPRESSION_MAX {
        return Err(TestCaseError::reject("too long"));
    }
    compile(text).map_err(|findings| TestCaseError::fail(format!("{text}: {findings:?}")))
}

fn any_value() -> BoxedStrategy<f64> {
    let marked = vec![-5.0, -0.5, -0.0, 0.0, 0.25, 1.0, 2.0, 3.0, 10.0, 100.0];
    prop_oneof![
        6 => prop::sample::select(marked),
        1 => -200.0..200.0_f64,
        1 => prop::sample::select(vec![1e300, -1e300, 1e-300]),
    ]
    .boxed()
}

/// A world in which each signal is one of `readings`, and `calendars` calendars are known; pools are like real ones.
fn any_world(
    readings: BoxedStrategy<Reading>,
    calendars: RangeInclusive<usize>,
) -> impl Strategy<Value = World> {
    let readings = prop::collection::vec(readings, SIGNALS.len());
    let calendar = any::<bool>().prop_map(|open| CalendarFact { open, until: None });
    let calendars = prop::collection::vec(calendar, calendars);
    let workers = (0..6_u32, 0..6_u32, 0..3_u32, 0..6_u32);
    let limit = prop::option::of(prop::sample::select(vec![0.0, 10.0, 100.0]));
    let all = (readings, calendars, workers, 0.5..4.0_f64, limit);
    all.prop_map(|(readings, calendars, workers, training_kw, limit)| {
        let (wanted, ready, min, max) = workers;
        let pool = PoolFacts {
            wanted,
            ready,
            min,
            max,
            training_kw,
            ready_after: Span::ZERO,
            site_power_limit_kw: limit,
        };
        World {
            readings,
            calendars,
            pool,
        }
    })
}

/// A world in which everything is known.
fn any_known_world() -> impl Strategy<Value = World> {
    any_world(fresh(), CALENDARS.len()..=CALENDARS.len())
}

/// A world in which anything may be missing.
fn any_dim_world() -> impl Strategy<Value = World> {
    any_world(any_reading(), 0..=CALENDARS.len())
}

fn fresh() -> BoxedStrategy<Reading> {
    any_value()
        .prop_map(|value| Reading::Fresh { value })
        .boxed()
}

fn any_reading() -> BoxedStrategy<Reading> {
    let odd = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![
        6 => fresh(),
        2 => Just(Reading::Missing),
        1 => any_value().prop_map(|value| Reading::Stale { value }),
        1 => prop::sample::select(odd).prop_map(|value| Reading::Fresh { value }),
    ]
    .boxed()
}

/// How many of the cases had a known answer.
#[derive(Default)]
struct Share {
    known: Cell<u32>,
    all: Cell<u32>,
}

impl Share {
    fn count(&self, answer: Option<bool>) {
        self.all.set(self.all.get() + 1);
        self.known
            .set(self.known.get() + u32::from(answer.is_some()));
    }

    fn known(&self) -> f64 {
        f64::from(self.known.get()) / f64::from(self.all.get().max(1))
    }
}

/// Runs `tree` in `world` through us and both oracles.
fn compare(
    env: &Arc<Env>,
    tree: &Truth,
    world: &World,
    blanks: &[&'static str],
) -> Result<Option<bool>, TestCaseError> {
    let text = tree.text(blanks);
    let ours = compiled(&text)?.evaluate(&world.facts());
    prop_assert_eq!(ours, truth(tree, world), "{} in {:?}", text, world);
    let program = oracle::compile(&text)
        .map_err(|errors| TestCaseError::fail(format!("cel refuses {text}: {errors}")))?;
    if ours.is_some() {
        let theirs = oracle::evaluate(&program, &oracle::context(env, world)).ok();
        prop_assert_eq!(
            ours,
            theirs,
            "cel says otherwise of {} in {:?}",
            text,
            world
        );
    }
    Ok(ours)
}

#[test]
fn what_is_known_is_what_cel_says() {
    oracle::on_a_large_stack(|| {
        let env = Arc::new(Env::stdlib());
        let share = Share::default();
        let cases = (any_truth(), any_known_world(), any_blanks());
        let run = runner(300, 40_000).run(&cases, |(tree, world, blanks)| {
            share.count(compare(&env, &tree, &world, &blanks)?);
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
        assert!(share.known() > 0.5, "{} have an answer", share.known());
    });
}

#[test]
fn what_is_missing_is_unknown_and_nothing_else_is() {
    oracle::on_a_large_stack(|| {
        let share = Share::default();
        let cases = (any_truth(), any_dim_world());
        let run = runner(3_000, 200_000).run(&cases, |(tree, world)| {
            let text = tree.text(&[" "]);
            let ours = compiled(&text)?.evaluate(&world.facts());
            share.count(ours);
            prop_assert_eq!(ours, truth(&tree, &world), "{} in {:?}", text, world);
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
        let known = share.known();
        assert!((0.2..0.8).contains(&known), "{known} have an answer");
    });
}

#[test]
fn what_cel_says_of_a_part_that_decides_holds_beside_what_is_missing() {
    oracle::on_a_large_stack(|| {
        let env = Arc::new(Env::stdlib());
        let cases = (any_truth(), any_dim_world(), any_blanks());
        let run = runner(200, 20_000).run(&cases, |(tree, world, blanks)| {
            compare(&env, &tree, &world, &blanks).map(|_| ())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
    });
}

/// Numbers, such as `workers` and `score`.
#[test]
fn a_number_is_what_cel_says() {
    oracle::on_a_large_stack(|| {
        let env = Arc::new(Env::stdlib());
        let cases = (any_number(), any_dim_world(), any_blanks());
        let run = runner(250, 20_000).run(&cases, |((tree, unit), world, blanks)| {
            let text = tree.text(&blanks);
            let expected = if unit == Unit::Worker {
                Expected::Workers
            } else {
                Expected::Any
            };
            let quantity = Quantity::compile(&text, SCOPE, expected)
                .map_err(|found| TestCaseError::fail(format!("{text}: {found:?}")))?;
            let ours = quantity.evaluate(&world.facts());
            prop_assert_eq!(ours, number(&tree, &world), "{} in {:?}", text, world);
            if ours.is_some() {
                let program = oracle::compile(&text).map_err(TestCaseError::fail)?;
                let theirs = oracle::number(&program, &oracle::context(&env, &world)).ok();
                prop_assert_eq!(
                    ours,
                    theirs,
                    "cel says otherwise of {} in {:?}",
                    text,
                    world
                );
            }
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
    });
}

/// Learning a value never changes an answer that was known without it.
#[test]
fn learning_a_value_changes_no_known_answer() {
    oracle::on_a_large_stack(|| {
        let which = 0..SIGNALS.len();
        let cases = (any_truth(), any_dim_world(), which, any_value());
        let run = runner(1_500, 100_000).run(&cases, |(tree, mut world, which, value)| {
            let text = tree.text(&[" "]);
            let condition = compiled(&text)?;
            world.readings[which] = Reading::Missing;
            let before = condition.evaluate(&world.facts());
            world.readings[which] = Reading::Fresh { value };
            if before.is_some() {
                prop_assert_eq!(condition.evaluate(&world.facts()), before, "{}", text);
            }
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
    });
}

/// The language is a subset: cel compiles whatever is accepted here, and means the same.
#[test]
fn whatever_is_accepted_is_cel() {
    oracle::on_a_large_stack(|| {
        let env = Arc::new(Env::stdlib());
        let accepted = Cell::new(0);
        let cases = (any_nearly_right(), any_blanks(), any_known_world());
        let run = runner(1_500, 100_000).run(&cases, |(tokens, blanks, world)| {
            let text = joined(&tokens, &blanks);
            let Ok(condition) = compile(&text) else {
                return Ok(());
            };
            accepted.set(accepted.get() + 1);
            let program = oracle::compile(&text)
                .map_err(|errors| TestCaseError::fail(format!("cel refuses {text}: {errors}")))?;
            if let Some(ours) = condition.evaluate(&world.facts()) {
                let theirs = oracle::evaluate(&program, &oracle::context(&env, &world));
                prop_assert_eq!(Ok(ours), theirs, "{} in {:?}", text, world);
            }
            Ok(())
        });
        run.unwrap_or_else(|failed| panic!("{failed}"));
        assert!(accepted.get() > 100, "{} were accepted", accepted.get());
    });
}

#[test]
fn whole_numbers_are_widened_and_nothing_else_is() {
    for (ours, theirs) in [
        ("1", "1.0"),
        ("a1 + 20*3", "a1 + 20.0*3.0"),
        ("1.5+.5+2e3-1E-7+4", "1.5+.5+2e3-1E-7+4.0"),
        ("pool.a_2<007", "pool.a_2<007.0"),
        ("1e", "1.0e"),
        ("", ""),
    ] {
        assert_eq!(oracle::widened(ours), theirs);
    }
}
