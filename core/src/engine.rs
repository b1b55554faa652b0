//! The engine: state, events and time go in; state and effects come out.
//!
//! [`Engine::step`] is total: no error, no I/O, no panic path. A refusal is an action with a
//! reason. Everything here is determined by the journal: the same groups at the same stamps give
//! the same [`Engine::digest`] on any machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sunward_policies::diagnostic::Diagnostic;
use sunward_policies::document::SourceFile;
use sunward_policies::policy::PolicySet;
use sunward_policies::time::Timestamp;

use self::sites::federation_of;
use self::together::Meetings;
use crate::action::{Action, Cause, Effects, Input, Reply};
use crate::board::{Posted, StreamId};
use crate::calendars::Calendars;
use crate::coordination::{Coordination, Meters};
use crate::event::{
    Call, Event, Outcome, PackedFile, PoolObservation, Settled, Started, StreamEnd,
};
use crate::fleet::Fleet;
use crate::ledger::{Claim, Observed, retry_draw};
use crate::orders::Orders;
use crate::pools::{self, Context, PoolState, Pools, Wiring};
pub use crate::state::{Digest, State};
use crate::timers::Timers;

/// What is looked at for one pool, beside the pools themselves.
macro_rules! context {
    ($engine:expr, $id:expr, $group_next:expr) => {
        Context {
            index: $engine.state.index,
            term: $engine.state.term,
            now: $engine.state.at,
            clock_stepped: $engine.state.clock_stepped,
            board: &$engine.state.board,
            policies: &$engine.policies,
            calendars: &$engine.calendars,
            draws: &$engine.state.draws,
            overrides: &$engine.state.overrides,
            grid_events: &$engine.state.grid_events,
            order: $engine.orders.of($id),
            most: $engine.most.get(&$id).copied(),
            coordination: &$engine.coordination,
            accounts: &$engine.state.accounts,
            group_next: $group_next,
            #[cfg(feature = "plant")]
            plant: $engine.plant,
        }
    };
}

mod acting;
mod sites;
mod standings;
mod together;

pub use self::sites::POWER_WITHIN;

/// The version of the core whose folds give the digests.
pub const CORE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Everything the daemon decides.
#[derive(Debug)]
pub struct Engine {
    state: State,
    fleet: Fleet,
    policies: PolicySet,
    wiring: Wiring,
    calendars: Calendars,
    /// What acts on pools besides their policies.
    orders: Orders,
    /// Overrides, grid events or the fleet changed since the orders were worked out.
    orders_stale: bool,
    /// The most workers that an emergency or a limit leaves a pool, as it was last worked out for its site.
    most: BTreeMap<u32, u32>,
    /// Who is planned with whom.
    coordination: Coordination,
    /// What pools draw on budgets and do for deadlines.
    meters: Meters,
    /// Groups to plan at an instant.
    group_timers: BTreeSet<(Timestamp, u32)>,
    /// Groups with touched pools, of the group of events being applied.
    meetings: Meetings,
    /// Pools to count anew at the end of the step.
    metered: Vec<u32>,
    /// Pools to judge at an instant; an entry may be early, never late.
    timers: Timers,
    /// Pools touched by the group being applied.
    touched: Vec<Touched>,
    /// Fleet or policies were replaced by the group being applied.
    replaced: bool,
    /// What a snapshot held and this core can't read.
    unreadable: Vec<String>,
    /// Scale writes of the group being applied.
    scales: Vec<Action>,
    #[cfg(feature = "plant")]
    plant: Option<crate::plant::Plant>,
}

/// A pool to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Touched {
    pool: u32,
    /// By something else than a reading or the time: it is settled in full.
    by_event: bool,
}

impl Touched {
    fn by_event(pool: u32) -> Touched {
        Touched {
            pool,
            by_event: true,
        }
    }

    fn by_reading_or_time(pool: u32) -> Touched {
        Touched {
            pool,
            by_event: false,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Engine::new()
    }
}

impl Engine {
    /// An engine before its first event.
    pub fn new() -> Engine {
        Engine::restore(State::default())
    }

    /// The engine of a snapshot's state.
    pub fn restore(state: State) -> Engine {
        let mut unreadable = Vec::new();
        let mut note = |found: Vec<Diagnostic>| {
            unreadable.extend(found.iter().map(ToString::to_string));
        };
        let fleet = state
            .fleet
            .as_ref()
            .map_or_else(|| Ok(Fleet::default()), Fleet::parse);
        let fleet = fleet.unwrap_or_else(|found| {
            note(found);
            Fleet::default()
        });
        let policies = PolicySet::compile(&state.policies).unwrap_or_else(|found| {
            note(found);
            PolicySet::empty()
        });
        let mut engine = Engine {
            state,
            fleet,
            policies,
            wiring: Wiring::default(),
            calendars: Calendars::default(),
            orders: Orders::default(),
            orders_stale: false,
            most: BTreeMap::new(),
            timers: Timers::default(),
            coordination: Coordination::default(),
            meters: Meters::default(),
            group_timers: BTreeSet::new(),
            meetings: Meetings::new(),
            metered: Vec::new(),
            touched: Vec::new(),
            replaced: false,
            unreadable,
            scales: Vec::new(),
            #[cfg(feature = "plant")]
            plant: None,
        };
        engine.state.board.index();
        if engine.unreadable.is_empty() {
            engine.rewire();
            engine.resume_groups();
        }
        engine
    }

    /// What the restored state holds and this core can't read: such an engine must not go on,
    /// since it would forget every pool.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// The same with a planted bug.
    #[cfg(feature = "plant")]
    #[must_use]
    pub fn planted(mut self, plant: Option<crate::plant::Plant>) -> Engine {
        self.plant = plant;
        self.calendars.plant = plant;
        self
    }

    /// What is kept; the snapshot.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The fleet in force.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The policies in force.
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// What acts on pools besides their policies.
    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// What a policy reads of a pool at `now`, which may be later than the last group: what counts then, with its age.
    pub fn inputs(&self, pool: &str, policy: &str, now: Timestamp) -> Vec<Input> {
        let found = self.wiring.pool_id(pool);
        let Some((id, pool)) =
            found.and_then(|id| Some((id, self.wiring.pools().get(id as usize)?)))
        else {
            return Vec::new();
        };
        let context = Context {
            now,
            ..context!(self, id, None)
        };
        pools::policy_inputs(policy, self.wiring.rules(id), pool, &context)
    }

    /// The state's fingerprint. Costs one encoding of the state: for status and replay, not for
    /// the hot path.
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.snapshot()).into())
    }

    /// The state's canonical encoding (MessagePack with named fields).
    pub fn snapshot(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(&self.state).expect("the state holds only encodable types")
    }

    /// The state of an encoded snapshot.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<State, rmp_serde::decode::Error> {
        rmp_serde::from_slice(bytes)
    }

    /// The first instant at which time alone may change something; submit a tick then.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        let timer = self.timers.first();
        timer
            .into_iter()
            .chain(self.orders.next())
            .chain(self.next_group_due())
            .min()
    }

    /// Applies one journaled group, stamped `at`, and collects into `out` what it asks for.
    ///
    /// The events apply in order; then each touched pool is judged and planned once.
    pub fn step(&mut self, at: Timestamp, group: &[Event], out: &mut Effects) {
        out.clear();
        self.state.index += 1;
        self.state.at = self.state.at.max(at);
        self.advance_groups();
        for (position, event) in group.iter().enumerate() {
            self.apply(position as u32, event, out);
        }
        if std::mem::take(&mut self.replaced) {
            // Once, whatever was replaced together: what lies between must not cost a memory.
            self.count_all();
            self.meetings.clear();
            self.rewire();
            self.follow_groups();
            self.call_all();
            self.touched.clear();
            self.touch_all();
            self.settle_all_sites(out);
        }
        self.calendars.advance(&self.policies, self.state.at);
        self.advance_orders(out);
        self.wake_due();
        let mut touched = std::mem::take(&mut self.touched);
        if !touched.is_sorted_by(|a, b| a.pool < b.pool) {
            touched.sort_unstable();
            touched.dedup_by(|later, kept| {
                kept.by_event |= later.by_event && later.pool == kept.pool;
                later.pool == kept.pool
            });
        }
        let mut acting = BTreeSet::new();
        for touched in touched.drain(..) {
            match self.acting_site(touched.pool) {
                Some(site) => _ = acting.insert(site),
                None => self.settle_pool(touched, out),
            }
        }
        self.touched = touched;
        for site in acting {
            self.settle_acting_site(&site, out);
        }
        self.settle_groups(out);
        // After the events of every site: a leave is done before any replicas are written.
        out.actions.append(&mut self.scales);
        self.debug_check();
    }

    fn apply(&mut self, position: u32, event: &Event, out: &mut Effects) {
        match event {
            Event::SignalAccepted(level) => match self.state.board.post(level, self.state.at) {
                Posted::Accepted(stream) => self.touch_stream(stream),
                Posted::Superseded(stream) => {
                    self.touch_stream(stream);
                    out.actions.push(Action::Reply {
                        position,
                        reply: Reply::Superseded,
                    });
                }
                Posted::BoardFull => {
                    out.actions.push(Action::Reply {
                        position,
                        reply: Reply::BoardFull,
                    });
                }
            },
            Event::GridEventAccepted(event) => self.accept_grid_event(event, position, out),
            Event::OverrideSet(set) => self.set_override(set, out),
            Event::OverrideCleared { id, .. } => self.clear_override(id),
            Event::BudgetSet {
                budget,
                part,
                spent,
                by,
            } => self.set_budget(budget, part, *spent, by, out),
            Event::PoolObserved(seen) => self.observe(seen, out),
            Event::ActionSettled(settled) => self.settle(settled, out),
            Event::Started(started) => self.start(started),
            Event::FleetReplaced { file } => self.replace_fleet(file, out),
            Event::PoliciesReplaced { files } => self.replace_policies(files, out),
            Event::PoliciesRolledBack { hash, by } => {
                let at = self.state.at;
                let history = &mut self.state.policy_history;
                history.took_back(hash.clone(), by.clone(), at);
            }
            Event::SinkUp { sink, ends, taken } => self.sink_up(sink, ends, taken),
            Event::SinkDown { sink, .. } => {
                self.state.sinks_up.remove(sink);
            }
            Event::ClusterUnreachable { cluster, reason } => {
                self.state
                    .unreachable
                    .insert(cluster.clone(), reason.clone());
            }
            Event::ClusterReachable { cluster } => self.cluster_back(cluster),
            Event::ClockStepped { .. } => self.set_clock_stepped(true),
            Event::ClockRestored => self.set_clock_stepped(false),
            Event::Tick => {}
        }
    }

    fn touch_stream(&mut self, stream: StreamId) {
        let readers = self.wiring.readers(stream).iter().copied();
        self.touched
            .extend(readers.map(Touched::by_reading_or_time));
    }

    fn touch_all(&mut self) {
        let pools = 0..self.wiring.pools().len() as u32;
        self.touched.extend(pools.map(Touched::by_event));
    }

    /// Moves the pools that are due from the timers to the touched ones.
    fn wake_due(&mut self) {
        let in_order = self.touched.is_sorted_by(|a, b| a.pool < b.pool);
        let known = if in_order { self.touched.len() } else { 0 };
        while let Some(pool) = self.timers.pop_due(self.state.at) {
            if let Some(state) = self.pool_mut(pool) {
                state.wake_at = None;
            }
            // Most often the reading that comes when the last one ends has touched it already.
            let touched = self.touched[..known].binary_search_by_key(&pool, |touched| touched.pool);
            if touched.is_err() {
                self.touched.push(Touched::by_reading_or_time(pool));
            }
        }
    }

    fn pool_mut(&mut self, id: u32) -> Option<&mut PoolState> {
        self.state.pools.at_mut(id)
    }

    fn start(&mut self, started: &Started) {
        self.start_accounts(started);
        self.state.term = self.state.term.max(started.term);
        self.state.seed = started.seed;
        self.state.sinks_up.clear();
        self.state.unreachable.clear();
        self.state.clock_stepped = false;
        for pool in self.state.pools.values_mut() {
            pool.restart(self.state.at);
            if planted!(self.plant, UnclaimedWrite) {
                pool.ledger.claim = Claim::Held;
            }
            if planted!(self.plant, ForgottenRun) {
                pool.course = crate::planner::Course::default();
            }
        }
        self.touch_all();
    }

    fn set_clock_stepped(&mut self, stepped: bool) {
        self.state.clock_stepped = stepped && !planted!(self.plant, ClockGrows);
        self.call_all();
        self.touch_all();
    }

    fn observe(&mut self, seen: &PoolObservation, out: &mut Effects) {
        let Some(id) = self.wiring.pool_id(&seen.pool) else {
            return;
        };
        let index = self.state.index;
        let planted_stale = planted!(self.plant, StaleCacheScale);
        let Some(pool) = self.pool_mut(id) else {
            return;
        };
        if planted_stale && let Some(known) = &mut pool.ledger.confirmed {
            known.version = known.version.min(seen.version);
        }
        let observed = pool.ledger.observe(seen);
        if observed == Observed::Outdated {
            return;
        }
        report_foreign(&seen.pool, observed, index, out);
        self.touched.push(Touched::by_event(id));
    }

    fn settle(&mut self, settled: &Settled, out: &mut Effects) {
        let Some(id) = self.wiring.pool_id(&settled.pool) else {
            return;
        };
        let (now, seed, term, index) = (
            self.state.at,
            self.state.seed,
            self.state.term,
            self.state.index,
        );
        let min_workers = self
            .wiring
            .pools()
            .get(id as usize)
            .map_or(0, |pool| pool.min_workers);
        let (dead, counts, empty) = (
            planted!(self.plant, DeadLoop),
            planted!(self.plant, RetryCounts),
            planted!(self.plant, EmptyStart),
        );
        let Some(pool) = self.pool_mut(id) else {
            return;
        };
        let draw = retry_draw(seed, &settled.pool, &pool.ledger);
        match settled.call {
            // An answer to a former term's call says nothing about this one's.
            Call::Claim { term: of } if of == term && pool.ledger.claim == Claim::InFlight => {
                let observed = pool.ledger.claimed(&settled.outcome, now, draw);
                if let Outcome::Accepted(seen) = &settled.outcome {
                    if empty && pool.ledger.desired.is_none() {
                        pool.ledger.desire(min_workers);
                    }
                    pool.adopt(seen, now, min_workers);
                }
                report_foreign(&settled.pool, observed, index, out);
            }
            Call::Scale {
                term: of,
                generation,
            } if of == term => {
                if !pool.ledger.settled(generation, &settled.outcome, now, draw) {
                    return;
                }
            }
            _ => return,
        }
        if dead && matches!(settled.outcome, Outcome::Failed { .. }) {
            pool.ledger.retry_at = Some(Timestamp::MAX);
        }
        if counts && matches!(settled.outcome, Outcome::Conflict | Outcome::Failed { .. }) {
            pool.ledger.generation += 1;
        }
        self.touched.push(Touched::by_event(id));
    }

    fn replace_fleet(&mut self, file: &PackedFile, out: &mut Effects) {
        let Some(file) = file.unpack() else {
            return self.refuse_packed(&file.path, out);
        };
        match Fleet::parse(&file) {
            Ok(fleet) => {
                self.fleet = fleet;
                self.state.fleet = Some(file);
                self.replaced = true;
            }
            Err(diagnostics) => self.refuse_file("fleet_refused", &diagnostics, out),
        }
    }

    fn replace_policies(&mut self, files: &[PackedFile], out: &mut Effects) {
        let mut unpacked = Vec::with_capacity(files.len());
        for file in files {
            let Some(file) = file.unpack() else {
                return self.refuse_packed(&file.path, out);
            };
            unpacked.push(file);
        }
        match PolicySet::compile(&unpacked) {
            Ok(policies) => {
                self.policies = policies;
                self.remember_policies(unpacked);
                self.replaced = true;
            }
            Err(diagnostics) => self.refuse_file("policies_refused", &diagnostics, out),
        }
    }

    /// The set in force before becomes the way back; the same set again only ends a rollback.
    fn remember_policies(&mut self, files: Vec<SourceFile>) {
        let (index, at) = (self.state.index, self.state.at);
        let history = &mut self.state.policy_history;
        if history.since_index != 0 && self.state.policies == files {
            history.rolled_back = None;
            return;
        }
        history.replaced(&self.state.policies, index, at);
        self.state.policies = files;
    }

    fn refuse_packed(&self, path: &str, out: &mut Effects) {
        let detail = format!("{path}: the journaled bytes are no packed text");
        let cause = self.cause("daemon", "the set in force stays");
        out.actions.push(Action::Refuse {
            pool: None,
            reason: "file_unreadable",
            detail,
            cause,
        });
    }

    /// Files are checked before they are journaled; a later core may still refuse one.
    fn refuse_file(&self, reason: &'static str, diagnostics: &[Diagnostic], out: &mut Effects) {
        let detail = diagnostics
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ");
        let cause = self.cause("daemon", "the set in force stays");
        out.actions.push(Action::Refuse {
            pool: None,
            reason,
            detail,
            cause,
        });
    }

    fn cause(&self, by: &str, why: &str) -> Cause {
        Cause {
            index: self.state.index,
            by: by.into(),
            why: why.into(),
        }
    }

    /// Rebuilds what follows from fleet and policies. Pools that left the fleet are forgotten;
    /// their replicas stay as they are.
    fn rewire(&mut self) {
        let fleet = &self.fleet;
        self.state.pools.follow(fleet.pools(), self.state.at);
        self.wiring = Wiring::new(fleet, &self.policies, &mut self.state.board);
        self.regroup();
        self.calendars.rewire(&self.policies, self.state.at);
        self.orders = self.current_orders();
        self.orders_stale = true;
        self.most.clear();
        let wiring = &self.wiring;
        self.state
            .board
            .mark_read(|stream| !wiring.readers(stream).is_empty());
        for (id, state) in self.state.pools.values_mut().enumerate() {
            state.keep_memories(&self.policies, self.wiring.rules(id as u32));
        }
        let due = self.state.pools.iter().enumerate();
        let due = due.filter_map(|(id, (_, state))| Some((state.wake_at?, id as u32)));
        self.timers = Timers::new(self.wiring.pools().len(), due);
        let metered = self.wiring.metered();
        self.state.draws.retain(|site, _| metered.contains(site));
        for site in metered.clone() {
            self.record_draw(&site);
        }
    }

    fn sink_up(&mut self, sink: &Arc<str>, ends: &[StreamEnd], taken: &[StreamEnd]) {
        self.state.sinks_up.insert(sink.clone());
        for end in ends {
            // A stream of a federation that this journal never heard of goes on where it is.
            let federation = self
                .state
                .federations
                .entry(end.federation.clone())
                .or_default();
            let taken = taken
                .iter()
                .find(|taken| taken.federation == end.federation);
            federation.resume(end, taken, self.state.term);
        }
    }

    /// The pools, and what is looked at for one of them.
    fn parts(&mut self, id: u32) -> (&mut Pools, &Wiring, Context<'_>) {
        let context = context!(self, id, None);
        (&mut self.state.pools, &self.wiring, context)
    }

    /// The whole way of one pool that is planned alone, or the first half of one that is planned with others.
    fn settle_pool(&mut self, touched: Touched, out: &mut Effects) {
        let id = touched.pool;
        #[cfg(feature = "plant")]
        if self.blocked(id) {
            return;
        }
        if let Some(group) = self.coordination.group(id) {
            return self.meet(id, group);
        }
        let (pools, wiring, context) = self.parts(id);
        let (Some(pool), Some(state)) = (wiring.pools().get(id as usize), pools.at_mut(id)) else {
            return;
        };
        let governing = wiring.rules(id);
        if !touched.by_event
            && let Some(wake_at) = state.stays(pool, governing, &context)
        {
            debug_assert!(state.would_stay(pool, governing, &context, wake_at));
            return self.wake(id, wake_at);
        }
        let settled = state.settle(pool, governing, &context, out);
        self.follow_up(id, settled, out);
    }

    /// Wakes a pool at `at`, unless it is woken earlier.
    fn wake(&mut self, id: u32, at: Option<Timestamp>) {
        if let (Some(at), Some(state)) = (at, self.state.pools.at_mut(id))
            && state.wake_at.is_none_or(|known| at < known)
        {
            state.wake_at = Some(at);
            self.timers.set(id, at);
        }
    }

    /// What settling a pool asks of the engine: its timer, its site's events, its write.
    fn follow_up(&mut self, id: u32, settled: pools::Settled, out: &mut Effects) {
        self.wake(id, settled.wake_at);
        if settled.site_touched
            && let Some(pool) = self.wiring.pools().get(id as usize)
        {
            let (federation, site) = (federation_of(pool), pool.site.clone());
            self.record_draw(&site);
            self.settle_site(&federation, &site, settled.cause, out);
        }
        self.scales.extend(settled.scale);
        if self.coordination.is_metered(id) {
            self.metered.push(id);
        }
    }

    /// A cluster answers again: its pools need not wait out what they were postponed for.
    fn cluster_back(&mut self, cluster: &Arc<str>) {
        self.state.unreachable.remove(cluster);
        for (id, pool) in self.fleet.pools().iter().enumerate() {
            let behind = self
                .fleet
                .cluster_of(pool)
                .is_some_and(|known| known.name == *cluster);
            if let Some(state) = self.state.pools.at_mut(id as u32).filter(|_| behind) {
                state.ledger.hurry();
                self.touched.push(Touched::by_event(id as u32));
            }
        }
    }

    /// The planted bug of a loop that waits for one pool's start before it looks at the next.
    #[cfg(feature = "plant")]
    fn blocked(&mut self, id: u32) -> bool {
        if !planted!(self.plant, BlockingStart) {
            return false;
        }
        let starting = |(other, (_, pool)): (usize, (&Arc<str>, &PoolState))| {
            let ready = pool.ledger.confirmed.map_or(0, |known| known.ready);
            other != id as usize && pool.ledger.desired.is_some_and(|wanted| wanted > ready)
        };
        if !self.state.pools.iter().enumerate().any(starting) {
            return false;
        }
        let again = self.state.at + sunward_policies::time::Span::from_secs(10);
        let Some(pool) = self.pool_mut(id) else {
            return true;
        };
        pool.disturb();
        if pool.wake_at.is_none() {
            pool.wake_at = Some(again);
            self.timers.set(id, again);
        }
        true
    }

    /// In debug builds the invariants are checked after every step.
    fn debug_check(&self) {
        #[cfg(debug_assertions)]
        {
            let broken = crate::invariants::check(self);
            debug_assert!(broken.is_empty(), "invariants broken: {broken:?}");
        }
    }
}

fn report_foreign(pool: &Arc<str>, observed: Observed, index: u64, out: &mut Effects) {
    let Observed::Foreign { wanted, from } = observed else {
        return;
    };
    out.actions.push(Action::Refuse {
        pool: Some(pool.clone()),
        reason: "foreign_change",
        detail: format!("something else changed the wanted workers from {from} to {wanted}"),
        cause: Cause {
            index,
            by: "observation".into(),
            why: "not written by this daemon".into(),
        },
    });
}
