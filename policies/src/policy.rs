//! From files to a compiled [`PolicySet`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::calendar::{Calendar, Recurrence};
use crate::codes;
use crate::diagnostic::{Diagnostic, Severity, TextRange};
use crate::document::{POLICY_FILES_MAX, SourceFile};
use crate::expr::Quantity;
use crate::rules::Rule;
use crate::time::{Span, Timestamp};
use crate::units::{Basis, Kind};

mod compile;

/// Whether a policy's verdicts move pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// They do.
    Enforce,
    /// They are recorded and explained only (shadow).
    Observe,
}

/// Where a bound signal is looked up for a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BindingScope {
    /// The pool's own site.
    Site,
    /// The site's zone of that scheme.
    Zone {
        /// `eic`, `em`, `wt`, `uk_region` or `iso_node`.
        scheme: String,
    },
}

/// What a missing or stale signal does at the end of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Then {
    /// Release.
    Release,
    /// Keep what runs.
    Keep,
}

/// The mandatory action for missing data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnMissing {
    /// How long what runs is kept, from the first instant at which a condition can't be decided.
    pub hold: Span,
    /// What happens then.
    pub then: Then,
}

/// What a value that the source estimated or forecast for the present counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnEstimated {
    /// As a value.
    #[default]
    Use,
    /// As missing: it is shown, never evaluated.
    Missing,
}

/// One signal of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalBinding {
    /// The variable's name in expressions.
    pub name: String,
    /// The source whose stream it is.
    pub source: String,
    /// What it measures.
    pub kind: Kind,
    /// On which basis; part of the stream key.
    pub basis: Option<Basis>,
    /// The pool's site, or its zone of a scheme.
    pub scope: BindingScope,
    /// How long after its receipt a value is fresh.
    pub max_age: Span,
    /// What happens without a fresh value.
    pub on_missing: OnMissing,
    /// What an estimated value counts as.
    pub on_estimated: OnEstimated,
    /// How long after its issue a value for the future is believed; `None`: the policy does not look ahead on this
    /// signal.
    pub forecast_max_age: Option<Span>,
    /// The meter includes what our own pools draw at the site: that draw, as it was at the start of the value's
    /// interval, is added to the value before it is evaluated. Only for kinds in kW with the site's scope.
    pub add_back_own_draw: bool,
    /// Where the file says so.
    pub range: TextRange,
}

/// A calendar of a policy: windows that recur, in a named time zone.
#[derive(Clone, Debug)]
pub struct CalendarBinding {
    /// `NAME` of the variable `calendar.NAME` in expressions.
    pub name: String,
    /// Its windows.
    pub calendar: Calendar,
    /// The cron expression as it was written, how long each window lasts and in which zone, for showing.
    pub words: String,
    /// Where the file says so.
    pub range: TextRange,
}

/// From what the length of a window is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expectation {
    /// The window ends at the first instant ahead at which, by the issued forecast, the rule would want to release or
    /// could not be decided.
    Forecast,
    /// It ends with the open window of a calendar, by its index among the policy's calendars.
    Schedule {
        /// That index.
        calendar: usize,
    },
    /// The partner guarantees that each window lasts so long from the instant at which `activate.when` became true.
    Guarantee {
        /// How long.
        lasts: Span,
    },
}

/// The least window worth starting for, and when to leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// From what its length is expected.
    pub expect: Expectation,
    /// Training time that must be left after a worker is ready and the start is paid for; may be zero.
    pub at_least: Span,
    /// Training time that a start costs beside the pool's `ready_after` (image pull, checkpoint load).
    pub start_cost: Span,
    /// Release so long before the expected end; `None`: the release condition alone ends it.
    pub leave_before_end: Option<Span>,
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// Workers wanted, at any instant.
    Workers,
    /// Nameplate power of the workers wanted, in watts, at any instant.
    Power,
    /// Energy over a period, in mWh.
    Energy,
    /// Emissions over a period, in mg CO2e.
    Carbon,
    /// Money over a period, in thousandths of the signal's currency.
    Money,
}

/// Over which of the pools that the policy governs a budget is kept; each scope has a sum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetScope {
    /// All of them together.
    Fleet,
    /// Those of one site.
    Site,
    /// Those of one federation; a pool in none is outside.
    Federation,
    /// Each alone.
    Pool,
}

/// By what a unit of energy is weighed for a budget of emissions or money.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// The signal, by its index among the policy's bindings: `carbon_intensity` or `energy_price`.
    pub signal: usize,
    /// What counts while it has no fresh value, in its canonical unit: missing is never free.
    pub assume: f64,
}

/// A hard budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Unique within its policy.
    pub name: String,
    /// What it counts.
    pub measure: Measure,
    /// The most, in the measure's integer unit.
    pub limit: i64,
    /// The unit as the file wrote it, for showing.
    pub unit: String,
    /// For energy, emissions and money: the period after which the count starts again.
    pub period: Option<Recurrence>,
    /// Over which pools.
    pub scope: BudgetScope,
    /// For emissions and money.
    pub weight: Option<Weight>,
    /// Where the file says so.
    pub range: TextRange,
}

/// So many sites of a federation stay active, whatever the rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Unique within its policy.
    pub name: String,
    /// Whose sites; `None`: of all pools that the policy governs.
    pub federation: Option<String>,
    /// How many.
    pub sites: u32,
    /// Whether it may start a site whose signals are missing. Else it only keeps.
    pub run_on_missing: bool,
    /// Where the file says so.
    pub range: TextRange,
}

/// So much work is done by an instant, in the least bad hours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Unique within its policy.
    pub name: String,
    /// Whose pools; `None`: all that the policy governs.
    pub federation: Option<String>,
    /// By when.
    pub finish_by: Timestamp,
    /// Work, in worker-milliseconds of ready workers, counted from when the policy came into force.
    pub work: i64,
    /// Spare time kept before `finish_by`.
    pub margin: Span,
    /// Where the file says so.
    pub range: TextRange,
}

/// What a dispatch (a call for demand response) does to the pools of its scope. Limits and emergencies always act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnDispatch {
    /// Nothing.
    #[default]
    Keep,
    /// They go to their minimum.
    Release,
    /// Training power is held to this percentage where the site supports it; where it does not, as `Release`.
    PowerPercent(u8),
}

/// At most `workers` more (or fewer) in any `every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RampStep {
    /// Workers, at least 1.
    pub workers: u32,
    /// Per this length of time, above zero.
    pub every: Span,
}

/// How fast a pool may change; `None` is at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ramp {
    /// Upwards.
    pub up: Option<RampStep>,
    /// Downwards.
    pub down: Option<RampStep>,
}

/// A rule of a policy, ready to judge.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    /// Unique within its policy; the short form's rule is called `threshold`.
    pub name: String,
    /// Changes when anything changes that the rule's memory depends on: its conditions, times, and the bindings it
    /// reads.
    pub hash: [u8; 32],
    /// The rule.
    pub rule: Arc<dyn Rule>,
    /// Where the file says so.
    pub range: TextRange,
}

/// A policy, ready to judge.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Unique within a set.
    pub name: String,
    /// Higher wins.
    pub priority: i32,
    /// Whether it moves pools.
    pub mode: Mode,
    /// Labels that a pool must all have to be governed by it.
    pub selector: BTreeMap<String, String>,
    /// Its signals, by name; a rule's [`crate::SignalSet`] and the readings of [`crate::Facts`] use this order.
    pub signals: Vec<SignalBinding>,
    /// Its calendars, by name; the order of [`crate::Facts::calendars`].
    pub calendars: Vec<CalendarBinding>,
    /// Its rules, in the order of the file.
    pub rules: Vec<CompiledRule>,
    /// Which pool to prefer where not all can run: the higher the better; unknown comes last.
    pub score: Option<Quantity>,
    /// Its budgets, in the order of the file.
    pub budgets: Vec<Budget>,
    /// Its floors, in the order of the file.
    pub floors: Vec<Floor>,
    /// Its deadlines, in the order of the file.
    pub deadlines: Vec<Deadline>,
    /// At most so many of its sites may be changing at a time.
    pub max_changing_sites: Option<u32>,
    /// What a dispatch does.
    pub on_dispatch: OnDispatch,
    /// The least time between a start and a release.
    pub min_run: Span,
    /// The least time between a release and a start.
    pub min_rest: Span,
    /// How fast a pool may change.
    pub ramp: Ramp,
    /// The path of its file, as the caller named it.
    pub file: String,
    /// Where `metadata.name` stands.
    pub name_range: TextRange,
    /// Where `spec.pools` stands.
    pub pools_range: TextRange,
    /// Where `spec.ramp` stands, if it does.
    pub ramp_range: Option<TextRange>,
}

/// All policies in force together.
#[derive(Clone, Debug)]
pub struct PolicySet {
    policies: Vec<Policy>,
    warnings: Vec<Diagnostic>,
    hash: String,
}

impl PolicySet {
    /// Compiles files into a set, or says everything that is wrong with any of them: the diagnostics of all files,
    /// warnings included, by file and place.
    pub fn compile(files: &[SourceFile]) -> Result<PolicySet, Vec<Diagnostic>> {
        let mut diagnostics = Vec::new();
        let mut compiled: Vec<(Policy, &str)> = Vec::new();
        if files.len() > POLICY_FILES_MAX {
            let message = format!(
                "{} policy files; {POLICY_FILES_MAX} are allowed",
                files.len()
            );
            let found = Diagnostic::error(
                codes::TOO_LARGE,
                &files[POLICY_FILES_MAX].path,
                TextRange::START,
                message,
            );
            return Err(vec![
                found.with_help("one policy can govern many pools by their labels"),
            ]);
        }
        for file in files {
            if let Some(policy) = compile::policy(file, &mut diagnostics) {
                compiled.push((policy, &file.text));
            }
        }
        compiled.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name).then_with(|| a.file.cmp(&b.file)));
        for pair in compiled.windows(2) {
            let (first, second) = (&pair[0].0, &pair[1].0);
            if first.name == second.name {
                let message = format!("a second policy is called `{}`", second.name);
                let help = format!(
                    "the first is at {}:{}; give one another name",
                    first.file, first.name_range.line
                );
                let found = Diagnostic::error(
                    codes::DUPLICATE_NAME,
                    &second.file,
                    second.name_range,
                    message,
                );
                diagnostics.push(found.with_help(help));
            }
        }
        diagnostics.sort_by(|a, b| (&a.file, a.range(), a.code).cmp(&(&b.file, b.range(), b.code)));
        if diagnostics
            .iter()
            .any(|found| found.severity == Severity::Error)
        {
            return Err(diagnostics);
        }
        let hash = content_hash(compiled.iter().map(|(_, text)| *text));
        let policies = compiled.into_iter().map(|(policy, _)| policy).collect();
        Ok(PolicySet {
            policies,
            warnings: diagnostics,
            hash,
        })
    }

    /// The set without policies.
    pub fn empty() -> PolicySet {
        PolicySet {
            policies: Vec::new(),
            warnings: Vec::new(),
            hash: content_hash([].into_iter()),
        }
    }

    /// The policies, by name.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// What loads but was probably not meant.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// SHA-256 of the content, in hex; the same texts give the same hash in any order and under any path.
    pub fn hash(&self) -> String {
        self.hash.clone()
    }
}

impl Budget {
    /// What it has spent in its integer unit, from an amount with a unit such as `12.5 kgCO2e`; the error says how to
    /// write it.
    pub fn read_spent(&self, text: &str) -> Result<i64, String> {
        compile::spent(text, self)
    }

    /// How much an amount in a measure's integer unit is in a unit of a budget's file; `None` where there is no such
    /// unit. For showing: it may round.
    pub fn amount_in(amount: i64, unit: &str) -> Option<f64> {
        compile::in_unit(amount, unit)
    }
}

impl Default for PolicySet {
    fn default() -> Self {
        PolicySet::empty()
    }
}

impl Policy {
    /// Whether it governs a pool with these labels: all of its own must be there.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Of the texts in order of their policies' names; each is preceded by its length, so that no two lists agree.
fn content_hash<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(b"sunward policies 1\n");
    for text in texts {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String can't fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}
