//! The policy language: files, expressions, rules and their verdicts. Pure: no I/O, no clock.
//!
//! A text goes in by [`PolicySet::compile`]; out come either every diagnostic of every file, or a set of
//! [`Policy`] whose rules judge [`Facts`] into a [`Verdict`]. Nothing here reads a file, a clock, an environment
//! variable or a random number: time is an argument, and the same arguments give the same answer on any machine.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`time`], [`units`] | integer milliseconds in UTC; kinds of signal, their canonical units and the conversions |
//! | [`diagnostic`], [`codes`], [`yaml`] | what is wrong with a text, where, and how to mend it; rendering lives here alone |
//! | [`document`], [`schema`] | the file format, and its JSON schema for editors |
//! | [`facts`] | what a rule may look at, and the table of variables |
//! | [`calendar`] | windows that recur and periods of budgets, in named time zones |
//! | [`expr`] | conditions: CEL syntax, checked for types and units, three-valued evaluation |
//! | [`rules`] | one file per kind of rule; a rule's memory, verdict and reason |
//! | [`policy`] | from files to a compiled [`PolicySet`] |
//! | [`lint`] | what is valid but wrong |
//! | [`mod@arbitrate`] | many verdicts, one winner per pool |

pub mod arbitrate;
pub mod calendar;
pub mod codes;
pub mod diagnostic;
pub mod document;
pub mod expr;
pub mod facts;
pub mod lint;
pub mod policy;
pub mod rules;
pub mod schema;
pub mod time;
pub mod units;
mod words;
pub mod yaml;

pub use arbitrate::{Candidate, arbitrate};
pub use calendar::{Calendar, CalendarError, Period, Recurrence, zone_database_version};
pub use diagnostic::{Diagnostic, Severity, TextRange};
pub use document::SourceFile;
pub use facts::{Ahead, CalendarFact, Facts, NoOutlook, Outlook, PoolFacts, Reading};
pub use policy::{
    BindingScope, Budget, BudgetScope, CalendarBinding, CompiledRule, Deadline, Expectation, Floor,
    Measure, Mode, OnDispatch, OnEstimated, OnMissing, Policy, PolicySet, Ramp, RampStep,
    SignalBinding, Then, Weight, Window,
};
pub use rules::{CalendarSet, Intent, Judgement, Memory, Reason, Rule, SignalSet, Verdict};
pub use time::{Span, TimeError, Timestamp};
pub use units::{Basis, Kind, Unit, UnitError};
pub use yaml::{Spanned, read_yaml};
