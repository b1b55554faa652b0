//! An independent reading of simple policies: what each pool should be told, at every index.
//!
//! It reads the policy's text by itself and follows the journal's groups with a board, a latch
//! and a planner of its own, written from `semantics.md` and not from the rules' code. It knows
//! policies of one signal whose conditions compare it with a number; a pool that is governed by
//! anything else is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use sunward_core::engine::Engine;
use sunward_core::event::{Call, Event, Outcome, PoolObservation};
use sunward_core::fleet::{Fleet, Pool};
use sunward_core::signal::{Issue, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::document::SourceFile;

#[derive(Deserialize)]
struct Document {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    pools: BTreeMap<String, String>,
    mode: Option<String>,
    signals: BTreeMap<String, Signal>,
    activate: Side,
    release: Side,
    min_run: Option<String>,
    min_rest: Option<String>,
}

#[derive(Deserialize)]
struct Signal {
    source: String,
    kind: String,
    basis: Option<String>,
    scope: String,
    scheme: Option<String>,
    max_age: String,
    on_missing: OnMissing,
}

#[derive(Deserialize)]
struct OnMissing {
    hold: String,
    then: String,
}

#[derive(Deserialize)]
struct Side {
    when: String,
    #[serde(rename = "for")]
    held: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Clone, Copy, Debug)]
struct Condition {
    comparison: Comparison,
    number: f64,
    held: Span,
}

impl Condition {
    fn read(side: &Side, signal: &str) -> Option<Condition> {
        let words: Vec<&str> = side.when.split_whitespace().collect();
        let [name, comparison, number] = words[..] else {
            return None;
        };
        let comparison = match comparison {
            "<" => Comparison::Less,
            "<=" => Comparison::AtMost,
            ">" => Comparison::More,
            ">=" => Comparison::AtLeast,
            _ => return None,
        };
        (name == signal).then_some(Condition {
            comparison,
            number: number.parse().ok()?,
            held: side
                .held
                .as_deref()
                .map_or(Some(Span::ZERO), |text| Span::parse(text).ok())?,
        })
    }

    fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Less => value < self.number,
            Comparison::AtMost => value <= self.number,
            Comparison::More => value > self.number,
            Comparison::AtLeast => value >= self.number,
        }
    }
}

/// A policy as it governs one pool.
#[derive(Clone, Debug)]
struct Governed {
    pool: Arc<Pool>,
    stream: StreamKey,
    kind: Kind,
    activate: Condition,
    release: Condition,
    max_age: Span,
    hold: Span,
    then_release: bool,
    min_run: Span,
    min_rest: Span,
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
    /// The engine wants more although the signal has no fresh value.
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
                            entry.push(govern(spec, pool, fleet));
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
        let boards = pools
            .iter()
            .map(|pool| (pool.stream.clone(), Vec::new()))
            .collect();
        Oracle {
            pools,
            boards,
            ..Oracle::default()
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
            let issues = self.boards.get(&pool.stream).map_or(&[][..], Vec::as_slice);
            let value = fresh(issues, at, pool.max_age, pool.kind);
            let limits = Limits {
                activate: &pool.activate,
                release: &pool.release,
                hold: pool.hold,
                then_release: pool.then_release,
                min: pool.pool.min_workers,
                max: pool.pool.max_workers,
                min_run: pool.min_run,
                min_rest: pool.min_rest,
            };
            let before = course.wanted;
            let expected = course.plan(at, value, &limits, self.clock_stepped);
            let known = engine.state().pools.get(&pool.pool.name);
            let wanted = known.and_then(|state| state.ledger.desired);
            if let Some(wanted) = wanted.filter(|wanted| *wanted != expected) {
                found.push(Difference {
                    pool: pool.pool.name.clone(),
                    expected,
                    found: wanted,
                    grew_blind: wanted > before && value.is_none(),
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

fn govern(spec: &Spec, pool: &Arc<Pool>, fleet: &Fleet) -> Option<Governed> {
    let (name, signal) = spec
        .signals
        .first_key_value()
        .filter(|_| spec.signals.len() == 1)?;
    let scope = match (signal.scope.as_str(), &signal.scheme) {
        ("site", None) => Scope::Site(pool.site.clone()),
        ("zone", Some(scheme)) => Scope::Zone {
            scheme: scheme.as_str().into(),
            code: fleet.site(&pool.site)?.zones.get(scheme.as_str())?.clone(),
        },
        _ => return None,
    };
    let kind = Kind::parse(&signal.kind)?;
    let basis = match &signal.basis {
        Some(basis) => Some(Basis::parse(basis)?),
        None => None,
    };
    let optional = |text: &Option<String>| match text {
        Some(text) => Span::parse(text).ok(),
        None => Some(Span::ZERO),
    };
    Some(Governed {
        pool: pool.clone(),
        stream: StreamKey {
            source: signal.source.as_str().into(),
            kind,
            scope,
            basis,
        },
        kind,
        activate: Condition::read(&spec.activate, name)?,
        release: Condition::read(&spec.release, name)?,
        max_age: Span::parse(&signal.max_age).ok()?,
        hold: Span::parse(&signal.on_missing.hold).ok()?,
        then_release: signal.on_missing.then == "release",
        min_run: optional(&spec.min_run)?,
        min_rest: optional(&spec.min_rest)?,
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

struct Limits<'a> {
    activate: &'a Condition,
    release: &'a Condition,
    hold: Span,
    then_release: bool,
    min: u32,
    max: u32,
    min_run: Span,
    min_rest: Span,
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
        }
    }

    /// Judges and plans; returns what should be wanted from now on.
    fn plan(
        &mut self,
        now: Timestamp,
        value: Option<f64>,
        limits: &Limits<'_>,
        clock_stepped: bool,
    ) -> u32 {
        let asked = match self.judge(now, value, limits) {
            Intent::Activate => limits.max,
            Intent::Release => limits.min,
            Intent::Hold => self.wanted.clamp(limits.min, limits.max),
        };
        let within = |since: Option<Timestamp>, span: Span| since.is_some_and(|at| at + span > now);
        let outside = self.wanted < limits.min || self.wanted > limits.max;
        let stays = !outside
            && ((asked > self.wanted
                && (clock_stepped
                    || (self.wanted == limits.min && within(self.stopped_at, limits.min_rest))))
                || (asked < self.wanted && within(self.started_at, limits.min_run)));
        if stays || asked == self.wanted {
            return self.wanted;
        }
        if self.wanted <= limits.min && asked > limits.min {
            self.started_at = Some(now);
        }
        if self.wanted > limits.min && asked <= limits.min {
            self.stopped_at = Some(now);
        }
        self.wanted = asked;
        asked
    }

    fn judge(&mut self, now: Timestamp, value: Option<f64>, limits: &Limits<'_>) -> Intent {
        let grace_from = self.restarted_at.take().map_or(now, |at| at.min(now));
        let latched = *self.latched.get_or_insert(self.wanted > limits.min);
        let Some(value) = value else {
            return self.unknown(now, latched, grace_from, limits);
        };
        self.unknown_since = None;
        let condition = if latched {
            limits.release
        } else {
            limits.activate
        };
        if !condition.holds(value) {
            self.pending_since = None;
            return stand(latched);
        }
        let since = *self.pending_since.get_or_insert(now);
        if since + condition.held > now {
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
        latched: bool,
        grace_from: Timestamp,
        limits: &Limits<'_>,
    ) -> Intent {
        let since = *self.unknown_since.get_or_insert(grace_from);
        if since + limits.hold <= now {
            self.pending_since = None;
            if limits.then_release {
                self.latched = Some(false);
            }
        }
        if latched && self.latched == Some(true) {
            Intent::Hold
        } else {
            Intent::Release
        }
    }
}

fn stand(latched: bool) -> Intent {
    if latched {
        Intent::Activate
    } else {
        Intent::Release
    }
}
