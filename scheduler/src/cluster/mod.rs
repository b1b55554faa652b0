//! The clusters of the fleet: a connection and a watch for each, projected to observations.
//!
//! Nothing here decides: an object becomes a small [`PoolObservation`], and only a changed one
//! becomes an event. Kubernetes types end here. Each cluster has a task of its own, which never
//! ends by itself; one that hangs or fails delays no other.
//!
//! - **What is watched**: the MachineDeployments of each namespace that pools live in, so that a
//!   Role per namespace is enough. With more than [`WATCHED_NAMESPACES_MAX`] namespaces in one
//!   cluster it is one watch over all of them, which needs a ClusterRole
//!   (`deploy/rbac/management-cluster.yaml` has both).
//! - **Which version**: v1beta2 of `cluster.x-k8s.io` when it is served, else v1beta1; looked for
//!   at each connection, and once a minute while v1beta1 is spoken.
//! - **When a cluster is unreachable**: when connecting, a watch, or a small list every 2 s has
//!   failed for 3 s (a server that hangs: at most 10 s). Told once, and once when all of them
//!   work again. A connection that failed so long is made anew from the kubeconfig as it then is,
//!   and everything is listed again.
//!
//! [`PoolObservation`]: sunward_core::event::PoolObservation

mod cache;
mod call;
mod connect;
mod health;
#[cfg(test)]
pub(crate) mod mock;
mod object;
mod task;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, btree_map};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sunward_core::fleet::{Cluster, Fleet, Pool, Target};
use tokio::task::AbortHandle;

pub(crate) use self::cache::Targets;
pub(crate) use self::call::{Failure, Object, PatchKind};
#[cfg(test)]
pub(crate) use self::connect::Connection;
use self::connect::Connector;
pub(crate) use self::object::{MachineDeployment, count, parse_version};
pub(crate) use self::task::Shared;
use self::task::Task;
use crate::engine_handle::EngineHandle;

pub use self::call::{ANSWER_MAX, CALL_TIMEOUT, FIELD_MANAGER};
pub use self::connect::{CONNECT_TIMEOUT, CREDENTIALS_TIMEOUT, WRITE_TIMEOUT};
pub use self::object::{
    ApiVersion, CHANGED_AT_ANNOTATION, CLAIM_ANNOTATION, COMMAND_ANNOTATION, GROUP, NotComparable,
    PLURAL, Snapshot, TERM_ANNOTATION,
};

/// Most namespaces of one cluster that are watched one by one.
pub const WATCHED_NAMESPACES_MAX: usize = 64;

/// Told a cluster's name and whether it can be reached, or why not: `Err` when a cluster is first
/// met, then each change. A cluster that leaves the fleet is told as `Ok` once.
pub type HealthCallback = Arc<dyn Fn(&str, Result<(), String>) + Send + Sync>;

/// Where a pool's MachineDeployment is.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) cluster: Arc<Shared>,
    pub(crate) namespace: Arc<str>,
    pub(crate) machine_deployment: Arc<str>,
}

/// What a cluster's task was made from; another plan needs another task.
#[derive(Clone, PartialEq, Eq)]
struct Plan {
    cluster: Cluster,
    targets: Arc<Targets>,
}

struct Running {
    plan: Plan,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The clusters of the fleet in force. Their tasks end when this is dropped.
pub struct Clusters {
    engine: EngineHandle,
    on_health: HealthCallback,
    running: Mutex<BTreeMap<Arc<str>, Running>>,
    seed: u64,
}

impl Clusters {
    /// No cluster yet; call [`reconfigure`](Self::reconfigure) with the fleet.
    pub fn new(engine: EngineHandle, on_health: HealthCallback) -> Clusters {
        Clusters {
            engine,
            on_health,
            running: Mutex::default(),
            // Spreads retries only; nothing that is decided depends on it.
            seed: RandomState::new().build_hasher().finish(),
        }
    }

    /// Follows this fleet from now on: a cluster whose connection and pools are unchanged goes on
    /// undisturbed, any other gets a new task, which tells each of its pools once.
    ///
    /// Call it after the engine has taken the fleet in, or the observations of pools that it does
    /// not know yet are lost. Returns at once. Must be called on the runtime.
    pub fn reconfigure(&self, fleet: &Fleet) {
        let mut plans = plans(fleet);
        let mut running = self.running();
        running.retain(|name, cluster| {
            let stays = plans.get(name).is_some_and(|plan| *plan == cluster.plan);
            if stays {
                plans.remove(name);
            } else if !plans.contains_key(name) {
                (self.on_health)(name, Ok(()));
            }
            stays || plans.contains_key(name)
        });
        for (name, plan) in plans {
            let entry = running.entry(name.clone());
            if let btree_map::Entry::Vacant(_) = entry {
                (self.on_health)(&name, Err("it is being connected to".to_owned()));
            }
            let started = self.start(plan);
            match entry {
                btree_map::Entry::Vacant(vacant) => drop(vacant.insert(started)),
                btree_map::Entry::Occupied(mut occupied) => drop(occupied.insert(started)),
            }
        }
    }

    fn start(&self, plan: Plan) -> Running {
        let shared = Arc::new(Shared::new(plan.cluster.name.clone(), &plan.targets));
        let task = Task {
            shared: shared.clone(),
            targets: plan.targets.clone(),
            connector: Connector::new(plan.cluster.clone()),
            engine: self.engine.clone(),
            on_health: self.on_health.clone(),
            seed: self.seed,
        };
        Running {
            plan,
            shared,
            task: tokio::spawn(task.run()).abort_handle(),
        }
    }

    /// The version of Cluster API that is spoken with a cluster; `None` while it isn't connected.
    pub fn version(&self, cluster: &str) -> Option<ApiVersion> {
        let running = self.running();
        let connection = running.get(cluster)?.shared.connection().ok()?;
        Some(connection.version)
    }

    /// The newest known state of a pool's MachineDeployment.
    pub fn snapshot(&self, pool: &Pool) -> Option<Snapshot> {
        let route = self.route(pool)?;
        let cache = route.cluster.cache();
        cache.get(&pool.name).cloned()
    }

    /// Where a pool's MachineDeployment is; `None` where the fleet in force has no such pool.
    pub(crate) fn route(&self, pool: &Pool) -> Option<Route> {
        let Target::K0smotron {
            namespace,
            machine_deployment,
        } = &pool.target
        else {
            return None;
        };
        let key = (namespace.clone(), machine_deployment.clone());
        let running = self.running();
        let has = |cluster: &&Running| cluster.plan.targets.get(&key) == Some(&pool.name);
        let cluster = running.values().find(has)?;
        Some(Route {
            cluster: cluster.shared.clone(),
            namespace: key.0,
            machine_deployment: key.1,
        })
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Running>> {
        // Each change is one map operation, so a panic elsewhere leaves nothing half done.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One cluster that is connected by `connection`, without a task.
    #[cfg(test)]
    pub(crate) fn fixed(
        engine: EngineHandle,
        cluster: Cluster,
        targets: Targets,
        connection: Connection,
    ) -> Clusters {
        let clusters = Clusters::new(engine, Arc::new(|_, _| {}));
        let shared = Arc::new(Shared::new(cluster.name.clone(), &targets));
        shared.adopt(Arc::new(connection));
        let running = Running {
            plan: Plan {
                cluster: cluster.clone(),
                targets: Arc::new(targets),
            },
            shared,
            task: tokio::spawn(async {}).abort_handle(),
        };
        clusters.running().insert(cluster.name, running);
        clusters
    }
}

/// The clusters that pools live behind, and which ones.
fn plans(fleet: &Fleet) -> BTreeMap<Arc<str>, Plan> {
    let mut targets: BTreeMap<Arc<str>, (Cluster, Targets)> = BTreeMap::new();
    for pool in fleet.pools() {
        if let (
            Target::K0smotron {
                namespace,
                machine_deployment,
            },
            Some(cluster),
        ) = (&pool.target, fleet.cluster_of(pool))
        {
            let (_, targets) = targets
                .entry(cluster.name.clone())
                .or_insert_with(|| (cluster.clone(), Targets::new()));
            targets.insert(
                (namespace.clone(), machine_deployment.clone()),
                pool.name.clone(),
            );
        }
    }
    let plan = |(name, (cluster, targets))| {
        let targets = Arc::new(targets);
        (name, Plan { cluster, targets })
    };
    targets.into_iter().map(plan).collect()
}
