//! Overrides and grid events: taken in, ended, and carried to the pools that they act on.

use std::sync::Arc;

use super::{Engine, Touched};
use crate::action::{Action, Cause, Effects, Reply};
use crate::grid_event::{GRID_EVENTS_MAX, GridEvent, GridEventKind, KnownGridEvent};
use crate::orders::{Orders, SiteOrder};
use crate::overrides::{OVERRIDE_LASTS_MAX, OVERRIDE_TEXT_MAX, OVERRIDES_MAX, Override};
use crate::pools::Pin;
use crate::site_limit::{Cut, Member, cut};
use sunward_policies::policy::OnDispatch;

impl Engine {
    /// An override is set, or one of the same id is replaced; it ends at its expiry at the latest.
    pub(super) fn set_override(&mut self, set: &Override, out: &mut Effects) {
        let now = self.state.at;
        let texts = [set.id.as_ref(), &set.owner, &set.reason];
        let refusal = if set.expires_at <= now {
            Some((
                "override_expired",
                format!("it expired at {}", set.expires_at),
            ))
        } else if texts.iter().any(|text| text.len() > OVERRIDE_TEXT_MAX) {
            let words =
                format!("its id, owner and reason have at most {OVERRIDE_TEXT_MAX} bytes each");
            Some(("override_too_long", words))
        } else if !self.state.overrides.contains_key(&set.id)
            && self.state.overrides.len() >= OVERRIDES_MAX
        {
            let words = format!(
                "{OVERRIDES_MAX} overrides are in force, which is the most; clear one first"
            );
            Some(("overrides_full", words))
        } else {
            None
        };
        if let Some((reason, words)) = refusal {
            let id = set.id.get(..OVERRIDE_TEXT_MAX).unwrap_or(&set.id);
            return self.refuse(
                reason,
                format!("override {id}: {words}"),
                "an operator set it",
                out,
            );
        }
        let mut set = set.clone();
        set.expires_at = set.expires_at.min(now + OVERRIDE_LASTS_MAX);
        self.state.overrides.insert(set.id.clone(), set);
        self.orders_stale = true;
    }

    /// An override ends before its expiry.
    pub(super) fn clear_override(&mut self, id: &Arc<str>) {
        self.orders_stale |= self.state.overrides.remove(id).is_some();
    }

    /// A grid event, or a new revision of one; a lower revision changes nothing.
    pub(super) fn accept_grid_event(
        &mut self,
        event: &GridEvent,
        position: u32,
        out: &mut Effects,
    ) {
        let key = (event.source.clone(), event.id.clone());
        let known = self.state.grid_events.get(&key);
        let revision = known.map(|known| known.event.revision);
        let reply = match revision {
            Some(revision) if event.revision < revision => Some(Reply::Superseded),
            None if !self.has_room_for_event() => Some(Reply::BoardFull),
            _ => None,
        };
        if let Some(reply) = reply {
            return out.actions.push(Action::Reply { position, reply });
        }
        if event.kind == GridEventKind::Test {
            let until = event
                .ends_at
                .map_or_else(String::new, |end| format!(" to {end}"));
            let words = format!(
                "test event {} of {} for {} from {}{until}: nothing is changed",
                event.id, event.source, event.scope, event.starts_at
            );
            self.refuse(
                "grid_event_test",
                words,
                "a test changes nothing but the log",
                out,
            );
        }
        let known = KnownGridEvent {
            event: event.clone(),
            received_at: self.state.at,
        };
        self.state.grid_events.insert(key, known);
        self.orders_stale = true;
    }

    /// True if another grid event may be kept. Where there is no room, the one that has been over for longest goes.
    fn has_room_for_event(&mut self) -> bool {
        if self.state.grid_events.len() < GRID_EVENTS_MAX {
            return true;
        }
        let now = self.state.at;
        let over = self.state.grid_events.iter().filter_map(|(key, known)| {
            let over = known.over_at().filter(|over| *over <= now)?;
            Some((over, key.clone()))
        });
        let oldest = over.min();
        oldest.is_some_and(|(_, key)| self.state.grid_events.remove(&key).is_some())
    }

    fn refuse(&self, reason: &'static str, detail: String, why: &str, out: &mut Effects) {
        out.actions.push(Action::Refuse {
            pool: None,
            reason,
            detail,
            cause: self.cause("daemon", why),
        });
    }

    /// What acts now.
    pub(super) fn current_orders(&self) -> Orders {
        let (overrides, events) = (&self.state.overrides, &self.state.grid_events);
        Orders::new(&self.fleet, overrides, events, self.state.at)
    }

    /// Ends what is over and begins what is due; pools on which something else acts than before are touched.
    pub(super) fn advance_orders(&mut self, out: &mut Effects) {
        let now = self.state.at;
        let due = self.orders.next().is_some_and(|next| next <= now);
        let stale = std::mem::take(&mut self.orders_stale);
        if !(due || stale) {
            return;
        }
        if planted!(self.plant, OverrideThatNeverEnds) {
            for known in self.state.overrides.values_mut() {
                known.expires_at = known.expires_at.max(now + OVERRIDE_LASTS_MAX);
            }
        }
        self.state
            .overrides
            .retain(|_, known| now < known.expires_at);
        let forgotten = |known: &KnownGridEvent| known.forgotten_at().is_some_and(|at| at <= now);
        self.state.grid_events.retain(|_, known| !forgotten(known));
        let orders = self.current_orders();
        let pools = self.wiring.pools().len();
        let differ = orders.differ(&self.orders, pools);
        self.touched.extend(differ.map(Touched::by_event));
        self.orders = orders;
        let orders = &self.orders;
        let held = self.state.power_percent.keys();
        let left: Vec<Arc<str>> = held
            .filter(|site| orders.of_site(site).is_none())
            .cloned()
            .collect();
        let cause = self.cause("daemon", "no grid event acts on the site any more");
        for site in left {
            self.set_site_power(&site, 100, &cause, out);
        }
        self.most.clear();
    }

    /// The site of a pool, if grid events act on it: its pools are then looked at together.
    pub(super) fn acting_site(&self, pool: u32) -> Option<Arc<str>> {
        self.orders.of(pool)?.site.as_ref()?;
        let pool = self.wiring.pools().get(pool as usize)?;
        Some(pool.site.clone())
    }

    /// Judges all pools of a site that grid events act on, works out what is left to each, and settles them.
    pub(super) fn settle_acting_site(&mut self, site: &Arc<str>, out: &mut Effects) {
        let Some(order) = self.orders.of_site(site).cloned() else {
            return;
        };
        let ids = self.fleet.ids_of_site(site);
        for id in &ids {
            self.most.remove(id);
            let (pools, wiring, context) = self.parts(*id);
            let (Some(pool), Some(state)) = (wiring.pools().get(*id as usize), pools.at_mut(*id))
            else {
                continue;
            };
            // A rule's first look at a pool says whether it runs: not before that is known.
            if state.ledger.desired.is_some() {
                state.judge(pool, wiring.rules(*id), &context);
            }
        }
        let dispatched = self.dispatch_tier(&order, &ids);
        let percent = if order.limits() {
            let cut = self.cut_site(&order, dispatched, &ids);
            self.most.extend(ids.iter().copied().zip(cut.most));
            cut.percent
        } else {
            dispatched.unwrap_or(100)
        };
        let cause = self.power_cause(&order);
        self.set_site_power(site, percent, &cause, out);
        for id in ids {
            self.settle_pool(Touched::by_event(id), out);
        }
    }

    /// The lowest power tier that the winning policies of a site's pools ask for during a dispatch.
    fn dispatch_tier(&self, order: &SiteOrder, ids: &[u32]) -> Option<u8> {
        order.dispatch.as_ref()?;
        let asks = ids
            .iter()
            .filter_map(|id| Some(self.state.pools.at(*id)?.ask));
        asks.filter(|ask| ask.pin == Pin::None)
            .filter_map(|ask| match ask.policy(&self.policies)?.on_dispatch {
                OnDispatch::PowerPercent(percent) => order.tier(percent),
                OnDispatch::Keep | OnDispatch::Release => None,
            })
            .min()
    }

    /// What the limits of a site leave to each of its pools.
    fn cut_site(&mut self, order: &SiteOrder, dispatched: Option<u8>, ids: &[u32]) -> Cut {
        let ceiling = match order.percent {
            Some(percent) => order.tier(percent),
            None => Some(100),
        };
        let ceiling = ceiling.map(|ceiling| ceiling.min(dispatched.unwrap_or(100)));
        let plans: Vec<(u32, u32, u32)> = ids
            .iter()
            .filter_map(|id| {
                let (pools, wiring, context) = self.parts(*id);
                let (pool, state) = (wiring.pools().get(*id as usize)?, pools.at(*id)?);
                let wanted = state.plan(pool, &context).target;
                Some((*id, state.ledger.desired.unwrap_or(0), wanted))
            })
            .collect();
        let members: Vec<Member<'_>> = plans
            .iter()
            .filter_map(|(id, current, wanted)| {
                Some(Member {
                    pool: self.wiring.pools().get(*id as usize)?,
                    current: *current,
                    wanted: *wanted,
                    score: self.state.pools.at(*id)?.ask.score,
                })
            })
            .collect();
        cut(order, ceiling, &members)
    }

    /// Why a site's power is what it is.
    fn power_cause(&self, order: &SiteOrder) -> Cause {
        let Some((source, id)) = order.limit.as_ref().or(order.dispatch.as_ref()) else {
            return self.cause("daemon", "no grid event acts on the site any more");
        };
        let words = format!("what acts on the site: event {id} of {source}");
        self.cause(&format!("grid_event/{id}"), &words)
    }
}
