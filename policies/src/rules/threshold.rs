//! `kind: threshold`: a latch with two conditions, how long and for how many readings each must hold, the least window
//! worth starting for, and how many workers to run.
//!
//! Released, the rule activates once `activate.when` has held for `activate.for` and `activate.samples`; activated, it
//! releases once `release.when` has held for `release.for` and `release.samples`. Without `release` that condition is
//! `!activate`, at once.
//!
//! - A timer starts at the judging that finds the condition true and is reset by one that finds it false.
//! - `samples` counts readings in a row for which the condition held: the one in force at that judging is the first,
//!   then each judging at which any signal that the condition reads has had another counts one.
//! - While the condition is unknown the timer neither resets nor completes: it is looked at again when the condition
//!   is known, and time spent in the dark then counts; readings that came in the dark do not. Nothing is activated
//!   before a fresh reading says so.
//! - Released with `activate` true and `release`, or the count of workers, unknown counts as unknown: what could not
//!   be stopped, or sized, is not started.
//! - `hold` runs per signal from the first judging at which the condition was unknown (after a start of the daemon:
//!   from that start). When it ends for a signal that has no fresh value, the timers reset and its `then` acts;
//!   among several, release beats keep. A condition that is unknown although every signal it reads is fresh (a
//!   division by zero) uses the actions of all of them; one that reads no signal is released at once.
//! - What unknown means for the pool: activated, `Hold` (keep what runs, start nothing), also after `then: keep`.
//!   Released, `Release`: that decision stands. So nothing ever rises on missing data.
//! - If both conditions hold with no hold time for either, release wins.
//! - `window`: once the activate side is complete, the start is made only if the window is expected to last until the
//!   pool is ready (`ready_after`), the start is paid for (`start_cost`) and `at_least` has been trained. The window
//!   ends, by a forecast, at the first instant ahead at which `release.when` is said to hold or is not known; by a
//!   schedule, with the calendar's open window; by a guarantee, so long after `activate.when` became true.
//! - `leave_before_end`: activated, with the end known and so near, the rule releases at once. It then stays released
//!   until that end has passed, or has moved so far out that a start is worth while again; the timers of `activate`
//!   begin then.
//! - `workers` is evaluated while activated and rounded down. While it is unknown it is as an unknown condition, with
//!   a hold of its own and the actions of the signals that it reads.

use crate::expr::{Condition, Quantity};
use crate::facts::{Facts, Reading};
use crate::policy::{Expectation, OnMissing, Then, Window};
use crate::rules::{CalendarSet, Intent, Judgement, Memory, Reason, Rule, SignalSet, Verdict};
use crate::time::{Span, Timestamp};

mod window;
mod workers;

pub use window::LOOK_AHEAD_STEPS_MAX;
pub use workers::whole_workers;

/// A condition, and how long and for how many readings it must hold before it acts: for both, where both are given.
#[derive(Clone, Debug)]
pub struct Side {
    /// The condition.
    pub when: Condition,
    /// How long it must hold; zero acts at once.
    pub held_for: Span,
    /// For how many readings in a row it must hold; 0 and 1 act at once.
    pub samples: u32,
}

/// What a [`Threshold`] is made of.
#[derive(Clone, Debug)]
pub struct ThresholdParts {
    /// When to start.
    pub activate: Side,
    /// When to stop; `None`: at once when `activate.when` does not hold.
    pub release: Option<Side>,
    /// The least window worth starting for, and when to leave it; `None`: any.
    pub window: Option<Window>,
    /// How many workers while activated, a [`crate::expr::Expected::Workers`]; `None`: as many as the pool has.
    pub workers: Option<Quantity>,
    /// Per binding of the policy, in binding order.
    pub on_missing: Box<[OnMissing]>,
}

/// The rule.
#[derive(Clone, Debug)]
pub struct Threshold {
    activate: Side,
    release: Option<Side>,
    window: Option<Window>,
    workers: Option<Quantity>,
    /// Per binding of the policy.
    on_missing: Box<[OnMissing]>,
}

/// What holds end, and when, while a condition is unknown.
enum Missing {
    /// No signal that could be missing.
    NoSignal,
    /// None has ended; the next is that of `signal`, at `until`.
    Holding { signal: u16, until: Timestamp },
    /// One has ended and says release.
    Release { signal: u16 },
    /// One or more have ended, all saying keep; another may end later.
    Keep {
        signal: u16,
        next: Option<(u16, Timestamp)>,
    },
}

impl Threshold {
    /// The rule of these parts.
    pub fn new(parts: ThresholdParts) -> Self {
        let ThresholdParts {
            activate,
            release,
            window,
            workers,
            on_missing,
        } = parts;
        Threshold {
            activate,
            release,
            window,
            workers,
            on_missing,
        }
    }

    fn release_condition(&self, facts: &Facts<'_>) -> Option<bool> {
        match &self.release {
            Some(release) => release.when.evaluate(facts),
            None => self.activate.when.evaluate(facts).map(|holds| !holds),
        }
    }

    /// Whether the condition to change state holds.
    fn leaving(&self, facts: &Facts<'_>, latched: bool) -> Option<bool> {
        if latched {
            return self.release_condition(facts);
        }
        match self.activate.when.evaluate(facts) {
            Some(true) if self.release.is_some() && self.release_condition(facts).is_none() => None,
            Some(true) if self.is_unsized(facts) => None,
            other => other,
        }
    }

    /// The side whose timers run.
    fn side(&self, latched: bool) -> Option<&Side> {
        if latched {
            self.release.as_ref()
        } else {
            Some(&self.activate)
        }
    }

    fn held_for(&self, latched: bool) -> Span {
        self.side(latched).map_or(Span::ZERO, |side| side.held_for)
    }

    /// Readings that the condition must hold for; 0 where it need not count.
    fn samples(&self, latched: bool) -> u32 {
        self.side(latched)
            .map(|side| side.samples)
            .filter(|samples| *samples > 1)
            .unwrap_or(0)
    }

    fn acts_at_once(&self, latched: bool) -> bool {
        self.held_for(latched).is_zero() && self.samples(latched) == 0
    }

    /// Counts a reading for which the condition is known to hold; `first` where it did not before.
    fn count(&self, facts: &Facts<'_>, memory: &mut Memory, first: bool) {
        let needed = self.samples(memory.latched);
        let Some(side) = self.side(memory.latched).filter(|_| needed > 0) else {
            return;
        };
        let total = readings_of(facts, side.when.signals());
        if first || total > memory.counted {
            memory.seen = (memory.seen + 1).min(needed);
        }
        memory.counted = total;
    }

    /// Passes over the readings that came while the condition was unknown.
    fn pass_over(&self, facts: &Facts<'_>, memory: &mut Memory) {
        if let Some(side) = self
            .side(memory.latched)
            .filter(|_| self.samples(memory.latched) > 0)
        {
            memory.counted = readings_of(facts, side.when.signals());
        }
    }

    /// The signals whose absence leaves the condition to change state unknown.
    fn suspects(&self, facts: &Facts<'_>, latched: bool) -> SignalSet {
        if latched || self.activate.when.evaluate(facts).is_none() {
            let side = self.side(latched).unwrap_or(&self.activate);
            return side.when.signals();
        }
        let mut suspects = SignalSet::EMPTY;
        if let Some(release) = &self.release
            && release.when.evaluate(facts).is_none()
        {
            suspects = suspects.union(release.when.signals());
        }
        if let Some(workers) = &self.workers
            && workers.evaluate(facts).is_none()
        {
            suspects = suspects.union(workers.signals());
        }
        suspects
    }

    fn missing(&self, facts: &Facts<'_>, suspects: SignalSet, since: Timestamp) -> Missing {
        let fresh = |index: usize| matches!(facts.readings.get(index), Some(Reading::Fresh { value }) if value.is_finite());
        let none_missing = suspects.iter().all(fresh);
        let mut kept = None;
        let mut next: Option<(u16, Timestamp)> = None;
        for index in suspects
            .iter()
            .filter(|index| none_missing || !fresh(*index))
        {
            let Some(action) = self.on_missing.get(index) else {
                continue;
            };
            let signal = index as u16;
            let end = since + action.hold;
            if end > facts.now {
                if next.is_none_or(|(_, until)| end < until) {
                    next = Some((signal, end));
                }
            } else if action.then == Then::Release {
                return Missing::Release { signal };
            } else if kept.is_none() {
                kept = Some(signal);
            }
        }
        match (kept, next) {
            (Some(signal), next) => Missing::Keep { signal, next },
            (None, Some((signal, until))) => Missing::Holding { signal, until },
            (None, None) => Missing::NoSignal,
        }
    }

    fn unknown(&self, facts: &Facts<'_>, memory: &mut Memory, grace_from: Timestamp) -> Judgement {
        let since = *memory.unknown_since.get_or_insert(grace_from);
        self.pass_over(facts, memory);
        let suspects = self.suspects(facts, memory.latched);
        let (reason, next) = match self.missing(facts, suspects, since) {
            Missing::Holding { signal, until } => {
                (Reason::MissingHolding { signal, until }, Some(until))
            }
            Missing::Keep { signal, next } => {
                memory.reset_timers();
                (Reason::MissingKept { signal }, next.map(|(_, until)| until))
            }
            Missing::Release { signal } => {
                self.reset(facts, memory);
                (Reason::MissingReleased { signal }, None)
            }
            Missing::NoSignal => {
                self.reset(facts, memory);
                (Reason::Undecidable, None)
            }
        };
        let intent = if memory.latched {
            Intent::Hold
        } else {
            Intent::Release
        };
        Judgement {
            verdict: Some(Verdict {
                intent,
                workers: None,
                reason,
            }),
            next_change_at: next,
        }
    }

    /// What the timers make of the conditions.
    fn settle(&self, facts: &Facts<'_>, memory: &mut Memory, grace_from: Timestamp) -> Judgement {
        let mut released_now = false;
        // At most: activate, release at once, and find that it may not activate again in the same instant.
        loop {
            let latched = memory.latched;
            let Some(leaving) = self.leaving(facts, latched) else {
                return self.unknown(facts, memory, grace_from);
            };
            memory.unknown_since = None;
            if !leaving {
                memory.reset_timers();
                return if latched {
                    settled(Intent::Activate, Reason::Running, None)
                } else {
                    settled(Intent::Release, Reason::Resting, None)
                };
            }
            if let Some(pending) = self.pending(facts, memory) {
                return pending;
            }
            if released_now && self.acts_at_once(true) {
                return settled(Intent::Release, Reason::BothHold, None);
            }
            if !latched && let Err(short) = self.worth_starting(facts, memory) {
                return settled(Intent::Release, short.reason, short.next);
            }
            released_now = latched;
            memory.latched = !latched;
            memory.reset_timers();
        }
    }

    /// The answer while the condition to change state holds, but not yet for long enough or enough readings.
    fn pending(&self, facts: &Facts<'_>, memory: &mut Memory) -> Option<Judgement> {
        let (now, latched) = (facts.now, memory.latched);
        let first = memory.pending_since.is_none();
        let until = *memory.pending_since.get_or_insert(now) + self.held_for(latched);
        self.count(facts, memory, first);
        let (seen, needed) = (memory.seen, self.samples(latched));
        let (reason, next) = match (latched, seen < needed, until > now) {
            (_, false, false) => return None,
            // Time alone does not complete it.
            (true, true, _) => (Reason::ReleaseSamples { seen, needed }, None),
            (false, true, _) => (Reason::ActivateSamples { seen, needed }, None),
            (true, false, true) => (Reason::ReleasePending { until }, Some(until)),
            (false, false, true) => (Reason::ActivatePending { until }, Some(until)),
        };
        let intent = if latched {
            Intent::Activate
        } else {
            Intent::Release
        };
        Some(settled(intent, reason, next))
    }

    /// The answer of a rule that left ahead of an end, until that end has passed or has moved out of reach.
    fn stay_out(&self, facts: &Facts<'_>, memory: &mut Memory) -> Option<Judgement> {
        let ends = memory.left?;
        if ends <= facts.now {
            memory.left = None;
            return None;
        }
        memory.reset_timers();
        memory.unknown_since = None;
        let next = match self.leaving(facts, false) {
            Some(false) => return Some(settled(Intent::Release, Reason::Resting, None)),
            Some(true) => match self.worth_starting(facts, memory) {
                Ok(()) => {
                    memory.left = None;
                    return None;
                }
                Err(short) => short.next.map_or(ends, |next| next.min(ends)),
            },
            None => ends,
        };
        let reason = Reason::LeavingAhead { ends };
        Some(settled(Intent::Release, reason, Some(next)))
    }

    /// Releases for want of data.
    fn reset(&self, facts: &Facts<'_>, memory: &mut Memory) {
        let was_latched = std::mem::replace(&mut memory.latched, false);
        memory.reset_timers();
        // As a second judging at this instant would find it.
        if was_latched && self.leaving(facts, false).is_some() {
            memory.unknown_since = None;
        }
    }
}

/// How many readings some signals have had so far, together.
fn readings_of(facts: &Facts<'_>, signals: SignalSet) -> u64 {
    signals
        .iter()
        .filter_map(|index| facts.samples.get(index))
        .fold(0, |total, samples| total.wrapping_add(*samples))
}

fn settled(intent: Intent, reason: Reason, next_change_at: Option<Timestamp>) -> Judgement {
    Judgement {
        verdict: Some(Verdict {
            intent,
            workers: None,
            reason,
        }),
        next_change_at,
    }
}

impl Rule for Threshold {
    fn judge(&self, facts: &Facts<'_>, memory: &mut Memory) -> Judgement {
        let now = facts.now;
        let grace_from = memory
            .restarted_at
            .take()
            .map_or(now, |started| started.min(now));
        self.track_window(facts, memory);
        if memory.latched
            && let Ok(ends) = self.leaves(facts, memory)
        {
            memory.latched = false;
            memory.reset_timers();
            memory.left = Some(ends);
        }
        let mut judgement = self
            .stay_out(facts, memory)
            .unwrap_or_else(|| self.settle(facts, memory, grace_from));
        if memory.latched {
            self.size(facts, memory, grace_from, &mut judgement);
        }
        if memory.latched {
            if let Err(next) = self.leaves(facts, memory) {
                judgement.next_change_at =
                    [judgement.next_change_at, next].into_iter().flatten().min();
            }
        } else {
            memory.workers_unknown_since = None;
        }
        judgement
    }

    fn situation(&self, facts: &Facts<'_>) -> Option<u64> {
        let counts = |side: &Side| side.samples > 1;
        let counts = counts(&self.activate) || self.release.as_ref().is_some_and(counts);
        if counts || self.window.is_some() || self.workers.is_some() {
            return None;
        }
        let activate = self.activate.when.evaluate(facts)?;
        let release = match &self.release {
            Some(release) => release.when.evaluate(facts)?,
            None => !activate,
        };
        // Where both hold, the timer may begin anew at each judging.
        (!(activate && release)).then_some(u64::from(activate) | u64::from(release) << 1)
    }

    fn signals(&self) -> SignalSet {
        let mut signals = self.activate.when.signals();
        if let Some(release) = &self.release {
            signals = signals.union(release.when.signals());
        }
        if let Some(workers) = &self.workers {
            signals = signals.union(workers.signals());
        }
        signals
    }

    fn calendars(&self) -> CalendarSet {
        let mut calendars = self.activate.when.calendars();
        if let Some(release) = &self.release {
            calendars = calendars.union(release.when.calendars());
        }
        if let Some(workers) = &self.workers {
            calendars = calendars.union(workers.calendars());
        }
        if let Some(Window {
            expect: Expectation::Schedule { calendar },
            ..
        }) = self.window
        {
            calendars = calendars.union(CalendarSet::of(calendar));
        }
        calendars
    }
}

#[cfg(test)]
#[path = "threshold_tests.rs"]
mod tests;

#[cfg(test)]
mod ahead_tests;
