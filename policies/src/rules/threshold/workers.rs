//! How many workers an activated rule wants.

use super::{Missing, Threshold};
use crate::facts::Facts;
use crate::rules::{Intent, Judgement, Memory, Reason, Verdict};
use crate::time::Timestamp;

/// The whole workers of a number, from none to `max`: a part of a worker is none.
pub fn whole_workers(value: f64, max: u32) -> u32 {
    // A cast of a float saturates: what is negative becomes 0.
    (value.floor() as u32).min(max)
}

impl Threshold {
    /// Whether a count that is asked for is not known.
    pub(super) fn is_unsized(&self, facts: &Facts<'_>) -> bool {
        self.workers
            .as_ref()
            .is_some_and(|workers| workers.evaluate(facts).is_none())
    }

    /// Puts the count of workers into the answer of a rule that is activated. A count that is not known counts as a
    /// condition that is not known: what runs is held, and then the actions of the signals of the count are taken.
    pub(super) fn size(
        &self,
        facts: &Facts<'_>,
        memory: &mut Memory,
        grace_from: Timestamp,
        judgement: &mut Judgement,
    ) {
        let Some(workers) = &self.workers else {
            return;
        };
        if let Some(value) = workers.evaluate(facts) {
            memory.workers_unknown_since = None;
            if let Some(verdict) = &mut judgement.verdict
                && verdict.intent == Intent::Activate
            {
                verdict.workers = Some(whole_workers(value, facts.pool.max));
            }
            return;
        }
        let since = *memory.workers_unknown_since.get_or_insert(grace_from);
        let (reason, next) = match self.missing(facts, workers.signals(), since) {
            Missing::Holding { signal, until } => {
                (Reason::MissingHolding { signal, until }, Some(until))
            }
            Missing::Keep { signal, next } => {
                (Reason::MissingKept { signal }, next.map(|(_, until)| until))
            }
            Missing::Release { signal } => {
                let reason = Reason::MissingReleased { signal };
                return self.release_unsized(facts, memory, since, reason, judgement);
            }
            Missing::NoSignal => {
                return self.release_unsized(facts, memory, since, Reason::Undecidable, judgement);
            }
        };
        judgement.next_change_at = [judgement.next_change_at, next].into_iter().flatten().min();
        if let Some(verdict) = &mut judgement.verdict
            && verdict.intent == Intent::Activate
        {
            *verdict = Verdict {
                intent: Intent::Hold,
                workers: None,
                reason,
            };
        }
    }

    fn release_unsized(
        &self,
        facts: &Facts<'_>,
        memory: &mut Memory,
        since: Timestamp,
        reason: Reason,
        judgement: &mut Judgement,
    ) {
        memory.latched = false;
        memory.reset_timers();
        memory.workers_unknown_since = None;
        // As a second judging at this instant would find it.
        memory.unknown_since = self.leaving(facts, false).is_none().then_some(since);
        *judgement = Judgement {
            verdict: Some(Verdict {
                intent: Intent::Release,
                workers: None,
                reason,
            }),
            next_change_at: None,
        };
    }
}
