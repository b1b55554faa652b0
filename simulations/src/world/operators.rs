//! Operators and grid operators: overrides, calls of the grid, and words about budgets.
//!
//! They are counted like faults, and none of them delays a call. Whatever they begin is over when the faults end.

use std::sync::Arc;

use sunward_core::event::Event;
use sunward_core::grid_event::{GridEvent, GridEventKind, GridEventStatus, GridTarget};
use sunward_core::overrides::{Override, OverrideEffect, OverrideScope};
use sunward_core::signal::Scope;
use sunward_core::time::{Span, Timestamp};

use super::daemon::Ticket;
use super::disturb::Ending;
use super::{Happening, World};
use crate::fault::Fault;

/// Grid events that may be revised or called off, at most.
const CALLS_MAX: usize = 32;

/// What operators remember.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// How many overrides were set.
    set: u64,
    /// The numbers of those that are not over.
    open: Vec<u64>,
    /// How many grid events were sent.
    called: u64,
    /// The newest revisions of those that are not over.
    calls: Vec<GridEvent>,
}

fn name(number: u64) -> Arc<str> {
    format!("override-{number}").into()
}

impl World<'_> {
    /// An operator sets or clears an override, if somebody is there to take it.
    pub(super) fn operate(&mut self, fault: Fault) {
        let Some(leader) = self.acting() else {
            return;
        };
        if fault == Fault::OverrideCleared {
            let which = self.dice.operators.below(self.desk.open.len());
            if which >= self.desk.open.len() {
                return;
            }
            let event = Event::OverrideCleared {
                id: name(self.desk.open.swap_remove(which)),
                by: "operator".to_owned(),
            };
            self.note_fault(fault);
            return self.tell(leader, vec![event], Ticket::Nobody);
        }
        let (low, high) = (Span::from_mins(5), Span::from_mins(150));
        let lasts = self.dice.operators.span(low, high);
        let expires_at = (self.now + lasts).min(self.scenario.faults_end);
        self.desk.set += 1;
        let number = self.desk.set;
        let set = Override {
            id: name(number),
            scope: self.any_scope(),
            effect: self.any_effect(),
            owner: "operations".to_owned(),
            reason: "maintenance".to_owned(),
            set_by: "operator".to_owned(),
            set_at: self.now,
            expires_at,
        };
        if self.transcript.is_some() {
            let effect = set.effect;
            self.write_down(&format!("{effect:?} on {} until {expires_at}", set.scope));
        }
        self.desk.open.push(number);
        self.note_fault(fault);
        self.push(expires_at, Happening::Ends(Ending::Override(number)));
        self.tell(leader, vec![Event::OverrideSet(set)], Ticket::Nobody);
    }

    fn any_scope(&mut self) -> OverrideScope {
        let dice = &mut self.dice.operators;
        let homes = &self.clusters.homes;
        let home = &homes[dice.below(homes.len())];
        let kind = dice.unit();
        let federation = home.pool.federation.clone().filter(|_| kind < 0.12);
        match federation {
            _ if kind < 0.04 => OverrideScope::Fleet,
            Some(federation) => OverrideScope::Federation(federation),
            None if kind < 0.35 => OverrideScope::Site(home.pool.site.clone()),
            None => OverrideScope::Pool(home.pool.name.clone()),
        }
    }

    fn any_effect(&mut self) -> OverrideEffect {
        match self.dice.operators.below(3) {
            0 => OverrideEffect::On { workers: None },
            1 => OverrideEffect::Off,
            _ => OverrideEffect::Freeze,
        }
    }

    /// An override's time is over, unless it was cleared.
    pub(super) fn override_over(&mut self, number: u64) {
        if let Some(at) = self.desk.open.iter().position(|open| *open == number) {
            self.desk.open.swap_remove(at);
            self.note_fault(Fault::OverrideExpired);
        }
    }

    /// The grid calls, thinks anew, or calls it off.
    pub(super) fn call(&mut self, fault: Fault) {
        let Some(leader) = self.acting() else {
            return;
        };
        let event = match fault {
            Fault::GridRevised => self.revised(),
            Fault::GridCancelled => self.cancelled(),
            _ => Some(self.new_call(fault)),
        };
        let Some(event) = event else {
            return;
        };
        self.note_fault(fault);
        if self.transcript.is_some() {
            let until = event
                .ends_at
                .map_or("its end".to_owned(), |end| end.to_string());
            let (id, revision, kind, target) =
                (&event.id, event.revision, event.kind, event.target);
            let words = format!(
                "{id} revision {revision}: {kind:?} {target:?} {:?}",
                event.status
            );
            self.write_down(&format!(
                "{words} for {} from {} to {until}",
                event.scope, event.starts_at
            ));
        }
        self.tell(
            leader,
            vec![Event::GridEventAccepted(event)],
            Ticket::Nobody,
        );
    }

    fn new_call(&mut self, fault: Fault) -> GridEvent {
        let kind = match fault {
            Fault::GridLimit => GridEventKind::Limit,
            Fault::GridEmergency => GridEventKind::Emergency,
            Fault::GridTest => GridEventKind::Test,
            _ => GridEventKind::Dispatch,
        };
        self.desk.called += 1;
        let (starts_at, ends_at) = self.any_interval();
        let dice = &mut self.dice.operators;
        let sites: Vec<_> = self.scenario.fleet.sites().collect();
        let site = sites[dice.below(sites.len())];
        let zones: Vec<_> = site.zones.iter().collect();
        let zone = zones
            .get(dice.below(zones.len()))
            .filter(|_| dice.chance(0.3));
        let scope = match zone {
            Some((scheme, code)) => Scope::Zone {
                scheme: Arc::clone(scheme),
                code: Arc::clone(code),
            },
            None => Scope::Site(site.name.clone()),
        };
        let event = GridEvent {
            source: "grid".into(),
            id: format!("call-{}", self.desk.called).into(),
            revision: 1,
            kind,
            scope,
            starts_at,
            ends_at,
            target: self.any_target(kind),
            status: GridEventStatus::Scheduled,
        };
        if self.desk.calls.len() == CALLS_MAX {
            // The oldest goes on by itself, if it has an end.
            let ended = self
                .desk
                .calls
                .iter()
                .position(|call| call.ends_at.is_some());
            self.desk.calls.remove(ended.unwrap_or(0));
        }
        self.desk.calls.push(event.clone());
        event
    }

    fn any_interval(&mut self) -> (Timestamp, Option<Timestamp>) {
        let ahead = self.dice.operators.span(Span::ZERO, Span::from_mins(20));
        let soon = if self.dice.operators.chance(0.5) {
            Span::ZERO
        } else {
            ahead
        };
        let lasts = self
            .dice
            .operators
            .span(Span::from_mins(2), Span::from_mins(75));
        let open = self.dice.operators.chance(0.1);
        let starts_at = (self.now + soon).min(self.scenario.faults_end);
        let ends_at = (starts_at + lasts).min(self.scenario.faults_end);
        (starts_at, (!open).then_some(ends_at))
    }

    fn any_target(&mut self, kind: GridEventKind) -> Option<GridTarget> {
        let dice = &mut self.dice.operators;
        let kilowatts = (dice.unit() * 200.0).floor() / 10.0;
        let percent = [0, 50, 60, 75, 90, 100][dice.below(6)];
        match (kind, dice.below(3)) {
            (GridEventKind::Emergency, 0 | 1) | (_, 0) => None,
            (_, 1) => Some(GridTarget::Kilowatts(kilowatts)),
            _ => Some(GridTarget::PowerPercent(percent)),
        }
    }

    /// A new revision; now and then an old one that comes after the new one.
    fn revised(&mut self) -> Option<GridEvent> {
        let which = self.dice.operators.below(self.desk.calls.len());
        let (starts_at, ends_at) = self.any_interval();
        let kind = self.desk.calls.get(which)?.kind;
        let target = self.any_target(kind);
        let late = self.dice.operators.chance(0.2);
        let call = self.desk.calls.get_mut(which)?;
        let mut revised = GridEvent {
            starts_at,
            ends_at,
            target,
            ..call.clone()
        };
        if late {
            revised.revision = 0;
        } else {
            revised.revision += 1;
            *call = revised.clone();
        }
        Some(revised)
    }

    fn cancelled(&mut self) -> Option<GridEvent> {
        let which = self.dice.operators.below(self.desk.calls.len());
        if which >= self.desk.calls.len() {
            return None;
        }
        let status = match self.dice.operators.below(3) {
            0 => GridEventStatus::Completed,
            1 => GridEventStatus::Superseded,
            _ => GridEventStatus::Cancelled,
        };
        let call = self.desk.calls.swap_remove(which);
        Some(GridEvent {
            revision: call.revision + 1,
            status,
            ..call
        })
    }

    /// The faults end, and with them everything that the grid has called for.
    pub(super) fn end_calls(&mut self) {
        let calls = std::mem::take(&mut self.desk.calls);
        let open = calls.into_iter().filter(|call| call.ends_at.is_none());
        let ends: Vec<Event> = open
            .map(|call| {
                Event::GridEventAccepted(GridEvent {
                    revision: call.revision + 1,
                    status: GridEventStatus::Completed,
                    ..call
                })
            })
            .collect();
        if let Some(leader) = self.acting().filter(|_| !ends.is_empty()) {
            self.tell(leader, ends, Ticket::Nobody);
        }
    }

    /// An operator says what a budget has spent: nearly all of it, or not much.
    pub(super) fn set_budget(&mut self) {
        let Some(leader) = self.acting() else {
            return;
        };
        let coordination = self.replicas[leader].engine.coordination();
        let sums: Vec<_> = coordination
            .budgets()
            .iter()
            .filter(|part| part.is_sum())
            .collect();
        let Some(part) = sums.get(self.dice.operators.below(sums.len())) else {
            return;
        };
        let (budget, place, limit) = (part.budget.clone(), part.part.clone(), part.limit);
        let (low, high) = if self.dice.operators.chance(0.5) {
            (900, 1_000)
        } else {
            (0, 600)
        };
        let thousandths = (low + self.dice.operators.below(high - low + 1)) as i64;
        let spent = limit / 1_000 * thousandths;
        self.note_fault(Fault::BudgetNearlySpent);
        self.write_down(&format!(
            "budget {budget} {place}: {spent} of {limit} spent"
        ));
        let event = Event::BudgetSet {
            budget,
            part: place,
            spent,
            by: "operator".to_owned(),
        };
        self.tell(leader, vec![event], Ticket::Nobody);
    }
}
