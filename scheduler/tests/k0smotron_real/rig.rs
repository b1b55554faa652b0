//! What stands in for the engine, and short words for the cases.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use arc_swap::ArcSwap;
use serde_json::{Value, json};
use sunward::actuators::k0smotron::K0smotron;
use sunward::actuators::{Actuator, Command};
use sunward::cluster::{Clusters, Snapshot};
use sunward::engine_handle::{EngineHandle, Message};
use sunward_core::action::{Cause, Scale};
use sunward_core::event::{Event, Outcome, PoolObservation};
use sunward_core::fleet::{Fleet, Pool};
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::time::Timestamp;
use sunward_policies::document::SourceFile;
use sunward_tests::wait::until;
use tokio::sync::{mpsc, watch};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The observer and the actuator of one fleet, and what the engine was told.
pub(crate) struct Rig {
    pub(crate) clusters: Arc<Clusters>,
    actuator: K0smotron,
    fleet: Fleet,
    told: Arc<Mutex<Vec<Event>>>,
    pub(crate) health: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl Rig {
    /// Starts it on these pools.
    pub(crate) fn start(kubeconfig: &Path, pools: &[&str]) -> Rig {
        let fleet = fleet(kubeconfig, pools);
        let (messages, mut inbox) = mpsc::channel(16);
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let journal = told.clone();
        tokio::spawn(async move {
            while let Some(Message::Tell { events, .. }) = inbox.recv().await {
                journal.lock().unwrap().extend(events);
            }
        });
        let engine = EngineHandle::new(
            messages,
            Arc::new(ArcSwap::from_pointee(fleet.clone())),
            Arc::new(Mutex::new(LeaderGate::new(7))),
            watch::channel(0).1,
        );
        let health: Arc<Mutex<Vec<Result<(), String>>>> = Arc::default();
        let changes = health.clone();
        let on_health = move |cluster: &str, state| {
            assert_eq!(cluster, "mgmt");
            changes.lock().unwrap().push(state);
        };
        let clusters = Arc::new(Clusters::new(engine, Arc::new(on_health)));
        clusters.reconfigure(&fleet);
        Rig {
            actuator: K0smotron::new(clusters.clone()),
            clusters,
            fleet,
            told,
            health,
        }
    }

    fn pool(&self, name: &str) -> Arc<Pool> {
        self.fleet.pool(name).unwrap().clone()
    }

    /// What the engine was told of a pool, in order.
    pub(crate) fn observations(&self, pool: &str) -> Vec<PoolObservation> {
        let told = self.told.lock().unwrap();
        let of_pool = told.iter().filter_map(|event| match event {
            Event::PoolObserved(seen) if seen.pool.as_ref() == pool => Some(seen.clone()),
            _ => None,
        });
        of_pool.collect()
    }

    /// The changes of reachability that the engine was told: `true` reachable.
    pub(crate) fn reachability(&self) -> Vec<bool> {
        let told = self.told.lock().unwrap();
        let changes = told.iter().filter_map(|event| match event {
            Event::ClusterReachable { .. } => Some(true),
            Event::ClusterUnreachable { .. } => Some(false),
            _ => None,
        });
        changes.collect()
    }

    pub(crate) async fn until_observed(
        &self,
        pool: &str,
        what: &str,
        mut wanted: impl FnMut(&PoolObservation) -> bool,
    ) {
        until(DEADLINE, what, async || {
            let seen = self.observations(pool);
            ensure!(
                seen.last().is_some_and(&mut wanted),
                "last told: {:?}",
                seen.last()
            );
            Ok(())
        })
        .await;
    }

    pub(crate) async fn until_reachability(&self, expected: &[bool]) {
        until(DEADLINE, "the changes of reachability", async || {
            let seen = self.reachability();
            ensure!(
                seen == expected,
                "told: {seen:?}, health: {:?}",
                self.health.lock().unwrap()
            );
            Ok(())
        })
        .await;
    }

    pub(crate) async fn claim(&self, pool: &str, term: u64) -> Outcome {
        let pool = self.pool(pool);
        self.actuator.apply(&Command::Claim { pool, term }).await
    }

    pub(crate) async fn scale(
        &self,
        pool: &str,
        term: u64,
        generation: u64,
        from: u32,
        replicas: u32,
    ) -> Outcome {
        let scale = Scale {
            pool: pool.into(),
            term,
            generation,
            replicas,
            from,
            decided_at: Timestamp::from_millis(1_700_000_000_000),
            cause: Cause {
                index: 1,
                by: "test/rule".into(),
                why: "test".into(),
            },
        };
        let pool = self.pool(pool);
        self.actuator.apply(&Command::Scale { pool, scale }).await
    }

    pub(crate) fn known(&self, pool: &str) -> Option<Snapshot> {
        self.clusters.snapshot(&self.pool(pool))
    }
}

/// One cluster, one site, a pool for each MachineDeployment in namespace `gpu`.
pub(crate) fn fleet(kubeconfig: &Path, pools: &[&str]) -> Fleet {
    let pools: Vec<Value> = pools
        .iter()
        .map(|name| {
            json!({
                "name": name, "site": "caiso", "labels": {}, "unit": "worker", "min_workers": 0, "max_workers": 9,
                "training_kw": 1.0, "idle_kw": 0.5, "gpus_per_worker": 4, "gpu_vendor": "nvidia", "gpu_model": "A100",
                "ready_after": "250s", "actuator": {"k0smotron": {"namespace": "gpu", "machine_deployment": name}},
            })
        })
        .collect();
    let text = json!({
        "apiVersion": "sunward.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "fleet"},
        "spec": {
            "clusters": [{"name": "mgmt", "kubeconfig": kubeconfig}],
            "sites": [{"name": "caiso", "cluster": "mgmt", "time_zone": "America/Los_Angeles"}],
            "pools": pools,
        },
    });
    let file = SourceFile {
        path: "fleet.yaml".into(),
        text: text.to_string(),
    };
    Fleet::parse(&file).unwrap()
}
