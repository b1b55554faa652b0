//! One daemon: its engine loop.
//!
//! The loop is the engine loop's: gather whole requests into a group, take the phases of the
//! group one after another, and hand the actions to the pools' slots. The driver decides nothing;
//! it obeys the core's protocol modules.

use std::collections::VecDeque;
use std::sync::Arc;

use sunward_core::action::{Action, Effects};
use sunward_core::engine::{CORE_VERSION, Engine, State};
use sunward_core::event::{Event, Started};
use sunward_core::protocol::commit::{Commit, Phase};
use sunward_core::protocol::group::{Group, Request, decode_record};
use sunward_core::protocol::leader::{LeaderGate, TermSeen, terms_seen};
use sunward_core::protocol::slot::Slot;
use sunward_core::time::{Span, Timestamp};

use super::calls::Order;
use super::cluster::Cached;
use super::log::Record;
use super::publisher::Driver;
use super::signals::Reading;
use super::{Core, Happening, World};
use crate::draw::Draws;

/// Groups between two snapshots.
const SNAPSHOT_GROUPS: u64 = 400;

/// Who waits for a group.
#[derive(Debug)]
pub(super) enum Ticket {
    /// Nobody.
    Nobody,
    /// The sender of a reading.
    Reading(Reading),
    /// The publisher, for its greeting.
    Greeting,
}

/// What waits for the loop.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) events: Vec<Event>,
    pub(super) ticket: Ticket,
}

/// A group between its phases.
#[derive(Debug)]
pub(super) struct Forming {
    at: Timestamp,
    expected: u64,
    events: Arc<[Event]>,
    pub(super) tickets: Vec<Ticket>,
    commit: Commit,
}

/// One daemon.
pub(super) struct Replica {
    pub(super) engine: Engine,
    pub(super) life: u32,
    pub(super) alive: bool,
    pub(super) frozen_until: Timestamp,
    /// There while it leads, or believes so.
    pub(super) gate: Option<LeaderGate>,
    pub(super) inbox: VecDeque<Entry>,
    committing: bool,
    kick_at: Option<Timestamp>,
    pub(super) tailing: bool,
    /// Its wall clock against the world's.
    skew: Span,
    pub(super) slots: Vec<Slot<Order>>,
    pub(super) cache: Vec<Cached>,
    pub(super) sink: Driver,
}

impl Replica {
    pub(super) fn new(core: &Core, number: usize, alone: bool, pools: usize, seed: u64) -> Replica {
        let mut draws = Draws::new(seed, &format!("skew:{number}"));
        let most = Span::from_millis(if alone { 0 } else { 400 });
        Replica {
            engine: (core.engine)(State::default()),
            life: 0,
            alive: true,
            frozen_until: Timestamp::MIN,
            gate: None,
            inbox: VecDeque::new(),
            committing: false,
            kick_at: None,
            tailing: false,
            skew: draws.span(Span::ZERO - most, most),
            slots: (0..pools).map(|_| Slot::default()).collect(),
            cache: vec![Cached::default(); pools],
            sink: Driver::default(),
        }
    }

    /// It holds a gate, and the gate is open.
    pub(super) fn is_leading(&self) -> bool {
        self.alive && self.gate.as_ref().is_some_and(LeaderGate::is_open)
    }

    /// Everything that lives in the process alone.
    pub(super) fn forget(&mut self) -> Vec<Ticket> {
        self.gate = None;
        self.committing = false;
        self.kick_at = None;
        self.sink = Driver::default();
        for slot in &mut self.slots {
            *slot = Slot::default();
        }
        for cached in &mut self.cache {
            *cached = Cached::default();
        }
        self.inbox.drain(..).map(|entry| entry.ticket).collect()
    }
}

impl World<'_> {
    /// Tells the loop something from inside the daemon.
    pub(super) fn tell(&mut self, replica: usize, events: Vec<Event>, ticket: Ticket) {
        self.watch_terms(replica, &events);
        self.replicas[replica]
            .inbox
            .push_back(Entry { events, ticket });
        self.kick_soon(replica);
    }

    /// Terms come with observations and outcomes; one above ours means another writer.
    fn watch_terms(&mut self, replica: usize, events: &[Event]) {
        for (pool, term) in terms_seen(events) {
            self.saw_term(replica, &format!("pool:{pool}").into(), term);
        }
    }

    /// Returns true where the gate stays open in its term.
    pub(super) fn saw_term(&mut self, replica: usize, object: &Arc<str>, term: u64) -> bool {
        let Some(gate) = &mut self.replicas[replica].gate else {
            return false;
        };
        match gate.saw(object, term) {
            // Nobody in this world writes an absurd term.
            TermSeen::Ours | TermSeen::Absurd => true,
            TermSeen::Raise { above } => {
                self.write_down(&format!(
                    "replica {replica} goes on above term {above} of {object}"
                ));
                self.begin_term(replica, above + 1);
                false
            }
            TermSeen::Resign => {
                self.resigned(replica);
                false
            }
        }
    }

    pub(super) fn begin_term(&mut self, replica: usize, term: u64) {
        let seed = self.options.seed;
        let known = &mut self.replicas[replica];
        if let Some(gate) = &mut known.gate {
            gate.raised(term);
        }
        let started = Event::Started(Started {
            term,
            seed,
            version: CORE_VERSION.to_owned(),
        });
        known.inbox.push_front(Entry {
            events: vec![started],
            ticket: Ticket::Nobody,
        });
        self.write_down(&format!("replica {replica} begins term {term}"));
        self.kick_soon(replica);
    }

    /// The loop runs as soon as it can: at once where nothing else may happen in between.
    pub(super) fn kick_soon(&mut self, replica: usize) {
        let known = &mut self.replicas[replica];
        if known.committing || known.kick_at.is_some_and(|at| at <= self.now) {
            return;
        }
        known.kick_at = Some(self.now);
        let life = self.life(replica);
        self.push(self.now, Happening::Kick(life));
    }

    /// One turn of the loop: a group, or a wait for the next timer.
    pub(super) fn kick(&mut self, replica: usize) {
        let known = &mut self.replicas[replica];
        if known.kick_at.is_some_and(|at| at <= self.now) {
            known.kick_at = None;
        }
        if known.committing || !known.is_leading() {
            return;
        }
        let due = known.engine.next_wakeup();
        let mine = self.now + known.skew;
        let waiting = !known.inbox.is_empty() || !self.batch.events().is_empty();
        if !waiting && due.is_none_or(|due| due > mine) {
            if let Some(due) = due {
                let at = due - known.skew;
                if known.kick_at.is_none_or(|planned| at < planned) {
                    known.kick_at = Some(at);
                    let life = self.life(replica);
                    self.push(at, Happening::Kick(life));
                }
            }
            return;
        }
        known.committing = true;
        if !self.log.keep {
            return self.quiet_turn(replica);
        }
        let forming = self.gather(replica);
        self.go_on(replica, forming);
    }

    /// A group of a world in which nothing can go wrong and nobody reads the log again: the same
    /// phases, without an encoding and without a wait.
    fn quiet_turn(&mut self, replica: usize) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut tickets = Vec::new();
        // Internal messages come before readings.
        let mut inside = Vec::new();
        while let Some(mut entry) = self.replicas[replica].inbox.pop_front() {
            inside.append(&mut entry.events);
            tickets.push(entry.ticket);
        }
        if inside.is_empty() && batch.events().is_empty() {
            inside.push(Event::Tick);
        }
        if !inside.is_empty() {
            inside.extend_from_slice(batch.events());
        }
        let events = if inside.is_empty() {
            batch.events()
        } else {
            &inside
        };
        let at = self.now.max(self.replicas[replica].engine.state().at);
        let mut commit = (self.options.core.commit)();
        let mut quiet = false;
        while let Some(phase) = commit.next_phase() {
            match phase {
                Phase::Append => self.log.count(),
                Phase::Step => {
                    let engine = &mut self.replicas[replica].engine;
                    engine.step(at, events, &mut self.effects);
                    // Most groups ask for nothing, and nobody checks.
                    quiet = self.effects.is_empty();
                    if !quiet {
                        let effects = std::mem::take(&mut self.effects);
                        self.first_look(replica, at, events, &effects);
                        self.effects = effects;
                    }
                }
                Phase::Answer => self.answer_tickets(replica, &mut tickets),
                Phase::Dispatch if quiet => {}
                Phase::Dispatch => self.dispatch(replica),
            }
        }
        batch.clear();
        self.batch = batch;
        self.replicas[replica].committing = false;
        self.kick(replica);
    }

    /// Whole requests, in order, as many as fit.
    fn gather(&mut self, replica: usize) -> Forming {
        let known = &mut self.replicas[replica];
        let at = (self.now + known.skew).max(known.engine.state().at);
        let expected = known.engine.state().index;
        let mut tickets = Vec::with_capacity(known.inbox.len());
        let commit = (self.options.core.commit)();
        let mut group = Group::default();
        let mut ids: Vec<Arc<str>> = Vec::new();
        while let Some(entry) = known.inbox.front() {
            let Ok(request) = Request::new(entry.events.clone()) else {
                known.inbox.pop_front();
                continue;
            };
            if !group.fits(&request) {
                break;
            }
            let repeated = match &entry.ticket {
                Ticket::Reading(reading) => {
                    let id = &reading.level.id;
                    let repeated = self.log.has(id) || ids.contains(id);
                    ids.push(id.clone());
                    repeated
                }
                _ => false,
            };
            if !repeated {
                group.add(request);
            }
            tickets.extend(known.inbox.pop_front().map(|entry| entry.ticket));
        }
        if group.is_empty()
            && let Ok(tick) = Request::new(vec![Event::Tick])
        {
            group.add(tick);
        }
        // What is stepped is what the record says.
        let (at, events) = decode_record(group.record(at)).unwrap_or((at, Vec::new()));
        Forming {
            at,
            expected,
            events: events.into(),
            tickets,
            commit,
        }
    }

    /// The phases of a group, until one has to wait for the disk.
    fn go_on(&mut self, replica: usize, mut forming: Forming) {
        while let Some(phase) = forming.commit.next_phase() {
            match phase {
                Phase::Append => return self.append(replica, forming),
                Phase::Step => self.step(replica, &forming),
                Phase::Answer => self.answer_tickets(replica, &mut forming.tickets),
                Phase::Dispatch => self.dispatch(replica),
            }
        }
        let known = &mut self.replicas[replica];
        known.committing = false;
        self.kick(replica);
    }

    fn append(&mut self, replica: usize, forming: Forming) {
        let life = self.life(replica);
        if self.armed_kills > 0 {
            self.armed_kills -= 1;
            self.count(crate::fault::Fault::LeaderKilledInCommit);
            // Half of the groups reach the disk all the same; nobody is told.
            if self.dice.disk.chance(0.5) {
                let record = Record {
                    at: forming.at,
                    events: forming.events.clone(),
                };
                // The next reader of the log is the first to step it.
                let _ = self.log.append(forming.expected, record);
            }
            self.send_again(forming.tickets);
            return self.kill(replica);
        }
        let wait = self.dice.disk.around(self.scenario.append);
        self.after(wait, Happening::Durable(life, forming.into()));
    }

    /// The disk has answered: the group is durable, or somebody else was faster.
    pub(super) fn durable(&mut self, replica: usize, forming: Forming) {
        let record = Record {
            at: forming.at,
            events: forming.events.clone(),
        };
        if self.log.append(forming.expected, record).is_ok() {
            return self.go_on(replica, forming);
        }
        self.send_again(forming.tickets);
        let term = self.replicas[replica].engine.state().term;
        if let Some(gate) = &mut self.replicas[replica].gate {
            gate.resign("journal", term);
        }
        if self.replicas[replica].is_leading() {
            // The gate says: go on.
            self.replicas[replica].committing = false;
            self.catch_up(replica);
            return self.kick(replica);
        }
        self.resigned(replica);
    }

    /// The first step of an index.
    fn step(&mut self, replica: usize, forming: &Forming) {
        let mut effects = std::mem::take(&mut self.effects);
        let (at, events) = (forming.at, &forming.events);
        let engine = &mut self.replicas[replica].engine;
        engine.step(at, events, &mut effects);
        self.first_look(replica, at, events, &effects);
        self.effects = effects;
        let index = self.log.last();
        if index.is_multiple_of(SNAPSHOT_GROUPS) {
            let snapshot = self.replicas[replica].engine.snapshot();
            self.log.snapshot = Some((index, snapshot));
        }
        for other in 0..self.replicas.len() {
            let known = &mut self.replicas[other];
            if other != replica && known.alive && !known.tailing {
                known.tailing = true;
                let low = Span::from_millis(2);
                let wait = self.dice.network.span(low, Span::from_millis(40));
                let life = self.life(other);
                self.after(wait, Happening::Tail(life));
            }
        }
    }

    /// Checkers, accounts and the transcript see each index once, as it is first stepped.
    fn first_look(&mut self, replica: usize, at: Timestamp, events: &[Event], effects: &Effects) {
        let by = self.life(replica);
        self.progress.looked_at = self.replicas[replica].engine.state().index;
        if let Some(checks) = &mut self.checks {
            checks.stepped(at, by, events, &self.replicas[replica].engine, effects);
        }
        for action in &effects.actions {
            if let Action::Scale(scale) = action {
                self.accounts.ordered(scale);
            }
        }
        if self.transcript.is_some() {
            self.transcribe(effects);
        }
    }

    fn transcribe(&mut self, effects: &Effects) {
        for decision in &effects.decisions {
            self.write_down(&format!(
                "decide {} {} -> {} by {}: {}",
                decision.pool, decision.before, decision.target, decision.rule, decision.reason
            ));
        }
        for action in &effects.actions {
            let line = match action {
                Action::Claim { pool, term, .. } => format!("claim {pool} in term {term}"),
                Action::Scale(scale) => format!(
                    "scale {} {} -> {} generation {}",
                    scale.pool, scale.from, scale.replicas, scale.generation
                ),
                Action::Broadcast(envelope) => format!(
                    "event {} {} {}-{} {}",
                    envelope.federation,
                    envelope.kind.as_str(),
                    envelope.term,
                    envelope.sequence,
                    envelope.site
                ),
                Action::Refuse { reason, detail, .. } => format!("refuse {reason}: {detail}"),
                Action::Reply { reply, .. } => format!("reply {reply:?}"),
            };
            self.write_down(&line);
        }
    }

    fn answer_tickets(&mut self, replica: usize, tickets: &mut Vec<Ticket>) {
        for ticket in tickets.drain(..) {
            match ticket {
                Ticket::Nobody => {}
                Ticket::Reading(reading) => self.acknowledge(reading),
                Ticket::Greeting => self.greeted(replica),
            }
        }
    }

    /// Hands the actions of the last step on.
    fn dispatch(&mut self, replica: usize) {
        let effects = std::mem::take(&mut self.effects);
        let mut told = false;
        for action in &effects.actions {
            match action {
                Action::Claim { pool, term, .. } => {
                    self.place(replica, Order::claim(pool.clone(), *term));
                }
                Action::Scale(scale) => self.place(replica, Order::scale(scale.clone())),
                Action::Broadcast(_) => told = true,
                Action::Reply { .. } | Action::Refuse { .. } => {}
            }
        }
        self.effects = effects;
        if told {
            self.publish_soon(replica);
        }
    }

    /// A follower steps what it has not seen.
    pub(super) fn tail(&mut self, replica: usize) {
        self.replicas[replica].tailing = false;
        self.catch_up(replica);
    }

    pub(super) fn catch_up(&mut self, replica: usize) {
        let mut effects = Effects::default();
        loop {
            let index = self.replicas[replica].engine.state().index + 1;
            let Some(record) = self.log.record(index) else {
                return;
            };
            let (at, events) = (record.at, record.events.clone());
            self.replicas[replica]
                .engine
                .step(at, &events, &mut effects);
            if index > self.progress.looked_at {
                self.first_look(replica, at, &events, &effects);
            }
            if let Some(checks) = &mut self.checks {
                checks.followed(self.now, &self.replicas[replica].engine);
            }
        }
    }
}
