//! An independent reading of simple policies: what each pool should be told, at every index.
//!
//! It reads the policy's text by itself and follows the journal's groups with a board, a latch
//! and a planner of its own, written from `semantics.md` and not from the rules' code. It knows
//! policies whose conditions compare signals with numbers, joined by `&&` or by `||`, with minimum
//! run and rest and with ramps; a pool that is governed by anything else is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::engine::Engine;
use sunward_core::event::{Call, Event, Outcome, PoolObservation};
use sunward_core::fleet::{Fleet, Pool};
use sunward_core::signal::{Issue, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::Kind;
use sunward_policies::document::SourceFile;

use self::read::{Document, Terms, terms};

mod read;

/// A policy as it governs one pool.
#[derive(Clone, Debug)]
struct Governed {
    pool: Arc<Pool>,
    terms: Terms,
    state: Option<Course>,
    given_up: bool,
}

/// What is remembered of a pool once its first observation was answered.
#[derive(Clone, Debug)]
struct Course {
    wanted: u32,
    latched: Option<bool>,
    pending_since: Option<Timestamp>,
    unknown_since: Option<Timestamp>,
    restarted_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    stopped_at: Option<Timestamp>,
    stepped_at: Option<Timestamp>,
}

/// What a pool should be told, where the engine says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The pool.
    pub pool: Arc<str>,
    /// Workers that the policy asks for.
    pub expected: u32,
    /// Workers that the engine wants.
    pub found: u32,
    /// The engine wants more although a signal has no fresh value.
    pub grew_blind: bool,
}

/// The reference.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pools: Vec<Governed>,
    boards: BTreeMap<StreamKey, Vec<Issue>>,
    term: u64,
    clock_stepped: bool,
}

enum Intent {
    Release,
    Hold,
    Activate,
}

impl Governed {
    fn is_new(&self) -> bool {
        self.state.is_none() && !self.given_up
    }
}

impl Oracle {
    /// The reference for `files` on `fleet`; pools that it can't judge are absent.
    pub fn new(files: &[SourceFile], fleet: &Fleet) -> Oracle {
        let mut governed: BTreeMap<Arc<str>, Vec<Option<Governed>>> = BTreeMap::new();
        for file in files {
            let document = sunward_policies::yaml::read_yaml::<Document>(&file.path, &file.text);
            for pool in fleet.pools() {
                match &document {
                    Ok(document) => {
                        let spec = &document.spec;
                        let observes = spec.mode.as_deref() == Some("observe");
                        let selects = spec
                            .pools
                            .iter()
                            .all(|(k, v)| pool.labels.get(k) == Some(v));
                        if selects && !observes {
                            let entry = governed.entry(pool.name.clone()).or_default();
                            entry.push(govern(terms(spec, pool, fleet), pool));
                        }
                    }
                    // A richer policy than this reads: nobody knows which pools it governs.
                    Err(_) => governed.entry(pool.name.clone()).or_default().push(None),
                }
            }
        }
        let one = |list: Vec<Option<Governed>>| match <[_; 1]>::try_from(list) {
            Ok([only]) => only,
            Err(_) => None,
        };
        let pools: Vec<Governed> = governed.into_values().filter_map(one).collect();
        let signals = pools.iter().flat_map(|pool| &pool.terms.signals);
        let boards = signals
            .map(|signal| (signal.stream.clone(), Vec::new()))
            .collect();
        Oracle {
            pools,
            boards,
            ..Oracle::default()
        }
    }

    /// The journal was lost: pools are adopted anew, and nothing is known of any stream.
    pub fn journal_lost(&mut self) {
        self.term = 0;
        self.clock_stepped = false;
        for pool in &mut self.pools {
            pool.state = None;
        }
        for issues in self.boards.values_mut() {
            issues.clear();
        }
    }

    /// How many pools it judges.
    pub fn pools(&self) -> usize {
        self.pools.len()
    }

    /// Follows one group and compares; `engine` was stepped with it.
    pub fn follow(&mut self, at: Timestamp, group: &[Event], engine: &Engine) -> Vec<Difference> {
        for event in group {
            self.apply(at, event);
        }
        let mut found = Vec::new();
        for pool in &mut self.pools {
            let Some(course) = &mut pool.state else {
                continue;
            };
            let signals = pool.terms.signals.iter();
            let values: Vec<Option<f64>> = signals
                .map(|signal| {
                    let issues = self.boards.get(&signal.stream);
                    let issues = issues.map_or(&[][..], Vec::as_slice);
                    fresh(issues, at, signal.max_age, signal.stream.kind)
                })
                .collect();
            let before = course.wanted;
            let bounds = (pool.pool.min_workers, pool.pool.max_workers);
            let expected = course.plan(at, &values, &pool.terms, bounds, self.clock_stepped);
            let known = engine.state().pools.get(&pool.pool.name);
            let wanted = known.and_then(|state| state.ledger.desired);
            if let Some(wanted) = wanted.filter(|wanted| *wanted != expected) {
                found.push(Difference {
                    pool: pool.pool.name.clone(),
                    expected,
                    found: wanted,
                    grew_blind: wanted > before && values.contains(&None),
                });
                // One difference makes others: this pool is not looked at any more.
                pool.state = None;
                pool.given_up = true;
            }
        }
        found
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::SignalAccepted(level) => {
                if let Some(issues) = self.boards.get_mut(&level.stream) {
                    issues.push(Issue::new(level, at));
                    if issues.len() > 64 {
                        issues.retain(|issue| issue.valid_to > at);
                    }
                }
            }
            Event::Started(started) => {
                self.term = self.term.max(started.term);
                self.clock_stepped = false;
                for course in self.pools.iter_mut().filter_map(|pool| pool.state.as_mut()) {
                    if course.latched.is_some() {
                        course.unknown_since = None;
                        course.restarted_at = Some(at);
                    }
                }
            }
            Event::ClockStepped { .. } => self.clock_stepped = true,
            Event::ClockRestored => self.clock_stepped = false,
            Event::ActionSettled(settled) => {
                if let (Call::Claim { term }, Outcome::Accepted(seen)) =
                    (settled.call, &settled.outcome)
                    && term == self.term
                    && let Some(pool) = self
                        .pools
                        .iter_mut()
                        .find(|pool| pool.pool.name == settled.pool && pool.is_new())
                {
                    pool.state = Some(Course::adopt(seen, at, pool.pool.min_workers));
                }
            }
            _ => {}
        }
    }
}

fn govern(terms: Option<Terms>, pool: &Arc<Pool>) -> Option<Governed> {
    Some(Governed {
        pool: pool.clone(),
        terms: terms?,
        state: None,
        given_up: false,
    })
}

/// The value that may be believed at `at`.
fn fresh(issues: &[Issue], at: Timestamp, max_age: Span, kind: Kind) -> Option<f64> {
    let covering = issues.iter().filter(|issue| issue.covers(at));
    let winner = covering.max_by(|a, b| a.precedence(b, kind))?;
    winner.value.filter(|_| at < winner.received_at + max_age)
}

impl Course {
    fn adopt(seen: &PoolObservation, at: Timestamp, min: u32) -> Course {
        let since = Some(seen.changed_at.map_or(at, |changed| changed.min(at)));
        let running = seen.wanted > min;
        Course {
            wanted: seen.wanted,
            latched: None,
            pending_since: None,
            unknown_since: None,
            restarted_at: None,
            started_at: since.filter(|_| running),
            stopped_at: since.filter(|_| !running),
            stepped_at: since,
        }
    }

    /// Judges and plans; returns what should be wanted from now on.
    fn plan(
        &mut self,
        now: Timestamp,
        values: &[Option<f64>],
        terms: &Terms,
        (min, max): (u32, u32),
        clock_stepped: bool,
    ) -> u32 {
        // Outside its bounds a pool moves to the nearest one at once.
        let current = self.wanted.clamp(min, max);
        let asked = match self.judge(now, values, terms, min) {
            Intent::Activate => max,
            Intent::Release => min,
            Intent::Hold => current,
        };
        let within = |since: Option<Timestamp>, span: Span| since.is_some_and(|at| at + span > now);
        let resting = current == min;
        let up = asked > current;
        let kept = if up {
            clock_stepped || (resting && within(self.stopped_at, terms.min_rest))
        } else {
            within(self.started_at, terms.min_run)
        };
        let step = if up { terms.up } else { terms.down };
        let target = match step {
            _ if kept => current,
            // The first step away from rest is free.
            Some(step) if !(up && resting) && within(self.stepped_at, step.every) => current,
            Some(step) if up => asked.min(current.saturating_add(step.workers)),
            Some(step) => asked.max(current.saturating_sub(step.workers)),
            None => asked,
        };
        if target == self.wanted {
            return target;
        }
        if self.wanted <= min && target > min {
            self.started_at = Some(now);
        }
        if self.wanted > min && target <= min {
            self.stopped_at = Some(now);
        }
        self.stepped_at = Some(now);
        self.wanted = target;
        target
    }

    fn judge(&mut self, now: Timestamp, values: &[Option<f64>], terms: &Terms, min: u32) -> Intent {
        let grace_from = self.restarted_at.take().map_or(now, |at| at.min(now));
        let latched = *self.latched.get_or_insert(self.wanted > min);
        let Some(leaving) = leaving(values, terms, latched) else {
            return self.unknown(now, values, latched, grace_from, terms);
        };
        self.unknown_since = None;
        if !leaving {
            self.pending_since = None;
            return stand(latched);
        }
        let side = if latched {
            &terms.release
        } else {
            &terms.activate
        };
        let since = *self.pending_since.get_or_insert(now);
        if since + side.held > now {
            return stand(latched);
        }
        self.pending_since = None;
        self.latched = Some(!latched);
        // The conditions of these policies exclude each other, so the other side can only begin.
        stand(!latched)
    }

    fn unknown(
        &mut self,
        now: Timestamp,
        values: &[Option<f64>],
        latched: bool,
        grace_from: Timestamp,
        terms: &Terms,
    ) -> Intent {
        let since = *self.unknown_since.get_or_insert(grace_from);
        let activate_unknown = !latched && terms.activate.holds(values).is_none();
        let side = if activate_unknown {
            &terms.activate
        } else {
            &terms.release
        };
        // The signals that leave it unknown, and whose hold is over.
        let mut over = terms.signals.iter().enumerate().filter(|(index, signal)| {
            side.reads(*index) && values[*index].is_none() && since + signal.hold <= now
        });
        if over.clone().next().is_some() {
            self.pending_since = None;
        }
        if over.any(|(_, signal)| signal.then_release) {
            self.latched = Some(false);
            if latched && leaving(values, terms, false).is_some() {
                self.unknown_since = None;
            }
        }
        if latched && self.latched == Some(true) {
            Intent::Hold
        } else {
            Intent::Release
        }
    }
}

/// Whether the condition to change state holds. What could not be stopped is not started.
fn leaving(values: &[Option<f64>], terms: &Terms, latched: bool) -> Option<bool> {
    let release = terms.release.holds(values);
    if latched {
        return release;
    }
    match terms.activate.holds(values) {
        Some(true) => release.map(|_| true),
        other => other,
    }
}

fn stand(latched: bool) -> Intent {
    if latched {
        Intent::Activate
    } else {
        Intent::Release
    }
}
