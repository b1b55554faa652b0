//! Follows the MachineDeployments of one namespace: list, watch, resume, list again.
//!
//! kube's `watcher` does the same but does not say when a broken watch has resumed, and counts
//! the start of every list as a success, so that its backoff never grows and a health can't be
//! read from it; nor does it give a list up that never ends. Hence this loop on kube's list and
//! watch calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::cache::Targets;
use super::call::{CALL_TIMEOUT, describe};
use super::health::Part;
use super::object::{MachineDeployment, Snapshot, parse_version};

/// Objects per page of a list.
const PAGE_MAX: u32 = 500;
/// How long a page of a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the server lets one watch live, in seconds; also what a connection that died without
/// a word costs, since nothing comes on a quiet watch.
const WATCH_LIFE_S: u32 = 55;
/// Beyond that life the connection is dead.
const WATCH_MARGIN: Duration = Duration::from_secs(5);
/// A watch that the server ends sooner than this, without an event, counts as a failure.
const WATCH_LIFE_MIN: Duration = Duration::from_secs(1);
/// First and longest delay after a failure, before the spread.
const BACKOFF_BASE: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// What following brings.
#[derive(Debug)]
pub(super) enum Report {
    /// Everything that was there at `version`: the pools among it, and those that were not.
    Listed {
        part: Part,
        seen: Vec<(Arc<str>, Snapshot)>,
        absent: BTreeSet<Arc<str>>,
        version: u64,
    },
    /// A pool's object is now this.
    Seen(Arc<str>, Snapshot),
    /// A pool's object went away at that version.
    Gone(Arc<str>, u64),
    /// This part works.
    Works(Part),
    /// This part failed, in a try that began then.
    Fails {
        part: Part,
        since: Instant,
        reason: String,
        /// The server does not know the resource: the version has to be found anew.
        unserved: bool,
    },
    /// A better version of the API is served now.
    Upgraded,
}

/// Delays after failures: doubled each time, spread by ±20 %.
#[derive(Debug)]
pub(super) struct Backoff {
    seed: u64,
    name: String,
    draws: u64,
    attempt: u32,
}

impl Backoff {
    pub(super) fn new(seed: u64, name: String) -> Backoff {
        Backoff {
            seed,
            name,
            draws: 0,
            attempt: 0,
        }
    }

    pub(super) fn reset(&mut self) {
        self.attempt = 0;
    }

    pub(super) fn next(&mut self) -> Duration {
        use sunward_core::rng::{Purpose, unit_draw};
        let delay = BACKOFF_BASE
            .saturating_mul(1 << self.attempt.min(10))
            .min(BACKOFF_MAX);
        let draw = unit_draw(self.seed, Purpose::RetryJitter, &self.name, self.draws);
        self.draws += 1;
        self.attempt = self.attempt.saturating_add(1);
        delay.mul_f64(0.8 + 0.4 * draw)
    }
}

/// Why a list or a watch ended early.
struct Broken {
    reason: String,
    /// The server's status, where it answered.
    code: Option<u16>,
    /// When what failed began.
    since: Instant,
    /// The version to resume from; `None`: list again.
    resume: Option<String>,
}

/// Why a step ended.
enum Stop {
    /// Nobody listens any more.
    Closed,
    /// It failed.
    Broken(Broken),
}

impl Stop {
    fn because(reason: String, since: Instant, resume: Option<String>) -> Stop {
        Stop::Broken(Broken {
            reason,
            code: None,
            since,
            resume,
        })
    }

    fn by(error: &kube::Error, since: Instant, resume: Option<String>) -> Stop {
        let (reason, code) = match error {
            kube::Error::Api(status) => (
                format!("{} {}", status.code, status.message),
                Some(status.code),
            ),
            error => (describe(error), None),
        };
        Stop::Broken(Broken {
            reason,
            code,
            since,
            // 410: the version is forgotten. 504: it is in the server's future. 404: all is.
            resume: resume.filter(|_| !matches!(code, Some(404 | 410 | 504))),
        })
    }
}

/// One namespace (or all of them) of one cluster.
pub(super) struct Follower {
    pub(super) api: Api<MachineDeployment>,
    pub(super) namespace: Option<Arc<str>>,
    pub(super) targets: Arc<Targets>,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) backoff: Backoff,
}

impl Follower {
    /// Follows until nobody listens.
    pub(super) async fn run(mut self) {
        let mut version: Option<String> = None;
        loop {
            let ended = match &version {
                None => self.list().await,
                Some(from) => self.watch(from).await,
            };
            match ended {
                Ok(next) => version = Some(next),
                Err(Stop::Closed) => return,
                Err(Stop::Broken(mut broken)) => {
                    version = broken.resume.take();
                    let report = Report::Fails {
                        part: self.part(),
                        since: broken.since,
                        unserved: broken.code == Some(404),
                        reason: self.explain(&broken),
                    };
                    if self.report(report).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(self.backoff.next()).await;
                }
            }
        }
    }

    fn part(&self) -> Part {
        Part::Watch(self.namespace.clone())
    }

    fn place(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in all namespaces".to_owned(),
        }
    }

    fn explain(&self, broken: &Broken) -> String {
        let place = self.place();
        let remedy = match broken.code {
            Some(403) => "; grant `list` and `watch` on it (deploy/rbac/management-cluster.yaml)",
            Some(401) => "; renew the credentials in the kubeconfig",
            _ => "",
        };
        format!(
            "following MachineDeployments {place}: {}{remedy}",
            broken.reason
        )
    }

    async fn report(&self, report: Report) -> Result<(), Stop> {
        self.reports.send(report).await.map_err(|_| Stop::Closed)
    }

    fn pool(&self, object: &MachineDeployment) -> Option<&Arc<str>> {
        let (namespace, name) = object.key();
        self.targets.get(&(namespace.into(), name.into()))
    }

    /// Lists everything and reports it; returns the version to watch from.
    async fn list(&self) -> Result<String, Stop> {
        let since = Instant::now();
        let here =
            |namespace: &Arc<str>| self.namespace.as_ref().is_none_or(|own| own == namespace);
        let mut absent: BTreeSet<Arc<str>> = self
            .targets
            .iter()
            .filter(|((namespace, _), _)| here(namespace))
            .map(|(_, pool)| pool.clone())
            .collect();
        let mut seen = Vec::new();
        let mut params = ListParams::default().limit(PAGE_MAX);
        let from = loop {
            let page = match timeout(LIST_TIMEOUT, self.api.list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(Stop::by(&error, since, None)),
                Err(_) => {
                    let reason = format!("no list in {} s", LIST_TIMEOUT.as_secs());
                    return Err(Stop::because(reason, since, None));
                }
            };
            for object in &page.items {
                if let Some(pool) = self.pool(object) {
                    let snapshot = Snapshot::of(object)
                        .map_err(|error| Stop::because(error.to_string(), since, None))?;
                    seen.push((pool.clone(), snapshot));
                    absent.remove(pool);
                }
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                break page.metadata.resource_version.unwrap_or_default();
            }
        };
        let version = parse_version(&from).ok_or_else(|| {
            let reason = format!("the list has the resourceVersion {from:?}, which is no number");
            Stop::because(reason, since, None)
        })?;
        let listed = Report::Listed {
            part: self.part(),
            seen,
            absent,
            version,
        };
        self.report(listed).await?;
        Ok(from)
    }

    /// Watches from a version until the stream ends; returns where to resume.
    async fn watch(&mut self, from: &str) -> Result<String, Stop> {
        let started = Instant::now();
        let resume = || Some(from.to_owned());
        let params = WatchParams::default().timeout(WATCH_LIFE_S);
        let stream = match timeout(CALL_TIMEOUT, self.api.watch(&params, from)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Stop::by(&error, started, resume())),
            Err(_) => {
                let reason = format!("no watch in {} s", CALL_TIMEOUT.as_secs());
                return Err(Stop::because(reason, started, resume()));
            }
        };
        self.report(Report::Works(self.part())).await?;
        let mut stream = stream.boxed();
        let mut version = from.to_owned();
        let life = Duration::from_secs(u64::from(WATCH_LIFE_S)) + WATCH_MARGIN;
        // Silence beyond its life is the end of a watch, too.
        while let Ok(Some(event)) = timeout(life, stream.next()).await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.take(&object, &mut version, Report::Seen).await?;
                }
                Ok(WatchEvent::Deleted(object)) => {
                    let gone = |pool, last: Snapshot| Report::Gone(pool, last.version);
                    self.take(&object, &mut version, gone).await?;
                }
                Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                Ok(WatchEvent::Error(status)) => {
                    let error = kube::Error::Api(status);
                    return Err(Stop::by(&error, Instant::now(), Some(version)));
                }
                Err(error) => return Err(Stop::by(&error, Instant::now(), Some(version))),
            }
            self.backoff.reset();
        }
        if started.elapsed() < WATCH_LIFE_MIN && version == from {
            let reason = "the server ended the watch at once".to_owned();
            return Err(Stop::because(reason, started, Some(version)));
        }
        self.backoff.reset();
        Ok(version)
    }

    /// Reports what happened to an object, if it is a pool's, and moves on.
    async fn take(
        &self,
        object: &MachineDeployment,
        version: &mut String,
        report: impl FnOnce(Arc<str>, Snapshot) -> Report,
    ) -> Result<(), Stop> {
        let snapshot = Snapshot::of(object).map_err(|error| {
            Stop::because(error.to_string(), Instant::now(), Some(version.clone()))
        })?;
        *version = snapshot.version.to_string();
        if let Some(pool) = self.pool(object) {
            self.report(report(pool.clone(), snapshot)).await?;
        }
        Ok(())
    }
}
