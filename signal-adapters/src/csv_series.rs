//! CSV series: one row, one value, from one time column and one value column.
//!
//! A row holds from its stamp for the length of the interval. A stamp with an offset names its
//! instant; one without is read in the given time zone, and a local time that a clock change
//! skips or repeats is refused, row by row, because it names no one instant. An empty cell is
//! `quality: missing`, never 0.

use std::sync::Arc;

use chrono::{LocalResult, NaiveDateTime, TimeZone as _};
use chrono_tz::Tz;
use serde::Deserialize;
use sunward_core::signal::{Quality, Scope, StreamKey};
use sunward_core::time::{Span, TimeError, Timestamp};
use sunward_core::units::{Basis, Kind};

use crate::wire::{Code, Reading, Rejection, Shown, TEXT_BYTES_MAX};

/// The keys that map columns to readings, as texts: the same for the adapter `file_replay` and for
/// `sunward signal push` (there with `-` for `_`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CsvKeys {
    /// Header of the column of stamps.
    pub time_column: Option<String>,
    /// Header of the column of values.
    pub value_column: Option<String>,
    /// IANA name of the zone of stamps without an offset.
    pub time_zone: Option<String>,
    /// How long a row holds, such as `5m`.
    pub interval: Option<String>,
    /// Unit of the values, as on the wire.
    pub unit: Option<String>,
    /// Source of the readings.
    pub source: Option<String>,
    /// Kind of signal, as on the wire.
    pub kind: Option<String>,
    /// Basis, as on the wire.
    pub basis: Option<String>,
    /// The site where the values hold.
    pub site: Option<String>,
    /// The zone where the values hold: `SCHEME/CODE`.
    pub zone: Option<String>,
}

/// Why the keys describe no series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// A key is absent.
    #[error("a CSV series needs `{key}`: {what}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it is for.
        what: &'static str,
    },
    /// A key's text is not understood.
    #[error("`{key}`: {problem}")]
    Bad {
        /// The key.
        key: &'static str,
        /// What is wrong and how to mend it.
        problem: String,
    },
}

/// How a CSV file becomes readings.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvMapping {
    /// Header of the column of stamps.
    pub time_column: String,
    /// Header of the column of values.
    pub value_column: String,
    /// Zone of stamps without an offset.
    pub time_zone: Option<Tz>,
    /// How long a row holds.
    pub interval: Span,
    /// Unit of the values.
    pub unit: Arc<str>,
    /// The stream of every row.
    pub stream: StreamKey,
}

impl CsvKeys {
    /// True when no key is given: the file is not meant as CSV.
    pub fn is_empty(&self) -> bool {
        *self == CsvKeys::default()
    }

    /// The mapping, or the first key that is missing or wrong.
    pub fn mapping(&self) -> Result<CsvMapping, KeysError> {
        let required = |key, what, value: &Option<String>| {
            let text = value.clone().ok_or(KeysError::Missing { key, what })?;
            if text.is_empty() || text.len() > TEXT_BYTES_MAX {
                let problem = format!(
                    "it has {} bytes; between 1 and {TEXT_BYTES_MAX} are allowed",
                    text.len()
                );
                return Err(KeysError::Bad { key, problem });
            }
            Ok(text)
        };
        let interval = required(
            "interval",
            "how long each row holds, such as 5m",
            &self.interval,
        )?;
        let interval = Span::parse(&interval).map_err(|error| KeysError::Bad {
            key: "interval",
            problem: error.to_string(),
        })?;
        if interval <= Span::ZERO {
            return Err(KeysError::Bad {
                key: "interval",
                problem: "a row must hold for some time: write for example 5m".into(),
            });
        }
        let stream = StreamKey {
            source: required("source", "the name of the source, as granted", &self.source)?.into(),
            kind: Self::kind(&required(
                "kind",
                "what the values are, such as carbon_intensity",
                &self.kind,
            )?)?,
            scope: self.scope()?,
            basis: None,
        };
        let mapping = CsvMapping {
            time_column: required(
                "time_column",
                "the header of the column of stamps",
                &self.time_column,
            )?,
            value_column: required(
                "value_column",
                "the header of the column of values",
                &self.value_column,
            )?,
            time_zone: self.zone_of_stamps()?,
            interval,
            unit: required(
                "unit",
                "the unit of the values, such as gCO2e/kWh",
                &self.unit,
            )?
            .into(),
            stream: StreamKey {
                basis: self.basis(stream.kind)?,
                ..stream
            },
        };
        mapping
            .stream
            .kind
            .convert(0.0, &mapping.unit)
            .map_err(|error| KeysError::Bad {
                key: "unit",
                problem: error.to_string(),
            })?;
        Ok(mapping)
    }

    fn kind(text: &str) -> Result<Kind, KeysError> {
        Kind::parse(text).ok_or_else(|| KeysError::Bad {
            key: "kind",
            problem: format!(
                "{} is not a kind: use one of {}",
                Shown(text),
                Kind::ALL.map(Kind::as_str).join(", ")
            ),
        })
    }

    fn basis(&self, kind: Kind) -> Result<Option<Basis>, KeysError> {
        let Some(text) = &self.basis else {
            return Ok(None);
        };
        let fitting = || Basis::ALL.into_iter().filter(|basis| basis.fits(kind));
        match fitting().find(|basis| basis.as_str() == text) {
            Some(basis) => Ok(Some(basis)),
            None => Err(KeysError::Bad {
                key: "basis",
                problem: format!(
                    "{} is not a basis of {kind}; it may have: {}",
                    Shown(text),
                    fitting()
                        .map(Basis::as_str)
                        .chain(["none at all"])
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            }),
        }
    }

    fn scope(&self) -> Result<Scope, KeysError> {
        match (&self.site, &self.zone) {
            (Some(site), None) => Ok(Scope::Site(site.as_str().into())),
            (None, Some(zone)) => match zone.split_once('/') {
                Some((scheme, code)) if !scheme.is_empty() && !code.is_empty() => Ok(Scope::Zone {
                    scheme: scheme.into(),
                    code: code.into(),
                }),
                _ => Err(KeysError::Bad {
                    key: "zone",
                    problem: format!("{} is not SCHEME/CODE, such as wt/CAISO_NORTH", Shown(zone)),
                }),
            },
            (None, None) => Err(KeysError::Missing {
                key: "site",
                what: "the site where the values hold; or `zone` as SCHEME/CODE",
            }),
            (Some(_), Some(_)) => Err(KeysError::Bad {
                key: "zone",
                problem: "`site` and `zone` both say where the values hold: leave one out".into(),
            }),
        }
    }

    fn zone_of_stamps(&self) -> Result<Option<Tz>, KeysError> {
        let Some(name) = &self.time_zone else {
            return Ok(None);
        };
        name.parse().map(Some).map_err(|_| KeysError::Bad {
            key: "time_zone",
            problem: format!("{} is not a name of the IANA time zone database: write UTC or for example Europe/Berlin", Shown(name)),
        })
    }
}

/// Why a file is no CSV series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    /// A column is not in the header.
    #[error("the header has no column `{column}`; it has: {have}")]
    NoColumn {
        /// As asked for.
        column: String,
        /// The headers of the file.
        have: String,
    },
    /// A header stands there twice.
    #[error(
        "the header has `{column}` more than once, and which one is meant can't be known: rename one"
    )]
    TwoColumns {
        /// As asked for.
        column: String,
    },
    /// Not CSV.
    #[error("the header can't be read: {problem}")]
    Header {
        /// What the reader said.
        problem: String,
    },
    /// Stamps without an offset, and no time zone to read them in.
    #[error(
        "line {line}: the stamp {stamp} has no offset from UTC, so it names no instant: give the zone that it was written in (`time_zone`, for example UTC or Europe/Berlin)"
    )]
    NoTimeZone {
        /// From 1.
        line: u64,
        /// The stamp, for people.
        stamp: String,
    },
    /// Too long a series.
    #[error("more than {max} rows: split the file")]
    TooManyRows {
        /// The number allowed.
        max: usize,
    },
}

/// Reads a series; one result per row, in order. Rows that can't be read are rejections whose
/// pointer is `/ROW/COLUMN`, rows counted from 0.
pub fn read(
    file: &[u8],
    mapping: &CsvMapping,
    rows_max: usize,
) -> Result<Vec<Result<Reading, Rejection>>, CsvError> {
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(file);
    let header = reader
        .headers()
        .map_err(|error| CsvError::Header {
            problem: error.to_string(),
        })?
        .clone();
    let time = column(&header, &mapping.time_column)?;
    let value = column(&header, &mapping.value_column)?;
    let mut rows = Vec::new();
    for (row, record) in reader.records().enumerate() {
        if row == rows_max {
            return Err(CsvError::TooManyRows { max: rows_max });
        }
        let reading = match record {
            Err(error) => Err(Rejection {
                pointer: format!("/{row}"),
                code: Code::BadRow,
                detail: format!(
                    "the row can't be read ({error}): write it in UTF-8, with balanced quotes"
                ),
            }),
            Ok(record) => {
                let line = record.position().map_or(0, csv::Position::line);
                match (record.get(time), record.get(value)) {
                    (Some(stamp), Some(value)) => read_row(row, line, stamp, value, mapping)?,
                    _ => Err(Rejection {
                        pointer: format!("/{row}"),
                        code: Code::BadRow,
                        detail: format!(
                            "line {line} has {} cells, fewer than the header: complete or remove it",
                            record.len()
                        ),
                    }),
                }
            }
        };
        rows.push(reading);
    }
    Ok(rows)
}

fn column(header: &csv::StringRecord, name: &str) -> Result<usize, CsvError> {
    let mut found = header
        .iter()
        .enumerate()
        .filter(|(_, have)| *have == name)
        .map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(CsvError::TwoColumns {
            column: name.to_owned(),
        }),
        (None, _) => Err(CsvError::NoColumn {
            column: name.to_owned(),
            have: header.iter().take(32).collect::<Vec<_>>().join(", "),
        }),
    }
}

fn read_row(
    row: usize,
    line: u64,
    stamp: &str,
    cell: &str,
    mapping: &CsvMapping,
) -> Result<Result<Reading, Rejection>, CsvError> {
    let at = format!("/{row}");
    let refuse = |column: &str, code, problem: String| {
        Ok(Err(Rejection::field(
            &at,
            column,
            code,
            format!("line {line}: {problem}"),
        )))
    };
    let valid_from = match instant(stamp, mapping.time_zone) {
        Ok(instant) => instant,
        Err(StampError::NoZone) => {
            return Err(CsvError::NoTimeZone {
                line,
                stamp: Shown(stamp).to_string(),
            });
        }
        Err(StampError::Refused(code, problem)) => {
            return refuse(&mapping.time_column, code, problem);
        }
    };
    let value = match cell {
        "" => None,
        text => match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Some(value),
            Ok(_) => {
                let problem = format!(
                    "{} is not a finite number: leave the cell empty where there is no value",
                    Shown(text)
                );
                return refuse(&mapping.value_column, Code::NotFinite, problem);
            }
            Err(_) => {
                let problem = format!(
                    "{} is not a number: write it like 12.5, or leave the cell empty where there is no value",
                    Shown(text)
                );
                return refuse(&mapping.value_column, Code::BadNumber, problem);
            }
        },
    };
    Ok(Ok(Reading {
        id: None,
        stream: mapping.stream.clone(),
        valid_from,
        valid_to: valid_from + mapping.interval,
        value,
        unit: Some(mapping.unit.clone()),
        quality: if value.is_some() {
            Quality::Measured
        } else {
            Quality::Missing
        },
        issued_at: None,
        sequence: None,
    }))
}

enum StampError {
    NoZone,
    Refused(Code, String),
}

/// The instant that a cell names. Beside RFC 3339: a space for the `T`, and stamps without seconds.
fn instant(text: &str, zone: Option<Tz>) -> Result<Timestamp, StampError> {
    let mut text = text.to_owned();
    let bytes = text.as_bytes();
    if bytes.len() >= 16
        && text.is_char_boundary(16)
        && bytes[13] == b':'
        && bytes.get(16) != Some(&b':')
    {
        text.insert_str(16, ":00");
    }
    match Timestamp::parse_rfc3339(&text) {
        Ok(instant) => Ok(instant),
        Err(TimeError::LocalTime { .. }) => local_instant(&text, zone.ok_or(StampError::NoZone)?),
        Err(error) => Err(StampError::Refused(Code::BadStamp, error.to_string())),
    }
}

/// The instant of a local time, already known to be well formed.
fn local_instant(text: &str, zone: Tz) -> Result<Timestamp, StampError> {
    let refused = |code, problem: String| Err(StampError::Refused(code, problem));
    let spelled = text.replace(['T', 't'], " ");
    let Ok(local) = NaiveDateTime::parse_from_str(&spelled, "%Y-%m-%d %H:%M:%S%.f") else {
        return refused(
            Code::BadStamp,
            format!(
                "{} is not a local date and time: write it like 2023-06-01 12:30:00",
                Shown(text)
            ),
        );
    };
    match zone.from_local_datetime(&local) {
        LocalResult::Single(instant) => Ok(Timestamp::from_millis(instant.timestamp_millis())),
        LocalResult::Ambiguous(first, second) => refused(
            Code::AmbiguousLocalTime,
            format!(
                "{} happens twice in {zone} (the clocks go back): write the offset, {} or {}",
                Shown(text),
                first.to_rfc3339(),
                second.to_rfc3339()
            ),
        ),
        LocalResult::None => refused(
            Code::NonexistentLocalTime,
            format!(
                "{} does not exist in {zone} (the clocks go forward): check the zone, or write the offset",
                Shown(text)
            ),
        ),
    }
}

#[cfg(test)]
#[path = "csv_series_tests.rs"]
mod tests;
