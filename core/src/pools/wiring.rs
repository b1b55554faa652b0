//! Who reads what: derived from fleet and policies, rebuilt when either is replaced.

use std::collections::BTreeSet;
use std::sync::Arc;

use sunward_policies::policy::{BindingScope, PolicySet, SignalBinding};

use crate::board::{Board, StreamId};
use crate::fleet::{Fleet, Pool, check::governs};
use crate::signal::{Scope, StreamKey};

/// A policy as it governs one pool.
#[derive(Clone, Debug)]
pub struct Governing {
    /// Index in the policy set.
    pub policy: usize,
    /// The stream of each of its signals; `None` where the board had no room.
    pub streams: Vec<Option<StreamId>>,
}

/// Derived from fleet and policies: who reads what.
#[derive(Debug, Default)]
pub struct Wiring {
    pools: Vec<Arc<Pool>>,
    governing: Vec<Vec<Governing>>,
    readers: Vec<Vec<u32>>,
    /// Sites where a policy adds our own draw back to a meter's value.
    metered: BTreeSet<Arc<str>>,
}

impl Wiring {
    /// Connects every pool with the policies that govern it and the streams that they read.
    pub fn new(fleet: &Fleet, policies: &PolicySet, board: &mut Board) -> Wiring {
        let mut wiring = Wiring {
            pools: fleet.pools().to_vec(),
            ..Wiring::default()
        };
        for (id, pool) in fleet.pools().iter().enumerate() {
            let mut governing = Vec::new();
            for (index, policy) in policies.policies().iter().enumerate() {
                if !governs(policy, pool) {
                    continue;
                }
                if policy.signals.iter().any(|signal| signal.add_back_own_draw) {
                    wiring.metered.insert(pool.site.clone());
                }
                let streams = policy
                    .signals
                    .iter()
                    .map(|signal| {
                        let stream = board.intern(&stream_key(signal, pool, fleet)?)?;
                        wiring.connect(stream, id as u32);
                        Some(stream)
                    })
                    .collect();
                governing.push(Governing {
                    policy: index,
                    streams,
                });
            }
            wiring.governing.push(governing);
        }
        wiring
    }

    fn connect(&mut self, stream: StreamId, pool: u32) {
        if self.readers.len() <= stream.index() {
            self.readers.resize(stream.index() + 1, Vec::new());
        }
        let readers = &mut self.readers[stream.index()];
        if readers.last() != Some(&pool) {
            readers.push(pool);
        }
    }

    /// Pools in the order of their ids, which is the order of their names.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// The id of the pool of that name.
    pub fn pool_id(&self, name: &str) -> Option<u32> {
        let found = self
            .pools
            .binary_search_by(|pool| pool.name.as_ref().cmp(name));
        found.ok().map(|index| index as u32)
    }

    /// The sites where a policy adds our own draw back to a meter's value.
    pub fn metered(&self) -> &BTreeSet<Arc<str>> {
        &self.metered
    }

    /// The pools that a stream touches.
    pub fn readers(&self, stream: StreamId) -> &[u32] {
        self.readers.get(stream.index()).map_or(&[], Vec::as_slice)
    }

    /// The policies that govern a pool.
    pub fn rules(&self, pool: u32) -> &[Governing] {
        self.governing.get(pool as usize).map_or(&[], Vec::as_slice)
    }
}

/// The stream that a policy's signal means for a pool; `None` where its site has no such zone.
pub fn stream_key(signal: &SignalBinding, pool: &Pool, fleet: &Fleet) -> Option<StreamKey> {
    let scope = match &signal.scope {
        BindingScope::Site => Scope::Site(pool.site.clone()),
        BindingScope::Zone { scheme } => {
            let code = fleet.site(&pool.site)?.zones.get(scheme.as_str())?.clone();
            Scope::Zone {
                scheme: scheme.as_str().into(),
                code,
            }
        }
    };
    Some(StreamKey {
        source: signal.source.as_str().into(),
        kind: signal.kind,
        scope,
        basis: signal.basis,
    })
}
