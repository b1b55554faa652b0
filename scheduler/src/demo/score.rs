//! Follows the groups that the engine steps, and keeps the demo's account of them.
//!
//! It only looks: at the group, at what the step asked for, and at the engine before and after.
//! So the fast run and the live one give the same figures for the same journal.

use std::sync::Arc;

use sunward_core::action::{Action, Decision, Effects, EventKind};
use sunward_core::board::{Answer, Board};
use sunward_core::engine::Engine;
use sunward_core::event::Event;
use sunward_core::pools::stream_key;
use sunward_core::signal::{Level, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::facts::Reading;
use sunward_simulations::accounting::{Carbon, CarbonLevel, Figures, Load, SiteAccount};

use super::chart::clock;
use super::scenario::Scenario;

/// Cells of a site's chart over the whole series.
pub const CELLS: usize = 36;
/// Happenings kept; later ones are counted only.
pub const HAPPENINGS_MAX: usize = 10_000;

/// One cell of a chart: a part of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// How long a worker was ready, in milliseconds.
    pub ready_ms: i64,
    /// How long a carbon level was known, in milliseconds.
    pub known_ms: i64,
    /// The integral of the level over that time, in gCO2e/kWh times milliseconds.
    level_ms: f64,
}

impl Cell {
    /// The mean level, in gCO2e/kWh.
    pub fn level(&self) -> Option<f64> {
        (self.known_ms > 0).then(|| self.level_ms / self.known_ms as f64)
    }
}

/// What a site does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Workers that the engine wants.
    pub wanted: u32,
    /// Workers that can train.
    pub ready: u32,
    /// Workers on their way out.
    pub stopping: u32,
}

impl Workers {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Workers {
                wanted: 0,
                ready: 0,
                stopping: 0,
            } => "resting",
            Workers { wanted: 0, .. } => "stopping",
            Workers { ready: 0, .. } => "starting",
            _ => "training",
        }
    }
}

/// The account of one site.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: Arc<str>,
    /// The stream that the policy reads here, where it is of marginal carbon.
    marginal: Option<StreamKey>,
    /// The stream that the policy reads here, where it is of average carbon.
    average: Option<StreamKey>,
    account: SiteAccount,
    /// Its chart.
    pub cells: [Cell; CELLS],
    /// The level that holds at the last instant, gCO2e/kWh.
    pub level: Option<f64>,
    /// Its workers at the last instant.
    pub workers: Workers,
}

impl Site {
    /// Hours, energy, emissions and starts so far.
    pub fn figures(&self) -> Figures {
        self.account.figures()
    }

    /// True where the policy follows the average level and no marginal one.
    pub fn follows_average(&self) -> bool {
        self.marginal.is_none() && self.average.is_some()
    }
}

/// Something that a newcomer should notice.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// When, in series time.
    pub at: Timestamp,
    /// Where.
    pub site: Arc<str>,
    /// `pushed`, `starts`, `trains` or `leaves`.
    pub what: &'static str,
    /// Why, in words.
    pub why: String,
}

/// The demo's account of a run.
#[derive(Clone, Debug)]
pub struct Score {
    start: Timestamp,
    length: Span,
    /// Accounted for up to this instant.
    pub at: Timestamp,
    /// Sites in the order of the scenario.
    pub sites: Vec<Site>,
    /// Readings accepted.
    pub signals: u64,
    /// Readings accepted that do not belong to the series.
    pub pushed: u64,
    /// Decisions taken.
    pub decisions: u64,
    /// Federation events issued.
    pub events: u64,
    /// What happened, oldest first.
    pub happenings: Vec<Happening>,
}

impl Score {
    /// The account of a run that has not begun.
    pub fn new(scenario: &Scenario) -> Score {
        Score {
            start: scenario.start,
            length: scenario.length(),
            at: scenario.start,
            sites: scenario
                .sites()
                .into_iter()
                .map(|site| new_site(site, scenario))
                .collect(),
            signals: 0,
            pushed: 0,
            decisions: 0,
            events: 0,
            happenings: Vec::new(),
        }
    }

    /// First instant of the series.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Length of the whole series.
    pub fn length(&self) -> Span {
        self.length
    }

    /// Accounts for the time up to `at`, in which `engine` did not change. Call it before every
    /// step, and at the end.
    pub fn advance(&mut self, engine: &Engine, at: Timestamp) {
        let board = &engine.state().board;
        let (start, length, from) = (self.start, self.length, self.at);
        for site in &mut self.sites {
            let load = load(engine, &site.name);
            let mut now = from;
            while now < at {
                let level = site.level_at(board, now);
                let (cell, cell_end) = cell_at(start, length, now);
                let until = level.until.unwrap_or(at).min(cell_end).min(at);
                site.account.draw(until - now, load, level.carbon);
                site.cells[cell].add(until - now, load, level.grams);
                now = until;
            }
        }
        self.at = self.at.max(at);
    }

    /// Takes in a group that `engine` has just stepped at `at`.
    pub fn record(&mut self, engine: &Engine, at: Timestamp, group: &[Event], effects: &Effects) {
        for event in group {
            if let Event::SignalAccepted(level) = event {
                self.signals += 1;
                if level.issued_at != Some(self.start) {
                    self.pushed += 1;
                    self.note_pushed(level, at);
                }
            }
        }
        self.decisions += effects.decisions.len() as u64;
        for decision in &effects.decisions {
            if decision.target != decision.before {
                self.note_decision(engine, decision);
            }
        }
        for action in &effects.actions {
            let Action::Broadcast(envelope) = action else {
                continue;
            };
            self.events += 1;
            match envelope.kind {
                EventKind::SiteJoining => {
                    if let Some(site) = self
                        .sites
                        .iter_mut()
                        .find(|site| site.name == envelope.site)
                    {
                        site.account.started();
                    }
                }
                EventKind::SiteReady => {
                    let why = "first worker ready".to_owned();
                    self.note(Happening {
                        at,
                        site: envelope.site.clone(),
                        what: "trains",
                        why,
                    });
                }
                EventKind::SiteDraining | EventKind::SiteDrained | EventKind::SitePower => {}
            }
        }
        self.look(engine, at);
    }

    /// Looks at what holds at `at`.
    pub fn look(&mut self, engine: &Engine, at: Timestamp) {
        for site in &mut self.sites {
            site.level = site.level_at(&engine.state().board, at).grams;
            site.workers = workers(engine, &site.name);
        }
    }

    /// A reading that does not belong to the series, at the sites that read its stream.
    fn note_pushed(&mut self, level: &Level, at: Timestamp) {
        let reads = |site: &Site| {
            [&site.marginal, &site.average]
                .into_iter()
                .flatten()
                .any(|key| *key == level.stream)
        };
        let sites: Vec<Arc<str>> = self
            .sites
            .iter()
            .filter(|site| reads(site))
            .map(|site| site.name.clone())
            .collect();
        let unit = level.stream.kind.unit().as_str();
        let value = level
            .value
            .map_or_else(|| "no value".to_owned(), |value| format!("{value} {unit}"));
        for site in sites {
            let why = format!("{value} until {}", clock(level.valid_to));
            self.note(Happening {
                at,
                site,
                what: "pushed",
                why,
            });
        }
    }

    fn note_decision(&mut self, engine: &Engine, decision: &Decision) {
        let Some(pool) = engine.fleet().pool(&decision.pool) else {
            return;
        };
        let read: Vec<String> = decision
            .inputs
            .iter()
            .map(|input| match input.value {
                Some(value) => format!("{} {value} {}", input.name, input.unit),
                None => format!("{} {}", input.name, input.state),
            })
            .collect();
        self.note(Happening {
            at: decision.at,
            site: pool.site.clone(),
            what: if decision.target > decision.before {
                "starts"
            } else {
                "leaves"
            },
            why: format!("{} ({})", read.join(", "), decision.rule),
        });
    }

    fn note(&mut self, happening: Happening) {
        if self.happenings.len() < HAPPENINGS_MAX {
            self.happenings.push(happening);
        }
    }
}

/// What the streams of a site say at an instant.
struct LevelNow {
    carbon: Carbon,
    /// By the stream that is followed, in gCO2e/kWh.
    grams: Option<f64>,
    /// The first later instant at which it may be otherwise.
    until: Option<Timestamp>,
}

impl Site {
    fn level_at(&self, board: &Board, at: Timestamp) -> LevelNow {
        let marginal = answer(self.marginal.as_ref(), board, at);
        let average = answer(self.average.as_ref(), board, at);
        let carbon = |answer: Option<Answer>| match answer.map(value) {
            None => CarbonLevel::NoStream,
            Some(None) => CarbonLevel::Missing,
            Some(Some(grams)) => CarbonLevel::from_grams(grams),
        };
        let changes = [marginal, average].into_iter().flatten();
        LevelNow {
            carbon: Carbon {
                average: carbon(average),
                marginal: carbon(marginal),
            },
            grams: marginal.or(average).and_then(value),
            until: changes.filter_map(|answer| answer.next_change_at).min(),
        }
    }
}

impl Cell {
    fn add(&mut self, span: Span, load: Load, level: Option<f64>) {
        let ms = span.as_millis();
        if !load.is_empty() {
            self.ready_ms += ms;
        }
        if let Some(level) = level {
            self.known_ms += ms;
            self.level_ms += level * ms as f64;
        }
    }
}

fn new_site(name: Arc<str>, scenario: &Scenario) -> Site {
    let streams = |basis: Basis| {
        let pools = scenario.fleet.pools_of_site(&name);
        let mut keys = pools.flat_map(|pool| {
            let policies = scenario.policies.policies().iter();
            let signals = policies.flat_map(|policy| &policy.signals);
            signals
                .filter(|signal| {
                    signal.kind == Kind::CarbonIntensity && signal.basis == Some(basis)
                })
                .filter_map(|signal| stream_key(signal, pool, &scenario.fleet))
        });
        keys.next()
    };
    Site {
        marginal: streams(Basis::Marginal),
        average: streams(Basis::Average),
        name,
        account: SiteAccount::default(),
        cells: [Cell::default(); CELLS],
        level: None,
        workers: Workers {
            wanted: 0,
            ready: 0,
            stopping: 0,
        },
    }
}

/// What a stream says at `at`; `None` where the policy reads no such stream.
fn answer(key: Option<&StreamKey>, board: &Board, at: Timestamp) -> Option<Answer> {
    // What happened is accounted for however old it was by then: age is the policy's concern.
    let said = board
        .find(key?)
        .map(|id| board.stream(id).answer(at, Span::MAX));
    Some(said.unwrap_or(Answer {
        reading: Reading::Missing,
        received_at: None,
        quality: None,
        valid_from: None,
        next_change_at: None,
    }))
}

fn value(answer: Answer) -> Option<f64> {
    match answer.reading {
        Reading::Fresh { value } | Reading::Stale { value } => Some(value),
        Reading::Missing => None,
    }
}

/// What the ready workers of a site draw.
fn load(engine: &Engine, site: &str) -> Load {
    engine
        .fleet()
        .pools_of_site(site)
        .fold(Load::default(), |load, pool| {
            let state = engine.state().pools.get(&pool.name);
            let ready = state
                .and_then(|state| state.ledger.confirmed)
                .map_or(0, |seen| seen.ready);
            load.and(ready, pool.training_kw)
        })
}

fn workers(engine: &Engine, site: &str) -> Workers {
    let mut sum = Workers {
        wanted: 0,
        ready: 0,
        stopping: 0,
    };
    for pool in engine.fleet().pools_of_site(site) {
        let Some(state) = engine.state().pools.get(&pool.name) else {
            continue;
        };
        sum.wanted += state.ledger.desired.unwrap_or(0);
        if let Some(seen) = state.ledger.confirmed {
            sum.ready += seen.ready;
            sum.stopping += seen.stopping;
        }
    }
    sum
}

/// The chart cell of an instant, and the cell's end.
fn cell_at(start: Timestamp, length: Span, at: Timestamp) -> (usize, Timestamp) {
    let cell_ms = (length.as_millis() / CELLS as i64).max(1);
    let cell = ((at - start).as_millis().max(0) / cell_ms).min(CELLS as i64 - 1);
    let end = if cell + 1 == CELLS as i64 {
        Timestamp::MAX
    } else {
        start + Span::from_millis((cell + 1) * cell_ms)
    };
    (cell as usize, end)
}
