//! What a reload costs: `cargo bench -p sunward-policies --bench reload`. Keeps its figures for `tests/figures`. Another process
//! on the machine only ever adds to a time, so the figure is the fastest of many reloads, and says so; the median stands
//! beside it.
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

use sunward_policies::{PolicySet, SourceFile};

const LINES: usize = 5_000;
const SAMPLES: usize = 201;

/// A policy in the block style that people write, with all that it may have.
const LONG: &str = include_str!("long.yaml");
/// A policy that we ship: a comment, one signal, two conditions.
const SHIPPED: &str = include_str!("../library/curtailment.yaml");

fn files(lines: usize) -> Vec<SourceFile> {
    let mut files = Vec::new();
    let mut count = 0;
    while count < lines {
        let index = files.len();
        let text = if index % 2 == 0 { LONG } else { SHIPPED };
        let name = format!("metadata: {{name: policy-{index}}}");
        let (before, after) = text.split_once("metadata: {name: ").unwrap();
        let after = after.split_once('}').unwrap().1;
        let text = format!("{before}{name}{after}");
        count += text.lines().count();
        files.push(SourceFile {
            path: format!("policies/policy-{index}.yaml"),
            text,
        });
    }
    files
}

fn main() {
    // `cargo test --benches` passes flags; a plain run measures.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let files = files(LINES);
    let lines: usize = files.iter().map(|file| file.text.lines().count()).sum();
    let bytes: usize = files.iter().map(|file| file.text.len()).sum();
    println!("{} files, {lines} lines, {bytes} bytes", files.len());
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            let set = PolicySet::compile(black_box(&files)).unwrap();
            let took = start.elapsed().as_secs_f64() * 1e3;
            assert_eq!(black_box(&set).policies().len(), files.len());
            took
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    for (which, value, goal) in [
        ("fastest", samples[0], Goal::AtMost(20.0)),
        ("median", samples[SAMPLES / 2], Goal::None),
    ] {
        Figure {
            name: &format!("policies/reload 5,000 lines of policy files ({which} of {SAMPLES})"),
            value,
            unit: "ms",
            goal,
            against: None,
            command: "cargo bench -p sunward-policies --bench reload",
        }
        .report();
    }
}
