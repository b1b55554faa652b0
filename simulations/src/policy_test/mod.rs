//! Unit tests of policy files: `*.test.yaml` beside a policy says what the signals do and what is expected of the
//! pools; the production engine, planner included, says what happens.
//!
//! The form is described in `docs/policy-tests.md`. Nothing here reads a file: what a test names is passed in by
//! [`ReadFile`]. The same texts give the same report on any machine.

use std::collections::BTreeMap;

use serde::Serialize;
use sunward_policies::diagnostic::{Diagnostic, Severity};
use sunward_policies::document::SourceFile;
use sunward_policies::time::Span;

mod case;
mod fleet;
mod form;
mod load;
mod pools;
mod series;
mod stage;
mod verdict;

/// The most bytes of a test file.
pub const TEST_TEXT_MAX: usize = 1024 * 1024;
/// The most tests of a file.
pub const TESTS_MAX: usize = 1_000;
/// The most readings that one test sends.
pub const READINGS_MAX: usize = 200_000;
/// The most events, and the most expectations, of one test.
pub const ENTRIES_MAX: usize = 1_000;
/// The longest simulated time of one test.
pub const LASTS_MAX: Span = Span::from_mins(400 * 24 * 60);
/// The most groups that the engine may take in one test; a test that needs more never comes to rest.
pub const GROUPS_MAX: u64 = 1_000_000;

/// Reads a file that a test file names, by the name that stands there; where it lies is the caller's business.
pub type ReadFile<'a> = &'a mut dyn FnMut(&str) -> Result<SourceFile, String>;

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything was as expected.
    Passed,
    /// Something was not.
    Failed,
    /// The file says to leave it out.
    Skipped,
}

/// The result of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    /// The test file.
    pub file: String,
    /// The test's name; empty for a file that can't be read as tests.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, in words; empty for a test that passed.
    pub detail: String,
}

/// Whether the tests reach a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// The policy.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// Both of the following.
    pub hit: bool,
    /// In some test the rule came to ask for a pool to run.
    pub activated: bool,
    /// In some test it came to ask for a release after that.
    pub released: bool,
}

/// The result of test files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed, and files that can't be read as tests.
    pub failed: usize,
    /// Tests that were left out.
    pub skipped: usize,
    /// Every test, in the order of the files.
    pub cases: Vec<CaseResult>,
    /// Every rule of the policies under test, by policy and name.
    pub coverage: Vec<Coverage>,
    /// What is wrong with the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that the diagnostics are about.
    #[serde(skip)]
    pub sources: Vec<SourceFile>,
}

/// What a rule was seen to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hits {
    pub(crate) activated: bool,
    pub(crate) released: bool,
}

/// By policy and rule.
pub(crate) type HitMap = BTreeMap<(String, String), Hits>;

impl Report {
    /// Takes another file's results in.
    pub fn add(&mut self, other: Report) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.cases.extend(other.cases);
        self.diagnostics.extend(other.diagnostics);
        self.sources.extend(other.sources);
        for new in other.coverage {
            let known = self
                .coverage
                .iter_mut()
                .find(|known| known.policy == new.policy && known.rule == new.rule);
            match known {
                Some(known) => {
                    known.activated |= new.activated;
                    known.released |= new.released;
                    known.hit = known.activated && known.released;
                }
                None => self.coverage.push(new),
            }
        }
        self.coverage
            .sort_by(|a, b| (&a.policy, &a.rule).cmp(&(&b.policy, &b.rule)));
    }

    fn push(&mut self, file: &str, name: &str, outcome: Outcome, detail: String) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
        self.cases.push(CaseResult {
            file: file.to_owned(),
            name: name.to_owned(),
            outcome,
            detail,
        });
    }
}

/// Runs the tests of one file. `fleet` stands in where the file names none; without it, a small one is made that fits
/// the policies' labels.
pub fn run(file: &SourceFile, read: ReadFile<'_>, fleet: Option<&SourceFile>) -> Report {
    let mut report = Report::default();
    report.sources.push(file.clone());
    let mut load = load::Load::new(file);
    let suite = load.suite(read, fleet);
    report.sources.append(&mut load.sources);
    let errors = load
        .found
        .iter()
        .filter(|found| found.severity == Severity::Error)
        .count();
    report.diagnostics.append(&mut load.found);
    let Some(suite) = suite.filter(|_| errors == 0) else {
        let first = report
            .diagnostics
            .iter()
            .find(|found| found.severity == Severity::Error);
        let detail = first.map_or_else(String::new, ToString::to_string);
        report.push(&file.path, "", Outcome::Failed, detail);
        return report;
    };
    let mut hits = suite.rules();
    for case in &suite.cases {
        #[expect(clippy::single_match_else, reason = "two ways of one weight")]
        let (outcome, detail) = match &case.skip {
            Some(why) => (Outcome::Skipped, why.clone()),
            None => {
                let record = stage::play(&suite, case);
                for (rule, seen) in &record.hits {
                    if let Some(known) = hits.get_mut(rule) {
                        known.activated |= seen.activated;
                        known.released |= seen.released;
                    }
                }
                let problems = verdict::problems(case, &record);
                if problems.is_empty() {
                    (Outcome::Passed, String::new())
                } else {
                    (Outcome::Failed, problems.join("\n"))
                }
            }
        };
        report.push(&file.path, &case.name, outcome, detail);
    }
    report.coverage = hits
        .into_iter()
        .map(|((policy, rule), seen)| Coverage {
            policy,
            rule,
            hit: seen.activated && seen.released,
            activated: seen.activated,
            released: seen.released,
        })
        .collect();
    report
}
