//! All pools of a fleet, by id and by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::time::Timestamp;

use super::PoolState;
use crate::fleet::Pool;

/// All pools of the fleet, in the order of their names, which is the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pools(Vec<(Arc<str>, PoolState)>);

impl Pools {
    /// The pool of that name.
    pub fn get(&self, name: &str) -> Option<&PoolState> {
        let found = self
            .0
            .binary_search_by(|(known, _)| known.as_ref().cmp(name))
            .ok()?;
        Some(&self.0[found].1)
    }

    /// The pool of that id.
    pub fn at(&self, id: u32) -> Option<&PoolState> {
        self.0.get(id as usize).map(|(_, pool)| pool)
    }

    /// The pool of that id.
    pub fn at_mut(&mut self, id: u32) -> Option<&mut PoolState> {
        self.0.get_mut(id as usize).map(|(_, pool)| pool)
    }

    /// Every pool with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &PoolState)> {
        self.0.iter().map(|(name, pool)| (name, pool))
    }

    /// Every pool.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut PoolState> {
        self.0.iter_mut().map(|(_, pool)| pool)
    }

    /// Keeps the pools of `fleet`, in its order, and makes those that are new.
    pub fn follow(&mut self, fleet: &[Arc<Pool>], now: Timestamp) {
        let mut old: BTreeMap<Arc<str>, PoolState> =
            std::mem::take(&mut self.0).into_iter().collect();
        self.0 = fleet
            .iter()
            .map(|pool| {
                let mut state = old.remove(&pool.name).unwrap_or_default();
                state.retarget(pool, now);
                (pool.name.clone(), state)
            })
            .collect();
    }
}

impl std::ops::Index<&str> for Pools {
    type Output = PoolState;

    /// Panics on a name that is not in the fleet: for tests and tools.
    fn index(&self, name: &str) -> &PoolState {
        self.get(name).expect("the pool is in the fleet")
    }
}
