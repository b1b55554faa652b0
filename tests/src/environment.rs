//! Where the real servers are, and whether a case can run at all.
//!
//! `tests/run` sets one variable per server and writes the same lines to a file, so that a plain `cargo test` afterwards
//! finds them too: `$SUNWARD_SERVERS_DIR/env`, by default `~/.cache/sunward/servers/env`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// A program (or folder) that a case needs and that does not come with Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `redis-server`, 7.0 or later.
    Redis,
    /// `nats-server`, 2.10 or later.
    Nats,
    /// `etcd`.
    Etcd,
    /// `kube-apiserver`.
    KubeApiserver,
    /// `kube-controller-manager`.
    KubeControllerManager,
    /// The core manager of Cluster API.
    ClusterApiManager,
    /// The folder of Cluster API's Go module: its CRDs are in `config/crd/bases`, its webhooks in `config/webhook`.
    ClusterApiSource,
    /// `promtool`.
    Promtool,
}

impl Server {
    /// The variable that holds its path.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Redis => "SUNWARD_TEST_REDIS",
            Self::Nats => "SUNWARD_TEST_NATS",
            Self::Etcd => "SUNWARD_TEST_ETCD",
            Self::KubeApiserver => "SUNWARD_TEST_KUBE_APISERVER",
            Self::KubeControllerManager => "SUNWARD_TEST_KUBE_CONTROLLER_MANAGER",
            Self::ClusterApiManager => "SUNWARD_TEST_CLUSTER_API_MANAGER",
            Self::ClusterApiSource => "SUNWARD_TEST_CLUSTER_API_SRC",
            Self::Promtool => "SUNWARD_TEST_PROMTOOL",
        }
    }

    /// Its path, from the variable or from the file that `tests/run` left; `None` when neither names something that exists.
    pub fn path(self) -> Option<PathBuf> {
        let path = std::env::var_os(self.variable())
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(|| from_file(self.variable()))?;
        path.exists().then_some(path)
    }

    /// Its path, or an error that says how to get it.
    pub fn required(self) -> Result<PathBuf> {
        self.path().with_context(|| {
            format!(
                "{} names no file; run ./tests/run --servers-only once",
                self.variable()
            )
        })
    }
}

/// What a cluster with [`crate::servers::ClusterApi::Manager`] needs.
pub const CLUSTER_API: &[Server] = &[
    Server::Etcd,
    Server::KubeApiserver,
    Server::ClusterApiManager,
    Server::ClusterApiSource,
];

/// What a cluster with [`crate::servers::ClusterApi::CrdsOnly`] needs.
pub const CLUSTER_API_CRDS: &[Server] = &[
    Server::Etcd,
    Server::KubeApiserver,
    Server::ClusterApiSource,
];

/// True, after saying so, when one of `servers` is absent: the case then returns at once.
pub fn skip_without(servers: &[Server]) -> bool {
    let absent = servers
        .iter()
        .filter(|server| server.path().is_none())
        .fold(String::new(), |mut names, server| {
            let _ = write!(names, " {}", server.variable());
            names
        });
    if absent.is_empty() {
        return false;
    }
    skip(&format!(
        "without{absent} (run ./tests/run --servers-only once, it installs and builds them)"
    ));
    true
}

/// Says on standard error that the running case is skipped, and why; `tests/run` counts these lines.
///
/// Written past the test runner's capture, which would hide it for a case that passes.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a case"));
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("SUNWARD_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Says on standard error what the running case is made of (a series, a seed, a measured time), past the test runner's capture.
pub fn say(what: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {what}\n", thread.name().unwrap_or("a case"));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// True under `tests/run --long`: the full matrices.
pub fn long() -> bool {
    std::env::var_os("SUNWARD_LONG").is_some_and(|value| value == "1")
}

/// The value of `variable` in the file that `tests/run` left.
fn from_file(variable: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("SUNWARD_SERVERS_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/sunward/servers"),
    };
    let text = std::fs::read_to_string(folder.join("env")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(variable)?.strip_prefix('='))
        .map(PathBuf::from)
}
