//! The daemon's side: everything that `sunward run` wires, in this process, with the quota lifted.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sunward::api::ApiLimits;
use sunward::api::quota::Rate;
use sunward::clock::{Clock, wall_now};
use sunward::files::Loaded;
use sunward::journal::{Options, Redb};
use sunward::run::{self, Daemon, Files, Setup};
use sunward::tokens::{self, Grant, Tokens};
use sunward::writer::Writer;
use sunward_core::time::Span;
use sunward_policies::document::SourceFile;

/// Sites, each with one pool that reads its own stream.
pub const SITES: usize = 64;
/// Who sends.
pub const SOURCE: &str = "utility";

/// At 1,000 kW and more the pool is wanted.
const POLICY: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: surplus}
spec:
  pools: {energy: surplus}
  priority: 100
  mode: enforce
  signals:
    surplus: {source: utility, kind: surplus_power, scope: site, max_age: 10m, on_missing: {hold: 10m, then: release}}
  activate: {when: surplus >= 1000}
  release: {when: surplus < 500}
";

/// A daemon that runs.
pub struct Ours {
    pub daemon: Daemon,
    pub address: SocketAddr,
    /// Of a partner that may push everything.
    pub token: String,
    pub metrics: PrometheusHandle,
}

static METRICS: LazyLock<PrometheusHandle> =
    LazyLock::new(|| PrometheusBuilder::new().install_recorder().unwrap());

/// A fleet of `pools` sites with one simulated pool each.
fn fleet(pools: usize) -> String {
    let (mut sites, mut list) = (String::new(), String::new());
    for i in 0..pools {
        writeln!(sites, "    - {{name: site-{i}, time_zone: UTC}}").unwrap();
        writeln!(
            list,
            "    - {{name: pool-{i:05}, site: site-{i}, labels: {{energy: surplus}}, max_workers: 8, training_kw: 2.0, idle_kw: 0.5, gpus_per_worker: 8, gpu_vendor: nvidia, gpu_model: H100, ready_after: 10s, actuator: {{memory: {{start: 10s, stop: 1s}}}}}}"
        )
        .unwrap();
    }
    format!(
        "apiVersion: sunward.dev/v1alpha1\nkind: Fleet\nmetadata: {{name: fleet}}\nspec:\n  sites:\n{sites}  pools:\n{list}"
    )
}

/// Starts it with a new journal in `folder` and `pools` sites of one pool each.
pub async fn start(folder: &Path, pools: usize) -> Ours {
    let journal = Redb::open(&folder.join("journal.redb"), Options::default()).unwrap();
    let grant: Grant = format!("source={SOURCE},sites=*,kinds=*").parse().unwrap();
    let (partner, secret) = tokens::issue("bench", vec![grant], false, wall_now()).unwrap();
    let file = |path: &str, text: String| SourceFile {
        path: path.to_owned(),
        text,
    };
    let metrics = METRICS.clone();
    let setup = Setup {
        writer: Writer::recover(Box::new(journal)).unwrap(),
        clock: Clock::wall(wall_now() + Span::from_millis(1)),
        term: 1,
        seed: 1,
        files: Files::Fixed(Loaded {
            fleet: file("fleet.yaml", fleet(pools)),
            policies: vec![file("surplus.yaml", POLICY.to_owned())],
        }),
        tokens: Tokens::fixed(vec![partner], Instant::now()).unwrap(),
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        metrics_listen: None,
        limits: ApiLimits {
            // More than can be sent in a run, and a burst that forgives any order of the clock readings.
            rate: Rate {
                per_second: 1e6,
                burst: 1_000_000_000,
            },
            ..ApiLimits::default()
        },
        sinks: Vec::new(),
        adapters: Vec::new(),
        metrics: metrics.clone(),
    };
    let daemon = run::start(setup).await.unwrap();
    Ours {
        address: daemon.addresses["http"],
        daemon,
        token: secret.reveal().to_owned(),
        metrics,
    }
}
