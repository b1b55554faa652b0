//! A small real Kubernetes: etcd and kube-apiserver, on demand kube-controller-manager and the core manager of Cluster API.
//! No kubelet and no scheduler: workers are played by [`crate::actors`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::cluster_api;
use super::etcd::{self, Move, Revision};
use crate::certificates::{Authority, Identity, signing_key};
use crate::environment::Server;
use crate::http::Http;
use crate::ports::free_port;
use crate::process::{Process, Signal};
use crate::wait;

const START_ATTEMPTS_MAX: u32 = 5;
const READY_DEADLINE: Duration = Duration::from_secs(120);
/// The field manager of what the harness applies.
const FIELD_MANAGER: &str = "sunward-tests";

/// Weak, since nothing drops a static: its processes would outlive the tests.
static SHARED: Mutex<Weak<Kubernetes>> = Mutex::const_new(Weak::new());

/// How much of Cluster API is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterApi {
    /// Nothing of it.
    #[default]
    Absent,
    /// Its CRDs and our short ones, serving only these versions (`["v1beta2"]`, `["v1beta1"]`), without the manager: nothing
    /// is converted, defaulted or admitted, no Machine appears, and the status of a MachineDeployment belongs to
    /// [`crate::actors::ReadyReplicas`].
    CrdsOnly(Vec<&'static str>),
    /// All of it: the CRDs with conversion, the core manager with its admission webhooks, and our short CRDs of the k0smotron
    /// kinds. The status belongs to the manager; [`crate::actors::Hosts`] lets Machines become ready.
    Manager,
}

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct KubernetesOptions {
    /// How much of Cluster API is there.
    pub cluster_api: ClusterApi,
    /// With kube-controller-manager: the garbage collector and the namespace controller.
    pub controller_manager: bool,
}

/// A running cluster. Everything is killed when this is dropped.
#[derive(Debug)]
pub struct Kubernetes {
    // In the order in which they end.
    cluster_api_manager: Option<Process>,
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    etcd_url: String,
    port: u16,
    authority: Authority,
    cluster_api: ClusterApi,
    folder: TempDir,
}

impl Kubernetes {
    /// The token of the administrator (`system:masters`).
    pub const ADMIN_TOKEN: &str = "admin-token";
    /// The token of the user `sunward`, who may do nothing until a case binds a role to it.
    pub const USER_TOKEN: &str = "sunward-token";

    /// Starts everything and waits until it serves.
    pub async fn start(options: KubernetesOptions) -> Result<Self> {
        let mut attempt = 0;
        let mut kubernetes = loop {
            attempt += 1;
            match Self::start_apiserver().await {
                Ok(kubernetes) => break kubernetes,
                Err(error) if attempt == START_ATTEMPTS_MAX => return Err(error),
                Err(_) => {}
            }
        };
        if options.controller_manager {
            kubernetes.start_controller_manager()?;
        }
        kubernetes.cluster_api = options.cluster_api.clone();
        match &options.cluster_api {
            ClusterApi::Absent => {}
            ClusterApi::CrdsOnly(versions) => {
                cluster_api::install_crds(&kubernetes.client().await?, versions).await?;
            }
            ClusterApi::Manager => {
                let client = kubernetes.client().await?;
                let manager = cluster_api::start(&client, &kubernetes).await?;
                kubernetes.cluster_api_manager = Some(manager);
            }
        }
        Ok(kubernetes)
    }

    /// A cluster with [`ClusterApi::Manager`] that cases of one file share while they overlap: it ends with the last of them.
    /// For cases that kill nothing; each uses a namespace of its own.
    pub async fn shared() -> Result<Arc<Self>> {
        let mut shared = SHARED.lock().await;
        if let Some(kubernetes) = shared.upgrade() {
            return Ok(kubernetes);
        }
        let options = KubernetesOptions {
            cluster_api: ClusterApi::Manager,
            controller_manager: false,
        };
        let kubernetes = Arc::new(Self::start(options).await?);
        *shared = Arc::downgrade(&kubernetes);
        Ok(kubernetes)
    }

    /// One try on fresh ports and folders.
    async fn start_apiserver() -> Result<Self> {
        let folder = TempDir::with_prefix("sunward-kubernetes-")?;
        let authority = Authority::new()?;
        let etcd_port = free_port();
        let port = free_port();
        let etcd = etcd_process(folder.path(), etcd_port)?;
        let apiserver = apiserver_process(folder.path(), &authority, etcd_port, port)?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let mut kubernetes = Self {
            cluster_api_manager: None,
            controller_manager: None,
            apiserver,
            etcd,
            etcd_url,
            port,
            authority,
            cluster_api: ClusterApi::Absent,
            folder,
        };
        kubernetes.write_kubeconfig("admin", Self::ADMIN_TOKEN)?;
        kubernetes.write_kubeconfig("sunward", Self::USER_TOKEN)?;
        kubernetes.etcd.spawn()?;
        kubernetes.wait_etcd().await?;
        kubernetes.restart_apiserver().await?;
        Ok(kubernetes)
    }

    async fn wait_etcd(&mut self) -> Result<()> {
        let http = Http::new(&self.etcd_url);
        let etcd = &mut self.etcd;
        wait::try_until(READY_DEADLINE, "etcd to be healthy", async || {
            // An end is final; it is reported at once below.
            if etcd.exited().is_some() {
                return Ok(());
            }
            let health = http.get("/health").await?;
            ensure!(
                health.status == 200,
                "health: {} {}",
                health.status,
                health.text()
            );
            Ok(())
        })
        .await?;
        etcd.check_running()
    }

    fn start_controller_manager(&mut self) -> Result<()> {
        let program = Server::KubeControllerManager.required()?;
        let mut process = Process::new("kube-controller-manager", program, self.folder.path());
        let kubeconfig = self.kubeconfig().display().to_string();
        let certificates = self
            .folder
            .path()
            .join("controller-manager")
            .display()
            .to_string();
        process.arg(format!("--kubeconfig={kubeconfig}"));
        process.args([
            "--controllers=garbage-collector-controller,namespace-controller",
            "--leader-elect=false",
        ]);
        process.args([
            "--bind-address=127.0.0.1",
            &format!("--secure-port={}", free_port()),
        ]);
        process.arg(format!("--cert-dir={certificates}"));
        process.spawn()?;
        self.controller_manager = Some(process);
        Ok(())
    }

    /// A client with the administrator's rights. It belongs to the runtime that makes it; each case makes its own. It does
    /// not retry: a case sees every error.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig()).await
    }

    /// The same with the rights of the user `sunward`.
    pub async fn user_client(&self) -> Result<Client> {
        client_of(&self.user_kubeconfig()).await
    }

    /// A kubeconfig file with one context, `admin`, with the administrator's rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("admin.kubeconfig")
    }

    /// A kubeconfig file with one context, `sunward`, of a user without any right.
    pub fn user_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("sunward.kubeconfig")
    }

    /// The API server's address, `https://127.0.0.1:PORT`; the same over restarts.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The version to speak to Cluster API with: `v1beta2`, or `v1beta1` where only that is served.
    pub fn cluster_api_version(&self) -> &'static str {
        match &self.cluster_api {
            ClusterApi::CrdsOnly(versions) if !versions.contains(&"v1beta2") => "v1beta1",
            _ => "v1beta2",
        }
    }

    /// SIGKILL to the API server; etcd, and so everything stored, stays.
    pub fn kill_apiserver(&mut self) {
        self.apiserver.kill();
    }

    /// Starts the API server again on the same port, after [`kill_apiserver`](Self::kill_apiserver), and waits until ready.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.apiserver.spawn()?;
        let client = self.client().await?;
        let apiserver = &mut self.apiserver;
        wait::try_until(READY_DEADLINE, "kube-apiserver to be ready", async || {
            if apiserver.exited().is_some() {
                return Ok(());
            }
            let request = hyper::Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await.context("readyz")?;
            Ok(())
        })
        .await
        .with_context(|| format!("log of kube-apiserver:\n{}", self.apiserver.log_tail()))?;
        self.apiserver.check_running()
    }

    /// SIGSTOP to the API server: connections stay open and nothing answers.
    pub fn pause_apiserver(&self) -> Result<()> {
        self.apiserver.signal(Signal::STOP)
    }

    /// SIGCONT to the API server.
    pub fn resume_apiserver(&self) -> Result<()> {
        self.apiserver.signal(Signal::CONT)
    }

    /// SIGKILL to the core manager of Cluster API. Its webhooks are gone with it: writes that they admit fail, scale writes do
    /// not.
    pub fn kill_cluster_api_manager(&mut self) {
        if let Some(manager) = &mut self.cluster_api_manager {
            manager.kill();
        }
    }

    /// Starts the core manager again, after [`kill_cluster_api_manager`](Self::kill_cluster_api_manager), and waits until its
    /// webhooks answer.
    pub async fn restart_cluster_api_manager(&mut self) -> Result<()> {
        let client = self.client().await?;
        let Some(manager) = &mut self.cluster_api_manager else {
            bail!("started without the manager")
        };
        manager.spawn()?;
        cluster_api::wait_webhooks(&client, manager).await
    }

    /// Every version of a MachineDeployment that ever was, oldest first, as stored (v1beta2, or v1beta1 where only that is
    /// served). Read from etcd and so complete, whatever was down meanwhile. Reads one version per call: about 1 ms each.
    pub async fn history(
        &self,
        namespace: &str,
        machine_deployment: &str,
    ) -> Result<Vec<Revision>> {
        let key = format!(
            "/registry/cluster.x-k8s.io/machinedeployments/{namespace}/{machine_deployment}"
        );
        etcd::history(&Http::new(&self.etcd_url), &key).await
    }

    /// Every value that `spec.replicas` of a MachineDeployment ever had, oldest first, from [`history`](Self::history): two
    /// neighbours differ, and none is left out.
    pub async fn moves(&self, namespace: &str, machine_deployment: &str) -> Result<Vec<Move>> {
        Ok(etcd::moves(
            &self.history(namespace, machine_deployment).await?,
        ))
    }

    /// The cluster's folder: logs, certificates, data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Who signs the servers' certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    fn write_kubeconfig(&self, name: &str, token: &str) -> Result<()> {
        let text = kubeconfig(&self.url(), self.authority.pem(), name, token).to_string();
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// A kubeconfig for the administrator, as Cluster API keeps one per workload cluster in a Secret.
    pub fn kubeconfig_text(&self) -> String {
        kubeconfig(
            &self.url(),
            self.authority.pem(),
            "admin",
            Self::ADMIN_TOKEN,
        )
        .to_string()
    }
}

async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(Client::try_from(config)?)
}

/// JSON is YAML, so this is a kubeconfig for every reader.
fn kubeconfig(url: &str, authority_pem: &str, name: &str, token: &str) -> Value {
    use base64::Engine as _;
    let authority = base64::engine::general_purpose::STANDARD.encode(authority_pem);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": "test", "user": name, "namespace": "default"}}],
    })
}

fn etcd_process(folder: &Path, port: u16) -> Result<Process> {
    let mut process = Process::new("etcd", Server::Etcd.required()?, folder);
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    process.args(["--name=test", "--log-level=warn"]);
    process.arg(format!("--data-dir={}", folder.join("etcd").display()));
    process.args([
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
    ]);
    process.args([
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
    ]);
    process.arg(format!("--initial-cluster=test={peer}"));
    // The machine does not lose power in a test.
    process.arg("--unsafe-no-fsync");
    Ok(process)
}

fn apiserver_process(
    folder: &Path,
    authority: &Authority,
    etcd_port: u16,
    port: u16,
) -> Result<Process> {
    let Identity { certificate, key } =
        authority.serve_loopback(&folder.join("apiserver"), "kube-apiserver")?;
    let accounts = signing_key(folder)?;
    let tokens = folder.join("tokens.csv");
    let text = format!(
        "{},admin,1,\"system:masters\"\n{},sunward,2\n",
        Kubernetes::ADMIN_TOKEN,
        Kubernetes::USER_TOKEN
    );
    std::fs::write(&tokens, text)?;
    let mut process = Process::new("kube-apiserver", Server::KubeApiserver.required()?, folder);
    process.args([
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", certificate.display()),
        format!("--tls-private-key-file={}", key.display()),
        format!("--token-auth-file={}", tokens.display()),
        format!(
            "--service-account-key-file={}",
            accounts.certificate.display()
        ),
        format!(
            "--service-account-signing-key-file={}",
            accounts.key.display()
        ),
        format!("--cert-dir={}", folder.join("apiserver").display()),
    ]);
    process.args([
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--endpoint-reconciler-type=none",
        // Old versions are kept: `history` reads them.
        "--etcd-compaction-interval=0",
    ]);
    Ok(process)
}

/// The kind of an object, `api_version` as in YAML (`cluster.x-k8s.io/v1beta2`); the plural is the usual one.
pub fn kind(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The objects of one kind in one namespace.
pub fn api(
    client: &Client,
    namespace: &str,
    api_version: &str,
    kind_name: &str,
) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind(api_version, kind_name))
}

/// Server-side apply of any object, with force; namespaced where it has a namespace. A `status` in it is written through the
/// status subresource afterwards.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let name = text(&object["metadata"]["name"]).context("an object without a name")?;
    let api_version = text(&object["apiVersion"]).context("an object without apiVersion")?;
    let kind_name = text(&object["kind"]).context("an object without kind")?;
    let resource = kind(&api_version, &kind_name);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let what = || format!("applying {kind_name} {name}");
    let applied = api
        .patch(&name, &params, &Patch::Apply(object))
        .await
        .with_context(what)?;
    if object["status"].is_null() {
        return Ok(applied);
    }
    let status = json!({"apiVersion": api_version, "kind": kind_name, "metadata": {"name": name}, "status": object["status"]});
    api.patch_status(&name, &params, &Patch::Apply(&status))
        .await
        .with_context(what)
}
