//! The rules of a policy, in both forms, and what their memories depend on.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::Compiler;
use crate::codes;
use crate::diagnostic::{Diagnostic, TextRange};
use crate::document::{ConditionDocument, RULES_MAX, RuleDocument, SpecDocument};
use crate::expr::{Condition, Scope};
use crate::policy::{BindingScope, CompiledRule, SignalBinding, Then};
use crate::rules::threshold::{Side, Threshold, ThresholdParts};
use crate::rules::{Rule, SignalSet};
use crate::units::{Basis, Unit};
use crate::yaml::Spanned;

/// The name of the rule that top-level `activate` and `release` make.
const SHORT_FORM_RULE: &str = "threshold";
/// The kinds of rule that `spec.rules` takes.
const RULE_KINDS: &[&str] = &["threshold"];

impl Compiler<'_> {
    pub(super) fn rules(
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
        match Condition::compile(
            &document.when.value,
            Scope {
                signals: &names,
                calendars: &[],
            },
        ) {
            Ok(when) => Some(Side {
                when,
                held_for: held_for?,
                samples: 0,
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
}

fn compiled(
    name: String,
    range: TextRange,
    (activate, release): (Side, Option<Side>),
    signals: &[SignalBinding],
) -> CompiledRule {
    let hash = rule_hash(&activate, release.as_ref(), signals);
    let on_missing = signals.iter().map(|binding| binding.on_missing).collect();
    let rule: Arc<dyn Rule> = Arc::new(Threshold::new(ThresholdParts {
        activate,
        release,
        window: None,
        workers: None,
        on_missing,
    }));
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
