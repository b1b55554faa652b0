//! Policy tests: what they find, what they say about it, and that the documentation's example holds.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

use sunward_policies::SourceFile;
use sunward_policies::diagnostic::Severity;
use sunward_simulations::policy_test::{Outcome, Report, run};

fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/library")
}

fn library_file(name: &str) -> Result<SourceFile, String> {
    let text = fs::read_to_string(library().join(name)).map_err(|error| error.to_string())?;
    Ok(SourceFile {
        path: name.to_owned(),
        text,
    })
}

/// Runs a text as `x.test.yaml`; every policy that it names is the shipped one.
fn test(text: &str) -> Report {
    let file = SourceFile {
        path: "x.test.yaml".to_owned(),
        text: text.to_owned(),
    };
    run(&file, &mut |_| library_file("curtailment.yaml"), None)
}

fn one(body: &str) -> Report {
    test(&format!("policies: [p.yaml]\ntests:\n- name: t\n{body}"))
}

fn errors(report: &Report) -> Vec<String> {
    let errors = report.diagnostics.iter();
    let errors = errors.filter(|found| found.severity == Severity::Error);
    errors.map(ToString::to_string).collect()
}

#[test]
fn the_library_passes_its_tests_and_they_reach_every_rule() {
    let mut tested = 0;
    for entry in fs::read_dir(library()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".test.yaml") {
            continue;
        }
        tested += 1;
        let report = run(&library_file(&name).unwrap(), &mut library_file, None);
        assert_eq!(errors(&report), [""; 0], "{name}");
        for case in &report.cases {
            assert_eq!(
                case.outcome,
                Outcome::Passed,
                "{}: {}",
                case.name,
                case.detail
            );
        }
        assert!(report.passed > 0);
        assert!(
            report.coverage.iter().all(|rule| rule.hit),
            "{:?}",
            report.coverage
        );
    }
    assert!(tested > 0);
}

#[test]
fn the_example_of_the_documentation_passes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policy-tests.md");
    let page = fs::read_to_string(page).unwrap();
    let example = page.split("```yaml\n").nth(1).unwrap();
    let report = test(example.split("```").next().unwrap());
    assert_eq!(errors(&report), [""; 0]);
    let details: Vec<&str> = report
        .cases
        .iter()
        .map(|case| case.detail.as_str())
        .collect();
    assert_eq!((report.passed, report.failed), (2, 0), "{details:#?}");
}

#[test]
fn the_same_text_gives_the_same_report() {
    let file = library_file("curtailment.test.yaml").unwrap();
    let twice = [(); 2].map(|()| {
        let report = run(&file, &mut library_file, None);
        serde_json::to_string(&report).unwrap()
    });
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn a_failure_says_where_what_and_what_was_decided_around_it() {
    let report = one(
        "  signals: {carbon: '90x12'}\n  expect:\n  - {at: 30m, workers: 0, rule: other, bent: ramp}\n",
    );
    assert_eq!((report.passed, report.failed), (0, 1));
    let detail = &report.cases[0].detail;
    for part in [
        "line 6, at 30m, pool pool",
        "expected workers: 0, got 3",
        "expected rule: other, got curtailment/threshold",
        "expected bent: ramp, got as_asked",
        "decided 5m (2026-01-01T00:05:00Z): 0 -> 3 by curtailment/threshold",
        "carbon = 90 gCO2e/kWh (fresh)",
    ] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
    // Activated, and never released: the rule is not yet hit.
    let rule = &report.coverage[0];
    assert!(rule.activated && !rule.released && !rule.hit);
}

#[test]
fn a_change_is_found_where_none_is_expected() {
    let body =
        "  signals: {carbon: '90x12'}\n  expect:\n  - {between: [0m, 5m], no_change: true}\n";
    let detail = &one(body).cases[0].detail;
    assert!(detail.contains("0 workers became 3 at 5m"), "{detail}");
    let body = body.replace("5m]", "4m]");
    assert_eq!(one(&body).passed, 1);
}

#[test]
fn a_reason_is_met_by_its_words_or_its_stable_word() {
    let body = "  signals: {carbon: '90x3 _x9'}\n  expect:\n  - {at: 45m, reason: WORD}\n";
    for (word, passed) in [
        ("missing_released", 1),
        ("for its whole hold", 1),
        ("resting", 0),
    ] {
        let report = one(&body.replace("WORD", word));
        assert_eq!(report.passed, passed, "{word}: {}", report.cases[0].detail);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    let expect = "  expect: [{at: 1m, workers: 0}]\n";
    for (body, place, words) in [
        (
            format!("  signals: {{carbn: '90'}}\n{expect}"),
            "x.test.yaml:4:13",
            "did you mean `carbon`",
        ),
        (
            format!("  signals: {{carbon: '90 9ox2'}}\n{expect}"),
            "x.test.yaml:4:25",
            "SUN-T001",
        ),
        (
            format!("  signals: {{'carbon@sit': '90'}}\n{expect}"),
            "x.test.yaml:4:13",
            "did you mean `site`",
        ),
        (
            format!("  running: {{pol: 3}}\n{expect}"),
            "x.test.yaml:4:13",
            "did you mean `pool`",
        ),
        (
            format!("  running: {{pool: 4}}\n{expect}"),
            "x.test.yaml:4:19",
            "0 to 3 workers",
        ),
        (
            "  expect: [{at: 1m}]\n".to_owned(),
            "x.test.yaml:4:17",
            "says nothing",
        ),
        (
            "  expect: [{at: soon, workers: 1}]\n".to_owned(),
            "x.test.yaml:4:17",
            "SUN-P010",
        ),
        (
            "  expect: [{between: [1m], no_change: true}]\n".to_owned(),
            "x.test.yaml:4:22",
            "two times",
        ),
        (
            "  expect: [{at: 1m, wrkers: 1}]\n".to_owned(),
            "x.test.yaml:4:21",
            "did you mean `workers`",
        ),
        (
            "  expect: []\n".to_owned(),
            "x.test.yaml:4:11",
            "0 expectations",
        ),
        (
            format!("  events: [{{at: 1m}}]\n{expect}"),
            "x.test.yaml:4:17",
            "exactly one thing",
        ),
        (
            format!("  events: [{{at: 1m, restart: true, clear: x}}]\n{expect}"),
            "x.test.yaml:4:17",
            "exactly one thing",
        ),
        (
            format!("  events: [{{at: 1m, override: {{scope: pool/pol, effect: off}}}}]\n{expect}"),
            "x.test.yaml:4:39",
            "did you mean `pool/pool`",
        ),
        (
            format!(
                "  events: [{{at: 1m, budget: {{name: curtailment/co2, spent: 9%}}}}]\n{expect}"
            ),
            "x.test.yaml:4:36",
            "no budget",
        ),
    ] {
        let report = one(&body);
        let found = errors(&report).join("\n");
        assert!(
            found.contains(place) && found.contains(words),
            "{body}: {found}"
        );
        assert_eq!(
            (report.failed, report.cases[0].outcome),
            (1, Outcome::Failed)
        );
        assert!(report.coverage.is_empty());
    }
}

#[test]
fn a_mistake_in_a_fleet_that_is_written_out_is_placed_in_the_test_file() {
    let text = "policies: [p.yaml]\nfleet: |\n  apiVersion: sunward.dev/v1alpha1\n  kind: Fleet\n  metadata: {name: x}\n  \
                spec:\n    sites: [{name: BAD, time_zone: UTC}]\n    pools: []\ntests: []\n";
    let found = errors(&test(text)).join("\n");
    assert!(
        found.contains("x.test.yaml:7:20: error[SUN-F003]"),
        "{found}"
    );
}

#[test]
fn a_test_can_be_left_out_and_several_issues_of_a_forecast_given() {
    let report = one("  skip: not yet\n  expect: [{at: 1m, workers: 9}]\n");
    assert_eq!((report.passed, report.failed, report.skipped), (0, 0, 1));
    assert_eq!(report.cases[0].detail, "not yet");
    let forecasts =
        "{carbon: [{issued: 0m, values: '90x3'}, {issued: 6m, from: 10m, values: '500x6'}]}";
    // The second issue says otherwise before the first has led to anything but a start.
    let body = format!(
        "  forecasts: {forecasts}\n  expect:\n  - {{at: 5m, workers: 3}}\n  - {{at: 45m, workers: 0}}\n"
    );
    let report = one(&body);
    assert_eq!(report.passed, 1, "{}", report.cases[0].detail);
}
