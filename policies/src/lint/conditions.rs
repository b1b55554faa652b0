//! Conditions that never or always hold, that flap, or whose numbers look like another unit's.

use super::parts::{Rule, Side, Study};
use super::warning;
use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::units::Kind;

/// A price between zero and this, in money/MWh, looks like one per kWh.
const PRICE_MIN: f64 = 1.0;
/// A carbon intensity between zero and this, in gCO2e/kWh, looks like kg/kWh or t/MWh.
const CARBON_MIN: f64 = 1.0;
/// No grid is as dirty as this, in gCO2e/kWh: old lignite plants emit about 1,300.
const CARBON_MAX: f64 = 3_000.0;
/// So many kW (1 GW) look like watts.
const POWER_MAX: f64 = 1_000_000.0;

pub(super) fn look(study: &Study<'_>, found: &mut Vec<Diagnostic>) {
    for rule in &study.rules {
        if never_or_always(study, rule, found) {
            continue;
        }
        flapping(study, rule, found);
        for side in [Some(&rule.activate), rule.release.as_ref()]
            .into_iter()
            .flatten()
        {
            units(study, side, found);
        }
    }
}

/// A condition that is written out as `true` or `false` was meant so.
fn reads_something(side: &Side) -> bool {
    side.condition()
        .is_some_and(|condition| !condition.names().is_empty())
}

/// Whether one of the rule's conditions says nothing; then there is no more to say about the rule.
fn never_or_always(study: &Study<'_>, rule: &Rule, found: &mut Vec<Diagnostic>) -> bool {
    let before = found.len();
    let sides = [
        (
            Some(&rule.activate),
            "activate",
            "nothing ever starts, and other rules of this policy are held back",
            "the rule holds nothing back",
        ),
        (
            rule.release.as_ref(),
            "release",
            "only missing data, a limit or another rule ends what runs",
            "what starts is released again",
        ),
    ];
    for (side, word, never, always) in sides {
        let Some(side) = side.filter(|side| reads_something(side)) else {
            continue;
        };
        let can = |holds| {
            side.reach(study, holds)
                .is_none_or(|reach| !reach.is_never())
        };
        if !can(true) {
            let message = format!("this {word} condition can never hold: {never}");
            let help = "its parts rule one another out; perhaps one comparison was meant the other way round, or `||` \
                        was meant for `&&`";
            found.push(warning(study, codes::NEVER_HOLDS, side.at, message, help));
        } else if !can(false) {
            let message = format!("this {word} condition always holds: {always}");
            let help = "write `true` if that is meant; else perhaps `&&` was meant for `||`";
            found.push(warning(study, codes::ALWAYS_HOLDS, side.at, message, help));
        }
    }
    found.len() > before
}

fn flapping(study: &Study<'_>, rule: &Rule, found: &mut Vec<Diagnostic>) {
    let Some(activate) = rule.activate.reach(study, true) else {
        return;
    };
    if let Some(release) = &rule.release
        && let Some(reach) = release.reach(study, true)
        && activate.certainly_meets(&reach)
    {
        let message = format!(
            "`{}` can hold while `{}` does: the pool then starts and stops in turn",
            release.text(),
            rule.activate.text()
        );
        let help = format!(
            "let activate rule out what releases, for example: {} && !({})",
            rule.activate.text(),
            release.text()
        );
        found.push(warning(
            study,
            codes::BOTH_CAN_HOLD,
            release.at,
            message,
            help,
        ));
        return;
    }
    let waits =
        !rule.activate.at_once() || rule.release.as_ref().is_some_and(|side| !side.at_once());
    let policy = study.policy;
    let damped = waits || !policy.min_run.is_zero() || !policy.min_rest.is_zero();
    let reads_signal = rule.activate.condition().is_some_and(|condition| {
        condition
            .names()
            .iter()
            .any(|name| study.binding(name).is_some())
    });
    if damped || !reads_signal || has_dead_band(study, rule) {
        return;
    }
    let message = "a value that wavers around this threshold starts and stops the pool at each reading: there is no \
                   dead band, no hold and no minimum run";
    let help =
        "add a `release` with another threshold, such as 20 % away, or `for: 5m`, or `min_run`";
    found.push(warning(
        study,
        codes::NO_DEAD_BAND,
        rule.activate.at,
        message,
        help,
    ));
}

/// Whether there are values at which what runs goes on and what rests stays.
fn has_dead_band(study: &Study<'_>, rule: &Rule) -> bool {
    let Some(release) = &rule.release else {
        return false;
    };
    match (
        rule.activate.reach(study, false),
        release.reach(study, false),
    ) {
        (Some(off), Some(on)) => !off.and(&on).is_never(),
        _ => true,
    }
}

fn units(study: &Study<'_>, side: &Side, found: &mut Vec<Diagnostic>) {
    let Some(condition) = side.condition() else {
        return;
    };
    for against in condition.against_numbers() {
        let Some(binding) = study.binding(&against.name) else {
            continue;
        };
        let Some((looks, help)) = other_unit(binding.kind, against.value) else {
            continue;
        };
        let message = format!(
            "{} is in {}; {} looks like {looks}",
            against.name,
            binding.kind.unit(),
            against.value
        );
        let at = study.place(side, against.span);
        found.push(warning(study, codes::OTHER_UNIT, at, message, help));
    }
}

/// What a threshold looks like instead, and how to mend it.
fn other_unit(kind: Kind, value: f64) -> Option<(&'static str, String)> {
    let size = value.abs();
    match kind {
        Kind::CarbonIntensity if size > 0.0 && size < CARBON_MIN => Some((
            "kgCO2e/kWh or tCO2e/MWh",
            format!("write {} for it", value * 1_000.0),
        )),
        Kind::CarbonIntensity if size >= CARBON_MAX => Some((
            "mgCO2e/kWh or a total",
            "no grid is as dirty: write grams per kWh, from about 0 to 1300".to_owned(),
        )),
        Kind::EnergyPrice if size > 0.0 && size < PRICE_MIN => Some((
            "a price per kWh",
            format!("write {} for it", value * 1_000.0),
        )),
        Kind::RenewableShare if value > 1.0 && value <= 100.0 => {
            Some(("a percentage", format!("write {} for it", value / 100.0)))
        }
        Kind::RenewableShare if !(0.0..=1.0).contains(&value) => {
            Some(("no share at all", "a share is from 0 to 1".to_owned()))
        }
        Kind::SurplusPower | Kind::CurtailmentPower | Kind::ImportLimit if size >= POWER_MAX => {
            Some(("watts", format!("write {} for it", value / 1_000.0)))
        }
        _ => None,
    }
}
