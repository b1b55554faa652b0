//! How budgets, floors and deadlines stand, for whoever asks.

use sunward_policies::policy::Measure;
use sunward_policies::time::Timestamp;

use super::Engine;
use crate::coordination::{BudgetPart, BudgetSummary, DeadlineSummary, FloorSummary};

/// Milliwatts to the kilowatt.
const MW_PER_KW: f64 = 1e6;
/// Milliwatts to the watt.
const MW_PER_W: i128 = 1_000;

impl Engine {
    /// How every budget stands at `now`, or at the last group where that is later.
    pub fn budgets(&self, now: Timestamp) -> Vec<BudgetSummary> {
        let now = now.max(self.state.at);
        let accounts = &self.state.accounts;
        accounts.budget_summaries(&self.coordination, &self.meters, now, |part| {
            self.in_use(part)
        })
    }

    /// Every floor that can't be met.
    pub fn blocked_floors(&self) -> Vec<FloorSummary> {
        self.state.accounts.floor_summaries(&self.coordination)
    }

    /// How every deadline stands at `now`, or at the last group where that is later.
    pub fn deadlines(&self, now: Timestamp) -> Vec<DeadlineSummary> {
        let now = now.max(self.state.at);
        let accounts = &self.state.accounts;
        accounts.deadline_summaries(&self.coordination, &self.meters, now)
    }

    /// What the pools of a budget that holds at any instant use by their targets: workers, or watts, rounded up.
    fn in_use(&self, part: &BudgetPart) -> i64 {
        let pools = part.pools.iter().filter_map(|id| {
            let pool = self.fleet.pools().get(*id as usize)?;
            Some((pool, self.state.pools.at(*id)?.ledger.desired?))
        });
        let milliwatts = |kw: f64| (kw * MW_PER_KW).round() as i128;
        let used: i128 = if part.measure == Measure::Workers {
            pools.map(|(_, wanted)| i128::from(wanted)).sum()
        } else {
            let drawn: i128 = pools
                .map(|(pool, wanted)| milliwatts(pool.training_kw) * i128::from(wanted))
                .sum();
            (drawn + MW_PER_W - 1) / MW_PER_W
        };
        i64::try_from(used).unwrap_or(i64::MAX)
    }
}
