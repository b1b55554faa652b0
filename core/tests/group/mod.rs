//! A group of pools in simulated time, without an engine: what each asks for comes from the story, everything else is the
//! module's. The oracle adds up draws and weights piece by piece.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use checks::fine_units;
use sunward_core::coordination::{
    Accounts, Ahead, Coordination, Draw, Member, Meters, Note, Outcome, Scene, Weighing, Why,
};
use sunward_core::fleet::{Pool, Unit};
use sunward_core::pools::Pin;
use sunward_core::time::{Span, Timestamp};

pub mod checks;
pub mod setup;

pub use setup::{Kind, Move, Setup, any_setup, any_story};

const MIN_RUN: Span = Span::from_mins(30);

/// Minute `m` of a day that begins at midnight.
pub fn minute(m: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000) + Span::from_mins(m)
}

/// Weights known beforehand: per pool a value for each interval of its own length, every fourth missing.
#[derive(Clone, Debug)]
pub struct Weights {
    seed: u64,
    change: bool,
}

impl Weights {
    fn at(&self, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>) {
        if !self.change {
            return (Some(400.0 + f64::from(pool)), None);
        }
        let length = (7 + 13 * i64::from(pool)) * 60_000 + 123;
        let slot = at.as_millis().div_euclid(length);
        let until = Timestamp::from_millis((slot + 1) * length);
        let mixed = (self.seed ^ (slot as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .wrapping_mul(0xBF58_476D_1CE4_E5B9)
            >> 40;
        let value = (!mixed.is_multiple_of(4)).then(|| (mixed % 100_000) as f64 / 71.0 - 200.0);
        (value, Some(until))
    }
}

impl Weighing for Weights {
    fn weigh(&self, _: u32, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>) {
        self.at(pool, at)
    }
}

/// Scores ahead: (pool, from hour, to hour, score).
#[derive(Clone, Debug, Default)]
pub struct KnownAhead {
    pub known: Vec<(u32, i64, i64, f64)>,
}

impl Ahead for KnownAhead {
    fn score(&self, _: u32, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>) {
        let covers = |known: &&(u32, i64, i64, f64)| {
            known.0 == pool && minute(60 * known.1) <= at && at < minute(60 * known.2)
        };
        let found = self.known.iter().find(covers);
        (
            found.map(|known| known.3),
            found.map(|known| minute(60 * known.2)),
        )
    }
}

/// One pool as the story left it.
#[derive(Clone, Debug)]
struct At {
    current: u32,
    ready: u32,
    ask: u32,
    score: Option<f64>,
    missing: bool,
    pin: Pin,
    most: Option<u32>,
    changed_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    why: Option<Why>,
    /// Its target differed from its own plan because it was forced down, or cut.
    before: u32,
}

pub struct Play {
    pub coordination: Coordination,
    pub accounts: Accounts,
    pub notes: Vec<Note>,
    pub ahead: KnownAhead,
    /// Members are handed over turned by so many places.
    pub turn: usize,
    setup: Setup,
    pools: Vec<Arc<Pool>>,
    at: Vec<At>,
    meters: Meters,
    weights: Weights,
    percents: BTreeMap<Arc<str>, u8>,
    clock_stepped: bool,
    now: Timestamp,
    began: Timestamp,
    /// Per part and period: fine units, by the oracle.
    oracle: BTreeMap<(String, i64), i128>,
    /// Operators' corrections: the oracle begins again there.
    changing_before: Vec<usize>,
}

impl Play {
    pub fn new(setup: &Setup) -> Play {
        let pools = setup.fleet().pools().to_vec();
        let policies = setup.policies();
        let coordination = Coordination::new(&pools, &policies);
        let mut accounts = Accounts::default();
        if setup.blind {
            accounts.began_blind(minute(0));
        }
        accounts.follow(&coordination, minute(0));
        let at: Vec<At> = pools
            .iter()
            .map(|pool| At {
                current: pool.min_workers,
                ready: 0,
                ask: pool.min_workers,
                score: None,
                missing: false,
                pin: Pin::None,
                most: None,
                changed_at: Some(minute(-600)),
                started_at: None,
                why: None,
                before: pool.min_workers,
            })
            .collect();
        let weights = Weights {
            seed: setup.weights,
            change: setup.weights_change,
        };
        let mut play = Play {
            meters: Meters::default(),
            coordination,
            accounts,
            notes: Vec::new(),
            ahead: KnownAhead::default(),
            turn: 0,
            setup: setup.clone(),
            pools,
            at,
            weights,
            percents: BTreeMap::new(),
            clock_stepped: false,
            now: minute(0),
            began: minute(0),
            oracle: BTreeMap::new(),
            changing_before: Vec::new(),
        };
        play.resume();
        play.plan_all();
        play
    }

    fn resume(&mut self) {
        let draws: Vec<_> = (0..self.pools.len()).map(|id| self.draw(id)).collect();
        let draws = self.pools.iter().map(AsRef::as_ref).zip(draws);
        self.meters = Meters::resume(
            &self.coordination,
            &self.accounts,
            &self.weights,
            draws,
            self.now,
        );
    }

    fn draw(&self, id: usize) -> Draw {
        Draw {
            wanted: self.at[id].current,
            ready: self.at[id].ready,
            power_percent: self.percent(self.setup.pools[id].site),
        }
    }

    pub fn percent(&self, site: usize) -> u8 {
        let site: Arc<str> = format!("site-{site}").into();
        self.percents.get(&site).copied().unwrap_or(100)
    }

    /// Another set of files, pools unchanged.
    pub fn reload(&mut self, setup: &Setup) {
        self.meters
            .count_all(&self.coordination, &mut self.accounts, self.now);
        self.setup = setup.clone();
        let policies = setup.policies();
        self.coordination = Coordination::new(&self.pools, &policies);
        self.accounts.follow(&self.coordination, self.now);
        self.resume();
        self.plan_all();
    }

    pub fn take(&mut self, step: &Move) {
        let to = self.now + Span::from_mins(step.after);
        self.run_to(to);
        match step.kind {
            Kind::Wait => {}
            Kind::Ask(pool, workers) => self.ask(pool, workers),
            Kind::Score(pool, score) => self.at[pool].score = score.map(f64::from),
            Kind::Missing(pool, missing) => self.at[pool].missing = missing,
            Kind::Ready(pool) => {
                let at = &mut self.at[pool];
                at.ready = at.current;
            }
            Kind::Pin(pool, pin) => self.at[pool].pin = pin,
            Kind::BudgetSet(spent) => self.set_budget(spent),
            Kind::Limit(pool, most, percent) => {
                let known = &self.pools[pool];
                let whole = |most: u32| match known.unit {
                    Unit::Pool if most < known.max_workers => known.min_workers,
                    Unit::Pool | Unit::Worker => most,
                };
                self.at[pool].most = most.map(whole);
                let site = format!("site-{}", self.setup.pools[pool].site).into();
                self.percents.insert(site, percent);
            }
            Kind::Restart => {
                let kept = rmp_serde::to_vec_named(&self.accounts).unwrap();
                self.accounts = rmp_serde::from_slice(&kept).unwrap();
                self.resume();
            }
            Kind::Reload => {
                let setup = self.setup.clone();
                return self.reload(&setup);
            }
            Kind::Clock(stepped) => self.clock_stepped = stepped,
        }
        self.plan_all();
    }

    fn ask(&mut self, pool: usize, workers: u32) {
        let known = &self.pools[pool];
        let workers = workers.clamp(known.min_workers, known.max_workers);
        self.at[pool].ask = match known.unit {
            Unit::Worker => workers,
            Unit::Pool if workers > known.min_workers => known.max_workers,
            Unit::Pool => known.min_workers,
        };
    }

    pub fn ask_together(&mut self, asks: &[(usize, u32)]) {
        for (pool, workers) in asks {
            self.ask(*pool, *workers);
        }
        self.plan_all();
    }

    pub fn score(&mut self, pool: usize, score: Option<f64>) {
        self.at[pool].score = score;
    }

    pub fn missing(&mut self, pool: usize, missing: bool) {
        self.at[pool].missing = missing;
    }

    /// Everyone becomes as is wanted.
    pub fn settle_ready(&mut self) {
        for at in &mut self.at {
            at.ready = at.current;
        }
        self.plan_all();
    }

    fn set_budget(&mut self, spent: i64) {
        let parts: Vec<_> = self
            .coordination
            .budgets()
            .iter()
            .filter(|part| part.is_sum())
            .map(|part| (part.budget.clone(), part.part.clone()))
            .collect();
        self.meters
            .count_all(&self.coordination, &mut self.accounts, self.now);
        for (budget, part) in parts {
            let place = self
                .accounts
                .set(&self.coordination, &budget, &part, spent)
                .unwrap();
            self.meters
                .expect(place, &self.coordination, &self.accounts);
            let period = *self.accounts.spend(place).unwrap();
            let units = fine_units(self.coordination.budgets()[place as usize].measure);
            let key = (format!("{budget} {part}"), period.from.as_millis());
            self.oracle.insert(key, i128::from(spent) * units);
        }
    }

    /// Lets time pass, planning whenever that was announced.
    pub fn run_to(&mut self, to: Timestamp) {
        while let Some(due) = self.due().filter(|due| *due <= to) {
            self.pass(due.max(self.now));
            self.plan_all();
        }
        self.pass(to);
    }

    /// Lets time pass until a target changes, and says when that was.
    pub fn run_to_change(&mut self) -> Timestamp {
        let before = self.targets();
        while self.targets() == before {
            let due = self.due().expect("nothing will ever change");
            self.pass(due.max(self.now));
            self.plan_all();
        }
        self.now
    }

    pub fn since_start(&self, _: usize) -> Span {
        self.now - self.began
    }

    fn due(&self) -> Option<Timestamp> {
        let groups = self
            .accounts
            .groups
            .iter()
            .filter_map(|group| group.wake_at);
        groups.chain(self.meters.next_due()).min()
    }

    fn pass(&mut self, to: Timestamp) {
        self.oracle_to(to);
        self.now = self.now.max(to);
        let mut groups = Vec::new();
        self.meters.advance(
            &self.coordination,
            &self.weights,
            &mut self.accounts,
            self.now,
            &mut groups,
        );
    }

    /// What a pool would be told if it were alone.
    fn solo(&self, id: usize) -> u32 {
        let (at, pool) = (&self.at[id], &self.pools[id]);
        let running = at
            .started_at
            .is_some_and(|since| since + MIN_RUN > self.now);
        let free = match at.pin {
            Pin::Frozen => at.current,
            Pin::Off => pool.min_workers,
            Pin::On { .. } if !self.clock_stepped => pool.max_workers,
            _ if at.ask < at.current && running => at.current,
            _ if at.ask > at.current && (self.clock_stepped || at.missing) => at.current,
            _ => at.ask,
        };
        let Some(most) = at.most.map(|most| most.max(pool.min_workers)) else {
            return free;
        };
        match pool.unit {
            Unit::Worker => free.min(most),
            Unit::Pool if free > most => pool.min_workers,
            Unit::Pool => free,
        }
    }

    fn members(&self, group: u32) -> Vec<Member<'_>> {
        let one = |id: &u32| {
            let (at, pool) = (&self.at[*id as usize], &self.pools[*id as usize]);
            let (solo, max) = (self.solo(*id as usize), pool.max_workers);
            Member {
                id: *id,
                pool,
                current: Some(at.current),
                ready: at.ready,
                solo,
                reach: if self.clock_stepped { at.current } else { max },
                pin: at.pin,
                most: at.most.map(|most| most.max(pool.min_workers)),
                missing: at.missing,
                score: at.score,
                policy: Some(0),
                min_run: MIN_RUN,
                changed_at: at.changed_at,
                started_at: at.started_at,
            }
        };
        let mut members: Vec<_> = self.coordination.members(group).iter().map(one).collect();
        let turn = self.turn % members.len().max(1);
        members.rotate_left(turn);
        members
    }

    fn plan(&self, group: u32, accounts: &mut Accounts) -> Outcome {
        let scene = Scene {
            now: self.now,
            clock_stepped: self.clock_stepped,
            ahead: &self.ahead,
        };
        self.coordination
            .plan(group, &self.members(group), &scene, &self.meters, accounts)
    }

    /// Plans every group and takes the targets over; pools in no group do as they would alone.
    fn plan_all(&mut self) {
        self.changing_before = self.changing();
        for at in &mut self.at {
            at.before = at.current;
            at.why = None;
        }
        for group in 0..self.coordination.len() as u32 {
            let mut accounts = self.accounts.clone();
            let outcome = self.plan(group, &mut accounts);
            let mut targets: BTreeMap<u32, (u32, Option<Why>)> = self
                .members(group)
                .iter()
                .map(|member| (member.id, (member.solo, None)))
                .collect();
            for one in &outcome.coordinated {
                targets.insert(one.id, (one.target, one.why));
            }
            self.accounts = accounts;
            self.accounts.groups[group as usize].wake_at = outcome.next_change_at;
            self.accounts.groups[group as usize].contended = outcome.contended;
            self.notes.extend(outcome.notes);
            for (id, (target, why)) in targets {
                self.adopt(id as usize, target, why);
            }
        }
        for id in 0..self.pools.len() {
            if self.coordination.group(id as u32).is_none() {
                let target = self.solo(id);
                self.adopt(id, target, None);
            }
        }
        for id in 0..self.pools.len() {
            let draw = self.draw(id);
            let pool = self.pools[id].clone();
            self.meters.refresh(
                id as u32,
                &pool,
                draw,
                &self.coordination,
                &self.weights,
                &mut self.accounts,
                self.now,
                &mut Vec::new(),
            );
        }
    }

    fn adopt(&mut self, id: usize, target: u32, why: Option<Why>) {
        let (min, now) = (self.pools[id].min_workers, self.now);
        let at = &mut self.at[id];
        at.why = why;
        if target == at.current {
            return;
        }
        if at.current <= min && target > min {
            at.started_at = Some(now);
        }
        at.changed_at = Some(now);
        at.current = target;
    }

    pub fn targets(&self) -> Vec<u32> {
        self.at.iter().map(|at| at.current).collect()
    }

    pub fn why(&self, pool: usize) -> Option<Why> {
        self.at[pool].why
    }

    pub fn words(&self, pool: usize) -> String {
        self.coordination
            .describe(self.at[pool].why.unwrap(), &self.accounts)
    }
}
