//! The short way for a reading that flips nothing, which is what most readings are.
//!
//! A pool whose last settling changed nothing stays as it is for as long as every rule sees the
//! same (its [`situation`](sunward_policies::rules::Rule::situation)), no timer of its rules, plan or
//! ledger runs out, and nothing but readings and the time touches it. Debug builds settle it in
//! full all the same, and compare.

use std::sync::Arc;

use smallvec::SmallVec;
use sunward_policies::facts::Facts;
use sunward_policies::time::Timestamp;

use super::earliest::Earliest;
use super::readings::Readings;
use super::{Context, Governing, PoolState, Settled};
use crate::action::Effects;
use crate::derived::Derived;
use crate::fleet::Pool;

/// What a settling that changed nothing was based on.
#[derive(Clone, Debug)]
pub(super) struct Calm {
    /// When time alone may change something, whatever the streams say.
    until: Option<Timestamp>,
    /// What each rule saw, in the wiring's order.
    situations: SmallVec<[u64; 4]>,
}

impl PoolState {
    /// The pool was settled and nothing changed; its own timers run out at `until`.
    pub(super) fn calm_down(
        &mut self,
        pool: &Pool,
        governing: &[Governing],
        context: &Context<'_>,
        until: Option<Timestamp>,
    ) {
        let mut situations = SmallVec::new();
        let mut ignored = Earliest::after(context.now);
        let all = self.look(pool, governing, context, &mut ignored, |situation| {
            situations.push(situation);
            true
        });
        self.calm = Derived(all.then_some(Calm { until, situations }));
    }

    /// Something else happened than a settling: what the last one was based on no longer counts.
    #[cfg(feature = "plant")]
    pub(crate) fn disturb(&mut self) {
        self.calm = Derived(None);
    }

    /// When to settle it next, if nothing has changed for this pool that only readings and the time
    /// have touched.
    pub fn stays(
        &self,
        pool: &Pool,
        governing: &[Governing],
        context: &Context<'_>,
    ) -> Option<Option<Timestamp>> {
        let calm = self.calm.0.as_ref()?;
        if calm.until.is_some_and(|until| until <= context.now) {
            return None;
        }
        let mut wake = Earliest::after(context.now);
        wake.add(calm.until);
        let mut known = calm.situations.iter();
        let same = self.look(pool, governing, context, &mut wake, |situation| {
            known.next() == Some(&situation)
        });
        same.then_some(wake.at)
    }

    /// True where settling in full says the same as [`PoolState::stays`].
    pub fn would_stay(
        &self,
        pool: &Arc<Pool>,
        governing: &[Governing],
        context: &Context<'_>,
        wake_at: Option<Timestamp>,
    ) -> bool {
        let mut other = self.clone();
        let mut out = Effects::default();
        let settled = other.settle(pool, governing, context, &mut out);
        let same = Settled {
            wake_at,
            own_wake_at: self.calm.0.as_ref().and_then(|calm| calm.until),
            ..Settled::default()
        };
        settled == same && out == Effects::default() && other == *self
    }

    /// Hands each rule's situation to `each`, until one has none or `each` says no.
    fn look(
        &self,
        pool: &Pool,
        governing: &[Governing],
        context: &Context<'_>,
        next: &mut Earliest,
        mut each: impl FnMut(u64) -> bool,
    ) -> bool {
        let facts = self.facts(pool);
        let mut readings = Readings::default();
        for governing in governing {
            let Some(policy) = context.policies.policies().get(governing.policy) else {
                continue;
            };
            if policy.score.is_some() || !policy.calendars.is_empty() {
                return false;
            }
            readings.read(policy, &governing.streams, pool, context, next);
            // A rule that looks ahead or counts readings has no situation.
            let facts = Facts::present(context.now, readings.as_slice(), facts);
            for rule in &policy.rules {
                if !rule.rule.situation(&facts).is_some_and(&mut each) {
                    return false;
                }
            }
        }
        true
    }
}
