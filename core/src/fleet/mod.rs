//! The fleet: sites, zones, pools, federations and clusters, as `fleet.yaml` describes them.
//!
//! Static between two loads. The file form is in `form.rs` and `document.rs`; what is wrong with a file, or with
//! a set of policies on a fleet, is found by [`check`]; what is valid but wrong, by [`lint`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_policies::diagnostic::Diagnostic;
use sunward_policies::document::SourceFile;
use sunward_policies::time::Span;

pub mod check;
mod document;
mod form;
pub mod lint;

/// Most pools of a fleet.
pub const POOLS_MAX: usize = 20_000;
/// Most sites of a fleet.
pub const SITES_MAX: usize = 20_000;
/// Most workers of a pool.
pub const WORKERS_MAX: u32 = 100_000;
/// Longest fleet file, in bytes: twice what 20,000 pools take.
pub const FLEET_TEXT_MAX: usize = 16 * 1024 * 1024;

/// Whether a pool may run a part of its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// All or nothing: the target is the maximum or the minimum.
    Pool,
    /// Any number between them (needs an elastic trainer).
    Worker,
}

/// Who makes a pool's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuVendor {
    /// Allocatable as `nvidia.com/gpu`.
    Nvidia,
    /// Allocatable as `amd.com/gpu`.
    Amd,
}

impl GpuVendor {
    /// The name in `fleet.yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            GpuVendor::Nvidia => "nvidia",
            GpuVendor::Amd => "amd",
        }
    }
}

/// What scales a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Cluster API MachineDeployment behind the site's cluster.
    K0smotron {
        /// Its namespace.
        namespace: Arc<str>,
        /// Its name.
        machine_deployment: Arc<str>,
    },
    /// Simulated workers inside the daemon.
    Memory {
        /// From request to ready.
        start: Span,
        /// From release to gone.
        stop: Span,
    },
}

/// How to reach a management or regional cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Unique within the fleet.
    pub name: Arc<str>,
    /// Path of a kubeconfig file; absent = the daemon's own service account.
    pub kubeconfig: Option<String>,
    /// Context in that file; absent = its current one.
    pub context: Option<String>,
}

/// A place with power.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Unique within the fleet.
    pub name: Arc<str>,
    /// The cluster that its pools live behind.
    pub cluster: Option<Arc<str>>,
    /// IANA name.
    pub time_zone: String,
    /// Degrees north.
    pub latitude: Option<f64>,
    /// Degrees east.
    pub longitude: Option<f64>,
    /// The most that its pools may draw together, kW.
    pub power_limit_kw: Option<f64>,
    /// Percentages of training power that the site's workers can be held to, descending, 100 first; empty: none.
    pub power_tiers: Vec<u8>,
    /// Its code in each scheme: scheme -> code.
    pub zones: BTreeMap<Arc<str>, Arc<str>>,
}

/// Identical GPU workers at one site.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Unique within the fleet.
    pub name: Arc<str>,
    /// Its site.
    pub site: Arc<str>,
    /// The federation that it belongs to.
    pub federation: Option<Arc<str>>,
    /// What policies select by.
    pub labels: BTreeMap<String, String>,
    /// All or nothing, or by worker.
    pub unit: Unit,
    /// Workers that always run.
    pub min_workers: u32,
    /// Workers that may run.
    pub max_workers: u32,
    /// kW per worker when training.
    pub training_kw: f64,
    /// kW per worker when idle.
    pub idle_kw: f64,
    /// GPUs per worker.
    pub gpus_per_worker: u32,
    /// Who makes them.
    pub gpu_vendor: GpuVendor,
    /// For example `A100`.
    pub gpu_model: String,
    /// Expected time from request to ready.
    pub ready_after: Span,
    /// What scales it.
    pub target: Target,
    /// Where its workers live, in words: the target and the cluster that it is behind. Another
    /// home is another pool.
    pub home: Arc<str>,
    /// The site's power limit, kW.
    pub site_power_limit_kw: Option<f64>,
}

/// One training job over several pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FederationSpec {
    /// Unique within the fleet; part of Redis keys.
    pub name: Arc<str>,
    /// Its pools.
    pub pools: Vec<Arc<str>>,
}

/// A validated fleet.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    clusters: BTreeMap<Arc<str>, Cluster>,
    sites: BTreeMap<Arc<str>, Site>,
    pools: Vec<Arc<Pool>>,
    federations: Vec<FederationSpec>,
    by_site: BTreeMap<Arc<str>, Vec<usize>>,
    /// Scheme -> codes: asked for each reading.
    zones: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Fleet {
    /// Reads and validates a fleet file; every finding is returned.
    pub fn parse(file: &SourceFile) -> Result<Fleet, Vec<Diagnostic>> {
        document::parse(file)
    }

    fn assemble(
        clusters: Vec<Cluster>,
        sites: Vec<Site>,
        mut pools: Vec<Arc<Pool>>,
        federations: Vec<FederationSpec>,
    ) -> Fleet {
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let mut by_site: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
        for (index, pool) in pools.iter().enumerate() {
            by_site.entry(pool.site.clone()).or_default().push(index);
        }
        let mut zones: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (scheme, code) in sites.iter().flat_map(|site| &site.zones) {
            zones
                .entry(scheme.clone())
                .or_default()
                .insert(code.clone());
        }
        let mut fleet = Fleet {
            zones,
            clusters: clusters.into_iter().map(|c| (c.name.clone(), c)).collect(),
            sites: sites.into_iter().map(|s| (s.name.clone(), s)).collect(),
            pools,
            federations,
            by_site,
        };
        let homes: Vec<Arc<str>> = fleet.pools.iter().map(|pool| fleet.home(pool)).collect();
        for (pool, home) in fleet.pools.iter_mut().zip(homes) {
            Arc::make_mut(pool).home = home;
        }
        fleet
    }

    fn home(&self, pool: &Pool) -> Arc<str> {
        match &pool.target {
            Target::Memory { .. } => "memory".into(),
            Target::K0smotron {
                namespace,
                machine_deployment,
            } => {
                let cluster = self.cluster_of(pool);
                let name = cluster.map_or("", |cluster| cluster.name.as_ref());
                let file = cluster
                    .and_then(|cluster| cluster.kubeconfig.as_deref())
                    .unwrap_or("");
                let context = cluster
                    .and_then(|cluster| cluster.context.as_deref())
                    .unwrap_or("");
                format!("k0smotron:{name}({file}#{context}):{namespace}/{machine_deployment}")
                    .into()
            }
        }
    }

    /// All pools, by name.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        let index = self
            .pools
            .binary_search_by(|pool| pool.name.as_ref().cmp(name))
            .ok()?;
        self.pools.get(index)
    }

    /// The pools at a site, by name.
    pub fn pools_of_site(&self, site: &str) -> impl Iterator<Item = &Arc<Pool>> {
        self.by_site
            .get(site)
            .into_iter()
            .flatten()
            .map(|index| &self.pools[*index])
    }

    /// The ids of the pools at a site, which are their positions among [`Fleet::pools`].
    pub fn ids_of_site(&self, site: &str) -> Vec<u32> {
        let found = self.by_site.get(site).into_iter().flatten();
        found.map(|index| *index as u32).collect()
    }

    /// All sites, by name.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.values()
    }

    /// The site of that name.
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.get(name)
    }

    /// True when some site lies in that zone.
    pub fn has_zone(&self, scheme: &str, code: &str) -> bool {
        self.zones
            .get(scheme)
            .is_some_and(|codes| codes.contains(code))
    }

    /// All clusters, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    /// The cluster that a pool lives behind.
    pub fn cluster_of(&self, pool: &Pool) -> Option<&Cluster> {
        self.clusters
            .get(self.sites.get(&pool.site)?.cluster.as_ref()?)
    }

    /// All federations, in the order of the file.
    pub fn federations(&self) -> &[FederationSpec] {
        &self.federations
    }
}
