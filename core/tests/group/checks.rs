//! What must hold after every step, and the oracle of what was spent.

use std::collections::BTreeSet;

use sunward_core::coordination::Why;
use sunward_core::fleet::Unit;
use sunward_core::pools::Pin;
use sunward_core::time::{Span, Timestamp};
use sunward_policies::policy::Measure;

use super::{MIN_RUN, Play};

/// Fine units per unit, derived anew: W and h from mW and ms, percent from one, thousandths of weights from one.
pub fn fine_units(measure: Measure) -> i128 {
    let millis_per_hour = 3_600_000_i128;
    let percent = 100;
    match measure {
        // mW h of energy from mW ms.
        Measure::Energy => millis_per_hour * percent,
        // mg = mg/kWh x kWh; a kWh is 1e6 mW h.
        Measure::Carbon => 1_000_000 * millis_per_hour * percent,
        // thousandths = thousandths/MWh x MWh; an MWh is 1e9 mW h.
        Measure::Money => 1_000_000_000 * millis_per_hour * percent,
        Measure::Workers | Measure::Power => 1,
    }
}

impl Play {
    /// Adds up what is drawn from now to `to`, piece by piece.
    pub fn oracle_to(&mut self, to: Timestamp) {
        for (place, part) in self.coordination.budgets().iter().enumerate() {
            let Some(period) = part.period else { continue };
            for pool in &part.pools {
                let draw = self.draw(*pool as usize);
                let workers = i128::from(draw.wanted.max(draw.ready));
                let milliwatts = (self.pools[*pool as usize].training_kw * 1e6).round() as i128;
                let drawn = workers * milliwatts * i128::from(draw.power_percent);
                let mut from = self.now;
                while from < to {
                    let (value, until) = self.weights.at(*pool, from);
                    let ends = period.bounds(from).1;
                    let piece = to.min(ends).min(until.unwrap_or(Timestamp::MAX));
                    let weight = match (part.measure, part.weight) {
                        (Measure::Energy, _) | (_, None) => 1,
                        (_, Some(weight)) => {
                            (value.unwrap_or(weight.assume) * 1e3).round().max(0.0) as i128
                        }
                    };
                    let key = (
                        format!("{} {}", part.budget, part.part),
                        period.bounds(from).0.as_millis(),
                    );
                    let millis = i128::from((piece - from).as_millis());
                    *self.oracle.entry(key).or_default() += drawn * weight * millis;
                    from = piece;
                }
            }
            let _ = place;
        }
    }

    /// Every sum is the oracle's, to the last unit and its remainder.
    pub fn check_sums(&mut self) {
        let mut accounts = self.accounts.clone();
        self.meters
            .count_all(&self.coordination, &mut accounts, self.now);
        for (place, part) in self.coordination.budgets().iter().enumerate() {
            if !part.is_sum() {
                continue;
            }
            let spend = accounts.budgets[place].spend;
            let key = (
                format!("{} {}", part.budget, part.part),
                spend.from.as_millis(),
            );
            let expected = self.oracle.get(&key).copied().unwrap_or(0);
            let counted =
                i128::from(spend.spent) * fine_units(part.measure) + i128::from(spend.remainder);
            assert_eq!(
                counted, expected,
                "{} {} at {}",
                part.budget, part.part, self.now
            );
            assert!(i128::from(spend.remainder) < fine_units(part.measure));
            assert_eq!(spend.since, self.now);
        }
    }

    fn running(&self, id: usize) -> bool {
        self.at[id].current > self.pools[id].min_workers
    }

    /// The sites of pools that are changing.
    pub fn changing(&self) -> Vec<usize> {
        let changing = (0..self.pools.len()).filter(|id| {
            let at = &self.at[*id];
            let until = at.changed_at.unwrap() + Span::from_mins(10);
            at.changed_at == Some(self.now) || (at.current != at.ready && self.now < until)
        });
        let sites: BTreeSet<_> = changing.map(|id| self.setup.pools[id].site).collect();
        sites.into_iter().collect()
    }

    /// Everything that is promised at any instant.
    pub fn check(&mut self) {
        self.check_bounds();
        self.check_instant_budgets();
        self.check_spent_budgets();
        self.check_blast_radius();
    }

    fn check_bounds(&self) {
        for (id, at) in self.at.iter().enumerate() {
            let pool = &self.pools[id];
            let bounds = pool.min_workers..=pool.max_workers;
            assert!(bounds.contains(&at.current), "pool {id}: {at:?}");
            if pool.unit == Unit::Pool {
                let whole = [pool.min_workers, pool.max_workers];
                assert!(whole.contains(&at.current), "pool {id}: a part of {at:?}");
            }
            let moved = at.current != at.before;
            let limited = at.most.is_some_and(|most| most < at.before);
            let most = at.most.map_or(u32::MAX, |most| most.max(pool.min_workers));
            assert!(at.current <= most, "more than the limit leaves: {at:?}");
            assert!(
                at.pin != Pin::Frozen || !moved || limited,
                "a frozen pool moved: {at:?}"
            );
            let grew = at.current > at.before;
            assert!(
                !(grew && self.clock_stepped),
                "grew on a stepped clock: {at:?}"
            );
            assert!(
                !(grew && at.pin == Pin::Off),
                "grew although held down: {at:?}"
            );
            if grew && at.missing && !matches!(at.pin, Pin::On { .. }) {
                let run = match at.why {
                    Some(Why::Floor(floor)) => self.setup.floors[floor as usize].run_on_missing,
                    _ => false,
                };
                assert!(run, "grew on missing data: {at:?}");
            }
        }
    }

    fn check_instant_budgets(&self) {
        for part in self
            .coordination
            .budgets()
            .iter()
            .filter(|part| !part.is_sum())
        {
            let each = |id: usize| match part.measure {
                Measure::Workers => 1,
                _ => (self.pools[id].training_kw * 1e6).round() as i64,
            };
            let limit = part.limit
                * if part.measure == Measure::Power {
                    1_000
                } else {
                    1
                };
            let used = |workers: &dyn Fn(usize) -> u32| -> i64 {
                let pools = part.pools.iter().map(|id| *id as usize);
                pools.map(|id| each(id) * i64::from(workers(id))).sum()
            };
            // Minimums and frozen pools are stronger than any budget.
            let firm = used(&|id| match self.at[id].pin {
                Pin::Frozen => self.at[id].current,
                _ => self.pools[id].min_workers,
            });
            let now = used(&|id| self.at[id].current);
            assert!(now <= limit.max(firm), "{}: {now} of {limit}", part.budget);
        }
    }

    fn check_spent_budgets(&self) {
        let mut accounts = self.accounts.clone();
        self.meters
            .count_all(&self.coordination, &mut accounts, self.now);
        for (place, part) in self.coordination.budgets().iter().enumerate() {
            if !part.is_sum() || !accounts.budgets[place].spend.exhausted(part.limit) {
                continue;
            }
            for id in part.pools.iter().map(|id| *id as usize) {
                let frozen = self.at[id].pin == Pin::Frozen;
                assert!(
                    frozen || !self.running(id),
                    "{} is spent: {:?}",
                    part.budget,
                    self.at[id]
                );
            }
        }
    }

    fn check_blast_radius(&self) {
        let Some(most) = self.setup.blast else { return };
        let now = self.changing();
        if now.len() <= most as usize {
            return;
        }
        // More than may be: nobody who had a choice added to them.
        for (id, at) in self.at.iter().enumerate() {
            let site = self.setup.pools[id].site;
            let added = at.current != at.before && !self.changing_before.contains(&site);
            let forced = at.current < at.before
                && (at.pin == Pin::Off
                    || matches!(at.why, Some(Why::Exhausted(_) | Why::Budget(_)))
                    || at.most.is_some_and(|most| most < at.before)
                    || self.spent(id));
            let others_first = now.len() - 1 < most as usize;
            let beside = self.at.iter().enumerate().any(|(other, at)| {
                other != id && self.setup.pools[other].site == site && at.current != at.before
            });
            assert!(
                !added || forced || others_first || beside || self.forced_sites() > 0,
                "pool {id} changed as well: {at:?}, changing {now:?}"
            );
        }
    }

    /// How many sites were made to change at this instant.
    fn forced_sites(&self) -> usize {
        let forced = (0..self.at.len()).filter(|id| {
            let at = &self.at[*id];
            at.current < at.before
                && (at.pin == Pin::Off || at.most.is_some() || at.why.is_some() || self.spent(*id))
        });
        forced
            .map(|id| self.setup.pools[id].site)
            .collect::<BTreeSet<_>>()
            .len()
    }

    fn spent(&self, id: usize) -> bool {
        let parts = self.coordination.budgets().iter().enumerate();
        parts
            .filter(|(_, part)| part.is_sum() && part.pools.contains(&(id as u32)))
            .any(|(place, part)| self.accounts.budgets[place].spend.exhausted(part.limit))
    }

    /// Nobody was cut within his minimum run by a sum that was not corrected.
    pub fn check_admitted(&self) {
        for (id, at) in self.at.iter().enumerate() {
            let cut = at.current < at.before && matches!(at.why, Some(Why::Exhausted(_)));
            let young = at
                .started_at
                .is_some_and(|since| since + MIN_RUN > self.now);
            assert!(!(cut && young), "pool {id} was cut at {}: {at:?}", self.now);
        }
    }

    /// Planning once more at the same instant gives the same targets.
    pub fn check_again(&mut self) {
        let before = (self.targets(), self.percents.clone(), self.notes.len());
        self.plan_all();
        assert_eq!(
            (self.targets(), self.percents.clone(), self.notes.len()),
            before,
            "at {}",
            self.now
        );
    }
}
