//! What a rule may look at: the signals it bound, and the facts of the pool it judges.
//!
//! [`TABLE`] is the one list of variables beside the signals; the checker, the documentation and the evaluator read
//! it, so that a name can't exist in one of them alone.

use std::fmt;

use crate::time::{Span, Timestamp};
use crate::units::Unit;

/// One signal as the board sees it at the instant of judging. Only a fresh value is evaluated; a stale one is kept
/// for the explanation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// Within its interval and its max age.
    Fresh {
        /// In the canonical unit of the signal's kind.
        value: f64,
    },
    /// Within its interval, but older than the policy allows. Shown, never evaluated.
    Stale {
        /// In the canonical unit of the signal's kind.
        value: f64,
    },
    /// No interval covers this instant, or a record says that there is no value.
    Missing,
}

/// The pool that is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolFacts {
    /// Workers that the ledger last asked for.
    pub wanted: u32,
    /// Workers observed ready.
    pub ready: u32,
    /// The fewest workers that the fleet allows.
    pub min: u32,
    /// The most workers that the fleet allows.
    pub max: u32,
    /// What one worker draws while it trains, kW.
    pub training_kw: f64,
    /// Expected from a request to a worker that can train.
    pub ready_after: Span,
    /// What the site may draw, kW, where the fleet file says so.
    pub site_power_limit_kw: Option<f64>,
}

/// A calendar at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarFact {
    /// Whether one of its windows is open.
    pub open: bool,
    /// The first instant after it at which that changes; `None`: never, as far as the calendar reaches.
    pub until: Option<Timestamp>,
}

/// What a signal is said to be at an instant ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// By the issues known now; `Missing` where none is believed.
    pub reading: Reading,
    /// The first later instant at which another issue, or none, is said to hold; `None`: nothing later is known.
    pub until: Option<Timestamp>,
}

/// A look ahead: what is known now about later instants.
pub trait Outlook: fmt::Debug {
    /// A signal, by its index among the policy's bindings, at an instant that is not before now.
    fn signal(&self, index: usize, at: Timestamp) -> Ahead;

    /// A calendar, by its index among the policy's calendars, at an instant that is not before now.
    fn calendar(&self, index: usize, at: Timestamp) -> CalendarFact;
}

/// Nothing is known ahead.
#[derive(Clone, Copy, Debug)]
pub struct NoOutlook;

impl Outlook for NoOutlook {
    fn signal(&self, _: usize, _: Timestamp) -> Ahead {
        Ahead {
            reading: Reading::Missing,
            until: None,
        }
    }

    fn calendar(&self, _: usize, _: Timestamp) -> CalendarFact {
        CalendarFact {
            open: false,
            until: None,
        }
    }
}

/// Everything a rule may look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The instant of judging, in engine time.
    pub now: Timestamp,
    /// One reading per binding of the policy, in the order of [`crate::Policy::signals`].
    pub readings: &'a [Reading],
    /// One per binding: how many readings its stream has had so far, for conditions that count samples.
    pub samples: &'a [u64],
    /// One per calendar of the policy, in the order of [`crate::Policy::calendars`].
    pub calendars: &'a [CalendarFact],
    /// What is known ahead.
    pub outlook: &'a dyn Outlook,
    /// The pool that is judged.
    pub pool: PoolFacts,
}

/// A variable beside the signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variable {
    /// `pool.wanted_workers`.
    WantedWorkers,
    /// `pool.ready_workers`.
    ReadyWorkers,
    /// `pool.min_workers`.
    MinWorkers,
    /// `pool.max_workers`.
    MaxWorkers,
    /// `pool.training_kw`.
    TrainingKw,
    /// `site.power_limit_kw`.
    SitePowerLimitKw,
}

/// One row of [`TABLE`].
#[derive(Clone, Copy, Debug)]
pub struct VariableRow {
    /// Which one.
    pub variable: Variable,
    /// The name in an expression.
    pub name: &'static str,
    /// Its unit; all are numbers.
    pub unit: Unit,
    /// One line for the documentation.
    pub doc: &'static str,
}

/// Every variable beside the signals.
pub const TABLE: &[VariableRow] = &[
    VariableRow {
        variable: Variable::WantedWorkers,
        name: "pool.wanted_workers",
        unit: Unit::Worker,
        doc: "workers that were last asked for",
    },
    VariableRow {
        variable: Variable::ReadyWorkers,
        name: "pool.ready_workers",
        unit: Unit::Worker,
        doc: "workers observed ready",
    },
    VariableRow {
        variable: Variable::MinWorkers,
        name: "pool.min_workers",
        unit: Unit::Worker,
        doc: "the fewest workers that the fleet file allows",
    },
    VariableRow {
        variable: Variable::MaxWorkers,
        name: "pool.max_workers",
        unit: Unit::Worker,
        doc: "the most workers that the fleet file allows",
    },
    VariableRow {
        variable: Variable::TrainingKw,
        name: "pool.training_kw",
        unit: Unit::Kilowatt,
        doc: "what one worker draws while it trains",
    },
    VariableRow {
        variable: Variable::SitePowerLimitKw,
        name: "site.power_limit_kw",
        unit: Unit::Kilowatt,
        doc: "what the site may draw; unknown where the fleet file gives no limit",
    },
];

impl<'a> Facts<'a> {
    /// Without calendars, samples and outlook.
    pub fn present(now: Timestamp, readings: &'a [Reading], pool: PoolFacts) -> Facts<'a> {
        Facts {
            now,
            readings,
            samples: &[],
            calendars: &[],
            outlook: &NoOutlook,
            pool,
        }
    }

    /// The value of a variable; NaN where it is unknown.
    pub fn variable(&self, variable: Variable) -> f64 {
        match variable {
            Variable::WantedWorkers => f64::from(self.pool.wanted),
            Variable::ReadyWorkers => f64::from(self.pool.ready),
            Variable::MinWorkers => f64::from(self.pool.min),
            Variable::MaxWorkers => f64::from(self.pool.max),
            Variable::TrainingKw => self.pool.training_kw,
            Variable::SitePowerLimitKw => self.pool.site_power_limit_kw.unwrap_or(f64::NAN),
        }
    }

    /// The fresh value of a signal; NaN where it is stale, missing or not finite.
    #[inline]
    pub fn signal(&self, index: usize) -> f64 {
        match self.readings.get(index) {
            Some(Reading::Fresh { value }) if value.is_finite() => *value,
            _ => f64::NAN,
        }
    }
}
