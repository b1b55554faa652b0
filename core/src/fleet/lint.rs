//! Valid but wrong on this fleet: budgets against floors and starts, and policies that share pools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_policies::codes;
use sunward_policies::diagnostic::Diagnostic;
use sunward_policies::lint::{Shared, Study, pairs};
use sunward_policies::policy::{Budget, BudgetScope, Floor, Measure, Policy};
use sunward_policies::time::Span;

use super::check::governs;
use super::{Fleet, Pool, Unit};

/// What every study shows on the fleet.
pub fn studies_on_fleet(studies: &[Study<'_>], fleet: &Fleet) -> Vec<Diagnostic> {
    let mut found = pairs(studies, &|a, b| shared(a, b, fleet));
    for study in studies {
        let pools: Vec<&Pool> = fleet
            .pools()
            .iter()
            .filter(|pool| governs(study.policy, pool))
            .map(Arc::as_ref)
            .collect();
        if pools.is_empty() {
            continue;
        }
        for budget in &study.policy.budgets {
            let limited = Limited {
                study,
                budget,
                groups: groups(budget.scope, &pools),
            };
            found.extend(limited.look());
        }
    }
    found
}

/// What two policies share on the fleet.
fn shared(a: &Policy, b: &Policy, fleet: &Fleet) -> Shared {
    let of = |policy: &Policy| -> BTreeSet<Arc<str>> {
        let pools = fleet.pools().iter().filter(|pool| governs(policy, pool));
        pools.map(|pool| pool.name.clone()).collect()
    };
    let (a, b) = (of(a), of(b));
    let both: Vec<&str> = a.intersection(&b).map(AsRef::as_ref).collect();
    let words = match both.as_slice() {
        [] => None,
        [one] => Some(format!("pool {one}")),
        [one, other] => Some(format!("pools {one} and {other}")),
        [one, rest @ ..] => Some(format!("pool {one} and {} more", rest.len())),
    };
    Shared {
        pools: words,
        covers: !b.is_empty() && b.is_subset(&a),
    }
}

/// The pools of each sum of a budget.
fn groups<'a>(scope: BudgetScope, pools: &[&'a Pool]) -> Vec<Vec<&'a Pool>> {
    let mut groups: BTreeMap<&str, Vec<&Pool>> = BTreeMap::new();
    for pool in pools {
        let part = match scope {
            BudgetScope::Fleet => "",
            BudgetScope::Site => &pool.site,
            BudgetScope::Pool => &pool.name,
            BudgetScope::Federation => match &pool.federation {
                Some(federation) => federation,
                None => continue,
            },
        };
        groups.entry(part).or_default().push(pool);
    }
    groups.into_values().collect()
}

/// The fewest workers above the minimum that a pool can run.
fn least_start(pool: &Pool) -> u32 {
    match pool.unit {
        Unit::Pool => pool.max_workers,
        Unit::Worker => pool.max_workers.min(pool.min_workers.saturating_add(1)),
    }
}

/// A budget and the pools under it.
struct Limited<'a> {
    study: &'a Study<'a>,
    budget: &'a Budget,
    groups: Vec<Vec<&'a Pool>>,
}

impl Limited<'_> {
    fn look(&self) -> Vec<Diagnostic> {
        match self.budget.measure {
            Measure::Workers | Measure::Power => self.at_an_instant(),
            Measure::Energy | Measure::Carbon | Measure::Money => {
                self.over_a_period().into_iter().collect()
            }
        }
    }

    fn warning(&self, code: &'static str, message: String, help: &str) -> Diagnostic {
        let file = &self.study.policy.file;
        Diagnostic::warning(code, file, self.budget.range, message).with_help(help)
    }

    /// What so many workers of a pool take of an instantaneous budget, in its integer unit.
    fn taken(&self, pool: &Pool, workers: u32) -> f64 {
        match self.budget.measure {
            Measure::Workers => f64::from(workers),
            _ => f64::from(workers) * pool.training_kw * 1_000.0,
        }
    }

    /// The budget's limit as people write it.
    fn limit(&self) -> String {
        let in_unit = |size: f64| format!("{} kW", size / 1_000.0);
        match self.budget.measure {
            Measure::Workers => format!("{} workers", self.budget.limit),
            _ => in_unit(self.budget.limit as f64),
        }
    }

    /// The sites of a group that can run together, the cheapest first, as far as the limit reaches.
    fn sites_that_fit<'p>(
        &self,
        group: &[&'p Pool],
        of: &dyn Fn(&Pool) -> bool,
    ) -> BTreeSet<&'p str> {
        let minimum: f64 = group
            .iter()
            .map(|pool| self.taken(pool, pool.min_workers))
            .sum();
        let mut costs: BTreeMap<&str, f64> = BTreeMap::new();
        for pool in group.iter().filter(|pool| of(pool)) {
            let more = self.taken(pool, least_start(pool)) - self.taken(pool, pool.min_workers);
            let known = costs.entry(&pool.site).or_insert(more);
            *known = known.min(more);
        }
        let mut costs: Vec<(&str, f64)> = costs.into_iter().collect();
        costs.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut left = self.budget.limit as f64 - minimum;
        let mut fit = BTreeSet::new();
        for (site, cost) in costs {
            left -= cost;
            if left < 0.0 {
                break;
            }
            fit.insert(site);
        }
        fit
    }

    fn at_an_instant(&self) -> Vec<Diagnostic> {
        let fitting = |of: &dyn Fn(&Pool) -> bool| -> usize {
            let sites = self
                .groups
                .iter()
                .flat_map(|group| self.sites_that_fit(group, of));
            sites.collect::<BTreeSet<_>>().len()
        };
        if !self.groups.is_empty() && fitting(&|_| true) == 0 {
            let message = format!(
                "no pool can start under budget `{}`: {} is less than the least start of any of them",
                self.budget.name,
                self.limit()
            );
            let help = "raise the limit, or set `unit: worker` on pools whose trainer is elastic";
            return vec![self.warning(codes::BUDGET_PAYS_NO_RUN, message, help)];
        }
        let short = |floor: &Floor| {
            let of = |pool: &Pool| {
                let federation = floor.federation.as_deref();
                federation.is_none_or(|name| pool.federation.as_deref() == Some(name))
            };
            let sites = fitting(&of);
            if sites >= floor.sites as usize {
                return None;
            }
            let message = format!(
                "budget `{}` ({}) pays for {sites} sites at a time, and floor `{}` asks for {}: the floor is blocked",
                self.budget.name,
                self.limit(),
                floor.name,
                floor.sites
            );
            let help = "raise the limit, or lower the floor: a hard budget comes before a floor";
            Some(self.warning(codes::BUDGET_BELOW_FLOOR, message, help))
        };
        self.study.policy.floors.iter().filter_map(short).collect()
    }

    /// A period's budget that can't pay one minimum run of any pool.
    fn over_a_period(&self) -> Option<Diagnostic> {
        let policy = self.study.policy;
        if policy.min_run.is_zero() {
            return None;
        }
        let weight = match &self.budget.weight {
            None => None,
            Some(weight) => {
                let highest = self.study.highest_while_activated(weight.signal)?;
                Some((highest, policy.signals.get(weight.signal)?))
            }
        };
        let pools = self.groups.iter().flatten();
        let cost = |pool: &&Pool| -> f64 {
            let added = least_start(pool) - pool.min_workers;
            let millis = (policy.min_run + pool.ready_after).as_millis() as f64;
            // 1 kW for 3.6 ms is 1 mWh.
            let energy = f64::from(added) * pool.training_kw * millis / 3.6;
            match (self.budget.measure, weight) {
                // 1 mWh at 1 g/kWh is 0.001 mg.
                (Measure::Carbon, Some((highest, _))) => energy * highest / 1e3,
                // 1 mWh at 1 per MWh is 1e-6 thousandths.
                (Measure::Money, Some((highest, _))) => energy * highest / 1e6,
                _ => energy,
            }
        };
        let least = pools.map(cost).min_by(f64::total_cmp)?;
        if least <= self.budget.limit as f64 {
            return None;
        }
        let share = self.budget.limit as f64 / least * 100.0;
        let at = weight.map_or_else(String::new, |(highest, signal)| {
            format!(" at {} {highest}", signal.name)
        });
        let message = format!(
            "a whole period of budget `{}` pays {share:.0} % of the least start of any pool (min_run {}{at}): nothing \
             starts",
            self.budget.name,
            Span::from_millis(policy.min_run.as_millis())
        );
        let help = "raise the limit, take a longer period, or shorten min_run";
        Some(self.warning(codes::BUDGET_PAYS_NO_RUN, message, help))
    }
}
