//! Times against readings: cadence, and the windows that a rule would have found.

use super::parts::{Rule, Side, Study, Timed};
use super::series::Series;
use super::{Skipped, warning};
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::expr::{Condition, Scope};
use crate::facts::{Facts, PoolFacts, Reading};
use crate::policy::{Policy, Then};
use crate::time::{Span, Timestamp};
use crate::units::Unit;

/// Fewer windows than this say nothing about a typical one.
const WINDOWS_MIN: usize = 3;
/// A series must be at least so long to say that a condition never or always holds.
const SERIES_MIN: Span = Span::from_mins(24 * 60);

pub(super) fn look(
    study: &Study<'_>,
    series: &[Series],
    found: &mut Vec<Diagnostic>,
    skipped: &mut Vec<Skipped>,
) {
    for signal in &study.policy.signals {
        let of: Vec<&Series> = series
            .iter()
            .filter(|series| series.is_of(signal))
            .collect();
        let Some(cadence) = of.iter().filter_map(|series| series.cadence()).max() else {
            let check = format!(
                "cadence and windows of signal `{}` of policy `{}`",
                signal.name, study.policy.name
            );
            let needs = "two or more of its readings in --signals FILE".to_owned();
            skipped.push(Skipped { check, needs });
            continue;
        };
        below_cadence(study, &signal.name, cadence, found);
        if signal.forecast_max_age.is_some() && !of.iter().any(|series| series.has_forecast()) {
            let message = format!(
                "signal `{}` is looked at ahead, but no reading of it was issued for the future",
                signal.name
            );
            let help = "check that the source sends forecasts (`quality: forecast`, `issued_at`)";
            found.push(warning(
                study,
                codes::BLIND_AHEAD,
                signal.range,
                message,
                help,
            ));
        }
    }
    for rule in &study.rules {
        for side in [Some(&rule.activate), rule.release.as_ref()]
            .into_iter()
            .flatten()
        {
            hold_below_cadence(study, side, series, found);
        }
        windows_of(study, rule, series, found);
    }
}

/// `max_age` and `on_missing.hold` against the time between two readings.
fn below_cadence(study: &Study<'_>, signal: &str, cadence: Span, found: &mut Vec<Diagnostic>) {
    let Some(times) = study.times(signal) else {
        return;
    };
    let shorter = |timed: Option<Timed>| timed.filter(|timed| timed.span < cadence);
    if let Some(max_age) = shorter(times.max_age) {
        let message = format!(
            "`{signal}` comes every {cadence}; with max_age {} it is stale before the next reading is due",
            max_age.span
        );
        let help = format!(
            "allow at least the cadence and a delay, such as {}",
            cadence + cadence
        );
        found.push(warning(
            study,
            codes::MAX_AGE_BELOW_CADENCE,
            max_age.at,
            message,
            help,
        ));
    }
    let released = study
        .binding(signal)
        .is_some_and(|binding| binding.on_missing.then == Then::Release);
    if let Some(hold) = shorter(times.hold).filter(|_| released) {
        let message = format!(
            "`{signal}` comes every {cadence}; with a hold of {} one reading that is lost releases the pool",
            hold.span
        );
        let help = format!(
            "hold at least until the next reading is due, such as {}",
            cadence + cadence
        );
        found.push(warning(
            study,
            codes::MISSING_HOLD_BELOW_CADENCE,
            hold.at,
            message,
            help,
        ));
    }
}

/// A hold that is over before any reading could end it rests on one reading.
fn hold_below_cadence(
    study: &Study<'_>,
    side: &Side,
    series: &[Series],
    found: &mut Vec<Diagnostic>,
) {
    let (Some(wait), Some(condition)) = (side.held_for, side.condition()) else {
        return;
    };
    let cadences = condition.names().into_iter().filter_map(|name| {
        let signal = study.binding(name)?;
        let of = series.iter().filter(|series| series.is_of(signal));
        of.filter_map(Series::cadence).min().map(|c| (c, name))
    });
    let Some((cadence, name)) = cadences.min() else {
        return;
    };
    if wait.span >= cadence {
        return;
    }
    let message = format!(
        "a hold of {} is over before the next reading of `{name}` ({cadence} apart): one reading decides",
        wait.span
    );
    let help = format!("hold for at least {cadence}, or drop `for` if one reading is enough");
    found.push(warning(
        study,
        codes::HOLD_BELOW_CADENCE,
        wait.at,
        message,
        help,
    ));
}

/// What a rule would have found in the readings, against `min_run`.
fn windows_of(study: &Study<'_>, rule: &Rule, series: &[Series], found: &mut Vec<Diagnostic>) {
    let Some(history) = History::new(study, rule, series) else {
        return;
    };
    let mut windows = Vec::new();
    let mut always = true;
    for place in history.places() {
        let seen = history.windows(&place);
        always &= seen.always;
        windows.extend(seen.lengths);
    }
    if history.length() >= SERIES_MIN && (windows.is_empty() || always) {
        let (word, help) = if always {
            ("always", "a lower threshold would tell hours apart")
        } else {
            (
                "never",
                "check the threshold and its unit against the readings",
            )
        };
        let message = format!(
            "`{}` {word} holds in the readings given ({} of them)",
            rule.activate.text(),
            history.length()
        );
        found.push(warning(
            study,
            codes::NEVER_IN_SERIES,
            rule.activate.at,
            message,
            help,
        ));
        return;
    }
    windows.sort_unstable();
    let (Some(min_run), Some(typical)) = (study.min_run, windows.get(windows.len() / 2)) else {
        return;
    };
    if windows.len() < WINDOWS_MIN || min_run.span <= *typical {
        return;
    }
    let message = format!(
        "min_run is {}, but half of the {} windows in the readings given are {typical} or shorter: most runs go on \
         after their window",
        min_run.span,
        windows.len()
    );
    let help = "shorten min_run, or start only what is worth it with `window: {at_least: ...}`";
    found.push(warning(
        study,
        codes::MIN_RUN_ABOVE_WINDOW,
        min_run.at,
        message,
        help,
    ));
}

/// The readings that a rule's conditions read.
struct History<'a> {
    policy: &'a Policy,
    activate: Condition,
    release: Option<Condition>,
    /// Per signal that is read: its index, and its series.
    series: Vec<(usize, Vec<&'a Series>)>,
}

/// What a rule would have found at one place.
struct Seen {
    lengths: Vec<Span>,
    /// The condition held whenever it was known.
    always: bool,
}

impl<'a> History<'a> {
    /// `None` where the rule reads anything but signals with readings.
    fn new(study: &Study<'a>, rule: &Rule, series: &'a [Series]) -> Option<History<'a>> {
        let policy = study.policy;
        let names: Vec<(&str, Unit)> = policy
            .signals
            .iter()
            .map(|signal| (signal.name.as_str(), signal.kind.unit()))
            .collect();
        let scope = Scope {
            signals: &names,
            calendars: &[],
        };
        let compile = |side: &Side| Condition::compile(side.text(), scope).ok();
        let activate = compile(&rule.activate)?;
        let release = match &rule.release {
            Some(side) => Some(compile(side)?),
            None => None,
        };
        let sides = [Some(&rule.activate), rule.release.as_ref()];
        let mut read: Vec<(usize, Vec<&Series>)> = Vec::new();
        for side in sides.into_iter().flatten() {
            for name in side.condition()?.names() {
                let index = policy.signals.iter().position(|s| s.name == name)?;
                let of: Vec<&Series> = series
                    .iter()
                    .filter(|series| series.is_of(&policy.signals[index]))
                    .collect();
                if of.is_empty() {
                    return None;
                }
                if !read.iter().any(|(known, _)| *known == index) {
                    read.push((index, of));
                }
            }
        }
        (!read.is_empty()).then_some(History {
            policy,
            activate,
            release,
            series: read,
        })
    }

    /// The places of the first signal's series; other signals are taken from the same place, or their first.
    fn places(&self) -> Vec<String> {
        let first = self.series.first().map(|(_, series)| series.as_slice());
        let places = first.unwrap_or_default().iter();
        places.map(|series| series.place().to_owned()).collect()
    }

    fn length(&self) -> Span {
        let first = self.series.iter().map(|(_, series)| series.as_slice());
        first
            .flatten()
            .map(|series| series.length())
            .min()
            .unwrap_or_default()
    }

    fn windows(&self, place: &str) -> Seen {
        let chosen: Vec<(usize, &Series)> = self
            .series
            .iter()
            .filter_map(|(index, series)| {
                let here = series.iter().find(|series| series.place() == place);
                Some((*index, *here.or_else(|| series.first())?))
            })
            .collect();
        let mut instants: Vec<Timestamp> = chosen
            .iter()
            .flat_map(|(_, series)| series.instants())
            .collect();
        instants.sort_unstable();
        instants.dedup();
        let mut readings = vec![Reading::Missing; self.policy.signals.len()];
        let mut seen = Seen {
            lengths: Vec::new(),
            always: true,
        };
        let mut open_since: Option<Timestamp> = None;
        for at in &instants {
            for (index, series) in &chosen {
                let value = series.at(*at);
                readings[*index] = value.map_or(Reading::Missing, |value| Reading::Fresh { value });
            }
            let facts = Facts::present(*at, &readings, NO_POOL);
            let active = self.activate.evaluate(&facts);
            let released = match &self.release {
                Some(release) => release.evaluate(&facts),
                None => active.map(|holds| !holds),
            };
            seen.always &= active != Some(false);
            match (open_since, active, released) {
                (None, Some(true), _) => open_since = Some(*at),
                (Some(since), _, Some(true)) => {
                    seen.lengths.push(*at - since);
                    open_since = None;
                }
                _ => {}
            }
        }
        let last = instants.last().copied();
        if let (Some(since), Some(last)) = (open_since, last) {
            seen.lengths.push(last - since);
        }
        seen
    }
}

/// A pool that no condition here reads: those that do are left out.
const NO_POOL: PoolFacts = PoolFacts {
    wanted: 0,
    ready: 0,
    min: 0,
    max: 0,
    training_kw: 0.0,
    ready_after: Span::ZERO,
    site_power_limit_kw: None,
};
