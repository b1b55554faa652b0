//! The rules of a policy, in both forms.

use std::sync::Arc;

use super::Compiler;
use super::hash::rule_hash;
use super::names::Names;
use crate::codes;
use crate::diagnostic::TextRange;
use crate::document::{
    ConditionDocument, RULES_MAX, RuleDocument, SAMPLES_MAX, SpecDocument, WindowDocument,
};
use crate::expr::{Condition, Expected, Quantity};
use crate::policy::{CompiledRule, SignalBinding};
use crate::rules::Rule;
use crate::rules::threshold::{Side, Threshold, ThresholdParts};
use crate::words::RULE_KINDS;
use crate::yaml::Spanned;

/// The name of the rule that top-level `activate` and `release` make.
const SHORT_FORM_RULE: &str = "threshold";

/// What all rules of a policy share.
struct Shared<'a> {
    names: &'a Names<'a>,
    /// `None` where one of them is wrong.
    signals: Option<&'a [SignalBinding]>,
    workers: Option<Quantity>,
}

/// A rule as the file writes it.
#[derive(Clone, Copy)]
struct Written<'d> {
    activate: &'d ConditionDocument,
    release: Option<&'d Spanned<ConditionDocument>>,
    window: Option<&'d Spanned<WindowDocument>>,
}

impl Compiler<'_> {
    pub(super) fn rules(
        &mut self,
        spec: &SpecDocument,
        names: &Names<'_>,
        signals: Option<&[SignalBinding]>,
    ) -> Option<Vec<CompiledRule>> {
        let shared = Shared {
            names,
            signals,
            workers: self.optional_quantity(spec.workers.as_ref(), names, Expected::Workers),
        };
        let short = spec.activate.is_some() || spec.release.is_some() || spec.window.is_some();
        match (&spec.activate, &spec.rules) {
            (Some(activate), None) => {
                let range = self.source.range_of(&activate.value.when);
                let written = Written {
                    activate: &activate.value,
                    release: spec.release.as_ref(),
                    window: spec.window.as_ref(),
                };
                let rule = self.threshold(SHORT_FORM_RULE.to_owned(), range, written, &shared);
                Some(vec![rule?])
            }
            (None, Some(rules)) if !short => self.rule_list(rules, &shared),
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
                let help = "move `activate`, `release` and `window` into an entry of `rules`, or drop `rules`";
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
        shared: &Shared<'_>,
    ) -> Option<Vec<CompiledRule>> {
        if rules.value.is_empty() {
            let help = "add an entry such as `{kind: threshold, name: low, activate: ...}`";
            self.error_at(codes::BAD_RULES, rules, "the list of rules is empty", help);
            return None;
        }
        self.list(
            Some(rules),
            ("rule", RULES_MAX),
            |rule| &rule.name,
            |compiler, rule| compiler.rule(&rule.value, shared),
        )
    }

    fn rule(&mut self, rule: &RuleDocument, shared: &Shared<'_>) -> Option<CompiledRule> {
        let name = self.name(&rule.name, "rule");
        self.word(&rule.kind, "kind", RULE_KINDS)?;
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
        let written = Written {
            activate: &activate.value,
            release: rule.release.as_ref(),
            window: rule.window.as_ref(),
        };
        let range = self.source.range_of(&rule.name);
        // Compiled under any name, so that its other mistakes are told, too.
        let compiled = self.threshold(rule.name.value.clone(), range, written, shared)?;
        name.map(|_| compiled)
    }

    fn threshold(
        &mut self,
        name: String,
        range: TextRange,
        written: Written<'_>,
        shared: &Shared<'_>,
    ) -> Option<CompiledRule> {
        let activate = self.side(written.activate, shared.names);
        let release = match written.release {
            None => Some(None),
            Some(release) => self.side(&release.value, shared.names).map(Some),
        };
        let window = match written.window {
            None => Some(None),
            Some(window) => {
                // Without a release condition the window ends when the activate condition turns false.
                let ending: Option<&Condition> = match (&activate, &release) {
                    (_, Some(Some(release))) => Some(&release.when),
                    (Some(activate), Some(None)) => Some(&activate.when),
                    _ => None,
                };
                self.window(&window.value, ending, shared.names).map(Some)
            }
        };
        let signals = shared.signals?;
        let parts = ThresholdParts {
            activate: activate?,
            release: release?,
            window: window?,
            workers: shared.workers.clone(),
            on_missing: signals.iter().map(|binding| binding.on_missing).collect(),
        };
        let hash = rule_hash(&parts, signals, shared.names);
        let rule: Arc<dyn Rule> = Arc::new(Threshold::new(parts));
        Some(CompiledRule {
            name,
            hash,
            rule,
            range,
        })
    }

    fn side(&mut self, document: &ConditionDocument, names: &Names<'_>) -> Option<Side> {
        let held_for = self.optional_duration(document.held_for.as_ref());
        let when = self.condition(&document.when, names);
        let samples = self.samples(document.samples.as_ref(), when.as_ref());
        Some(Side {
            when: when?,
            held_for: held_for?,
            samples: samples?,
        })
    }

    /// How many readings in a row a condition has to hold for; one where it is not said.
    fn samples(&mut self, samples: Option<&Spanned<u32>>, when: Option<&Condition>) -> Option<u32> {
        let Some(samples) = samples else {
            return Some(1);
        };
        if !(1..=SAMPLES_MAX).contains(&samples.value) {
            let message = format!("{} readings in a row can't be counted", samples.value);
            let help = format!("write 1 to {SAMPLES_MAX}, or leave `samples` out");
            self.error_at(codes::BAD_SAMPLES, samples, message, help);
            return None;
        }
        if when.is_some_and(|when| when.signals().is_empty()) {
            let message = "the condition reads no signal, so there are no readings to count";
            let help = "write `for: 10m` in place of `samples`";
            self.error_at(codes::BAD_SAMPLES, samples, message, help);
            return None;
        }
        Some(samples.value)
    }
}
