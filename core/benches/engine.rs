//! What a step costs: a reading that flips nothing, and a full evaluation of 10,000 pools.
//!
//! Prints each figure and keeps it for `tests/figures`. Another process on the machine only ever adds to a time, so the
//! figure of many short batches is the fastest one, and says so; the median stands beside it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

#[path = "../../tests/figures.rs"]
mod figures;
#[path = "../tests/world/mod.rs"]
mod world;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use figures::{Figure, Goal};

use sunward_core::action::Effects;
use sunward_core::event::Event;
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

/// Readings of one batch: as many as a large group, and few enough that what was just decoded is still in the cache, as it
/// is when the engine loop steps it.
const READINGS: usize = 1_000;
/// Batches; each is shorter than a scheduler's slice.
const BATCHES: usize = 1_000;

fn reading_that_flips_nothing(what: &str, streams: usize) {
    let mut world = World::new(&fleet(streams, false), &[POLICY]);
    // Keys of their own, as they are when a request was decoded: nothing is equal by its address.
    let key = |i: usize| carbon(&format!("ZONE_{i}"));
    for i in 0..streams {
        let reading = level(&key(i), minute(15), minute(20), Some(60.0));
        world.submit(minute(15), vec![Event::SignalAccepted(reading)]);
    }
    world.run_to(minute(30));
    // Each stream has a reading every 10 s, each a little different, each for the interval after the last.
    let mut at = minute(30);
    let every = Span::from_millis(10_000 / streams as i64);
    let mut effects = Effects::default();
    let mut all = Vec::with_capacity(BATCHES);
    let mut groups = Vec::with_capacity(READINGS);
    // In the first batch the streams come back, which decides something.
    for batch in 0..=BATCHES {
        groups.clear();
        groups.extend((0..READINGS).map(|i| {
            at += every;
            let value = 300.0 + (i % 7) as f64;
            let reading = level(&key(i % streams), at, at + Span::from_secs(20), Some(value));
            (at, [Event::SignalAccepted(reading)])
        }));
        let mut flips = 0;
        let began = Instant::now();
        for (stamp, group) in &groups {
            world.engine.step(*stamp, black_box(group), &mut effects);
            flips += effects.actions.len() + effects.decisions.len();
        }
        let each = began.elapsed().as_secs_f64() * 1e9 / READINGS as f64;
        if batch > 0 {
            assert_eq!(flips, 0, "a reading flipped something");
            all.push(each);
        }
    }
    let (fastest, median) = fastest_and_median(&mut all);
    let name = format!("core: a reading that flips nothing, {what}");
    report(
        &format!("{name} (fastest batch)"),
        fastest,
        "ns",
        Goal::AtMost(200.0),
    );
    report(&format!("{name} (median batch)"), median, "ns", Goal::None);
}

fn full_evaluation() {
    let mut world = World::new(&fleet(POOLS, true), &[POLICY]);
    let key = carbon("ZONE_0");
    let mut effects = Effects::default();
    let mut all = Vec::new();
    let mut at = minute(30);
    for i in 0..21 {
        at += Span::from_mins(5);
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
    let (_, median) = fastest_and_median(&mut all);
    report(
        "core: full evaluation of 10,000 pools",
        median,
        "ms",
        Goal::AtMost(50.0),
    );
}

fn fastest_and_median(all: &mut [f64]) -> (f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[0], all[all.len() / 2])
}

fn report(name: &str, value: f64, unit: &str, goal: Goal) {
    Figure {
        name,
        value,
        unit,
        goal,
        against: None,
        command: "cargo bench -p sunward-core --bench engine",
    }
    .report();
}
