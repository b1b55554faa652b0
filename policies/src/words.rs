//! The words that keys of a policy file take: one table each, read by the compiler and by the JSON schema, so that a
//! word can't exist in one of them alone.

use crate::calendar::Period;
use crate::policy::{BudgetScope, Measure, Mode, OnEstimated, Then};

/// A table of words.
pub(crate) type Words<T> = &'static [(&'static str, T)];

/// `spec.mode`.
pub(crate) const MODES: Words<Mode> = &[("enforce", Mode::Enforce), ("observe", Mode::Observe)];
/// `on_missing.then` of a signal.
pub(crate) const THENS: Words<Then> = &[("release", Then::Release), ("keep", Then::Keep)];
/// `on_estimated` of a signal.
pub(crate) const ON_ESTIMATED: Words<OnEstimated> =
    &[("use", OnEstimated::Use), ("missing", OnEstimated::Missing)];
/// `scope` of a signal: whether it is that of a zone.
pub(crate) const SIGNAL_SCOPES: Words<bool> = &[("site", false), ("zone", true)];
/// `kind` of a rule.
pub(crate) const RULE_KINDS: Words<()> = &[("threshold", ())];
/// `expect` of a window.
pub(crate) const EXPECTS: Words<Expect> = &[
    ("forecast", Expect::Forecast),
    ("schedule", Expect::Schedule),
    ("guarantee", Expect::Guarantee),
];
/// `per` of a budget.
pub(crate) const PERIODS: Words<Period> = &[
    ("hour", Period::Hour),
    ("day", Period::Day),
    ("week", Period::Week),
    ("month", Period::Month),
    ("year", Period::Year),
];
/// `scope` of a budget.
pub(crate) const BUDGET_SCOPES: Words<BudgetScope> = &[
    ("fleet", BudgetScope::Fleet),
    ("site", BudgetScope::Site),
    ("federation", BudgetScope::Federation),
    ("pool", BudgetScope::Pool),
];
/// `on_missing` of a floor: whether it may start a site whose signals are missing.
pub(crate) const FLOOR_ON_MISSING: Words<bool> = &[("keep", false), ("run", true)];
/// The units of limits beside the currencies: what one counts, and how many of the measure's integer unit it is.
pub(crate) const LIMIT_UNITS: Words<(Measure, i64)> = &[
    ("workers", (Measure::Workers, 1)),
    ("worker", (Measure::Workers, 1)),
    ("kW", (Measure::Power, 1_000)),
    ("MW", (Measure::Power, 1_000_000)),
    ("kWh", (Measure::Energy, 1_000_000)),
    ("MWh", (Measure::Energy, 1_000_000_000)),
    ("GWh", (Measure::Energy, 1_000_000_000_000)),
    ("kgCO2e", (Measure::Carbon, 1_000_000)),
    ("tCO2e", (Measure::Carbon, 1_000_000_000)),
];
/// The unit of the work of a deadline, and its other form.
pub(crate) const WORK_UNITS: &[&str] = &["worker-hours", "worker-hour"];

/// A word of `expect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// By what the sources have issued.
    Forecast,
    /// By a calendar.
    Schedule,
    /// By what the partner guarantees.
    Guarantee,
}

impl Measure {
    /// What it counts, in words.
    pub(crate) const fn counts(self) -> &'static str {
        match self {
            Measure::Workers => "workers",
            Measure::Power => "power",
            Measure::Energy => "energy",
            Measure::Carbon => "emissions",
            Measure::Money => "money",
        }
    }

    /// Whether it adds up over a period, rather than holding at any instant.
    pub(crate) const fn has_period(self) -> bool {
        matches!(self, Measure::Energy | Measure::Carbon | Measure::Money)
    }

    /// Whether the energy is weighed by a signal.
    pub(crate) const fn is_weighed(self) -> bool {
        matches!(self, Measure::Carbon | Measure::Money)
    }
}
