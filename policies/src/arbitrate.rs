//! Many verdicts, one winner per pool.

use crate::policy::{Mode, Policy};
use crate::rules::Verdict;

/// One rule's verdict about a pool.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The policy that the rule belongs to.
    pub policy: &'a Policy,
    /// The rule's index among the policy's rules.
    pub rule: usize,
    /// What the rule said; `None` leaves the pool to others.
    pub verdict: Option<Verdict>,
}

/// The index of the candidate that decides, or `None` where no enforcing policy has a verdict.
///
/// The highest priority with a verdict wins. At equal priority the more careful intent wins: release before hold,
/// hold before activate. Then the lower policy name, then the rule that stands first in its file. A policy that only
/// observes never wins. The order of the candidates does not matter.
pub fn arbitrate(candidates: &[Candidate<'_>]) -> Option<usize> {
    candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| candidate.policy.mode == Mode::Enforce)
        .filter_map(|(index, candidate)| {
            candidate.verdict.map(|verdict| (index, candidate, verdict))
        })
        .min_by(|(_, a, a_verdict), (_, b, b_verdict)| {
            b.policy
                .priority
                .cmp(&a.policy.priority)
                .then_with(|| a_verdict.intent.cmp(&b_verdict.intent))
                .then_with(|| a.policy.name.cmp(&b.policy.name))
                .then_with(|| a.rule.cmp(&b.rule))
        })
        .map(|(index, _, _)| index)
}
