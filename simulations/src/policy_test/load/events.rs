//! What else happens in a test: overrides, grid events, budgets set, restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::event::Event;
use sunward_core::grid_event::{GridEvent, GridEventKind, GridEventStatus, GridTarget};
use sunward_core::overrides::{OVERRIDE_LASTS_MAX, Override, OverrideEffect, OverrideScope};
use sunward_core::signal::Scope;
use sunward_core::time::{Span, Timestamp};
use sunward_policies::codes;
use sunward_policies::yaml::Spanned;

use super::{Load, World};
use crate::policy_test::ENTRIES_MAX;
use crate::policy_test::case::Happening;
use crate::policy_test::form::{
    BudgetForm, EffectForm, EventForm, GridEventForm, KindForm, OverrideForm, StatusForm, TestForm,
};

/// Who does what a test does not name.
const OWNER: &str = "test";
/// How far the wall clock is off after `clock_stepped: true`.
const STEP_MS: i64 = 120_000;

/// What the events of one test have counted so far.
#[derive(Default)]
struct Counters {
    overrides: u32,
    revisions: BTreeMap<String, u64>,
}

impl Load<'_> {
    pub(super) fn events(
        &mut self,
        test: &TestForm,
        start: Timestamp,
        world: &World<'_>,
    ) -> Vec<(Timestamp, Happening)> {
        if test.events.len() > ENTRIES_MAX {
            let message = format!("a test has at most {ENTRIES_MAX} events");
            self.error(codes::TEST_TOO_LARGE, &test.name, message, "split the test");
            return Vec::new();
        }
        let mut counters = Counters::default();
        let mut script = Vec::new();
        for form in &test.events {
            let Some(at) = self.span(&form.at) else {
                continue;
            };
            if let Some(happening) = self.event(form, start, at, world, &mut counters) {
                script.push((start + at, happening));
            }
        }
        script
    }

    fn event(
        &mut self,
        form: &EventForm,
        start: Timestamp,
        at: Span,
        world: &World<'_>,
        counters: &mut Counters,
    ) -> Option<Happening> {
        let kinds = [
            form.set.is_some(),
            form.clear.is_some(),
            form.grid_event.is_some(),
            form.budget.is_some(),
            form.restart == Some(true),
            form.clock_stepped.is_some(),
        ];
        if kinds.iter().filter(|given| **given).count() != 1 {
            let message = "an event is exactly one thing".to_owned();
            let help = "give one of override, clear, grid_event, budget, `restart: true` and clock_stepped; a second \
                        event may have the same `at`";
            self.error(codes::TEST_ENTRY, &form.at, message, help);
            return None;
        }
        let event = if let Some(set) = &form.set {
            counters.overrides += 1;
            self.override_set(set, start + at, counters.overrides, world)?
        } else if let Some(id) = &form.clear {
            Event::OverrideCleared {
                id: id.value.as_str().into(),
                by: OWNER.to_owned(),
            }
        } else if let Some(grid) = &form.grid_event {
            self.grid_event(grid, start, at, &form.at, world, counters)?
        } else if let Some(budget) = &form.budget {
            self.budget(budget, world)?
        } else {
            match form.clock_stepped {
                Some(true) => Event::ClockStepped {
                    difference_ms: STEP_MS,
                },
                Some(false) => Event::ClockRestored,
                None => return Some(Happening::Restart),
            }
        };
        Some(Happening::Event(event))
    }

    fn override_set(
        &mut self,
        form: &OverrideForm,
        at: Timestamp,
        number: u32,
        world: &World<'_>,
    ) -> Option<Event> {
        let lasts = match &form.lasts {
            Some(lasts) => self.span(lasts)?,
            None => OVERRIDE_LASTS_MAX,
        };
        let effect = match form.effect {
            EffectForm::On => OverrideEffect::On {
                workers: form.workers,
            },
            EffectForm::Off => OverrideEffect::Off,
            EffectForm::Freeze => OverrideEffect::Freeze,
        };
        if form.workers.is_some() && !matches!(form.effect, EffectForm::On) {
            let message = "only `effect: on` takes `workers`".to_owned();
            self.error(codes::TEST_ENTRY, &form.scope, message, "remove it");
            return None;
        }
        let id = form.id.clone();
        Some(Event::OverrideSet(Override {
            id: id.unwrap_or_else(|| format!("override-{number}")).into(),
            scope: self.scope(&form.scope, world)?,
            effect,
            owner: form.owner.clone().unwrap_or_else(|| OWNER.to_owned()),
            reason: form.reason.clone().unwrap_or_else(|| OWNER.to_owned()),
            set_by: OWNER.to_owned(),
            set_at: at,
            expires_at: at + lasts,
        }))
    }

    fn scope(&mut self, text: &Spanned<String>, world: &World<'_>) -> Option<OverrideScope> {
        let fleet = world.fleet;
        let scope = match text.value.split_once('/') {
            None if text.value == "fleet" => return Some(OverrideScope::Fleet),
            Some(("site", name)) => OverrideScope::Site(name.into()),
            Some(("pool", name)) => OverrideScope::Pool(name.into()),
            Some(("federation", name)) => OverrideScope::Federation(name.into()),
            _ => {
                let message = format!("`{}` is no scope", text.value);
                let help = "write fleet, site/NAME, federation/NAME or pool/NAME";
                self.error(codes::TEST_UNKNOWN_NAME, text, message, help);
                return None;
            }
        };
        let named: Vec<String> = match &scope {
            OverrideScope::Site(_) => fleet.sites().map(|s| format!("site/{}", s.name)).collect(),
            OverrideScope::Pool(_) => {
                let pools = fleet.pools().iter();
                pools.map(|pool| format!("pool/{}", pool.name)).collect()
            }
            _ => {
                let federations = fleet.federations().iter();
                federations
                    .map(|f| format!("federation/{}", f.name))
                    .collect()
            }
        };
        let known: Vec<&str> = named.iter().map(String::as_str).collect();
        if !known.contains(&text.value.as_str()) {
            self.unknown(text, "scope", &known);
            return None;
        }
        Some(scope)
    }

    fn grid_event(
        &mut self,
        form: &GridEventForm,
        start: Timestamp,
        at: Span,
        place: &Spanned<String>,
        world: &World<'_>,
        counters: &mut Counters,
    ) -> Option<Event> {
        let scope = match (&form.site, &form.zone) {
            (Some(site), None) => {
                if world.fleet.site(&site.value).is_none() {
                    let known: Vec<&str> = world.fleet.sites().map(|s| s.name.as_ref()).collect();
                    self.unknown(site, "site", &known);
                    return None;
                }
                Scope::Site(site.value.as_str().into())
            }
            (None, Some(zone)) => {
                if !world.fleet.has_zone(&zone.scheme.value, &zone.code.value) {
                    self.unknown(&zone.code, "zone", &[]);
                    return None;
                }
                Scope::Zone {
                    scheme: zone.scheme.value.as_str().into(),
                    code: zone.code.value.as_str().into(),
                }
            }
            _ => {
                let message = "a grid event is for one site, or for one zone".to_owned();
                let help = "add `site: NAME` or `zone: {scheme: wt, code: CODE}`";
                self.error(codes::TEST_ENTRY, place, message, help);
                return None;
            }
        };
        let target = match (&form.kilowatts, &form.power_percent) {
            (None, None) => None,
            (Some(kw), None) if kw.value.is_finite() && kw.value >= 0.0 => {
                Some(GridTarget::Kilowatts(kw.value))
            }
            (None, Some(percent)) if percent.value <= 100 => {
                Some(GridTarget::PowerPercent(percent.value))
            }
            _ => {
                let message = "a target is kilowatts from 0 or power_percent to 100".to_owned();
                self.error(
                    codes::TEST_ENTRY,
                    place,
                    message,
                    "give one of them, or none",
                );
                return None;
            }
        };
        let starts_at = start + self.optional_span(form.from.as_ref(), at)?;
        let ends_at = match &form.to {
            Some(to) => Some(start + self.span(to)?),
            None => None,
        };
        let id = form.id.clone().unwrap_or_else(|| "grid-event".to_owned());
        let revision = counters.revisions.entry(id.clone()).or_default();
        *revision += 1;
        Some(Event::GridEventAccepted(GridEvent {
            source: OWNER.into(),
            id: id.into(),
            revision: *revision,
            kind: match form.kind {
                KindForm::Dispatch => GridEventKind::Dispatch,
                KindForm::Limit => GridEventKind::Limit,
                KindForm::Emergency => GridEventKind::Emergency,
                KindForm::Test => GridEventKind::Test,
            },
            scope,
            starts_at,
            ends_at,
            target,
            status: match form.status {
                None | Some(StatusForm::Scheduled) => GridEventStatus::Scheduled,
                Some(StatusForm::Active) => GridEventStatus::Active,
                Some(StatusForm::Completed) => GridEventStatus::Completed,
                Some(StatusForm::Cancelled) => GridEventStatus::Cancelled,
                Some(StatusForm::Superseded) => GridEventStatus::Superseded,
            },
        }))
    }

    /// What a budget has spent, as a share of its limit.
    fn budget(&mut self, form: &BudgetForm, world: &World<'_>) -> Option<Event> {
        let all = world.policies.policies().iter().flat_map(|policy| {
            let named = |budget| (format!("{}/{}", policy.name, name_of(budget)), budget);
            policy.budgets.iter().map(named)
        });
        let all: Vec<_> = all.collect();
        let Some((name, budget)) = all.iter().find(|(name, _)| *name == form.name.value) else {
            let known: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
            self.unknown(&form.name, "budget", &known);
            return None;
        };
        let percent = form.spent.value.strip_suffix('%');
        let percent = percent.and_then(|text| text.trim().parse::<f64>().ok());
        let Some(percent) = percent.filter(|percent| (0.0..=1_000.0).contains(percent)) else {
            let message = format!("`{}` is no share of the limit", form.spent.value);
            self.error(
                codes::TEST_ENTRY,
                &form.spent,
                message,
                "write for example 90%",
            );
            return None;
        };
        let spent = (budget.limit as f64 * percent / 100.0).round();
        let part: Arc<str> = form.part.as_deref().unwrap_or_default().into();
        Some(Event::BudgetSet {
            budget: name.as_str().into(),
            part,
            spent: spent as i64,
            by: OWNER.to_owned(),
        })
    }
}

fn name_of(budget: &sunward_policies::policy::Budget) -> &str {
    &budget.name
}
