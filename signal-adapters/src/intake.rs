//! The bounded way into the engine: every source of signals, pushed or polled, submits here.

use std::sync::Arc;
use std::time::Instant;

use sunward_core::event::Event;
use sunward_core::protocol::group::{Request, TooLarge};
use sunward_core::signal::Level;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the engine at most; one more is answered with [`SubmitError::Full`].
pub const INBOX_REQUESTS_MAX: usize = 1_024;

/// Names a reading across retries: the same (source, id) with the same hash is a duplicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupeKey {
    /// The source.
    pub source: Arc<str>,
    /// The sender's id, or the hash of what identifies the reading.
    pub id: Arc<str>,
    /// SHA-256 of the reading's content.
    pub hash: [u8; 32],
}

/// What became of one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemResult {
    /// It is durable, and the engine has seen it.
    Accepted,
    /// The same reading was accepted before.
    Duplicate,
    /// It is durable, behind a higher sequence of its stream.
    Superseded,
    /// The same id was accepted before with another content.
    Conflict,
    /// There is no room for another stream.
    BoardFull,
}

/// Why a request was not taken in; nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The engine is behind; try again.
    #[error("the inbox is full ({INBOX_REQUESTS_MAX} requests); try again")]
    Full,
    /// The daemon takes in nothing: it is stopping, resigned, or its journal refuses writes.
    #[error("the daemon does not take in readings now")]
    Closed,
    /// The request can't be one group.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// One request on its way to the engine loop.
#[derive(Debug)]
pub struct Submission {
    /// The readings as events, encoded.
    pub request: Request,
    /// One per reading.
    pub keys: Vec<DedupeKey>,
    /// When the last byte of the request was read.
    pub arrived: Instant,
    /// Answered once the group is durable and stepped; one result per reading.
    pub ticket: oneshot::Sender<Vec<ItemResult>>,
}

/// The way in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    inbox: mpsc::Sender<Submission>,
}

impl Intake {
    /// An intake and the end that the engine loop reads.
    pub fn channel() -> (Intake, mpsc::Receiver<Submission>) {
        let (inbox, outlet) = mpsc::channel(INBOX_REQUESTS_MAX);
        (Intake { inbox }, outlet)
    }

    /// Submits a request without waiting. The ticket resolves to one result per reading once the
    /// whole request is durable; a dropped ticket means that nothing is known to be accepted.
    pub fn submit(
        &self,
        readings: Vec<(Level, DedupeKey)>,
        arrived: Instant,
    ) -> Result<oneshot::Receiver<Vec<ItemResult>>, SubmitError> {
        let (levels, keys): (Vec<_>, Vec<_>) = readings.into_iter().unzip();
        self.submit_events(
            levels.into_iter().map(Event::SignalAccepted).collect(),
            keys,
            arrived,
        )
    }

    /// The same for readings that are events already, one key per event.
    pub fn submit_events(
        &self,
        events: Vec<Event>,
        keys: Vec<DedupeKey>,
        arrived: Instant,
    ) -> Result<oneshot::Receiver<Vec<ItemResult>>, SubmitError> {
        let request = Request::new(events)?;
        let (ticket, answer) = oneshot::channel();
        self.inbox
            .try_send(Submission {
                request,
                keys,
                arrived,
                ticket,
            })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => SubmitError::Full,
                mpsc::error::TrySendError::Closed(_) => SubmitError::Closed,
            })?;
        Ok(answer)
    }

    /// Requests that wait now.
    pub fn depth(&self) -> usize {
        self.inbox.max_capacity() - self.inbox.capacity()
    }
}
