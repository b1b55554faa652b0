//! What judging costs, from one expression to ten thousand pools: `cargo bench -p sunward-policies --bench judge`. Keeps its
//! figures for `tests/figures`.
#![allow(
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods
)]

#[path = "../../tests/figures.rs"]
mod figures;

use std::hint::black_box;
use std::time::Instant;

use cel::{Context, Program};
use figures::{Figure, Goal};

use sunward_policies::expr::{Condition, Scope};
use sunward_policies::{
    Candidate, Facts, Intent, Memory, Policy, PolicySet, PoolFacts, Reading, SourceFile, Timestamp,
    Unit, arbitrate,
};

/// Calls per sample: few, so that a sample is shorter than a scheduler's slice. The figure is the median sample.
const CALLS: u32 = 1_000;
const SAMPLES: usize = 5_001;

fn median_ns(mut call: impl FnMut()) -> f64 {
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CALLS {
                call();
            }
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[SAMPLES / 2]
}

fn report(name: &str, value: f64, unit: &str, goal: Goal, against: Option<f64>) {
    let command = "cargo bench -p sunward-policies --bench judge";
    Figure {
        name,
        value,
        unit,
        goal,
        against,
        command,
    }
    .report();
}

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const POOL: PoolFacts = PoolFacts {
    wanted: 3,
    ready: 3,
    min: 0,
    max: 3,
    training_kw: 2.0,
    ready_after: sunward_policies::Span::ZERO,
    site_power_limit_kw: None,
};

fn main() {
    // `cargo test --benches` passes flags; a plain run measures.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    the_shipped_policy();
    six_terms_beside_cel();
    ten_thousand_pools();
}

fn set(text: &str) -> PolicySet {
    let file = SourceFile {
        path: "bench.yaml".to_owned(),
        text: text.to_owned(),
    };
    PolicySet::compile(&[file]).unwrap()
}

fn the_shipped_policy() {
    let readings = [
        Reading::Fresh { value: 90.0 },
        Reading::Fresh { value: 12.0 },
    ];
    let facts = Facts::present(NOW, &readings, POOL);
    let signals = [
        ("carbon", Unit::GramPerKilowattHour),
        ("surplus", Unit::Kilowatt),
    ];
    // The bare form: the same two terms, compiled by hand.
    let bare = median_ns(|| {
        let facts = black_box(&facts);
        let (a, b) = (facts.signal(0), facts.signal(1));
        black_box(!a.is_nan() && !b.is_nan() && a < 100.0 && b > 5.0);
    });
    let condition = Condition::compile(
        "carbon < 100 && surplus > 5",
        Scope {
            signals: &signals,
            calendars: &[],
        },
    )
    .unwrap();
    let two_terms = median_ns(|| {
        black_box(black_box(&condition).evaluate(black_box(&facts)));
    });
    let goal = Goal::AtMost;
    report(
        "policies/evaluate two terms",
        two_terms,
        "ns",
        goal(30.0),
        Some(bare),
    );

    let set = set(include_str!("../library/curtailment.yaml"));
    let rule = &set.policies()[0].rules[0].rule;
    let mut memory = Memory::new(true);
    let judged = median_ns(|| {
        black_box(rule.judge(black_box(&facts), black_box(&mut memory)));
    });
    report(
        "policies/judge the shipped policy",
        judged,
        "ns",
        goal(80.0),
        Some(bare),
    );
}

/// Five comparisons with a number, and one of what two signals give; all hold, so that all are evaluated.
const SIX_TERMS: &str = "carbon < 100.0 && price <= 40.0 && share >= 0.3 && rank < 60.0 && curtailed >= 1.0 && surplus - curtailed > 5.0";
const SIX_SIGNALS: [(&str, Unit, f64); 6] = [
    ("carbon", Unit::GramPerKilowattHour, 90.0),
    ("curtailed", Unit::Kilowatt, 3.0),
    ("price", Unit::MoneyPerMegawattHour, -5.0),
    ("rank", Unit::Index, 20.0),
    ("share", Unit::Share, 0.6),
    ("surplus", Unit::Kilowatt, 12.0),
];

/// The same text, the same values, in one run; the `cel` crate with a program and a context that are made once.
fn six_terms_beside_cel() {
    let signals = SIX_SIGNALS.map(|(name, unit, _)| (name, unit));
    let readings = SIX_SIGNALS.map(|(_, _, value)| Reading::Fresh { value });
    let facts = Facts::present(NOW, &readings, POOL);
    let scope = Scope {
        signals: &signals,
        calendars: &[],
    };
    let condition = Condition::compile(SIX_TERMS, scope).unwrap();
    assert_eq!(condition.evaluate(&facts), Some(true));
    let program = Program::compile(SIX_TERMS).unwrap();
    let mut context = Context::default();
    for (name, _, value) in SIX_SIGNALS {
        context.add_variable_from_value(name, value);
    }
    assert_eq!(program.execute(&context), Ok(true.into()));

    let ours = median_ns(|| {
        black_box(black_box(&condition).evaluate(black_box(&facts)));
    });
    let theirs = median_ns(|| {
        let _ = black_box(black_box(&program).execute(black_box(&context)));
    });
    report(
        "policies/evaluate six terms",
        ours,
        "ns",
        Goal::None,
        Some(theirs),
    );
    report(
        "policies/evaluate six terms: times as fast as cel",
        theirs / ours,
        "times",
        Goal::AtLeast(20.0),
        None,
    );
}

const POOLS: usize = 10_000;
/// Rules with one condition each, as long as real ones.
const THREE_RULES: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: three}
spec:
  pools: {energy: surplus}
  signals:
    carbon: {source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, on_missing: {hold: 10m, then: release}}
    price: {source: exchange, kind: energy_price, basis: day_ahead, scope: zone, scheme: eic, max_age: 2h, on_missing: {hold: 10m, then: release}}
    surplus: {source: meter, kind: surplus_power, scope: site, max_age: 2m, on_missing: {hold: 5m, then: release}}
  rules:
    - {kind: threshold, name: clean, activate: {when: 'carbon < 100 && price < 60 && pool.wanted_workers <= pool.max_workers', for: 5m}}
    - {kind: threshold, name: sunny, activate: {when: surplus / pool.training_kw >= pool.max_workers && carbon < 300, for: 1m}}
    - {kind: threshold, name: cheap, activate: {when: price < 0 || price < 20 && carbon < 150}}
";

/// Readings of one pool at one instant: unlike those of its neighbours, and one in eight missing.
fn readings(pool: usize, round: usize) -> [Reading; 3] {
    let mixed = (pool * 7_919 + round * 104_729) % 1_000;
    let fresh = |value| Reading::Fresh { value };
    let carbon = if mixed.is_multiple_of(8) {
        Reading::Missing
    } else {
        fresh(mixed as f64 / 2.0)
    };
    [
        carbon,
        fresh(mixed as f64 / 10.0 - 20.0),
        fresh((mixed % 20) as f64),
    ]
}

/// What one instant costs at which every pool is judged anew: three rules each, and which of them wins.
fn ten_thousand_pools() {
    const ROUNDS: usize = 51;
    let set = set(THREE_RULES);
    let policy = &set.policies()[0];
    let mut memories: Vec<[Memory; 3]> = vec![[(); 3].map(|()| Memory::new(false)); POOLS];
    let mut running = 0;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let all: Vec<[Reading; 3]> = (0..POOLS).map(|pool| readings(pool, round)).collect();
            let now = NOW + sunward_policies::Span::from_mins(round as i64);
            let start = Instant::now();
            running += judge_all(policy, now, &all, &mut memories);
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    assert!((POOLS..POOLS * ROUNDS).contains(&running), "{running}");
    rounds.sort_by(f64::total_cmp);
    report(
        "policies/judge 10,000 pools by three expressions each, one core (median)",
        rounds[ROUNDS / 2],
        "ms",
        Goal::AtMost(50.0),
        None,
    );
}

/// Judges every pool and finds the rule that wins it; how many rules want their pool to run.
fn judge_all(
    policy: &Policy,
    now: Timestamp,
    readings: &[[Reading; 3]],
    memories: &mut [[Memory; 3]],
) -> usize {
    let mut running = 0;
    for (readings, memories) in readings.iter().zip(memories) {
        let facts = Facts::present(now, readings, POOL);
        let mut candidates = [0, 1, 2].map(|rule| Candidate {
            policy,
            rule,
            verdict: None,
        });
        for (candidate, memory) in candidates.iter_mut().zip(memories) {
            let judged = policy.rules[candidate.rule].rule.judge(&facts, memory);
            candidate.verdict = judged.verdict;
        }
        let wants = |candidate: &&Candidate<'_>| {
            candidate
                .verdict
                .is_some_and(|verdict| verdict.intent == Intent::Activate)
        };
        running += candidates.iter().filter(wants).count();
        black_box(arbitrate(&candidates));
    }
    running
}
