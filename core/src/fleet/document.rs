//! Reading `fleet.yaml`: whether what stands there makes sense by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use sunward_policies::diagnostic::{Diagnostic, Severity};
use sunward_policies::document::SourceFile;
use sunward_policies::time::Span;
use sunward_policies::yaml::{Spanned, read_yaml};

use super::form::{FederationDoc, FileDoc, PoolDoc, SiteDoc, SpecDoc, UnitDoc, VendorDoc};
use super::{
    Cluster, FLEET_TEXT_MAX, FederationSpec, Fleet, GpuVendor, POOLS_MAX, Pool, SITES_MAX, Site,
    Target, Unit, WORKERS_MAX,
};

/// The schemes in which a site's zone may be named.
const ZONE_SCHEMES: [&str; 5] = ["eic", "em", "wt", "uk_region", "iso_node"];

/// Collects findings while the file is read.
struct Findings<'a> {
    file: &'a str,
    found: Vec<Diagnostic>,
}

impl Findings<'_> {
    fn add<T>(
        &mut self,
        code: &'static str,
        at: &Spanned<T>,
        width: usize,
        message: String,
        help: &str,
    ) {
        let (line, column) = (at.referenced.line() as u32, at.referenced.column() as u32);
        self.found.push(Diagnostic {
            code,
            severity: Severity::Error,
            file: self.file.to_owned(),
            line,
            column,
            end_line: line,
            end_column: column + width.max(1) as u32,
            message,
            help: Some(help.to_owned()),
        });
    }

    fn text(&mut self, code: &'static str, at: &Spanned<String>, message: String, help: &str) {
        let width = at.value.chars().count();
        self.add(code, at, width, message, help);
    }

    fn name(&mut self, at: &Spanned<String>, seen: &mut BTreeSet<String>, what: &str) -> Arc<str> {
        if !is_name(&at.value) {
            self.text(
                "SUN-F003",
                at,
                format!("`{}` is not a name for a {what}", at.value),
                "use 1 to 63 characters: a-z, 0-9 and `-`, beginning and ending with a letter or digit",
            );
        } else if !seen.insert(at.value.clone()) {
            self.text(
                "SUN-F004",
                at,
                format!("a second {what} `{}`", at.value),
                "rename one of them",
            );
        }
        at.value.as_str().into()
    }

    fn span(&mut self, at: &Spanned<String>) -> Span {
        Span::parse(&at.value).unwrap_or_else(|error| {
            self.text(
                "SUN-F006",
                at,
                error.to_string(),
                "write a duration such as 250s, 10m or 1h30m",
            );
            Span::default()
        })
    }

    fn number(&mut self, at: &Spanned<f64>, what: &str, low: f64, high: f64) -> f64 {
        if !(at.value.is_finite() && low <= at.value && at.value <= high) {
            let message = format!("{what} is {}, not between {low} and {high}", at.value);
            self.add("SUN-F006", at, 1, message, "correct the number");
        }
        at.value
    }
}

/// A name as Kubernetes takes it for a label (RFC 1123): it becomes part of Redis keys and of labels.
fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Reads and validates a fleet file.
pub(super) fn parse(file: &SourceFile) -> Result<Fleet, Vec<Diagnostic>> {
    if file.text.len() > FLEET_TEXT_MAX {
        let message = format!(
            "{} bytes; a fleet file has at most {FLEET_TEXT_MAX}",
            file.text.len()
        );
        return Err(vec![super::check::whole_file(
            &file.path,
            "SUN-F001",
            message,
            "split the fleet over two daemons",
        )]);
    }
    let doc: FileDoc = read_yaml(&file.path, &file.text).map_err(|error| vec![error])?;
    let mut findings = Findings {
        file: &file.path,
        found: Vec::new(),
    };
    if doc.api_version.value != "sunward.dev/v1alpha1" || doc.kind.value != "Fleet" {
        let message = format!(
            "this is {} {}, not a fleet",
            doc.api_version.value, doc.kind.value
        );
        findings.text(
            "SUN-F002",
            &doc.kind,
            message,
            "a fleet has apiVersion sunward.dev/v1alpha1 and kind Fleet",
        );
    }
    let fleet = build(doc.spec, &mut findings);
    if findings.found.is_empty() {
        Ok(fleet)
    } else {
        Err(findings.found)
    }
}

fn build(spec: SpecDoc, findings: &mut Findings<'_>) -> Fleet {
    let mut names = BTreeSet::new();
    let clusters: Vec<Cluster> = spec
        .clusters
        .into_iter()
        .map(|doc| Cluster {
            name: findings.name(&doc.name, &mut names, "cluster"),
            kubeconfig: doc.kubeconfig,
            context: doc.context,
        })
        .collect();
    let mut names = BTreeSet::new();
    let sites: Vec<Site> = spec
        .sites
        .iter()
        .map(|doc| site(doc, &clusters, &mut names, findings))
        .collect();
    if let Some(extra) = spec.sites.get(SITES_MAX) {
        findings.text(
            "SUN-F001",
            &extra.name,
            format!("more than {SITES_MAX} sites"),
            "split the fleet",
        );
    }
    if let Some(extra) = spec.pools.get(POOLS_MAX) {
        findings.text(
            "SUN-F001",
            &extra.name,
            format!("more than {POOLS_MAX} pools"),
            "split the fleet",
        );
    }
    let mut names = BTreeSet::new();
    let members = federations(&spec.federations, &spec.pools, findings);
    let by_name: BTreeMap<&str, &Site> = sites
        .iter()
        .map(|site| (site.name.as_ref(), site))
        .collect();
    let mut pools = Vec::new();
    for doc in &spec.pools {
        let name = findings.name(&doc.name, &mut names, "pool");
        let site = by_name.get(doc.site.value.as_str()).copied();
        if site.is_none() {
            findings.text(
                "SUN-F005",
                &doc.site,
                format!(
                    "pool `{name}` is at site `{}`, which is not in `sites`",
                    doc.site.value
                ),
                "add the site, or correct the name",
            );
        }
        pools.push(Arc::new(pool(
            doc,
            name,
            site,
            members.get(doc.name.value.as_str()),
            findings,
        )));
    }
    one_pool_per_target(&spec.pools, &pools, &by_name, findings);
    within_power_limits(&spec.sites, &pools, findings);
    let federations = spec
        .federations
        .iter()
        .map(|doc| FederationSpec {
            name: doc.name.value.as_str().into(),
            pools: doc
                .pools
                .iter()
                .map(|pool| pool.value.as_str().into())
                .collect(),
        })
        .collect();
    Fleet::assemble(clusters, sites, pools, federations)
}

fn site(
    doc: &SiteDoc,
    clusters: &[Cluster],
    names: &mut BTreeSet<String>,
    findings: &mut Findings<'_>,
) -> Site {
    let name = findings.name(&doc.name, names, "site");
    if chrono_tz::Tz::from_str(&doc.time_zone.value).is_err() {
        let message = format!(
            "`{}` is not a time zone of the IANA database",
            doc.time_zone.value
        );
        findings.text(
            "SUN-F006",
            &doc.time_zone,
            message,
            "write it as in America/Los_Angeles",
        );
    }
    if let Some(cluster) = &doc.cluster
        && !clusters
            .iter()
            .any(|known| known.name.as_ref() == cluster.value)
    {
        let message = format!(
            "site `{name}` is behind cluster `{}`, which is not in `clusters`",
            cluster.value
        );
        findings.text(
            "SUN-F005",
            cluster,
            message,
            "add the cluster, or correct the name",
        );
    }
    let mut zones = BTreeMap::new();
    for zone in &doc.zones {
        if !ZONE_SCHEMES.contains(&zone.scheme.value.as_str()) {
            let message = format!("`{}` is not a zone scheme", zone.scheme.value);
            findings.text(
                "SUN-F006",
                &zone.scheme,
                message,
                "use eic, em, wt, uk_region or iso_node",
            );
        }
        if zone.code.value.is_empty() || zone.code.value.len() > 128 {
            let message = "a zone code has 1 to 128 characters".to_owned();
            findings.text("SUN-F006", &zone.code, message, "correct the code");
        }
        let before = zones.insert(
            zone.scheme.value.as_str().into(),
            zone.code.value.as_str().into(),
        );
        if before.is_some() {
            let message = format!(
                "site `{name}` has two zones of scheme `{}`",
                zone.scheme.value
            );
            findings.text(
                "SUN-F004",
                &zone.scheme,
                message,
                "a site has one zone in each scheme",
            );
        }
    }
    Site {
        name,
        cluster: doc
            .cluster
            .as_ref()
            .map(|cluster| cluster.value.as_str().into()),
        time_zone: doc.time_zone.value.clone(),
        latitude: doc
            .latitude
            .as_ref()
            .map(|at| findings.number(at, "latitude", -90.0, 90.0)),
        longitude: doc
            .longitude
            .as_ref()
            .map(|at| findings.number(at, "longitude", -180.0, 180.0)),
        power_tiers: power_tiers(&doc.power_tiers, findings),
        power_limit_kw: doc
            .power_limit_kw
            .as_ref()
            .map(|at| findings.number(at, "power_limit_kw", 0.0, 1e7)),
        zones,
    }
}

/// Percentages of training power, as they are offered to grid events.
fn power_tiers(tiers: &[Spanned<u8>], findings: &mut Findings<'_>) -> Vec<u8> {
    let mut above = None;
    for tier in tiers {
        let right = match above {
            None => tier.value == 100,
            Some(above) => (1..above).contains(&tier.value),
        };
        if !right {
            let width = tier.value.to_string().len();
            let message = match above {
                None => format!("the power tiers begin with {}, not with 100", tier.value),
                Some(above) => format!(
                    "power tier {} does not lie below {above} and above 0",
                    tier.value
                ),
            };
            let help =
                "list the percentages of training power from 100 down, such as [100, 90, 75, 50]";
            findings.add("SUN-F013", tier, width, message, help);
            break;
        }
        above = Some(tier.value);
    }
    tiers.iter().map(|tier| tier.value).collect()
}

fn pool(
    doc: &PoolDoc,
    name: Arc<str>,
    site: Option<&Site>,
    federation: Option<&Arc<str>>,
    findings: &mut Findings<'_>,
) -> Pool {
    let max_workers = doc.max_workers.value;
    if max_workers == 0 || max_workers > WORKERS_MAX || doc.min_workers > max_workers {
        let message = format!("{} to {max_workers} workers", doc.min_workers);
        findings.add(
            "SUN-F006",
            &doc.max_workers,
            1,
            message,
            "1 <= max_workers <= 100000 and min_workers <= max_workers",
        );
    }
    let target = target(doc, site, findings);
    Pool {
        name,
        site: doc.site.value.as_str().into(),
        federation: federation.cloned(),
        labels: doc.labels.clone(),
        unit: match doc.unit {
            UnitDoc::Pool => Unit::Pool,
            UnitDoc::Worker => Unit::Worker,
        },
        min_workers: doc.min_workers,
        max_workers,
        training_kw: findings.number(&doc.training_kw, "training_kw", 0.0, 1e6),
        idle_kw: findings.number(&doc.idle_kw, "idle_kw", 0.0, 1e6),
        gpus_per_worker: doc.gpus_per_worker,
        gpu_vendor: match doc.gpu_vendor {
            VendorDoc::Nvidia => GpuVendor::Nvidia,
            VendorDoc::Amd => GpuVendor::Amd,
        },
        gpu_model: doc.gpu_model.clone(),
        ready_after: findings.span(&doc.ready_after),
        target,
        // Known once the site's cluster is.
        home: Arc::default(),
        site_power_limit_kw: site.and_then(|site| site.power_limit_kw),
    }
}

fn target(doc: &PoolDoc, site: Option<&Site>, findings: &mut Findings<'_>) -> Target {
    match (&doc.actuator.value.k0smotron, &doc.actuator.value.memory) {
        (Some(k0smotron), None) => {
            if site.is_some_and(|site| site.cluster.is_none()) {
                let message = format!(
                    "site `{}` names no cluster, so its pool can't be reached",
                    doc.site.value
                );
                findings.text("SUN-F005", &doc.site, message, "give the site a `cluster`");
            }
            Target::K0smotron {
                namespace: k0smotron.namespace.value.as_str().into(),
                machine_deployment: k0smotron.machine_deployment.value.as_str().into(),
            }
        }
        (None, Some(memory)) => Target::Memory {
            start: findings.span(&memory.start),
            stop: findings.span(&memory.stop),
        },
        _ => {
            let message = "an actuator is exactly one of k0smotron and memory".to_owned();
            findings.add("SUN-F006", &doc.actuator, 1, message, "keep one of them");
            Target::Memory {
                start: Span::default(),
                stop: Span::default(),
            }
        }
    }
}

/// Pool name -> federation name.
fn federations<'a>(
    docs: &'a [FederationDoc],
    pools: &[PoolDoc],
    findings: &mut Findings<'_>,
) -> BTreeMap<&'a str, Arc<str>> {
    let mut names = BTreeSet::new();
    let mut members = BTreeMap::new();
    let known: BTreeSet<&str> = pools.iter().map(|pool| pool.name.value.as_str()).collect();
    for doc in docs {
        let name = findings.name(&doc.name, &mut names, "federation");
        for pool in &doc.pools {
            if !known.contains(pool.value.as_str()) {
                let message = format!(
                    "federation `{name}` lists pool `{}`, which is not in `pools`",
                    pool.value
                );
                findings.text(
                    "SUN-F005",
                    pool,
                    message,
                    "add the pool, or correct the name",
                );
            }
            if let Some(other) = members.insert(pool.value.as_str(), name.clone()) {
                let message = format!("pool `{}` is in federation `{other}` already", pool.value);
                findings.text(
                    "SUN-F007",
                    pool,
                    message,
                    "a pool belongs to at most one federation",
                );
            }
        }
    }
    members
}

/// Two pools on one MachineDeployment would overrule each other for ever.
fn one_pool_per_target(
    docs: &[PoolDoc],
    pools: &[Arc<Pool>],
    sites: &BTreeMap<&str, &Site>,
    findings: &mut Findings<'_>,
) {
    let mut seen = BTreeMap::new();
    for (doc, pool) in docs.iter().zip(pools) {
        let Target::K0smotron {
            namespace,
            machine_deployment,
        } = &pool.target
        else {
            continue;
        };
        let cluster = sites
            .get(pool.site.as_ref())
            .and_then(|site| site.cluster.clone());
        let key = (cluster, namespace.clone(), machine_deployment.clone());
        let Some(first) = seen.insert(key, pool.name.clone()) else {
            continue;
        };
        let Some(k0smotron) = &doc.actuator.value.k0smotron else {
            continue;
        };
        let message = format!(
            "pools `{first}` and `{}` both scale MachineDeployment {namespace}/{machine_deployment}",
            pool.name
        );
        findings.text(
            "SUN-F008",
            &k0smotron.machine_deployment,
            message,
            "give each pool a MachineDeployment of its own",
        );
    }
}

/// A site's pools together must fit under its power limit even when all of them train.
fn within_power_limits(sites: &[SiteDoc], pools: &[Arc<Pool>], findings: &mut Findings<'_>) {
    for site in sites {
        let Some(limit) = &site.power_limit_kw else {
            continue;
        };
        let draw: f64 = pools
            .iter()
            .filter(|pool| pool.site.as_ref() == site.name.value)
            .map(|pool| f64::from(pool.max_workers) * pool.training_kw)
            .sum();
        if draw > limit.value {
            let message = format!(
                "the pools of site `{}` draw up to {draw} kW, above its limit of {} kW",
                site.name.value, limit.value
            );
            findings.add(
                "SUN-F009",
                limit,
                1,
                message,
                "lower max_workers, or raise power_limit_kw",
            );
        }
    }
}
