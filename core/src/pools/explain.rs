//! Decision records: why a pool stands where it stands, in words. Made only when something changed.

use sunward_policies::arbitrate::Candidate;
use sunward_policies::facts::Reading;
use sunward_policies::policy::{Mode, Policy, SignalBinding};
use sunward_policies::time::Timestamp;

use super::{Context, Governing, Judged, NO_RULE};
use crate::action::{Decision, Input, Loser};
use crate::board::StreamId;
use crate::fleet::Pool;
use crate::planner::{Bent, Plan};

fn rule_name(candidate: &Candidate<'_>) -> String {
    let rule = candidate
        .policy
        .rules
        .get(candidate.rule)
        .map_or("", |rule| rule.name.as_str());
    format!("{}/{rule}", candidate.policy.name)
}

pub(super) fn decision(
    pool: &Pool,
    governing: &[Governing],
    context: &Context<'_>,
    judged: &Judged<'_>,
    plan: &Plan,
    before: u32,
    next: Option<Timestamp>,
) -> Decision {
    let winner = judged.winner();
    let reason = winner.map_or_else(
        || "no policy governs this pool".to_owned(),
        |winner| {
            let words = winner
                .verdict
                .map(|verdict| verdict.reason.describe(&winner.policy.signals));
            words.unwrap_or_default()
        },
    );
    let reason = if plan.bent == Bent::No {
        reason
    } else {
        format!("{reason}; {}", plan.bent)
    };
    let losers = judged
        .candidates
        .iter()
        .enumerate()
        .filter(|(index, _)| Some(*index) != judged.winner)
        .map(|(_, candidate)| loser(candidate))
        .collect();
    let inputs = winner
        .and_then(|winner| {
            let governing = governing.iter().find(|governing| {
                context
                    .policies
                    .policies()
                    .get(governing.policy)
                    .is_some_and(|p| p.name == winner.policy.name)
            })?;
            Some(inputs(winner.policy, governing, context))
        })
        .unwrap_or_default();
    Decision {
        pool: pool.name.clone(),
        at: context.now,
        index: context.index,
        target: plan.target,
        before,
        rule: winner.map_or_else(|| NO_RULE.into(), |winner| rule_name(winner).into()),
        reason,
        inputs,
        losers,
        next_possible_change: next,
    }
}

fn loser(candidate: &Candidate<'_>) -> Loser {
    let own = candidate.verdict.map_or_else(
        || "no verdict".to_owned(),
        |verdict| verdict.reason.describe(&candidate.policy.signals),
    );
    let why = match candidate.policy.mode {
        Mode::Observe => "it only observes",
        Mode::Enforce => "another rule comes first",
    };
    Loser {
        rule: rule_name(candidate),
        reason: format!("{own}; {why}"),
    }
}

fn inputs(policy: &Policy, governing: &Governing, context: &Context<'_>) -> Vec<Input> {
    let describe = |(signal, stream): (&SignalBinding, &Option<StreamId>)| {
        let Some(stream) = stream else {
            return Input {
                name: signal.name.clone(),
                stream: "none".to_owned(),
                value: None,
                unit: signal.kind.unit().as_str().to_owned(),
                age_ms: None,
                state: "missing".to_owned(),
            };
        };
        let stream = context.board.stream(*stream);
        let answer = stream.answer(context.now, signal.max_age);
        let (value, state) = match answer.reading {
            Reading::Fresh { value } => (Some(value), "fresh"),
            Reading::Stale { value } => (Some(value), "stale"),
            Reading::Missing => (None, "missing"),
        };
        Input {
            name: signal.name.clone(),
            stream: stream.key.to_string(),
            value,
            unit: signal.kind.unit().as_str().to_owned(),
            age_ms: answer.received_at.map(|at| (context.now - at).as_millis()),
            state: state.to_owned(),
        }
    };
    policy
        .signals
        .iter()
        .zip(&governing.streams)
        .map(describe)
        .collect()
}
