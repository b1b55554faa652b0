//! The one task that owns the engine: it stamps time, drops duplicates, commits groups, steps
//! them, answers tickets and hands the actions on.
//!
//! It runs on a thread of its own, because a commit blocks. Nothing else ever steps the engine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use metrics::{counter, gauge, histogram};
use sunward_core::action::Effects;
use sunward_core::engine::CORE_VERSION;
use sunward_core::event::{Event, Outcome, Started};
use sunward_core::fleet::Fleet;
use sunward_core::protocol::group::{Group, Request};
use sunward_core::protocol::leader::{LeaderGate, Leadership, TermSeen};
use sunward_signal_adapters::intake::Submission;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::effects::carry_out;
use self::submissions::Submissions;
use crate::clock::{Clock, STEP_MS};
use crate::dispatch::Dispatcher;
use crate::engine_handle::{INTERNAL_MESSAGES_MAX, Message};
use crate::journal::{self, ErrorKind};
use crate::metric_definitions as names;
use crate::readiness::Readiness;
use crate::writer::Writer;

mod effects;
mod submissions;

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
    /// Cancelled when the loop has ended, in whatever way.
    pub ended: CancellationToken,
}

/// An internal message on its way into a group; kept when a commit fails.
struct Telling {
    events: Vec<Event>,
    ticket: Option<oneshot::Sender<u64>>,
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
    submissions: Submissions,
    tellings: VecDeque<Telling>,
    /// A submission that did not fit into the last group.
    held: Option<Submission>,
    /// How many of `tellings`, from the front, are in the group being built.
    told: usize,
    disciplined: Instant,
    clock_stepped: bool,
    /// When the group being built was begun for a timer alone.
    timer_at: Option<Instant>,
    /// The journal refused the last group, or can't be used until it is reopened.
    failing: bool,
    /// This process has resigned, and everyone was told.
    resigned: bool,
    /// Says that the loop has ended, also when it panics.
    #[expect(dead_code, reason = "it works by being dropped")]
    ended: DropGuard,
}

impl EngineLoop {
    /// Starts the loop on a thread of its own; it ends after `shutdown`, and returns the writer.
    pub fn spawn(parts: Parts, runtime: Handle) -> std::thread::JoinHandle<Writer> {
        let looping = EngineLoop {
            ended: parts.ended.clone().drop_guard(),
            parts,
            group: Group::default(),
            effects: Effects::default(),
            submissions: Submissions::default(),
            tellings: VecDeque::new(),
            held: None,
            told: 0,
            disciplined: Instant::now(),
            clock_stepped: false,
            timer_at: None,
            failing: false,
            resigned: false,
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
            let waits = self.failing || (self.tellings.is_empty() && self.held.is_none());
            let woken = if waits {
                runtime.block_on(self.wait())
            } else {
                Woken::Timer
            };
            match woken {
                Woken::Submission(submission) => self.held = Some(submission),
                Woken::Message(message) => self.take(message),
                Woken::Timer | Woken::Stop => {}
            }
            self.look_after();
            self.gather();
            self.tick_if_due();
            if !self.group.is_empty() {
                self.commit();
            } else if !self.failing {
                self.submissions.answer(None);
            }
            let idle = self.tellings.is_empty() && self.held.is_none();
            if self.parts.shutdown.is_cancelled() && (idle || self.failing) {
                if !idle {
                    tracing::error!(
                        "stopping although the journal refuses what waits; it is asked for again"
                    );
                }
                return self.parts.writer;
            }
        }
    }

    /// What has to be seen to between two groups, whatever happens.
    fn look_after(&mut self) {
        if self.parts.writer.journal().needs_reopen() {
            self.mend_journal();
        }
        self.notice_resignation();
        if self.disciplined.elapsed() >= CLOCK_EVERY {
            self.discipline_clock();
            let journal = self.parts.writer.journal();
            gauge!(names::JOURNAL_BYTES).set(journal.size_bytes() as f64);
            counter!(names::DEDUPE_EVICTIONS).absolute(journal.dedupe_evictions());
            counter!(names::DECISIONS_DROPPED).absolute(self.parts.writer.decisions_dropped());
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
        // A journal that refuses is not asked again at once.
        let sleep = if self.failing { JOURNAL_RETRY } else { sleep };
        tokio::select! {
            biased;
            Some(message) = self.parts.messages.recv(), if !self.failing => Woken::Message(message),
            Some(submission) = self.parts.intake.recv(), if !self.failing => Woken::Submission(submission),
            () = self.parts.shutdown.cancelled(), if !self.failing => Woken::Stop,
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
            Message::LookUp(look) => look(&self.parts.writer),
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
            TermSeen::Absurd => {
                tracing::error!(
                    %object, term,
                    "no daemon ever counts this far: someone else wrote this term, and it is not followed; remove it there"
                );
            }
            TermSeen::Resign => self.notice_resignation(),
        }
    }

    /// Tells everyone once that nothing more is written, whoever closed the gate.
    fn notice_resignation(&mut self) {
        let leadership = self.gate(|gate| gate.leadership().clone());
        let Leadership::Resigned { object, term } = leadership else {
            return;
        };
        if std::mem::replace(&mut self.resigned, true) {
            return;
        }
        tracing::error!(
            object,
            term,
            "another writer holds what this daemon held: nothing more is written until a restart"
        );
        let state =
            format!("resigned: {object} carries term {term}; restart this daemon if it shall lead");
        self.parts.readiness.set("leader", Err(state));
        gauge!(names::LEADING).set(0.0);
        // Closed for good: ingest answers 503.
        self.parts.intake.close();
    }

    /// Opens a term ahead of everything else that waits.
    fn begin_term(&mut self, term: u64) {
        self.gate(|gate| gate.raised(term));
        // A step of the clock that goes on is journaled again: `started` forgets it.
        self.clock_stepped = false;
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
        while self.tellings.len() < INTERNAL_MESSAGES_MAX
            && let Ok(message) = self.parts.messages.try_recv()
        {
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
            self.submissions
                .add(submission, &self.parts.writer, &mut self.group);
        }
    }

    fn tick_if_due(&mut self) {
        let now = self.parts.clock.now();
        let due = self
            .parts
            .writer
            .engine()
            .next_wakeup()
            .is_some_and(|at| at <= now);
        self.timer_at = None;
        if due && self.group.is_empty() {
            self.timer_at = Some(Instant::now());
            let tick = Request::new(vec![Event::Tick]).expect("a tick fits into a group");
            self.group.add(tick);
        }
    }

    fn commit(&mut self) {
        let at = self.parts.writer.stamp(self.parts.clock.now());
        let dedupe = self.submissions.dedupe();
        let began = Instant::now();
        let committed = self
            .parts
            .writer
            .commit(at, &mut self.group, &dedupe, &mut self.effects);
        histogram!(names::JOURNAL_APPEND).record(began.elapsed().as_secs_f64());
        match committed {
            Ok(index) => {
                self.parts.readiness.set("journal", Ok(()));
                self.failing = false;
                self.after_step(index);
            }
            Err(error) => self.commit_failed(&error),
        }
        self.group.clear();
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
        let began = self.submissions.arrived().or(self.timer_at);
        let effects = std::mem::take(&mut self.effects);
        self.submissions.answer(Some(&effects));
        carry_out(&self.parts.dispatcher, &effects, began);
        self.effects = effects;
        self.parts.index.send_replace(index);
        if let Err(error) = self.parts.writer.snapshot_if_due() {
            tracing::error!(%error, "no snapshot was taken; the next start replays more");
        }
    }

    /// The journal did not take the group: tickets are dropped (503), internal messages stay.
    fn commit_failed(&mut self, error: &journal::Error) {
        tracing::error!(%error, "the journal refused a group; it is tried again");
        self.parts.readiness.set("journal", Err(error.to_string()));
        self.submissions.drop_all();
        self.failing = true;
        if error.kind() == ErrorKind::Conflict {
            let term = self.gate(|gate| gate.term());
            self.gate(|gate| gate.resign("the journal", term));
            self.tellings.clear();
            self.failing = false;
        }
    }

    /// Reopens a journal that failed. A group that did land after all is stepped now; then a tick
    /// proves that the journal takes groups again.
    fn mend_journal(&mut self) {
        self.failing = true;
        let dispatcher = &self.parts.dispatcher;
        let reopened = self
            .parts
            .writer
            .reopen(&mut |_, effects| carry_out(dispatcher, effects, None));
        match reopened {
            Ok(()) => {
                self.parts
                    .index
                    .send_replace(self.parts.writer.engine().state().index);
                self.tellings.push_back(Telling {
                    events: vec![Event::Tick],
                    ticket: None,
                });
            }
            Err(error) => {
                self.parts.readiness.set("journal", Err(error.to_string()));
                tracing::error!(%error, "the journal can't be reopened yet");
            }
        }
    }
}
