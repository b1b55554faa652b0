//! The demo without waiting: one thread that jumps from wake-up to wake-up.
//!
//! The order is the engine loop's: commit a group, step it, carry out its actions in order, and
//! take what comes back through the same inbox, internal messages before readings.

use std::collections::{BTreeMap, VecDeque};

use sunward_core::action::{Action, Effects};
use sunward_core::engine::{CORE_VERSION, Engine};
use sunward_core::event::{Call, Event, PackedFile, Settled, Started};
use sunward_core::protocol::group::{Group, Request, TooLarge};
use sunward_core::time::Timestamp;

use super::scenario::{Scenario, Step};
use super::score::Score;
use crate::actuators::Command;
use crate::actuators::memory::MemoryPools;
use crate::journal::{self, Memory};
use crate::writer::{self, Writer};

/// Groups that a run may take; the series needs fewer than a thousand.
pub const GROUPS_MAX: u64 = 100_000;
/// Seed of the named random streams; nothing in the demo fails, so nothing draws.
pub const SEED: u64 = 1;

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal in memory refused something.
    #[error("the demo's journal refused a group: {0}")]
    Journal(#[from] journal::Error),
    /// The journal in memory could not be read.
    #[error("the demo's journal could not be opened: {0}")]
    Writer(#[from] writer::Error),
    /// Something does not fit into a group.
    #[error("the demo's fleet, policy or readings: {0}")]
    TooLarge(#[from] TooLarge),
    /// Wake-ups without end: a fault of ours.
    #[error("the demo took {GROUPS_MAX} groups and was at {at}; please report this")]
    Endless {
        /// Series time by then.
        at: Timestamp,
    },
}

/// A run that came to its end.
pub struct Finished {
    /// The account.
    pub score: Score,
    /// The engine and its journal.
    pub writer: Writer,
}

/// Plays `scenario` to its end.
pub fn run(scenario: &Scenario) -> Result<Finished, Error> {
    let mut run = Run::new(scenario)?;
    while let Some(at) = run.next_instant().filter(|at| *at < scenario.end) {
        if run.writer.engine().state().index >= GROUPS_MAX {
            return Err(Error::Endless { at });
        }
        run.group(at)?;
    }
    run.score.advance(run.writer.engine(), scenario.end);
    run.score.look(run.writer.engine(), scenario.end);
    Ok(Finished {
        score: run.score,
        writer: run.writer,
    })
}

/// What opens the first term: the daemon's start, then fleet and policies together.
fn opening(scenario: &Scenario) -> [Vec<Event>; 2] {
    let started = Started {
        term: 1,
        seed: SEED,
        version: CORE_VERSION.to_owned(),
    };
    let fleet = Event::FleetReplaced {
        file: PackedFile::pack(&scenario.fleet_file),
    };
    let policies = Event::PoliciesReplaced {
        files: vec![PackedFile::pack(&scenario.policy_file)],
    };
    [vec![Event::Started(started)], vec![fleet, policies]]
}

struct Run {
    writer: Writer,
    pools: MemoryPools,
    score: Score,
    steps: std::iter::Peekable<Box<dyn Iterator<Item = Step>>>,
    /// Internal messages that wait.
    inbox: VecDeque<Vec<Event>>,
    now: Timestamp,
    effects: Effects,
}

impl Run {
    fn new(scenario: &Scenario) -> Result<Run, Error> {
        let steps: Box<dyn Iterator<Item = Step>> = Box::new(scenario.steps());
        Ok(Run {
            writer: Writer::recover(Box::new(Memory::default()))?,
            pools: MemoryPools::new(BTreeMap::new()),
            score: Score::new(scenario),
            steps: steps.peekable(),
            inbox: opening(scenario).into(),
            now: scenario.start,
            effects: Effects::default(),
        })
    }

    /// The next instant at which anything happens.
    fn next_instant(&mut self) -> Option<Timestamp> {
        if !self.inbox.is_empty() {
            return Some(self.now);
        }
        let reading = self.steps.peek().map(|step| step.at);
        [
            reading,
            self.writer.engine().next_wakeup(),
            self.pools.next_due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes one group at `at` and carries out what it asks for.
    fn group(&mut self, at: Timestamp) -> Result<(), Error> {
        let at = self.writer.stamp(at);
        self.now = at;
        let mut group = self.gather(at)?;
        self.score.advance(self.writer.engine(), at);
        self.writer.commit(at, &mut group, &[], &mut self.effects)?;
        self.score
            .record(self.writer.engine(), at, group.events(), &self.effects);
        for action in std::mem::take(&mut self.effects).actions {
            self.carry_out(&action);
        }
        Ok(())
    }

    /// What waits at `at`: internal messages first, then readings; a tick if time alone calls.
    fn gather(&mut self, at: Timestamp) -> Result<Group, Error> {
        let seen = self.pools.observe_due(at);
        self.inbox
            .extend(seen.into_iter().map(|seen| vec![Event::PoolObserved(seen)]));
        let mut group = Group::default();
        while let Some(events) = self.inbox.front() {
            let request = Request::new(events.clone())?;
            if !group.fits(&request) {
                return Ok(group);
            }
            group.add(request);
            self.inbox.pop_front();
        }
        while let Some(step) = self.steps.next_if(|step| step.at <= at) {
            let request = Request::new(
                step.readings
                    .into_iter()
                    .map(Event::SignalAccepted)
                    .collect(),
            )?;
            group.add(request);
        }
        if group.is_empty() {
            group.add(Request::new(vec![Event::Tick])?);
        }
        Ok(group)
    }

    fn carry_out(&mut self, action: &Action) {
        let Some((command, call)) = command(action, self.writer.engine()) else {
            return;
        };
        let outcome = self.pools.apply(&command, self.now);
        let (Command::Claim { pool, .. } | Command::Scale { pool, .. }) = &command;
        let settled = Settled {
            pool: pool.name.clone(),
            call,
            outcome,
        };
        self.inbox.push_back(vec![Event::ActionSettled(settled)]);
    }
}

/// The call that an action asks for, if it asks for one.
fn command(action: &Action, engine: &Engine) -> Option<(Command, Call)> {
    match action {
        Action::Claim { pool, term, .. } => {
            let pool = engine.fleet().pool(pool)?.clone();
            Some((
                Command::Claim { pool, term: *term },
                Call::Claim { term: *term },
            ))
        }
        Action::Scale(scale) => {
            let pool = engine.fleet().pool(&scale.pool)?.clone();
            let call = Call::Scale {
                term: scale.term,
                generation: scale.generation,
            };
            Some((
                Command::Scale {
                    pool,
                    scale: scale.clone(),
                },
                call,
            ))
        }
        Action::Broadcast(_) | Action::Reply { .. } | Action::Refuse { .. } => None,
    }
}
