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
    for pools in [1_000, 10_000] {
        group_of(pools);
    }
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

/// One group: all pools under one budget of the fleet. A pool's reading changes once in a while, as readings do; most of
/// them flip nothing, and then the group is not planned.
fn group_of(pools: usize) {
    let named = format!("a group of {pools} pools under one budget");
    let calm = group(pools, "1000000 workers", "", 300.0);
    let each = batches(calm, pools, |i| 300.0 + (i % 7) as f64);
    let name = format!("core: a reading that flips nothing, {named}");
    report(&name, each, "ns", Goal::None);
    let room = group(pools, "1000000 workers", "", 300.0);
    let each = batches(room, pools, |i| if i % 2 == 0 { 60.0 } else { 300.0 });
    let name = format!("core: a reading that starts or stops a pool, {named}");
    report(&name, each / 1e3, "us", Goal::None);
    // Everyone wants to run, and few may: each score counts.
    let fought_over = group(pools, "80 workers", "  score: 0 - carbon\n", 60.0);
    let each = batches(fought_over, pools, |i| 60.0 + (i % 7) as f64);
    let name = format!("core: a reading of another score, {named} that few fit in");
    report(&name, each / 1e3, "us", Goal::None);
}

/// So many pools of eight workers, each in a zone of its own, all with a reading of `value`.
fn group(pools: usize, limit: &str, more: &str, value: f64) -> World {
    let policy = POLICY
        .replace("{when: carbon < 100, for: 5m}", "{when: carbon < 100}")
        .replace("{when: carbon >= 120, for: 10m}", "{when: carbon >= 120}")
        .replace("  min_run: 30m\n  min_rest: 10m\n", more);
    let budget = format!("  budgets: [{{name: few, limit: {limit}, scope: fleet}}]\n");
    let mut world = World::new(&fleet(pools, false), &[&format!("{policy}{budget}")]);
    let reading = |i: usize| {
        let key = carbon(&format!("ZONE_{i}"));
        let day = level(&key, minute(15), minute(30), Some(value));
        Event::SignalAccepted(day)
    };
    world.submit(minute(15), (0..pools).map(reading).collect());
    world
}

/// Of batches of readings of the same pool, one after the other: the median time of one, ns.
fn batches(mut world: World, pools: usize, value: impl Fn(usize) -> f64) -> f64 {
    const EACH: usize = 50;
    let mut effects = Effects::default();
    let mut all = Vec::new();
    let mut at = minute(16);
    for batch in 0..21 {
        let groups: Vec<_> = (0..EACH)
            .map(|i| {
                at += Span::from_millis(10);
                let key = carbon(&format!("ZONE_{}", batch % pools));
                let reading = level(&key, at, at + Span::from_secs(1_000), Some(value(i)));
                (at, [Event::SignalAccepted(reading)])
            })
            .collect();
        let began = Instant::now();
        for (stamp, group) in &groups {
            world.engine.step(*stamp, black_box(group), &mut effects);
        }
        all.push(began.elapsed().as_secs_f64() * 1e9 / EACH as f64);
    }
    fastest_and_median(&mut all).1
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
