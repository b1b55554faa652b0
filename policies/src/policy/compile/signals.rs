//! The `signals` of a policy.

use super::Compiler;
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::document::{NAME_MAX, SCHEMES, SOURCE_NAME_MAX, SignalDocument};
use crate::expr::RESERVED;
use crate::policy::{BindingScope, CompiledRule, OnEstimated, OnMissing, SignalBinding, Then};
use crate::rules::{SIGNALS_MAX, SignalSet};
use crate::time::Span;
use crate::units::{Basis, Kind, Unit};
use crate::yaml::{Entries, Spanned};

impl Compiler<'_> {
    /// The signals that a file declares, in binding order, with the unit where the kind is known.
    pub(super) fn signal_names(signals: Option<&Entries<SignalDocument>>) -> Vec<(String, Unit)> {
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

    pub(super) fn signals(
        &mut self,
        signals: Option<&Entries<SignalDocument>>,
    ) -> Option<Vec<SignalBinding>> {
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
            basis,
            scope: scope?,
            max_age: max_age?,
            on_missing: on_missing?,
            on_estimated: OnEstimated::default(),
            forecast_max_age: None,
            add_back_own_draw: false,
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

    /// `None` where there is none, and where it is wrong: then the policy is refused as a whole.
    fn basis(&mut self, basis: Option<&Spanned<String>>, kind: Option<Kind>) -> Option<Basis> {
        let word = basis?;
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
        Some(basis)
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

    pub(super) fn warn_of_unused(&mut self, signals: &[SignalBinding], rules: &[CompiledRule]) {
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
