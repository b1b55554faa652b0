//! Sources of energy signals, one file each, and the wire form they share.
//!
//! An adapter turns what its source says into [`sunward_core::signal::Level`]s and submits them
//! through the [`intake::Intake`]; it never decides, and nothing of its source's format goes
//! further than its own file.
//!
//! To add one: its file, its variant of [`AdapterConfig`], its line in [`ADAPTERS`], its page
//! `docs/<name>.md` with an example, and its `fixtures/<name>/{input,expected}`. The conformance
//! test (`tests/conformance.rs`) walks the list.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use sunward_core::fleet::Fleet;
use sunward_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::intake::{Intake, ItemResult};
use crate::wire::{Limits, Reading, Rejection};

pub mod csv_series;
pub mod file_replay;
pub mod intake;
pub mod series;
pub mod wire;

/// A source of signals that the daemon reads by itself.
#[async_trait::async_trait]
pub trait SignalAdapter: Send {
    /// Submits readings until the source is at its end, `shutdown` is cancelled, or nothing can be
    /// submitted any more. Waits while the intake is full; never drops a reading unseen.
    async fn run(
        self: Box<Self>,
        intake: Intake,
        shutdown: CancellationToken,
    ) -> Result<(), AdapterError>;
}

/// What an adapter can't do.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// Its options contradict one another or name nothing.
    #[error("adapter {adapter}: {problem}")]
    Options {
        /// The adapter.
        adapter: &'static str,
        /// What is wrong, and how to mend it.
        problem: String,
    },
    /// Its source can't be read.
    #[error("adapter {adapter}: {what} can't be read: {problem}")]
    Source {
        /// The adapter.
        adapter: &'static str,
        /// The source.
        what: String,
        /// Why, and how to mend it.
        problem: String,
    },
    /// The daemon takes in nothing any more.
    #[error(
        "adapter {adapter}: {left} readings were not submitted, because the daemon is stopping"
    )]
    IntakeClosed {
        /// The adapter.
        adapter: &'static str,
        /// Readings that were left.
        left: usize,
    },
}

/// What became of a reading of an adapter, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report<'a> {
    /// The engine loop answered.
    Answered {
        /// The reading's source.
        source: &'a str,
        /// The answer.
        result: ItemResult,
    },
    /// It was refused before it was submitted.
    Refused {
        /// The stable code.
        code: &'a str,
    },
}

/// What the daemon lends to an adapter. The closures keep clocks, files of the fleet and metrics
/// out of this crate.
#[derive(Clone)]
pub struct Surroundings {
    /// Engine time.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Real time until an engine time; zero when it has passed.
    pub until: Arc<dyn Fn(Timestamp) -> Duration + Send + Sync>,
    /// The fleet in force.
    pub fleet: Arc<dyn Fn() -> Arc<Fleet> + Send + Sync>,
    /// Told about each reading.
    pub report: Arc<dyn Fn(Report<'_>) + Send + Sync>,
    /// What a reading may look like.
    pub limits: Limits,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The options of one adapter, as in the daemon's configuration: `- file_replay: {...}`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdapterConfig {
    /// A file, played on the daemon's clock.
    FileReplay(file_replay::FileReplayOptions),
}

impl AdapterConfig {
    /// The adapter's name.
    pub fn name(&self) -> &'static str {
        match self {
            AdapterConfig::FileReplay(_) => file_replay::NAME,
        }
    }

    /// The adapter, ready to run; the options are checked here.
    pub fn build(self, surroundings: Surroundings) -> Result<Box<dyn SignalAdapter>, AdapterError> {
        match self {
            AdapterConfig::FileReplay(options) => Ok(Box::new(file_replay::FileReplay::new(
                options,
                surroundings,
            )?)),
        }
    }
}

/// One line of the list of adapters.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// The name in the configuration, in `docs/` and in `fixtures/`.
    pub name: &'static str,
    /// The pure half of the adapter: what one captured answer of its source means.
    pub decode: Decode,
}

/// Turns a captured answer of a source into readings, one result per item, under the options that
/// are in force when it came.
pub type Decode = fn(
    captured: &[u8],
    options: &AdapterConfig,
) -> Result<Vec<Result<Reading, Rejection>>, AdapterError>;

/// Every adapter.
pub const ADAPTERS: &[Registration] = &[Registration {
    name: file_replay::NAME,
    decode: file_replay::decode,
}];
