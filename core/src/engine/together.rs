//! Pools that are planned together: each is judged when it is touched, and its group is planned once per step, if anything
//! changed that its plan may depend on.

use std::collections::BTreeMap;

use sunward_policies::facts::Reading;
use sunward_policies::policy::{OnEstimated, Policy};
use sunward_policies::rules::Intent;
use sunward_policies::time::Timestamp;

use super::Engine;
use crate::action::{Action, Effects};
use crate::board::Board;
use crate::coordination::{
    Accounts, Ahead, Coordination, Draw, Member, Meters, Note, Outcome, Scene, Weighing, Why,
};
use crate::event::Started;
use crate::pools::{Context, Planned, Wiring, score_at};
use crate::signal::Quality;

/// One group in the step that is being applied.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    /// Its plan may be another.
    changed: bool,
    /// Its pools that were touched, in any order.
    touched: Vec<u32>,
}

/// What a unit of energy weighs, by the board.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoardWeighing<'a> {
    board: &'a Board,
    wiring: &'a Wiring,
    coordination: &'a Coordination,
    policies: &'a [Policy],
}

impl Weighing for BoardWeighing<'_> {
    fn weigh(&self, part: u32, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>) {
        let signal = || {
            let part = self.coordination.budgets().get(part as usize)?;
            let index = part.weight?.signal;
            let governing = self.wiring.rules(pool).iter();
            let mut governing = governing.filter(|known| known.policy == part.policy as usize);
            let stream = *governing.next()?.streams.get(index)?;
            let signal = self
                .policies
                .get(part.policy as usize)?
                .signals
                .get(index)?;
            Some((signal, stream?))
        };
        let Some((signal, stream)) = signal() else {
            return (None, None);
        };
        let answer = self.board.stream(stream).answer(at, signal.max_age);
        let guessed = matches!(answer.quality, Some(Quality::Estimated | Quality::Forecast));
        let counts = !guessed || signal.on_estimated == OnEstimated::Use;
        let value = match answer.reading {
            Reading::Fresh { value } if counts => Some(value),
            Reading::Fresh { .. } | Reading::Stale { .. } | Reading::Missing => None,
        };
        (value, answer.next_change_at)
    }
}

/// Scores ahead, by the board and the calendars.
#[derive(Debug)]
struct BoardAhead<'a> {
    engine: &'a Engine,
}

impl Ahead for BoardAhead<'_> {
    fn score(&self, policy: u32, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>) {
        let engine = self.engine;
        let context = context!(engine, pool, None);
        let governing = engine.wiring.rules(pool).iter();
        let mut governing = governing.filter(|known| known.policy == policy as usize);
        let (Some(governing), Some(known), Some(state)) = (
            governing.next(),
            engine.wiring.pools().get(pool as usize),
            engine.state.pools.at(pool),
        ) else {
            return (None, None);
        };
        score_at(governing, known, state, &context, at)
    }
}

/// The weighing of an engine, beside its meters and its state's accounts.
macro_rules! weighing {
    ($engine:expr) => {
        BoardWeighing {
            board: &$engine.state.board,
            wiring: &$engine.wiring,
            coordination: &$engine.coordination,
            policies: $engine.policies.policies(),
        }
    };
}

impl Engine {
    /// The groups of the fleet and the policies in force; everything was counted up to now.
    pub(super) fn regroup(&mut self) {
        self.coordination = Coordination::new(self.wiring.pools(), self.policies.policies());
    }

    /// Takes the new groups into the accounts. Every pool is touched, and every group is planned anew.
    pub(super) fn follow_groups(&mut self) {
        self.state
            .accounts
            .follow(&self.coordination, self.state.at);
        for state in self.state.pools.values_mut() {
            state.planned = None;
        }
        self.resume_groups();
    }

    /// Works out what follows from the accounts and the pools.
    pub(super) fn resume_groups(&mut self) {
        let draws: Vec<Draw> = (0..self.wiring.pools().len() as u32)
            .map(|id| self.draw(id))
            .collect();
        let pools = self.wiring.pools().iter().map(AsRef::as_ref);
        self.meters = Meters::resume(
            &self.coordination,
            &self.state.accounts,
            &weighing!(self),
            pools.zip(draws),
            self.state.at,
        );
        let groups = (0_u32..).zip(&self.state.accounts.groups);
        self.group_timers = groups
            .filter_map(|(group, state)| Some((state.wake_at?, group)))
            .collect();
    }

    /// Counts everything up to now, before fleet or policies change.
    pub(super) fn count_all(&mut self) {
        self.meters
            .count_all(&self.coordination, &mut self.state.accounts, self.state.at);
    }

    /// Counts what time alone brought, and calls the groups that are due.
    pub(super) fn advance_groups(&mut self) {
        let mut due = Vec::new();
        self.meters.advance(
            &self.coordination,
            &weighing!(self),
            &mut self.state.accounts,
            self.state.at,
            &mut due,
        );
        while let Some((at, group)) = self
            .group_timers
            .first()
            .copied()
            .filter(|(at, _)| *at <= self.state.at)
        {
            self.group_timers.remove(&(at, group));
            if let Some(state) = self.state.accounts.groups.get_mut(group as usize) {
                state.wake_at = None;
            }
            due.push(group);
        }
        for group in due {
            self.call(group);
        }
    }

    /// When time alone changes something for a group.
    pub(super) fn next_group_due(&self) -> Option<Timestamp> {
        let timer = self.group_timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.meters.next_due()).min()
    }

    /// The group is planned anew in this step.
    pub(super) fn call(&mut self, group: u32) {
        self.meetings.entry(group).or_default().changed = true;
    }

    /// Every group is planned anew in this step.
    pub(super) fn call_all(&mut self) {
        for group in 0..self.coordination.len() as u32 {
            self.call(group);
        }
    }

    /// A term begins; the first of an empty journal may begin beside a fleet that ran already.
    pub(super) fn start_accounts(&mut self, started: &Started) {
        self.call_all();
        if self.state.term == 0 && started.term > 1 {
            self.state.accounts.began_blind(self.state.at);
        }
        #[cfg(feature = "plant")]
        if planted!(self.plant, BudgetThatForgets) {
            self.count_all();
            self.state.accounts.forget();
            self.resume_groups();
        }
    }

    /// An operator says what a budget has spent in its running period.
    pub(super) fn set_budget(
        &mut self,
        budget: &str,
        part: &str,
        spent: i64,
        by: &str,
        out: &mut Effects,
    ) {
        self.count_all();
        let set = self
            .state
            .accounts
            .set(&self.coordination, budget, part, spent);
        if let Some(place) = set {
            self.meters
                .expect(place, &self.coordination, &self.state.accounts);
            let group = self.coordination.budgets()[place as usize].group();
            return self.call(group);
        }
        let whose = if part.is_empty() { "the fleet" } else { part };
        out.actions.push(Action::Refuse {
            pool: None,
            reason: "budget_unknown",
            detail: format!(
                "{by} set the spend of {budget} for {whose}: no policy in force has such a budget over a period"
            ),
            cause: self.cause("daemon", "an operator set it"),
        });
    }

    /// A pool of a group was touched: it is judged, and the group is called if its plan may be another.
    pub(super) fn meet(&mut self, id: u32, group: u32) {
        let mut weighed = Vec::new();
        self.meter(id, &mut weighed);
        for group in weighed {
            self.call(group);
        }
        let known = self.state.accounts.groups.get(group as usize);
        let contended = known.is_none_or(|known| known.contended);
        let looks_ahead = contended && self.coordination.looks_ahead(group);
        let (pools, wiring, context) = self.parts(id);
        let (Some(pool), Some(state)) = (wiring.pools().get(id as usize), pools.at_mut(id)) else {
            return;
        };
        let mut before = state.ask;
        let changed = state.ledger.desired.is_some() && {
            state.judge(pool, wiring.rules(id), &context);
            if !contended {
                before.score = state.ask.score;
            }
            let now = state.planned_as(state.plan(pool, &context).target);
            looks_ahead || before != state.ask || state.planned.is_none_or(|known| !known.is(&now))
        };
        let meeting = self.meetings.entry(group).or_default();
        meeting.changed |= changed;
        meeting.touched.push(id);
    }

    /// Plans every group that was called, and carries out what follows for its pools.
    pub(super) fn settle_groups(&mut self, out: &mut Effects) {
        for (group, mut meeting) in std::mem::take(&mut self.meetings) {
            meeting.touched.sort_unstable();
            meeting.touched.dedup();
            if !meeting.changed {
                for id in meeting.touched {
                    let planned = self.state.pools.at(id).and_then(|state| state.planned);
                    self.settle_member(id, group, None, planned.and_then(|known| known.why), out);
                }
                continue;
            }
            self.settle_group(group, &meeting.touched, out);
        }
        let mut metered = std::mem::take(&mut self.metered);
        metered.sort_unstable();
        metered.dedup();
        for id in metered.drain(..) {
            self.meter(id, &mut Vec::new());
        }
        self.metered = metered;
    }

    fn settle_group(&mut self, group: u32, touched: &[u32], out: &mut Effects) {
        let mut accounts = std::mem::take(&mut self.state.accounts);
        let (outcome, solos) = self.plan_group(group, &mut accounts);
        self.state.accounts = accounts;
        self.note_group(group, &outcome);
        for note in &outcome.notes {
            self.say(*note, out);
        }
        let mut coordinated = outcome.coordinated.iter().peekable();
        for (id, solo) in solos {
            let found = coordinated.next_if(|known| known.id == id);
            let target = found.map_or(solo, |known| known.target);
            let why = found.and_then(|known| known.why);
            let Some(state) = self.state.pools.at_mut(id) else {
                continue;
            };
            let known = state.planned.map(|known| known.why);
            let stands = state.ledger.desired.is_none_or(|wanted| wanted == target)
                && known == Some(why)
                && touched.binary_search(&id).is_err();
            if !stands {
                self.settle_member(id, group, Some(target), why, out);
            }
            if let Some(state) = self.state.pools.at_mut(id) {
                state.planned = Some(Planned {
                    why,
                    ..state.planned_as(solo)
                });
            }
        }
    }

    /// The plan of a group, and what each of its pools would be told if it were alone.
    fn plan_group(&self, group: u32, accounts: &mut Accounts) -> (Outcome, Vec<(u32, u32)>) {
        let ahead = self.coordination.looks_ahead(group);
        let ids = self.coordination.members(group).iter();
        let members: Vec<Member<'_>> = ids.filter_map(|id| self.member(*id, ahead)).collect();
        let scene = Scene {
            now: self.state.at,
            clock_stepped: self.state.clock_stepped,
            ahead: &BoardAhead { engine: self },
        };
        let outcome = self
            .coordination
            .plan(group, &members, &scene, &self.meters, accounts);
        let solos = members.iter().map(|member| (member.id, member.solo));
        (outcome, solos.collect())
    }

    fn member(&self, id: u32, ahead: bool) -> Option<Member<'_>> {
        let pool = self.wiring.pools().get(id as usize)?;
        let state = self.state.pools.at(id)?;
        let context = context!(self, id, None);
        let solo = state.plan(pool, &context).target;
        Some(Member {
            id,
            pool,
            current: state.ledger.desired,
            ready: state.ledger.confirmed.map_or(0, |known| known.ready),
            solo,
            reach: if ahead {
                state
                    .plan_with(pool, Some(Intent::Activate), &context)
                    .target
            } else {
                solo
            },
            pin: state.ask.pin,
            most: state.ask.most,
            missing: state.ask.missing,
            score: state.ask.score,
            policy: state.ask.policy,
            min_run: state.ask.limits(&self.policies).min_run,
            changed_at: state.course.stepped_at,
            started_at: state.course.started_at,
        })
    }

    /// Keeps what a plan said about the group itself.
    fn note_group(&mut self, group: u32, outcome: &Outcome) {
        let Some(state) = self.state.accounts.groups.get_mut(group as usize) else {
            return;
        };
        state.contended = outcome.contended;
        if let Some(old) = std::mem::replace(&mut state.wake_at, outcome.next_change_at) {
            self.group_timers.remove(&(old, group));
        }
        self.group_timers
            .extend(outcome.next_change_at.map(|at| (at, group)));
    }

    fn say(&self, note: Note, out: &mut Effects) {
        out.actions.push(Action::Refuse {
            pool: None,
            reason: note.word(),
            detail: self.coordination.describe_note(note, &self.state.accounts),
            cause: self.cause("daemon", "pools are planned together"),
        });
    }

    /// The rest of the way of a pool of a group: what its group's plan says, or what stands.
    fn settle_member(
        &mut self,
        id: u32,
        group: u32,
        target: Option<u32>,
        why: Option<Why>,
        out: &mut Effects,
    ) {
        let next = self.state.accounts.groups.get(group as usize);
        let next = next.and_then(|known| known.wake_at);
        let (pools, wiring, context) = self.parts(id);
        let context = Context {
            group_next: next,
            ..context
        };
        let (Some(pool), Some(state)) = (wiring.pools().get(id as usize), pools.at_mut(id)) else {
            return;
        };
        let settled = state.settle_as(pool, wiring.rules(id), &context, target, why, out);
        self.follow_up(id, settled, out);
    }

    fn draw(&self, id: u32) -> Draw {
        let state = self.state.pools.at(id);
        let site = self.wiring.pools().get(id as usize).map(|pool| &pool.site);
        let held = site.and_then(|site| self.state.power_percent.get(site));
        Draw {
            wanted: state.and_then(|state| state.ledger.desired).unwrap_or(0),
            ready: state
                .and_then(|state| state.ledger.confirmed)
                .map_or(0, |known| known.ready),
            power_percent: held.copied().unwrap_or(100),
        }
    }

    /// Counts a pool up to now, and takes in what it draws and does from now on.
    fn meter(&mut self, id: u32, groups: &mut Vec<u32>) {
        if !self.coordination.is_metered(id) {
            return;
        }
        let draw = self.draw(id);
        let Some(pool) = self.wiring.pools().get(id as usize) else {
            return;
        };
        self.meters.refresh(
            id,
            pool,
            draw,
            &self.coordination,
            &weighing!(self),
            &mut self.state.accounts,
            self.state.at,
            groups,
        );
    }

    /// Who is planned with whom.
    pub fn coordination(&self) -> &Coordination {
        &self.coordination
    }

    /// What the pools draw on budgets and do for deadlines.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The same, worked out anew: for invariants.
    pub(crate) fn fresh_meters(&self) -> Meters {
        let pools = self.wiring.pools().iter().map(AsRef::as_ref);
        let draws = (0..self.wiring.pools().len() as u32).map(|id| self.draw(id));
        Meters::resume(
            &self.coordination,
            &self.state.accounts,
            &weighing!(self),
            pools.zip(draws),
            self.state.at,
        )
    }
}

/// The groups that meet in a step.
pub(super) type Meetings = BTreeMap<u32, Meeting>;
