//! Decision records: why a pool stands where it stands, in words. Made only when something changed.

use sunward_policies::arbitrate::Candidate;
use sunward_policies::calendar::zone_database_version;
use sunward_policies::facts::Reading;
use sunward_policies::policy::{CalendarBinding, Mode, Policy, SignalBinding};
use sunward_policies::time::Timestamp;

use super::decider::{Decider, GRID_EVENT, NO_RULE, OVERRIDE};
use super::readings::see;
use super::{Context, Governing, Judged};
use crate::action::{Decision, Input, Loser};
use crate::board::StreamId;
use crate::fleet::Pool;
use crate::grid_event::{GridEventKind, GridTarget};
use crate::orders::GridEventKey;
use crate::overrides::{Override, OverrideEffect};
use crate::planner::{Bent, Plan};

fn rule_name(candidate: &Candidate<'_>) -> String {
    let rule = candidate
        .policy
        .rules
        .get(candidate.rule)
        .map_or("", |rule| rule.name.as_str());
    format!("{}/{rule}", candidate.policy.name)
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that led to the decision"
)]
pub(super) fn decision(
    pool: &Pool,
    governing: &[Governing],
    context: &Context<'_>,
    judged: &Judged<'_>,
    decider: &Decider<'_>,
    plan: &Plan,
    before: u32,
    next: Option<Timestamp>,
) -> Decision {
    let winner = judged.winner();
    let reason = reason(winner, decider, context);
    let reason = match plan.bent {
        Bent::No => reason,
        // The event's own words say so.
        Bent::Limit => format!("{reason}; at most {} workers", plan.target),
        Bent::Together(why) => {
            let words = context.coordination.describe(why, context.accounts);
            format!("{reason}; {words}")
        }
        bent => format!("{reason}; {bent}"),
    };
    let losers = judged
        .candidates
        .iter()
        .enumerate()
        .filter(|(index, _)| Some(*index) != judged.winner || !decider.is_rule())
        .map(|(index, candidate)| loser(candidate, Some(index) == judged.winner, decider));
    let beaten = beaten_override(decider, context);
    let losers = beaten.into_iter().chain(losers).collect();
    let inputs = winner
        .map(|winner| policy_inputs(&winner.policy.name, governing, pool, context))
        .unwrap_or_default();
    Decision {
        pool: pool.name.clone(),
        at: context.now,
        index: context.index,
        target: plan.target,
        before,
        rule: match decider.policy {
            "" => NO_RULE.into(),
            policy => format!("{policy}/{}", decider.rule).into(),
        },
        reason,
        inputs,
        losers,
        next_possible_change: next,
    }
}

/// The decider's reason in words.
fn reason(winner: Option<&Candidate<'_>>, decider: &Decider<'_>, context: &Context<'_>) -> String {
    if let Some(key) = decider.event {
        return event_words(key, context);
    }
    if decider.policy == OVERRIDE {
        let known = context.overrides.get(decider.rule);
        return known.map_or_else(String::new, override_words);
    }
    let Some(winner) = winner else {
        return "no policy governs this pool".to_owned();
    };
    let words = winner
        .verdict
        .map(|verdict| verdict.reason.describe(&winner.policy.signals));
    words.unwrap_or_default()
}

/// What an override does, for whom, why and until when.
fn override_words(known: &Override) -> String {
    let effect = match known.effect {
        OverrideEffect::On {
            workers: Some(workers),
        } => format!("on with {workers} workers"),
        OverrideEffect::On { workers: None } => "on".to_owned(),
        OverrideEffect::Off => "off".to_owned(),
        OverrideEffect::Freeze => "frozen".to_owned(),
    };
    format!(
        "{effect} by {} until {}: {}",
        known.owner, known.expires_at, known.reason
    )
}

/// What a grid event calls for, from whom and until when.
fn event_words(key: &GridEventKey, context: &Context<'_>) -> String {
    let Some(known) = context.grid_events.get(key) else {
        return String::new();
    };
    let event = &known.event;
    let kind = match event.kind {
        GridEventKind::Dispatch => "dispatch",
        GridEventKind::Limit => "limit",
        GridEventKind::Emergency => "emergency",
        GridEventKind::Test => "test",
    };
    let target = match event.target {
        Some(GridTarget::Kilowatts(kw)) => format!(" to {kw} kW"),
        Some(GridTarget::PowerPercent(percent)) => format!(" to {percent} % of training power"),
        None => String::new(),
    };
    let until = match event.ends_at {
        Some(end) => format!("until {end}"),
        None => "until it is called off".to_owned(),
    };
    format!("{kind}{target} by {} {until} (event {})", key.0, key.1)
}

/// An override that a limit or an emergency comes before.
fn beaten_override(decider: &Decider<'_>, context: &Context<'_>) -> Option<Loser> {
    let id = context.order.and_then(|order| order.by.as_deref())?;
    let known = context
        .overrides
        .get(id)
        .filter(|_| decider.policy == GRID_EVENT)?;
    Some(Loser {
        rule: format!("{OVERRIDE}/{id}"),
        reason: format!(
            "{}; an emergency or limit comes first",
            override_words(known)
        ),
    })
}

fn loser(candidate: &Candidate<'_>, won: bool, decider: &Decider<'_>) -> Loser {
    let own = candidate.verdict.map_or_else(
        || "no verdict".to_owned(),
        |verdict| verdict.reason.describe(&candidate.policy.signals),
    );
    let why = match candidate.policy.mode {
        Mode::Observe => "it only observes",
        Mode::Enforce if won && decider.policy == OVERRIDE => "an override comes first",
        Mode::Enforce if won => "an emergency or limit comes first",
        Mode::Enforce => "another rule comes first",
    };
    Loser {
        rule: rule_name(candidate),
        reason: format!("{own}; {why}"),
    }
}

/// What the policy of that name reads of a pool; nothing where it does not govern the pool.
pub fn policy_inputs(
    policy: &str,
    governing: &[Governing],
    pool: &Pool,
    context: &Context<'_>,
) -> Vec<Input> {
    let policies = context.policies.policies();
    let read = governing.iter().find_map(|governing| {
        let named = policies
            .get(governing.policy)
            .filter(|known| known.name == policy)?;
        Some(inputs(named, governing, pool, context))
    });
    read.unwrap_or_default()
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
        stream: format!("{} (tzdb {})", binding.words, zone_database_version()),
        value: None,
        unit: String::new(),
        age_ms: None,
        state,
    }
}
