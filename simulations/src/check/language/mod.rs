//! What the policy language and its operators promise, whatever the policies say: overrides, the grid, budgets,
//! calendars, minimum runs, blast radius, and that missing data starts nothing.
//!
//! Written from `semantics.md`: it reads the policies' text by itself, keeps overrides, grid events, values and spends
//! of its own from the journal's groups, and looks at what the engine wants of each pool before and after a step. Every
//! rule is a plain statement about that; none repeats how the engine gets there.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::action::Action;
use sunward_core::engine::Engine;
use sunward_core::event::Event;
use sunward_core::fleet::{Fleet, Pool};
use sunward_core::grid_event::{GridEvent, GridEventKind, GridTarget};
use sunward_core::overrides::{Override, OverrideEffect, OverrideScope};
use sunward_core::signal::{Issue, Quality, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_policies::document::SourceFile;

use super::history::Broken;
use crate::scenario::Scenario;

mod local_time;
mod rulebook;
mod rules;
mod sums;
mod text;

use self::rulebook::Rulebook;
use self::text::Stream;

/// What acts on a pool besides its policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acting {
    /// The strongest override: freeze before off before on.
    pin: Option<OverrideEffect>,
    /// A limit or an emergency acts on its site.
    limited: bool,
}

/// One pool, as it is watched.
#[derive(Clone, Debug)]
struct Watched {
    pool: Arc<Pool>,
    /// The one policy that governs it, where there is exactly one.
    policy: Option<usize>,
    /// Its policy's signals.
    streams: Vec<Option<Stream>>,
    /// Wanted after the step before, and after this one.
    before: Option<u32>,
    wanted: Option<u32>,
    ready: u32,
    started_at: Option<Timestamp>,
    changed_at: Option<Timestamp>,
}

impl Watched {
    fn changed(&self) -> bool {
        self.before.is_some() && self.before != self.wanted
    }

    /// What it went from and to, if it did.
    fn change(&self) -> Option<(u32, u32)> {
        Some((self.before?, self.wanted?)).filter(|(before, wanted)| before != wanted)
    }
}

/// Values as the journal brought them.
#[derive(Clone, Debug, Default)]
struct Boards(BTreeMap<StreamKey, Vec<Issue>>);

impl Boards {
    fn issues(&self, stream: &StreamKey) -> &[Issue] {
        self.0.get(stream).map_or(&[], Vec::as_slice)
    }

    /// The value that may be believed at `at`.
    fn believed(&self, stream: &Stream, at: Timestamp) -> Option<f64> {
        let covering = self
            .issues(&stream.key)
            .iter()
            .filter(|issue| issue.covers(at));
        let winner = covering.max_by(|a, b| a.precedence(b, stream.key.kind))?;
        let guessed = matches!(winner.quality, Quality::Estimated | Quality::Forecast);
        let fresh = at < winner.received_at + stream.max_age;
        winner
            .value
            .filter(|_| fresh && (stream.guesses || !guessed))
    }
}

/// The checker.
#[derive(Clone, Debug, Default)]
pub struct Language {
    fleet: Option<Arc<Fleet>>,
    books: Vec<Rulebook>,
    pools: Vec<Watched>,
    boards: Boards,
    overrides: BTreeMap<Arc<str>, Override>,
    calls: BTreeMap<(Arc<str>, Arc<str>), GridEvent>,
    /// What each site is held to, in percent, since the last step.
    percent: BTreeMap<Arc<str>, u8>,
    clock_stepped: bool,
}

impl Language {
    /// The checker of a scenario.
    pub fn new(scenario: &Scenario) -> Language {
        let fleet = &scenario.fleet;
        let mut books = Vec::new();
        for file in &scenario.policy_files {
            books.extend(Rulebook::read(file, fleet, scenario.start, scenario.end));
        }
        let pools = fleet.pools().iter().map(|pool| watch(pool, &books, fleet));
        let mut language = Language {
            pools: pools.collect(),
            fleet: Some(fleet.clone()),
            ..Language::default()
        };
        for (index, book) in books.iter_mut().enumerate() {
            let governed: Vec<(usize, Arc<Pool>)> = language
                .pools
                .iter()
                .enumerate()
                .filter(|(_, watched)| watched.policy == Some(index))
                .map(|(place, watched)| (place, watched.pool.clone()))
                .collect();
            book.take_pools(&governed, fleet);
            for stream in book.streams() {
                language.boards.0.entry(stream).or_default();
            }
        }
        language.books = books;
        language
    }

    /// The journal was lost, and with it what operators, the grid and sources said.
    pub fn journal_lost(&mut self) {
        self.overrides.clear();
        self.calls.clear();
        self.percent.clear();
        self.boards.0.values_mut().for_each(Vec::clear);
        self.clock_stepped = false;
        for watched in &mut self.pools {
            (watched.before, watched.wanted) = (None, None);
            (watched.started_at, watched.changed_at) = (None, None);
        }
    }

    /// What acts on a pool now.
    fn acting(&self, pool: &Pool) -> Acting {
        let about = self
            .overrides
            .values()
            .filter(|known| covers(&known.scope, pool));
        let strength = |effect: OverrideEffect| match effect {
            OverrideEffect::On { .. } => 0,
            OverrideEffect::Off => 1,
            OverrideEffect::Freeze => 2,
        };
        Acting {
            pin: about
                .map(|known| known.effect)
                .max_by_key(|effect| strength(*effect)),
            limited: self.limits(&pool.site).next().is_some(),
        }
    }

    /// The grid events that act on a site at the last step.
    fn calls_at<'a>(&'a self, site: &'a str) -> impl Iterator<Item = &'a GridEvent> + 'a {
        let fleet = self.fleet.as_ref();
        let zones = fleet
            .and_then(|fleet| fleet.site(site))
            .map(|site| &site.zones);
        self.calls.values().filter(move |call| match &call.scope {
            Scope::Site(name) => name.as_ref() == site,
            Scope::Zone { scheme, code } => {
                zones.is_some_and(|zones| zones.get(scheme) == Some(code))
            }
        })
    }

    fn limits<'a>(&'a self, site: &'a str) -> impl Iterator<Item = &'a GridEvent> + 'a {
        let limits = |kind| matches!(kind, GridEventKind::Limit | GridEventKind::Emergency);
        self.calls_at(site).filter(move |call| limits(call.kind))
    }

    /// Follows one group, with which `engine` was stepped.
    pub fn follow(
        &mut self,
        at: Timestamp,
        group: &[Event],
        engine: &Engine,
        actions: &[Action],
        broken: &mut Vec<Broken>,
    ) {
        self.count(at);
        for event in group {
            self.apply(at, event);
        }
        if !engine.policies().policies().is_empty() {
            self.books.iter_mut().for_each(|book| book.begin(at));
        }
        self.overrides.retain(|_, known| at < known.expires_at);
        let all_calls = self.calls.clone();
        // What does not act now is put aside for this look.
        self.calls.retain(|_, call| call.acts(at));
        self.see(at, engine);
        self.look(at, engine, actions, broken);
        self.calls = all_calls;
        self.calls.retain(|_, call| {
            call.ends_at
                .is_none_or(|end| at < end + Span::from_mins(24 * 60))
        });
        self.remember(engine);
    }

    /// Counts what was spent up to `at` by what was wanted and ready until now.
    fn count(&mut self, at: Timestamp) {
        let draw = |watched: &Watched| {
            let percent = self.percent.get(&watched.pool.site).copied().unwrap_or(100);
            let workers = watched.wanted.unwrap_or(0).max(watched.ready);
            sums::drawn(&watched.pool, workers, percent)
        };
        let draws: Vec<i128> = self.pools.iter().map(draw).collect();
        for book in &mut self.books {
            book.count(at, &draws, &self.boards);
        }
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::SignalAccepted(level) => {
                if let Some(issues) = self.boards.0.get_mut(&level.stream) {
                    issues.push(Issue::new(level, at));
                    issues.retain(|issue| issue.valid_to > at);
                }
            }
            Event::OverrideSet(set) if set.expires_at > at => {
                self.overrides.insert(set.id.clone(), set.clone());
            }
            Event::OverrideCleared { id, .. } => {
                self.overrides.remove(id);
            }
            Event::GridEventAccepted(call) => {
                let key = (call.source.clone(), call.id.clone());
                let known = self.calls.get(&key);
                if known.is_none_or(|known| known.revision <= call.revision) {
                    self.calls.insert(key, call.clone());
                }
            }
            Event::BudgetSet {
                budget,
                part,
                spent,
                ..
            } => {
                for book in &mut self.books {
                    book.set_spent(budget, part, *spent);
                }
            }
            Event::Started(_) | Event::ClockRestored => self.clock_stepped = false,
            Event::ClockStepped { .. } => self.clock_stepped = true,
            _ => {}
        }
    }

    /// What the engine wants and knows of each pool.
    fn see(&mut self, at: Timestamp, engine: &Engine) {
        for watched in &mut self.pools {
            let state = engine.state().pools.get(&watched.pool.name);
            watched.wanted = state.and_then(|state| state.ledger.desired);
            let seen = state.and_then(|state| state.ledger.confirmed.as_ref());
            watched.ready = seen.map_or(0, |seen| seen.ready);
            if let Some((before, wanted)) = watched.change() {
                let min = watched.pool.min_workers;
                watched.changed_at = Some(at);
                if before <= min && wanted > min {
                    watched.started_at = Some(at);
                }
            }
        }
    }

    fn remember(&mut self, engine: &Engine) {
        self.percent.clone_from(&engine.state().power_percent);
        for watched in &mut self.pools {
            watched.before = watched.wanted;
        }
    }

    /// Power that a limit allows: (everything to its minimum, the least percentage, the least kW).
    fn allowed(&self, site: &str) -> (bool, Option<u8>, Option<f64>) {
        let (mut minimum, mut percent, mut kilowatts) = (false, None::<u8>, None::<f64>);
        for call in self.limits(site) {
            match call.target {
                None => minimum = true,
                Some(GridTarget::PowerPercent(most)) => {
                    percent = Some(percent.map_or(most, |known| known.min(most)));
                }
                Some(GridTarget::Kilowatts(most)) => {
                    kilowatts = Some(kilowatts.map_or(most, |known| known.min(most)));
                }
            }
        }
        (minimum, percent, kilowatts)
    }
}

fn covers(scope: &OverrideScope, pool: &Pool) -> bool {
    match scope {
        OverrideScope::Fleet => true,
        OverrideScope::Site(site) => pool.site == *site,
        OverrideScope::Federation(federation) => pool.federation.as_ref() == Some(federation),
        OverrideScope::Pool(name) => pool.name == *name,
    }
}

fn watch(pool: &Arc<Pool>, books: &[Rulebook], fleet: &Fleet) -> Watched {
    let governing: Vec<usize> = books
        .iter()
        .enumerate()
        .filter(|(_, book)| book.governs(pool))
        .map(|(index, _)| index)
        .collect();
    let policy = match governing[..] {
        [only] => Some(only),
        _ => None,
    };
    Watched {
        streams: policy.map_or_else(Vec::new, |index| books[index].streams_of(pool, fleet)),
        pool: pool.clone(),
        policy,
        before: None,
        wanted: None,
        ready: 0,
        started_at: None,
        changed_at: None,
    }
}

/// A policy file that the checkers can read.
fn read(file: &SourceFile) -> Option<text::Document> {
    sunward_policies::yaml::read_yaml(&file.path, &file.text).ok()
}
