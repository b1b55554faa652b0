//! The sources of a scenario: who sends which stream, measured or ahead of time.

use std::sync::Arc;

use serde::Deserialize;
use sunward_core::signal::{Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::yaml::Spanned;

use super::{ReadFile, ScenarioError, optional_span, span, wrong};
use crate::draw::Draws;
use crate::energy::{Battery, Meter};
use crate::generate::curtailment::Curtailment;
use crate::generate::prices::Prices;
use crate::generate::solar::Solar;
use crate::generate::wind::Wind;
use crate::generate::{Row, grid, t1};
use crate::trace::{self, Columns, Sample};

/// The most readings that one source may send, forecasts included.
const SAMPLES_MAX: i64 = 10_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceDocument {
    source: String,
    kind: Spanned<String>,
    basis: Option<Spanned<String>>,
    zone: Option<ZoneDocument>,
    site: Option<String>,
    every: Spanned<String>,
    lag: Option<Spanned<String>>,
    silent_until: Option<Spanned<String>>,
    /// It stands at the grid connection and sees what our workers draw.
    #[serde(default)]
    own_draw: bool,
    forecast: Option<ForecastDocument>,
    series: SeriesDocument,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForecastDocument {
    every: Spanned<String>,
    ahead: Spanned<String>,
    #[serde(default)]
    error: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneDocument {
    scheme: String,
    code: String,
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
    /// It measures at the grid connection: what our workers draw is missing from its values.
    pub own_draw: bool,
    /// It sends issues about the time ahead instead of readings.
    pub forecast: Option<Forecast>,
    series: Series,
}

/// How a source looks ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// From one issue to the next.
    pub every: Span,
    /// How far an issue reaches from its own instant on.
    pub ahead: Span,
    /// The most by which a value is off, as a share of itself.
    pub error: f64,
}

impl SourceSpec {
    /// What it sends between `start` and `start + length` under `seed`, in the order in which it does.
    pub(super) fn samples(&self, start: Timestamp, length: Span, seed: u64) -> Vec<Sample> {
        if let Series::Trace(samples) = &self.series {
            return samples.to_vec();
        }
        let mut draws = Draws::new(seed, &format!("series:{}", self.stream));
        let Some(forecast) = &self.forecast else {
            let rows = self.rows(start, length, &mut draws);
            return rows.into_iter().map(|row| sample(row, None)).collect();
        };
        // The same draws as those of whoever measures the same stream: what is said ahead is what comes, nearly.
        let rows = self.rows(start, length + forecast.ahead, &mut draws);
        let mut errors = Draws::new(seed, &format!("forecast:{}", self.stream));
        let mut samples = Vec::new();
        let mut issued = start;
        while issued < start + length {
            let first = rows.partition_point(|row| row.to <= issued);
            let about = rows[first..]
                .iter()
                .take_while(|row| row.from < issued + forecast.ahead);
            for row in about {
                let off = 1.0 + forecast.error * (2.0 * errors.unit() - 1.0);
                let value = grid(row.value * off);
                samples.push(sample(Row { value, ..*row }, Some(issued)));
            }
            issued += forecast.every;
        }
        samples
    }

    fn rows(&self, start: Timestamp, length: Span, draws: &mut Draws) -> Vec<Row> {
        let step = self.every;
        match &self.series {
            // Read as it is, above.
            Series::Trace(_) => Vec::new(),
            Series::Curtailment(series) => series.rows(start, length, step, draws),
            Series::Solar(series) => series.rows(start, length, step, draws),
            Series::Wind(series) => series.rows(start, length, step, draws),
            Series::Prices(series) => series.rows(start, length, step, draws),
            Series::Meter(meter) => meter.rows(start, length, step, draws),
            Series::T1(series) => {
                let series = crate::generate::WindowSeries { start, ..*series };
                series.rows(length).collect()
            }
            Series::Constant(value) => {
                let count = length.as_millis() / step.as_millis().max(1) + 1;
                let row = |i: i64| {
                    let from = start + Span::from_millis(step.as_millis() * i);
                    Row {
                        from,
                        to: from + step,
                        value: *value,
                    }
                };
                (0..count).map(row).collect()
            }
        }
    }
}

fn sample(row: Row, issued_at: Option<Timestamp>) -> Sample {
    Sample {
        from: row.from,
        to: row.to,
        value: Some(row.value),
        issued_at,
    }
}

pub(super) fn source_spec(
    path: &str,
    start: Timestamp,
    length: Span,
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
    let forecast = found
        .forecast
        .map(|ahead| forecast(path, every, length, &ahead))
        .transpose()?;
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
        own_draw: found.own_draw,
        forecast,
        series: series(path, found.series, every, read_file)?,
    })
}

fn forecast(
    path: &str,
    step: Span,
    length: Span,
    found: &ForecastDocument,
) -> Result<Forecast, ScenarioError> {
    let forecast = Forecast {
        every: span(path, &found.every)?,
        ahead: span(path, &found.ahead)?,
        error: found.error,
    };
    let bounds = "a forecast: `every` at least 1m, `ahead` at least one reading, `error` 0 to 1";
    if forecast.every < Span::from_mins(1)
        || forecast.ahead < step
        || !(0.0..=1.0).contains(&forecast.error)
    {
        return Err(wrong(format!("{path}: {bounds}")));
    }
    let issues = length.as_millis() / forecast.every.as_millis() + 1;
    let each = forecast.ahead.as_millis() / step.as_millis() + 1;
    if issues.saturating_mul(each) > SAMPLES_MAX {
        let words = format!(
            "a forecast of more than {SAMPLES_MAX} values: look ahead less far, or less often"
        );
        return Err(wrong(format!("{path}: {words}")));
    }
    Ok(forecast)
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
