//! Decision records: why a pool stands where it stands, in words. Made only when something changed.

use sunward_policies::arbitrate::Candidate;
use sunward_policies::calendar::zone_database_version;
use sunward_policies::facts::Reading;
use sunward_policies::policy::{CalendarBinding, Mode, Policy, SignalBinding};
use sunward_policies::time::Timestamp;

use super::readings::see;
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
            Some(inputs(winner.policy, governing, pool, context))
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

/// What the policy read: its signals, then its calendars.
fn inputs(
    policy: &Policy,
    governing: &Governing,
    pool: &Pool,
    context: &Context<'_>,
) -> Vec<Input> {
    let signals = policy.signals.iter().zip(&governing.streams);
    let calendars = policy.calendars.iter();
    signals
        .map(|(signal, stream)| signal_input(signal, *stream, pool, context))
        .chain(calendars.map(|binding| calendar_input(binding, context.now)))
        .collect()
}

fn signal_input(
    signal: &SignalBinding,
    stream: Option<StreamId>,
    pool: &Pool,
    context: &Context<'_>,
) -> Input {
    let seen = see(signal, stream, pool, context);
    let key = stream.map(|stream| context.board.stream(stream).key.to_string());
    let key = key.unwrap_or_else(|| "none".to_owned());
    Input {
        name: signal.name.clone(),
        stream: match seen.own_draw {
            Some(own) => format!("{key} + own draw of {own} kW"),
            None => key,
        },
        value: match seen.reading {
            Reading::Fresh { value } | Reading::Stale { value } => Some(value),
            Reading::Missing => None,
        },
        unit: signal.kind.unit().as_str().to_owned(),
        age_ms: seen.received_at.map(|at| (context.now - at).as_millis()),
        state: seen.state.to_owned(),
    }
}

/// A calendar, its open window as UTC instants: a later zone database may say otherwise about the same text.
fn calendar_input(binding: &CalendarBinding, now: Timestamp) -> Input {
    let fact = binding.calendar.at(now);
    let state = match (binding.calendar.window(now), fact.until) {
        (Some((from, to)), _) => format!("open from {from} to {to}"),
        (None, Some(until)) => format!("closed until {until}"),
        (None, None) => "closed for good".to_owned(),
    };
    Input {
        name: format!("calendar.{}", binding.name),
        stream: format!("{} (tzdb {})", binding.calendar, zone_database_version()),
        value: None,
        unit: String::new(),
        age_ms: None,
        state,
    }
}
