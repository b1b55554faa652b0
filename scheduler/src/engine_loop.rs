//! The one task that owns the engine: it stamps time, drops duplicates, commits groups, steps
//! them, answers tickets and hands the actions on.
//!
//! It runs on a thread of its own, because a commit blocks. Nothing else ever steps the engine.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use metrics::{counter, gauge, histogram};
use sunward_core::action::{Action, Effects, Envelope, Reply};
use sunward_core::engine::CORE_VERSION;
use sunward_core::event::{Call, Event, Outcome, Started};
use sunward_core::fleet::Fleet;
use sunward_core::protocol::group::{Group, Request};
use sunward_core::protocol::leader::{LeaderGate, TermSeen};
use sunward_signal_adapters::intake::{DedupeKey, ItemResult, Submission};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, STEP_MS};
use crate::dispatch::{Dispatcher, Order};
use crate::engine_handle::Message;
use crate::journal::{self, DedupeEntry, ErrorKind};
use crate::metric_definitions as names;
use crate::readiness::Readiness;
use crate::writer::Writer;

/// How often the loop looks at the wall clock when nothing happens.
const CLOCK_EVERY: Duration = Duration::from_secs(1);
/// Pause before a failed journal is tried again.
const JOURNAL_RETRY: Duration = Duration::from_millis(500);

/// What the engine loop is built from.
pub struct Parts {
    /// The engine and its journal, recovered.
    pub writer: Writer,
    /// Engine time.
    pub clock: Clock,
    /// Readings.
    pub intake: mpsc::Receiver<Submission>,
    /// Everything else.
    pub messages: mpsc::Receiver<Message>,
    /// Where actions go.
    pub dispatcher: Dispatcher,
    /// Told the index of each group once it was stepped.
    pub index: watch::Sender<u64>,
    /// The fleet in force, for everyone.
    pub fleet: Arc<ArcSwap<Fleet>>,
    /// The leader gate, shared with everyone who writes outside.
    pub gate: Arc<Mutex<LeaderGate>>,
    /// What keeps the daemon from being ready.
    pub readiness: Readiness,
    /// Seeds the named random streams.
    pub seed: u64,
    /// Ends the loop once the inboxes are drained.
    pub shutdown: CancellationToken,
}

/// An internal message on its way into a group; kept when a commit fails.
struct Telling {
    events: Vec<Event>,
    ticket: Option<oneshot::Sender<u64>>,
}

/// A submission whose readings are in the group being built.
struct Pending {
    ticket: oneshot::Sender<Vec<ItemResult>>,
    results: Vec<ItemResult>,
    /// For each reading kept: its position in the request, in order.
    kept: Vec<usize>,
    /// Position in the group of the first reading kept.
    first: usize,
    arrived: Instant,
}

/// What woke the loop.
enum Woken {
    Submission(Submission),
    Message(Message),
    Timer,
    Stop,
}

/// The loop.
pub struct EngineLoop {
    parts: Parts,
    group: Group,
    effects: Effects,
    keys: Vec<DedupeKey>,
    /// The ids of the group: keyed hash of (source, id) -> where it stands in `keys`.
    named: HashMap<u64, usize>,
    pending: Vec<Pending>,
    tellings: VecDeque<Telling>,
    /// A submission that did not fit into the last group.
    held: Option<Submission>,
    /// How many of `tellings`, from the front, are in the group being built.
    told: usize,
    disciplined: Instant,
    clock_stepped: bool,
}

impl EngineLoop {
    /// Starts the loop on a thread of its own; it ends after `shutdown`, and returns the writer.
    pub fn spawn(parts: Parts, runtime: Handle) -> std::thread::JoinHandle<Writer> {
        let looping = EngineLoop {
            parts,
            group: Group::default(),
            effects: Effects::default(),
            keys: Vec::new(),
            named: HashMap::new(),
            pending: Vec::new(),
            tellings: VecDeque::new(),
            held: None,
            told: 0,
            disciplined: Instant::now(),
            clock_stepped: false,
        };
        std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || looping.run(&runtime))
            .expect("the operating system can start a thread")
    }

    fn run(mut self, runtime: &Handle) -> Writer {
        self.parts
            .fleet
            .store(Arc::new(self.parts.writer.engine().fleet().clone()));
        let term = self.gate(|gate| gate.term());
        self.begin_term(term);
        loop {
            let woken = if self.tellings.is_empty() && self.held.is_none() {
                runtime.block_on(self.wait())
            } else {
                Woken::Timer
            };
            let stop = matches!(woken, Woken::Stop);
            match woken {
                Woken::Submission(submission) => self.held = Some(submission),
                Woken::Message(message) => self.take(message),
                Woken::Timer | Woken::Stop => {}
            }
            self.discipline_clock();
            self.gather();
            self.tick_if_due();
            if !self.group.is_empty() {
                self.commit();
            } else if !self.parts.writer.journal().needs_reopen() {
                self.answer(None);
            }
            if stop && self.tellings.is_empty() && self.held.is_none() {
                return self.parts.writer;
            }
        }
    }

    /// Waits for the next submission, message, timer or the stop.
    async fn wait(&mut self) -> Woken {
        let sleep = self
            .parts
            .writer
            .engine()
            .next_wakeup()
            .map_or(CLOCK_EVERY, |at| {
                self.parts.clock.until(at).min(CLOCK_EVERY)
            });
        tokio::select! {
            biased;
            Some(message) = self.parts.messages.recv() => Woken::Message(message),
            Some(submission) = self.parts.intake.recv() => Woken::Submission(submission),
            () = self.parts.shutdown.cancelled() => Woken::Stop,
            () = tokio::time::sleep(sleep) => Woken::Timer,
        }
    }

    fn gate<T>(&self, with: impl FnOnce(&mut LeaderGate) -> T) -> T {
        with(
            &mut self
                .parts
                .gate
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Ask(look) => look(self.parts.writer.engine()),
            Message::SaveCursor { name, cursor } => self.save_cursor(&name, &cursor),
            Message::HigherTerm { object, term } => self.saw_term(&object, term),
            Message::Tell { events, ticket } => {
                self.watch_terms(&events);
                self.tellings.push_back(Telling { events, ticket });
            }
        }
    }

    fn save_cursor(&mut self, name: &str, cursor: &[u8]) {
        // A lost cursor only means that something is published again.
        if let Err(error) = self.parts.writer.journal_mut().save_cursor(name, cursor) {
            tracing::warn!(%error, name, "a sink's cursor was not saved");
        }
    }

    /// Terms come with observations and outcomes; one above ours means another writer.
    fn watch_terms(&mut self, events: &[Event]) {
        for event in events {
            let seen = match event {
                Event::PoolObserved(seen) => seen.term.map(|term| (&seen.pool, term)),
                Event::ActionSettled(settled) => match &settled.outcome {
                    Outcome::HigherTerm { term } => Some((&settled.pool, *term)),
                    Outcome::Accepted(seen) => seen.term.map(|term| (&settled.pool, term)),
                    _ => None,
                },
                _ => None,
            };
            if let Some((pool, term)) = seen {
                self.saw_term(&format!("pool:{pool}").into(), term);
            }
        }
    }

    fn saw_term(&mut self, object: &Arc<str>, term: u64) {
        match self.gate(|gate| gate.saw(object, term)) {
            TermSeen::Ours => {}
            TermSeen::Raise { above } => {
                tracing::warn!(%object, term, "a higher term was seen on something not yet claimed: going on above it");
                self.begin_term(above + 1);
            }
            TermSeen::Resign => {
                tracing::error!(
                    %object, term,
                    "another writer claimed what this daemon holds: nothing more is written until a restart"
                );
                self.parts.readiness.set(
                    "leader",
                    Err(format!("resigned: {object} carries term {term}")),
                );
                gauge!(names::LEADING).set(0.0);
                // Closed for good: ingest answers 503.
                self.parts.intake.close();
            }
        }
    }

    /// Opens a term ahead of everything else that waits.
    fn begin_term(&mut self, term: u64) {
        self.gate(|gate| gate.raised(term));
        let started = Started {
            term,
            seed: self.parts.seed,
            version: CORE_VERSION.to_owned(),
        };
        self.tellings.push_front(Telling {
            events: vec![Event::Started(started)],
            ticket: None,
        });
        gauge!(names::TERM).set(term as f64);
        gauge!(names::LEADING).set(1.0);
    }

    /// Slews the clock; a step of the wall clock becomes an event.
    fn discipline_clock(&mut self) {
        let elapsed = self.disciplined.elapsed();
        if elapsed < CLOCK_EVERY {
            return;
        }
        self.disciplined = Instant::now();
        let difference_ms = self.parts.clock.discipline(elapsed);
        let stepped = difference_ms.abs() >= STEP_MS;
        if stepped == self.clock_stepped {
            return;
        }
        self.clock_stepped = stepped;
        let event = if stepped {
            let detail = format!(
                "the wall clock is {difference_ms} ms away from engine time; nothing is scaled up"
            );
            tracing::error!(
                difference_ms,
                "the wall clock was stepped: nothing is scaled up until it is back"
            );
            self.parts.readiness.set("clock", Err(detail));
            Event::ClockStepped { difference_ms }
        } else {
            self.parts.readiness.set("clock", Ok(()));
            Event::ClockRestored
        };
        self.tellings.push_back(Telling {
            events: vec![event],
            ticket: None,
        });
    }

    /// Fills the group with what waits: internal messages first, then readings.
    fn gather(&mut self) {
        while let Ok(message) = self.parts.messages.try_recv() {
            self.take(message);
        }
        let mut told = 0;
        for telling in &self.tellings {
            let Ok(request) = Request::new(telling.events.clone()) else {
                tracing::error!("an internal request does not fit into a group; it is dropped");
                told += 1;
                continue;
            };
            if !self.group.fits(&request) {
                break;
            }
            self.group.add(request);
            told += 1;
        }
        // `told` of them are in the group; they leave the queue once the group is durable.
        self.told = told;
        while let Some(submission) = self
            .held
            .take()
            .or_else(|| self.parts.intake.try_recv().ok())
        {
            if !self.group.fits(&submission.request) {
                self.held = Some(submission);
                break;
            }
            self.add(submission);
        }
    }

    /// Adds a submission without its duplicates.
    fn add(&mut self, submission: Submission) {
        let Submission {
            mut request,
            keys,
            arrived,
            ticket,
        } = submission;
        let asked: Vec<_> = keys
            .iter()
            .map(|key| journal::DedupeKey {
                source: &key.source,
                id: &key.id,
            })
            .collect();
        let Ok(seen) = self.parts.writer.journal().seen(&asked) else {
            // Unanswered: the sender is told 503 and tries again.
            return;
        };
        let mut results = Vec::with_capacity(keys.len());
        let mut kept = Vec::with_capacity(keys.len());
        for (position, (key, seen)) in keys.into_iter().zip(seen).enumerate() {
            let name = self.named.hasher().hash_one((&key.source, &key.id));
            let here = self.named.get(&name).map(|position| &self.keys[*position]);
            let here = here.filter(|here| here.source == key.source && here.id == key.id);
            let known = seen.or(here.map(|here| here.hash));
            results.push(match known {
                None => ItemResult::Accepted,
                Some(hash) if hash == key.hash => ItemResult::Duplicate,
                Some(_) => ItemResult::Conflict,
            });
            if known.is_none() {
                kept.push(position);
                self.named.insert(name, self.keys.len());
                self.keys.push(key);
            }
        }
        request.retain(|position| results[position] == ItemResult::Accepted);
        let first = self.group.add(request);
        self.pending.push(Pending {
            ticket,
            results,
            kept,
            first,
            arrived,
        });
    }

    fn tick_if_due(&mut self) {
        let now = self.parts.clock.now();
        let due = self
            .parts
            .writer
            .engine()
            .next_wakeup()
            .is_some_and(|at| at <= now);
        if due && self.group.is_empty() {
            let tick = Request::new(vec![Event::Tick]).expect("a tick fits into a group");
            self.group.add(tick);
        }
    }

    fn commit(&mut self) {
        let at = self.parts.writer.stamp(self.parts.clock.now());
        let dedupe: Vec<_> = self
            .keys
            .iter()
            .map(|key| DedupeEntry {
                source: &key.source,
                id: &key.id,
                hash: key.hash,
            })
            .collect();
        let began = Instant::now();
        let committed = self
            .parts
            .writer
            .commit(at, &mut self.group, &dedupe, &mut self.effects);
        histogram!(names::JOURNAL_APPEND).record(began.elapsed().as_secs_f64());
        match committed {
            Ok(index) => {
                self.parts.readiness.set("journal", Ok(()));
                self.after_step(index);
            }
            Err(error) => self.commit_failed(&error),
        }
        self.group.clear();
        self.forget_keys();
    }

    fn forget_keys(&mut self) {
        self.keys.clear();
        self.named.clear();
    }

    fn after_step(&mut self, index: u64) {
        if self
            .group
            .events()
            .iter()
            .any(|event| matches!(event, Event::FleetReplaced { .. }))
        {
            self.parts
                .fleet
                .store(Arc::new(self.parts.writer.engine().fleet().clone()));
        }
        for telling in self.tellings.drain(..self.told) {
            if let Some(ticket) = telling.ticket {
                // Nobody may be waiting any more.
                let _ = ticket.send(index);
            }
        }
        let arrived = self.pending.iter().map(|pending| pending.arrived).min();
        let effects = std::mem::take(&mut self.effects);
        self.answer(Some(&effects));
        carry_out(&self.parts.dispatcher, &effects, arrived);
        self.effects = effects;
        self.parts.index.send_replace(index);
        match self.parts.writer.snapshot(false) {
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "no snapshot was taken; the next start replays more")
            }
        }
    }

    /// Answers the tickets of a group that was stepped, or that came out empty.
    fn answer(&mut self, effects: Option<&Effects>) {
        if self.pending.is_empty() {
            return;
        }
        let replies: BTreeMap<usize, Reply> = effects
            .into_iter()
            .flat_map(|effects| &effects.actions)
            .filter_map(|action| match action {
                Action::Reply { position, reply } => Some((*position as usize, *reply)),
                _ => None,
            })
            .collect();
        for mut pending in self.pending.drain(..) {
            for (offset, position) in pending.kept.iter().enumerate() {
                match replies.get(&(pending.first + offset)) {
                    Some(Reply::Superseded) => pending.results[*position] = ItemResult::Superseded,
                    Some(Reply::BoardFull) => pending.results[*position] = ItemResult::BoardFull,
                    None => {}
                }
            }
            // The sender may have hung up; what it sent is durable all the same.
            let _ = pending.ticket.send(pending.results);
        }
        self.forget_keys();
    }

    /// The journal did not take the group: tickets are dropped (503), internal messages stay.
    fn commit_failed(&mut self, error: &journal::Error) {
        tracing::error!(%error, "the journal refused a group; it is tried again");
        self.parts.readiness.set("journal", Err(error.to_string()));
        self.pending.clear();
        if error.kind() == ErrorKind::Conflict {
            let term = self.gate(|gate| gate.term());
            self.resign("journal", term);
            self.tellings.clear();
            return;
        }
        std::thread::sleep(JOURNAL_RETRY);
        let dispatcher = &self.parts.dispatcher;
        let reopened = self
            .parts
            .writer
            .reopen(&mut |_, effects| carry_out(dispatcher, effects, None));
        if let Err(error) = reopened {
            tracing::error!(%error, "the journal can't be reopened yet");
        }
    }

    fn resign(&mut self, object: &str, term: u64) {
        self.gate(|gate| gate.resign(object, term));
        self.parts.readiness.set(
            "leader",
            Err(format!("resigned: another writer appended to the {object}")),
        );
        gauge!(names::LEADING).set(0.0);
        self.parts.intake.close();
    }
}

/// Hands the actions of one step on, in order.
fn carry_out(dispatcher: &Dispatcher, effects: &Effects, arrived: Option<Instant>) {
    for decision in &effects.decisions {
        let direction = match decision.target.cmp(&decision.before) {
            std::cmp::Ordering::Less => "down",
            std::cmp::Ordering::Equal => "same",
            std::cmp::Ordering::Greater => "up",
        };
        counter!(names::DECISIONS, "pool" => decision.pool.to_string(), "direction" => direction)
            .increment(1);
        tracing::info!(
            pool = %decision.pool, target = decision.target, before = decision.before,
            rule = %decision.rule, reason = %decision.reason, index = decision.index, "decision"
        );
    }
    for action in &effects.actions {
        match action {
            Action::Claim { pool, term, .. } => {
                dispatcher.place(Order {
                    pool: pool.clone(),
                    call: Call::Claim { term: *term },
                    scale: None,
                    arrived,
                });
            }
            Action::Scale(scale) => dispatcher.place(Order {
                pool: scale.pool.clone(),
                call: Call::Scale {
                    term: scale.term,
                    generation: scale.generation,
                },
                scale: Some(scale.clone()),
                arrived,
            }),
            Action::Broadcast(envelope) => log_envelope(envelope),
            Action::Refuse {
                pool,
                reason,
                detail,
                cause,
            } => {
                counter!(names::REFUSALS, "reason" => *reason).increment(1);
                tracing::warn!(pool = pool.as_deref(), reason, detail, %cause, "refused");
            }
            Action::Reply { .. } => {}
        }
    }
}

/// Sinks read envelopes from the engine's outbox; here they are only logged.
fn log_envelope(envelope: &Envelope) {
    tracing::info!(
        federation = %envelope.federation, kind = envelope.kind.as_str(), site = %envelope.site,
        id = %envelope.id, "event"
    );
}
