//! What must hold after every step. Debug builds assert it; simulations check it always.

use crate::draw::DRAW_STEPS_MAX;
use crate::engine::Engine;
use crate::grid_event::GRID_EVENTS_MAX;
use crate::ledger::Claim;
use crate::overrides::{OVERRIDE_LASTS_MAX, OVERRIDES_MAX};
use crate::rounds::OUTBOX_MAX;

/// One invariant that does not hold, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

/// Everything that does not hold.
pub fn check(engine: &Engine) -> Vec<Broken> {
    let mut broken = Vec::new();
    pools(engine, &mut broken);
    federations(engine, &mut broken);
    overrides(engine, &mut broken);
    grid_events(engine, &mut broken);
    limits(engine, &mut broken);
    draws(engine, &mut broken);
    if engine
        .next_wakeup()
        .is_some_and(|at| at <= engine.state().at)
    {
        broken.push(Broken("the next wake-up is overdue".to_owned()));
    }
    broken
}

fn overrides(engine: &Engine, broken: &mut Vec<Broken>) {
    let state = engine.state();
    if state.overrides.len() > OVERRIDES_MAX {
        broken.push(Broken(format!("{} overrides kept", state.overrides.len())));
    }
    for (id, known) in &state.overrides {
        if known.expires_at <= state.at || known.expires_at > state.at + OVERRIDE_LASTS_MAX {
            broken.push(Broken(format!(
                "override {id} lasts until {}",
                known.expires_at
            )));
        }
    }
}

fn grid_events(engine: &Engine, broken: &mut Vec<Broken>) {
    let state = engine.state();
    if state.grid_events.len() > GRID_EVENTS_MAX {
        broken.push(Broken(format!(
            "{} grid events kept",
            state.grid_events.len()
        )));
    }
    for ((source, id), known) in &state.grid_events {
        if known.forgotten_at().is_some_and(|at| at <= state.at) {
            broken.push(Broken(format!("grid event {id} of {source} is long over")));
        }
    }
}

/// Below the limits of each site, or at the minimum; throttled only while something acts, and to a tier.
fn limits(engine: &Engine, broken: &mut Vec<Broken>) {
    let state = engine.state();
    for (site, percent) in &state.power_percent {
        let acts = engine.orders().of_site(site).is_some();
        let tier = engine
            .fleet()
            .site(site)
            .is_some_and(|site| site.power_tiers.contains(percent));
        if !acts || !tier || *percent >= 100 {
            broken.push(Broken(format!("site {site} is held to {percent} %")));
        }
    }
    for site in engine.fleet().sites() {
        let Some(order) = engine
            .orders()
            .of_site(&site.name)
            .filter(|order| order.limits())
        else {
            continue;
        };
        let percent = state.power_percent.get(&site.name).copied().unwrap_or(100);
        let mut kw = 0.0;
        let mut above_minimum = 0;
        for pool in engine.fleet().pools_of_site(&site.name) {
            let Some(desired) = state
                .pools
                .get(&pool.name)
                .and_then(|known| known.ledger.desired)
            else {
                continue;
            };
            kw += f64::from(desired) * pool.training_kw;
            above_minimum += u32::from(desired > pool.min_workers);
        }
        kw *= f64::from(percent) / 100.0;
        let untold = order.to_minimum || order.percent.is_some_and(|most| percent > most);
        let too_much = order.kilowatts.is_some_and(|most| kw > most);
        if above_minimum > 0 && (untold || too_much) {
            broken.push(Broken(format!("site {}: {kw} kW under a limit", site.name)));
        }
    }
}

fn draws(engine: &Engine, broken: &mut Vec<Broken>) {
    for (site, draw) in &engine.state().draws {
        if draw.len() > DRAW_STEPS_MAX || engine.fleet().site(site).is_none() {
            broken.push(Broken(format!(
                "{} steps of the draw of {site}",
                draw.len()
            )));
        }
    }
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
