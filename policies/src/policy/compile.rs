//! One file to one policy, collecting every mistake on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{
    BindingScope, CompiledRule, Mode, OnMissing, Policy, Ramp, RampStep, SignalBinding, Then,
};
use crate::codes;
use crate::diagnostic::{Diagnostic, TextRange};
use crate::document::{
    API_VERSION, ConditionDocument, HeaderDocument, KIND, LABELS_MAX, NAME_MAX, POLICY_TEXT_MAX,
    PolicyDocument, RULES_MAX, RampDocument, RampStepDocument, RuleDocument, SCHEMES,
    SOURCE_NAME_MAX, SignalDocument, SourceFile, SpecDocument,
};
use crate::expr::{Condition, RESERVED, Scope};
use crate::rules::threshold::{Side, Threshold};
use crate::rules::{Rule, SIGNALS_MAX, SignalSet};
use crate::time::Span;
use crate::units::{Basis, Kind, Unit};
use crate::yaml::{Entries, Source, Spanned, read_yaml, suggestion};

/// The name of the rule that top-level `activate` and `release` make.
const SHORT_FORM_RULE: &str = "threshold";
/// The kinds of rule that `spec.rules` takes.
const RULE_KINDS: &[&str] = &["threshold"];

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
        .any(|found| found.severity == crate::Severity::Error);
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
        let names = self.signal_names(spec.signals.as_ref());
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
            rules,
            min_run: min_run?,
            min_rest: min_rest?,
            ramp: ramp?,
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

    /// The signals that a file declares, in binding order, with the unit where the kind is known.
    fn signal_names(&self, signals: Option<&Entries<SignalDocument>>) -> Vec<(String, Unit)> {
        let entries = signals.map_or(&[][..], |entries| &entries.0);
        let mut names: Vec<(String, Unit)> = entries
            .iter()
            .take(SIGNALS_MAX)
            .map(|(name, signal)| {
                let unit = Kind::parse(&signal.value.kind.value).map_or(Unit::Plain, Kind::unit);
                (name.value.clone(), unit)
            })
            .collect();
        names.sort();
        names
    }

    fn signals(&mut self, signals: Option<&Entries<SignalDocument>>) -> Option<Vec<SignalBinding>> {
        let entries = signals.map_or(&[][..], |entries| &entries.0);
        if let Some((name, _)) = entries.get(SIGNALS_MAX) {
            let message = format!("{} signals; {SIGNALS_MAX} are allowed", entries.len());
            self.error_at(codes::TOO_LARGE, name, message, "split the policy");
            return None;
        }
        let bindings: Vec<Option<SignalBinding>> = entries
            .iter()
            .map(|(name, signal)| self.signal(name, &signal.value))
            .collect();
        let mut bindings: Vec<SignalBinding> = bindings.into_iter().collect::<Option<_>>()?;
        bindings.sort_by(|a, b| a.name.cmp(&b.name));
        Some(bindings)
    }

    fn signal(&mut self, name: &Spanned<String>, signal: &SignalDocument) -> Option<SignalBinding> {
        let variable = self.variable(name);
        let source = self.source_name(&signal.source);
        let kind = self.word(
            &signal.kind,
            "kind",
            &Kind::ALL.map(|kind| (kind.as_str(), kind)),
        );
        let basis = self.basis(signal.basis.as_ref(), kind);
        let scope = self.scope(signal);
        let max_age = self.duration(&signal.max_age);
        if max_age == Some(Span::ZERO) {
            let help = "set it to a few times the interval at which the source sends";
            self.error_at(
                codes::BAD_DURATION,
                &signal.max_age,
                "with a max_age of 0 no value is ever fresh",
                help,
            );
        }
        let on_missing = self.on_missing(name, signal);
        Some(SignalBinding {
            name: variable?,
            source: source?,
            kind: kind?,
            basis: basis?,
            scope: scope?,
            max_age: max_age?,
            on_missing: on_missing?,
            range: self.source.range_of(name),
        })
    }

    fn variable(&mut self, name: &Spanned<String>) -> Option<String> {
        let text = &name.value;
        let well_formed = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && text.starts_with(|c: char| c.is_ascii_lowercase());
        let reserved = RESERVED.contains(&text.as_str());
        if well_formed && !reserved && text.len() <= NAME_MAX {
            return Some(text.clone());
        }
        let message = if reserved {
            format!(
                "`{text}` means something else in an expression and can't be the name of a signal"
            )
        } else {
            format!("`{text}` can't be the name of a signal")
        };
        let help = format!(
            "use up to {NAME_MAX} of a-z, 0-9 and `_`, beginning with a letter, such as `carbon`"
        );
        self.error_at(codes::BAD_NAME, name, message, help);
        None
    }

    fn source_name(&mut self, source: &Spanned<String>) -> Option<String> {
        if source.value.is_empty() || source.value.len() > SOURCE_NAME_MAX {
            let message = format!("the name of a source has 1 to {SOURCE_NAME_MAX} characters");
            self.error_at(
                codes::BAD_NAME,
                source,
                message,
                "use the name that its readings carry in `source`",
            );
            return None;
        }
        Some(source.value.clone())
    }

    fn basis(
        &mut self,
        basis: Option<&Spanned<String>>,
        kind: Option<Kind>,
    ) -> Option<Option<Basis>> {
        let Some(word) = basis else { return Some(None) };
        let basis = self.word(
            word,
            "basis",
            &Basis::ALL.map(|basis| (basis.as_str(), basis)),
        )?;
        if let Some(kind) = kind.filter(|kind| !basis.fits(*kind)) {
            let fitting: Vec<&str> = Basis::ALL
                .iter()
                .filter(|basis| basis.fits(kind))
                .map(|basis| basis.as_str())
                .collect();
            let help = if fitting.is_empty() {
                "leave `basis` out".to_owned()
            } else {
                format!("leave `basis` out, or use one of {}", fitting.join(", "))
            };
            self.error_at(
                codes::BAD_BASIS,
                word,
                format!("values of {kind} never have the basis {basis}"),
                help,
            );
            return None;
        }
        Some(Some(basis))
    }

    fn scope(&mut self, signal: &SignalDocument) -> Option<BindingScope> {
        let zone = self.word(&signal.scope, "scope", &[("site", false), ("zone", true)])?;
        match (zone, &signal.scheme) {
            (false, None) => Some(BindingScope::Site),
            (true, Some(scheme)) => {
                let known: Vec<(&str, &str)> =
                    SCHEMES.iter().map(|scheme| (*scheme, *scheme)).collect();
                let scheme = self.word(scheme, "scheme", &known)?;
                Some(BindingScope::Zone {
                    scheme: scheme.to_owned(),
                })
            }
            (true, None) => {
                let help = format!("add `scheme`, one of {}", SCHEMES.join(", "));
                self.error_at(
                    codes::BAD_SCOPE,
                    &signal.scope,
                    "a zone needs a scheme",
                    help,
                );
                None
            }
            (false, Some(scheme)) => {
                let help = "remove `scheme`, or write `scope: zone`";
                self.error_at(
                    codes::BAD_SCOPE,
                    scheme,
                    "a signal of the site itself has no scheme",
                    help,
                );
                None
            }
        }
    }

    fn on_missing(&mut self, name: &Spanned<String>, signal: &SignalDocument) -> Option<OnMissing> {
        let Some(document) = &signal.on_missing else {
            let message = format!(
                "signal `{}` does not say what happens when its data is missing or stale",
                name.value
            );
            let help = "add `on_missing: {hold: 10m, then: release}`: what runs is kept for 10 minutes and then \
                        released (or `then: keep`)";
            self.error_at(codes::NO_ON_MISSING, name, message, help);
            return None;
        };
        let hold = self.duration(&document.value.hold);
        let then = self.word(
            &document.value.then,
            "then",
            &[("release", Then::Release), ("keep", Then::Keep)],
        );
        Some(OnMissing {
            hold: hold?,
            then: then?,
        })
    }

    fn rules(
        &mut self,
        spec: &SpecDocument,
        names: &[(String, Unit)],
        signals: Option<&[SignalBinding]>,
    ) -> Option<Vec<CompiledRule>> {
        match (&spec.activate, &spec.rules) {
            (Some(activate), None) => {
                let name = SHORT_FORM_RULE.to_owned();
                let range = self.source.range_of(&activate.value.when);
                let threshold = self.threshold(activate, spec.release.as_ref(), names);
                Some(vec![compiled(name, range, threshold?, signals?)])
            }
            (None, Some(rules)) if spec.release.is_none() => self.rule_list(rules, names, signals),
            (None, None) => {
                let place = spec.release.as_ref().map_or(TextRange::START, |release| {
                    self.source.range_of(&release.value.when)
                });
                let help = "add `activate: {when: ..., for: ...}`, or a list `rules`";
                self.error(
                    codes::BAD_RULES,
                    place,
                    "nothing says when to activate",
                    help,
                );
                None
            }
            (_, Some(rules)) => {
                let help =
                    "move `activate` and `release` into an entry of `rules`, or drop `rules`";
                self.error_at(
                    codes::BAD_RULES,
                    rules,
                    "both `rules` and the short form are given",
                    help,
                );
                None
            }
        }
    }

    fn rule_list(
        &mut self,
        rules: &Spanned<Vec<Spanned<RuleDocument>>>,
        names: &[(String, Unit)],
        signals: Option<&[SignalBinding]>,
    ) -> Option<Vec<CompiledRule>> {
        let list = &rules.value;
        if list.is_empty() || list.len() > RULES_MAX {
            let message = format!("{} rules; 1 to {RULES_MAX} are allowed", list.len());
            let code = if list.is_empty() {
                codes::BAD_RULES
            } else {
                codes::TOO_LARGE
            };
            self.error_at(
                code,
                rules,
                message,
                "add an entry such as `{kind: threshold, name: low, activate: ...}`",
            );
            return None;
        }
        let mut compiled_rules: Vec<Option<CompiledRule>> = Vec::new();
        for (index, rule) in list.iter().enumerate() {
            let rule = &rule.value;
            let earlier = list[..index]
                .iter()
                .find(|earlier| earlier.value.name.value == rule.name.value);
            if let Some(earlier) = earlier {
                let message = format!(
                    "a second rule of this policy is called `{}`",
                    rule.name.value
                );
                let line = self.source.range_of(&earlier.value.name).line;
                let help = format!(
                    "the first is at line {line}; what a rule remembers is kept under its name"
                );
                self.error_at(codes::DUPLICATE_NAME, &rule.name, message, help);
            }
            compiled_rules.push(self.rule(rule, names, signals));
        }
        compiled_rules.into_iter().collect()
    }

    fn rule(
        &mut self,
        rule: &RuleDocument,
        names: &[(String, Unit)],
        signals: Option<&[SignalBinding]>,
    ) -> Option<CompiledRule> {
        let name = self.name(&rule.name, "rule");
        let kinds: Vec<(&str, &str)> = RULE_KINDS.iter().map(|kind| (*kind, *kind)).collect();
        self.word(&rule.kind, "kind", &kinds)?;
        let Some(activate) = &rule.activate else {
            let help = "add `activate: {when: ..., for: ...}`";
            self.error_at(
                codes::BAD_RULES,
                &rule.name,
                "the rule does not say when to activate",
                help,
            );
            return None;
        };
        let threshold = self.threshold(activate, rule.release.as_ref(), names);
        Some(compiled(
            name?,
            self.source.range_of(&rule.name),
            threshold?,
            signals?,
        ))
    }

    /// The two sides; the rule itself is made once the bindings are known to be right.
    fn threshold(
        &mut self,
        activate: &Spanned<ConditionDocument>,
        release: Option<&Spanned<ConditionDocument>>,
        names: &[(String, Unit)],
    ) -> Option<(Side, Option<Side>)> {
        let activate = self.side(&activate.value, names);
        let release = release.map(|release| self.side(&release.value, names));
        Some((
            activate?,
            match release {
                None => None,
                Some(side) => Some(side?),
            },
        ))
    }

    fn side(&mut self, document: &ConditionDocument, names: &[(String, Unit)]) -> Option<Side> {
        let held_for = self.optional_duration(document.held_for.as_ref());
        let names: Vec<(&str, Unit)> = names
            .iter()
            .map(|(name, unit)| (name.as_str(), *unit))
            .collect();
        match Condition::compile(&document.when.value, Scope { signals: &names }) {
            Ok(when) => Some(Side {
                when,
                held_for: held_for?,
            }),
            Err(findings) => {
                for finding in findings {
                    let range = self.source.range_within(&document.when, finding.span);
                    let mut found =
                        Diagnostic::error(finding.code, self.source.file(), range, finding.message);
                    found.help = finding.help;
                    self.diagnostics.push(found);
                }
                None
            }
        }
    }

    fn ramp(&mut self, ramp: Option<&Spanned<RampDocument>>) -> Option<Ramp> {
        let Some(ramp) = ramp else {
            return Some(Ramp::default());
        };
        if ramp.value.up.is_none() && ramp.value.down.is_none() {
            let help = "add `up: {workers: 1, every: 5m}` or `down`, or remove `ramp`";
            self.error_at(
                codes::BAD_RAMP,
                ramp,
                "the ramp has neither `up` nor `down`",
                help,
            );
            return None;
        }
        let up = self.ramp_step(ramp.value.up.as_ref());
        let down = self.ramp_step(ramp.value.down.as_ref());
        Some(Ramp {
            up: up?,
            down: down?,
        })
    }

    fn ramp_step(&mut self, step: Option<&Spanned<RampStepDocument>>) -> Option<Option<RampStep>> {
        let Some(step) = step else { return Some(None) };
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
        Some(Some(RampStep {
            workers: step.value.workers,
            every,
        }))
    }

    fn warn_of_unused(&mut self, signals: &[SignalBinding], rules: &[CompiledRule]) {
        let read = rules
            .iter()
            .fold(SignalSet::EMPTY, |set, rule| set.union(rule.rule.signals()));
        for (_, binding) in signals
            .iter()
            .enumerate()
            .filter(|(index, _)| !read.contains(*index))
        {
            let message = format!("no rule reads the signal `{}`", binding.name);
            let found = Diagnostic::warning(
                codes::UNUSED_SIGNAL,
                self.source.file(),
                binding.range,
                message,
            );
            self.diagnostics
                .push(found.with_help("remove it, or use it in a condition"));
        }
    }
}

fn compiled(
    name: String,
    range: TextRange,
    (activate, release): (Side, Option<Side>),
    signals: &[SignalBinding],
) -> CompiledRule {
    let hash = rule_hash(&activate, release.as_ref(), signals);
    let on_missing = signals.iter().map(|binding| binding.on_missing).collect();
    let rule: Arc<dyn Rule> = Arc::new(Threshold::new(activate, release, on_missing));
    CompiledRule {
        name,
        hash,
        rule,
        range,
    }
}

/// Of everything that a threshold's memory depends on: conditions and times, and what it reads.
fn rule_hash(activate: &Side, release: Option<&Side>, signals: &[SignalBinding]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut field = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    };
    field("threshold 1");
    let mut read = SignalSet::EMPTY;
    for side in [Some(activate), release].into_iter().flatten() {
        field(side.when.text());
        field(&side.held_for.as_millis().to_string());
        read = read.union(side.when.signals());
    }
    for binding in read.iter().filter_map(|index| signals.get(index)) {
        field(&binding.name);
        field(&binding.source);
        field(binding.kind.as_str());
        field(binding.basis.map_or("", Basis::as_str));
        match &binding.scope {
            BindingScope::Site => field("site"),
            BindingScope::Zone { scheme } => field(scheme),
        }
        field(&binding.max_age.as_millis().to_string());
        field(&binding.on_missing.hold.as_millis().to_string());
        field(if binding.on_missing.then == Then::Release {
            "release"
        } else {
            "keep"
        });
    }
    hasher.finalize().into()
}
