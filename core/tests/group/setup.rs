//! What a group is made of, what happens to it, and any of both.

use std::fmt::Write as _;
use std::sync::OnceLock;

use proptest::prelude::*;
use sunward_core::fleet::Fleet;
use sunward_core::pools::Pin;
use sunward_core::time::Span;
use sunward_policies::calendar::{Period, Recurrence};
use sunward_policies::document::SourceFile;
use sunward_policies::expr::{Expected, Quantity, Scope};
use sunward_policies::policy::{
    Budget, BudgetScope, Deadline, Floor, Measure, Policy, PolicySet, Weight,
};

use super::minute;

#[derive(Clone, Debug)]
pub struct PoolSetup {
    pub site: usize,
    pub federation: bool,
    pub by_worker: bool,
    pub min: u32,
    pub max: u32,
    pub deciwatts: u32,
}

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a test"
)]
pub struct Setup {
    pub pools: Vec<PoolSetup>,
    pub budgets: Vec<Budget>,
    pub floors: Vec<Floor>,
    pub deadlines: Vec<Deadline>,
    pub blast: Option<u32>,
    pub hourly: bool,
    pub blind: bool,
    pub weights_change: bool,
    pub scored: bool,
    /// Seeds the weights.
    pub weights: u64,
}

impl Setup {
    pub fn of(pools: usize) -> Setup {
        let pool = |site| PoolSetup {
            site,
            federation: true,
            by_worker: false,
            min: 0,
            max: 1,
            deciwatts: 10_000,
        };
        Setup {
            pools: (0..pools).map(pool).collect(),
            budgets: Vec::new(),
            floors: Vec::new(),
            deadlines: Vec::new(),
            blast: None,
            hourly: false,
            blind: false,
            weights_change: true,
            scored: false,
            weights: 0,
        }
    }

    pub fn budget(&mut self, measure: Measure, limit: i64, over_time: bool) {
        self.scoped(measure, limit, over_time, BudgetScope::Fleet);
    }

    pub fn scoped(&mut self, measure: Measure, limit: i64, over_time: bool, scope: BudgetScope) {
        let template = policy();
        self.budgets.push(Budget {
            name: format!("budget-{}", self.budgets.len()),
            measure,
            limit,
            unit: "EUR".into(),
            period: over_time.then_some(Recurrence {
                period: Period::Day,
                zone: "UTC".parse().unwrap(),
            }),
            scope,
            weight: matches!(measure, Measure::Carbon | Measure::Money).then_some(Weight {
                signal: 0,
                assume: 700.0,
            }),
            range: template.name_range,
        });
    }

    pub fn floor(&mut self, sites: u32, run_on_missing: bool) {
        self.floors.push(Floor {
            name: format!("floor-{}", self.floors.len()),
            federation: None,
            sites,
            run_on_missing,
            range: policy().name_range,
        });
    }

    pub fn deadline(&mut self, finish_by: i64, work: i64) {
        self.deadlines.push(Deadline {
            name: format!("deadline-{}", self.deadlines.len()),
            federation: None,
            finish_by: minute(finish_by),
            work,
            margin: Span::ZERO,
            range: policy().name_range,
        });
    }

    pub fn fleet(&self) -> Fleet {
        let (mut sites, mut pools, mut job) = (String::new(), String::new(), Vec::new());
        for site in 0..self.pools.len() {
            writeln!(sites, "    - {{name: site-{site}, time_zone: UTC}}").unwrap();
        }
        for (id, pool) in self.pools.iter().enumerate() {
            let unit = if pool.by_worker { "worker" } else { "pool" };
            writeln!(
                pools,
                "    - {{name: pool-{id:05}, site: site-{}, labels: {{a: b}}, unit: {unit}, min_workers: {}, max_workers: {}, training_kw: {:.4}, idle_kw: 0.0, gpus_per_worker: 1, gpu_vendor: nvidia, gpu_model: X, ready_after: 5m, actuator: {{memory: {{start: 5m, stop: 1m}}}}}}",
                pool.site, pool.min, pool.max, f64::from(pool.deciwatts) / 1e4
            )
            .unwrap();
            if pool.federation {
                job.push(format!("pool-{id:05}"));
            }
        }
        let federations = if job.is_empty() {
            String::new()
        } else {
            format!(
                "  federations: [{{name: job, pools: [{}]}}]\n",
                job.join(", ")
            )
        };
        let text = format!(
            "apiVersion: sunward.dev/v1alpha1\nkind: Fleet\nmetadata: {{name: f}}\nspec:\n  sites:\n{sites}  pools:\n{pools}{federations}"
        );
        Fleet::parse(&source("fleet.yaml", &text)).unwrap()
    }

    pub fn policies(&self) -> Vec<Policy> {
        let mut policy = policy();
        policy.name = "p".into();
        policy.selector = [("a".to_owned(), "b".to_owned())].into();
        policy.budgets.clone_from(&self.budgets);
        if self.hourly {
            for period in policy.budgets.iter_mut().filter_map(|b| b.period.as_mut()) {
                period.period = Period::Hour;
            }
        }
        policy.floors.clone_from(&self.floors);
        policy.deadlines.clone_from(&self.deadlines);
        policy.max_changing_sites = self.blast;
        let nothing = Scope {
            signals: &[],
            calendars: &[],
        };
        // Any number: the scores ahead are the story's.
        policy.score = self
            .scored
            .then(|| Quantity::compile("1", nothing, Expected::Any).unwrap());
        vec![policy]
    }
}

fn source(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.into(),
        text: text.into(),
    }
}

/// A policy from a file, whose other parts tests set themselves.
fn policy() -> Policy {
    static COMPILED: OnceLock<Policy> = OnceLock::new();
    COMPILED.get_or_init(compiled).clone()
}

fn compiled() -> Policy {
    let text = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: p}
spec:
  pools: {a: b}
  priority: 1
  mode: enforce
  signals:
    carbon: {source: s, kind: carbon_intensity, basis: marginal, scope: site, max_age: 10m, on_missing: {hold: 0s, then: release}}
  activate: {when: carbon < 100}
";
    let set = PolicySet::compile(&[source("p.yaml", text)]).unwrap();
    set.policies()[0].clone()
}

/// What happens, after so many minutes.
#[derive(Clone, Debug)]
pub struct Move {
    pub after: i64,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Wait,
    /// A pool's policy wants so many workers (within its bounds; all or the minimum where it is all or nothing).
    Ask(usize, u32),
    Score(usize, Option<i8>),
    Missing(usize, bool),
    /// Workers get ready, or are gone.
    Ready(usize),
    Pin(usize, Pin),
    BudgetSet(i64),
    /// An emergency or a limit leaves a pool so many workers, and its site this share of power.
    Limit(usize, Option<u32>, u8),
    Restart,
    Reload,
    Clock(bool),
}

pub fn any_setup() -> impl Strategy<Value = Setup> {
    let pool = (
        0..4_usize,
        any::<bool>(),
        any::<bool>(),
        0..2_u32,
        1..5_u32,
        1..60_000_u32,
    );
    let measure = prop_oneof![
        Just((Measure::Workers, false)),
        Just((Measure::Power, false)),
        Just((Measure::Energy, true)),
        Just((Measure::Carbon, true)),
        Just((Measure::Money, true)),
    ];
    let scope = prop_oneof![
        3 => Just(BudgetScope::Fleet),
        1 => Just(BudgetScope::Site),
        1 => Just(BudgetScope::Federation),
        1 => Just(BudgetScope::Pool),
    ];
    let budget = (measure, 0..1_000_i64, scope);
    (
        prop::collection::vec(pool, 1..7),
        prop::collection::vec(budget, 0..4),
        prop::collection::vec((0..4_u32, any::<bool>()), 0..2),
        prop::option::weighted(0.3, (60..2_000_i64, 1..40_i64)),
        prop::option::weighted(0.4, 1..3_u32),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(
            |(pools, budgets, floors, deadline, blast, hourly, weights)| {
                let mut setup = Setup::of(0);
                setup.pools = pools
                    .into_iter()
                    .map(
                        |(site, federation, by_worker, min, more, deciwatts)| PoolSetup {
                            site,
                            federation,
                            by_worker,
                            min,
                            max: min + more,
                            deciwatts,
                        },
                    )
                    .collect();
                // Sites are numbered below the number of pools.
                let sites = setup.pools.len();
                for pool in &mut setup.pools {
                    pool.site %= sites;
                }
                for (index, ((measure, over_time), limit, scope)) in budgets.into_iter().enumerate()
                {
                    let limit = match measure {
                        Measure::Workers => limit % 12,
                        Measure::Power | Measure::Money => limit * 20,
                        Measure::Energy => limit * 40_000,
                        Measure::Carbon => limit * 20_000,
                    };
                    setup.scoped(measure, limit, over_time, scope);
                    setup.budgets[index].name = format!("budget-{index}");
                }
                for (sites, run) in floors {
                    setup.floor(sites, run);
                }
                if let Some((finish, hours)) = deadline {
                    setup.deadline(finish, hours * 3_600_000);
                    setup.scored = hours % 2 == 0;
                }
                setup.blast = blast;
                setup.hourly = hourly;
                setup.weights = weights;
                setup
            },
        )
}

/// A story for `pools` pools; restarts and reloads only where `breaks`.
pub fn any_story(pools: usize, breaks: bool) -> impl Strategy<Value = Vec<Move>> {
    let pin = prop_oneof![
        4 => Just(Pin::None),
        1 => Just(Pin::On { workers: None }),
        1 => Just(Pin::Dispatch),
        1 => Just(Pin::Off),
        1 => Just(Pin::Frozen),
    ];
    let kind = prop_oneof![
        2 => Just(Kind::Wait),
        8 => (0..pools, 0..6_u32).prop_map(|(pool, workers)| Kind::Ask(pool, workers)),
        2 => (0..pools, prop::option::of(any::<i8>())).prop_map(|(pool, score)| Kind::Score(pool, score)),
        2 => (0..pools, any::<bool>()).prop_map(|(pool, missing)| Kind::Missing(pool, missing)),
        4 => (0..pools).prop_map(Kind::Ready),
        2 => (0..pools, pin).prop_map(|(pool, pin)| Kind::Pin(pool, pin)),
        1 => (0..50_000_000_i64).prop_map(Kind::BudgetSet),
        2 => (0..pools, prop::option::of(0..4_u32), 50..=100_u8)
            .prop_map(|(pool, most, percent)| Kind::Limit(pool, most, percent)),
        1 => any::<bool>().prop_map(Kind::Clock),
    ];
    let broken = if breaks { 2 } else { 0 };
    let kind = prop_oneof![
        20 => kind,
        broken => Just(Kind::Restart),
        broken => Just(Kind::Reload),
    ];
    let one = (0..90_i64, kind).prop_map(|(after, kind)| Move { after, kind });
    prop::collection::vec(one, 1..60)
}
