//! Rules that look ahead where nothing is known ahead, and calendars that never change.

use super::parts::{Rule, Study};
use super::{REFERENCE, warning};
use crate::calendar::Calendar;
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::time::Span;

/// How far a calendar is followed: five years, so that a 29 February is met.
const CALENDAR_REACH: Span = Span::from_mins(5 * 366 * 24 * 60);
/// The most changes of a calendar that are looked at.
const CALENDAR_STEPS_MAX: usize = 1_000;

pub(super) fn look(study: &Study<'_>, found: &mut Vec<Diagnostic>) {
    for rule in &study.rules {
        no_forecast(study, rule, found);
    }
    least_bad_hours(study, found);
    for binding in &study.policy.calendars {
        let Some(open) = constant(&binding.calendar) else {
            continue;
        };
        let message = format!(
            "calendar `{}` is {} open, whatever the time",
            binding.name,
            if open { "always" } else { "never" }
        );
        let help = if open {
            "its windows follow one another without a gap: shorten `lasts`, or drop the calendar"
        } else {
            "no instant matches its cron expression: check the day of the month against the month"
        };
        let at = binding.range;
        found.push(warning(study, codes::CONSTANT_CALENDAR, at, message, help));
    }
}

/// A window whose length is expected by a forecast that nothing gives.
fn no_forecast(study: &Study<'_>, rule: &Rule, found: &mut Vec<Diagnostic>) {
    let Some(at) = rule.by_forecast else {
        return;
    };
    let side = rule.release.as_ref().unwrap_or(&rule.activate);
    let Some(condition) = side.condition() else {
        return;
    };
    let names = condition.names();
    let blind: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| {
            let binding = study.binding(name);
            binding.is_some_and(|binding| binding.forecast_max_age.is_none())
        })
        .collect();
    if blind.is_empty() {
        return;
    }
    let message = format!(
        "rule `{}` expects its window by forecast, but does not look ahead on {}, which can end it: what is not known \
         ahead ends a window, as far as anyone can tell",
        rule.name,
        blind.join(", ")
    );
    let help = format!(
        "add `forecast_max_age: 26h` to signal `{}`, or use `expect: schedule` or `guarantee`",
        blind[0]
    );
    found.push(warning(study, codes::BLIND_AHEAD, at, message, help));
}

/// A deadline that buys the least bad hours, and can't tell them.
fn least_bad_hours(study: &Study<'_>, found: &mut Vec<Diagnostic>) {
    let Some(deadline) = study.policy.deadlines.first() else {
        return;
    };
    let ahead = |index: usize| {
        let signal = study.policy.signals.get(index);
        signal.is_some_and(|signal| signal.forecast_max_age.is_some())
    };
    let why = match &study.policy.score {
        None => "the policy has no `score`",
        Some(score) if !score.signals().is_empty() && !score.signals().iter().any(ahead) => {
            "no signal of its `score` is looked at ahead"
        }
        Some(_) => return,
    };
    let message = format!(
        "deadline `{}` buys the least bad hours, but {why}: the hours ahead all look alike",
        deadline.name
    );
    let help = "score by a signal with a forecast, such as `score: 0 - carbon` and `forecast_max_age: 26h`";
    let at = deadline.range;
    found.push(warning(study, codes::BLIND_AHEAD, at, message, help));
}

/// What a calendar always is, where it never changes.
fn constant(calendar: &Calendar) -> Option<bool> {
    let first = calendar.at(REFERENCE);
    let mut fact = first;
    for _ in 0..CALENDAR_STEPS_MAX {
        match fact.until {
            Some(until) if until - REFERENCE < CALENDAR_REACH => {
                fact = calendar.at(until);
                if fact.open != first.open {
                    return None;
                }
            }
            _ => return Some(first.open),
        }
    }
    Some(first.open)
}
