//! Series from CSV text: any resolution, gaps kept as gaps, forecasts with their issue times.
//!
//! The caller reads the file; here is only the text. Each row holds from its stamp to the next
//! one, at most for the series' own step: where rows are missing nothing holds, and no value is
//! ever filled in.

use sunward_core::time::{Span, Timestamp};

/// Most rows of one trace: ten years of minutes.
pub const ROWS_MAX: usize = 5_500_000;

/// Where the columns are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// RFC 3339 stamps with an offset, or integer milliseconds since 1970.
    pub time: String,
    /// The value; an empty field is a gap.
    pub value: String,
    /// When a forecast was issued; absent = the rows are measured.
    pub issued: Option<String>,
    /// Length of a row; absent = the most frequent distance of two stamps.
    pub interval: Option<Span>,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// First instant at which it holds.
    pub from: Timestamp,
    /// First instant at which it no longer holds.
    pub to: Timestamp,
    /// `None` where the source has no value.
    pub value: Option<f64>,
    /// When it was issued, for a forecast.
    pub issued_at: Option<Timestamp>,
}

/// Why a text is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Not CSV.
    #[error("not CSV: {0}")]
    Csv(#[from] csv::Error),
    /// No such column.
    #[error("there is no column `{name}`; the header has: {header}")]
    Column {
        /// The column asked for.
        name: String,
        /// What there is.
        header: String,
    },
    /// A field can't be read.
    #[error("line {line}: `{text}` is no {what}")]
    Field {
        /// Line of the text, the header being 1.
        line: u64,
        /// As it stands there.
        text: String,
        /// What was expected.
        what: &'static str,
    },
    /// Stamps go back.
    #[error("line {line}: earlier than the row before it; sort the file by time")]
    Order {
        /// Line of the text.
        line: u64,
    },
    /// Too long.
    #[error("more than {ROWS_MAX} rows: cut the file")]
    Rows,
    /// The step can't be found.
    #[error("a single row does not say how long it holds: give `interval`")]
    Interval,
}

/// Reads a trace.
pub fn read(text: &str, columns: &Columns) -> Result<Vec<Sample>, TraceError> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let column = |name: &str| {
        let found = header.iter().position(|field| field.trim() == name);
        found.ok_or_else(|| TraceError::Column {
            name: name.to_owned(),
            header: header.iter().collect::<Vec<_>>().join(", "),
        })
    };
    let (time, value) = (column(&columns.time)?, column(&columns.value)?);
    let issued = columns.issued.as_deref().map(column).transpose()?;
    let mut rows: Vec<(Timestamp, Option<f64>, Option<Timestamp>)> = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        if rows.len() == ROWS_MAX {
            return Err(TraceError::Rows);
        }
        let field = |index: usize| record.get(index).unwrap_or("").trim();
        let at = stamp(field(time), line)?;
        let issued_at = issued.map(|index| stamp(field(index), line)).transpose()?;
        if let Some((before, _, before_issued)) = rows.last()
            && (issued_at, at) < (*before_issued, *before)
        {
            return Err(TraceError::Order { line });
        }
        rows.push((at, number(field(value), line)?, issued_at));
    }
    let step = match columns.interval {
        Some(step) => step,
        None => usual_step(&rows).ok_or(TraceError::Interval)?,
    };
    let ends = rows.iter().enumerate().map(|(i, (from, _, issued))| {
        let next = rows
            .get(i + 1)
            .filter(|next| next.2 == *issued && next.0 > *from);
        next.map_or(*from + step, |next| next.0.min(*from + step))
    });
    let ends: Vec<_> = ends.collect();
    let samples = rows.into_iter().zip(ends);
    Ok(samples
        .map(|((from, value, issued_at), to)| Sample {
            from,
            to,
            value,
            issued_at,
        })
        .collect())
}

fn stamp(text: &str, line: u64) -> Result<Timestamp, TraceError> {
    if let Ok(ms) = text.parse::<i64>() {
        return Ok(Timestamp::from_millis(ms));
    }
    Timestamp::parse_rfc3339(text).map_err(|_| TraceError::Field {
        line,
        text: text.to_owned(),
        what: "time with an offset, such as 2023-06-01T12:30:00Z",
    })
}

fn number(text: &str, line: u64) -> Result<Option<f64>, TraceError> {
    if text.is_empty() {
        return Ok(None);
    }
    let value: Option<f64> = text.parse().ok().filter(|value: &f64| value.is_finite());
    value.map(Some).ok_or_else(|| TraceError::Field {
        line,
        text: text.to_owned(),
        what: "finite number; leave the field empty where there is no value",
    })
}

/// The most frequent distance of two stamps of one issue; the shorter one of two.
fn usual_step(rows: &[(Timestamp, Option<f64>, Option<Timestamp>)]) -> Option<Span> {
    let mut counts = std::collections::BTreeMap::new();
    for pair in rows.windows(2) {
        if pair[0].2 == pair[1].2 && pair[1].0 > pair[0].0 {
            *counts.entry(pair[1].0 - pair[0].0).or_insert(0_u32) += 1;
        }
    }
    let best = counts
        .iter()
        .max_by_key(|(step, count)| (**count, std::cmp::Reverse(**step)));
    best.map(|(step, _)| *step)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn columns(issued: bool) -> Columns {
        Columns {
            time: "time".to_owned(),
            value: "moer".to_owned(),
            issued: issued.then(|| "issued".to_owned()),
            interval: None,
        }
    }

    #[test]
    fn gaps_stay_gaps() {
        let text = "time,moer\n2023-06-01T00:00:00Z,1\n2023-06-01T00:05:00Z,\n2023-06-01T00:10:00Z,3\n2023-06-01T00:40:00Z,4\n";
        let samples = read(text, &columns(false)).unwrap();
        let held: Vec<_> = samples
            .iter()
            .map(|s| ((s.to - s.from).as_millis() / 60_000, s.value))
            .collect();
        assert_eq!(
            held,
            [(5, Some(1.0)), (5, None), (5, Some(3.0)), (5, Some(4.0))]
        );
    }

    #[test]
    fn forecasts_keep_their_issue_times() {
        let text = "issued,time,moer\n2023-06-01T00:00:00Z,2023-06-01T01:00:00Z,1\n2023-06-01T00:00:00Z,2023-06-01T02:00:00Z,2\n2023-06-01T01:00:00Z,2023-06-01T02:00:00Z,5\n";
        let samples = read(text, &columns(true)).unwrap();
        assert_eq!(samples.len(), 3);
        assert_eq!(samples[2].from, samples[1].from);
        assert!(samples[2].issued_at > samples[1].issued_at);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let said = |text: &str| read(text, &columns(false)).unwrap_err().to_string();
        assert!(said("t,moer\n1,2\n").contains("no column `time`"));
        assert!(said("time,moer\n2023-06-01T00:00:00,1\n").starts_with("line 2"));
        assert!(said("time,moer\n0,NaN\n").contains("finite"));
        assert!(said("time,moer\n5,1\n3,1\n").contains("line 3"));
        assert!(said("time,moer\n5,1\n").contains("interval"));
    }
}
