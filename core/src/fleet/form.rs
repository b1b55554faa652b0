//! The form of `fleet.yaml`: which keys may stand where. What they must say is checked in
//! [`super::document`].

use std::collections::BTreeMap;

use serde::Deserialize;
use sunward_policies::yaml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileDoc {
    #[serde(rename = "apiVersion")]
    pub(super) api_version: Spanned<String>,
    pub(super) kind: Spanned<String>,
    #[expect(
        dead_code,
        reason = "Kubernetes-shaped; the name identifies the resource, not us"
    )]
    pub(super) metadata: MetadataDoc,
    pub(super) spec: SpecDoc,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetadataDoc {
    #[expect(dead_code, reason = "required, as for every Kubernetes object")]
    pub(super) name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecDoc {
    #[serde(default)]
    pub(super) clusters: Vec<ClusterDoc>,
    pub(super) sites: Vec<SiteDoc>,
    pub(super) pools: Vec<PoolDoc>,
    #[serde(default)]
    pub(super) federations: Vec<FederationDoc>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterDoc {
    pub(super) name: Spanned<String>,
    pub(super) kubeconfig: Option<String>,
    pub(super) context: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteDoc {
    pub(super) name: Spanned<String>,
    pub(super) cluster: Option<Spanned<String>>,
    pub(super) time_zone: Spanned<String>,
    pub(super) latitude: Option<Spanned<f64>>,
    pub(super) longitude: Option<Spanned<f64>>,
    pub(super) power_limit_kw: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) power_tiers: Vec<Spanned<u8>>,
    #[serde(default)]
    pub(super) zones: Vec<ZoneDoc>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ZoneDoc {
    pub(super) scheme: Spanned<String>,
    pub(super) code: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolDoc {
    pub(super) name: Spanned<String>,
    pub(super) site: Spanned<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) unit: UnitDoc,
    #[serde(default)]
    pub(super) min_workers: u32,
    pub(super) max_workers: Spanned<u32>,
    pub(super) training_kw: Spanned<f64>,
    pub(super) idle_kw: Spanned<f64>,
    pub(super) gpus_per_worker: u32,
    pub(super) gpu_vendor: VendorDoc,
    pub(super) gpu_model: String,
    pub(super) ready_after: Spanned<String>,
    pub(super) actuator: Spanned<ActuatorDoc>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UnitDoc {
    #[default]
    Pool,
    Worker,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VendorDoc {
    Nvidia,
    Amd,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActuatorDoc {
    pub(super) k0smotron: Option<K0smotronDoc>,
    pub(super) memory: Option<MemoryDoc>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct K0smotronDoc {
    pub(super) namespace: Spanned<String>,
    pub(super) machine_deployment: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryDoc {
    pub(super) start: Spanned<String>,
    pub(super) stop: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FederationDoc {
    pub(super) name: Spanned<String>,
    pub(super) pools: Vec<Spanned<String>>,
}
