//! What can happen to the engine: one closed enum.
//!
//! Everything that the engine ever learns arrives as an [`Event`] in a journaled group; nothing
//! else may change its state. A later feature adds its events here and handles them in `step`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::document::SourceFile;
use sunward_policies::time::Timestamp;

use crate::grid_event::GridEvent;
use crate::overrides::Override;
use crate::signal::Level;

/// One thing that happened, as it is journaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A writer opened the journal under a new term; whatever was in flight is unknown now.
    Started(Started),
    /// A level passed every check at the edge.
    SignalAccepted(Level),
    /// A grid event, or a new revision of one, passed every check at the edge.
    GridEventAccepted(GridEvent),
    /// An operator set an override.
    OverrideSet(Override),
    /// An operator ended an override before its expiry.
    OverrideCleared {
        /// Which.
        id: Arc<str>,
        /// Who ended it.
        by: String,
    },
    /// An operator said what a budget has spent so far in its running period.
    BudgetSet {
        /// `policy/budget`.
        budget: Arc<str>,
        /// The site, federation or pool whose sum it is; empty for the fleet's.
        part: Arc<str>,
        /// Spent, in the measure's integer unit; zero or more.
        spent: i64,
        /// Who said so.
        by: String,
    },
    /// A pool was seen, by a watch, by a claim's answer or by the memory actuator.
    PoolObserved(PoolObservation),
    /// A cluster's API server can't be reached.
    ClusterUnreachable {
        /// The cluster's name in `fleet.yaml`.
        cluster: Arc<str>,
        /// What the client said.
        reason: String,
    },
    /// A cluster's API server answers again.
    ClusterReachable {
        /// The cluster's name in `fleet.yaml`.
        cluster: Arc<str>,
    },
    /// An event sink is connected, and these are the ends of its streams.
    SinkUp {
        /// The sink's name, for example `redis`.
        sink: Arc<str>,
        /// The last entry of each federation's stream; absent where the stream is empty.
        ends: Vec<StreamEnd>,
        /// The last entry of this journal that the sink is known to have taken, as it was saved
        /// beside the journal; counts only where the stream's end is not from this journal.
        taken: Vec<StreamEnd>,
    },
    /// An event sink was lost.
    SinkDown {
        /// The sink's name.
        sink: Arc<str>,
        /// What the client said.
        reason: String,
    },
    /// A new set of policy files was validated and takes over.
    PoliciesReplaced {
        /// The whole set; a file that is absent is gone.
        files: Vec<PackedFile>,
    },
    /// An operator took the policies back: stands in one group behind the `PoliciesReplaced` that
    /// brought the set before into force again.
    PoliciesRolledBack {
        /// The content hash of the set that was taken back.
        hash: Arc<str>,
        /// Who did it.
        by: String,
    },
    /// A new fleet file was validated and takes over.
    FleetReplaced {
        /// The file.
        file: PackedFile,
    },
    /// An action was carried out, refused, or its fate is unknown.
    ActionSettled(Settled),
    /// The wall clock left the engine's clock by 60 s or more: no scale-up until it is back.
    ClockStepped {
        /// Wall clock minus engine time, in milliseconds.
        difference_ms: i64,
    },
    /// The wall clock is within 60 s of the engine's clock again.
    ClockRestored,
    /// Nothing happened but the passing of time.
    Tick,
}

/// Longest text that is unpacked, in bytes: what a start is willing to hold.
pub const UNPACKED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A file as it is journaled: deflated, since one event must fit into one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    /// As the operator knows it; shown in diagnostics.
    pub path: String,
    /// The text, as a zlib stream (RFC 1950).
    #[serde(with = "serde_bytes")]
    packed: Vec<u8>,
}

impl PackedFile {
    /// Packs a file.
    pub fn pack(file: &SourceFile) -> PackedFile {
        // Level 6 is the usual balance; the bytes only have to be read again, not to be the same
        // in every version.
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(file.text.as_bytes(), 6);
        PackedFile {
            path: file.path.clone(),
            packed,
        }
    }

    /// The file, or `None` where the bytes are no packed text of acceptable size.
    pub fn unpack(&self) -> Option<SourceFile> {
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(
            &self.packed,
            UNPACKED_BYTES_MAX,
        )
        .ok()?;
        Some(SourceFile {
            path: self.path.clone(),
            text: String::from_utf8(bytes).ok()?,
        })
    }

    /// Bytes that it takes in the journal.
    pub fn packed_bytes(&self) -> usize {
        self.path.len() + self.packed.len()
    }
}

/// The beginning of a term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Higher than every term before it.
    pub term: u64,
    /// Seeds every named stream of random numbers.
    pub seed: u64,
    /// The version of the core that journals from here on.
    pub version: String,
}

/// The state of a pool at its home, projected from whatever the cluster calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolObservation {
    /// The pool's name in `fleet.yaml`.
    pub pool: Arc<str>,
    /// Workers that the target asks for (`spec.replicas`).
    pub wanted: u32,
    /// Workers that can train.
    pub ready: u32,
    /// Workers on their way out.
    pub stopping: u32,
    /// Grows with each change of the object at its home (Kubernetes: the resource version), so
    /// that an older observation never undoes a newer one.
    pub version: u64,
    /// The highest term that a sunward daemon wrote on the object.
    pub term: Option<u64>,
    /// When a sunward daemon last changed the wanted workers.
    pub changed_at: Option<Timestamp>,
}

/// The end of one federation's event stream at a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// The federation, or `_none`.
    pub federation: Arc<str>,
    /// The term of the stream's last entry.
    pub term: u64,
    /// The sequence number of the stream's last entry.
    pub sequence: u64,
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The pool that the action was for.
    pub pool: Arc<str>,
    /// Which action.
    pub call: Call,
    /// What became of it.
    pub outcome: Outcome,
}

/// Names an action, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// The claim of a pool under a term.
    Claim {
        /// The claiming term.
        term: u64,
    },
    /// A scale write.
    Scale {
        /// The term that wrote it.
        term: u64,
        /// The pool's generation that it carried.
        generation: u64,
    },
}

/// What became of a call, as far as the caller can know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It took effect; the observation is the answer's.
    Accepted(PoolObservation),
    /// The object moved on: plan again from a fresh one. Not a failure.
    Conflict,
    /// No answer in time: it may have taken effect, now or later.
    Unknown {
        /// What the client said.
        reason: String,
    },
    /// It did not take effect, and may if tried again.
    Failed {
        /// What the server said.
        reason: String,
        /// Milliseconds that the server asked to wait.
        retry_after_ms: Option<u64>,
    },
    /// Not done: the object carries a higher term than the caller's.
    HigherTerm {
        /// The term on the object.
        term: u64,
    },
    /// It did not take effect, and will not until someone changes something.
    Refused {
        /// What the server said.
        reason: String,
    },
}

impl Outcome {
    /// The label value for metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Accepted(_) => "accepted",
            Outcome::Conflict => "conflict",
            Outcome::Unknown { .. } => "unknown",
            Outcome::Failed { .. } => "failed",
            Outcome::HigherTerm { .. } => "higher_term",
            Outcome::Refused { .. } => "refused",
        }
    }
}
