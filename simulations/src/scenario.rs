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
//! work_hours: 17.86   # site-hours of training to do; absent = no end
//! sources:            # who sends what: a stream and a series
//!   - {source: watttime, kind: carbon_intensity, basis: marginal, zone: {scheme: wt, code: A},
//!      every: 5m, lag: 2s, series: {curtailment: {inside: 20, outside: 400, duty: 0.3, cycle: 5h}}}
//! caps: [{site: a, from: 16h, to: 19h, allowed: 0.75}]  # power caps of the utility
//! faults: {signal_late: 0.2, ...}                       # per site and hour
//! ```
//!
//! Spans are written as in policies (`5m`, `48h`); `from` and `to` count from the start. Kinds of
//! series: `curtailment`, `t1`, `solar`, `wind`, `prices`, `meter`, `constant`, `csv`.

use std::sync::Arc;

use serde::Deserialize;
use sunward_core::fleet::Fleet;
use sunward_core::signal::{Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::document::SourceFile;
use sunward_policies::policy::PolicySet;
use sunward_policies::yaml::{Entries, Spanned, read_yaml};

use crate::draw::Draws;
use crate::energy::{Battery, Meter, Rounds};
use crate::fault::Fault;
use crate::generate::curtailment::Curtailment;
use crate::generate::prices::Prices;
use crate::generate::solar::Solar;
use crate::generate::t1;
use crate::generate::wind::Wind;
use crate::trace::{self, Columns, Sample};

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
    policies: Vec<String>,
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
struct SourceDocument {
    source: String,
    kind: Spanned<String>,
    basis: Option<Spanned<String>>,
    zone: Option<ZoneDocument>,
    site: Option<String>,
    every: Spanned<String>,
    lag: Option<Spanned<String>>,
    silent_until: Option<Spanned<String>>,
    series: SeriesDocument,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneDocument {
    scheme: String,
    code: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CapDocument {
    site: String,
    from: Spanned<String>,
    to: Spanned<String>,
    allowed: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum SeriesDocument {
    Curtailment {
        inside: f64,
        outside: f64,
        duty: f64,
        cycle: String,
        #[serde(default)]
        noise: f64,
    },
    T1(String),
    Solar {
        latitude: f64,
        #[serde(default)]
        longitude: f64,
        peak_kw: f64,
        #[serde(default)]
        clouds: f64,
    },
    Wind {
        mean_speed: f64,
        rated_kw: f64,
    },
    Prices {
        mean: f64,
        swing: f64,
        #[serde(default)]
        negative: f64,
    },
    Meter {
        latitude: f64,
        #[serde(default)]
        longitude: f64,
        peak_kw: f64,
        #[serde(default)]
        clouds: f64,
        base_kw: f64,
        #[serde(default)]
        battery_kwh: f64,
        #[serde(default)]
        battery_kw: f64,
    },
    Constant(f64),
    Csv {
        file: String,
        time_column: String,
        value_column: String,
        issued_column: Option<String>,
    },
}

/// A series before its seed is known.
#[derive(Clone, Debug, PartialEq)]
enum Series {
    Curtailment(Curtailment),
    T1(crate::generate::WindowSeries),
    Solar(Solar),
    Wind(Wind),
    Prices(Prices),
    Meter(Meter),
    Constant(f64),
    Trace(Arc<[Sample]>),
}

/// One source of one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// The stream that it sends.
    pub stream: StreamKey,
    /// Length of one reading.
    pub every: Span,
    /// From the start of a reading's interval until it is sent.
    pub lag: Span,
    /// Nothing is sent before this instant.
    pub silent_until: Timestamp,
    series: Series,
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
            .map(|source| source_spec(path, start, source, read_file))
            .collect();
        let caps = document.caps.into_iter();
        let caps: Result<Vec<_>, _> = caps.map(|found| cap(path, start, found, &fleet)).collect();
        let policies = document.policies.into_iter().enumerate();
        let policies = policies.map(|(i, text)| file(format!("{path} (policy {})", i + 1), text));
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
        scenario.with_policies(policies.collect())
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

    /// What a source's readings are under `seed`.
    pub fn samples(&self, source: &SourceSpec, seed: u64) -> Vec<Sample> {
        let mut draws = Draws::new(seed, &format!("series:{}", source.stream));
        let (start, length, step) = (self.start, self.length(), source.every);
        let rows = match &source.series {
            Series::Trace(samples) => return samples.to_vec(),
            Series::Curtailment(series) => series.rows(start, length, step, &mut draws),
            Series::Solar(series) => series.rows(start, length, step, &mut draws),
            Series::Wind(series) => series.rows(start, length, step, &mut draws),
            Series::Prices(series) => series.rows(start, length, step, &mut draws),
            Series::Meter(meter) => meter.rows(start, length, step, &mut draws),
            Series::T1(series) => {
                let series = crate::generate::WindowSeries { start, ..*series };
                series.rows(length).collect()
            }
            Series::Constant(value) => {
                let count = length.as_millis() / step.as_millis().max(1) + 1;
                let row = |i: i64| {
                    let from = start + Span::from_millis(step.as_millis() * i);
                    crate::generate::Row {
                        from,
                        to: from + step,
                        value: *value,
                    }
                };
                (0..count).map(row).collect()
            }
        };
        let sample = |row: crate::generate::Row| Sample {
            from: row.from,
            to: row.to,
            value: Some(row.value),
            issued_at: None,
        };
        rows.into_iter().map(sample).collect()
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

fn source_spec(
    path: &str,
    start: Timestamp,
    found: SourceDocument,
    read_file: ReadFile<'_>,
) -> Result<SourceSpec, ScenarioError> {
    let Some(kind) = Kind::parse(&found.kind.value) else {
        return Err(wrong(format!(
            "{path}: no kind of signal `{}`",
            found.kind.value
        )));
    };
    let basis = match &found.basis {
        None => None,
        Some(word) => match Basis::parse(&word.value) {
            Some(basis) => Some(basis),
            None => return Err(wrong(format!("{path}: no basis `{}`", word.value))),
        },
    };
    let scope = match (found.zone, found.site) {
        (Some(zone), None) => Scope::Zone {
            scheme: zone.scheme.into(),
            code: zone.code.into(),
        },
        (None, Some(site)) => Scope::Site(site.into()),
        _ => return Err(wrong(format!("{path}: a source has a zone or a site"))),
    };
    let every = span(path, &found.every)?;
    if every < Span::from_secs(1) {
        return Err(wrong(format!("{path}: `every` is at least 1s")));
    }
    let silent = optional_span(path, found.silent_until.as_ref())?;
    Ok(SourceSpec {
        stream: StreamKey {
            source: found.source.into(),
            kind,
            scope,
            basis,
        },
        every,
        lag: optional_span(path, found.lag.as_ref())?.unwrap_or(Span::ZERO),
        silent_until: start + silent.unwrap_or(Span::ZERO),
        series: series(path, found.series, every, read_file)?,
    })
}

fn series(
    path: &str,
    found: SeriesDocument,
    every: Span,
    read_file: ReadFile<'_>,
) -> Result<Series, ScenarioError> {
    let solar = |latitude, longitude, peak_kw, clouds| Solar {
        latitude,
        longitude,
        peak_kw,
        clouds,
    };
    Ok(match found {
        SeriesDocument::Curtailment {
            inside,
            outside,
            duty,
            cycle,
            noise,
        } => {
            let cycle = Span::parse(&cycle).map_err(|error| wrong(format!("{path}: {error}")))?;
            Series::Curtailment(Curtailment {
                inside,
                outside,
                duty,
                cycle,
                noise,
            })
        }
        SeriesDocument::T1(zone) => {
            let known = t1::ZONES.iter().find(|series| series.zone == zone);
            let missing = || wrong(format!("{path}: table T1 has no zone `{zone}`"));
            Series::T1(*known.ok_or_else(missing)?)
        }
        SeriesDocument::Solar {
            latitude,
            longitude,
            peak_kw,
            clouds,
        } => Series::Solar(solar(latitude, longitude, peak_kw, clouds)),
        SeriesDocument::Wind {
            mean_speed,
            rated_kw,
        } => Series::Wind(Wind {
            mean_speed,
            rated_kw,
        }),
        SeriesDocument::Prices {
            mean,
            swing,
            negative,
        } => Series::Prices(Prices {
            mean,
            swing,
            negative,
        }),
        SeriesDocument::Meter {
            latitude,
            longitude,
            peak_kw,
            clouds,
            base_kw,
            battery_kwh,
            battery_kw,
        } => Series::Meter(Meter {
            solar: solar(latitude, longitude, peak_kw, clouds),
            base_kw,
            battery: battery(battery_kwh, battery_kw),
        }),
        SeriesDocument::Constant(value) => Series::Constant(value),
        SeriesDocument::Csv {
            file,
            time_column,
            value_column,
            issued_column,
        } => {
            let columns = Columns {
                time: time_column,
                value: value_column,
                issued: issued_column,
                interval: Some(every),
            };
            Series::Trace(trace_file(&file, &columns, read_file)?)
        }
    })
}

/// A battery that begins half full; none without a capacity.
fn battery(capacity_kwh: f64, power_kw: f64) -> Option<Battery> {
    (capacity_kwh > 0.0).then_some(Battery {
        capacity_kwh,
        power_kw,
        charge_kwh: capacity_kwh / 2.0,
    })
}

fn trace_file(
    file: &str,
    columns: &Columns,
    read_file: ReadFile<'_>,
) -> Result<Arc<[Sample]>, ScenarioError> {
    let problem = |problem: String| ScenarioError::Series {
        file: file.to_owned(),
        problem,
    };
    let text = read_file(file).map_err(problem)?;
    let samples = trace::read(&text, columns).map_err(|error| problem(error.to_string()))?;
    Ok(samples.into())
}
