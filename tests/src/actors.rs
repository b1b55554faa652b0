//! Players of what is not there: hosts and the controllers that would prepare them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::crds::{BOOTSTRAP, INFRASTRUCTURE};
use crate::pool::Pool;
use crate::servers::{api, apply, kind};

/// How often an actor looks. Polled and not watched, so that a restart of the API server needs no care.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// A task that ends when this is dropped.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Plays the hosts of all pools of a namespace, beside the Cluster API manager: each new Machine gets its join data and, after
/// a delay, a provisioned RemoteMachine and a Ready Node, so that the manager itself brings `status.readyReplicas` up. On
/// scale-down the manager deletes the Node and the rest.
///
/// It writes what k0smotron's controllers and a kubelet write and nothing else; the status of Machines, MachineSets and
/// MachineDeployments is the manager's own.
#[derive(Debug)]
pub struct Hosts(#[expect(dead_code, reason = "held for its drop")] Task);

impl Hosts {
    /// Starts it on the runtime of the case. A Machine becomes ready `ready_after` after it was first seen; the manager needs a
    /// second or two besides. Errors (the API server is away) are retried at the next look.
    pub fn start(client: Client, namespace: &str, ready_after: Duration) -> Self {
        let namespace = namespace.to_owned();
        Self(Task(tokio::spawn(async move {
            let mut machines = BTreeMap::new();
            loop {
                let _ = host_machines(&client, &namespace, ready_after, &mut machines).await;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })))
    }
}

/// What was done for a Machine.
struct Progress {
    seen_at: Instant,
    bootstrapped: bool,
    joined: bool,
}

async fn host_machines(
    client: &Client,
    namespace: &str,
    ready_after: Duration,
    machines: &mut BTreeMap<String, Progress>,
) -> Result<()> {
    let api = api(client, namespace, "cluster.x-k8s.io/v1beta2", "Machine");
    for machine in api.list(&ListParams::default()).await? {
        let name = machine.metadata.name.clone().unwrap_or_default();
        if machine.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let fresh = Progress {
            seen_at: Instant::now(),
            bootstrapped: false,
            joined: false,
        };
        let progress = machines.entry(name.clone()).or_insert(fresh);
        if !progress.bootstrapped {
            bootstrap(client, namespace, &machine.data).await?;
            progress.bootstrapped = true;
        }
        if !progress.joined && progress.seen_at.elapsed() >= ready_after {
            join(client, namespace, &name, &machine.data).await?;
            progress.joined = true;
        }
    }
    Ok(())
}

/// As the bootstrap controller: the join data in a Secret, and its name in the K0sWorkerConfig.
async fn bootstrap(client: &Client, namespace: &str, machine: &Value) -> Result<()> {
    let config = machine["spec"]["bootstrap"]["configRef"]["name"]
        .as_str()
        .context("no bootstrap config yet")?;
    apply(
        client,
        &json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": config, "namespace": namespace}, "stringData": {"value": "join"},
        }),
    )
    .await?;
    let status = json!({"status": {"dataSecretName": config, "initialization": {"dataSecretCreated": true}}});
    let api = api(
        client,
        namespace,
        &format!("{BOOTSTRAP}/v1beta2"),
        "K0sWorkerConfig",
    );
    api.patch_status(config, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// As the RemoteMachine controller and a kubelet: the provider's id, a provisioned host, a Ready Node of the Machine's name.
async fn join(client: &Client, namespace: &str, name: &str, machine: &Value) -> Result<()> {
    let infrastructure = machine["spec"]["infrastructureRef"]["name"]
        .as_str()
        .context("no RemoteMachine yet")?;
    let provider_id = format!("remote-machine://{namespace}.{name}:22");
    let api = api(
        client,
        namespace,
        &format!("{INFRASTRUCTURE}/v1beta2"),
        "RemoteMachine",
    );
    let spec = json!({"spec": {"providerID": provider_id}});
    api.patch(infrastructure, &PatchParams::default(), &Patch::Merge(spec))
        .await?;
    let status = json!({"status": {
        "initialization": {"provisioned": true}, "addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}],
    }});
    api.patch_status(
        infrastructure,
        &PatchParams::default(),
        &Patch::Merge(status),
    )
    .await?;
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Kubelet", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"k0smotron.io/machine-name": name}},
        "spec": {"providerID": provider_id},
        "status": {"conditions": [
            condition("Ready", "True"), condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"), condition("PIDPressure", "False"),
        ]},
    });
    apply(client, &node).await?;
    Ok(())
}

/// Plays Cluster API for one pool on a cluster without the manager: `status.readyReplicas` (and the other counts) follow
/// `spec.replicas` after a delay, up and down alike. Beside the manager, which owns that status, use [`Hosts`].
#[derive(Debug)]
pub struct ReadyReplicas(#[expect(dead_code, reason = "held for its drop")] Task);

impl ReadyReplicas {
    /// Starts it on the runtime of the case. A change of `spec.replicas` counts from when it is seen; one that is replaced
    /// within `delay` never shows.
    pub fn start(client: Client, pool: &Pool, delay: Duration) -> Self {
        let pool = pool.clone();
        Self(Task(tokio::spawn(async move {
            let mut wanted: Option<(i64, Instant)> = None;
            loop {
                let _ = follow(&client, &pool, delay, &mut wanted).await;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })))
    }
}

async fn follow(
    client: &Client,
    pool: &Pool,
    delay: Duration,
    wanted: &mut Option<(i64, Instant)>,
) -> Result<()> {
    let object = pool.get(client).await?;
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or_default();
    let since = match *wanted {
        Some((last, since)) if last == replicas => since,
        _ => Instant::now(),
    };
    *wanted = Some((replicas, since));
    if since.elapsed() < delay || object["status"]["readyReplicas"].as_i64() == Some(replicas) {
        return Ok(());
    }
    let status = json!({"status": {
        "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        "selector": format!("cluster.x-k8s.io/deployment-name={}", pool.machine_deployment),
        "observedGeneration": object["metadata"]["generation"],
    }});
    let api: kube::Api<kube::api::DynamicObject> = kube::Api::namespaced_with(
        client.clone(),
        &pool.namespace,
        &kind(&pool.api_version(), "MachineDeployment"),
    );
    api.patch_status(
        &pool.machine_deployment,
        &PatchParams::default(),
        &Patch::Merge(status),
    )
    .await?;
    Ok(())
}
