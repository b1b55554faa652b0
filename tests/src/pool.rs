//! A pool of workers on the test cluster: one Cluster with one MachineDeployment, as k0smotron users have them.

use anyhow::{Result, bail};
use base64::Engine as _;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::crds::{BOOTSTRAP, CONTROL_PLANE, INFRASTRUCTURE};
use crate::servers::{Kubernetes, api, apply};

/// The annotation that the templates in use carry: the hosted control plane's version never compares equal.
const SKIP_PREFLIGHT: &str = "machineset.cluster.x-k8s.io/skip-preflight-checks";

/// Where a pool is.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The namespace; the Cluster has the same name.
    pub namespace: String,
    /// The MachineDeployment.
    pub machine_deployment: String,
    /// The version of Cluster API that is spoken.
    pub version: &'static str,
}

/// Creates (or completes) a namespace with a Cluster of the same name, whose infrastructure is provisioned and whose control
/// plane is initialised (set by hand; the child cluster is the same API server), and in it a MachineDeployment with 0 replicas.
/// Called again with another name, it adds a MachineDeployment; with the same name, it sets that one back to 0 replicas.
pub async fn create(
    kubernetes: &Kubernetes,
    client: &Client,
    namespace: &str,
    machine_deployment: &str,
) -> Result<Pool> {
    let version = kubernetes.cluster_api_version();
    apply(
        client,
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
    )
    .await?;
    for object in cluster(namespace, version) {
        apply(client, &object).await?;
    }
    apply(
        client,
        &kubeconfig_secret(namespace, &kubernetes.kubeconfig_text()),
    )
    .await?;
    for object in templates(namespace, machine_deployment) {
        apply(client, &object).await?;
    }
    apply(
        client,
        &self::machine_deployment(namespace, namespace, machine_deployment, version),
    )
    .await?;
    Ok(Pool {
        namespace: namespace.to_owned(),
        machine_deployment: machine_deployment.to_owned(),
        version,
    })
}

impl Pool {
    /// The MachineDeployment as it is now.
    pub async fn get(&self, client: &Client) -> Result<Value> {
        let api = api(
            client,
            &self.namespace,
            &self.api_version(),
            "MachineDeployment",
        );
        Ok(serde_json::to_value(
            api.get(&self.machine_deployment).await?,
        )?)
    }

    /// `spec.replicas` now.
    pub async fn replicas(&self, client: &Client) -> Result<i64> {
        match self.get(client).await?["spec"]["replicas"].as_i64() {
            Some(replicas) => Ok(replicas),
            None => bail!("spec.replicas is absent"),
        }
    }

    /// `status.readyReplicas` now; 0 while it is absent.
    pub async fn ready_replicas(&self, client: &Client) -> Result<i64> {
        Ok(self.get(client).await?["status"]["readyReplicas"]
            .as_i64()
            .unwrap_or_default())
    }

    /// Sets `spec.replicas` through the scale subresource, as someone else than sunward would.
    pub async fn scale(&self, client: &Client, replicas: u32) -> Result<()> {
        let api = api(
            client,
            &self.namespace,
            &self.api_version(),
            "MachineDeployment",
        );
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch_scale(&self.machine_deployment, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// The Machines of the pool, in no order.
    pub async fn machines(&self, client: &Client) -> Result<Vec<Value>> {
        let api = api(client, &self.namespace, &self.api_version(), "Machine");
        let label = format!(
            "cluster.x-k8s.io/deployment-name={}",
            self.machine_deployment
        );
        let machines = api
            .list(&kube::api::ListParams::default().labels(&label))
            .await?;
        machines
            .into_iter()
            .map(|machine| Ok(serde_json::to_value(machine)?))
            .collect()
    }

    /// `cluster.x-k8s.io/<version>`.
    pub fn api_version(&self) -> String {
        format!("cluster.x-k8s.io/{}", self.version)
    }
}

/// The Cluster and the two objects it refers to. Their status is what k0smotron's controllers would write.
fn cluster(name: &str, version: &str) -> Vec<Value> {
    let metadata = json!({"name": name, "namespace": name});
    let reference = |group: &str, kind: &str| reference(version, name, group, kind, name);
    vec![
        json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "RemoteCluster", "metadata": metadata,
            "spec": {}, "status": {"initialization": {"provisioned": true}},
        }),
        json!({
            "apiVersion": format!("{CONTROL_PLANE}/v1beta2"), "kind": "K0smotronControlPlane", "metadata": metadata,
            "spec": {"replicas": 1, "version": "v1.36.3-k0s.0"},
            "status": {
                "initialization": {"controlPlaneInitialized": true}, "externalManagedControlPlane": true,
                "version": "v1.36.3", "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "upToDateReplicas": 1,
                "conditions": [{
                    "type": "Available", "status": "True", "reason": "Available", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }),
        json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster", "metadata": metadata,
            "spec": {
                "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
                "infrastructureRef": reference(INFRASTRUCTURE, "RemoteCluster"),
                "controlPlaneRef": reference(CONTROL_PLANE, "K0smotronControlPlane"),
            },
        }),
    ]
}

/// A reference in the form of the version: v1beta1 has a version in it, v1beta2 only the group.
fn reference(version: &str, namespace: &str, group: &str, kind: &str, name: &str) -> Value {
    if version == "v1beta1" {
        json!({"apiVersion": format!("{group}/v1beta2"), "kind": kind, "name": name, "namespace": namespace})
    } else {
        json!({"apiGroup": group, "kind": kind, "name": name})
    }
}

/// Where Cluster API's manager finds the child cluster.
fn kubeconfig_secret(cluster: &str, kubeconfig: &str) -> Value {
    let value = base64::engine::general_purpose::STANDARD.encode(kubeconfig);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": format!("{cluster}-kubeconfig"), "namespace": cluster,
            "labels": {"cluster.x-k8s.io/cluster-name": cluster},
        },
        "data": {"value": value},
    })
}

fn templates(namespace: &str, name: &str) -> Vec<Value> {
    let metadata = json!({"name": name, "namespace": namespace});
    vec![
        json!({
            "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "RemoteMachineTemplate", "metadata": metadata,
            "spec": {"template": {"spec": {"pool": name}}},
        }),
        json!({
            "apiVersion": format!("{BOOTSTRAP}/v1beta2"), "kind": "K0sWorkerConfigTemplate", "metadata": metadata,
            "spec": {"template": {"spec": {"preInstalledK0s": true}}},
        }),
    ]
}

/// A MachineDeployment with 0 replicas. What the webhook would default is written out, so that it is whole without one.
pub fn machine_deployment(namespace: &str, cluster: &str, name: &str, version: &str) -> Value {
    let labels =
        json!({"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/deployment-name": name});
    json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "MachineDeployment",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"cluster.x-k8s.io/cluster-name": cluster},
            "annotations": {SKIP_PREFLIGHT: "ControlPlaneIsStable"},
        },
        "spec": {
            "clusterName": cluster, "replicas": 0, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": cluster,
                    "bootstrap": {
                        "configRef": reference(version, namespace, BOOTSTRAP, "K0sWorkerConfigTemplate", name),
                    },
                    "infrastructureRef": reference(version, namespace, INFRASTRUCTURE, "RemoteMachineTemplate", name),
                },
            },
        },
    })
}
