//! The real engine behind a loop that steps events in order and keeps no journal; federation
//! events are made by settling sites directly, without fleet and policies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use sunward::engine_handle::{EngineHandle, INTERNAL_MESSAGES_MAX, Message};
use sunward::publish::EventSink;
use sunward::publish::publisher::{Hooks, Pace, Publisher};
use sunward_core::action::{Cause, Effects, Envelope};
use sunward_core::engine::{Engine, State};
use sunward_core::event::{Event, Started};
use sunward_core::fleet::Fleet;
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::protocol::outbox::Cursor;
use sunward_core::rounds::Issuer;
use sunward_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::until;

/// Envelopes that one turn of a site issues: joining, ready, draining, drained.
pub const TURN: usize = 4;

enum Order {
    /// A site joins, is ready, drains and is drained, so many times.
    Turns {
        federation: Arc<str>,
        site: Arc<str>,
        turns: usize,
        done: oneshot::Sender<()>,
    },
    /// `started` with a term above this one.
    Raise { above: u64 },
}

/// An engine with its loop, and what a publisher told about itself.
pub struct StandIn {
    pub handle: EngineHandle,
    orders: mpsc::UnboundedSender<Order>,
    pub events: Arc<Mutex<Vec<Event>>>,
    pub readiness: Arc<Mutex<Vec<Result<(), String>>>>,
    pub cursors: Arc<Mutex<BTreeMap<Arc<str>, Cursor>>>,
}

/// A publisher at work.
pub struct Running {
    pub shutdown: CancellationToken,
    pub task: JoinHandle<()>,
}

impl Running {
    /// Stops it and waits for its flush.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

impl StandIn {
    /// An engine in this term, with nothing else in it.
    pub fn new(term: u64) -> StandIn {
        StandIn::with(State {
            term,
            ..State::default()
        })
    }

    /// An engine with this state.
    pub fn with(state: State) -> StandIn {
        let (messages, inbox) = mpsc::channel(INTERNAL_MESSAGES_MAX);
        let (orders, ordered) = mpsc::unbounded_channel();
        let (indexes, index) = watch::channel(state.index);
        let gate = Arc::new(Mutex::new(LeaderGate::new(state.term)));
        let fleet = Arc::new(ArcSwap::from_pointee(Fleet::default()));
        let events = Arc::default();
        let core_loop = Loop {
            engine: Engine::restore(state),
            indexes,
            gate: gate.clone(),
            events: Arc::clone(&events),
            effects: Effects::default(),
        };
        tokio::spawn(core_loop.run(inbox, ordered));
        StandIn {
            handle: EngineHandle::new(messages, fleet, gate, index),
            orders,
            events,
            readiness: Arc::default(),
            cursors: Arc::default(),
        }
    }

    /// Takes a site through `turns` turns; returns once the engine has issued the envelopes.
    pub async fn turns(&self, federation: &str, site: &str, turns: usize) {
        let (done, told) = oneshot::channel();
        let order = Order::Turns {
            federation: federation.into(),
            site: site.into(),
            turns,
            done,
        };
        self.orders.send(order).ok().unwrap();
        told.await.unwrap();
    }

    /// Appends `started` with a term above this one.
    pub fn raise(&self, above: u64) {
        self.orders.send(Order::Raise { above }).ok().unwrap();
    }

    /// The engine's state.
    pub async fn state(&self) -> State {
        let ask = self.handle.ask(|engine| engine.state().clone());
        ask.await.unwrap()
    }

    /// The outbox of a federation.
    pub async fn outbox(&self, federation: &str) -> Vec<Envelope> {
        let state = self.state().await;
        let known = state.federations.get(federation);
        known.map_or_else(Vec::new, |known| known.outbox.iter().cloned().collect())
    }

    /// What a publisher calls.
    pub fn hooks(&self) -> Hooks {
        let (cursors, readiness) = (self.cursors.clone(), self.readiness.clone());
        let orders = self.orders.clone();
        Hooks {
            save_cursor: Arc::new(move |federation, cursor| {
                cursors.lock().unwrap().insert(federation.clone(), cursor);
            }),
            readiness: Arc::new(move |_, ready| readiness.lock().unwrap().push(ready)),
            higher_term: Arc::new(move |_, above| {
                orders.send(Order::Raise { above }).ok().unwrap();
            }),
        }
    }

    /// Starts a publisher.
    pub fn publish_to(&self, sink: Arc<dyn EventSink>, pace: Pace) -> Running {
        let shutdown = CancellationToken::new();
        let publisher = Publisher::new(sink, self.handle.clone(), self.hooks(), 7).with_pace(pace);
        Running {
            task: tokio::spawn(publisher.run(shutdown.clone())),
            shutdown,
        }
    }

    /// What was last said about readiness.
    pub fn ready(&self) -> Option<Result<(), String>> {
        self.readiness.lock().unwrap().last().cloned()
    }

    /// Waits until readiness is good, or bad.
    pub async fn until_ready(&self, good: bool) -> Result<(), String> {
        let what = if good { "readiness" } else { "unreadiness" };
        until(what, || async {
            self.ready().filter(|ready| ready.is_ok() == good)
        })
        .await
    }

    /// How often the engine was told that the sink is up, and down.
    pub fn told(&self) -> (usize, usize) {
        let events = self.events.lock().unwrap();
        let count =
            |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
        (
            count(|event| matches!(event, Event::SinkUp { .. })),
            count(|event| matches!(event, Event::SinkDown { .. })),
        )
    }
}

/// A quick pace, for sinks inside the process.
pub fn quick() -> Pace {
    Pace {
        probe_every: Duration::from_millis(20),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        ..Pace::default()
    }
}

struct Loop {
    engine: Engine,
    indexes: watch::Sender<u64>,
    gate: Arc<Mutex<LeaderGate>>,
    events: Arc<Mutex<Vec<Event>>>,
    effects: Effects,
}

impl Loop {
    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Message>,
        mut ordered: mpsc::UnboundedReceiver<Order>,
    ) {
        loop {
            tokio::select! {
                Some(order) = ordered.recv() => self.obey(order),
                message = inbox.recv() => match message {
                    None => return,
                    Some(Message::Ask(look)) => look(&self.engine),
                    Some(Message::Tell { events, ticket }) => {
                        for event in events {
                            self.step(event);
                        }
                        if let Some(ticket) = ticket {
                            let _ = ticket.send(self.engine.state().index);
                        }
                    }
                    Some(Message::LookUp(_)) => panic!("no publisher looks into the journal"),
                    Some(Message::HigherTerm { .. } | Message::SaveCursor { .. }) => {}
                },
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.engine.state().at.as_millis() + 1)
    }

    fn step(&mut self, event: Event) {
        let at = self.now();
        self.engine
            .step(at, std::slice::from_ref(&event), &mut self.effects);
        self.events.lock().unwrap().push(event);
        self.indexes.send_replace(self.engine.state().index);
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Raise { above } => {
                let term = above.max(self.engine.state().term) + 1;
                self.step(Event::Started(Started {
                    term,
                    seed: 1,
                    version: "test".into(),
                }));
                self.gate.lock().unwrap().raised(term);
            }
            Order::Turns {
                federation,
                site,
                turns,
                done,
            } => {
                let mut state = self.engine.state().clone();
                state.index += 1;
                state.at = self.now();
                let cause = Cause {
                    index: state.index,
                    by: "test".into(),
                    why: "a turn".into(),
                };
                let issuer = Issuer::new(state.term, state.at, &cause);
                let known = state.federations.entry(federation.clone()).or_default();
                for (wanted, ready) in [(1, 0), (1, 1), (0, 0)].repeat(turns) {
                    known.settle_site(
                        &federation,
                        &site,
                        wanted,
                        ready,
                        &issuer,
                        &mut self.effects,
                    );
                }
                self.effects.clear();
                self.engine = Engine::restore(state);
                self.indexes.send_replace(self.engine.state().index);
                let _ = done.send(());
            }
        }
    }
}
