//! `sunward simulate`: its result, its exit codes, and what it says about a file that is wrong.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output};

fn scenarios() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../simulations/scenarios")
}

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunward"));
    command.arg("simulate").args(arguments);
    command.current_dir(scenarios()).output().unwrap()
}

fn result(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_seed_gives_the_same_result_in_two_processes() {
    let arguments = ["storm.scenario", "--seed", "7", "--output", "json"];
    let (first, second) = (simulate(&arguments), simulate(&arguments));
    assert_eq!(first.status.code(), Some(0));
    assert_eq!(first.stdout, second.stdout);
    let result = result(&first);
    assert_eq!(result["scenario"], "storm");
    assert_eq!(result["seed"], 7);
    assert_eq!(result["violations"].as_array().unwrap().len(), 0);
    assert_eq!(result["digest"].as_str().unwrap().len(), 64);
    assert_eq!(result["sites"].as_array().unwrap().len(), 3);
    let sum: f64 = result["sites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|site| site["hours"].as_f64().unwrap())
        .sum();
    assert!((sum - result["site_hours"].as_f64().unwrap()).abs() < 1e-5);
    assert!(result["faults"]["reply_lost"].as_u64().unwrap() > 0);
}

#[test]
fn seeds_add_up_and_a_transcript_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("transcript.txt");
    let arguments = [
        "alone.scenario",
        "--seeds",
        "3",
        "--output",
        "json",
        "--transcript",
    ];
    let output = simulate(&[&arguments[..], &[path.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0));
    let result = result(&output);
    assert_eq!(result["seeds"], 3);
    // Two sites, 27 hours, three seeds.
    assert_eq!(result["simulated_site_hours"], 162.0);
    let transcript = std::fs::read_to_string(path).unwrap();
    assert!(transcript.contains("decide roof-a"), "{transcript}");
}

#[test]
fn another_policy_is_played_and_one_that_does_not_compile_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(scenarios().join("../../policies/library/curtailment.yaml"));
    let good = folder.path().join("good.yaml");
    std::fs::write(&good, text.unwrap()).unwrap();
    let bad = folder.path().join("bad.yaml");
    std::fs::write(
        &bad,
        "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\n",
    )
    .unwrap();
    let with = |policy: &std::path::Path| {
        simulate(&[
            "t1.scenario",
            "--output",
            "json",
            "--policy",
            policy.to_str().unwrap(),
        ])
    };
    let output = with(&good);
    assert_eq!(output.status.code(), Some(0));
    assert!(result(&output)["totals"]["starts"].as_u64().unwrap() >= 3);
    let output = with(&bad);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("bad.yaml") && output.stdout.is_empty(),
        "{said}"
    );
}

#[test]
fn wrong_use_is_two_and_a_broken_scenario_is_one() {
    assert_eq!(simulate(&["absent.scenario"]).status.code(), Some(2));
    assert_eq!(
        simulate(&["t1.scenario", "--seeds", "0"]).status.code(),
        Some(2)
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.scenario");
    let text = std::fs::read_to_string(scenarios().join("storm.scenario")).unwrap();
    std::fs::write(&path, text.replace("signal_late", "signal_lost_at_sea")).unwrap();
    let output = simulate(&[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("signal_lost_at_sea") && said.contains("signal_late"),
        "{said}"
    );
}
