//! `sunward policy validate | lint | test | schema`: results, exit codes, and what was not checked.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn policy_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunward"));
    command.arg("policy").args(arguments);
    command.current_dir(folder).output().unwrap()
}

fn policy(arguments: &[&str]) -> Output {
    policy_in(&repository(), arguments)
}

fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const LIBRARY: &str = "policies/library/curtailment.yaml";
const FLEET: &str = "scheduler/src/config/fleet.yaml";

/// The shipped policy with one thing written otherwise, as `policies/NAME` of a new folder.
fn changed(name: &str, from: &str, to: &str) -> tempfile::TempDir {
    let text = fs::read_to_string(repository().join(LIBRARY)).unwrap();
    assert!(text.contains(from));
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("policies")).unwrap();
    fs::write(
        folder.path().join("policies").join(name),
        text.replace(from, to),
    )
    .unwrap();
    folder
}

#[test]
fn a_good_policy_is_valid_and_what_was_not_checked_is_named() {
    let output = policy(&["validate", LIBRARY]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(result(&output)["diagnostics"], serde_json::json!([]));
    let skipped = &result(&output)["skipped"];
    assert_eq!(skipped.as_array().unwrap().len(), 1);
    assert_eq!(skipped[0]["needs"], "--fleet FILE");
    assert!(
        said(&output).contains("not checked: names of labels"),
        "{}",
        said(&output)
    );
    let output = policy(&["validate", LIBRARY, "--fleet", FLEET, "--output", "table"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(said(&output), "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "2 files: 0 errors, 0 warnings\n");
}

#[test]
fn an_error_is_one_and_shown_with_its_line() {
    let folder = changed("p.yaml", "carbon < 100", "carbn < 100");
    let output = policy_in(
        folder.path(),
        &["validate", "policies", "--output", "table"],
    );
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "error[SUN-P022]: `carbn` is neither a signal",
        "--> policies/p.yaml:",
        "^^^^^",
        "did you mean `carbon`?",
        "1 file: 1 error, 0 warnings",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour but on a terminal");
    let output = policy_in(folder.path(), &["validate", "policies/p.yaml"]);
    let found = &result(&output)["diagnostics"][0];
    assert_eq!(
        (&found["code"], &found["severity"], &found["file"]),
        (
            &"SUN-P022".into(),
            &"error".into(),
            &"policies/p.yaml".into()
        )
    );
    for field in ["line", "column", "end_line", "end_column"] {
        assert!(found[field].is_u64(), "{field}");
    }
    assert!(found["message"].is_string() && found["help"].is_string());
}

#[test]
fn the_fleet_is_checked_where_it_is_given() {
    let folder = changed("p.yaml", "scheme: wt", "scheme: eic");
    let fleet = repository().join(FLEET).display().to_string();
    let alone = policy_in(folder.path(), &["validate", "policies"]);
    assert_eq!(alone.status.code(), Some(0));
    let output = policy_in(folder.path(), &["validate", "policies", "--fleet", &fleet]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result(&output)["diagnostics"][0]["code"], "SUN-F012");
    // A warning is 0, and 1 where asked for.
    let folder = changed("p.yaml", "energy: surplus}", "energy: none}");
    let arguments = ["validate", "policies", "--fleet", &fleet];
    let output = policy_in(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(result(&output)["diagnostics"][0]["severity"], "warning");
    let strict = policy_in(folder.path(), &[&arguments[..], &["--strict"]].concat());
    assert_eq!(strict.status.code(), Some(1));
    // A fleet that is none, is a finding; what needs it is named.
    let output = policy_in(
        folder.path(),
        &["validate", "policies", "--fleet", "policies/p.yaml"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result(&output)["skipped"].as_array().unwrap().len(), 1);
}

#[test]
fn what_can_not_be_opened_is_wrong_use_and_what_is_no_text_a_finding() {
    for arguments in [
        &["validate", "absent.yaml"][..],
        &["validate", "tests/src"],
        &["validate", LIBRARY, "--fleet", "absent.yaml"],
        &["validate"],
        &["lint", LIBRARY, "--signals", "absent.json"],
        &["lint", LIBRARY, "--signals", "absent.csv"],
        &["test", "absent.test.yaml"],
        &["test", "tests/src"],
    ] {
        let output = policy(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            said(&output)
        );
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("p.yaml"), b"a: \xff\n").unwrap();
    let output = policy_in(folder.path(), &["validate", "p.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result(&output)["diagnostics"][0]["code"], "SUN-P001");
    fs::write(folder.path().join("p.test.yaml"), b"a: \xff\n").unwrap();
    let output = policy_in(folder.path(), &["test", "p.test.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(result(&output)["failed"], 1);
}

#[test]
fn lint_finds_what_validate_does_not() {
    let folder = changed("p.yaml", "carbon >= 120", "carbon >= 80");
    let valid = policy_in(folder.path(), &["validate", "policies"]);
    assert_eq!(valid.status.code(), Some(0));
    assert_eq!(result(&valid)["diagnostics"], serde_json::json!([]));
    let output = policy_in(folder.path(), &["lint", "policies"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(result(&output)["diagnostics"][0]["code"], "SUN-L004");
    let needs: Vec<String> = result(&output)["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skipped| skipped["needs"].as_str().unwrap().to_owned())
        .collect();
    assert!(
        needs.iter().any(|needs| needs.contains("--signals")),
        "{needs:?}"
    );
    assert!(
        needs.iter().any(|needs| needs.contains("--fleet")),
        "{needs:?}"
    );
    let strict = policy_in(folder.path(), &["lint", "policies", "--strict"]);
    assert_eq!(strict.status.code(), Some(1));
}

#[test]
fn lint_reads_the_cadence_from_a_series() {
    let folder = changed("p.yaml", "for: 5m", "for: 2m");
    let rows: Vec<String> = (0..24)
        .flat_map(|hour| (0..12).map(move |step| (hour, step * 5)))
        .map(|(hour, minute)| {
            let value = if hour % 2 == 0 { 50 } else { 400 };
            format!("2026-03-02T{hour:02}:{minute:02}:00Z,{value}")
        })
        .collect();
    let csv = format!("time,moer\n{}\n", rows.join("\n"));
    fs::write(folder.path().join("moer.csv"), csv).unwrap();
    let keys = "--time-column time --value-column moer --interval 5m --unit g/kWh --source watttime --kind carbon_intensity \
                --basis marginal --zone wt/CAISO_NORTH";
    let mut arguments = vec!["lint", "policies", "--signals", "moer.csv"];
    arguments.extend(keys.split(' ').filter(|word| !word.is_empty()));
    let output = policy_in(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let result = result(&output);
    let codes: Vec<&str> = result["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["SUN-L006"], "{result}");
    assert!(!said(&output).contains("cadence"), "{}", said(&output));
    // Readings of another stream say nothing about this one, and that is said.
    let other: Vec<&str> = arguments
        .iter()
        .map(|word| if *word == "watttime" { "other" } else { word })
        .collect();
    let output = policy_in(folder.path(), &other);
    assert!(
        said(&output).contains("cadence and windows of signal `carbon`"),
        "{}",
        said(&output)
    );
}

#[test]
fn tests_beside_a_policy_are_run() {
    let output = policy(&["test", LIBRARY, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let told = result(&output);
    assert!(told["passed"].as_u64().unwrap() >= 10);
    assert_eq!((&told["failed"], &told["skipped"]), (&0.into(), &0.into()));
    let case = &told["cases"][0];
    assert_eq!(case["outcome"], "passed");
    assert_eq!(case["file"], "policies/library/curtailment.test.yaml");
    assert_eq!(
        (&told["coverage"][0]["policy"], &told["coverage"][0]["hit"]),
        (&"curtailment".into(), &true.into())
    );
    // The same by its own name and by its folder; a file that is named twice runs once.
    let test = "policies/library/curtailment.test.yaml";
    let twice = policy(&["test", test, LIBRARY, "--output", "json"]);
    assert_eq!(result(&twice)["cases"], told["cases"]);
    assert_eq!(policy(&["test", "policies/library"]).status.code(), Some(0));
}

#[test]
fn a_test_that_fails_is_one_and_says_why() {
    let folder = changed("p.yaml", "carbon < 100", "carbon < 80");
    let test = "policies: [p.yaml]\ntests:\n- name: clean\n  signals: {carbon: '90x6'}\n  expect: [{at: 20m, workers: 3}]\n";
    fs::write(folder.path().join("policies/p.test.yaml"), test).unwrap();
    let output = policy_in(folder.path(), &["test", "policies", "--output", "table"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).unwrap();
    for part in [
        "FAILED  policies/p.test.yaml: clean",
        "line 5, at 20m, pool pool: expected workers: 3, got 0",
        "0 of 1 rules hit",
        "curtailment/threshold: never activated",
        "0 passed, 1 failed, 0 skipped",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    // On the fleet that is given, it must say of which pool.
    let fleet = repository().join(FLEET).display().to_string();
    let output = policy_in(
        folder.path(),
        &["test", "policies", "--fleet", &fleet, "--output", "table"],
    );
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("SUN-T003") && printed.contains("caiso-a, spp-a"),
        "{printed}"
    );
}

#[test]
fn the_schema_is_that_of_the_language() {
    let output = policy(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        sunward_policies::schema::policy_schema()
    );
}
