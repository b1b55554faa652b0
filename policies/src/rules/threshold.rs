//! `kind: threshold`: a latch with two conditions and a hold time for each.
//!
//! Released, the rule activates once `activate.when` has held for `activate.for`; activated, it releases once
//! `release.when` has held for `release.for`. Without `release` that condition is `!activate`, for no time.
//!
//! - A timer starts at the judging that finds the condition true and is reset by one that finds it false.
//! - While the condition is unknown the timer neither resets nor completes: it is looked at again when the condition
//!   is known, and time spent in the dark then counts. Nothing is activated before a fresh reading says so.
//! - Released with `activate` true and `release` unknown counts as unknown: what could not be stopped is not started.
//! - `hold` runs per signal from the first judging at which the condition was unknown (after a start of the daemon:
//!   from that start). When it ends for a signal that has no fresh value, the timers reset and its `then` acts;
//!   among several, release beats keep. A condition that is unknown although every signal it reads is fresh (a
//!   division by zero) uses the actions of all of them; one that reads no signal is released at once.
//! - What unknown means for the pool: activated, `Hold` (keep what runs, start nothing), also after `then: keep`.
//!   Released, `Release`: that decision stands. So nothing ever rises on missing data.
//! - If both conditions hold with no hold time for either, release wins.

use crate::expr::{Condition, Quantity};
use crate::facts::{Facts, Reading};
use crate::policy::{Expectation, OnMissing, Then, Window};
use crate::rules::{CalendarSet, Intent, Judgement, Memory, Reason, Rule, SignalSet, Verdict};
use crate::time::{Span, Timestamp};

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
            Some(true) if self.release.is_some() => self.release_condition(facts).map(|_| true),
            other => other,
        }
    }

    fn held_for(&self, latched: bool) -> Span {
        match (latched, &self.release) {
            (false, _) => self.activate.held_for,
            (true, Some(release)) => release.held_for,
            (true, None) => Span::ZERO,
        }
    }

    /// The signals whose absence leaves the condition to change state unknown.
    fn suspects(&self, facts: &Facts<'_>, latched: bool) -> SignalSet {
        match &self.release {
            Some(release) if latched || self.activate.when.evaluate(facts).is_some() => {
                release.when.signals()
            }
            _ => self.activate.when.signals(),
        }
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
        let suspects = self.suspects(facts, memory.latched);
        let (reason, next) = match self.missing(facts, suspects, since) {
            Missing::Holding { signal, until } => {
                (Reason::MissingHolding { signal, until }, Some(until))
            }
            Missing::Keep { signal, next } => {
                memory.pending_since = None;
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

    /// Releases for want of data.
    fn reset(&self, facts: &Facts<'_>, memory: &mut Memory) {
        let was_latched = std::mem::replace(&mut memory.latched, false);
        memory.pending_since = None;
        // As a second judging at this instant would find it.
        if was_latched && self.leaving(facts, false).is_some() {
            memory.unknown_since = None;
        }
    }
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
        let mut released_now = false;
        // At most: activate, release at once, and find that it may not activate again in the same instant.
        loop {
            let latched = memory.latched;
            let Some(leaving) = self.leaving(facts, latched) else {
                return self.unknown(facts, memory, grace_from);
            };
            memory.unknown_since = None;
            if !leaving {
                memory.pending_since = None;
                return if latched {
                    settled(Intent::Activate, Reason::Running, None)
                } else {
                    settled(Intent::Release, Reason::Resting, None)
                };
            }
            let until = *memory.pending_since.get_or_insert(now) + self.held_for(latched);
            if until > now {
                return if latched {
                    settled(
                        Intent::Activate,
                        Reason::ReleasePending { until },
                        Some(until),
                    )
                } else {
                    settled(
                        Intent::Release,
                        Reason::ActivatePending { until },
                        Some(until),
                    )
                };
            }
            if released_now && self.held_for(true).is_zero() {
                return settled(Intent::Release, Reason::BothHold, None);
            }
            released_now = latched;
            memory.latched = !latched;
            memory.pending_since = None;
        }
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
