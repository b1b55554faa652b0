//! What has been spent and done so far: kept in the state, in integers with remainders, so that no restart, snapshot or
//! replay loses or gains a milligram.
//!
//! A budget's account belongs to (policy, budget, part) and lives on over reloads while what it counts, its period and
//! its zone are unchanged; another limit, weight or selection of pools changes no history. A budget that leaves the
//! policies keeps its account to the end of the running period, uncounted, so that a file that is taken out and put back
//! starts nothing anew. A deadline's progress counts from when it came into force, and as long as its name and its
//! federation are unchanged.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::calendar::Recurrence;
use sunward_policies::policy::Measure;
use sunward_policies::time::{Span, Timestamp};

use super::{BudgetPart, Coordination, Meters};

/// Accounts kept at most, those of budgets that are gone included; what is in force always has one.
pub const ACCOUNTS_MAX: usize = 100_000;

/// The running period of one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// First instant of the period.
    pub from: Timestamp,
    /// First instant after it.
    pub to: Timestamp,
    /// Spent in it, in the measure's integer unit.
    pub spent: i64,
    /// What is left below one unit, in the measure's fine unit.
    pub remainder: i64,
    /// Counted up to here.
    pub since: Timestamp,
    /// False while nobody knows what was spent before this journal began.
    pub known: bool,
    /// That it is spent was said.
    pub told: bool,
}

/// The account of one sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// `policy/budget`.
    pub budget: Arc<str>,
    /// The site, federation or pool; empty for the fleet.
    pub part: Arc<str>,
    /// What it counts, over which period, in which zone: another word is another account.
    pub counts: Arc<str>,
    /// The running period.
    pub spend: Spend,
}

/// How a deadline stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Its pools run in the best hours that are left.
    #[default]
    Choosing,
    /// There is no slack any more: all its pools run.
    Needs,
    /// The work is done.
    Finished,
}

/// The progress of one deadline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// `policy/deadline`.
    pub deadline: Arc<str>,
    /// Whose pools; another federation is other work.
    pub federation: Option<Arc<str>>,
    /// Worker-milliseconds of ready workers.
    pub done: i64,
    /// Counted up to here.
    pub since: Timestamp,
    /// How it stands.
    pub mode: Mode,
    /// That it passed with work left was said.
    pub missed: bool,
}

/// A floor that can't be met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// `policy/floor`.
    pub floor: Arc<str>,
    /// Since when.
    pub since: Timestamp,
    /// Sites that are active all the same.
    pub active: u32,
}

/// What is kept of a group between two plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// When it must be planned again.
    pub wake_at: Option<Timestamp>,
    /// Its plan depends on scores or weights.
    pub contended: bool,
}

/// Everything that is kept of what pools do together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accounts {
    /// When this journal began empty beside a fleet that ran already: what had been spent by then is not known.
    pub began_blind_at: Option<Timestamp>,
    /// One per sum in force, in the order of [`Coordination::budgets`] (others have an empty period); then those of
    /// budgets that are gone.
    pub budgets: Vec<Account>,
    /// One per deadline in force, in the order of [`Coordination::deadlines`].
    pub deadlines: Vec<Progress>,
    /// Floors that can't be met.
    pub blocked: Vec<Shortfall>,
    /// One per group.
    pub groups: Vec<GroupState>,
}

/// One sum, for showing.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetSummary {
    /// `policy/budget`.
    pub budget: Arc<str>,
    /// The site, federation or pool; empty for the fleet.
    pub part: Arc<str>,
    /// What it counts; the integers are in its unit.
    pub measure: Measure,
    /// The unit as the file wrote it.
    pub unit: Arc<str>,
    /// For a sum over time: the running period.
    pub period: Option<(Timestamp, Timestamp)>,
    /// Spent in the period, or in use now.
    pub spent: i64,
    /// The most.
    pub limit: i64,
    /// What is left; never below zero.
    pub remaining: i64,
    /// Nothing is left.
    pub exhausted: bool,
    /// False while nobody knows what was spent before.
    pub known: bool,
}

/// One floor that can't be met, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloorSummary {
    /// `policy/floor`.
    pub floor: Arc<str>,
    /// Sites that it needs.
    pub needed: u32,
    /// Sites that are active all the same.
    pub active: u32,
    /// Since when it can't be met.
    pub blocked_since: Timestamp,
}

/// One deadline, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineSummary {
    /// `policy/deadline`.
    pub deadline: Arc<str>,
    /// By when.
    pub finish_by: Timestamp,
    /// Worker-milliseconds in all.
    pub work: i64,
    /// Worker-milliseconds done.
    pub done: i64,
    /// Worker-milliseconds left.
    pub remaining: i64,
    /// How it stands.
    pub mode: Mode,
    /// It passed with work left.
    pub missed: bool,
}

/// Fine units per unit: the fine unit is what one mW, held to one percent, of weight one, adds in one millisecond.
///
/// mWh: 10^6 mW to the kW, 3.6 x 10^6 ms to the hour, 100 percent, 10^6 mWh to the kWh. mg CO2e: weights are in mg per
/// kWh. Thousandths of a currency: weights are in thousandths per MWh.
pub(super) fn fine_units(measure: Measure) -> i128 {
    match measure {
        Measure::Workers | Measure::Power => 1,
        Measure::Energy => 360_000_000,
        Measure::Carbon => 360_000_000_000_000,
        Measure::Money => 360_000_000_000_000_000,
    }
}

impl Spend {
    /// A period that begins to count at `at`.
    fn beginning(period: Recurrence, at: Timestamp, known: bool) -> Spend {
        let (from, to) = bounds(period, at);
        Spend {
            from,
            to,
            spent: 0,
            remainder: 0,
            since: at,
            known,
            told: false,
        }
    }

    /// Adds what was spent at `rate` fine units per millisecond up to `at`; a period that ended in between is over.
    pub(super) fn accrue(&mut self, part: &BudgetPart, rate: i128, at: Timestamp) {
        if at <= self.since {
            return;
        }
        if at >= self.to
            && let Some(period) = part.period
        {
            let since = self.since;
            *self = Spend::beginning(period, at, true);
            self.since = since.max(self.from);
        }
        let units = fine_units(part.measure);
        let elapsed = i128::from((at - self.since).as_millis());
        let fine = rate
            .saturating_mul(elapsed)
            .saturating_add(i128::from(self.remainder));
        let whole = i64::try_from(fine / units).unwrap_or(i64::MAX);
        self.spent = self.spent.saturating_add(whole);
        // Below the fine units per unit, which fit.
        self.remainder = (fine % units) as i64;
        self.since = at;
    }

    /// Nothing is left.
    pub fn exhausted(&self, limit: i64) -> bool {
        self.spent >= limit
    }

    /// What is left, in fine units.
    pub(super) fn remaining(&self, part: &BudgetPart) -> i128 {
        let left = i128::from(part.limit) - i128::from(self.spent);
        left * fine_units(part.measure) - i128::from(self.remainder)
    }
}

/// The period around `at`; never empty, whatever the calendar says.
fn bounds(period: Recurrence, at: Timestamp) -> (Timestamp, Timestamp) {
    let (from, to) = period.bounds(at);
    (from.min(at), to.max(at + Span::from_millis(1)))
}

/// What an account counts, in a word.
fn counts(part: &BudgetPart) -> Arc<str> {
    match part.period {
        Some(period) => format!(
            "{:?} per {:?} in {}",
            part.measure, period.period, period.zone
        )
        .into(),
        None => format!("{:?}", part.measure).into(),
    }
}

impl Accounts {
    /// Follows a new wiring at `now`: what is unchanged goes on, what is new begins. Everything was counted up to `now`.
    pub fn follow(&mut self, coordination: &Coordination, now: Timestamp) {
        let mut old = std::mem::take(&mut self.budgets);
        old.sort_by(|a, b| (&a.budget, &a.part).cmp(&(&b.budget, &b.part)));
        let mut kept = vec![false; old.len()];
        for part in coordination.budgets() {
            let counts = counts(part);
            let key = (&part.budget, &part.part);
            let known = old
                .binary_search_by(|account| (&account.budget, &account.part).cmp(&key))
                .ok()
                .filter(|place| old[*place].counts == counts);
            let spend = match (known, part.period) {
                (Some(place), _) => {
                    kept[place] = true;
                    Self::resumed(&old[place].spend, part, now)
                }
                (None, Some(period)) => {
                    let (from, to) = bounds(period, now);
                    let blind = self.began_blind_at.is_some_and(|at| from <= at && at < to);
                    Spend::beginning(period, now, !blind)
                }
                (None, None) => Spend {
                    from: now,
                    to: Timestamp::MAX,
                    spent: 0,
                    remainder: 0,
                    since: now,
                    known: true,
                    told: false,
                },
            };
            self.budgets.push(Account {
                budget: part.budget.clone(),
                part: part.part.clone(),
                counts,
                spend,
            });
        }
        let gone = old.into_iter().zip(kept).filter(|(account, kept)| {
            let over = account.spend.to <= now || account.spend.to == Timestamp::MAX;
            !kept && !over
        });
        let room = ACCOUNTS_MAX.saturating_sub(self.budgets.len());
        self.budgets
            .extend(gone.map(|(account, _)| account).take(room));
        self.follow_deadlines(coordination, now);
        let floors = coordination.floors();
        self.blocked
            .retain(|blocked| floors.iter().any(|floor| floor.name == blocked.floor));
        self.groups.clear();
        self.groups
            .resize(coordination.len(), GroupState::default());
    }

    /// The spend of a budget that goes on, or is back before its period is over.
    fn resumed(spend: &Spend, part: &BudgetPart, now: Timestamp) -> Spend {
        let mut spend = *spend;
        // Nothing was counted while it was gone.
        spend.accrue(part, 0, now);
        spend.told &= spend.exhausted(part.limit);
        spend
    }

    fn follow_deadlines(&mut self, coordination: &Coordination, now: Timestamp) {
        let old = std::mem::take(&mut self.deadlines);
        for deadline in coordination.deadlines() {
            let known = old.iter().find(|known| {
                known.deadline == deadline.name && known.federation == deadline.federation
            });
            let progress = known.cloned().map_or_else(
                || Progress {
                    deadline: deadline.name.clone(),
                    federation: deadline.federation.clone(),
                    done: 0,
                    since: now,
                    mode: Mode::Choosing,
                    missed: false,
                },
                |known| Progress {
                    missed: known.missed && deadline.finish_by <= now,
                    ..known
                },
            );
            self.deadlines.push(progress);
        }
    }

    /// The journal began empty at `at`, in a term that is not the first: a fleet may have run before, and nobody knows
    /// what it spent.
    pub fn began_blind(&mut self, at: Timestamp) {
        self.began_blind_at = Some(at);
    }

    /// A planted bug: nothing was ever spent.
    #[cfg(feature = "plant")]
    pub(crate) fn forget(&mut self) {
        for account in &mut self.budgets {
            account.spend.spent = 0;
            account.spend.remainder = 0;
        }
    }

    /// An operator says what a budget has spent in its running period. Returns its part, or `None` where there is no
    /// such sum. Everything was counted up to `now`.
    pub fn set(
        &mut self,
        coordination: &Coordination,
        budget: &str,
        part: &str,
        spent: i64,
    ) -> Option<u32> {
        let place = coordination.budgets().iter().position(|known| {
            known.is_sum() && known.budget.as_ref() == budget && known.part.as_ref() == part
        })?;
        let limit = coordination.budgets()[place].limit;
        let account = self.budgets.get_mut(place)?;
        account.spend.spent = spent.max(0);
        account.spend.remainder = 0;
        account.spend.known = true;
        account.spend.told &= account.spend.exhausted(limit);
        Some(place as u32)
    }

    /// The running period of a part.
    pub fn spend(&self, part: u32) -> Option<&Spend> {
        self.budgets
            .get(part as usize)
            .map(|account| &account.spend)
    }

    /// How every budget stands at `now`. `in_use` answers for those that hold at any instant: workers, or watts.
    pub fn budget_summaries(
        &self,
        coordination: &Coordination,
        meters: &Meters,
        now: Timestamp,
        in_use: impl Fn(&BudgetPart) -> i64,
    ) -> Vec<BudgetSummary> {
        let one = |(place, part): (usize, &BudgetPart)| {
            let mut counted = self.budgets.get(place)?.spend;
            counted.accrue(part, meters.rate(place as u32), now);
            let (period, spent) = if part.is_sum() {
                (Some((counted.from, counted.to)), counted.spent)
            } else {
                (None, in_use(part))
            };
            Some(BudgetSummary {
                budget: part.budget.clone(),
                part: part.part.clone(),
                measure: part.measure,
                unit: part.unit.clone(),
                period,
                spent,
                limit: part.limit,
                remaining: part.limit.saturating_sub(spent).max(0),
                exhausted: spent >= part.limit,
                known: counted.known,
            })
        };
        coordination
            .budgets()
            .iter()
            .enumerate()
            .filter_map(one)
            .collect()
    }

    /// Every floor that can't be met.
    pub fn floor_summaries(&self, coordination: &Coordination) -> Vec<FloorSummary> {
        let one = |blocked: &Shortfall| {
            let floor = coordination
                .floors()
                .iter()
                .find(|floor| floor.name == blocked.floor)?;
            Some(FloorSummary {
                floor: blocked.floor.clone(),
                needed: floor.sites,
                active: blocked.active,
                blocked_since: blocked.since,
            })
        };
        self.blocked.iter().filter_map(one).collect()
    }

    /// How every deadline stands at `now`.
    pub fn deadline_summaries(
        &self,
        coordination: &Coordination,
        meters: &Meters,
        now: Timestamp,
    ) -> Vec<DeadlineSummary> {
        let one = |(place, known): (usize, &super::DeadlinePart)| {
            let mut progress = self.deadlines.get(place)?.clone();
            progress.count(meters.ready(place as u32), now);
            Some(DeadlineSummary {
                deadline: known.name.clone(),
                finish_by: known.finish_by,
                work: known.work,
                done: progress.done,
                remaining: known.work.saturating_sub(progress.done).max(0),
                mode: progress.mode,
                missed: progress.missed,
            })
        };
        coordination
            .deadlines()
            .iter()
            .enumerate()
            .filter_map(one)
            .collect()
    }
}

impl Progress {
    /// Adds the work of `ready` workers up to `at`.
    pub(super) fn count(&mut self, ready: u64, at: Timestamp) {
        if at <= self.since {
            return;
        }
        let elapsed = (at - self.since).as_millis();
        let ready = i64::try_from(ready).unwrap_or(i64::MAX);
        self.done = self.done.saturating_add(ready.saturating_mul(elapsed));
        self.since = at;
    }
}
