//! Cluster API on the test cluster: its CRDs and webhooks from the Go module, and its core manager.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::kubernetes::{Kubernetes, api, apply, kind};
use crate::environment::Server;
use crate::http::Http;
use crate::ports::free_port;
use crate::process::Process;
use crate::{crds, pool, wait};

const READY_DEADLINE: Duration = Duration::from_secs(120);

/// The CRDs of Cluster API and ours, with only `versions` served; the newest of them is stored. No conversion.
pub(super) async fn install_crds(client: &Client, versions: &[&str]) -> Result<()> {
    let mut definitions = read_crds(&Server::ClusterApiSource.required()?)?;
    definitions.retain_mut(|crd| serve_only(crd, versions));
    definitions.extend(crds::all());
    apply_crds(client, &definitions).await
}

/// Everything: CRDs with conversion, the manager, its admission webhooks. Returns once the webhooks answer.
pub(super) async fn start(client: &Client, kubernetes: &Kubernetes) -> Result<Process> {
    let source = Server::ClusterApiSource.required()?;
    let webhook_port = free_port();
    let mut definitions = read_crds(&source)?;
    for crd in &mut definitions {
        convert_by_webhook(crd, webhook_port, kubernetes.authority().pem());
    }
    definitions.extend(crds::all());
    apply_crds(client, &definitions).await?;
    let health_port = free_port();
    let mut manager = manager_process(kubernetes, webhook_port, health_port)?;
    manager.spawn()?;
    let health = Http::new(&format!("http://127.0.0.1:{health_port}"));
    wait::try_until(
        READY_DEADLINE,
        "the Cluster API manager to be ready",
        async || {
            manager.check_running()?;
            let answer = health.get("/readyz").await?;
            ensure!(answer.status == 200, "readyz: {}", answer.text());
            Ok(())
        },
    )
    .await
    .with_context(|| format!("log of cluster-api-manager:\n{}", manager.log_tail()))?;
    let path = source.join("config/webhook/manifests.yaml");
    for mut webhooks in read_yaml(&path)? {
        address_webhooks(&mut webhooks, webhook_port, kubernetes.authority().pem());
        apply(client, &webhooks).await?;
    }
    wait_webhooks(client, &mut manager).await?;
    Ok(manager)
}

/// Waits until the API server calls the webhooks and they answer. Dry runs: a Cluster that only the validating ones refuse, and
/// a MachineDeployment to which only the mutating ones give replicas.
pub(super) async fn wait_webhooks(client: &Client, manager: &mut Process) -> Result<()> {
    let clusters = api(client, "default", "cluster.x-k8s.io/v1beta2", "Cluster");
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "probe", "namespace": "default"}, "spec": {"paused": true},
    }))?;
    let deployments = api(
        client,
        "default",
        "cluster.x-k8s.io/v1beta2",
        "MachineDeployment",
    );
    let mut deployment = pool::machine_deployment("default", "probe", "probe", "v1beta2");
    if let Some(spec) = deployment["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    let deployment: DynamicObject = serde_json::from_value(deployment)?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait::try_until(
        READY_DEADLINE,
        "the Cluster API webhooks to answer",
        async || {
            manager.check_running()?;
            match clusters.create(&params, &cluster).await {
                Ok(_) => anyhow::bail!("the validating webhooks are not called yet"),
                Err(error) => ensure!(
                    error.to_string().contains("one of spec.controlPlaneRef"),
                    "{error}"
                ),
            }
            let created = deployments.create(&params, &deployment).await?;
            ensure!(
                created.data["spec"]["replicas"] == 1,
                "the mutating webhooks are not called yet"
            );
            Ok(())
        },
    )
    .await
}

fn manager_process(
    kubernetes: &Kubernetes,
    webhook_port: u16,
    health_port: u16,
) -> Result<Process> {
    let folder = kubernetes.folder();
    let certificates = folder.join("cluster-api");
    kubernetes
        .authority()
        .serve_loopback(&certificates, "cluster-api")?;
    let mut manager = Process::new(
        "cluster-api-manager",
        Server::ClusterApiManager.required()?,
        folder,
    );
    manager.args([
        format!("--kubeconfig={}", kubernetes.kubeconfig().display()),
        format!("--webhook-cert-dir={}", certificates.display()),
        format!("--webhook-port={webhook_port}"),
        format!("--health-addr=127.0.0.1:{health_port}"),
        format!("--diagnostics-address=127.0.0.1:{}", free_port()),
        "--insecure-diagnostics".to_owned(),
        "--leader-elect=false".to_owned(),
    ]);
    Ok(manager)
}

async fn apply_crds(client: &Client, definitions: &[Value]) -> Result<()> {
    try_join_all(definitions.iter().map(|crd| apply(client, crd))).await?;
    let api: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    );
    wait::try_until(READY_DEADLINE, "the CRDs to be established", async || {
        for crd in api.list(&kube::api::ListParams::default()).await? {
            let conditions = crd.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let established = conditions
                .iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True");
            ensure!(
                established,
                "{} is not",
                crd.metadata.name.unwrap_or_default()
            );
        }
        Ok(())
    })
    .await
}

fn read_crds(source: &Path) -> Result<Vec<Value>> {
    let folder = source.join("config/crd/bases");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut definitions = Vec::new();
    for entry in entries {
        for mut crd in read_yaml(&entry?.path())? {
            // As the module's kustomization does: the manager finds a contract's version by these.
            crd["metadata"]["labels"] = json!({
                "cluster.x-k8s.io/provider": "cluster-api",
                "cluster.x-k8s.io/v1beta1": "v1beta1",
                "cluster.x-k8s.io/v1beta2": "v1beta2",
            });
            definitions.push(crd);
        }
    }
    Ok(definitions)
}

fn read_yaml(path: &Path) -> Result<Vec<Value>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("reading {}", path.display()))?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Conversion by the manager on loopback, in place of the service that the module's kustomization names.
fn convert_by_webhook(crd: &mut Value, port: u16, authority_pem: &str) {
    crd["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1", "v1beta1"],
            "clientConfig": client_config(port, "/convert", authority_pem),
        },
    });
}

/// The same for the admission webhooks.
fn address_webhooks(webhooks: &mut Value, port: u16, authority_pem: &str) {
    for webhook in webhooks["webhooks"].as_array_mut().into_iter().flatten() {
        let path = webhook["clientConfig"]["service"]["path"]
            .as_str()
            .unwrap_or("/")
            .to_owned();
        webhook["clientConfig"] = client_config(port, &path, authority_pem);
    }
}

fn client_config(port: u16, path: &str, authority_pem: &str) -> Value {
    use base64::Engine as _;
    let authority = base64::engine::general_purpose::STANDARD.encode(authority_pem);
    json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": authority})
}

/// Keeps only `versions`; false when none is left, and the CRD is then left out.
fn serve_only(crd: &mut Value, versions: &[&str]) -> bool {
    let Some(all) = crd["spec"]["versions"].as_array_mut() else {
        return false;
    };
    all.retain(|version| {
        version["name"]
            .as_str()
            .is_some_and(|name| versions.contains(&name))
    });
    let newest = all
        .iter()
        .filter_map(|version| version["name"].as_str())
        .max()
        .map(str::to_owned);
    for version in all.iter_mut() {
        version["served"] = json!(true);
        version["storage"] = json!(version["name"].as_str() == newest.as_deref());
    }
    newest.is_some()
}
