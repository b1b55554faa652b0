//! A policy's text, as the reference reads it by itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use sunward_core::fleet::{Fleet, Pool};
use sunward_core::signal::{Scope, StreamKey};
use sunward_core::time::Span;
use sunward_core::units::{Basis, Kind};

#[derive(Deserialize)]
pub(super) struct Document {
    pub(super) spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    #[serde(rename = "priority")]
    _priority: Option<i64>,
    pub(super) pools: BTreeMap<String, String>,
    pub(super) mode: Option<String>,
    signals: BTreeMap<String, Signal>,
    activate: Side,
    release: Side,
    min_run: Option<String>,
    min_rest: Option<String>,
    #[serde(default)]
    ramp: Ramp,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ramp {
    up: Option<RampStep>,
    down: Option<RampStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RampStep {
    workers: u32,
    every: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
struct OnMissing {
    hold: String,
    then: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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

/// One signal against a number.
#[derive(Clone, Copy, Debug)]
struct Part {
    signal: usize,
    comparison: Comparison,
    number: f64,
}

impl Part {
    fn holds(&self, values: &[Option<f64>]) -> Option<bool> {
        let value = (*values.get(self.signal)?)?;
        Some(match self.comparison {
            Comparison::Less => value < self.number,
            Comparison::AtMost => value <= self.number,
            Comparison::More => value > self.number,
            Comparison::AtLeast => value >= self.number,
        })
    }
}

/// One comparison, or several that must all hold or of which any must.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    any: bool,
    parts: Vec<Part>,
    pub(super) held: Span,
}

impl Condition {
    fn read(side: &Side, signals: &[&str]) -> Option<Condition> {
        let any = side.when.contains("||");
        if any && side.when.contains("&&") {
            return None;
        }
        let parts = side.when.split(if any { "||" } else { "&&" });
        let parts: Option<Vec<Part>> = parts.map(|part| Condition::part(part, signals)).collect();
        let held = match &side.held {
            Some(text) => Span::parse(text).ok()?,
            None => Span::ZERO,
        };
        Some(Condition {
            any,
            parts: parts?,
            held,
        })
    }

    fn part(text: &str, signals: &[&str]) -> Option<Part> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, comparison, number] = words[..] else {
            return None;
        };
        Some(Part {
            signal: signals.iter().position(|signal| *signal == name)?,
            comparison: match comparison {
                "<" => Comparison::Less,
                "<=" => Comparison::AtMost,
                ">" => Comparison::More,
                ">=" => Comparison::AtLeast,
                _ => return None,
            },
            number: number.parse().ok()?,
        })
    }

    /// `true || unknown` is true, `false && unknown` is false, else unknown is unknown.
    pub(super) fn holds(&self, values: &[Option<f64>]) -> Option<bool> {
        let mut parts = self.parts.iter().map(|part| part.holds(values));
        if parts.clone().any(|part| part == Some(self.any)) {
            return Some(self.any);
        }
        parts.all(|part| part.is_some()).then_some(!self.any)
    }

    pub(super) fn reads(&self, signal: usize) -> bool {
        self.parts.iter().any(|part| part.signal == signal)
    }
}

/// At most so many workers at once, and so long until the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) workers: u32,
    pub(super) every: Span,
}

impl Step {
    fn read(RampStep { workers, every }: &RampStep) -> Option<Step> {
        Some(Step {
            workers: *workers,
            every: Span::parse(every).ok()?,
        })
    }
}

/// A signal that a policy reads for one pool.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) stream: StreamKey,
    pub(super) max_age: Span,
    pub(super) hold: Span,
    pub(super) then_release: bool,
}

/// What a policy says about one pool.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) signals: Vec<Bound>,
    pub(super) activate: Condition,
    pub(super) release: Condition,
    pub(super) min_run: Span,
    pub(super) min_rest: Span,
    pub(super) up: Option<Step>,
    pub(super) down: Option<Step>,
}

/// What `spec` says about `pool`; `None` where the reference does not understand it.
pub(super) fn terms(spec: &Spec, pool: &Pool, fleet: &Fleet) -> Option<Terms> {
    let names: Vec<&str> = spec.signals.keys().map(String::as_str).collect();
    let signals = spec
        .signals
        .values()
        .map(|signal| bound(signal, pool, fleet));
    let signals: Option<Vec<Bound>> = signals.collect();
    let optional = |text: &Option<String>| match text {
        Some(text) => Span::parse(text).ok(),
        None => Some(Span::ZERO),
    };
    Some(Terms {
        signals: signals?,
        activate: Condition::read(&spec.activate, &names)?,
        release: Condition::read(&spec.release, &names)?,
        min_run: optional(&spec.min_run)?,
        min_rest: optional(&spec.min_rest)?,
        up: match &spec.ramp.up {
            Some(step) => Some(Step::read(step)?),
            None => None,
        },
        down: match &spec.ramp.down {
            Some(step) => Some(Step::read(step)?),
            None => None,
        },
    })
}

fn bound(signal: &Signal, pool: &Pool, fleet: &Fleet) -> Option<Bound> {
    let scope = match (signal.scope.as_str(), &signal.scheme) {
        ("site", None) => Scope::Site(pool.site.clone()),
        ("zone", Some(scheme)) => Scope::Zone {
            scheme: scheme.as_str().into(),
            code: fleet.site(&pool.site)?.zones.get(scheme.as_str())?.clone(),
        },
        _ => return None,
    };
    let basis = match &signal.basis {
        Some(basis) => Some(Basis::parse(basis)?),
        None => None,
    };
    Some(Bound {
        stream: StreamKey {
            source: signal.source.as_str().into(),
            kind: Kind::parse(&signal.kind)?,
            scope,
            basis,
        },
        max_age: Span::parse(&signal.max_age).ok()?,
        hold: Span::parse(&signal.on_missing.hold).ok()?,
        then_release: signal.on_missing.then == "release",
    })
}
