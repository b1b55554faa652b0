//! Sites: what their pools add up to, and what their federations are told about it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sunward_policies::time::Span;

use super::Engine;
use crate::action::{Cause, Effects};
use crate::fleet::Pool;
use crate::rounds::{Issuer, NO_FEDERATION, Power};

/// How long the participants of a site have to come down to a lower share of training power.
pub const POWER_WITHIN: Span = Span::from_secs(10);

impl Engine {
    /// After a new fleet: sites that changed their federation, or are gone, are told so.
    pub(super) fn settle_all_sites(&mut self, out: &mut Effects) {
        let known = self
            .state
            .federations
            .iter()
            .flat_map(|(federation, known)| {
                known
                    .sites
                    .keys()
                    .map(move |site| (federation.clone(), site.clone()))
            });
        let now = self
            .fleet
            .pools()
            .iter()
            .map(|pool| (federation_of(pool), pool.site.clone()));
        let all: BTreeSet<(Arc<str>, Arc<str>)> = known.chain(now).collect();
        for (federation, site) in all {
            self.settle_site(&federation, &site, None, out);
        }
    }

    /// Sums up the pools of one site in one federation, and says what changed.
    pub(super) fn settle_site(
        &mut self,
        federation: &Arc<str>,
        site: &Arc<str>,
        cause: Option<Cause>,
        out: &mut Effects,
    ) {
        let (mut wanted, mut ready) = (0_u32, 0_u32);
        for pool in self.fleet.pools_of_site(site) {
            if pool.federation.as_deref().unwrap_or(NO_FEDERATION) != federation.as_ref() {
                continue;
            }
            let Some(state) = self.state.pools.get(&pool.name) else {
                continue;
            };
            wanted = wanted.saturating_add(state.ledger.desired.unwrap_or(0));
            ready = ready.saturating_add(state.ledger.confirmed.map_or(0, |known| known.ready));
        }
        let quiet = wanted == 0 && !self.state.federations.contains_key(federation);
        if quiet {
            return;
        }
        let cause = cause.unwrap_or_else(|| self.cause("daemon", "the pool was seen so"));
        let issuer = Issuer {
            term: self.state.term,
            at: self.state.at,
            cause: &cause,
            #[cfg(feature = "plant")]
            plant: self.plant,
        };
        self.state
            .federations
            .entry(federation.clone())
            .or_default()
            .settle_site(federation, site, wanted, ready, &issuer, out);
    }

    /// The workers of a site are held to a share of their training power, and its federations are told so.
    pub(super) fn set_site_power(
        &mut self,
        site: &Arc<str>,
        percent: u8,
        cause: &Cause,
        out: &mut Effects,
    ) {
        let before = self.state.power_percent.get(site).copied().unwrap_or(100);
        if percent == before {
            return;
        }
        if percent == 100 {
            self.state.power_percent.remove(site);
        } else {
            self.state.power_percent.insert(site.clone(), percent);
        }
        self.record_draw(site);
        self.metered.extend(self.fleet.ids_of_site(site));
        let pools = self.fleet.pools_of_site(site);
        let federations: BTreeSet<Arc<str>> = pools.map(|pool| federation_of(pool)).collect();
        let power = Power {
            percent,
            deadline: (percent < before).then(|| self.state.at + POWER_WITHIN),
        };
        let issuer = Issuer {
            term: self.state.term,
            at: self.state.at,
            cause,
            #[cfg(feature = "plant")]
            plant: self.plant,
        };
        for federation in federations {
            self.state
                .federations
                .entry(federation.clone())
                .or_default()
                .limit_power(&federation, site, power, &issuer, out);
        }
    }

    /// Notes what our workers at a site draw from now on, where a policy adds it back to a meter's value.
    pub(super) fn record_draw(&mut self, site: &Arc<str>) {
        if !self.wiring.metered().contains(site) {
            return;
        }
        let kw = self.fleet.pools_of_site(site).map(|pool| {
            let known = self.state.pools.get(&pool.name);
            let (_, ready) = known.and_then(|state| state.told).unwrap_or((0, 0));
            f64::from(ready) * pool.training_kw
        });
        let percent = self.state.power_percent.get(site).copied().unwrap_or(100);
        let kw = kw.sum::<f64>() * f64::from(percent) / 100.0;
        self.state
            .draws
            .entry(site.clone())
            .or_default()
            .record(self.state.at, kw);
    }
}

/// The federation whose members hear of a pool.
pub(super) fn federation_of(pool: &Pool) -> Arc<str> {
    pool.federation
        .clone()
        .unwrap_or_else(|| NO_FEDERATION.into())
}
