//! One file to one policy, collecting every mistake on the way.

use std::collections::BTreeMap;

use super::{Mode, OnDispatch, Policy, Ramp, RampStep};
use crate::codes;
use crate::diagnostic::{Diagnostic, Severity, TextRange};
use crate::document::{
    API_VERSION, HeaderDocument, KIND, LABELS_MAX, NAME_MAX, POLICY_TEXT_MAX, PolicyDocument,
    RampDocument, RampStepDocument, SOURCE_NAME_MAX, SourceFile,
};
use crate::time::Span;
use crate::yaml::{Entries, Source, Spanned, read_yaml, suggestion};

mod rules;
mod signals;

/// The policy of a file, where nothing in it is wrong; what is wrong is added to `diagnostics`.
pub(super) fn policy(file: &SourceFile, diagnostics: &mut Vec<Diagnostic>) -> Option<Policy> {
    let before = diagnostics.len();
    let mut compiler = Compiler {
        source: Source::new(&file.path, &file.text),
        diagnostics,
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
        let read = read_yaml::<HeaderDocument>(self.source.file(), text);
        let header = read.map_err(|found| self.diagnostics.push(found)).ok()?;
        self.header(header.api_version, "apiVersion", API_VERSION)?;
        self.header(header.kind, "kind", KIND)?;
        read_yaml(self.source.file(), text)
            .map_err(|found| self.diagnostics.push(found))
            .ok()
    }

    fn header(&mut self, found: Option<Spanned<String>>, key: &str, wanted: &str) -> Option<()> {
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
                    &value,
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
            Some(word) => self.word(
                word,
                "mode",
                &[("enforce", Mode::Enforce), ("observe", Mode::Observe)],
            ),
        };
        let names = Self::signal_names(spec.signals.as_ref());
        let signals = self.signals(spec.signals.as_ref());
        let rules = self.rules(spec, &names, signals.as_deref());
        let min_run = self.optional_duration(spec.min_run.as_ref());
        let min_rest = self.optional_duration(spec.min_rest.as_ref());
        let ramp = self.ramp(spec.ramp.as_ref());
        let (signals, rules) = (signals?, rules?);
        self.warn_of_unused(&signals, &rules);
        Some(Policy {
            name: name?,
            priority: spec.priority,
            mode: mode?,
            selector: selector?,
            signals,
            calendars: Vec::new(),
            rules,
            score: None,
            budgets: Vec::new(),
            floors: Vec::new(),
            deadlines: Vec::new(),
            max_changing_sites: None,
            on_dispatch: OnDispatch::default(),
            min_run: min_run?,
            min_rest: min_rest?,
            ramp,
            file: self.source.file().to_owned(),
            name_range: self.source.range_of(&document.metadata.name),
            pools_range: self.source.range_of(&spec.pools),
            ramp_range: spec.ramp.as_ref().map(|ramp| self.source.range_of(ramp)),
        })
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
        match Span::parse(&text.value) {
            Ok(span) => Some(span),
            Err(error) => {
                let text_of_error = error.to_string();
                // The error says how to mend it after the colon.
                let (message, help) = text_of_error
                    .split_once(": ")
                    .unwrap_or((&text_of_error, "write it like `10m`"));
                self.error_at(codes::BAD_DURATION, text, message, help);
                None
            }
        }
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
