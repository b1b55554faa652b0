//! What must hold after every step. Debug builds assert it; simulations check it always.

use crate::engine::Engine;
use crate::ledger::Claim;
use crate::rounds::OUTBOX_MAX;

/// One invariant that does not hold, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

/// Everything that does not hold.
pub fn check(engine: &Engine) -> Vec<Broken> {
    let mut broken = Vec::new();
    pools(engine, &mut broken);
    federations(engine, &mut broken);
    broken
}

fn pools(engine: &Engine, broken: &mut Vec<Broken>) {
    for pool in engine.fleet().pools() {
        let name = &pool.name;
        let Some(state) = engine.state().pools.get(name) else {
            broken.push(Broken(format!("pool {name} has no state")));
            continue;
        };
        let ledger = &state.ledger;
        if let Some(sent) = ledger.in_flight {
            if !(pool.min_workers..=pool.max_workers).contains(&sent.replicas)
                && sent.generation == ledger.generation
                && ledger.desired == Some(sent.replicas)
                && sent.since == engine.state().at
            {
                broken.push(Broken(format!(
                    "pool {name}: {} replicas written, outside its bounds",
                    sent.replicas
                )));
            }
            if ledger.claim != Claim::Held {
                broken.push(Broken(format!("pool {name}: written without a claim")));
            }
            if sent.generation > ledger.generation {
                broken.push(Broken(format!(
                    "pool {name}: generation {} from the future",
                    sent.generation
                )));
            }
        }
        if ledger.accepted > ledger.generation {
            broken.push(Broken(format!(
                "pool {name}: accepted a generation that was never written"
            )));
        }
        if state.wake_at.is_some_and(|at| at <= engine.state().at) {
            broken.push(Broken(format!("pool {name}: a timer is overdue")));
        }
    }
}

fn federations(engine: &Engine, broken: &mut Vec<Broken>) {
    for (name, federation) in &engine.state().federations {
        let outbox = &federation.outbox;
        if outbox.len() > OUTBOX_MAX {
            broken.push(Broken(format!(
                "federation {name}: {} envelopes kept",
                outbox.len()
            )));
        }
        let pairs = outbox.iter().zip(outbox.iter().skip(1));
        for (a, b) in pairs {
            if (a.term, a.sequence) >= (b.term, b.sequence) {
                broken.push(Broken(format!(
                    "federation {name}: {}-{} before {}-{}",
                    a.term, a.sequence, b.term, b.sequence
                )));
            }
        }
        if outbox
            .back()
            .is_some_and(|last| last.sequence > federation.sequence)
        {
            broken.push(Broken(format!(
                "federation {name}: an envelope from the future"
            )));
        }
    }
}
