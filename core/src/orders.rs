//! What acts on pools besides their policies: overrides of operators, and grid events.
//!
//! Derived from both and from the fleet, and worked out anew only at the instants at which one of them begins or ends:
//! judging looks up one entry per pool, and most pools have none.
//!
//! Emergencies and limits come before everything; then freeze, off and on, in that order. Among overrides of one effect
//! the one about the fewest pools names the reason, and for `on` gives the number of workers: a pool's before its
//! federation's or site's before the fleet's, then the one that was set later.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_policies::policy::{OnDispatch, Policy};
use sunward_policies::time::Timestamp;

use crate::fleet::{Fleet, Pool, Site};
use crate::grid_event::{GridEvent, GridEventKind, GridTarget, KnownGridEvent};
use crate::overrides::{Override, OverrideEffect, OverrideScope};
use crate::pools::Pin;
use crate::signal::Scope;

/// Names a grid event: its source and its id there.
pub(crate) type GridEventKey = (Arc<str>, Arc<str>);

/// What acts on one pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    /// Of the overrides.
    pub(crate) pin: Pin,
    /// The override that says so.
    pub(crate) by: Option<Arc<str>>,
    /// What grid events ask of its site.
    pub(crate) site: Option<Arc<SiteOrder>>,
}

impl Order {
    /// The pin of a pool whose winning policy is `policy`: an override's, or what the policy says about a dispatch.
    pub(crate) fn pin_with(&self, policy: Option<&Policy>) -> Pin {
        let Some(site) = self.site.as_deref().filter(|site| site.dispatch.is_some()) else {
            return self.pin;
        };
        if self.pin != Pin::None {
            return self.pin;
        }
        match policy.map(|policy| policy.on_dispatch) {
            Some(OnDispatch::Release) => Pin::Dispatch,
            Some(OnDispatch::PowerPercent(percent)) if site.tier(percent).is_none() => {
                Pin::Dispatch
            }
            Some(OnDispatch::PowerPercent(_) | OnDispatch::Keep) | None => Pin::None,
        }
    }
}

/// What the grid events that act on a site ask of it, all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SiteOrder {
    /// A limit or an emergency without a target: everything goes to its minimum.
    pub(crate) to_minimum: bool,
    /// The least power percentage that a limit or an emergency allows.
    pub(crate) percent: Option<u8>,
    /// The least power that a limit or an emergency allows, kW.
    pub(crate) kilowatts: Option<f64>,
    /// The limit or emergency that is named where one bites: emergencies first, then the lowest key.
    pub(crate) limit: Option<GridEventKey>,
    /// A dispatch.
    pub(crate) dispatch: Option<GridEventKey>,
    /// The site's power tiers.
    pub(crate) tiers: Vec<u8>,
}

impl SiteOrder {
    /// Takes in one more event that acts.
    fn add(
        &mut self,
        key: &GridEventKey,
        event: &GridEvent,
        known: &BTreeMap<GridEventKey, KnownGridEvent>,
    ) {
        match event.kind {
            GridEventKind::Test => {}
            GridEventKind::Dispatch => {
                self.dispatch.get_or_insert_with(|| key.clone());
            }
            GridEventKind::Limit | GridEventKind::Emergency => {
                match event.target {
                    None => self.to_minimum = true,
                    // The edge refuses what is no number; here it may not pass for no limit.
                    Some(GridTarget::Kilowatts(kw)) if !kw.is_finite() => self.to_minimum = true,
                    Some(GridTarget::Kilowatts(kw)) => {
                        self.kilowatts = Some(self.kilowatts.map_or(kw, |least| least.min(kw)));
                    }
                    Some(GridTarget::PowerPercent(percent)) => {
                        self.percent =
                            Some(self.percent.map_or(percent, |least| least.min(percent)));
                    }
                }
                let named = self.limit.as_ref().and_then(|key| known.get(key));
                let stronger = named.is_none_or(|named| {
                    event.kind == GridEventKind::Emergency
                        && named.event.kind != GridEventKind::Emergency
                });
                if stronger {
                    self.limit = Some(key.clone());
                }
            }
        }
    }

    /// True while a limit or an emergency acts.
    pub(crate) fn limits(&self) -> bool {
        self.limit.is_some()
    }

    /// The highest power tier of the site at or below `percent`.
    pub(crate) fn tier(&self, percent: u8) -> Option<u8> {
        self.tiers
            .iter()
            .copied()
            .filter(|tier| *tier <= percent)
            .max()
    }
}

/// Everything that acts at one instant.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// By pool; empty where nothing acts on any.
    pools: Vec<Option<Order>>,
    sites: BTreeMap<Arc<str>, Arc<SiteOrder>>,
    /// The first instant at which one of them begins or ends.
    next: Option<Timestamp>,
}

impl Orders {
    /// What acts on the pools of `fleet` at `now`.
    pub(crate) fn new(
        fleet: &Fleet,
        overrides: &BTreeMap<Arc<str>, Override>,
        events: &BTreeMap<GridEventKey, KnownGridEvent>,
        now: Timestamp,
    ) -> Orders {
        let next = overrides.values().map(|known| known.expires_at);
        let next = next.chain(events.values().flat_map(KnownGridEvent::instants));
        let mut orders = Orders {
            pools: Vec::new(),
            sites: site_orders(fleet, events, now),
            next: next.filter(|at| *at > now).min(),
        };
        let in_force = |known: &&Override| now < known.expires_at;
        let scopes = by_scope(overrides.values().filter(in_force));
        if !(scopes.is_empty() && orders.sites.is_empty()) {
            let pools = fleet.pools().iter();
            orders.pools = pools
                .map(|pool| order(pool, &scopes, &orders.sites))
                .collect();
        }
        orders
    }

    /// What acts on a pool.
    pub(crate) fn of(&self, pool: u32) -> Option<&Order> {
        self.pools.get(pool as usize)?.as_ref()
    }

    /// What acts on a site.
    pub(crate) fn of_site(&self, site: &str) -> Option<&Arc<SiteOrder>> {
        self.sites.get(site)
    }

    /// When one of them begins or ends.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// The pools, of so many, on which something else acts than before.
    pub(crate) fn differ<'a>(
        &'a self,
        before: &'a Orders,
        pools: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let pools = if self.pools.is_empty() && before.pools.is_empty() {
            0
        } else {
            pools
        };
        (0..pools as u32).filter(|pool| self.of(*pool) != before.of(*pool))
    }
}

/// The overrides in force, each scope's strongest first.
type Scopes<'a> = BTreeMap<&'a OverrideScope, Vec<&'a Override>>;

fn by_scope<'a>(overrides: impl Iterator<Item = &'a Override>) -> Scopes<'a> {
    let mut scopes = Scopes::new();
    for known in overrides {
        scopes.entry(&known.scope).or_default().push(known);
    }
    scopes
}

/// What acts on one pool.
fn order(
    pool: &Pool,
    scopes: &Scopes<'_>,
    sites: &BTreeMap<Arc<str>, Arc<SiteOrder>>,
) -> Option<Order> {
    let site = sites.get(&pool.site).cloned();
    let federation = pool.federation.clone().map(OverrideScope::Federation);
    let about = [
        Some((2_u8, OverrideScope::Pool(pool.name.clone()))),
        federation.map(|scope| (1, scope)),
        Some((1, OverrideScope::Site(pool.site.clone()))),
        Some((0, OverrideScope::Fleet)),
    ];
    let about = about.into_iter().flatten();
    let found = about.flat_map(|(narrow, scope)| {
        let found = scopes.get(&scope).cloned().unwrap_or_default();
        found.into_iter().map(move |known| (narrow, known))
    });
    let strongest = found.max_by(|(a_narrow, a), (b_narrow, b)| {
        let rank = |known: &Override| strength(known.effect);
        rank(a)
            .cmp(&rank(b))
            .then(a_narrow.cmp(b_narrow))
            .then(a.set_at.cmp(&b.set_at))
            .then(b.id.cmp(&a.id))
    });
    if strongest.is_none() && site.is_none() {
        return None;
    }
    Some(Order {
        pin: strongest.map_or(Pin::None, |(_, known)| match known.effect {
            OverrideEffect::On { workers } => Pin::On { workers },
            OverrideEffect::Off => Pin::Off,
            OverrideEffect::Freeze => Pin::Frozen,
        }),
        by: strongest.map(|(_, known)| known.id.clone()),
        site,
    })
}

/// Freeze beats off, and off beats on.
fn strength(effect: OverrideEffect) -> u8 {
    match effect {
        OverrideEffect::On { .. } => 0,
        OverrideEffect::Off => 1,
        OverrideEffect::Freeze => 2,
    }
}

fn site_orders(
    fleet: &Fleet,
    events: &BTreeMap<GridEventKey, KnownGridEvent>,
    now: Timestamp,
) -> BTreeMap<Arc<str>, Arc<SiteOrder>> {
    let mut found: BTreeMap<Arc<str>, SiteOrder> = BTreeMap::new();
    let acting = events
        .iter()
        .filter(|(_, known)| known.event.kind != GridEventKind::Test && known.event.acts(now));
    for (key, known) in acting {
        let mut add = |site: &Site| {
            let order = found.entry(site.name.clone()).or_insert_with(|| SiteOrder {
                tiers: site.power_tiers.clone(),
                ..SiteOrder::default()
            });
            order.add(key, &known.event, events);
        };
        match &known.event.scope {
            Scope::Site(name) => {
                if let Some(site) = fleet.site(name) {
                    add(site);
                }
            }
            Scope::Zone { scheme, code } => {
                let lies = |site: &&Site| site.zones.get(scheme) == Some(code);
                fleet.sites().filter(lies).for_each(add);
            }
        }
    }
    found
        .into_iter()
        .map(|(site, order)| (site, Arc::new(order)))
        .collect()
}
