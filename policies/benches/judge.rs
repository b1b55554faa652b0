//! What one judging costs: `cargo bench -p sunward-policies`. Keeps its figures for `tests/figures`.
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

use figures::{Figure, Goal};

use sunward_policies::expr::{Condition, Scope};
use sunward_policies::{Facts, Memory, PolicySet, PoolFacts, Reading, SourceFile, Timestamp, Unit};

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

fn report(name: &str, value: f64, goal: f64, against: Option<f64>) {
    let command = "cargo bench -p sunward-policies --bench judge";
    Figure {
        name,
        value,
        unit: "ns",
        goal: Goal::AtMost(goal),
        against,
        command,
    }
    .report();
}

fn main() {
    let pool = PoolFacts {
        wanted: 3,
        ready: 3,
        min: 0,
        max: 3,
        training_kw: 2.0,
        ready_after: sunward_policies::Span::ZERO,
        site_power_limit_kw: None,
    };
    let readings = [
        Reading::Fresh { value: 90.0 },
        Reading::Fresh { value: 12.0 },
    ];
    let facts = Facts::present(Timestamp::from_millis(1_700_000_000_000), &readings, pool);
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
    report("policies/evaluate two terms", two_terms, 30.0, Some(bare));

    let text = include_str!("../library/curtailment.yaml").to_owned();
    let set = PolicySet::compile(&[SourceFile {
        path: "curtailment.yaml".to_owned(),
        text,
    }])
    .unwrap();
    let rule = &set.policies()[0].rules[0].rule;
    let mut memory = Memory::new(true);
    let judged = median_ns(|| {
        black_box(rule.judge(black_box(&facts), black_box(&mut memory)));
    });
    report(
        "policies/judge the shipped policy",
        judged,
        80.0,
        Some(bare),
    );
}
