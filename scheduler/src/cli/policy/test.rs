//! `sunward policy test PATH...`: unit tests beside the policies.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use sunward_policies::diagnostic::Severity;
use sunward_policies::document::{POLICY_TEXT_MAX, SourceFile};
use sunward_simulations::policy_test::{Outcome, Report, TEST_TEXT_MAX, run as run_file};

use super::sources::Sources;
use crate::cli::{FOUND, Output, output};

/// How the name of a test file ends.
const ENDINGS: [&str; 2] = [".test.yaml", ".test.yml"];

pub(super) const EXAMPLES: &str = "\
A test says what the signals do and what is expected of the pools; the production engine, planner included, plays it \
in simulated time. simulations/docs/policy-tests.md describes the form.

  policies: [curtailment.yaml]
  tests:
  - name: starts after five clean minutes, and leaves after ten dirty ones
    signals: {carbon: \"90x12 150x12\"}
    expect:
    - {between: [0m, 4m], no_change: true}
    - {at: 30m, workers: 3}
    - {at: 70m, workers: 0, reason: released}

Examples:
  sunward policy test policies/                    every *.test.yaml of a folder
  sunward policy test policies/curtailment.yaml    the tests beside a policy
  sunward policy test policies/ --fleet fleet.yaml    on the real fleet

Exit codes: 0 every test passed; 1 one failed, or a file is wrong; 2 a path can't be opened.";

/// Arguments of `policy test`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Test files (`*.test.yaml`), policies with such a file beside them, or folders of test files.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The fleet for test files that name none; without it, a small one is made that fits the policies' labels.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let fleet = args.fleet.as_deref().map(Sources::fleet).transpose()?;
    if let Some(found) = fleet.as_ref().and_then(|fleet| fleet.found.first()) {
        output::error(&anyhow::anyhow!("{found}"));
        return Ok(ExitCode::from(FOUND));
    }
    let fleet = fleet.as_ref().and_then(|fleet| fleet.files.first());
    let mut report = Report::default();
    for path in test_files(&args.paths)? {
        let mut read = Sources::default();
        read.read(&path, TEST_TEXT_MAX)?;
        let mut broken = Report {
            failed: read.found.len(),
            ..Report::default()
        };
        broken.diagnostics.append(&mut read.found);
        report.add(broken);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut beside = |name: &str| beside(&folder.join(name));
        for file in &read.files {
            report.add(run_file(file, &mut beside, fleet));
        }
    }
    match Output::or_default(args.output) {
        Output::Json => output::json(&report)?,
        Output::Table => output::line(&table(&report))?,
    };
    Ok(if report.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// A file that a test file names.
fn beside(path: &Path) -> Result<SourceFile, String> {
    let mut read = Sources::default();
    read.read(path, POLICY_TEXT_MAX.max(TEST_TEXT_MAX))
        .map_err(|error| error.root_cause().to_string())?;
    match (read.files.pop(), read.found.pop()) {
        (Some(file), _) => Ok(file),
        (None, found) => Err(found.map_or_else(String::new, |found| found.message)),
    }
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The test files that paths name. A path that can't be opened, or has no test, is wrong use.
fn test_files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths {
        let found = if path.is_dir() {
            let entries = std::fs::read_dir(path)
                .with_context(|| format!("{} can't be read", path.display()))?;
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let mut found: Vec<PathBuf> = paths.filter(|path| is_test(path)).collect();
            found.sort();
            found
        } else if is_test(path) {
            vec![path.clone()]
        } else {
            let mut found = Vec::new();
            for ending in ENDINGS {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let test = path.with_file_name(format!("{name}{ending}"));
                found.extend(test.is_file().then_some(test));
            }
            found
        };
        anyhow::ensure!(
            !found.is_empty(),
            "{} has no tests: they are files that end in .test.yaml, in that folder or beside that policy",
            path.display()
        );
        let new: Vec<PathBuf> = found.into_iter().filter(|p| !all.contains(p)).collect();
        all.extend(new);
    }
    Ok(all)
}

fn table(report: &Report) -> String {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut text = String::new();
    for found in &report.diagnostics {
        let source = report.sources.iter().find(|file| file.path == found.file);
        text.push_str(&found.render(source.map(|file| file.text.as_str()), colour));
        text.push('\n');
    }
    // Writing to a String can't fail.
    for case in &report.cases {
        let word = match case.outcome {
            Outcome::Passed => "ok     ",
            Outcome::Failed => "FAILED ",
            Outcome::Skipped => "skipped",
        };
        let _ = writeln!(text, "{word} {}: {}", case.file, case.name);
        for line in case.detail.lines() {
            let _ = writeln!(text, "          {line}");
        }
    }
    if !report.coverage.is_empty() {
        let hit = report.coverage.iter().filter(|rule| rule.hit).count();
        let _ = writeln!(text, "{hit} of {} rules hit", report.coverage.len());
        for rule in report.coverage.iter().filter(|rule| !rule.hit) {
            let lacks = match (rule.activated, rule.released) {
                (true, _) => "activated in a test, never released",
                (false, _) => "never activated",
            };
            let _ = writeln!(text, "  {}/{}: {lacks}", rule.policy, rule.rule);
        }
    }
    let errors = report.diagnostics.iter();
    let errors = errors.filter(|found| found.severity == Severity::Error);
    let broken = match errors.count() {
        0 => String::new(),
        n => format!(", {n} errors in files"),
    };
    let _ = write!(
        text,
        "{} passed, {} failed, {} skipped{broken}",
        report.passed, report.failed, report.skipped
    );
    text
}
