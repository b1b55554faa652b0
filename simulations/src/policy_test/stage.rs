//! Plays a test: the production engine, pools that do as they are told, and time that jumps from event to event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sunward_core::action::{Action, Decision, Effects, EventKind};
use sunward_core::engine::{CORE_VERSION, Engine};
use sunward_core::event::{Call, Event, PackedFile, Settled, Started};
use sunward_core::time::{Span, Timestamp};

use super::case::{Case, Happening, Suite, When};
use super::pools::Pools;
use super::{GROUPS_MAX, HitMap};

/// Seed of the named random streams: only retries draw, and nothing fails here.
const SEED: u64 = 1;

/// How long every pool has stood as it stands when a test begins: no minimum run or rest is still counting.
const SETTLED_FOR: Span = Span::from_mins(31 * 24 * 60);

/// A pool at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) workers: u32,
    pub(super) ready: u32,
    /// Stable words of the standing decision: its reason, and what bent it.
    pub(super) reason_word: String,
    pub(super) bent: String,
    pub(super) power_percent: u8,
}

/// What was played.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Every decision record, in order.
    pub(super) decisions: Vec<Decision>,
    /// Pools at the instants that something is expected of.
    pub(super) seen: BTreeMap<(Timestamp, Arc<str>), Seen>,
    /// What was refused: when, and what about.
    pub(super) refusals: Vec<(Timestamp, String)>,
    /// What the rules did.
    pub(super) hits: HitMap,
    /// Why it was not played to its end.
    pub(super) stuck: Option<String>,
}

/// Plays a test to its end.
pub(super) fn play(suite: &Suite, case: &Case) -> Record {
    let mut stage = Stage::new(suite, case);
    let mut instants: Vec<Timestamp> = case
        .expect
        .iter()
        .filter_map(|expect| match &expect.when {
            When::At(at, _) => Some(case.start + *at),
            When::NoChange(..) => None,
        })
        .collect();
    instants.push(case.end);
    instants.sort_unstable();
    instants.dedup();
    for at in instants {
        stage.advance(at);
        stage.look(at);
    }
    stage.record
}

struct Stage<'a> {
    engine: Engine,
    pools: Pools,
    script: std::iter::Peekable<std::slice::Iter<'a, (Timestamp, Happening)>>,
    /// What came back, for the next group.
    inbox: VecDeque<Vec<Event>>,
    now: Timestamp,
    term: u64,
    groups: u64,
    effects: Effects,
    /// By site.
    power: BTreeMap<Arc<str>, u8>,
    /// Whether a rule asked for a pool to run when it was last looked at.
    latched: BTreeMap<(Arc<str>, String, String), bool>,
    record: Record,
}

impl<'a> Stage<'a> {
    fn new(suite: &Suite, case: &'a Case) -> Stage<'a> {
        let fleet = Event::FleetReplaced {
            file: PackedFile::pack(&suite.fleet_file),
        };
        let policies = Event::PoliciesReplaced {
            files: suite.policy_files.iter().map(PackedFile::pack).collect(),
        };
        Stage {
            engine: Engine::new(),
            pools: Pools::new(&suite.fleet, &case.running, case.start - SETTLED_FOR),
            script: case.script.iter().peekable(),
            inbox: VecDeque::from([vec![started(1)], vec![fleet, policies]]),
            now: case.start,
            term: 1,
            groups: 0,
            effects: Effects::default(),
            power: BTreeMap::new(),
            latched: BTreeMap::new(),
            record: Record::default(),
        }
    }

    /// Plays everything that happens up to and at `end`.
    fn advance(&mut self, end: Timestamp) {
        while self.record.stuck.is_none()
            && let Some(at) = self.next_instant().filter(|at| *at <= end)
        {
            if self.groups == GROUPS_MAX {
                let message = format!(
                    "the engine took {GROUPS_MAX} groups by {} and did not come to rest",
                    self.now
                );
                self.record.stuck = Some(message);
                return;
            }
            self.groups += 1;
            self.now = self.now.max(at);
            let group = self.gather();
            self.engine.step(self.now, &group, &mut self.effects);
            self.carry_out();
            self.note_rules();
        }
        self.now = self.now.max(end);
    }

    fn next_instant(&mut self) -> Option<Timestamp> {
        if !self.inbox.is_empty() {
            return Some(self.now);
        }
        let scripted = self.script.peek().map(|(at, _)| *at);
        [scripted, self.engine.next_wakeup(), self.pools.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What is due: what came back first, then what the test says; a tick where time alone calls.
    fn gather(&mut self) -> Vec<Event> {
        if let Some(events) = self.inbox.pop_front() {
            return events;
        }
        let seen = self.pools.observe_due(self.now).into_iter();
        let mut group: Vec<Event> = seen.map(Event::PoolObserved).collect();
        while let Some((_, happening)) = self.script.next_if(|(at, _)| *at <= self.now) {
            group.push(match happening {
                Happening::Event(event) => event.clone(),
                Happening::Restart => {
                    self.term += 1;
                    started(self.term)
                }
            });
        }
        if group.is_empty() {
            group.push(Event::Tick);
        }
        group
    }

    fn carry_out(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        self.record.decisions.extend(effects.decisions);
        let mut answers = Vec::new();
        for action in effects.actions {
            let (pool, call, outcome) = match action {
                Action::Claim { pool, term, .. } => {
                    let outcome = self.pools.claim(&pool, term);
                    (pool, Call::Claim { term }, outcome)
                }
                Action::Scale(scale) => {
                    let outcome = self.pools.scale(&scale, self.now);
                    let call = Call::Scale {
                        term: scale.term,
                        generation: scale.generation,
                    };
                    (scale.pool, call, outcome)
                }
                Action::Broadcast(envelope) => {
                    if let (EventKind::SitePower, Some(percent)) =
                        (envelope.kind, envelope.power_percent)
                    {
                        self.power.insert(envelope.site, percent);
                    }
                    continue;
                }
                Action::Refuse {
                    pool,
                    reason,
                    detail,
                    ..
                } => {
                    let pool = pool.map_or_else(String::new, |pool| format!(" ({pool})"));
                    let refusal = (self.now, format!("{reason}{pool}: {detail}"));
                    self.record.refusals.push(refusal);
                    continue;
                }
                Action::Reply { .. } => continue,
            };
            answers.push(Event::ActionSettled(Settled {
                pool,
                call,
                outcome,
            }));
        }
        if !answers.is_empty() {
            self.inbox.push_back(answers);
        }
    }

    /// Notes which rules came to ask for a pool to run, and which stopped asking.
    fn note_rules(&mut self) {
        for (pool, state) in self.engine.state().pools.iter() {
            for remembered in &state.memories {
                let latched = remembered
                    .memory
                    .as_ref()
                    .is_some_and(sunward_policies::Memory::is_latched);
                let rule = (remembered.policy.to_string(), remembered.rule.to_string());
                let key = (pool.clone(), rule.0.clone(), rule.1.clone());
                let before = self.latched.insert(key, latched).unwrap_or(false);
                if before != latched {
                    let hits = self.record.hits.entry(rule).or_default();
                    hits.activated |= latched;
                    hits.released |= !latched;
                }
            }
        }
    }

    fn look(&mut self, at: Timestamp) {
        let state = self.engine.state();
        for pool in self.engine.fleet().pools() {
            let Some(known) = state.pools.get(&pool.name) else {
                continue;
            };
            let standing = known.standing.as_ref();
            let seen = Seen {
                workers: known.ledger.desired.unwrap_or(0),
                ready: known.ledger.confirmed.map_or(0, |seen| seen.ready),
                reason_word: standing.map_or_else(String::new, |known| known.reason.clone()),
                bent: standing.map_or_else(String::new, |known| known.bent.clone()),
                power_percent: self.power.get(&pool.site).copied().unwrap_or(100),
            };
            self.record.seen.insert((at, pool.name.clone()), seen);
        }
    }
}

fn started(term: u64) -> Event {
    Event::Started(Started {
        term,
        seed: SEED,
        version: CORE_VERSION.to_owned(),
    })
}
