//! Each scenario's transcript under seed 1, as a file that a reviewer can read.
//!
//! `SUNWARD_BLESS=1 cargo test -p sunward-simulations --test golden` writes them anew.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::Command;

use sunward_simulations::report::run_seeds;
use sunward_simulations::world::{Core, Options, run};

use common::scenario;

fn line(arguments: std::fmt::Arguments<'_>) -> String {
    arguments.to_string()
}

/// What a run says about itself, with its transcript.
fn played(name: &str) -> String {
    let scenario = scenario(name);
    let options = Options {
        seed: 1,
        transcript: true,
        ..Options::default()
    };
    let outcome = run(&scenario, &options);
    let mut text = format!("# {name}: {}\n", scenario.description);
    text.push_str(&outcome.transcript);
    for (site, figures) in &outcome.sites {
        text += &line(format_args!(
            "site {site}: {:.3} h, {:.3} kWh, {:?} kg, {} starts\n",
            figures.hours(),
            figures.energy_kwh(),
            figures.emissions_marginal_kg(),
            figures.starts
        ));
    }
    text += &line(format_args!("work {:.3} site-hours", outcome.work_hours));
    if let Some(done) = outcome.work_done_after {
        text += &line(format_args!(", done after {done}"));
    }
    text += &line(format_args!(
        "\nindex {} digest {}\n",
        outcome.index, outcome.digest
    ));
    text
}

fn check(name: &str) {
    let found = played(name);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("expected/{name}.txt"));
    if std::env::var_os("SUNWARD_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = expected
        .lines()
        .zip(found.lines())
        .enumerate()
        .find(|(_, (a, b))| a != b);
    if let Some((line, (expected, found))) = differs {
        panic!(
            "{} line {}:\n  expected {expected}\n  found    {found}\nbless with SUNWARD_BLESS=1 if that is right",
            path.display(),
            line + 1
        );
    }
    assert_eq!(
        expected.len(),
        found.len(),
        "{}: one is longer",
        path.display()
    );
}

#[test]
fn storm() {
    check("storm");
}

#[test]
fn alone() {
    check("alone");
}

#[test]
fn t1() {
    check("t1");
}

/// The rebuilt row of the published table: 14.52 h, 37.4 kWh, 1.374 kg by the predecessor's rule.
#[test]
fn table_t1_comes_out() {
    let scenario = scenario("t1");
    let report = run_seeds(&scenario, "t1", 1, 1, 1, &Core::default(), &|_| {});
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let near = |value: f64, published: f64| ((value - published) / published).abs() < 0.01;
    let totals = &report.totals;
    assert!(near(totals.hours, 14.52), "{} h", totals.hours);
    assert!(near(totals.energy_kwh, 37.4), "{} kWh", totals.energy_kwh);
    let kg = totals.emissions_kg.unwrap();
    assert!(near(kg, 1.374), "{kg} kg");
    assert!(
        near(totals.work_hours, 17.86),
        "{} site-hours",
        totals.work_hours
    );
}

/// Another process comes to the same digest.
#[test]
fn another_process_says_the_same() {
    const CHILD: &str = "SUNWARD_TEST_CHILD";
    let said = played("alone");
    if std::env::var_os(CHILD).is_some() {
        common::say(&said);
        return;
    }
    let me = std::env::current_exe().unwrap();
    let child = Command::new(me)
        .args(["--exact", "another_process_says_the_same", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(child.status.success());
    let theirs = String::from_utf8(child.stderr).unwrap();
    assert!(theirs.contains(&said), "the child's transcript differs");
}
