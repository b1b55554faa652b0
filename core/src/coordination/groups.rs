//! Who is planned with whom: derived from fleet and policies, rebuilt when either is replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use sunward_policies::calendar::Recurrence;
use sunward_policies::policy::{Budget, BudgetScope, Measure, Mode, Policy, Weight};
use sunward_policies::time::{Span, Timestamp};

use crate::fleet::{Pool, check::governs};

/// One sum of one budget: the fleet's, or that of a site, a federation or a pool.
#[derive(Clone, Debug)]
pub struct BudgetPart {
    /// `policy/budget`.
    pub budget: Arc<str>,
    /// The site, federation or pool; empty for the fleet.
    pub part: Arc<str>,
    /// The policy, by its index in the set.
    pub policy: u32,
    /// What it counts.
    pub measure: Measure,
    /// The most, in the measure's integer unit.
    pub limit: i64,
    /// The unit as the file wrote it.
    pub unit: Arc<str>,
    /// After which period the count starts again.
    pub period: Option<Recurrence>,
    /// By what energy is weighed.
    pub weight: Option<Weight>,
    /// Its pools, by id.
    pub pools: Vec<u32>,
    /// The same by their place in the group.
    pub(super) locals: Vec<u32>,
    /// The group that they are in.
    pub(super) group: u32,
}

/// A floor over the pools that it may keep and start.
#[derive(Clone, Debug)]
pub struct FloorPart {
    /// `policy/floor`.
    pub name: Arc<str>,
    /// How many sites stay active.
    pub sites: u32,
    /// Whether it may start a site whose signals are missing.
    pub run_on_missing: bool,
    /// Its pools, by id.
    pub pools: Vec<u32>,
    pub(super) locals: Vec<u32>,
}

/// A deadline over the pools that work for it.
#[derive(Clone, Debug)]
pub struct DeadlinePart {
    /// `policy/deadline`.
    pub name: Arc<str>,
    /// The policy, by its index in the set: its score chooses the hours.
    pub policy: u32,
    /// The policy has a score.
    pub scored: bool,
    /// By when.
    pub finish_by: Timestamp,
    /// Spare time kept before that.
    pub margin: Span,
    /// Worker-milliseconds.
    pub work: i64,
    /// Whose pools.
    pub federation: Option<Arc<str>>,
    /// Its pools, by id.
    pub pools: Vec<u32>,
    pub(super) locals: Vec<u32>,
}

/// Pools that are planned together.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// By id, ascending.
    pub(super) pools: Vec<u32>,
    pub(super) budgets: Vec<u32>,
    pub(super) floors: Vec<u32>,
    pub(super) deadlines: Vec<u32>,
    /// Policies that bound how many sites change at a time.
    pub(super) blasts: Vec<(u32, u32)>,
    /// Sites with a pool in the group, by name.
    pub(super) sites: Vec<Arc<str>>,
    /// For each pool the place of its site in `sites`.
    pub(super) site_of: Vec<u32>,
    /// For each pool the places in `budgets` of those that it is in.
    pub(super) budgets_of: Vec<SmallVec<[u32; 4]>>,
}

/// Who is planned with whom, and under which budgets, floors and deadlines.
#[derive(Clone, Debug, Default)]
pub struct Coordination {
    pub(super) groups: Vec<Group>,
    group_of: Vec<Option<u32>>,
    pub(super) budgets: Vec<BudgetPart>,
    pub(super) floors: Vec<FloorPart>,
    pub(super) deadlines: Vec<DeadlinePart>,
    /// For each pool the sums over time that its draw counts on.
    pub(super) sums_of: Vec<SmallVec<[u32; 2]>>,
    /// For each pool the deadlines that it works for.
    pub(super) works_for: Vec<SmallVec<[u32; 1]>>,
}

/// What connects pools, while the groups are made.
struct Union {
    parent: Vec<u32>,
    grouped: Vec<bool>,
}

impl Union {
    fn root(&mut self, mut of: u32) -> u32 {
        while self.parent[of as usize] != of {
            let above = self.parent[self.parent[of as usize] as usize];
            self.parent[of as usize] = above;
            of = above;
        }
        of
    }

    fn connect(&mut self, pools: &[u32]) {
        let Some(first) = pools.first() else { return };
        self.grouped[*first as usize] = true;
        for pool in &pools[1..] {
            self.grouped[*pool as usize] = true;
            let (a, b) = (self.root(*first), self.root(*pool));
            // The lower id is the root, whatever order they come in.
            self.parent[a.max(b) as usize] = a.min(b);
        }
    }
}

impl Coordination {
    /// The groups of a fleet (its pools in the order of their ids) under a set of policies. Policies that only observe
    /// bind nothing.
    pub fn new(pools: &[Arc<Pool>], policies: &[Policy]) -> Coordination {
        let mut made = Coordination {
            sums_of: vec![SmallVec::new(); pools.len()],
            works_for: vec![SmallVec::new(); pools.len()],
            ..Coordination::default()
        };
        let mut union = Union {
            parent: (0..pools.len() as u32).collect(),
            grouped: vec![false; pools.len()],
        };
        let mut blasts: Vec<(u32, u32, Vec<u32>)> = Vec::new();
        for (index, policy) in (0_u32..).zip(policies) {
            if policy.mode == Mode::Enforce && binds(policy) {
                let governed: Vec<u32> = (0_u32..)
                    .zip(pools)
                    .filter(|(_, pool)| governs(policy, pool))
                    .map(|(id, _)| id)
                    .collect();
                made.add_budgets(index, policy, pools, &governed, &mut union);
                made.add_floors(policy, pools, &governed, &mut union);
                made.add_deadlines(index, policy, pools, &governed, &mut union);
                if let Some(most) = policy.max_changing_sites {
                    union.connect(&governed);
                    blasts.push((index, most.max(1), governed));
                }
            }
        }
        made.assemble(pools, &mut union, &blasts);
        made
    }

    fn add_budgets(
        &mut self,
        index: u32,
        policy: &Policy,
        pools: &[Arc<Pool>],
        governed: &[u32],
        union: &mut Union,
    ) {
        for budget in &policy.budgets {
            for (part, members) in parts(budget, pools, governed) {
                union.connect(&members);
                let place = self.budgets.len() as u32;
                if over_time(budget.measure, budget.period) {
                    for pool in &members {
                        self.sums_of[*pool as usize].push(place);
                    }
                }
                self.budgets.push(BudgetPart {
                    budget: format!("{}/{}", policy.name, budget.name).into(),
                    part,
                    policy: index,
                    measure: budget.measure,
                    limit: budget.limit.max(0),
                    unit: budget.unit.as_str().into(),
                    period: budget.period,
                    weight: budget.weight,
                    pools: members,
                    locals: Vec::new(),
                    group: 0,
                });
            }
        }
    }

    fn add_floors(
        &mut self,
        policy: &Policy,
        pools: &[Arc<Pool>],
        governed: &[u32],
        union: &mut Union,
    ) {
        for floor in &policy.floors {
            let members = of_federation(floor.federation.as_deref(), pools, governed);
            union.connect(&members);
            self.floors.push(FloorPart {
                name: format!("{}/{}", policy.name, floor.name).into(),
                sites: floor.sites,
                run_on_missing: floor.run_on_missing,
                pools: members,
                locals: Vec::new(),
            });
        }
    }

    fn add_deadlines(
        &mut self,
        index: u32,
        policy: &Policy,
        pools: &[Arc<Pool>],
        governed: &[u32],
        union: &mut Union,
    ) {
        for deadline in &policy.deadlines {
            let members = of_federation(deadline.federation.as_deref(), pools, governed);
            union.connect(&members);
            for pool in &members {
                self.works_for[*pool as usize].push(self.deadlines.len() as u32);
            }
            self.deadlines.push(DeadlinePart {
                name: format!("{}/{}", policy.name, deadline.name).into(),
                policy: index,
                scored: policy.score.is_some(),
                finish_by: deadline.finish_by,
                margin: deadline.margin,
                work: deadline.work.max(0),
                federation: deadline.federation.as_deref().map(Into::into),
                pools: members,
                locals: Vec::new(),
            });
        }
    }

    fn assemble(
        &mut self,
        pools: &[Arc<Pool>],
        union: &mut Union,
        blasts: &[(u32, u32, Vec<u32>)],
    ) {
        self.group_of = vec![None; pools.len()];
        let mut local_of = vec![0_u32; pools.len()];
        let mut group_of_root = vec![None; pools.len()];
        for id in 0..pools.len() as u32 {
            if !union.grouped[id as usize] {
                continue;
            }
            let root = union.root(id) as usize;
            let group = *group_of_root[root].get_or_insert_with(|| {
                self.groups.push(Group::default());
                self.groups.len() as u32 - 1
            });
            self.group_of[id as usize] = Some(group);
            let group = &mut self.groups[group as usize];
            local_of[id as usize] = group.pools.len() as u32;
            group.pools.push(id);
        }
        let group_of = &self.group_of;
        let home = |members: &[u32]| members.first().and_then(|pool| group_of[*pool as usize]);
        let locals = |members: &[u32]| {
            members
                .iter()
                .map(|pool| local_of[*pool as usize])
                .collect()
        };
        for group in &mut self.groups {
            group.name_sites(pools);
        }
        for (place, part) in (0_u32..).zip(&mut self.budgets) {
            part.locals = locals(&part.pools);
            let Some(group) = home(&part.pools) else {
                continue;
            };
            part.group = group;
            self.groups[group as usize].add_budget(place, &part.locals);
        }
        for (place, floor) in (0_u32..).zip(&mut self.floors) {
            floor.locals = locals(&floor.pools);
            if let Some(group) = home(&floor.pools) {
                self.groups[group as usize].floors.push(place);
            }
        }
        for (place, deadline) in (0_u32..).zip(&mut self.deadlines) {
            deadline.locals = locals(&deadline.pools);
            if let Some(group) = home(&deadline.pools) {
                self.groups[group as usize].deadlines.push(place);
            }
        }
        for (policy, most, governed) in blasts {
            if let Some(group) = home(governed) {
                self.groups[group as usize].blasts.push((*policy, *most));
            }
        }
    }

    /// The group that a pool is planned in; `None`: it is planned alone.
    pub fn group(&self, pool: u32) -> Option<u32> {
        *self.group_of.get(pool as usize)?
    }

    /// The pools of a group, by id.
    pub fn members(&self, group: u32) -> &[u32] {
        self.groups
            .get(group as usize)
            .map_or(&[], |group| group.pools.as_slice())
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// True where every pool is planned alone.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The sums of all budgets.
    pub fn budgets(&self) -> &[BudgetPart] {
        &self.budgets
    }

    /// All floors.
    pub fn floors(&self) -> &[FloorPart] {
        &self.floors
    }

    /// All deadlines.
    pub fn deadlines(&self) -> &[DeadlinePart] {
        &self.deadlines
    }

    /// True where a pool's draw or its ready workers count on something over time.
    pub fn is_metered(&self, pool: u32) -> bool {
        let pool = pool as usize;
        self.sums_of.get(pool).is_some_and(|sums| !sums.is_empty())
            || self
                .works_for
                .get(pool)
                .is_some_and(|work| !work.is_empty())
    }

    /// True where the group looks ahead, so that what is said about later hours may change its plan.
    pub fn looks_ahead(&self, group: u32) -> bool {
        self.groups
            .get(group as usize)
            .is_some_and(|group| !group.deadlines.is_empty())
    }
}

impl Group {
    fn name_sites(&mut self, pools: &[Arc<Pool>]) {
        let mut sites: Vec<Arc<str>> = self
            .pools
            .iter()
            .map(|pool| pools[*pool as usize].site.clone())
            .collect();
        sites.sort_unstable();
        sites.dedup();
        let place = |pool: &u32| {
            sites
                .binary_search(&pools[*pool as usize].site)
                .unwrap_or(0) as u32
        };
        self.site_of = self.pools.iter().map(place).collect();
        self.sites = sites;
        self.budgets_of = vec![SmallVec::new(); self.pools.len()];
    }

    fn add_budget(&mut self, place: u32, locals: &[u32]) {
        for local in locals {
            self.budgets_of[*local as usize].push(self.budgets.len() as u32);
        }
        self.budgets.push(place);
    }
}

/// True for what adds up over a period.
fn over_time(measure: Measure, period: Option<Recurrence>) -> bool {
    let sum = matches!(measure, Measure::Energy | Measure::Carbon | Measure::Money);
    sum && period.is_some()
}

impl BudgetPart {
    /// True where it adds up over a period; else it holds at any instant.
    pub fn is_sum(&self) -> bool {
        over_time(self.measure, self.period)
    }

    /// The group that its pools are in.
    pub(crate) fn group(&self) -> u32 {
        self.group
    }
}

/// True where the policy says something about several pools together.
fn binds(policy: &Policy) -> bool {
    !policy.budgets.is_empty()
        || !policy.floors.is_empty()
        || !policy.deadlines.is_empty()
        || policy.max_changing_sites.is_some()
}

/// The governed pools by the parts that a budget keeps a sum for.
fn parts(budget: &Budget, pools: &[Arc<Pool>], governed: &[u32]) -> BTreeMap<Arc<str>, Vec<u32>> {
    let mut parts: BTreeMap<Arc<str>, Vec<u32>> = BTreeMap::new();
    for id in governed {
        let pool = &pools[*id as usize];
        let part = match budget.scope {
            BudgetScope::Fleet => Some("".into()),
            BudgetScope::Site => Some(pool.site.clone()),
            BudgetScope::Federation => pool.federation.clone(),
            BudgetScope::Pool => Some(pool.name.clone()),
        };
        if let Some(part) = part {
            parts.entry(part).or_default().push(*id);
        }
    }
    parts
}

/// The governed pools of a federation, or all of them.
fn of_federation(federation: Option<&str>, pools: &[Arc<Pool>], governed: &[u32]) -> Vec<u32> {
    let belongs =
        |id: &u32| federation.is_none() || pools[*id as usize].federation.as_deref() == federation;
    governed.iter().copied().filter(belongs).collect()
}
