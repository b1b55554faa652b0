//! What a step costs: a reading that flips nothing, and a full evaluation of 10,000 pools.
//!
//! Prints a table and appends one line per figure to `target/figures.jsonl`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

#[path = "../tests/world/mod.rs"]
mod world;

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use sunward_core::action::Effects;
use sunward_core::event::Event;
use sunward_core::signal::StreamKey;
use sunward_core::time::Span;
use world::{FLEET, POLICY, World, carbon, level, minute};

const POOLS: usize = 10_000;

fn main() {
    // `cargo test --benches` and `cargo nextest` pass flags; a plain run measures.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    reading_that_flips_nothing("one stream", 1);
    reading_that_flips_nothing("1,000 streams", 1_000);
    full_evaluation();
}

/// A fleet of `pools` sites with one pool each; `shared` puts all of them into one zone.
fn fleet(pools: usize, shared: bool) -> String {
    let mut sites = String::new();
    let mut list = String::new();
    for i in 0..pools {
        let zone = if shared { 0 } else { i };
        writeln!(
            sites,
            "    - {{name: site-{i}, time_zone: UTC, zones: [{{scheme: wt, code: ZONE_{zone}}}]}}"
        )
        .unwrap();
        writeln!(
            list,
            "    - {{name: pool-{i:05}, site: site-{i}, labels: {{energy: surplus}}, max_workers: 8, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 8, gpu_vendor: nvidia, gpu_model: H100, ready_after: 250s, actuator: {{memory: {{start: 250s, stop: 60s}}}}}}"
        )
        .unwrap();
    }
    let head = FLEET.split("  sites:").next().unwrap();
    format!("{head}  sites:\n{sites}  pools:\n{list}")
}

fn reading_that_flips_nothing(what: &str, streams: usize) {
    let mut world = World::new(&fleet(streams, false), &[POLICY]);
    let keys: Vec<StreamKey> = (0..streams).map(|i| carbon(&format!("ZONE_{i}"))).collect();
    for key in &keys {
        let reading = level(key, minute(15), minute(20), Some(60.0));
        world.submit(minute(15), vec![Event::SignalAccepted(reading)]);
    }
    world.run_to(minute(30));
    // Readings of 10 s, each a little different, each for the interval after the last.
    let mut at = minute(30);
    let mut effects = Effects::default();
    let mut best = f64::MAX;
    let mut all = Vec::new();
    for _ in 0..50 {
        let groups: Vec<_> = (0..20_000_usize)
            .map(|i| {
                at = at + Span::from_millis(if streams == 1 { 10_000 } else { 10 });
                let key = &keys[i % streams];
                [Event::SignalAccepted(level(
                    key,
                    at,
                    at + Span::from_secs(20),
                    Some(300.0 + (i % 7) as f64),
                ))]
            })
            .collect();
        let stamps: Vec<_> = groups
            .iter()
            .map(|[event]| match event {
                Event::SignalAccepted(level) => level.valid_from,
                _ => unreachable!("only readings are made"),
            })
            .collect();
        let began = Instant::now();
        for (group, stamp) in groups.iter().zip(&stamps) {
            world.engine.step(*stamp, black_box(group), &mut effects);
            black_box(&effects);
        }
        let each = began.elapsed().as_secs_f64() * 1e9 / groups.len() as f64;
        best = best.min(each);
        all.push(each);
    }
    all.sort_by(f64::total_cmp);
    let median = all[all.len() / 2];
    let name = format!("core: a reading that flips nothing, {what}");
    figure(&name, median, "ns", Some(200.0));
    println!("  fastest batch {best:.0} ns");
}

fn full_evaluation() {
    let mut world = World::new(&fleet(POOLS, true), &[POLICY]);
    let key = carbon("ZONE_0");
    let mut effects = Effects::default();
    let mut all = Vec::new();
    let mut at = minute(30);
    for i in 0..21 {
        at = at + Span::from_mins(5);
        let group = [Event::SignalAccepted(level(
            &key,
            at,
            at + Span::from_mins(6),
            Some(300.0 + f64::from(i)),
        ))];
        let began = Instant::now();
        world.engine.step(at, &group, &mut effects);
        all.push(began.elapsed().as_secs_f64() * 1e3);
        black_box(&effects);
    }
    all.sort_by(f64::total_cmp);
    figure(
        "core: full evaluation of 10,000 pools",
        all[all.len() / 2],
        "ms",
        Some(50.0),
    );
}

/// Prints a figure and keeps it for `tests/figures`. A smaller value is better.
fn figure(name: &str, value: f64, unit: &str, goal: Option<f64>) {
    let holds = goal.is_none_or(|goal| value <= goal);
    let goal_text = goal.map_or_else(|| "null".to_owned(), |goal| goal.to_string());
    println!(
        "{name}: {value:.1} {unit} (goal <= {goal_text}{})",
        if holds { "" } else { ", MISSED" }
    );
    let line = format!(
        "{{\"name\":\"{name}\",\"value\":{value:.1},\"unit\":\"{unit}\",\"goal\":{goal_text},\"holds\":{holds},\
         \"against\":null,\"command\":\"cargo bench -p sunward-core\"}}\n"
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/figures.jsonl");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
