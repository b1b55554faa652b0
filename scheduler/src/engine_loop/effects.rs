//! What one step asks for, handed on: orders to the dispatcher, the rest to the log and metrics.

use std::collections::BTreeSet;
use std::time::Instant;

use metrics::counter;
use sunward_core::action::{Action, Effects, Envelope};
use sunward_core::event::Call;

use crate::dispatch::{Dispatcher, Order};
use crate::metric_definitions as names;

/// Hands the actions of one step on, in order.
///
/// `began` is when what led to the step was there: its first reading, or the timer of a hold that ended.
pub(super) fn carry_out(dispatcher: &Dispatcher, effects: &Effects, began: Option<Instant>) {
    let mut moved = BTreeSet::new();
    for decision in &effects.decisions {
        if decision.target != decision.before {
            moved.insert(&decision.pool);
        }
        let direction = match decision.target.cmp(&decision.before) {
            std::cmp::Ordering::Less => "down",
            std::cmp::Ordering::Equal => "same",
            std::cmp::Ordering::Greater => "up",
        };
        counter!(names::DECISIONS, "pool" => decision.pool.to_string(), "direction" => direction)
            .increment(1);
        tracing::info!(
            pool = %decision.pool, target = decision.target, before = decision.before,
            rule = %decision.rule, reason = %decision.reason, index = decision.index, "decision"
        );
    }
    for action in &effects.actions {
        match action {
            Action::Claim { pool, term, .. } => {
                dispatcher.place(Order {
                    pool: pool.clone(),
                    call: Call::Claim { term: *term },
                    scale: None,
                    began: None,
                });
            }
            Action::Scale(scale) => dispatcher.place(Order {
                pool: scale.pool.clone(),
                call: Call::Scale {
                    term: scale.term,
                    generation: scale.generation,
                },
                scale: Some(scale.clone()),
                // A retry is no answer to what led to this step.
                began: began.filter(|_| moved.contains(&scale.pool)),
            }),
            Action::Broadcast(envelope) => log_envelope(envelope),
            Action::Refuse {
                pool,
                reason,
                detail,
                cause,
            } => {
                counter!(names::REFUSALS, "reason" => *reason).increment(1);
                tracing::warn!(pool = pool.as_deref(), reason, detail, %cause, "refused");
            }
            Action::Reply { .. } => {}
        }
    }
}

/// Sinks read envelopes from the engine's outbox; here they are only logged.
fn log_envelope(envelope: &Envelope) {
    tracing::info!(
        federation = %envelope.federation, kind = envelope.kind.as_str(), site = %envelope.site,
        id = %envelope.id, "event"
    );
}
