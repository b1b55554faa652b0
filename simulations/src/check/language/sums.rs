//! Budgets, counted by the checkers themselves: in exact integers, piece by piece between two steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono_tz::Tz;
use sunward_core::fleet::Pool;
use sunward_core::signal::StreamKey;
use sunward_core::time::Timestamp;

use super::Boards;
use super::local_time::Period;
use super::text::{BudgetText, Stream};

/// What a limit at any instant counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instant {
    Workers,
    Power,
}

/// A limit that holds at any instant, over one part of the pools.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) counts: Instant,
    /// Workers, or kW.
    pub(super) most: f64,
    /// Indexes of its pools.
    pub(super) pools: Vec<usize>,
}

/// A sum over a period, over one part of the pools.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    /// `policy/budget`.
    pub(super) budget: String,
    /// The site, federation or pool; empty for the fleet.
    pub(super) part: String,
    pub(super) pools: Vec<usize>,
    /// In the integer unit: mWh, mg, thousandths of money.
    pub(super) limit: i128,
    /// mW x percent x ms (x thousandths per unit of energy) in one integer unit.
    unit: i128,
    /// Per pool: by what its energy is weighed.
    streams: Vec<Option<Stream>>,
    assume: f64,
    period: Period,
    zone: Tz,
    /// Spent in the running period, in the fine unit.
    fine: i128,
    since: Option<Timestamp>,
    ends: Timestamp,
}

/// What a pool draws: mW times percent.
pub(super) fn drawn(pool: &Pool, workers: u32, percent: u8) -> i128 {
    let each = (pool.training_kw * 1e6).round() as i128;
    each * i128::from(workers) * i128::from(percent)
}

/// The number and the word of `45 kWh`.
fn amount(text: &str) -> Option<(f64, &str)> {
    let (number, word) = text.split_once(' ')?;
    Some((number.parse().ok()?, word.trim()))
}

/// A limit at any instant, where the text is one.
pub(super) fn limit(policy: &str, text: &BudgetText, pools: Vec<usize>) -> Option<Limit> {
    let (number, word) = amount(&text.limit)?;
    let (counts, most) = match (word, &text.per) {
        ("workers", None) => (Instant::Workers, number),
        ("kW", None) => (Instant::Power, number),
        ("MW", None) => (Instant::Power, number * 1e3),
        _ => return None,
    };
    Some(Limit {
        name: format!("{policy}/{}", text.name),
        counts,
        most,
        pools,
    })
}

/// A sum over a period, where the text is one. `streams` has one per pool.
pub(super) fn sum(
    policy: &str,
    text: &BudgetText,
    part: &str,
    pools: Vec<usize>,
    streams: Vec<Option<Stream>>,
) -> Option<Sum> {
    let (number, word) = amount(&text.limit)?;
    let period = Period::read(text.per.as_deref()?)?;
    let (limit, unit) = match word {
        "kWh" => (number * 1e6, 360_000_000),
        "MWh" => (number * 1e9, 360_000_000),
        "kgCO2e" => (number * 1e6, 360_000_000_000_000),
        "tCO2e" => (number * 1e9, 360_000_000_000_000),
        // Any currency.
        _ => (number * 1e3, 360_000_000_000_000_000),
    };
    Some(Sum {
        budget: format!("{policy}/{}", text.name),
        part: part.to_owned(),
        pools,
        limit: limit.round() as i128,
        unit,
        streams,
        assume: text.assume.unwrap_or(0.0),
        period,
        zone: text.time_zone.as_deref().unwrap_or("UTC").parse().ok()?,
        fine: 0,
        since: None,
        ends: Timestamp::MAX,
    })
}

impl Sum {
    /// The policy comes into force.
    pub(super) fn begin(&mut self, at: Timestamp) {
        if self.since.is_none() {
            self.since = Some(at);
            self.ends = self.period.end(self.zone, at);
        }
    }

    /// Counts what was drawn up to `at`; `draws` are the pools' since the last step.
    pub(super) fn count(&mut self, at: Timestamp, draws: &[i128], boards: &Boards) {
        let Some(mut from) = self.since else {
            return;
        };
        while from < at {
            if from >= self.ends {
                self.fine = 0;
                self.ends = self.period.end(self.zone, from);
            }
            let cut = self.next_cut(from, boards);
            let until = cut.min(at).min(self.ends);
            let ms = i128::from((until - from).as_millis());
            for (pool, stream) in self.pools.iter().zip(&self.streams) {
                self.fine += draws[*pool] * ms * self.weight(stream.as_ref(), from, boards);
            }
            from = until;
        }
        self.since = Some(at);
        if at >= self.ends {
            self.fine = 0;
            self.ends = self.period.end(self.zone, at);
        }
    }

    fn weight(&self, stream: Option<&Stream>, at: Timestamp, boards: &Boards) -> i128 {
        let Some(stream) = stream else {
            return 1;
        };
        let value = boards.believed(stream, at).unwrap_or(self.assume);
        (value * 1e3).round().max(0.0) as i128
    }

    /// The first instant after `from` at which a weight may be another.
    fn next_cut(&self, from: Timestamp, boards: &Boards) -> Timestamp {
        let mut seen: BTreeSet<&StreamKey> = BTreeSet::new();
        let streams = self.streams.iter().flatten();
        let streams = streams.filter(|stream| seen.insert(&stream.key));
        let instants = streams.flat_map(|stream| {
            let issues = boards.issues(&stream.key).iter();
            issues.flat_map(|issue| {
                let ages = issue.received_at + stream.max_age;
                [issue.valid_from, issue.valid_to, ages]
            })
        });
        let next = instants.filter(|at| *at > from).min();
        next.unwrap_or(Timestamp::MAX)
    }

    /// An operator says what was spent.
    pub(super) fn set(&mut self, budget: &str, part: &str, spent: i64) {
        if self.budget == budget && self.part == part {
            self.fine = i128::from(spent) * self.unit;
        }
    }

    /// Spent in the running period, in the integer unit.
    pub(super) fn spent(&self) -> i128 {
        self.fine / self.unit
    }

    /// Nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.since.is_some() && self.spent() >= self.limit
    }

    /// The last instant up to which it was counted.
    pub(super) fn counted(&self) -> bool {
        self.since.is_some()
    }
}

/// The pools of each part of a scope, by the part's name.
pub(super) fn parts(scope: &str, governed: &[(usize, Arc<Pool>)]) -> BTreeMap<String, Vec<usize>> {
    let mut parts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, pool) in governed {
        let part = match scope {
            "site" => Some(pool.site.to_string()),
            "pool" => Some(pool.name.to_string()),
            "federation" => pool.federation.as_ref().map(ToString::to_string),
            _ => Some(String::new()),
        };
        if let Some(part) = part {
            parts.entry(part).or_default().push(*index);
        }
    }
    parts
}
