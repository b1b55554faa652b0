//! A history checker: what was decided, what moved, and what members were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_core::action::{Action, Effects, Envelope, EventKind, Scale};
use sunward_core::engine::Engine;
use sunward_core::event::{Call, Event, Outcome};

/// A generation, behind the number of journals that were lost before it: each counts from 0.
type Generation = (u64, u64);

/// One pool's writes.
#[derive(Clone, Debug, Default)]
struct Writes {
    /// Generation -> replicas, as ordered.
    decided: BTreeMap<Generation, u32>,
    /// The newest generation that moved the replicas.
    moved: Option<Generation>,
    /// The replicas that the last move left behind, whoever made it.
    standing: Option<u32>,
    /// Somebody else scaled the pool, and no new generation has answered it yet.
    foreign: bool,
    /// The term in which the pool was last claimed.
    claimed: u64,
}

/// Where a site stands, by its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Joining,
    Ready,
    Draining,
    Drained,
}

/// What was decided, moved and told so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    pools: BTreeMap<Arc<str>, Writes>,
    stages: BTreeMap<(Arc<str>, Arc<str>), Stage>,
    issued: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Who appended `started` of a term.
    owners: BTreeMap<u64, (usize, u32)>,
    /// Journals that were lost so far.
    journals: u64,
    /// Which journal's `started` began a term.
    journal_of: BTreeMap<u64, u64>,
}

/// A broken rule: its name, and what happened.
pub type Broken = (&'static str, String);

impl History {
    /// A group was appended by replica `by` (with its incarnation) and stepped.
    pub fn stepped(
        &mut self,
        by: (usize, u32),
        group: &[Event],
        engine: &Engine,
        effects: &Effects,
        broken: &mut Vec<Broken>,
    ) {
        for event in group {
            self.event(by, event, broken);
        }
        for action in &effects.actions {
            match action {
                Action::Scale(scale) => self.ordered(scale, engine, broken),
                Action::Broadcast(envelope) => self.told(envelope, broken),
                _ => {}
            }
        }
    }

    fn event(&mut self, by: (usize, u32), event: &Event, broken: &mut Vec<Broken>) {
        match event {
            Event::Started(started) => {
                self.journal_of.insert(started.term, self.journals);
                let owner = *self.owners.entry(started.term).or_insert(by);
                if owner != by {
                    let detail = format!("term {} was begun twice", started.term);
                    broken.push(("5 one writer per term", detail));
                }
            }
            Event::ActionSettled(settled) => {
                if let (Call::Claim { term }, Outcome::Accepted(_)) =
                    (settled.call, &settled.outcome)
                {
                    let pool = self.pools.entry(settled.pool.clone()).or_default();
                    pool.claimed = pool.claimed.max(term);
                }
            }
            _ => {}
        }
    }

    fn ordered(&mut self, scale: &Scale, engine: &Engine, broken: &mut Vec<Broken>) {
        let generation = (self.journals, scale.generation);
        let pool = self.pools.entry(scale.pool.clone()).or_default();
        if pool.claimed != scale.term {
            let detail = format!(
                "pool {}: ordered in term {}, claimed in term {}",
                scale.pool, scale.term, pool.claimed
            );
            broken.push(("5 a pool is written only once it is claimed", detail));
        }
        let last = pool.decided.last_key_value().map(|(g, r)| (*g, *r));
        match (pool.decided.get(&generation), last) {
            (Some(before), _) if *before != scale.replicas => {
                let detail = format!(
                    "pool {}: generation {} orders {before} and {}",
                    scale.pool, scale.generation, scale.replicas
                );
                broken.push(("generation: one order each", detail));
            }
            (None, Some((newest, replicas))) => {
                // A wish that came and went opens generations that were never ordered.
                let same_wish =
                    replicas == scale.replicas && generation == (newest.0, newest.1 + 1);
                if same_wish && !std::mem::take(&mut pool.foreign) {
                    let detail = format!(
                        "pool {}: generation {} orders {} as {} did, and nobody else scaled it",
                        scale.pool, scale.generation, scale.replicas, newest.1
                    );
                    broken.push(("generation: a retry keeps it", detail));
                }
            }
            _ => {}
        }
        pool.decided.insert(generation, scale.replicas);
        if scale.replicas == 0 {
            self.left_first(&scale.pool, engine, broken);
        }
    }

    /// A site's events say that it has left before its last workers are taken away.
    fn left_first(&self, pool: &Arc<str>, engine: &Engine, broken: &mut Vec<Broken>) {
        let Some(pool) = engine.fleet().pool(pool) else {
            return;
        };
        let others = engine.fleet().pools_of_site(&pool.site);
        let wanted = others
            .filter(|other| other.federation == pool.federation)
            .filter_map(|other| engine.state().pools.get(&other.name)?.ledger.desired)
            .sum::<u32>();
        let federation = pool.federation.clone().unwrap_or_else(|| "_none".into());
        let stage = self.stages.get(&(federation, pool.site.clone()));
        if wanted == 0 && matches!(stage, Some(stage) if *stage != Stage::Drained) {
            let detail = format!(
                "site {}: replicas go to 0 while its members stand at {stage:?}",
                pool.site
            );
            broken.push(("events: drained before replicas are written", detail));
        }
    }

    fn told(&mut self, envelope: &Envelope, broken: &mut Vec<Broken>) {
        let ids = self.issued.entry(envelope.federation.clone()).or_default();
        if !ids.insert(envelope.id.clone()) {
            broken.push(("events: one id each", format!("id {} twice", envelope.id)));
        }
        let key = (envelope.federation.clone(), envelope.site.clone());
        let before = self.stages.get(&key).copied().unwrap_or(Stage::Drained);
        let (after, follows) = match envelope.kind {
            EventKind::SiteJoining => (Stage::Joining, before == Stage::Drained),
            EventKind::SiteReady => (Stage::Ready, before == Stage::Joining),
            EventKind::SiteDraining => (
                Stage::Draining,
                matches!(before, Stage::Joining | Stage::Ready),
            ),
            EventKind::SiteDrained => (Stage::Drained, before == Stage::Draining),
            EventKind::SitePower => (before, true),
        };
        if !follows {
            let kind = envelope.kind.as_str();
            let detail = format!("site {}: {kind} at {before:?}", envelope.site);
            broken.push(("events: joining, ready, draining, drained", detail));
        }
        self.stages.insert(key, after);
    }

    /// A replica sends a call that carries `term`.
    pub fn sent(&self, by: (usize, u32), term: u64, broken: &mut Vec<Broken>) {
        if let Some(owner) = self.owners.get(&term)
            && *owner != by
        {
            let detail = format!(
                "replica {} acts in term {term}, which replica {} began",
                by.0, owner.0
            );
            broken.push(("5 only the leader acts", detail));
        }
    }

    /// A write of ours changed `spec.replicas` at the API server.
    pub fn moved(&mut self, scale: &Scale, broken: &mut Vec<Broken>) {
        let Scale { pool, replicas, .. } = scale;
        let journal = self.journal_of.get(&scale.term).copied();
        let generation = (journal.unwrap_or(0), scale.generation);
        let writes = self.pools.entry(pool.clone()).or_default();
        if writes.decided.get(&generation) != Some(replicas) {
            let detail = format!(
                "pool {pool}: ({}, {replicas}) was never decided",
                scale.generation
            );
            broken.push(("moves are a subsequence of decided", detail));
        }
        if writes.moved.is_some_and(|newest| newest >= generation) {
            let detail = format!(
                "pool {pool}: generation {} moves it once more",
                scale.generation
            );
            broken.push(("never scaled twice", detail));
        }
        writes.moved = writes.moved.max(Some(generation));
        writes.standing = Some(*replicas);
    }

    /// The journal was lost. Members keep what they acted upon; where sites stand they are told anew.
    pub fn journal_lost(&mut self, acted: &dyn Fn(&str, &str) -> bool) {
        self.journals += 1;
        self.owners.clear();
        self.stages.clear();
        for (federation, ids) in &mut self.issued {
            ids.retain(|id| acted(federation, id));
        }
        for writes in self.pools.values_mut() {
            writes.claimed = 0;
        }
    }

    /// Somebody else changed `spec.replicas`.
    pub fn foreign(&mut self, pool: &Arc<str>) {
        self.pools.entry(pool.clone()).or_default().foreign = true;
    }

    /// The ids of a federation's events, for the members at the end.
    pub fn issued(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeSet<Arc<str>>)> {
        self.issued.iter()
    }
}
