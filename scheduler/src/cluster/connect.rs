//! From a cluster of the fleet file to a client and the version of Cluster API to speak.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use sunward_core::fleet::Cluster;
use tokio::task::JoinHandle;

use super::call::{self, describe};
use super::object::{ApiVersion, GROUP, PLURAL};

/// How long a TCP and TLS connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long sending a request may take.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long reading a kubeconfig and running its credentials plugin may take.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(10);

/// A way to talk to a cluster.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The client; it does not retry.
    pub(crate) client: Client,
    /// The version to speak.
    pub(crate) version: ApiVersion,
}

/// Makes clients of one cluster, at most one at a time: a credentials plugin that hangs holds one
/// thread, however often it is asked for.
pub(super) struct Connector {
    cluster: Cluster,
    making: Option<JoinHandle<Result<Client, String>>>,
}

impl Connector {
    pub(super) fn new(cluster: Cluster) -> Connector {
        Connector {
            cluster,
            making: None,
        }
    }

    /// Reads the kubeconfig anew, connects, and finds the version.
    pub(super) async fn connect(&mut self) -> Result<Connection, String> {
        let client = self.client().await?;
        let version = discover(&client).await?;
        Ok(Connection { client, version })
    }

    async fn client(&mut self) -> Result<Client, String> {
        let cluster = &self.cluster;
        let making = self.making.get_or_insert_with(|| {
            let cluster = cluster.clone();
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(make_client(&cluster)))
        });
        let Ok(made) = tokio::time::timeout(CREDENTIALS_TIMEOUT, &mut *making).await else {
            return Err(format!(
                "the kubeconfig or its credentials plugin did not answer in {} s",
                CREDENTIALS_TIMEOUT.as_secs()
            ));
        };
        self.making = None;
        made.map_err(|error| format!("making a client: {error}"))?
    }
}

async fn make_client(cluster: &Cluster) -> Result<Client, String> {
    let mut config = match (&cluster.kubeconfig, &cluster.context) {
        (Some(path), context) => {
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let kubeconfig = Kubeconfig::read_from(path)
                .map_err(|error| format!("kubeconfig {path}: {}", describe(&error)))?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|error| format!("kubeconfig {path}: {}", describe(&error)))?
        }
        (None, None) => Config::incluster().map_err(|error| {
            format!(
                "no kubeconfig is given, and there is no service account either: {}",
                describe(&error)
            )
        })?,
        (None, Some(context)) => {
            return Err(format!(
                "context `{context}` is given without a kubeconfig: add its path to the cluster in the fleet file"
            ));
        }
    };
    // The ledger owns retries.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // A watch is silent for minutes; every other call has a deadline of its own.
    config.read_timeout = None;
    Client::try_from(config).map_err(|error| match error {
        // Its text may quote what a credentials plugin printed.
        kube::Error::Auth(_) => {
            "the credentials of the kubeconfig could not be had; try them with kubectl".to_owned()
        }
        error => describe(&error),
    })
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

/// v1beta2 when it is served, else v1beta1.
pub(super) async fn discover(client: &Client) -> Result<ApiVersion, String> {
    for version in [ApiVersion::V1Beta2, ApiVersion::V1Beta1] {
        if serves(client, version).await? {
            return Ok(version);
        }
    }
    Err(format!(
        "it serves {PLURAL} with their scale subresource in neither v1beta2 nor v1beta1 of {GROUP}: \
         install Cluster API, 1.10 or later, or correct the cluster's kubeconfig and context"
    ))
}

/// Whether MachineDeployments and their scale subresource are there in this version.
pub(super) async fn serves(client: &Client, version: ApiVersion) -> Result<bool, String> {
    let path = format!("/apis/{GROUP}/{}", version.as_str());
    match call::get::<Resources>(client, &path).await {
        Ok(list) => {
            let has = |name: &str| list.resources.iter().any(|each| each.name == name);
            Ok(has(PLURAL) && has(&format!("{PLURAL}/scale")))
        }
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(format!("looking for Cluster API ({path}): {failure}")),
    }
}
