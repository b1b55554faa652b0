//! One file to one policy, collecting every mistake on the way.

use std::collections::BTreeMap;

use super::{Mode, OnDispatch, Policy, Ramp, RampStep};
use crate::codes;
use crate::diagnostic::{Diagnostic, Severity, TextRange};
use crate::document::{
    API_VERSION, HeaderDocument, KIND, LABELS_MAX, NAME_MAX, POLICY_TEXT_MAX, PolicyDocument,
    RampDocument, RampStepDocument, SOURCE_NAME_MAX, SourceFile,
};
use crate::expr::{Condition, Expected, Finding, Quantity};
use crate::rules::{CalendarSet, SignalSet};
use crate::time::{Span, TimeError};
use crate::words::MODES;
use crate::yaml::{Entries, Source, Spanned, read_yaml, suggestion};

mod amounts;
mod budgets;
mod calendars;
mod goals;
mod hash;
mod names;
mod rules;
mod signals;
mod windows;

pub(super) use self::amounts::{in_unit, spent};

use names::Names;

/// The policy of a file, where nothing in it is wrong; what is wrong is added to `diagnostics`.
pub(super) fn policy(file: &SourceFile, diagnostics: &mut Vec<Diagnostic>) -> Option<Policy> {
    let before = diagnostics.len();
    let mut compiler = Compiler {
        source: Source::new(&file.path, &file.text),
        diagnostics,
        signals_read: SignalSet::EMPTY,
        calendars_read: CalendarSet::EMPTY,
    };
    let document = compiler.document(&file.text)?;
    let policy = compiler.policy(&document);
    let failed = diagnostics[before..]
        .iter()
        .any(|found| found.severity == Severity::Error);
    policy.filter(|_| !failed)
}

struct Compiler<'a> {
    source: Source<'a>,
    diagnostics: &'a mut Vec<Diagnostic>,
    /// By anything of the policy.
    signals_read: SignalSet,
    calendars_read: CalendarSet,
}

impl Compiler<'_> {
    fn error(
        &mut self,
        code: &'static str,
        range: TextRange,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.diagnostics
            .push(Diagnostic::error(code, self.source.file(), range, message).with_help(help));
    }

    fn error_at<T>(
        &mut self,
        code: &'static str,
        value: &Spanned<T>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.error(code, self.source.range_of(value), message, help);
    }

    fn document(&mut self, text: &str) -> Option<PolicyDocument> {
        if text.len() > POLICY_TEXT_MAX {
            let message = format!(
                "the file has {} bytes; {POLICY_TEXT_MAX} are allowed",
                text.len()
            );
            self.error(
                codes::TOO_LARGE,
                TextRange::START,
                message,
                "split it into several policies",
            );
            return None;
        }
        // A good file is read once: reading is most of what a reload costs.
        match read_yaml::<PolicyDocument>(self.source.file(), text) {
            Ok(document) => {
                self.header(Some(&document.api_version), "apiVersion", API_VERSION)?;
                self.header(Some(&document.kind), "kind", KIND)?;
                Some(document)
            }
            Err(found) => {
                let read = read_yaml::<HeaderDocument>(self.source.file(), text);
                let header = read.map_err(|found| self.diagnostics.push(found)).ok()?;
                self.header(header.api_version.as_ref(), "apiVersion", API_VERSION)?;
                self.header(header.kind.as_ref(), "kind", KIND)?;
                self.diagnostics.push(found);
                None
            }
        }
    }

    fn header(&mut self, found: Option<&Spanned<String>>, key: &str, wanted: &str) -> Option<()> {
        let help =
            format!("a policy file begins with `apiVersion: {API_VERSION}` and `kind: {KIND}`");
        match found {
            None => self.error(
                codes::WRONG_DOCUMENT,
                TextRange::START,
                format!("the key `{key}` is missing"),
                help,
            ),
            Some(value) if value.value != wanted => {
                self.error_at(
                    codes::WRONG_DOCUMENT,
                    value,
                    format!("`{}` is not `{wanted}`", value.value),
                    help,
                );
            }
            Some(_) => return Some(()),
        }
        None
    }

    fn policy(&mut self, document: &PolicyDocument) -> Option<Policy> {
        let spec = &document.spec.value;
        let name = self.name(&document.metadata.name, "policy");
        let selector = self.selector(&spec.pools);
        let mode = match &spec.mode {
            None => Some(Mode::Enforce),
            Some(word) => self.word(word, "mode", MODES),
        };
        let names = Names::of(spec);
        let signals = self.signals(spec.signals.as_ref());
        let calendars = self.calendars(spec.calendars.as_ref());
        let rules = self.rules(spec, &names, signals.as_deref());
        let score = self.optional_quantity(spec.score.as_ref(), &names, Expected::Any);
        let budgets = self.budgets(spec.budgets.as_ref(), &names);
        let floors = self.floors(spec.floors.as_ref());
        let deadlines = self.deadlines(spec.deadlines.as_ref());
        let max_changing_sites = match &spec.max_changing_sites {
            None => Some(None),
            Some(count) => self
                .count(
                    count,
                    "with 0 no site could ever change",
                    "write 1 or more, or leave `max_changing_sites` out for no limit",
                )
                .map(Some),
        };
        let on_dispatch = self.on_dispatch(spec.on_dispatch.as_ref());
        let min_run = self.optional_duration(spec.min_run.as_ref());
        let min_rest = self.optional_duration(spec.min_rest.as_ref());
        let ramp = self.ramp(spec.ramp.as_ref());
        let (signals, calendars, rules) = (signals?, calendars?, rules?);
        let budgets = budgets?;
        self.warn_of_unused(&signals, &calendars);
        Some(Policy {
            name: name?,
            priority: spec.priority,
            mode: mode?,
            selector: selector?,
            signals,
            calendars,
            rules,
            score,
            budgets,
            floors: floors?,
            deadlines: deadlines?,
            max_changing_sites: max_changing_sites?,
            on_dispatch: on_dispatch?,
            min_run: min_run?,
            min_rest: min_rest?,
            ramp,
            file: self.source.file().to_owned(),
            name_range: self.source.range_of(&document.metadata.name),
            pools_range: self.source.range_of(&spec.pools),
            ramp_range: spec.ramp.as_ref().map(|ramp| self.source.range_of(ramp)),
        })
    }

    fn condition(&mut self, text: &Spanned<String>, names: &Names<'_>) -> Option<Condition> {
        let condition = Condition::compile(&text.value, names.scope())
            .map_err(|findings| self.expression_findings(text, findings))
            .ok()?;
        self.signals_read = self.signals_read.union(condition.signals());
        self.calendars_read = self.calendars_read.union(condition.calendars());
        Some(condition)
    }

    /// `None` where there is none, and where it is wrong: then the policy is refused as a whole.
    fn optional_quantity(
        &mut self,
        text: Option<&Spanned<String>>,
        names: &Names<'_>,
        expected: Expected,
    ) -> Option<Quantity> {
        let text = text?;
        let quantity = Quantity::compile(&text.value, names.scope(), expected)
            .map_err(|findings| self.expression_findings(text, findings))
            .ok()?;
        self.signals_read = self.signals_read.union(quantity.signals());
        self.calendars_read = self.calendars_read.union(quantity.calendars());
        Some(quantity)
    }

    fn expression_findings(&mut self, text: &Spanned<String>, findings: Vec<Finding>) {
        for finding in findings {
            let range = self.source.range_within(text, finding.span);
            let mut found =
                Diagnostic::error(finding.code, self.source.file(), range, finding.message);
            found.help = finding.help;
            self.diagnostics.push(found);
        }
    }

    /// A name as Kubernetes takes it for a label: lower case, digits, `-` and `.`, beginning and ending with a letter
    /// or digit.
    fn name(&mut self, name: &Spanned<String>, what: &str) -> Option<String> {
        let text = &name.value;
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let well_formed = bytes
            .iter()
            .all(|b| alphanumeric(*b) || matches!(b, b'-' | b'.'))
            && bytes.first().is_some_and(|b| alphanumeric(*b))
            && bytes.last().is_some_and(|b| alphanumeric(*b));
        if well_formed && text.len() <= NAME_MAX {
            return Some(text.clone());
        }
        let message = format!("`{text}` can't be the name of a {what}");
        let help = format!(
            "use up to {NAME_MAX} of a-z, 0-9, `-` and `.`, beginning and ending with a letter or digit"
        );
        self.error_at(codes::BAD_NAME, name, message, help);
        None
    }

    fn selector(&mut self, pools: &Spanned<Entries<String>>) -> Option<BTreeMap<String, String>> {
        let labels = &pools.value.0;
        if labels.is_empty() {
            let help = "name at least one label that the pools to govern have, such as `pools: {energy: surplus}`";
            self.error_at(
                codes::NO_SELECTOR,
                pools,
                "the policy selects no label",
                help,
            );
            return None;
        }
        if labels.len() > LABELS_MAX {
            let message = format!("{} labels; {LABELS_MAX} are allowed", labels.len());
            self.error_at(
                codes::TOO_LARGE,
                pools,
                message,
                "give the pools one label that means the same",
            );
            return None;
        }
        let mut selector = BTreeMap::new();
        for (key, value) in labels {
            for text in [key, value] {
                if text.value.is_empty() || text.value.len() > SOURCE_NAME_MAX {
                    let message = format!("a label has 1 to {SOURCE_NAME_MAX} characters");
                    self.error_at(
                        codes::BAD_NAME,
                        text,
                        message,
                        "use the labels of the pools in the fleet file",
                    );
                    return None;
                }
            }
            selector.insert(key.value.clone(), value.value.clone());
        }
        Some(selector)
    }

    fn word<T: Copy>(
        &mut self,
        word: &Spanned<String>,
        key: &str,
        known: &[(&str, T)],
    ) -> Option<T> {
        if let Some((_, value)) = known.iter().find(|row| row.0 == word.value) {
            return Some(*value);
        }
        let words: Vec<&str> = known.iter().map(|row| row.0).collect();
        let message = format!("`{}` is not a word that `{key}` takes", word.value);
        self.error_at(
            codes::UNKNOWN_WORD,
            word,
            message,
            suggestion(&word.value, &words, "words"),
        );
        None
    }

    fn duration(&mut self, text: &Spanned<String>) -> Option<Span> {
        Span::parse(&text.value)
            .map_err(|error| self.time_error(codes::BAD_DURATION, text, &error))
            .ok()
    }

    /// A duration that has to be longer than nothing; `why` says what nothing would do.
    fn positive_duration(&mut self, text: &Spanned<String>, why: &str, help: &str) -> Option<Span> {
        let span = self.duration(text)?;
        if span.is_zero() {
            self.error_at(codes::BAD_DURATION, text, why, help);
            return None;
        }
        Some(span)
    }

    fn time_error(&mut self, code: &'static str, text: &Spanned<String>, error: &TimeError) {
        let error = error.to_string();
        // The error says how to mend it after the last colon.
        let (message, help) = error
            .rsplit_once(": ")
            .unwrap_or((&error, "write it like `10m`"));
        self.error_at(code, text, message, help);
    }

    /// A count of at least 1; `zero` and `help` say what is wrong with 0.
    fn count(&mut self, count: &Spanned<u32>, zero: &str, help: &str) -> Option<u32> {
        if count.value == 0 {
            self.error_at(codes::WRONG_VALUE, count, zero, help);
            return None;
        }
        Some(count.value)
    }

    fn on_dispatch(&mut self, word: Option<&Spanned<String>>) -> Option<OnDispatch> {
        let Some(word) = word else {
            return Some(OnDispatch::default());
        };
        let number = word.value.strip_suffix('%').unwrap_or(&word.value).trim();
        let is_number =
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !is_number {
            return self.word(
                word,
                "on_dispatch",
                &[
                    ("keep", OnDispatch::Keep),
                    ("release", OnDispatch::Release),
                    ("75%", OnDispatch::PowerPercent(75)),
                ],
            );
        }
        let (message, help) = match (number.parse::<u8>(), word.value.ends_with('%')) {
            (Ok(percent @ 1..=99), true) => return Some(OnDispatch::PowerPercent(percent)),
            (Ok(1..=99), false) => (
                format!("`{number}` could be a percentage or a count of workers"),
                format!("write `{number}%` for that share of training power"),
            ),
            (Ok(0), _) => (
                "no training power at all is a release".to_owned(),
                "write `release`".to_owned(),
            ),
            (Ok(100), _) => (
                "all of the training power is what runs without a dispatch".to_owned(),
                "write `keep`".to_owned(),
            ),
            _ => (
                format!("`{}` is no share of training power", word.value),
                "write a whole percentage from `1%` to `99%`, `release` or `keep`".to_owned(),
            ),
        };
        self.error_at(codes::WRONG_VALUE, word, message, help);
        None
    }

    /// No time at all where the key is not there.
    fn optional_duration(&mut self, text: Option<&Spanned<String>>) -> Option<Span> {
        text.map_or(Some(Span::ZERO), |text| self.duration(text))
    }

    fn ramp(&mut self, ramp: Option<&Spanned<RampDocument>>) -> Ramp {
        let Some(ramp) = ramp else {
            return Ramp::default();
        };
        if ramp.value.up.is_none() && ramp.value.down.is_none() {
            let help = "add `up: {workers: 1, every: 5m}` or `down`, or remove `ramp`";
            self.error_at(
                codes::BAD_RAMP,
                ramp,
                "the ramp has neither `up` nor `down`",
                help,
            );
        }
        Ramp {
            up: self.ramp_step(ramp.value.up.as_ref()),
            down: self.ramp_step(ramp.value.down.as_ref()),
        }
    }

    /// `None` where there is none, and where it is wrong: then the policy is refused as a whole.
    fn ramp_step(&mut self, step: Option<&Spanned<RampStepDocument>>) -> Option<RampStep> {
        let step = step?;
        let every = self.duration(&step.value.every)?;
        if every.is_zero() || step.value.workers == 0 {
            let help = "give at least 1 worker per a time above 0, or leave the step out to change at once";
            self.error_at(
                codes::BAD_RAMP,
                step,
                "this ramp never moves, or always",
                help,
            );
            return None;
        }
        Some(RampStep {
            workers: step.value.workers,
            every,
        })
    }
}
