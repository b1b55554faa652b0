//! What sites draw, emit and get done, as the world knows it and whatever the daemon believes.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::action::Scale;
use sunward_core::time::{Span, Timestamp};

use super::cluster::Home;
use crate::accounting::{Carbon, CarbonLevel, Figures, Load, SiteAccount, to_integer};
use crate::energy::{Response, Rounds, response};
use crate::scenario::{Cap, Scenario};

/// Ready workers of one pool, with what each draws in training and idle, kW.
type Ready = (u32, f64, f64);

#[derive(Debug)]
struct Site {
    name: Arc<str>,
    account: SiteAccount,
    carbon: Carbon,
    ready: BTreeMap<usize, Ready>,
    since: Timestamp,
}

/// The accounts of all sites.
#[derive(Debug)]
pub(super) struct Accounts {
    sites: Vec<Site>,
    site_of_pool: BTreeMap<Arc<str>, usize>,
    /// The newest generation that was counted as a start.
    started: BTreeMap<Arc<str>, u64>,
    caps: Vec<Cap>,
    rounds: Rounds,
    /// Site-milliseconds of training.
    work_ms: f64,
    goal_ms: Option<f64>,
    done_at: Option<Timestamp>,
}

impl Accounts {
    pub(super) fn new(scenario: &Scenario) -> Accounts {
        let site = |site: &sunward_core::fleet::Site| Site {
            name: site.name.clone(),
            account: SiteAccount::default(),
            carbon: Carbon::default(),
            ready: BTreeMap::new(),
            since: scenario.start,
        };
        let sites: Vec<Site> = scenario.fleet.sites().map(site).collect();
        let place = |pool: &Arc<sunward_core::fleet::Pool>| {
            let at = sites.iter().position(|site| site.name == pool.site)?;
            Some((pool.name.clone(), at))
        };
        Accounts {
            site_of_pool: scenario.fleet.pools().iter().filter_map(place).collect(),
            sites,
            started: BTreeMap::new(),
            caps: scenario.caps.clone(),
            rounds: scenario.rounds,
            work_ms: 0.0,
            goal_ms: scenario.work_hours.map(|hours| hours * 3_600_000.0),
            done_at: None,
        }
    }

    fn active(&self) -> usize {
        let works = |site: &&Site| site.ready.values().any(|(ready, ..)| *ready > 0);
        self.sites.iter().filter(works).count()
    }

    fn response_at(&self, site: usize, at: Timestamp) -> Response {
        let name = &self.sites[site].name;
        let caps = self.caps.iter().filter(|cap| cap.site == *name);
        let mut in_force = caps.filter(|cap| cap.from <= at && at < cap.to);
        response(in_force.next().map_or(1.0, |cap| cap.allowed))
    }

    fn settle_site(&mut self, index: usize, active: usize, until: Timestamp) {
        let span = until - self.sites[index].since;
        if span <= Span::ZERO {
            return;
        }
        let response = self.response_at(index, self.sites[index].since);
        let share = self.rounds.training_share(active);
        let site = &mut self.sites[index];
        let mut load = Load::default();
        for (ready, training_kw, idle_kw) in site.ready.values() {
            let kw = share * training_kw * response.power + (1.0 - share) * idle_kw;
            load = load.and(*ready, kw);
        }
        if !load.is_empty() {
            self.work_ms += span.as_millis() as f64 * share * response.speed;
        }
        site.account.draw(span, load, site.carbon);
        site.since = until;
    }

    /// Everything up to `now`, or up to the instant at which the work is done.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if self.done_at.is_some() {
            return;
        }
        let active = self.active();
        let until = self.done_by(now, active).unwrap_or(now);
        for site in 0..self.sites.len() {
            self.settle_site(site, active, until);
        }
        if until < now {
            self.done_at = Some(until);
        }
    }

    /// When the work is done, if that is before `now`.
    fn done_by(&self, now: Timestamp, active: usize) -> Option<Timestamp> {
        let goal = self.goal_ms?;
        let share = self.rounds.training_share(active);
        let since = self.sites.iter().map(|site| site.since).min()?;
        let rate: f64 = (0..self.sites.len())
            .filter(|site| {
                self.sites[*site]
                    .ready
                    .values()
                    .any(|(ready, ..)| *ready > 0)
            })
            .map(|site| share * self.response_at(site, since).speed)
            .sum();
        if rate <= 0.0 {
            return None;
        }
        let done = since + Span::from_millis(to_integer((goal - self.work_ms) / rate));
        (done < now).then_some(done)
    }

    /// The ready workers may have changed.
    pub(super) fn ready(&mut self, homes: &[Home], now: Timestamp) {
        let differs = |(pool, home): (usize, &Home)| {
            let known = self.sites[home.site].ready.get(&pool);
            known.map_or(0, |(ready, ..)| *ready) != home.ready()
        };
        if !homes.iter().enumerate().any(differs) {
            return;
        }
        self.settle(now);
        for (pool, home) in homes.iter().enumerate() {
            let entry = (home.ready(), home.pool.training_kw, home.pool.idle_kw);
            self.sites[home.site].ready.insert(pool, entry);
        }
    }

    /// What a site's energy costs from `now` on.
    pub(super) fn carbon(
        &mut self,
        site: usize,
        now: Timestamp,
        level: CarbonLevel,
        average: bool,
    ) {
        let known = &self.sites[site].carbon;
        let known = if average {
            known.average
        } else {
            known.marginal
        };
        if known == level {
            return;
        }
        if self.goal_ms.is_some() {
            // The work is shared: the instant at which it is done needs all sites together.
            self.settle(now);
        } else {
            let active = self.active();
            self.settle_site(site, active, now);
        }
        let carbon = &mut self.sites[site].carbon;
        if average {
            carbon.average = level;
        } else {
            carbon.marginal = level;
        }
    }

    /// A scale was ordered.
    pub(super) fn ordered(&mut self, scale: &Scale) {
        let newest = self.started.entry(scale.pool.clone()).or_default();
        if scale.from == 0 && scale.replicas > 0 && scale.generation > *newest {
            *newest = scale.generation;
            if let Some(site) = self.site_of_pool.get(&scale.pool) {
                self.sites[*site].account.started();
            }
        }
    }

    pub(super) fn figures(&self) -> Vec<(Arc<str>, Figures)> {
        let figures = |site: &Site| (site.name.clone(), site.account.figures());
        self.sites.iter().map(figures).collect()
    }

    pub(super) fn work_done_at(&self) -> Option<Timestamp> {
        self.done_at
    }

    pub(super) fn work_hours(&self) -> f64 {
        self.work_ms / 3_600_000.0
    }
}
