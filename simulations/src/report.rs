//! Many seeds, and what they came to: the JSON form whose field names are a promise.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sunward_core::time::Span;

use crate::accounting::{Figures, hours};
use crate::fault::Counts;
use crate::scenario::Scenario;
use crate::world::{Core, Options, Outcome, run};

/// Most seeds of one command.
pub const SEEDS_MAX: u64 = 1_000_000;

/// Violations that a report shows at most.
pub const SHOWN_MAX: usize = 50;

/// The result of one or more seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The first seed.
    pub seed: u64,
    /// How many seeds were run.
    pub seeds: u64,
    /// The digest of the journal's last state; of several seeds: SHA-256 over theirs, in order.
    pub digest: String,
    /// What did not hold.
    pub violations: Vec<Found>,
    /// How often each kind of fault struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// The sum of the sites' hours.
    pub site_hours: f64,
    /// Sites times simulated hours.
    pub simulated_site_hours: f64,
    /// One by site.
    pub sites: Vec<SiteRow>,
    /// Over all sites.
    pub totals: Totals,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Under this seed.
    pub seed: u64,
    /// At this instant, RFC 3339.
    pub at: String,
    /// The rule; a leading number is the architecture's.
    pub rule: String,
    /// What happened.
    pub detail: String,
    /// Shows it again.
    pub command: String,
}

/// One site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteRow {
    /// Its name.
    pub site: String,
    /// With a worker ready, from ready to released.
    pub hours: f64,
    /// Drawn by ready workers.
    pub energy_kwh: f64,
    /// By marginal accounting where there is such a stream, else by average.
    pub emissions_kg: Option<f64>,
    /// By average accounting.
    pub emissions_average_kg: Option<f64>,
    /// By marginal accounting.
    pub emissions_marginal_kg: Option<f64>,
    /// How often it was asked to start.
    pub starts: u32,
}

/// Over all sites.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// From the first step until the work was done; without a goal, or where it was not
    /// reached, the simulated time. Over several seeds: the sum.
    pub hours: f64,
    /// The sum of the sites'.
    pub energy_kwh: f64,
    /// The sum of the sites'; null where one is.
    pub emissions_kg: Option<f64>,
    /// The sum of the sites'.
    pub starts: u32,
    /// Training done, in site-hours.
    pub work_hours: f64,
}

/// The command that shows a seed again.
pub fn command(scenario: &str, seed: u64) -> String {
    format!("sunward simulate {scenario} --seed {seed}")
}

/// Runs one seed; a panic of the core is a violation of its own.
pub fn run_seed(scenario: &Scenario, options: &Options) -> Result<Outcome, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| run(scenario, options)));
    caught.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "without words".to_owned())
    })
}

/// What one seed came to, or the words of a panic.
type Finished = (u64, Result<Outcome, String>);

/// Runs `seeds` seeds from `first` on, on `threads` threads. `finished` hears of each as it ends.
/// `place` is how the scenario is named on a command line.
pub fn run_seeds(
    scenario: &Scenario,
    place: &str,
    first: u64,
    seeds: u64,
    threads: usize,
    core: &Core,
    finished: &(dyn Fn(u64) + Sync),
) -> Report {
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let outcomes: Mutex<Vec<Finished>> = Mutex::default();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                return;
            }
            let seed = first.wrapping_add(number);
            let options = Options {
                seed,
                core: core.clone(),
                ..Options::default()
            };
            let outcome = run_seed(scenario, &options);
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.push((number, outcome));
            drop(outcomes);
            finished(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let mut outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(number, _)| *number);
    report(scenario, place, first, &outcomes)
}

fn report(scenario: &Scenario, place: &str, first: u64, outcomes: &[Finished]) -> Report {
    let mut violations = Vec::new();
    let mut faults = Counts::default();
    let mut sums: BTreeMap<String, Vec<Figures>> = BTreeMap::new();
    let (mut total_hours, mut work_hours) = (0.0, 0.0);
    let mut digests = Sha256::new();
    let mut only = String::new();
    for (number, outcome) in outcomes {
        let seed = first.wrapping_add(*number);
        let found = |at: String, rule: &str, detail: &str| Found {
            seed,
            at,
            rule: rule.to_owned(),
            detail: detail.to_owned(),
            command: command(place, seed),
        };
        match outcome {
            Err(words) => violations.push(found(String::new(), "2 step is total", words)),
            Ok(outcome) => {
                let broken = outcome.violations.iter();
                violations.extend(broken.map(|v| found(v.at.to_string(), v.rule, &v.detail)));
                faults.add(&outcome.faults);
                for (site, figures) in &outcome.sites {
                    sums.entry(site.to_string()).or_default().push(*figures);
                }
                total_hours += hours(outcome.work_done_after.unwrap_or(outcome.length));
                work_hours += outcome.work_hours;
                digests.update(outcome.digest.0);
                only = outcome.digest.to_string();
            }
        }
    }
    let seeds = outcomes.len() as u64;
    let all = Figures::sum(sums.values().flatten().copied());
    let sites: Vec<SiteRow> = sums.iter().map(|(site, list)| row(site, list)).collect();
    violations.truncate(SHOWN_MAX);
    Report {
        scenario: scenario.name.clone(),
        seed: first,
        seeds,
        digest: if seeds == 1 {
            only
        } else {
            hex(&digests.finalize())
        },
        violations,
        faults: faults.iter().collect(),
        site_hours: all.hours(),
        simulated_site_hours: simulated(scenario, seeds),
        totals: Totals {
            hours: total_hours,
            energy_kwh: all.energy_kwh(),
            emissions_kg: sites
                .iter()
                .try_fold(0.0, |sum, row| Some(sum + row.emissions_kg?)),
            starts: all.starts,
            work_hours: (work_hours * 1_000_000.0).round() / 1_000_000.0,
        },
        sites,
    }
}

/// Sites times hours times seeds.
pub fn simulated(scenario: &Scenario, seeds: u64) -> f64 {
    let sites = scenario.fleet.sites().count() as i64;
    let ms = scenario.length().as_millis().saturating_mul(sites);
    hours(Span::from_millis(ms)) * seeds as f64
}

fn row(site: &str, figures: &[Figures]) -> SiteRow {
    let sum = Figures::sum(figures.iter().copied());
    let (average, marginal) = (sum.emissions_average_kg(), sum.emissions_marginal_kg());
    SiteRow {
        site: site.to_owned(),
        hours: sum.hours(),
        energy_kwh: sum.energy_kwh(),
        emissions_kg: marginal.or(average),
        emissions_average_kg: average,
        emissions_marginal_kg: marginal,
        starts: sum.starts,
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
