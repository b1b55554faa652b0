//! What must hold after every step. Debug builds assert it; simulations check it always.

use crate::draw::DRAW_STEPS_MAX;
use sunward_policies::policy::Measure;

use crate::coordination::BudgetPart;
use crate::engine::Engine;
use crate::grid_event::GRID_EVENTS_MAX;
use crate::ledger::Claim;
use crate::overrides::{OVERRIDE_LASTS_MAX, OVERRIDES_MAX};
use crate::pools::Pin;
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
    budgets(engine, &mut broken);
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

/// Budgets that hold at any instant are held but by minimums and frozen pools; pools of a spent one are at their minimum;
/// and what is counted is what the pools draw.
fn budgets(engine: &Engine, broken: &mut Vec<Broken>) {
    let coordination = engine.coordination();
    let accounts = &engine.state().accounts;
    if accounts.budgets.len() < coordination.budgets().len()
        || accounts.deadlines.len() != coordination.deadlines().len()
        || accounts.groups.len() != coordination.len()
    {
        broken.push(Broken("accounts do not follow the policies".into()));
        return;
    }
    if !coordination.is_empty() && !engine.meters().agree(&engine.fresh_meters()) {
        broken.push(Broken("meters differ from what the pools draw".into()));
    }
    for (part, account) in coordination.budgets().iter().zip(&accounts.budgets) {
        let name = format!("budget {} {}", part.budget, part.part);
        if !part.is_sum() {
            let (used, firm) = in_use(engine, part);
            if used > i128::from(part.limit).max(firm) {
                broken.push(Broken(format!("{name}: {used} of {} in use", part.limit)));
            }
            continue;
        }
        if !account.spend.exhausted(part.limit) {
            continue;
        }
        for (pool, state) in part.pools.iter().filter_map(|id| {
            Some((
                engine.fleet().pools().get(*id as usize)?,
                engine.state().pools.at(*id)?,
            ))
        }) {
            let runs = state
                .ledger
                .desired
                .is_some_and(|wanted| wanted > pool.min_workers);
            if runs && state.ask.pin != Pin::Frozen {
                broken.push(Broken(format!("{name} is spent and {} runs", pool.name)));
            }
        }
    }
    for (group, state) in accounts.groups.iter().enumerate() {
        if state.wake_at.is_some_and(|at| at <= engine.state().at) {
            broken.push(Broken(format!("group {group}: a timer is overdue")));
        }
    }
}

/// What the pools of a budget use by their targets, and how much of that no budget takes away; workers or mW, in the
/// budget's unit.
fn in_use(engine: &Engine, part: &BudgetPart) -> (i128, i128) {
    let (mut used, mut firm) = (0_i128, 0_i128);
    for id in &part.pools {
        let (Some(pool), Some(state)) = (
            engine.fleet().pools().get(*id as usize),
            engine.state().pools.at(*id),
        ) else {
            continue;
        };
        let each = match part.measure {
            Measure::Workers => 1,
            _ => (pool.training_kw * 1e6).round() as i128,
        };
        let wanted = state.ledger.desired.unwrap_or(0);
        used += each * i128::from(wanted);
        firm += each
            * i128::from(match state.ask.pin {
                Pin::Frozen => wanted,
                _ => pool.min_workers.min(wanted),
            });
    }
    let unit = if part.measure == Measure::Power {
        1_000
    } else {
        1
    };
    // Rounded up, so that a limit is not passed by less than a unit.
    ((used + unit - 1) / unit, (firm + unit - 1) / unit)
}
