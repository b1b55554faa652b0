//! Counts what pools draw and do, over time.
//!
//! Between two changes a pool's draw and the weight of a unit of its energy are constant, so a sum grows in a straight
//! line: only changes are looked at, each in constant time, whatever the number of pools. Changes that time alone brings
//! (a value expires, a period ends, a sum is spent) are taken in their own order, at their own instants, however late the
//! next step comes.

use std::collections::BTreeSet;

use smallvec::SmallVec;
use sunward_policies::policy::Measure;
use sunward_policies::time::{Span, Timestamp};

use super::{Accounts, Coordination};
use crate::fleet::Pool;

/// The largest weight that is counted, thousandths per unit: a reading beyond it counts as this much.
const WEIGHT_MAX: f64 = 1e12;

/// What a unit of energy weighs for a pool in a sum, and until when. Answers for instants up to now, too.
pub trait Weighing {
    /// The fresh value of the sum's signal for the pool at an instant, in its canonical unit, and the first later instant
    /// at which it may be another; `None` where it has none, or the sum weighs nothing.
    fn weigh(&self, part: u32, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>);
}

/// What happens by time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The weight of this pool's energy may be another.
    Weight(u32),
    /// The period of this sum ends, or the sum is spent.
    Sum(u32),
}

/// One pool, as it was last counted.
#[derive(Clone, Debug, Default)]
struct Meter {
    /// mW times percent.
    draw: i64,
    ready: u32,
    /// One per sum that the pool is in; thousandths.
    weights: SmallVec<[i64; 2]>,
    due: Option<Timestamp>,
}

/// The meters of all pools: derived from the state, and rebuilt with the wiring.
#[derive(Clone, Debug, Default)]
pub struct Meters {
    pools: Vec<Meter>,
    /// Per sum: fine units per millisecond.
    rates: Vec<i128>,
    sum_due: Vec<Option<Timestamp>>,
    /// Per deadline: ready workers.
    ready: Vec<u64>,
    dues: BTreeSet<(Timestamp, Due)>,
}

/// What a pool draws with, and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Workers wanted.
    pub wanted: u32,
    /// Workers that can train.
    pub ready: u32,
    /// The share of training power that they are held to.
    pub power_percent: u8,
}

impl Draw {
    /// mW times percent: as many workers as are wanted or ready, whichever are more.
    fn drawn(self, pool: &Pool) -> i64 {
        milliwatts(pool)
            .saturating_mul(i64::from(self.wanted.max(self.ready)))
            .saturating_mul(i64::from(self.power_percent))
    }
}

/// What a unit of a pool's energy weighs in a sum at an instant, thousandths, and until when; one for plain energy.
fn weight(
    coordination: &Coordination,
    weighing: &dyn Weighing,
    part: u32,
    pool: u32,
    at: Timestamp,
) -> (i64, Option<Timestamp>) {
    let known = &coordination.budgets()[part as usize];
    match (known.measure, known.weight) {
        (Measure::Energy, _) | (_, None) => (1, None),
        (_, Some(weight)) => {
            let (value, until) = weighing.weigh(part, pool, at);
            let later = until.map(|until| until.max(at + Span::from_millis(1)));
            (thousandths(value.unwrap_or(weight.assume)), later)
        }
    }
}

/// What one worker draws, mW.
pub(super) fn milliwatts(pool: &Pool) -> i64 {
    // Saturating; a draw is finite and not negative, or the fleet file does not load.
    (pool.training_kw * 1e6).round() as i64
}

/// A weight as it is counted: in thousandths, never below zero (what pays for itself costs nothing).
fn thousandths(value: f64) -> i64 {
    (value * 1e3).round().clamp(0.0, WEIGHT_MAX) as i64
}

impl Meters {
    /// The meters of a wiring at `at`, up to which everything is as it was since it was last counted: after a restore,
    /// or, everything having been counted, with a new wiring. `draws` are all pools, in the order of their ids.
    pub fn resume<'a>(
        coordination: &Coordination,
        accounts: &Accounts,
        weighing: &dyn Weighing,
        draws: impl Iterator<Item = (&'a Pool, Draw)>,
        at: Timestamp,
    ) -> Meters {
        let mut meters = Meters {
            pools: Vec::with_capacity(coordination.sums_of.len()),
            rates: vec![0; coordination.budgets().len()],
            sum_due: vec![None; coordination.budgets().len()],
            ready: vec![0; coordination.deadlines().len()],
            dues: BTreeSet::new(),
        };
        for ((id, sums), (pool, draw)) in (0_u32..).zip(&coordination.sums_of).zip(draws) {
            if !coordination.is_metered(id) {
                meters.pools.push(Meter::default());
                continue;
            }
            let mut meter = Meter {
                draw: draw.drawn(pool),
                ready: draw.ready,
                weights: SmallVec::new(),
                due: None,
            };
            for part in sums {
                let (weight, until) = weight(coordination, weighing, *part, id, at);
                meters.rates[*part as usize] += i128::from(meter.draw) * i128::from(weight);
                meter.weights.push(weight);
                meter.due = meter.due.into_iter().chain(until).min();
            }
            for deadline in &coordination.works_for[id as usize] {
                meters.ready[*deadline as usize] += u64::from(draw.ready);
            }
            meters
                .dues
                .extend(meter.due.map(|due| (due, Due::Weight(id))));
            meters.pools.push(meter);
        }
        for (place, part) in (0_u32..).zip(coordination.budgets()) {
            if part.is_sum() {
                meters.expect(place, coordination, accounts);
            }
        }
        meters
    }

    /// True where both count the same: for invariants.
    pub(crate) fn agree(&self, other: &Meters) -> bool {
        let same = |(a, b): (&Meter, &Meter)| {
            (a.draw, a.ready, &a.weights) == (b.draw, b.ready, &b.weights)
        };
        self.pools.len() == other.pools.len()
            && self.pools.iter().zip(&other.pools).all(same)
            && (&self.rates, &self.ready) == (&other.rates, &other.ready)
    }

    /// What a sum grows by, fine units per millisecond.
    pub(super) fn rate(&self, part: u32) -> i128 {
        self.rates.get(part as usize).copied().unwrap_or(0)
    }

    /// The ready workers of a deadline's pools.
    pub(super) fn ready(&self, deadline: u32) -> u64 {
        self.ready.get(deadline as usize).copied().unwrap_or(0)
    }

    /// The weight of a pool in a sum, thousandths; one for plain energy.
    pub(super) fn weight(&self, coordination: &Coordination, pool: u32, part: u32) -> i64 {
        let sums = coordination.sums_of.get(pool as usize);
        let place = sums.and_then(|sums| sums.iter().position(|sum| *sum == part));
        let meter = self.pools.get(pool as usize);
        place
            .and_then(|place| meter?.weights.get(place).copied())
            .unwrap_or(0)
    }

    /// When time alone changes something.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.dues.first().map(|(at, _)| *at)
    }

    /// Counts up to `now` in the order of what happened, and adds the groups whose budgets changed by it to `groups`.
    pub fn advance(
        &mut self,
        coordination: &Coordination,
        weighing: &dyn Weighing,
        accounts: &mut Accounts,
        now: Timestamp,
        groups: &mut Vec<u32>,
    ) {
        while let Some((at, due)) = self.dues.first().copied().filter(|(at, _)| *at <= now) {
            self.dues.pop_first();
            match due {
                Due::Weight(pool) => {
                    self.pools[pool as usize].due = None;
                    self.weigh(pool, coordination, weighing, accounts, at, groups);
                }
                Due::Sum(part) => {
                    self.sum_due[part as usize] = None;
                    self.accrue(part, coordination, accounts, at);
                    // A period that begins spent, or a rate of nothing, is no reason to look again at once.
                    self.expect(part, coordination, accounts);
                    groups.push(coordination.budgets()[part as usize].group);
                }
            }
        }
    }

    /// Counts everything up to `now`.
    pub fn count_all(&self, coordination: &Coordination, accounts: &mut Accounts, now: Timestamp) {
        for part in 0..self.rates.len() as u32 {
            self.accrue(part, coordination, accounts, now);
        }
        for (ready, progress) in self.ready.iter().zip(&mut accounts.deadlines) {
            progress.count(*ready, now);
        }
    }

    fn accrue(
        &self,
        part: u32,
        coordination: &Coordination,
        accounts: &mut Accounts,
        at: Timestamp,
    ) {
        let known = coordination.budgets().get(part as usize);
        if let (Some(known), Some(account)) = (known, accounts.budgets.get_mut(part as usize)) {
            account.spend.accrue(known, self.rate(part), at);
        }
    }

    /// Notes when a sum is next to be looked at: when it is spent at its present rate, or its period ends.
    pub fn expect(&mut self, part: u32, coordination: &Coordination, accounts: &Accounts) {
        let place = part as usize;
        let (Some(known), Some(spend)) = (coordination.budgets().get(place), accounts.spend(part))
        else {
            return;
        };
        let rate = self.rate(part);
        let mut at = spend.to;
        if rate > 0 && !spend.exhausted(known.limit) {
            let left = spend.remaining(known).max(0);
            let millis = left / rate + i128::from(left % rate != 0);
            let millis = i64::try_from(millis).unwrap_or(i64::MAX).max(1);
            at = at.min(spend.since + Span::from_millis(millis));
        }
        if self.sum_due[place] == Some(at) {
            return;
        }
        if let Some(old) = self.sum_due[place].replace(at) {
            self.dues.remove(&(old, Due::Sum(part)));
        }
        self.dues.insert((at, Due::Sum(part)));
    }

    /// Takes in what a pool draws and does from `now` on. Everything that time brought until then was counted.
    #[expect(clippy::too_many_arguments, reason = "each is something else")]
    pub fn refresh(
        &mut self,
        id: u32,
        pool: &Pool,
        draw: Draw,
        coordination: &Coordination,
        weighing: &dyn Weighing,
        accounts: &mut Accounts,
        now: Timestamp,
        groups: &mut Vec<u32>,
    ) {
        let ready = draw.ready;
        let draw = draw.drawn(pool);
        let Some(meter) = self.pools.get(id as usize) else {
            return;
        };
        if meter.ready != ready {
            self.take_ready(id, ready, coordination, accounts, now);
        }
        let before = self.pools[id as usize].draw;
        if before != draw {
            for (place, part) in coordination.sums_of[id as usize].iter().enumerate() {
                self.accrue(*part, coordination, accounts, now);
                let weight = i128::from(self.pools[id as usize].weights[place]);
                self.rates[*part as usize] += (i128::from(draw) - i128::from(before)) * weight;
                self.expect(*part, coordination, accounts);
            }
            self.pools[id as usize].draw = draw;
        }
        self.weigh(id, coordination, weighing, accounts, now, groups);
    }

    fn take_ready(
        &mut self,
        id: u32,
        ready: u32,
        coordination: &Coordination,
        accounts: &mut Accounts,
        now: Timestamp,
    ) {
        let before = std::mem::replace(&mut self.pools[id as usize].ready, ready);
        for deadline in &coordination.works_for[id as usize] {
            let sum = &mut self.ready[*deadline as usize];
            if let Some(progress) = accounts.deadlines.get_mut(*deadline as usize) {
                progress.count(*sum, now);
            }
            *sum = *sum - u64::from(before) + u64::from(ready);
        }
    }

    /// Takes in what a pool's energy weighs from `at` on.
    fn weigh(
        &mut self,
        id: u32,
        coordination: &Coordination,
        weighing: &dyn Weighing,
        accounts: &mut Accounts,
        at: Timestamp,
        groups: &mut Vec<u32>,
    ) {
        let mut next: Option<Timestamp> = None;
        for (place, part) in coordination.sums_of[id as usize].iter().enumerate() {
            let (weight, until) = weight(coordination, weighing, *part, id, at);
            next = next.into_iter().chain(until).min();
            let before = self.pools[id as usize].weights[place];
            if before == weight {
                continue;
            }
            self.accrue(*part, coordination, accounts, at);
            let draw = i128::from(self.pools[id as usize].draw);
            self.rates[*part as usize] += draw * (i128::from(weight) - i128::from(before));
            self.pools[id as usize].weights[place] = weight;
            self.expect(*part, coordination, accounts);
            let group = coordination.budgets()[*part as usize].group;
            let known = accounts.groups.get(group as usize);
            if known.is_some_and(|known| known.contended) {
                groups.push(group);
            }
        }
        let meter = &mut self.pools[id as usize];
        if meter.due == next {
            return;
        }
        if let Some(old) = std::mem::replace(&mut meter.due, next) {
            self.dues.remove(&(old, Due::Weight(id)));
        }
        if let Some(next) = next {
            self.dues.insert((next, Due::Weight(id)));
        }
    }
}
