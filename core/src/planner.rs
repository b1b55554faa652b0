//! Intents and limits become targets. Total: every input has an answer, and no answer is an error.
//!
//! The planner owns what is true of a pool whatever its policies say: its bounds, all-or-nothing
//! pools, minimum run and rest, ramps, and that nothing grows while the clock can't be trusted.

use std::fmt;

use serde::{Deserialize, Serialize};
use sunward_policies::policy::{Ramp, RampStep};
use sunward_policies::rules::Intent;
use sunward_policies::time::{Span, Timestamp};

use crate::coordination::Why;
use crate::fleet::{Pool, Unit};
use crate::pools::{Ask, Pin};

/// What the planner remembers of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// When the wanted workers last left the minimum.
    pub started_at: Option<Timestamp>,
    /// When the wanted workers last came down to the minimum.
    pub stopped_at: Option<Timestamp>,
    /// When the wanted workers last changed at all.
    pub stepped_at: Option<Timestamp>,
}

impl Course {
    /// A pool found in this state, last changed at `changed_at` or, where nobody knows, now.
    pub fn adopted(running: bool, changed_at: Option<Timestamp>, now: Timestamp) -> Course {
        let at = changed_at.map_or(now, |at| at.min(now));
        Course {
            started_at: running.then_some(at),
            stopped_at: (!running).then_some(at),
            stepped_at: Some(at),
        }
    }

    /// The wanted workers change from `before` to `target`, for a pool whose minimum is `min`.
    pub fn stepped(&mut self, before: u32, target: u32, min: u32, now: Timestamp) {
        self.stepped_at = Some(now);
        if before <= min && target > min {
            self.started_at = Some(now);
        }
        if before > min && target <= min {
            self.stopped_at = Some(now);
        }
    }
}

/// Limits that come with the winning policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Once started, keep running this long.
    pub min_run: Span,
    /// Once stopped, stay stopped this long.
    pub min_rest: Span,
    /// Steps, each way.
    pub ramp: Ramp,
}

/// Why a target differs from what was asked for, or that it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bent {
    /// As asked.
    No,
    /// The minimum run is not over.
    MinRun(Timestamp),
    /// The minimum rest is not over.
    MinRest(Timestamp),
    /// One ramp step at a time; the next at this instant.
    Ramp(Timestamp),
    /// The clock was stepped: nothing grows.
    Clock,
    /// An emergency or a limit leaves no more.
    Limit,
    /// What is decided over several pools together.
    Together(Why),
}

impl Bent {
    /// A stable word for what bent the plan.
    pub fn word(self) -> &'static str {
        match self {
            Bent::No => "as_asked",
            Bent::MinRun(_) => "min_run",
            Bent::MinRest(_) => "min_rest",
            Bent::Ramp(_) => "ramp",
            Bent::Clock => "clock",
            Bent::Limit => "limit",
            Bent::Together(why) => why.word(),
        }
    }
}

impl fmt::Display for Bent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bent::No => f.write_str("as asked"),
            Bent::MinRun(at) => write!(f, "kept by min_run until {at}"),
            Bent::MinRest(at) => write!(f, "kept by min_rest until {at}"),
            Bent::Ramp(at) => write!(f, "one ramp step, the next at {at}"),
            Bent::Clock => f.write_str("no growth while the clock is off by 60 s or more"),
            Bent::Limit => f.write_str("an emergency or limit leaves no more"),
            Bent::Together(why) => f.write_str(why.word()),
        }
    }
}

/// The planner's answer for one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Workers that should remain.
    pub target: u32,
    /// What bent it.
    pub bent: Bent,
    /// When time alone changes the answer.
    pub next_change_at: Option<Timestamp>,
}

/// The target of one pool that wants `current` workers now.
///
/// An ask without intent means that no policy governs the pool: it is left as it is, within bounds.
pub fn plan(
    pool: &Pool,
    current: u32,
    ask: &Ask,
    limits: &Limits,
    course: &Course,
    clock_stepped: bool,
    now: Timestamp,
) -> Plan {
    let plan = unlimited(pool, current, ask, limits, course, clock_stepped, now);
    let Some(most) = ask.most.map(|most| most.max(pool.min_workers)) else {
        return plan;
    };
    // An emergency or a limit waits for nothing. It is named for as long as it alone stands in the way.
    if plan.target < most || asked(pool, current, ask).max(plan.target) <= most {
        return plan;
    }
    Plan {
        target: most,
        bent: Bent::Limit,
        next_change_at: plan.next_change_at,
    }
}

/// The target without emergencies and limits.
fn unlimited(
    pool: &Pool,
    current: u32,
    ask: &Ask,
    limits: &Limits,
    course: &Course,
    clock_stepped: bool,
    now: Timestamp,
) -> Plan {
    // Bounds are the operator's word: a pool outside them moves to the nearest one at once, and is
    // planned from there as usual.
    let current = current.clamp(pool.min_workers, pool.max_workers);
    let asked = asked(pool, current, ask);
    let on = matches!(ask.pin, Pin::On { .. });
    let kept = |until: Timestamp, bent: Bent| Plan {
        target: current,
        bent,
        next_change_at: Some(until),
    };
    let after =
        |since: Option<Timestamp>, span: Span| since.map(|at| at + span).filter(|at| *at > now);
    if asked > current {
        if clock_stepped {
            return Plan {
                target: current,
                bent: Bent::Clock,
                next_change_at: None,
            };
        }
        if current == pool.min_workers
            && !on
            && let Some(until) = after(course.stopped_at, limits.min_rest)
        {
            return kept(until, Bent::MinRest(until));
        }
        return step(
            pool,
            current,
            asked,
            limits.ramp.up.filter(|_| !on),
            course,
            now,
        );
    }
    if asked < current {
        let at_once = ask.pin == Pin::Off;
        if !at_once
            && ask.pin != Pin::Dispatch
            && let Some(until) = after(course.started_at, limits.min_run)
        {
            return kept(until, Bent::MinRun(until));
        }
        return step(
            pool,
            current,
            asked,
            limits.ramp.down.filter(|_| !at_once),
            course,
            now,
        );
    }
    Plan {
        target: asked,
        bent: Bent::No,
        next_change_at: None,
    }
}

/// What is asked of a pool, before its holds and ramps.
fn asked(pool: &Pool, current: u32, ask: &Ask) -> u32 {
    let current = current.clamp(pool.min_workers, pool.max_workers);
    match (ask.pin, ask.intent) {
        (Pin::Frozen, _) | (Pin::None, Some(Intent::Hold) | None) => current,
        (Pin::Off | Pin::Dispatch, _) | (Pin::None, Some(Intent::Release)) => pool.min_workers,
        (Pin::On { workers }, _) => wanted(pool, current, workers),
        (Pin::None, Some(Intent::Activate)) => wanted(pool, current, ask.workers),
    }
}

/// What an activated pool wants, if its policy grants it `workers` (`None`: as many as it has).
///
/// A pool that is all or nothing is not started for less than all of it, nor cut down to less: what runs stays.
fn wanted(pool: &Pool, current: u32, workers: Option<u32>) -> u32 {
    let granted = workers.unwrap_or(pool.max_workers);
    match pool.unit {
        Unit::Pool if granted < pool.max_workers => current,
        _ => granted.clamp(pool.min_workers, pool.max_workers),
    }
}

/// At most one ramp step from `current` towards `asked`.
fn step(
    pool: &Pool,
    current: u32,
    asked: u32,
    ramp: Option<RampStep>,
    course: &Course,
    now: Timestamp,
) -> Plan {
    let done = Plan {
        target: asked,
        bent: Bent::No,
        next_change_at: None,
    };
    // A pool that is all or nothing has no steps; a file that says otherwise does not load.
    let Some(ramp) = ramp.filter(|_| pool.unit == Unit::Worker) else {
        return done;
    };
    // The first step away from rest is free: a ramp spaces steps, it does not delay a start.
    let resting = current == pool.min_workers && asked > current;
    let due = course
        .stepped_at
        .map(|at| at + ramp.every)
        .filter(|at| *at > now && !resting);
    if let Some(at) = due {
        return Plan {
            target: current,
            bent: Bent::Ramp(at),
            next_change_at: Some(at),
        };
    }
    let target = if asked > current {
        current.saturating_add(ramp.workers).min(asked)
    } else {
        current.saturating_sub(ramp.workers).max(asked)
    };
    if target == asked {
        return done;
    }
    let next = now + ramp.every;
    Plan {
        target,
        bent: Bent::Ramp(next),
        next_change_at: Some(next),
    }
}
