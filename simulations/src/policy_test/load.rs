//! From the text of a test file to what is played; everything that is wrong with it is said with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use sunward_core::fleet::{Fleet, check};
use sunward_core::time::{Span, Timestamp};
use sunward_policies::codes;
use sunward_policies::diagnostic::{Diagnostic, Severity, TextRange};
use sunward_policies::document::SourceFile;
use sunward_policies::policy::PolicySet;
use sunward_policies::yaml::{Source, Spanned, read_yaml};

use super::case::{Case, Expectation, Expected, Suite, When};
use super::form::{ExpectForm, FileForm, TestForm};
use super::{ENTRIES_MAX, LASTS_MAX, ReadFile, TEST_TEXT_MAX, TESTS_MAX, fleet};

mod events;
mod readings;

/// When a test begins that does not say: 2026-01-01T00:00:00Z, a Thursday.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// How long a reading holds in a test that does not say.
const INTERVAL: Span = Span::from_mins(5);

/// Reads one file.
pub(super) struct Load<'a> {
    file: &'a SourceFile,
    source: Source<'a>,
    /// What is wrong.
    pub(super) found: Vec<Diagnostic>,
    /// The texts of the files that it names.
    pub(super) sources: Vec<SourceFile>,
}

/// What a test may name.
struct World<'a> {
    policies: &'a PolicySet,
    fleet: &'a Fleet,
}

impl<'a> Load<'a> {
    pub(super) fn new(file: &'a SourceFile) -> Load<'a> {
        Load {
            file,
            source: Source::new(&file.path, &file.text),
            found: Vec::new(),
            sources: Vec::new(),
        }
    }

    fn error<T>(&mut self, code: &'static str, at: &Spanned<T>, message: String, help: &str) {
        let range = self.source.range_of(at);
        self.error_in(code, range, message, help);
    }

    fn error_in(&mut self, code: &'static str, range: TextRange, message: String, help: &str) {
        let found = Diagnostic::error(code, &self.file.path, range, message);
        self.found.push(found.with_help(help));
    }

    /// An error about a part of a text; `part` is in bytes of it.
    fn error_within(
        &mut self,
        code: &'static str,
        at: &Spanned<String>,
        part: Range<usize>,
        message: String,
        help: &str,
    ) {
        let range = self.source.range_within(at, part);
        self.error_in(code, range, message, help);
    }

    fn span(&mut self, text: &Spanned<String>) -> Option<Span> {
        match Span::parse(&text.value) {
            Ok(span) if span <= LASTS_MAX => Some(span),
            Ok(_) => {
                let message = format!(
                    "`{}` is further than {LASTS_MAX} from the start",
                    text.value
                );
                self.error(codes::TEST_TOO_LARGE, text, message, "split the test");
                None
            }
            Err(error) => {
                let help = "times count from the start of the test: `0m`, `30m`, `1h30m`";
                self.error(codes::BAD_DURATION, text, error.to_string(), help);
                None
            }
        }
    }

    fn optional_span(&mut self, text: Option<&Spanned<String>>, default: Span) -> Option<Span> {
        text.map_or(Some(default), |text| self.span(text))
    }

    fn instant(&mut self, text: &Spanned<String>) -> Option<Timestamp> {
        Timestamp::parse_rfc3339(&text.value)
            .map_err(|error| {
                let help = "write it like 2026-03-29T00:00:00Z";
                self.error(codes::WRONG_VALUE, text, error.to_string(), help);
            })
            .ok()
    }

    /// The file's policies, fleet and tests; what is wrong is in `found`.
    pub(super) fn suite(
        &mut self,
        read: ReadFile<'_>,
        fleet: Option<&SourceFile>,
    ) -> Option<Suite> {
        if self.file.text.len() > TEST_TEXT_MAX {
            let message = format!("a test file has at most {TEST_TEXT_MAX} bytes");
            self.error_in(codes::TEST_TOO_LARGE, TextRange::START, message, "split it");
            return None;
        }
        let form: FileForm = read_yaml(&self.file.path, &self.file.text)
            .map_err(|found| self.found.push(found))
            .ok()?;
        let policy_files = self.policy_files(&form, read)?;
        let policies = PolicySet::compile(&policy_files)
            .map_err(|found| self.found.extend(found))
            .ok()?;
        let (fleet_file, fleet) = self.fleet(&form, (&policies, &policy_files), read, fleet)?;
        let found = check::policies_on_fleet(&policies, &fleet);
        let wrong = found.iter().any(|found| found.severity == Severity::Error);
        self.found.extend(found);
        if wrong {
            return None;
        }
        if form.tests.value.len() > TESTS_MAX {
            let message = format!("a file has at most {TESTS_MAX} tests");
            self.error(codes::TEST_TOO_LARGE, &form.tests, message, "split it");
            return None;
        }
        let world = World {
            policies: &policies,
            fleet: &fleet,
        };
        let mut names = BTreeSet::new();
        let mut cases = Vec::new();
        for test in &form.tests.value {
            if !names.insert(test.name.value.as_str()) {
                let message = format!("a second test is called `{}`", test.name.value);
                self.error(
                    codes::DUPLICATE_NAME,
                    &test.name,
                    message,
                    "rename one of them",
                );
            }
            cases.extend(self.case(&form, test, &world));
        }
        Some(Suite {
            policy_files,
            policies,
            fleet_file,
            fleet,
            cases,
        })
    }

    /// The files under test; where none is named, the one that the test file is called after.
    fn policy_files(&mut self, form: &FileForm, read: ReadFile<'_>) -> Option<Vec<SourceFile>> {
        let help =
            "name policy files relative to this file, such as `policies: [curtailment.yaml]`";
        let mut files = Vec::new();
        #[expect(clippy::single_match_else, reason = "two ways of one weight")]
        match &form.policies {
            Some(names) => {
                for name in names {
                    match read(&name.value) {
                        Ok(file) => files.push(file),
                        Err(problem) => {
                            let message = format!("`{}` can't be read: {problem}", name.value);
                            self.error(codes::TEST_UNKNOWN_NAME, name, message, help);
                        }
                    }
                }
                (files.len() == names.len() && !names.is_empty()).then_some(())
            }
            None => {
                let own = self
                    .file
                    .path
                    .rsplit(['/', '\\'])
                    .next()
                    .unwrap_or_default();
                let name = own.replace(".test.", ".");
                read(&name)
                    .map(|file| files.push(file))
                    .map_err(|problem| {
                        let message =
                            format!("no `policies`, and `{name}` can't be read: {problem}");
                        let code = codes::TEST_UNKNOWN_NAME;
                        self.error_in(code, TextRange::START, message, help);
                    })
                    .ok()
            }
        }?;
        self.sources.extend(files.iter().cloned());
        Some(files)
    }

    fn fleet(
        &mut self,
        form: &FileForm,
        (policies, policy_files): (&PolicySet, &[SourceFile]),
        read: ReadFile<'_>,
        given: Option<&SourceFile>,
    ) -> Option<(SourceFile, Fleet)> {
        let inline = form.fleet.as_ref().filter(|text| text.value.contains('\n'));
        let file = match (inline, &form.fleet, given) {
            (Some(text), ..) => SourceFile {
                path: self.file.path.clone(),
                text: text.value.clone(),
            },
            (None, Some(name), _) => match read(&name.value) {
                Ok(file) => {
                    self.sources.push(file.clone());
                    file
                }
                Err(problem) => {
                    let message = format!("`{}` can't be read: {problem}", name.value);
                    let help = "name a fleet file relative to this file, or write the fleet out: `fleet: |`";
                    self.error(codes::TEST_UNKNOWN_NAME, name, message, help);
                    return None;
                }
            },
            (None, None, Some(given)) => {
                self.sources.push(given.clone());
                given.clone()
            }
            (None, None, None) => {
                let file = fleet::built_in(policies, policy_files);
                self.sources.push(file.clone());
                file
            }
        };
        match Fleet::parse(&file) {
            Ok(fleet) => Some((file, fleet)),
            Err(found) => {
                let found = found.into_iter().map(|found| match inline {
                    Some(text) => self.moved(found, text),
                    None => found,
                });
                let found: Vec<Diagnostic> = found.collect();
                self.found.extend(found);
                None
            }
        }
    }

    /// A finding about a text that stands within this file, at its place here.
    fn moved(&self, mut found: Diagnostic, text: &Spanned<String>) -> Diagnostic {
        let offset = |line: u32, column: u32| {
            let before: usize = text
                .value
                .split_inclusive('\n')
                .take(line.saturating_sub(1) as usize)
                .map(str::len)
                .sum();
            let line = text.value.get(before..).unwrap_or_default();
            let within = line.char_indices().nth(column.saturating_sub(1) as usize);
            before + within.map_or(line.len(), |(at, _)| at)
        };
        let part = offset(found.line, found.column)..offset(found.end_line, found.end_column);
        let range = self.source.range_within(text, part);
        (found.line, found.column) = (range.line, range.column);
        (found.end_line, found.end_column) = (range.end_line, range.end_column);
        found
    }

    fn case(&mut self, form: &FileForm, test: &TestForm, world: &World<'_>) -> Option<Case> {
        let before = self.found.len();
        let start = match test.start.as_ref().or(form.start.as_ref()) {
            Some(start) => self.instant(start)?,
            None => START,
        };
        let interval = test.interval.as_ref().or(form.interval.as_ref());
        let interval = self.optional_span(interval, INTERVAL)?;
        if interval.is_zero() {
            let message = "an interval of no time holds no reading".to_owned();
            self.error(
                codes::TEST_ENTRY,
                &test.name,
                message,
                "write for example 5m",
            );
            return None;
        }
        let running = self.running(test, world);
        let mut script = self.events(test, start, world);
        script.extend(self.readings(test, start, interval, world));
        // Stable: of one instant, what stands first happens first.
        script.sort_by_key(|(at, _)| *at);
        let expect = self.expectations(test, world);
        if self.found.len() > before {
            return None;
        }
        let last_expected = expect.iter().map(|expectation| match &expectation.when {
            When::At(at, _) => *at,
            When::NoChange(_, to) => *to,
        });
        let last_expected = start + last_expected.max().unwrap_or_default();
        let end = script
            .last()
            .map_or(last_expected, |(at, _)| last_expected.max(*at));
        Some(Case {
            name: test.name.value.clone(),
            skip: test.skip.clone(),
            start,
            running,
            script,
            expect,
            end,
        })
    }

    fn running(&mut self, test: &TestForm, world: &World<'_>) -> BTreeMap<Arc<str>, u32> {
        let mut running = BTreeMap::new();
        let entries = test.running.as_ref().map_or(&[][..], |entries| &entries.0);
        for (name, workers) in entries {
            let Some(pool) = self.pool(name, world) else {
                continue;
            };
            let (low, high) = (pool.min_workers, pool.max_workers);
            if !(low..=high).contains(&workers.value) {
                let message = format!("pool `{}` has {low} to {high} workers", pool.name);
                self.error(codes::TEST_ENTRY, workers, message, "correct the number");
            }
            running.insert(pool.name.clone(), workers.value);
        }
        running
    }

    fn pool<'w>(
        &mut self,
        name: &Spanned<String>,
        world: &World<'w>,
    ) -> Option<&'w sunward_core::fleet::Pool> {
        let found = world.fleet.pool(&name.value);
        if found.is_none() {
            let known: Vec<&str> = world
                .fleet
                .pools()
                .iter()
                .map(|p| p.name.as_ref())
                .collect();
            self.unknown(name, "pool", &known);
        }
        found.map(Arc::as_ref)
    }

    fn unknown(&mut self, name: &Spanned<String>, what: &str, known: &[&str]) {
        let message = format!("there is no {what} `{}`", name.value);
        let help = sunward_policies::yaml::suggestion(&name.value, known, "names");
        self.error(codes::TEST_UNKNOWN_NAME, name, message, &help);
    }

    fn expectations(&mut self, test: &TestForm, world: &World<'_>) -> Vec<Expectation> {
        let list = &test.expect.value;
        if list.is_empty() || list.len() > ENTRIES_MAX {
            let message = format!("{} expectations; a test has 1 to {ENTRIES_MAX}", list.len());
            let help = "add one, such as `- {at: 30m, workers: 3}`";
            self.error(codes::TEST_ENTRY, &test.expect, message, help);
        }
        list.iter()
            .filter_map(|form| self.expectation(test, form, world))
            .collect()
    }

    fn expectation(
        &mut self,
        test: &TestForm,
        form: &ExpectForm,
        world: &World<'_>,
    ) -> Option<Expectation> {
        let something = form.workers.is_some()
            || form.ready.is_some()
            || form.reason.is_some()
            || form.rule.is_some()
            || form.bent.is_some()
            || form.power_percent.is_some();
        let (line, when) = match (&form.at, &form.between) {
            (Some(at), None) if something && form.no_change.is_none() => {
                let expected = Expected {
                    workers: form.workers,
                    ready: form.ready,
                    reason: form.reason.clone(),
                    rule: form.rule.clone(),
                    bent: form.bent.clone(),
                    power_percent: form.power_percent,
                };
                let line = self.source.range_of(at).line;
                (line, When::At(self.span(at)?, expected))
            }
            (None, Some(between)) if form.no_change == Some(true) && !something => {
                let [from, to] = between.value.as_slice() else {
                    let message = "`between` takes two times".to_owned();
                    let help = "write for example `between: [0m, 25m]`";
                    self.error(codes::TEST_ENTRY, between, message, help);
                    return None;
                };
                let line = self.source.range_of(from).line;
                (line, When::NoChange(self.span(from)?, self.span(to)?))
            }
            (at, between) => {
                let help = "`at: 30m` with workers, ready, reason, rule, bent or power_percent; or `between: [0m, \
                            25m]` with `no_change: true`";
                let message = "this expectation says nothing, or two things at once".to_owned();
                let place = at.as_ref().map(|at| self.source.range_of(at));
                let place = place.or_else(|| between.as_ref().map(|b| self.source.range_of(b)));
                let place = place.unwrap_or_else(|| self.source.range_of(&test.expect));
                self.error_in(codes::TEST_ENTRY, place, message, help);
                return None;
            }
        };
        let all = world.fleet.pools();
        let pools = match (&form.pool, &when) {
            (Some(name), _) => vec![self.pool(name, world)?.name.clone()],
            (None, When::NoChange(..)) => all.iter().map(|pool| pool.name.clone()).collect(),
            (None, When::At(..)) if all.len() == 1 => vec![all[0].name.clone()],
            (None, When::At(..)) => {
                let known: Vec<&str> = all.iter().take(8).map(|pool| pool.name.as_ref()).collect();
                let message = "say of which pool: the fleet has several".to_owned();
                let help = format!("add `pool: NAME`; there are {}", known.join(", "));
                let place = form.at.as_ref().map(|at| self.source.range_of(at));
                let place = place.unwrap_or(TextRange::START);
                self.error_in(codes::TEST_ENTRY, place, message, &help);
                return None;
            }
        };
        Some(Expectation { line, when, pools })
    }
}
