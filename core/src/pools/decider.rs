//! Who decides about a pool, in stable words.

use sunward_policies::arbitrate::Candidate;
use sunward_policies::rules::{Reason, Verdict};

use super::{Ask, Context, Judged, Pin};
use crate::orders::GridEventKey;
use crate::planner::{Bent, Plan};

/// In place of a policy's name where an override decides.
pub(super) const OVERRIDE: &str = "override";
/// In place of a policy's name where a grid event decides.
pub(super) const GRID_EVENT: &str = "grid_event";

/// Who decides, and by what word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decider<'a> {
    /// The policy, [`OVERRIDE`] or [`GRID_EVENT`]; empty where nobody decides.
    pub(super) policy: &'a str,
    /// The rule, the override's id, or the grid event's id at its source.
    pub(super) rule: &'a str,
    /// A stable word for the reason.
    pub(super) word: &'static str,
    /// The grid event that decides, or that the deciding policy answers to.
    pub(super) event: Option<&'a GridEventKey>,
}

impl<'a> Decider<'a> {
    /// Emergencies and limits where they bite, then overrides, then the winning rule.
    pub(super) fn of(
        ask: &Ask,
        judged: &'a Judged<'_>,
        plan: &Plan,
        context: &'a Context<'_>,
    ) -> Decider<'a> {
        let site = context.order.and_then(|order| order.site.as_deref());
        if plan.bent == Bent::Limit
            && let Some(event) = site.and_then(|site| site.limit.as_ref())
        {
            return Decider {
                policy: GRID_EVENT,
                rule: &event.1,
                word: "limit",
                event: Some(event),
            };
        }
        let by = context.order.and_then(|order| order.by.as_deref());
        if let (Some(id), Pin::On { .. } | Pin::Off | Pin::Frozen) = (by, ask.pin) {
            return Decider {
                policy: OVERRIDE,
                rule: id,
                word: ask.pin.word(),
                event: None,
            };
        }
        let winner = judged.winner();
        let (policy, rule) = names(winner);
        let dispatch = site.and_then(|site| site.dispatch.as_ref());
        let dispatch = dispatch.filter(|_| ask.pin == Pin::Dispatch);
        let verdict = winner.and_then(|winner| winner.verdict);
        Decider {
            policy,
            rule,
            word: match dispatch {
                Some(_) => ask.pin.word(),
                None => verdict.map_or("none", word),
            },
            event: dispatch,
        }
    }

    /// True where the winning rule decides.
    pub(super) fn is_rule(&self) -> bool {
        self.policy != OVERRIDE && self.policy != GRID_EVENT
    }
}

/// The rule name of a pool that no policy governs.
pub(super) const NO_RULE: &str = "none";

/// A stable word for a verdict's reason, without its times.
fn word(verdict: Verdict) -> &'static str {
    match verdict.reason {
        Reason::Running => "running",
        Reason::Resting => "resting",
        Reason::ActivatePending { .. } => "activate_pending",
        Reason::ReleasePending { .. } => "release_pending",
        Reason::MissingHolding { .. } => HOLDING,
        Reason::MissingReleased { .. } => "missing_released",
        Reason::MissingKept { .. } => "missing_kept",
        Reason::BothHold => "both_hold",
        Reason::Undecidable => "undecidable",
        Reason::ActivateSamples { .. } => "activate_samples",
        Reason::ReleaseSamples { .. } => "release_samples",
        Reason::WindowTooShort { .. } => "window_too_short",
        Reason::LeavingAhead { .. } => "leaving_ahead",
    }
}

/// True where a rule could not decide for want of data.
pub(super) fn lacks_data(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::MissingHolding { .. }
            | Reason::MissingReleased { .. }
            | Reason::MissingKept { .. }
            | Reason::Undecidable
    )
}

/// The word for a verdict that only bridges a gap.
pub(super) const HOLDING: &str = "missing_holding";

/// Policy and rule of a winner; empty without one.
fn names<'a>(winner: Option<&Candidate<'a>>) -> (&'a str, &'a str) {
    winner.map_or(("", ""), |winner| {
        let rule = winner.policy.rules.get(winner.rule);
        (
            winner.policy.name.as_str(),
            rule.map_or("", |rule| rule.name.as_str()),
        )
    })
}
