//! A file of readings as a series: named, and rebased onto the present.
//!
//! Shared by the adapter `file_replay` and `sunward signal push`; pure, the file's bytes and the
//! time to rebase to are arguments.

use std::ops::Range;

use sha2::{Digest as _, Sha256};
use sunward_core::time::{Span, Timestamp};

use crate::csv_series::{self, CsvError, CsvMapping};
use crate::wire::{self, Malformed, Reading, Rejected, hex};

/// Longest file, in bytes.
pub const FILE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Most readings of a file.
pub const READINGS_MAX: usize = 500_000;
/// Most readings sent at once.
pub const BATCH_READINGS_MAX: usize = 100;
/// Shortest interval after rebasing.
const INTERVAL_MIN: Span = Span::from_secs(1);

/// Where a series is moved, and how much faster it runs there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebase {
    /// What the first `valid_from` becomes.
    pub start: Timestamp,
    /// Intervals and gaps shrink by this, a finite number above 0.
    pub speed: f64,
}

/// Why a file is no series.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SeriesError {
    /// Not CSV as mapped.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// Not JSON readings.
    #[error("the file does not hold JSON readings: {0}")]
    Json(Malformed),
    /// Too long a file.
    #[error("the file has {bytes} bytes; at most {FILE_BYTES_MAX} are read: split it")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Rebased too fast.
    #[error(
        "at speed {speed} the interval of reading {item} ({length}) shrinks to {shrunk}, below 1s: use a speed of at most {most}"
    )]
    TooFast {
        /// The speed asked for.
        speed: f64,
        /// The reading, from 0.
        item: u64,
        /// Its interval in the file.
        length: Span,
        /// Its interval after rebasing.
        shrunk: Span,
        /// The highest speed that this reading allows.
        most: f64,
    },
    /// Not a speed.
    #[error(
        "the speed {speed} is not a finite number above 0: 1 keeps the pace, 60 makes an hour a minute"
    )]
    NotASpeed {
        /// As asked for.
        speed: f64,
    },
}

impl SeriesError {
    /// True when the call is at fault and not the file's content.
    pub fn is_wrong_use(&self) -> bool {
        matches!(
            self,
            SeriesError::TooFast { .. }
                | SeriesError::NotASpeed { .. }
                | SeriesError::Csv(CsvError::NoColumn { .. } | CsvError::NoTimeZone { .. })
        )
    }
}

/// One reading of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its position in the file, from 0.
    pub item: u64,
    /// The reading, with an id.
    pub reading: Reading,
}

/// The readings of a file, in the order in which they go out.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What can be sent.
    pub entries: Vec<Entry>,
    /// What can't be read.
    pub rejected: Vec<Rejected>,
    rebased: bool,
}

impl Series {
    /// Reads a file: CSV with a mapping, else JSON readings. Readings without an id get the
    /// SHA-256 of the file's hash, the row and the rebase, so that sending the same again is a
    /// duplicate and replaying it elsewhere in time is not.
    pub fn read(
        file: &[u8],
        mapping: Option<&CsvMapping>,
        rebase: Option<Rebase>,
    ) -> Result<Series, SeriesError> {
        if file.len() > FILE_BYTES_MAX {
            return Err(SeriesError::TooLong { bytes: file.len() });
        }
        let results = match mapping {
            Some(mapping) => csv_series::read(file, mapping, READINGS_MAX)?,
            None => wire::decode_file(file, READINGS_MAX).map_err(SeriesError::Json)?,
        };
        let mut series = Series {
            entries: Vec::new(),
            rejected: Vec::new(),
            rebased: rebase.is_some(),
        };
        for (item, result) in (0_u64..).zip(results) {
            match result {
                Ok(reading) => series.entries.push(Entry { item, reading }),
                Err(rejection) => series.rejected.push(rejection.of_item(item)),
            }
        }
        series.name(Sha256::digest(file).into(), rebase);
        if let Some(rebase) = rebase {
            series.rebase(rebase)?;
        }
        Ok(series)
    }

    fn name(&mut self, file_hash: [u8; 32], rebase: Option<Rebase>) {
        for Entry { item, reading } in &mut self.entries {
            reading.id.get_or_insert_with(|| {
                let mut hash = Sha256::new();
                hash.update(b"sunward file id 1");
                hash.update(file_hash);
                hash.update(item.to_le_bytes());
                if let Some(rebase) = rebase {
                    hash.update(rebase.start.as_millis().to_le_bytes());
                    hash.update(rebase.speed.to_bits().to_le_bytes());
                }
                hex(&hash.finalize()).into()
            });
        }
    }

    /// Moves every stamp by one monotonic function, so that neighbours stay neighbours, and sorts
    /// by start.
    fn rebase(&mut self, rebase: Rebase) -> Result<(), SeriesError> {
        let speed = rebase.speed;
        if !(speed.is_finite() && speed > 0.0) {
            return Err(SeriesError::NotASpeed { speed });
        }
        let Some(first) = self
            .entries
            .iter()
            .map(|entry| entry.reading.valid_from)
            .min()
        else {
            return Ok(());
        };
        let moved = |stamp: Timestamp| {
            let since_ms = ((stamp - first).as_millis() as f64 / speed).floor();
            rebase.start + Span::from_millis(since_ms as i64)
        };
        for Entry { item, reading } in &mut self.entries {
            let length = reading.valid_to - reading.valid_from;
            reading.valid_from = moved(reading.valid_from);
            reading.valid_to = moved(reading.valid_to);
            reading.issued_at = reading.issued_at.map(moved);
            let shrunk = reading.valid_to - reading.valid_from;
            // An interval that was too short or the wrong way round in the file is the file's
            // fault and is refused where readings are judged.
            if shrunk < INTERVAL_MIN && length >= INTERVAL_MIN {
                let most = length.as_millis() as f64 / 1_000.0;
                return Err(SeriesError::TooFast {
                    speed,
                    item: *item,
                    length,
                    shrunk,
                    most,
                });
            }
        }
        self.entries.sort_by_key(|entry| entry.reading.valid_from);
        Ok(())
    }

    /// The entries from position `from` on that may go out together at `now`: at most
    /// [`BATCH_READINGS_MAX`]; a rebased reading only once its interval has begun.
    pub fn due(&self, from: usize, now: Timestamp) -> Range<usize> {
        let rest = self.entries.get(from..).unwrap_or_default();
        let count = rest
            .iter()
            .take(BATCH_READINGS_MAX)
            .take_while(|entry| !self.rebased || entry.reading.valid_from <= now)
            .count();
        from..from + count
    }

    /// When the entry at position `from` goes out; `None` past the end. Without a rebase it is in
    /// the past.
    pub fn next_due(&self, from: usize) -> Option<Timestamp> {
        let entry = self.entries.get(from)?;
        Some(if self.rebased {
            entry.reading.valid_from
        } else {
            Timestamp::MIN
        })
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
