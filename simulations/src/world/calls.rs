//! Calls to the API servers: what the k0smotron actuator does, with what can go wrong on the way.
//!
//! A claim reads the object and writes the term with the version it read; a scale carries the
//! version and the replicas that the daemon's watch cache knows. One call per pool at a time.

use std::sync::Arc;

use sunward_core::action::Scale;
use sunward_core::event::{Call, Event, Outcome, Settled};
use sunward_core::protocol::slot::Placed;
use sunward_core::time::Span;

use super::daemon::Ticket;
use super::{Happening, Life, World};
use crate::fault::Fault;

/// How long a call may take; then its fate is unknown.
const DEADLINE: Span = Span::from_secs(10);

/// An action on its way to an API server.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pool: Arc<str>,
    call: Call,
    scale: Option<Scale>,
}

/// A write on its way.
#[derive(Debug)]
pub(super) struct Flight {
    life: Life,
    order: Order,
    pool: usize,
    version: u64,
    fault: Option<Fault>,
}

/// What comes back.
#[derive(Debug)]
pub(super) struct Answer {
    order: Order,
    pool: usize,
    outcome: Outcome,
    twice: bool,
}

impl Order {
    pub(super) fn claim(pool: Arc<str>, term: u64) -> Order {
        Order {
            pool,
            call: Call::Claim { term },
            scale: None,
        }
    }

    pub(super) fn scale(scale: Scale) -> Order {
        Order {
            pool: scale.pool.clone(),
            call: Call::Scale {
                term: scale.term,
                generation: scale.generation,
            },
            scale: Some(scale),
        }
    }

    fn term(&self) -> u64 {
        let (Call::Claim { term } | Call::Scale { term, .. }) = self.call;
        term
    }
}

fn unknown() -> Outcome {
    Outcome::Unknown {
        reason: format!("no answer within {DEADLINE}"),
    }
}

fn failed(reason: &str, retry_after_ms: Option<u64>) -> Outcome {
    Outcome::Failed {
        reason: reason.to_owned(),
        retry_after_ms,
    }
}

impl World<'_> {
    /// An order goes to its pool's slot.
    pub(super) fn place(&mut self, replica: usize, order: Order) {
        let Some(pool) = self.clusters.home_of(&order.pool) else {
            return;
        };
        if let Placed::Go(order) = self.replicas[replica].slots[pool].place(order) {
            self.send_soon(replica, order);
        }
    }

    fn trip(&mut self) -> Span {
        if self.log.keep {
            self.dice
                .network
                .span(Span::from_millis(2), Span::from_millis(25))
        } else {
            Span::from_millis(1)
        }
    }

    fn send_soon(&mut self, replica: usize, order: Order) {
        let wait = self.trip();
        let life = self.life(replica);
        self.after(wait, Happening::Send(life, order.into()));
    }

    /// The call leaves the daemon, if its gate is open.
    pub(super) fn send(&mut self, replica: usize, order: Order) {
        let Some(pool) = self.clusters.home_of(&order.pool) else {
            return;
        };
        if !self.replicas[replica].is_leading() {
            return self.next_order(replica, pool);
        }
        let life = self.life(replica);
        if let Some(checks) = &mut self.checks {
            checks.sent(self.now, life, order.term());
        }
        let cluster = self.clusters.homes[pool].cluster;
        if self.clusters.is_away(cluster, self.now) {
            let (outcome, wait) = if self.clusters.servers[cluster].hangs {
                (unknown(), DEADLINE)
            } else {
                (failed("connection refused", None), self.trip())
            };
            return self.answer(life, pool, order, outcome, wait);
        }
        let (version, refused) = self.prepare(replica, pool, &order);
        if let Some(outcome) = refused {
            let wait = self.trip();
            return self.answer(life, pool, order, outcome, wait);
        }
        let fault = self.armed_calls.pop_front();
        if let Some(fault) = fault {
            self.count(fault);
        }
        let wait = match fault {
            Some(Fault::CallLost) => {
                return self.answer(life, pool, order, unknown(), DEADLINE);
            }
            Some(Fault::CallError) => {
                let busy = self.dice.faults.chance(0.5);
                let after = self.dice.faults.below(30_000) as u64;
                let outcome = failed("HTTP 503", busy.then_some(after));
                let wait = self.trip();
                return self.answer(life, pool, order, outcome, wait);
            }
            Some(Fault::CallLate) => {
                self.answer(life, pool, order.clone(), unknown(), DEADLINE);
                self.dice
                    .faults
                    .span(Span::from_secs(11), Span::from_secs(70))
            }
            _ => self.trip(),
        };
        let flight = Flight {
            life,
            order,
            pool,
            version,
            fault,
        };
        self.after(wait, Happening::Land(flight.into()));
    }

    /// The version that the write will carry, or why it is not made.
    fn prepare(&mut self, replica: usize, pool: usize, order: &Order) -> (u64, Option<Outcome>) {
        let term = order.term();
        let higher = |found: Option<u64>| {
            let above = found.filter(|found| *found > term)?;
            Some(Outcome::HigherTerm { term: above })
        };
        let Some(scale) = &order.scale else {
            let found = self.clusters.homes[pool].observation();
            self.replicas[replica].cache[pool].answered(&found);
            return (found.version, higher(found.term));
        };
        let Some(known) = self.replicas[replica].cache[pool].get() else {
            return (0, Some(Outcome::Conflict));
        };
        if let Some(outcome) = higher(known.term) {
            return (0, Some(outcome));
        }
        if known.term != Some(term) || known.wanted != scale.from {
            return (0, Some(Outcome::Conflict));
        }
        (known.version, None)
    }

    /// A write arrives at the API server.
    pub(super) fn land(&mut self, flight: Flight) {
        let Flight {
            life,
            order,
            pool,
            version,
            fault,
        } = flight;
        let late = fault == Some(Fault::CallLate);
        if self
            .clusters
            .is_away(self.clusters.homes[pool].cluster, self.now)
        {
            // The sender of a late one was told long ago that nobody knows.
            if !late {
                self.answer(life, pool, order, unknown(), DEADLINE);
            }
            return;
        }
        if fault == Some(Fault::Conflict) {
            // Cluster API writes a status.
            self.home_changed(pool);
        }
        let outcome = if self.clusters.homes[pool].version == version {
            self.take_effect(pool, &order);
            Outcome::Accepted(self.clusters.homes[pool].observation())
        } else {
            Outcome::Conflict
        };
        let wait = self.trip();
        match fault {
            Some(Fault::CallLate) => {}
            Some(Fault::ReplyLost) => self.answer(life, pool, order, unknown(), DEADLINE),
            Some(Fault::ReplyDuplicated) => {
                let answer = Answer {
                    order,
                    pool,
                    outcome,
                    twice: true,
                };
                self.after(wait, Happening::Answer(life, answer.into()));
            }
            _ => self.answer(life, pool, order, outcome, wait),
        }
    }

    fn take_effect(&mut self, pool: usize, order: &Order) {
        if let Some(checks) = &mut self.checks {
            let before = self.clusters.homes[pool].term;
            checks.landed(self.now, &order.pool, before, order.term());
        }
        let Some(scale) = &order.scale else {
            self.clusters.homes[pool].term = Some(order.term());
            return self.home_changed(pool);
        };
        if self.clusters.homes[pool].wanted != scale.replicas {
            if let Some(checks) = &mut self.checks {
                checks.moved(self.now, scale);
            }
            self.progress.moved[pool] = self.now;
        }
        self.set_wanted(pool, scale.replicas);
        self.home_changed(pool);
        let (term, at) = (scale.term, scale.decided_at);
        self.after(Span::from_millis(30), Happening::Note { pool, term, at });
    }

    fn answer(&mut self, life: Life, pool: usize, order: Order, outcome: Outcome, wait: Span) {
        let answer = Answer {
            order,
            pool,
            outcome,
            twice: false,
        };
        self.after(wait, Happening::Answer(life, answer.into()));
    }

    /// The answer reaches the daemon.
    pub(super) fn answered(&mut self, replica: usize, answer: Answer) {
        let Answer {
            order,
            pool,
            outcome,
            twice,
        } = answer;
        if self.replicas[replica].gate.is_none() {
            return;
        }
        if let Outcome::Accepted(seen) = &outcome {
            self.replicas[replica].cache[pool].answered(seen);
            if let (Call::Claim { term }, Some(gate)) =
                (order.call, &mut self.replicas[replica].gate)
                && gate.term() == term
            {
                gate.wrote(&format!("pool:{}", order.pool).into());
            }
        }
        let settled = Settled {
            pool: order.pool,
            call: order.call,
            outcome,
        };
        if twice {
            let again = vec![Event::ActionSettled(settled.clone())];
            self.tell(replica, again, Ticket::Nobody);
        }
        self.tell(replica, vec![Event::ActionSettled(settled)], Ticket::Nobody);
        self.next_order(replica, pool);
    }

    fn next_order(&mut self, replica: usize, pool: usize) {
        if let Some(next) = self.replicas[replica].slots[pool].finished() {
            self.send_soon(replica, next);
        }
    }
}
