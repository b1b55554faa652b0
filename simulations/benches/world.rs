//! How fast the world runs: site-hours per minute under faults with every checker on, and a year
//! of three sites in steps of 5 min beside Vessim.
//!
//! Prints a table and appends one line per figure to `target/figures.jsonl`, or to the file that
//! `SUNWARD_FIGURES` names. Vessim is run where `SUNWARD_VESSIM_PYTHON` names a Python that has
//! it, or where `target/vessim` is a virtual environment with it (`python3 -m venv target/vessim
//! && target/vessim/bin/pip install vessim==0.16.0`).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use sunward_simulations::report::{run_seeds, simulated};
use sunward_simulations::scenario::Scenario;
use sunward_simulations::world::{Core, Options, prepare};

/// Site-hours per minute on two cores.
const SITE_HOURS_GOAL: f64 = 20_000.0;
/// Times as fast as Vessim.
const VESSIM_GOAL: f64 = 500.0;

fn main() {
    // `cargo test --benches` and `cargo nextest` pass flags; a plain run measures.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    // `cargo bench -p sunward-simulations --bench world -- year` measures that alone.
    if !std::env::args().any(|argument| argument == "year") {
        stormy();
    }
    year();
}

fn stormy() {
    let scenario = common::scenario("storm");
    let run_some = |seeds| run_seeds(&scenario, "storm", 1, seeds, 2, &Core::default(), &|_| {});
    run_some(4);
    let seeds = 100;
    let began = Instant::now();
    let report = run_some(seeds);
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let faults: u64 = report.faults.values().sum();
    let rate = faults as f64 / report.simulated_site_hours;
    println!("storm: {rate:.2} faults per site and hour, {seeds} seeds, all checkers on");
    figure(
        "simulations: site-hours per minute, two cores, >= 1 fault per site and hour, all checkers",
        simulated(&scenario, seeds) / minutes,
        "site-hours/min",
        Some(SITE_HOURS_GOAL),
        None,
    );
}

fn year() {
    let scenario = common::scenario("year");
    let options = Options {
        seed: 1,
        unchecked: true,
        ..Options::default()
    };
    // CPU time, on both sides: other work on the machine then counts for neither.
    let runs = 20;
    let mut ticks = 0;
    for _ in 0..runs {
        // Both sides leave out how the series came into memory.
        let prepared = prepare(&scenario, &options);
        let before = cpu_ticks();
        let played = prepared.play();
        ticks += cpu_ticks() - before;
        assert!(played.outcome().index > 100_000);
    }
    let ours = ticks as f64 / TICKS_PER_SECOND / f64::from(runs);
    println!(
        "a year of three sites in steps of 5 min: {:.1} ms of one core, mean of {runs} runs",
        ours * 1e3
    );
    let Some(theirs) = vessim(&scenario) else {
        println!("Vessim is not installed; see the head of this file");
        return;
    };
    println!(
        "the same year in Vessim: {theirs:.1} s of one core, {:.0} times as much",
        theirs / ours
    );
    figure(
        "simulations: a year of three sites in steps of 5 min, times as fast as Vessim",
        theirs / ours,
        "x",
        Some(VESSIM_GOAL),
        Some(theirs),
    );
}

/// The kernel's unit in `/proc/PID/stat`, the same on every Linux (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of this process so far: fields 14 and 15 of `/proc/self/stat` (proc(5)).
fn cpu_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = text.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// The series of all sources as one table: seconds since the start, then a column each.
fn series(scenario: &Scenario) -> String {
    let columns: Vec<_> = scenario
        .sources
        .iter()
        .map(|source| scenario.samples(source, 1))
        .collect();
    let names: Vec<String> = (0..columns.len()).map(|i| format!("site_{i}")).collect();
    let mut text = format!("seconds,{}\n", names.join(","));
    for (row, sample) in columns[0].iter().enumerate() {
        let at = (sample.from - scenario.start).as_millis() / 1_000;
        let values = columns
            .iter()
            .map(|column| column[row].value.unwrap().to_string());
        let values: Vec<String> = values.collect();
        writeln!(text, "{at},{}", values.join(",")).unwrap();
    }
    text
}

/// Seconds that Vessim takes for the same series, where it is there.
fn vessim(scenario: &Scenario) -> Option<f64> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = || {
        let python = root.join("../target/vessim/bin/python");
        python.exists().then_some(python)
    };
    let python = std::env::var_os("SUNWARD_VESSIM_PYTHON").map(PathBuf::from);
    let python = python.or_else(installed)?;
    let script = root.join("benches/vessim_year.py");
    let table = root.join("../target/vessim_year.csv");
    std::fs::create_dir_all(root.join("../target")).unwrap();
    std::fs::write(&table, series(scenario)).unwrap();
    let done = Command::new(python)
        .arg(script)
        .arg(table)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let error = String::from_utf8_lossy(&done.stderr);
    let seconds = text.lines().rev().find_map(|line| line.trim().parse().ok());
    assert!(seconds.is_some(), "{text}\n{error}");
    seconds
}

/// Prints a figure and keeps it for `tests/figures`. A greater value is better.
fn figure(name: &str, value: f64, unit: &str, goal: Option<f64>, against: Option<f64>) {
    let holds = goal.is_none_or(|goal| value >= goal);
    let missed = if holds { "" } else { ", MISSED" };
    println!(
        "{name}: {value:.0} {unit} (goal >= {}{missed})",
        goal.unwrap_or(0.0)
    );
    let line = serde_json::json!({
        "name": name,
        "value": (value * 10.0).round() / 10.0,
        "unit": unit,
        "goal": goal,
        "holds": holds,
        "against": against,
        "command": "cargo bench -p sunward-simulations",
    });
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/figures.jsonl");
    let path = std::env::var_os("SUNWARD_FIGURES").map_or(default, PathBuf::from);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}
