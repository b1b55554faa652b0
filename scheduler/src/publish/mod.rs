//! Event sinks: who carries federation events to members, one file each.

use std::sync::Arc;

use async_trait::async_trait;
use sunward_core::action::Envelope;
use sunward_core::event::StreamEnd;
use sunward_core::rounds::SiteState;

pub mod envelope;
pub mod memory;
pub mod publisher;
pub mod redis;
pub mod wiring;

/// Why a sink did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// It can't be reached, or answered with an error that may pass.
    #[error("{0}")]
    Unavailable(String),
    /// Its stream ends at a higher position: another writer wrote there.
    #[error("the stream of federation {} ends at {}-{} already", .0.federation, .0.term, .0.sequence)]
    Fenced(StreamEnd),
}

/// A site as its hash says it: where it stands, and how much power it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteNow {
    /// Where it stands in the federation.
    pub state: SiteState,
    /// The share of training power that is allowed, in percent.
    pub power_percent: u8,
}

/// Carries envelopes to members. A sink never retries and never decides.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// The name in events, metrics and status.
    fn name(&self) -> &'static str;

    /// Connects if need be, and reads where each federation's stream ends; a federation whose
    /// stream is empty is absent from the answer.
    async fn ends(&self, federations: &[Arc<str>]) -> Result<Vec<StreamEnd>, SinkError>;

    /// Rewrites the state of every site of a federation, whatever the sink held.
    async fn restate(
        &self,
        federation: &Arc<str>,
        sites: &[(Arc<str>, SiteNow)],
    ) -> Result<(), SinkError>;

    /// Publishes envelopes of one federation in order; all before the failing one are published.
    async fn publish(&self, envelopes: &[Envelope]) -> Result<(), SinkError>;
}
