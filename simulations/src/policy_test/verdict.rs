//! What was played against what was expected, in words that say what to look at.

use sunward_core::action::Decision;
use sunward_core::time::Timestamp;

use super::case::{Case, Expectation, Expected, When};
use super::stage::{Record, Seen};

/// Decision records shown before, and after, an instant.
const SHOWN_BEFORE: usize = 2;
const SHOWN_AFTER: usize = 1;
/// Refusals shown.
const REFUSALS_SHOWN_MAX: usize = 3;

/// Everything that was not as expected.
pub(super) fn problems(case: &Case, record: &Record) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(stuck) = &record.stuck {
        problems.push(stuck.clone());
        return problems;
    }
    for expectation in &case.expect {
        for pool in &expectation.pools {
            match &expectation.when {
                When::At(at, expected) => {
                    let at = case.start + *at;
                    let Some(seen) = record.seen.get(&(at, pool.clone())) else {
                        continue;
                    };
                    let last = last_decision(record, pool, at);
                    let wrong = differences(expected, seen, last);
                    if !wrong.is_empty() {
                        let what = wrong.join(", ");
                        problems.push(told(case, record, expectation, pool, (at, at), &what));
                    }
                }
                When::NoChange(from, to) => {
                    let (from, to) = (case.start + *from, case.start + *to);
                    let changed = record.decisions.iter().find(|decision| {
                        decision.pool == *pool
                            && decision.target != decision.before
                            && (from..=to).contains(&decision.at)
                    });
                    if let Some(changed) = changed {
                        let what = format!(
                            "expected no change, but {} workers became {} at {}",
                            changed.before,
                            changed.target,
                            stamp(case, changed.at)
                        );
                        let around = (changed.at, changed.at);
                        problems.push(told(case, record, expectation, pool, around, &what));
                    }
                }
            }
        }
    }
    problems
}

fn last_decision<'r>(record: &'r Record, pool: &str, at: Timestamp) -> Option<&'r Decision> {
    let mut until = record.decisions.iter().rev();
    until.find(|decision| decision.pool.as_ref() == pool && decision.at <= at)
}

fn differences(expected: &Expected, seen: &Seen, last: Option<&Decision>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut number = |what: &str, expected: Option<u32>, got: u32| {
        if let Some(expected) = expected.filter(|expected| *expected != got) {
            wrong.push(format!("expected {what}: {expected}, got {got}"));
        }
    };
    number("workers", expected.workers, seen.workers);
    number("ready", expected.ready, seen.ready);
    number(
        "power_percent",
        expected.power_percent.map(u32::from),
        u32::from(seen.power_percent),
    );
    let (reason, rule) = last.map_or(("no decision yet", "none"), |last| {
        (last.reason.as_str(), last.rule.as_ref())
    });
    if let Some(words) = &expected.reason
        && !reason.contains(words.as_str())
        && seen.reason_word != *words
    {
        let word = &seen.reason_word;
        wrong.push(format!("expected reason: {words}, got {word}: {reason}"));
    }
    if let Some(name) = &expected.rule
        && rule != name
        && rule.rsplit_once('/').is_none_or(|(_, own)| own != name)
    {
        wrong.push(format!("expected rule: {name}, got {rule}"));
    }
    if let Some(bent) = &expected.bent
        && seen.bent != *bent
    {
        wrong.push(format!("expected bent: {bent}, got {}", seen.bent));
    }
    wrong
}

/// A problem with its place and the decisions around it.
fn told(
    case: &Case,
    record: &Record,
    expectation: &Expectation,
    pool: &str,
    (from, to): (Timestamp, Timestamp),
    what: &str,
) -> String {
    let when = match &expectation.when {
        When::At(at, _) => format!("at {at}"),
        When::NoChange(from, to) => format!("between {from} and {to}"),
    };
    let mut lines = vec![format!(
        "line {}, {when}, pool {pool}: {what}",
        expectation.line
    )];
    let own: Vec<&Decision> = record
        .decisions
        .iter()
        .filter(|decision| decision.pool.as_ref() == pool)
        .collect();
    let first = own.partition_point(|decision| decision.at <= from);
    let last = own.partition_point(|decision| decision.at <= to);
    let shown = first.saturating_sub(SHOWN_BEFORE)..(last + SHOWN_AFTER).min(own.len());
    lines.extend(
        own[shown]
            .iter()
            .map(|decision| shown_decision(case, decision)),
    );
    if own.is_empty() {
        lines.push("  nothing was decided".to_owned());
    }
    let refusals = record.refusals.iter().filter(|(at, _)| *at <= to).rev();
    for (at, refusal) in refusals.take(REFUSALS_SHOWN_MAX) {
        lines.push(format!("  refused {}: {refusal}", stamp(case, *at)));
    }
    lines.join("\n")
}

fn shown_decision(case: &Case, decision: &Decision) -> String {
    let inputs: Vec<String> = decision
        .inputs
        .iter()
        .map(|input| match input.value {
            Some(value) => format!("{} = {value} {} ({})", input.name, input.unit, input.state),
            None => format!("{} {}", input.name, input.state),
        })
        .collect();
    let inputs = if inputs.is_empty() {
        String::new()
    } else {
        format!(" [{}]", inputs.join(", "))
    };
    format!(
        "  decided {}: {} -> {} by {}: {}{inputs}",
        stamp(case, decision.at),
        decision.before,
        decision.target,
        decision.rule,
        decision.reason
    )
}

/// An instant as the test counts it, and as it is.
fn stamp(case: &Case, at: Timestamp) -> String {
    format!("{} ({at})", at - case.start)
}
