//! The `budgets` of a policy.

use chrono_tz::Tz;

use super::Compiler;
use super::amounts::{Limit, split};
use super::names::Names;
use crate::calendar::Recurrence;
use crate::codes;
use crate::document::{BUDGETS_MAX, BudgetDocument};
use crate::policy::{Budget, Measure, Weight};
use crate::rules::SignalSet;
use crate::units::{Kind, UnitError};
use crate::words::{BUDGET_SCOPES, PERIODS};
use crate::yaml::{Spanned, suggestion};

impl Compiler<'_> {
    pub(super) fn budgets(
        &mut self,
        budgets: Option<&Spanned<Vec<Spanned<BudgetDocument>>>>,
        names: &Names<'_>,
    ) -> Option<Vec<Budget>> {
        self.list(
            budgets,
            ("budget", BUDGETS_MAX),
            |budget| &budget.name,
            |compiler, budget| compiler.budget(budget, names),
        )
    }

    fn budget(&mut self, budget: &Spanned<BudgetDocument>, names: &Names<'_>) -> Option<Budget> {
        let document = &budget.value;
        let name = self.name(&document.name, "budget");
        let limit = self.limit(&document.limit);
        let scope = self.word(&document.scope, "scope", BUDGET_SCOPES);
        let per = match &document.per {
            None => Some(None),
            Some(word) => self.word(word, "per", PERIODS).map(Some),
        };
        let zone = match &document.time_zone {
            None => Some(Tz::UTC),
            Some(zone) => self.time_zone(zone),
        };
        // What the other keys have to be depends on what is counted.
        let limit = limit?;
        let fits = self.period_fits(document, &limit);
        let weight = self.weight(document, &limit, names);
        let (per, zone) = (per?, zone?);
        fits?;
        Some(Budget {
            name: name?,
            measure: limit.measure,
            limit: limit.amount,
            unit: limit.unit,
            period: per.map(|period| Recurrence { period, zone }),
            scope: scope?,
            weight,
            range: self.source.range_of(&document.name),
        })
    }

    /// Energy, emissions and money have a period; workers and power have none.
    fn period_fits(&mut self, document: &BudgetDocument, limit: &Limit) -> Option<()> {
        let counted = limit.measure.counts();
        match (&document.per, limit.measure.has_period()) {
            (None, true) => {
                let message = format!("a limit of {counted} needs the period that it is for");
                let help = "add `per: day` (or hour, week, month, year), and `time_zone` where it does not begin in UTC";
                self.error_at(codes::BAD_BUDGET, &document.limit, message, help);
                None
            }
            (Some(per), false) => {
                let message =
                    format!("a limit of {counted} holds at any instant and has no period");
                let help = match limit.measure {
                    Measure::Power => format!(
                        "remove `per`, or limit energy: `{}h`",
                        document.limit.value.trim()
                    ),
                    _ => "remove `per`".to_owned(),
                };
                self.error_at(codes::BAD_BUDGET, per, message, help);
                None
            }
            (None, false) => match &document.time_zone {
                Some(zone) => {
                    let message =
                        format!("a limit of {counted} has no period that a zone could begin");
                    self.error_at(codes::BAD_BUDGET, zone, message, "remove `time_zone`");
                    None
                }
                None => Some(()),
            },
            (Some(_), true) => Some(()),
        }
    }

    /// The signal that weighs the energy, for emissions and money alone. `None` where there is none, and where it is
    /// wrong: then the policy is refused as a whole.
    fn weight(
        &mut self,
        document: &BudgetDocument,
        limit: &Limit,
        names: &Names<'_>,
    ) -> Option<Weight> {
        let counted = limit.measure.counts();
        let kind = match limit.measure {
            Measure::Carbon => Kind::CarbonIntensity,
            Measure::Money => Kind::EnergyPrice,
            _ => {
                for (key, value) in [("signal", &document.signal), ("assume", &document.assume)] {
                    let Some(value) = value else { continue };
                    let message = format!("a limit of {counted} is not weighed by a signal");
                    let help = format!("remove `{key}`, or limit emissions or money");
                    self.error_at(codes::BAD_BUDGET, value, message, help);
                }
                return None;
            }
        };
        let signal = if let Some(signal) = &document.signal {
            self.weighing_signal(signal, kind, names)
        } else {
            let message = format!("a limit of {counted} needs the signal that weighs the energy");
            let help = match names.signals_of(kind).first() {
                Some(name) => format!("add `signal: {name}`"),
                None => format!("declare a signal of the kind {kind} and add `signal: NAME`"),
            };
            self.error_at(codes::BAD_BUDGET, &document.limit, message, help);
            None
        };
        let assume = if let Some(assume) = &document.assume {
            self.assume(assume, kind, limit)
        } else {
            let message =
                format!("a limit of {counted} needs `assume`: missing data is never free");
            let help = format!(
                "add what counts while the signal has no fresh value, such as `assume: {}` (in {})",
                example_of(kind),
                unit_of(kind, limit),
            );
            self.error_at(codes::NO_ASSUME, &document.limit, message, help);
            None
        };
        let (signal, assume) = (signal?, assume?);
        Some(Weight { signal, assume })
    }

    fn weighing_signal(
        &mut self,
        name: &Spanned<String>,
        kind: Kind,
        names: &Names<'_>,
    ) -> Option<usize> {
        let Some((index, found)) = names.signal(&name.value) else {
            let message = format!("this policy has no signal `{}`", name.value);
            let help = if names.signal_names().is_empty() {
                format!("declare a signal of the kind {kind} under `signals`")
            } else {
                suggestion(&name.value, &names.signal_names(), "signals")
            };
            self.error_at(codes::UNKNOWN_NAME, name, message, help);
            return None;
        };
        self.signals_read = self.signals_read.union(SignalSet::of(index));
        // A kind that is no kind has been told of.
        let found = found?;
        if found == kind {
            return Some(index);
        }
        let message = format!(
            "`{}` is of the kind {found}, and this limit is weighed by {kind}",
            name.value
        );
        let help = match names.signals_of(kind).first() {
            Some(other) => format!("write `signal: {other}`"),
            None => format!("declare a signal of the kind {kind} and name it here"),
        };
        self.error_at(codes::BAD_BUDGET, name, message, help);
        None
    }

    /// What counts while the signal has no fresh value, in its canonical unit.
    fn assume(&mut self, text: &Spanned<String>, kind: Kind, limit: &Limit) -> Option<f64> {
        let (number, unit) = split(&text.value);
        let canonical = unit_of(kind, limit);
        let help = format!(
            "write a number above 0, in {canonical}, such as `{}`",
            example_of(kind)
        );
        let Ok(value) = number.parse::<f64>() else {
            let message = format!("`{}` is not a number", text.value);
            self.error_at(codes::NO_ASSUME, text, message, help);
            return None;
        };
        if kind == Kind::EnergyPrice
            && let Some((currency, _)) = unit.split_once('/')
            && currency != limit.unit
        {
            let message = format!("`{}` is not in the currency of the limit", text.value);
            let help = format!("write it in {canonical}");
            self.error_at(codes::NO_ASSUME, text, message, help);
            return None;
        }
        let unit = if unit.is_empty() { &canonical } else { unit };
        match kind.convert(value, unit) {
            Ok(value) if value > 0.0 => Some(value),
            Ok(_) => {
                let message = "what is assumed has to be above 0: missing data is never free";
                self.error_at(codes::NO_ASSUME, text, message, help);
                None
            }
            Err(error) => {
                let message = match error {
                    UnitError::Unknown { unit, kind } => {
                        format!("`{unit}` is not a unit of {kind}")
                    }
                    UnitError::NotFinite { .. } => format!("`{}` is too large", text.value),
                };
                self.error_at(codes::NO_ASSUME, text, message, help);
                None
            }
        }
    }
}

/// A pessimistic value: of a grid on coal, and of a scarce hour.
const fn example_of(kind: Kind) -> u32 {
    match kind {
        Kind::EnergyPrice => 300,
        _ => 900,
    }
}

/// The unit that a bare number of `assume` is in.
fn unit_of(kind: Kind, limit: &Limit) -> String {
    match kind {
        Kind::EnergyPrice => format!("{}/MWh", limit.unit),
        other => other.unit().as_str().to_owned(),
    }
}
