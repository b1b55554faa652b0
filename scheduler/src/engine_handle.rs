//! How the rest of the daemon talks to the engine loop, which alone owns the engine.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use sunward_core::engine::Engine;
use sunward_core::event::Event;
use sunward_core::fleet::Fleet;
use sunward_core::protocol::leader::{LeaderGate, Leadership};
use tokio::sync::{mpsc, oneshot, watch};

use crate::writer::Writer;

/// Internal messages that wait for the engine loop at most; senders wait for room.
pub const INTERNAL_MESSAGES_MAX: usize = 4_096;

/// What the engine loop is told or asked from inside the daemon.
pub enum Message {
    /// Journal these events together; the ticket resolves to their index once they are durable
    /// and stepped.
    Tell {
        /// Most often one.
        events: Vec<Event>,
        /// Answered with the journal index.
        ticket: Option<oneshot::Sender<u64>>,
    },
    /// A term above ours was read on an object (`pool:NAME`) or a stream (`stream:FEDERATION`).
    HigherTerm {
        /// Where.
        object: Arc<str>,
        /// Which.
        term: u64,
    },
    /// Remember how far a sink has come.
    SaveCursor {
        /// The sink and the federation.
        name: String,
        /// As the sink encodes it.
        cursor: Vec<u8>,
    },
    /// Look at the engine between two groups.
    Ask(Box<dyn FnOnce(&Engine) + Send>),
    /// Look at the engine and its journal between two groups.
    LookUp(Box<dyn FnOnce(&Writer) + Send>),
}

/// The engine loop is gone: the daemon is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine loop has stopped")]
pub struct Stopped;

/// A handle to the engine loop. Cheap to clone.
#[derive(Clone)]
pub struct EngineHandle {
    messages: mpsc::Sender<Message>,
    /// The fleet in force; replaced by the engine loop when a new one was journaled.
    pub fleet: Arc<ArcSwap<Fleet>>,
    /// The leader gate, shared by everyone who writes outside.
    pub gate: Arc<Mutex<LeaderGate>>,
    /// Journal index of the last group stepped; changes wake whoever follows the outbox.
    pub index: watch::Receiver<u64>,
}

impl EngineHandle {
    /// A handle over the engine loop's ends.
    pub fn new(
        messages: mpsc::Sender<Message>,
        fleet: Arc<ArcSwap<Fleet>>,
        gate: Arc<Mutex<LeaderGate>>,
        index: watch::Receiver<u64>,
    ) -> EngineHandle {
        EngineHandle {
            messages,
            fleet,
            gate,
            index,
        }
    }

    /// Journals an event without waiting for the commit; waits for room in the inbox.
    pub async fn tell(&self, event: Event) -> Result<(), Stopped> {
        self.send(vec![event], None).await
    }

    /// Journals an event and returns its index once it is durable and the engine has seen it.
    pub async fn tell_and_wait(&self, event: Event) -> Result<u64, Stopped> {
        self.tell_all_and_wait(vec![event]).await
    }

    /// The same for several events that take effect together.
    pub async fn tell_all_and_wait(&self, events: Vec<Event>) -> Result<u64, Stopped> {
        let (ticket, answer) = oneshot::channel();
        self.send(events, Some(ticket)).await?;
        answer.await.map_err(|_| Stopped)
    }

    async fn send(
        &self,
        events: Vec<Event>,
        ticket: Option<oneshot::Sender<u64>>,
    ) -> Result<(), Stopped> {
        self.messages
            .send(Message::Tell { events, ticket })
            .await
            .map_err(|_| Stopped)
    }

    /// Reports a term above ours: the engine loop goes on above it, or resigns.
    pub async fn higher_term(&self, object: Arc<str>, term: u64) -> Result<(), Stopped> {
        self.messages
            .send(Message::HigherTerm { object, term })
            .await
            .map_err(|_| Stopped)
    }

    /// Remembers how far a sink has come; durable with the next group.
    pub async fn save_cursor(&self, name: String, cursor: Vec<u8>) -> Result<(), Stopped> {
        self.messages
            .send(Message::SaveCursor { name, cursor })
            .await
            .map_err(|_| Stopped)
    }

    /// Looks at the engine between two groups. `look` runs on the engine loop: keep it short.
    pub async fn ask<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        let ask = Box::new(move |engine: &Engine| {
            // Whoever asked may have given up meanwhile.
            let _ = answer.send(look(engine));
        });
        self.messages
            .send(Message::Ask(ask))
            .await
            .map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// The same with the journal: for a lookup of a page or two, not for a scan.
    pub async fn look_up<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Writer) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        let look_up = Box::new(move |writer: &Writer| {
            // Whoever asked may have given up meanwhile.
            let _ = answer.send(look(writer));
        });
        self.messages
            .send(Message::LookUp(look_up))
            .await
            .map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// The current term, and whether this process may write outside; the error says why not.
    pub fn leadership(&self) -> (u64, Result<(), String>) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match gate.leadership() {
            Leadership::Leading => Ok(()),
            Leadership::Resigned { object, term } => {
                Err(format!("resigned: {object} carries term {term}"))
            }
        };
        (gate.term(), state)
    }

    /// Internal messages that wait now.
    pub fn depth(&self) -> usize {
        self.messages.max_capacity() - self.messages.capacity()
    }
}
