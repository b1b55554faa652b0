//! `file_replay`: plays a file of readings, CSV or JSON, on the daemon's clock.
//!
//! With `rebase` a recorded series lives in the present, at `speed` times its own pace; without,
//! everything goes out at once and what is too old is refused like any other reading.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use sunward_core::signal::Level;
use sunward_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::csv_series::{self, CsvKeys, CsvMapping};
use crate::intake::{DedupeKey, Intake, ItemResult, SubmitError};
use crate::series::{FILE_BYTES_MAX, READINGS_MAX, Rebase, Series};
use crate::wire::{self, Context, Reading, Rejection};
use crate::{AdapterConfig, AdapterError, Report, SignalAdapter, Surroundings};

/// The adapter's name.
pub const NAME: &str = "file_replay";
/// First wait after the intake was full.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest wait between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The options, as in the daemon's configuration. A file with `time_column` is CSV, another holds
/// JSON readings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileReplayOptions {
    /// The file.
    pub path: PathBuf,
    /// `now`, or the RFC 3339 time that the first stamp becomes; absent = stamps stay as they are
    /// (`now` where `speed` is given).
    pub rebase: Option<String>,
    /// Intervals and gaps shrink by this; needs nothing else.
    pub speed: Option<f64>,
    /// As `time_column` of [`CsvKeys`].
    pub time_column: Option<String>,
    /// As `value_column` of [`CsvKeys`].
    pub value_column: Option<String>,
    /// As `time_zone` of [`CsvKeys`].
    pub time_zone: Option<String>,
    /// As `interval` of [`CsvKeys`].
    pub interval: Option<String>,
    /// As `unit` of [`CsvKeys`].
    pub unit: Option<String>,
    /// As `source` of [`CsvKeys`].
    pub source: Option<String>,
    /// As `kind` of [`CsvKeys`].
    pub kind: Option<String>,
    /// As `basis` of [`CsvKeys`].
    pub basis: Option<String>,
    /// As `site` of [`CsvKeys`].
    pub site: Option<String>,
    /// As `zone` of [`CsvKeys`].
    pub zone: Option<String>,
}

impl FileReplayOptions {
    /// The keys that map columns.
    pub fn csv_keys(&self) -> CsvKeys {
        CsvKeys {
            time_column: self.time_column.clone(),
            value_column: self.value_column.clone(),
            time_zone: self.time_zone.clone(),
            interval: self.interval.clone(),
            unit: self.unit.clone(),
            source: self.source.clone(),
            kind: self.kind.clone(),
            basis: self.basis.clone(),
            site: self.site.clone(),
            zone: self.zone.clone(),
        }
    }

    fn mapping(&self) -> Result<Option<CsvMapping>, AdapterError> {
        let keys = self.csv_keys();
        if keys.is_empty() {
            return Ok(None);
        }
        keys.mapping()
            .map(Some)
            .map_err(|error| wrong(error.to_string()))
    }
}

/// Where a series is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebaseStart {
    /// When it is read.
    Now,
    /// Then.
    At(Timestamp),
}

impl RebaseStart {
    /// Reads `now` or an RFC 3339 time.
    pub fn parse(text: &str) -> Result<RebaseStart, String> {
        if text == "now" {
            return Ok(RebaseStart::Now);
        }
        Timestamp::parse_rfc3339(text)
            .map(RebaseStart::At)
            .map_err(|error| format!("{error}; or write `now`"))
    }
}

/// The rebase that `start` and `speed` ask for: a speed alone means from now on.
pub fn rebase(start: Option<RebaseStart>, speed: Option<f64>, now: Timestamp) -> Option<Rebase> {
    if start.is_none() && speed.is_none() {
        return None;
    }
    let start = match start {
        Some(RebaseStart::At(start)) => start,
        Some(RebaseStart::Now) | None => now,
    };
    Some(Rebase {
        start,
        speed: speed.unwrap_or(1.0),
    })
}

fn wrong(problem: String) -> AdapterError {
    AdapterError::Options {
        adapter: NAME,
        problem,
    }
}

/// The readings of a file before they are rebased.
pub(crate) fn decode(
    captured: &[u8],
    options: &AdapterConfig,
) -> Result<Vec<Result<Reading, Rejection>>, AdapterError> {
    let AdapterConfig::FileReplay(options) = options;
    let read = match options.mapping()? {
        Some(mapping) => {
            csv_series::read(captured, &mapping, READINGS_MAX).map_err(|e| e.to_string())
        }
        None => wire::decode_file(captured, READINGS_MAX).map_err(|e| e.to_string()),
    };
    read.map_err(|problem| source_error(options, problem))
}

fn source_error(options: &FileReplayOptions, problem: String) -> AdapterError {
    AdapterError::Source {
        adapter: NAME,
        what: options.path.display().to_string(),
        problem,
    }
}

/// The adapter.
#[derive(Debug)]
pub struct FileReplay {
    options: FileReplayOptions,
    mapping: Option<CsvMapping>,
    start: Option<RebaseStart>,
    surroundings: Surroundings,
}

impl FileReplay {
    /// Checks the options; the file is read by `run`.
    pub fn new(
        options: FileReplayOptions,
        surroundings: Surroundings,
    ) -> Result<FileReplay, AdapterError> {
        if options.path.as_os_str().is_empty() {
            return Err(wrong("`path` is required: the file to play".into()));
        }
        let mapping = options.mapping()?;
        let start = options
            .rebase
            .as_deref()
            .map(RebaseStart::parse)
            .transpose()
            .map_err(|problem| wrong(format!("`rebase`: {problem}")))?;
        Ok(FileReplay {
            options,
            mapping,
            start,
            surroundings,
        })
    }

    async fn load(&self) -> Result<Series, AdapterError> {
        let fail = |problem: String| source_error(&self.options, problem);
        let length = tokio::fs::metadata(&self.options.path)
            .await
            .map_err(|error| fail(format!("{error}; check the path and its permissions")))?
            .len();
        if length > FILE_BYTES_MAX as u64 {
            return Err(fail(format!(
                "it has {length} bytes; at most {FILE_BYTES_MAX} are read: split it"
            )));
        }
        let file = tokio::fs::read(&self.options.path)
            .await
            .map_err(|error| fail(error.to_string()))?;
        let rebase = rebase(self.start, self.options.speed, (self.surroundings.now)());
        let mapping = self.mapping.clone();
        // A long file takes a while to read; the runtime's other tasks must not wait for it.
        tokio::task::spawn_blocking(move || Series::read(&file, mapping.as_ref(), rebase))
            .await
            .map_err(|error| fail(error.to_string()))?
            .map_err(|error| fail(error.to_string()))
    }

    /// The levels of the entries in `range`; what is refused is reported.
    fn admit(&self, series: &Series, range: std::ops::Range<usize>) -> Vec<(Level, DedupeKey)> {
        let fleet = (self.surroundings.fleet)();
        let context = Context {
            now: (self.surroundings.now)(),
            fleet: &fleet,
            limits: &self.surroundings.limits,
        };
        let mut admitted = Vec::new();
        for entry in &series.entries[range] {
            match wire::admit(entry.reading.clone(), &format!("/{}", entry.item), &context) {
                Ok(reading) => admitted.push(reading),
                Err(rejection) => {
                    self.refuse(rejection.code.as_str(), entry.item, &rejection.detail);
                }
            }
        }
        admitted
    }

    fn refuse(&self, code: &str, item: u64, detail: &str) {
        (self.surroundings.report)(Report::Refused { code });
        tracing::debug!(adapter = NAME, path = %self.options.path.display(), item, code, detail, "reading refused");
    }

    /// Submits a batch until it is durable. The same readings may be submitted again after a lost
    /// ticket: their ids make them duplicates.
    async fn submit(&self, readings: &[(Level, DedupeKey)], intake: &Intake) -> Submitted {
        let mut wait = RETRY_MIN;
        loop {
            match intake.submit(readings.to_vec(), Instant::now()) {
                Ok(ticket) => {
                    if let Ok(results) = ticket.await {
                        return Submitted::Answered(results);
                    }
                }
                Err(SubmitError::Full) => {}
                Err(SubmitError::Closed) => return Submitted::Closed,
                Err(SubmitError::TooLarge(error)) => {
                    // 100 readings of bounded texts are far below a group's size.
                    tracing::error!(adapter = NAME, %error, "a batch does not fit into a group");
                    return Submitted::Answered(Vec::new());
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    }

    async fn play(&self, series: Series, intake: &Intake) -> Result<(), AdapterError> {
        for rejected in &series.rejected {
            self.refuse(&rejected.code, rejected.item, &rejected.detail);
        }
        let mut sent = 0;
        while let Some(due_at) = series.next_due(sent) {
            tokio::time::sleep((self.surroundings.until)(due_at)).await;
            let range = series.due(sent, (self.surroundings.now)());
            sent = range.end;
            let batch = self.admit(&series, range);
            if batch.is_empty() {
                continue;
            }
            match self.submit(&batch, intake).await {
                Submitted::Answered(results) => {
                    for ((_, key), result) in batch.iter().zip(results) {
                        (self.surroundings.report)(Report::Answered {
                            source: &key.source,
                            result,
                        });
                    }
                }
                Submitted::Closed => {
                    let left = series.entries.len() - sent + batch.len();
                    return Err(AdapterError::IntakeClosed {
                        adapter: NAME,
                        left,
                    });
                }
            }
        }
        tracing::info!(adapter = NAME, path = %self.options.path.display(), readings = sent, "the file is played to its end");
        Ok(())
    }
}

enum Submitted {
    Answered(Vec<ItemResult>),
    Closed,
}

#[async_trait::async_trait]
impl SignalAdapter for FileReplay {
    async fn run(
        self: Box<Self>,
        intake: Intake,
        shutdown: CancellationToken,
    ) -> Result<(), AdapterError> {
        let play = async {
            let series = self.load().await?;
            self.play(series, &intake).await
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            played = play => played,
        }
    }
}

#[cfg(test)]
#[path = "file_replay_tests.rs"]
mod tests;
