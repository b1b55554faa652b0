//! What a publisher looks up in the engine: pure questions, asked between two groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::action::Envelope;
use sunward_core::engine::Engine;
use sunward_core::event::StreamEnd;
use sunward_core::protocol::outbox::Cursor;
use sunward_core::rounds::{Federation, NO_FEDERATION, SiteState};

use super::{BATCH_MAX, GREETING_MAX, SURVEY_MAX, position};
use crate::publish::SiteNow;

/// What the engine has for the sink.
pub(super) struct Survey {
    pub(super) term: u64,
    pub(super) pending: Vec<Pending>,
    /// Federations with events whose stream was not read yet.
    pub(super) strangers: Vec<Arc<str>>,
}

/// What the sink does not have of one federation.
pub(super) struct Pending {
    pub(super) federation: Arc<str>,
    /// The next of them, at most [`BATCH_MAX`].
    pub(super) envelopes: Vec<Envelope>,
    /// All of them.
    pub(super) lag: usize,
    /// Those that left the outbox before they were published.
    pub(super) overflowed: u64,
}

/// The term, and every federation that has events or may have a stream.
pub(super) fn known_federations(engine: &Engine) -> (u64, Vec<Arc<str>>) {
    let specs = engine.fleet().federations().iter();
    let mut names: Vec<Arc<str>> = specs.map(|spec| spec.name.clone()).collect();
    names.extend(engine.state().federations.keys().cloned());
    names.push(NO_FEDERATION.into());
    names.sort_unstable();
    names.dedup();
    (engine.state().term, names)
}

/// Sites with their states.
pub(super) type Sites = Vec<(Arc<str>, SiteNow)>;

/// The sites of those federations that have any.
pub(super) fn sites_of(engine: &Engine, federations: Vec<Arc<str>>) -> Vec<(Arc<str>, Sites)> {
    let sites = |federation: Arc<str>| {
        let known = &engine.state().federations.get(&federation)?.sites;
        let power = &engine.state().power_percent;
        let now = |(site, state): (&Arc<str>, &SiteState)| {
            let now = SiteNow {
                state: state.clone(),
                power_percent: power.get(site).copied().unwrap_or(100),
            };
            (site.clone(), now)
        };
        let states: Sites = known.iter().map(now).collect();
        (!states.is_empty()).then_some((federation, states))
    };
    federations.into_iter().filter_map(sites).collect()
}

/// Envelopes of the outbox after a position.
fn lag(federation: &Federation, after: Cursor) -> usize {
    let published = federation
        .outbox
        .partition_point(|envelope| Cursor::of(envelope) <= after);
    federation.outbox.len() - published
}

/// Envelopes after a position that are not in the outbox any more. An empty stream misses none:
/// it begins where the outbox does, as a trimmed one would.
fn overflowed(federation: &Federation, after: Cursor) -> u64 {
    match federation.outbox.front() {
        Some(first) if after != Cursor::default() && Cursor::of(first) > after => {
            first.sequence.saturating_sub(after.sequence + 1)
        }
        _ => 0,
    }
}

/// What the engine has after the given positions.
pub(super) fn survey(engine: &Engine, positions: &BTreeMap<Arc<str>, Cursor>) -> Survey {
    let mut survey = Survey {
        term: engine.state().term,
        pending: Vec::new(),
        strangers: Vec::new(),
    };
    let mut room = SURVEY_MAX;
    for (name, federation) in &engine.state().federations {
        let Some(last) = federation.outbox.back() else {
            continue;
        };
        let Some(&after) = positions.get(name) else {
            if survey.strangers.len() < GREETING_MAX {
                survey.strangers.push(name.clone());
            }
            continue;
        };
        if Cursor::of(last) <= after || room == 0 {
            continue;
        }
        let envelopes = federation.after(after.term, after.sequence, BATCH_MAX.min(room));
        room -= envelopes.len();
        survey.pending.push(Pending {
            federation: name.clone(),
            envelopes,
            lag: lag(federation, after),
            overflowed: overflowed(federation, after),
        });
    }
    survey
}

/// How many envelopes each federation has after its position.
pub(super) fn lags(
    engine: &Engine,
    positions: &BTreeMap<Arc<str>, Cursor>,
) -> Vec<(Arc<str>, usize)> {
    let federations = engine.state().federations.iter();
    let lag = |(name, federation): (&Arc<str>, &Federation)| {
        let after = positions.get(name).copied().unwrap_or_default();
        (name.clone(), lag(federation, after))
    };
    federations.map(lag).collect()
}

/// Federations with the number of envelopes that they lost.
pub(super) type Overflows = Vec<(Arc<str>, u64)>;

/// What lies between where a stream was left and where it ends, and what no outbox holds.
pub(super) fn unanswered(
    engine: &Engine,
    ends: &[StreamEnd],
    positions: &BTreeMap<Arc<str>, Cursor>,
) -> (Vec<Envelope>, Overflows) {
    let (mut published, mut overflows) = (Vec::new(), Vec::new());
    for end in ends {
        let Some(federation) = engine.state().federations.get(&end.federation) else {
            continue;
        };
        if let Some(left_at) = positions.get(&end.federation) {
            let later = federation.after(left_at.term, left_at.sequence, BATCH_MAX);
            let arrived = |envelope: &Envelope| Cursor::of(envelope) <= position(end);
            published.extend(later.into_iter().take_while(arrived));
        }
        let overflowed = overflowed(federation, position(end));
        if overflowed > 0 {
            overflows.push((end.federation.clone(), overflowed));
        }
    }
    (published, overflows)
}
