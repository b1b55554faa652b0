//! Scenarios: plain text (YAML) that says what the world is, and what goes wrong in it.
//!
//! ```yaml
//! description: one line for people
//! start: 2026-03-02T00:00:00Z
//! duration: 48h
//! settle: 3h          # at its end, without faults; everything must have settled then
//! replicas: 3         # daemons on a shared log; 1 = one daemon with its own journal
//! append: 3ms         # how long a group takes to become durable, on average
//! fleet: |            # as fleet.yaml
//! policies: [|...]    # as policy files; `--policy FILE` replaces them
//! policy_files: [...] # more of them, by name
//! work_hours: 17.86   # site-hours of training to do; absent = no end
//! sources:            # who sends what: a stream and a series
//!   - {source: watttime, kind: carbon_intensity, basis: marginal, zone: {scheme: wt, code: A},
//!      every: 5m, lag: 2s, series: {curtailment: {inside: 20, outside: 400, duty: 0.3, cycle: 5h}}}
//!   - {source: pv, kind: surplus_power, site: a, every: 15m, forecast: {every: 1h, ahead: 12h, error: 0.2},
//!      series: {solar: {latitude: 52.5, peak_kw: 20}}}  # issues about the time ahead instead of readings
//! caps: [{site: a, from: 16h, to: 19h, allowed: 0.75}]  # power caps of the utility
//! faults: {signal_late: 0.2, override_set: 0.1, ...}    # per site and hour, what operators do included
//! ```
//!
//! Spans are written as in policies (`5m`, `48h`); `from` and `to` count from the start. Kinds of
//! series: `curtailment`, `t1`, `solar`, `wind`, `prices`, `meter`, `constant`, `csv`. A source with
//! `own_draw: true` measures at the grid connection: what the site's ready workers draw is taken off its values.

use std::sync::Arc;

use serde::Deserialize;
use sunward_core::fleet::Fleet;
use sunward_core::time::{Span, Timestamp};
use sunward_policies::document::SourceFile;
use sunward_policies::policy::PolicySet;
use sunward_policies::yaml::{Entries, Spanned, read_yaml};

use crate::energy::Rounds;
use crate::fault::Fault;
use crate::trace::Sample;

mod source;

use self::source::SourceDocument;
pub use self::source::{Forecast, SourceSpec};

/// Most replicas of the daemon.
pub const REPLICAS_MAX: usize = 7;
/// Longest scenario text, in bytes.
pub const SCENARIO_TEXT_MAX: usize = 4 * 1024 * 1024;
/// Longest simulated time: ten years.
pub const DURATION_MAX: Span = Span::from_mins(10 * 366 * 24 * 60);

/// Why a text is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The text, the fleet in it, or a policy.
    #[error("{0}")]
    Text(String),
    /// A file that it names.
    #[error("series file {file}: {problem}")]
    Series {
        /// As the scenario names it.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A policy file that it names.
    #[error("policy file {file}: {problem}")]
    Policy {
        /// As the scenario names it.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

/// Reads a file that a scenario names; the scenario's own folder is the caller's business.
pub type ReadFile<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    description: String,
    start: Spanned<String>,
    duration: Spanned<String>,
    settle: Option<Spanned<String>>,
    #[serde(default = "one")]
    replicas: usize,
    append: Option<Spanned<String>>,
    fleet: String,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default)]
    policy_files: Vec<String>,
    work_hours: Option<f64>,
    sources: Vec<SourceDocument>,
    #[serde(default)]
    caps: Vec<CapDocument>,
    faults: Option<Entries<f64>>,
}

fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapDocument {
    site: String,
    from: Spanned<String>,
    to: Spanned<String>,
    allowed: f64,
}

/// A power cap of the utility.
#[derive(Clone, Debug, PartialEq)]
pub struct Cap {
    /// The site.
    pub site: Arc<str>,
    /// From this instant.
    pub from: Timestamp,
    /// Until this one.
    pub to: Timestamp,
    /// Share of training power still allowed.
    pub allowed: f64,
}

/// A scenario, checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name: the file's, without its ending.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// First instant.
    pub start: Timestamp,
    /// First instant that no longer belongs to it.
    pub end: Timestamp,
    /// From here on nothing goes wrong.
    pub faults_end: Timestamp,
    /// Daemons.
    pub replicas: usize,
    /// Mean time until a group is durable.
    pub append: Span,
    /// The fleet file.
    pub fleet_file: SourceFile,
    /// The fleet.
    pub fleet: Arc<Fleet>,
    /// The policy files.
    pub policy_files: Vec<SourceFile>,
    /// Work to do, in site-hours of training.
    pub work_hours: Option<f64>,
    /// What is sent.
    pub sources: Vec<SourceSpec>,
    /// Power caps.
    pub caps: Vec<Cap>,
    /// Rounds of the training job.
    pub rounds: Rounds,
    /// Per site and hour.
    pub faults: Vec<(Fault, f64)>,
}

impl Scenario {
    /// Reads and checks the text of a scenario called `name`; `path` is for messages.
    pub fn parse(
        name: &str,
        path: &str,
        text: &str,
        read_file: ReadFile<'_>,
    ) -> Result<Scenario, ScenarioError> {
        if text.len() > SCENARIO_TEXT_MAX {
            return Err(wrong(format!(
                "{path} has more than {SCENARIO_TEXT_MAX} bytes"
            )));
        }
        let document: Document =
            read_yaml(path, text).map_err(|found| ScenarioError::Text(found.to_string()))?;
        let start = instant(path, &document.start)?;
        let duration = span(path, &document.duration)?;
        let settle = optional_span(path, document.settle.as_ref())?.unwrap_or(Span::ZERO);
        if duration <= Span::ZERO || duration > DURATION_MAX || settle > duration {
            let bounds = "0 < duration <= 10 years, settle <= duration";
            return Err(wrong(format!("{path}: {bounds}")));
        }
        if document.replicas == 0 || document.replicas > REPLICAS_MAX {
            return Err(wrong(format!("{path}: 1 to {REPLICAS_MAX} replicas")));
        }
        let fleet_file = file(format!("{path} (fleet)"), document.fleet);
        let fleet = Fleet::parse(&fleet_file).map_err(all)?;
        let sources = document.sources.into_iter();
        let sources: Result<Vec<_>, _> = sources
            .map(|source| source::source_spec(path, start, duration, source, read_file))
            .collect();
        let caps = document.caps.into_iter();
        let caps: Result<Vec<_>, _> = caps.map(|found| cap(path, start, found, &fleet)).collect();
        let policies = document.policies.into_iter().enumerate();
        let policies = policies.map(|(i, text)| file(format!("{path} (policy {})", i + 1), text));
        let mut policies: Vec<SourceFile> = policies.collect();
        for name in document.policy_files {
            let text = read_file(&name);
            let text = text.map_err(|problem| ScenarioError::Policy {
                file: name.clone(),
                problem,
            })?;
            policies.push(file(name, text));
        }
        let scenario = Scenario {
            name: name.to_owned(),
            description: document.description,
            start,
            end: start + duration,
            faults_end: start + (duration - settle),
            replicas: document.replicas,
            append: optional_span(path, document.append.as_ref())?.unwrap_or(Span::from_millis(3)),
            fleet_file,
            fleet: Arc::new(fleet),
            policy_files: Vec::new(),
            work_hours: document.work_hours,
            sources: sources?,
            caps: caps?,
            rounds: Rounds::PUBLISHED,
            faults: faults(path, document.faults)?,
        };
        scenario.with_policies(policies)
    }

    /// The same under other policy files.
    pub fn with_policies(mut self, files: Vec<SourceFile>) -> Result<Scenario, ScenarioError> {
        let set = PolicySet::compile(&files).map_err(all)?;
        let found = sunward_core::fleet::check::policies_on_fleet(&set, &self.fleet);
        let severe =
            |d: &sunward_policies::Diagnostic| d.severity == sunward_policies::Severity::Error;
        if found.iter().any(severe) {
            return Err(all(found));
        }
        self.policy_files = files;
        Ok(self)
    }

    /// How long it lasts.
    pub fn length(&self) -> Span {
        self.end - self.start
    }

    /// What a source sends under `seed`.
    pub fn samples(&self, source: &SourceSpec, seed: u64) -> Vec<Sample> {
        source.samples(self.start, self.length(), seed)
    }
}

fn wrong(text: String) -> ScenarioError {
    ScenarioError::Text(text)
}

fn all(found: Vec<sunward_policies::Diagnostic>) -> ScenarioError {
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    ScenarioError::Text(lines.join("\n"))
}

fn file(path: String, text: String) -> SourceFile {
    SourceFile { path, text }
}

fn span(path: &str, text: &Spanned<String>) -> Result<Span, ScenarioError> {
    let parsed = Span::parse(&text.value);
    parsed.map_err(|error| wrong(format!("{path}: {error}")))
}

fn optional_span(
    path: &str,
    text: Option<&Spanned<String>>,
) -> Result<Option<Span>, ScenarioError> {
    text.map(|text| span(path, text)).transpose()
}

fn instant(path: &str, text: &Spanned<String>) -> Result<Timestamp, ScenarioError> {
    let parsed = Timestamp::parse_rfc3339(&text.value);
    parsed.map_err(|error| wrong(format!("{path}: {error}")))
}

fn cap(
    path: &str,
    start: Timestamp,
    found: CapDocument,
    fleet: &Fleet,
) -> Result<Cap, ScenarioError> {
    if fleet.site(&found.site).is_none() || !(0.0..=1.0).contains(&found.allowed) {
        let what = "a cap names a site of the fleet and allows 0 to 1";
        return Err(wrong(format!("{path}: {what}")));
    }
    Ok(Cap {
        site: found.site.into(),
        from: start + span(path, &found.from)?,
        to: start + span(path, &found.to)?,
        allowed: found.allowed,
    })
}

fn faults(path: &str, found: Option<Entries<f64>>) -> Result<Vec<(Fault, f64)>, ScenarioError> {
    let entries = found.map_or_else(Vec::new, |entries| entries.0);
    let rate = |(name, rate): (Spanned<String>, Spanned<f64>)| {
        let Some(fault) = Fault::parse(&name.value) else {
            let known: Vec<_> = Fault::ALL.iter().map(|kind| kind.as_str()).collect();
            let known = known.join(", ");
            return Err(wrong(format!(
                "{path}: no fault `{}`; there are: {known}",
                name.value
            )));
        };
        if !(0.0..=1_000.0).contains(&rate.value) {
            return Err(wrong(format!(
                "{path}: {}: 0 to 1000 per hour and site",
                name.value
            )));
        }
        Ok((fault, rate.value))
    };
    entries.into_iter().map(rate).collect()
}
