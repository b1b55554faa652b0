//! The `signals` of a policy.

use super::Compiler;
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::document::{NAME_MAX, SCHEMES, SOURCE_NAME_MAX, SignalDocument};
use crate::expr::RESERVED;
use crate::policy::{BindingScope, CalendarBinding, OnEstimated, OnMissing, SignalBinding};
use crate::rules::SIGNALS_MAX;
use crate::units::{Basis, Kind, Unit};
use crate::words::{ON_ESTIMATED, SIGNAL_SCOPES, THENS};
use crate::yaml::{Entries, Spanned};

impl Compiler<'_> {
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
        let variable = self.variable(name, "signal");
        let source = self.source_name(&signal.source);
        let kind = self.word(
            &signal.kind,
            "kind",
            &Kind::ALL.map(|kind| (kind.as_str(), kind)),
        );
        let basis = self.basis(signal.basis.as_ref(), kind);
        let scope = self.scope(signal);
        let max_age = self.positive_duration(
            &signal.max_age,
            "with a max_age of 0 no value is ever fresh",
            "set it to a few times the interval at which the source sends",
        );
        let on_missing = self.on_missing(name, signal);
        let on_estimated = match &signal.on_estimated {
            None => Some(OnEstimated::default()),
            Some(word) => self.word(word, "on_estimated", ON_ESTIMATED),
        };
        let forecast_max_age = match &signal.forecast_max_age {
            None => Some(None),
            Some(text) => self
                .positive_duration(
                    text,
                    "with a forecast_max_age of 0 no forecast is ever believed",
                    "set it to the time between two issues of the forecast and some spare, such as `26h` for a daily \
                     one, or leave it out to not look ahead",
                )
                .map(Some),
        };
        let add_back_own_draw = self.add_back(signal, kind, scope.as_ref());
        Some(SignalBinding {
            name: variable?,
            source: source?,
            kind: kind?,
            basis,
            scope: scope?,
            max_age: max_age?,
            on_missing: on_missing?,
            on_estimated: on_estimated?,
            forecast_max_age: forecast_max_age?,
            add_back_own_draw: add_back_own_draw?,
            range: self.source.range_of(name),
        })
    }

    /// Only a meter of power at the site can include what the site's own pools draw.
    fn add_back(
        &mut self,
        signal: &SignalDocument,
        kind: Option<Kind>,
        scope: Option<&BindingScope>,
    ) -> Option<bool> {
        let Some(add_back) = signal.add_back_own_draw.as_ref().filter(|key| key.value) else {
            return Some(false);
        };
        let message = match (kind, scope) {
            (Some(kind), _) if kind.unit() != Unit::Kilowatt => format!(
                "our own draw is in kW, and `{kind}` is in {}: it can't be added",
                kind.unit()
            ),
            (_, Some(BindingScope::Zone { .. })) => {
                "our own draw is that of one site, and this signal is of a whole zone".to_owned()
            }
            _ => return Some(true),
        };
        let help = "remove `add_back_own_draw`: it is for site meters, of the kinds surplus_power, curtailment_power \
                    and import_limit with `scope: site`";
        self.error_at(codes::BAD_ADD_BACK, add_back, message, help);
        None
    }

    /// The name of a variable in expressions.
    pub(super) fn variable(&mut self, name: &Spanned<String>, what: &str) -> Option<String> {
        let text = &name.value;
        let well_formed = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && text.starts_with(|c: char| c.is_ascii_lowercase());
        // A calendar's variable has a prefix, so it can't be taken for another word.
        let reserved = what == "signal" && RESERVED.contains(&text.as_str());
        if well_formed && !reserved && text.len() <= NAME_MAX {
            return Some(text.clone());
        }
        let message = if reserved {
            format!(
                "`{text}` means something else in an expression and can't be the name of a signal"
            )
        } else {
            format!("`{text}` can't be the name of a {what}")
        };
        let example = if what == "signal" { "carbon" } else { "night" };
        let help = format!(
            "use up to {NAME_MAX} of a-z, 0-9 and `_`, beginning with a letter, such as `{example}`"
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
        let zone = self.word(&signal.scope, "scope", SIGNAL_SCOPES)?;
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
        let then = self.word(&document.value.then, "then", THENS);
        Some(OnMissing {
            hold: hold?,
            then: then?,
        })
    }

    /// Tells of signals and calendars that nothing of the policy reads.
    pub(super) fn warn_of_unused(
        &mut self,
        signals: &[SignalBinding],
        calendars: &[CalendarBinding],
    ) {
        let unused_signals = signals
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.signals_read.contains(*index))
            .map(|(_, binding)| {
                let message = format!("nothing reads the signal `{}`", binding.name);
                let help = "remove it, or use it in a condition".to_owned();
                (codes::UNUSED_SIGNAL, binding.range, message, help)
            });
        let unused_calendars = calendars
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.calendars_read.contains(*index))
            .map(|(_, binding)| {
                let name = &binding.name;
                let message = format!("nothing reads the calendar `{name}`");
                let help = format!(
                    "remove it, or use it: `calendar.{name}` in a condition, or `calendar: {name}` in a window"
                );
                (codes::UNUSED_CALENDAR, binding.range, message, help)
            });
        for (code, range, message, help) in unused_signals.chain(unused_calendars) {
            let found = Diagnostic::warning(code, self.source.file(), range, message);
            self.diagnostics.push(found.with_help(help));
        }
    }
}
