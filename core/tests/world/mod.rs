//! A small world around the engine: pools that do as they are told, after a delay, and a
//! transcript of everything that happened. Time is an argument.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sunward_core::action::{Action, Decision, Effects};
use sunward_core::engine::Engine;
use sunward_core::event::{Call, Event, Outcome, PackedFile, PoolObservation, Settled, Started};
use sunward_core::signal::{Level, Quality, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::document::SourceFile;

pub const FLEET: &str = "
apiVersion: sunward.dev/v1alpha1
kind: Fleet
metadata: {name: fleet}
spec:
  sites:
    - {name: caiso, time_zone: America/Los_Angeles, power_limit_kw: 100, zones: [{scheme: wt, code: CAISO_NORTH}]}
    - {name: spp, time_zone: America/Chicago, zones: [{scheme: wt, code: SPP_TX}]}
  pools:
    - {name: caiso-a, site: caiso, labels: {energy: surplus}, max_workers: 3, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 250s, actuator: {memory: {start: 250s, stop: 60s}}}
    - {name: spp-a, site: spp, labels: {energy: surplus}, unit: worker, max_workers: 4, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 8, gpu_vendor: amd, gpu_model: MI300X, ready_after: 250s, actuator: {memory: {start: 250s, stop: 60s}}}
  federations: [{name: job, pools: [caiso-a, spp-a]}]
";

pub const POLICY: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: curtailment}
spec:
  pools: {energy: surplus}
  priority: 100
  mode: enforce
  signals:
    carbon: {source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, on_missing: {hold: 10m, then: release}}
  activate: {when: carbon < 100, for: 5m}
  release: {when: carbon >= 120, for: 10m}
  min_run: 30m
  min_rest: 10m
";

/// Minute `m` of the test's day.
pub fn minute(m: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000) + Span::from_mins(m)
}

pub fn carbon(zone: &str) -> StreamKey {
    StreamKey {
        source: "watttime".into(),
        kind: Kind::CarbonIntensity,
        scope: Scope::Zone {
            scheme: "wt".into(),
            code: zone.into(),
        },
        basis: Some(Basis::Marginal),
    }
}

pub fn level(stream: &StreamKey, from: Timestamp, to: Timestamp, value: Option<f64>) -> Level {
    Level {
        id: "".into(),
        stream: stream.clone(),
        valid_from: from,
        valid_to: to,
        value,
        quality: if value.is_some() {
            Quality::Measured
        } else {
            Quality::Missing
        },
        issued_at: None,
        sequence: None,
    }
}

pub fn file(path: &str, text: &str) -> PackedFile {
    PackedFile::pack(&SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    })
}

/// A pool at its home.
#[derive(Clone, Debug, Default)]
pub struct Home {
    pub wanted: u32,
    pub ready: u32,
    pub version: u64,
    pub term: Option<u64>,
}

/// The reason of an unknown outcome whose call took effect all the same.
pub const LANDED: &str = "the answer was lost";

/// How calls are answered.
pub type Answer = Box<dyn FnMut(&Call) -> Option<Outcome>>;

pub struct World {
    pub engine: Engine,
    pub homes: BTreeMap<Arc<str>, Home>,
    pub transcript: String,
    pub moves: Vec<(Arc<str>, u64, u32)>,
    /// `Some` replaces the natural outcome of a call, which then has no effect.
    pub answer: Answer,
    pub groups: Vec<(Timestamp, Vec<Event>)>,
    pub decisions: Vec<Decision>,
    now: Timestamp,
}

impl World {
    /// An engine that has started in term 1 with `fleet` and `policies` at minute 0.
    pub fn new(fleet: &str, policies: &[&str]) -> World {
        let mut world = World::bare();
        world.begin(fleet, policies);
        world
    }

    /// Term 1 starts at minute 0 with `fleet` and `policies`.
    pub fn begin(&mut self, fleet: &str, policies: &[&str]) {
        let files = policies
            .iter()
            .enumerate()
            .map(|(i, text)| file(&format!("p{i}.yaml"), text))
            .collect();
        self.submit(
            minute(0),
            vec![Event::Started(Started {
                term: 1,
                seed: 7,
                version: "t".into(),
            })],
        );
        self.submit(
            minute(0),
            vec![
                Event::FleetReplaced {
                    file: file("fleet.yaml", fleet),
                },
                Event::PoliciesReplaced { files },
            ],
        );
    }

    pub fn bare() -> World {
        World {
            engine: Engine::new(),
            homes: BTreeMap::new(),
            transcript: String::new(),
            moves: Vec::new(),
            answer: Box::new(|_| None),
            groups: Vec::new(),
            decisions: Vec::new(),
            now: minute(0),
        }
    }

    /// Lets time pass, waking the engine whenever it asks, up to `at`; then submits `events`.
    pub fn submit(&mut self, at: Timestamp, events: Vec<Event>) {
        self.run_to(at);
        self.step(at, events);
    }

    pub fn run_to(&mut self, at: Timestamp) {
        while let Some(due) = self.engine.next_wakeup().filter(|due| *due <= at) {
            self.step(due.max(self.now), vec![Event::Tick]);
        }
        self.now = self.now.max(at);
    }

    fn step(&mut self, at: Timestamp, events: Vec<Event>) {
        let mut waiting = vec![events];
        self.now = self.now.max(at);
        while !waiting.is_empty() {
            let events = waiting.remove(0);
            let mut effects = Effects::default();
            self.engine.step(self.now, &events, &mut effects);
            self.groups.push((self.now, events));
            self.note(&effects);
            self.decisions.append(&mut effects.decisions);
            for action in effects.actions {
                if let Some(settled) = self.carry_out(action) {
                    waiting.push(vec![Event::ActionSettled(settled)]);
                }
            }
        }
    }

    fn note(&mut self, effects: &Effects) {
        let at = (self.now - minute(0)).as_millis() as f64 / 60_000.0;
        for decision in &effects.decisions {
            let line = format!(
                "{at:>7.2} decide {} {} -> {} by {}: {}",
                decision.pool, decision.before, decision.target, decision.rule, decision.reason
            );
            writeln!(self.transcript, "{line}").unwrap();
        }
        for action in &effects.actions {
            match action {
                Action::Claim { pool, term, .. } => {
                    writeln!(self.transcript, "{at:>7.2} claim {pool} in term {term}")
                }
                Action::Scale(scale) => writeln!(
                    self.transcript,
                    "{at:>7.2} scale {} {} -> {} generation {}",
                    scale.pool, scale.from, scale.replicas, scale.generation
                ),
                Action::Broadcast(e) => writeln!(
                    self.transcript,
                    "{at:>7.2} event {} {} {}-{} {}",
                    e.federation,
                    e.kind.as_str(),
                    e.term,
                    e.sequence,
                    e.site
                ),
                Action::Refuse {
                    pool,
                    reason,
                    detail,
                    ..
                } => {
                    writeln!(
                        self.transcript,
                        "{at:>7.2} refuse {reason} {pool:?}: {detail}"
                    )
                }
                Action::Reply { position, reply } => {
                    writeln!(self.transcript, "{at:>7.2} reply {position} {reply:?}")
                }
            }
            .unwrap();
        }
    }

    fn carry_out(&mut self, action: Action) -> Option<Settled> {
        let (pool, call, replicas, generation) = match action {
            Action::Claim { pool, term, .. } => (pool, Call::Claim { term }, None, 0),
            Action::Scale(scale) => (
                scale.pool.clone(),
                Call::Scale {
                    term: scale.term,
                    generation: scale.generation,
                },
                Some(scale.replicas),
                scale.generation,
            ),
            _ => return None,
        };
        let answered = (self.answer)(&call);
        let landed = matches!(&answered, Some(Outcome::Unknown { reason }) if reason == LANDED);
        if answered.is_none() || landed {
            self.take_effect(&pool, call, replicas, generation);
        }
        let outcome = answered.unwrap_or_else(|| Outcome::Accepted(self.observation(&pool)));
        Some(Settled {
            pool,
            call,
            outcome,
        })
    }

    fn take_effect(&mut self, pool: &Arc<str>, call: Call, replicas: Option<u32>, generation: u64) {
        let home = self.homes.entry(pool.clone()).or_default();
        home.version += 1;
        if let Call::Claim { term } = call {
            home.term = Some(term);
        }
        if let Some(replicas) = replicas
            && home.wanted != replicas
        {
            home.wanted = replicas;
            self.moves.push((pool.clone(), generation, replicas));
        }
    }

    pub fn observation(&self, pool: &str) -> PoolObservation {
        let home = self.homes.get(pool).cloned().unwrap_or_default();
        PoolObservation {
            pool: pool.into(),
            wanted: home.wanted,
            ready: home.ready,
            stopping: 0,
            version: home.version,
            term: home.term,
            changed_at: None,
        }
    }

    /// The pool changes at its home, by itself or by someone else, and a watch sees it.
    pub fn at_home(&mut self, at: Timestamp, pool: &str, change: impl FnOnce(&mut Home)) {
        let home = self.homes.entry(pool.into()).or_default();
        home.version += 1;
        change(home);
        let seen = self.observation(pool);
        self.submit(at, vec![Event::PoolObserved(seen)]);
    }

    /// One 5-minute carbon reading for `zone`, pushed at minute `m`.
    pub fn carbon(&mut self, m: i64, zone: &str, value: f64) {
        let reading = level(&carbon(zone), minute(m), minute(m + 5), Some(value));
        self.submit(minute(m), vec![Event::SignalAccepted(reading)]);
    }
}
