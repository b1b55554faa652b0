//! Policy and fleet files: read, checked together, journaled as one change, watched.
//!
//! A set with an error never replaces a good one: the set in force stays, readiness and status say
//! why, and the next change of a file is tried again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use sunward_core::event::{Event, PackedFile};
use sunward_core::fleet::{Fleet, check};
use sunward_policies::diagnostic::{Diagnostic, Severity};
use sunward_policies::document::{POLICY_FILES_MAX, SourceFile};
use sunward_policies::policy::PolicySet;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::{EXAMPLE_FLEET, SHIPPED_POLICY};
use crate::engine_handle::{EngineHandle, Stopped};
use crate::metric_definitions as names;
use crate::readiness::Readiness;

/// Fleet and policies together, packed, in bytes: they are journaled in one group.
pub const PACKED_BYTES_MAX: usize = 700 * 1024;
/// How often files are looked at even if the file system reported nothing.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long changes are gathered before a load, since editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// Where the files are; `None` is the embedded example.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// The fleet file.
    pub fleet: Option<PathBuf>,
    /// The folder of policies.
    pub policies: Option<PathBuf>,
}

/// A fleet and policies that were read and found good together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The fleet file.
    pub fleet: SourceFile,
    /// The policy files, by path.
    pub policies: Vec<SourceFile>,
}

/// The findings of the last load, for status.
#[derive(Clone, Debug, Default)]
pub struct Findings(Arc<Mutex<Vec<Diagnostic>>>);

impl Findings {
    /// Errors and warnings of the last load.
    pub fn all(&self) -> Vec<Diagnostic> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, found: Vec<Diagnostic>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// Reads and checks everything. `Ok` carries warnings, `Err` every finding.
pub fn load(paths: &Paths) -> Result<(Loaded, Vec<Diagnostic>), Vec<Diagnostic>> {
    let fleet = match &paths.fleet {
        Some(path) => read(path)?,
        None => SourceFile {
            path: "example fleet.yaml".to_owned(),
            text: EXAMPLE_FLEET.to_owned(),
        },
    };
    let policies = match &paths.policies {
        Some(folder) => read_folder(folder)?,
        None => vec![SourceFile {
            path: "curtailment.yaml".to_owned(),
            text: SHIPPED_POLICY.to_owned(),
        }],
    };
    let loaded = Loaded { fleet, policies };
    let warnings = check_together(&loaded)?;
    Ok((loaded, warnings))
}

/// Checks a fleet and policies, each and together.
fn check_together(loaded: &Loaded) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
    let files = std::iter::once(&loaded.fleet).chain(&loaded.policies);
    let packed: usize = files
        .map(|file| PackedFile::pack(file).packed_bytes())
        .sum();
    if packed > PACKED_BYTES_MAX {
        let what = format!(
            "fleet and policies are {packed} bytes when packed; at most {PACKED_BYTES_MAX} fit"
        );
        return Err(unreadable(Path::new(&loaded.fleet.path), &what));
    }
    let fleet = Fleet::parse(&loaded.fleet);
    let policies = PolicySet::compile(&loaded.policies);
    let (fleet, policies) = match (fleet, policies) {
        (Ok(fleet), Ok(policies)) => (fleet, policies),
        (fleet, policies) => {
            return Err([fleet.err(), policies.err()]
                .into_iter()
                .flatten()
                .flatten()
                .collect());
        }
    };
    let mut found = policies.warnings().to_vec();
    found.extend(check::policies_on_fleet(&policies, &fleet));
    if found
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error)
    {
        Err(found)
    } else {
        Ok(found)
    }
}

fn unreadable(path: &Path, what: &str) -> Vec<Diagnostic> {
    vec![Diagnostic {
        code: "SUN-F001",
        severity: Severity::Error,
        file: path.display().to_string(),
        line: 1,
        column: 1,
        end_line: 1,
        end_column: 1,
        message: what.to_owned(),
        help: Some(
            "check that the path is right and that the daemon's user may read it".to_owned(),
        ),
    }]
}

fn read(path: &Path) -> Result<SourceFile, Vec<Diagnostic>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| unreadable(path, &format!("the file can't be read: {error}")))?;
    Ok(SourceFile {
        path: path.display().to_string(),
        text,
    })
}

/// The paths of the policy files of a folder, by name: every `*.yaml` and `*.yml` but tests
/// (`*.test.yaml`) and hidden files. A mounted ConfigMap is a folder of links, whose hidden targets
/// are thus left out.
pub(crate) fn policy_paths(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let yaml = [".yaml", ".yml"]
                .iter()
                .any(|ending| name.ends_with(ending));
            yaml && !name.starts_with('.') && !name.contains(".test.") && path.is_file()
        })
        .collect();
    paths.sort();
    Ok(paths)
}

/// Every policy file of a folder.
fn read_folder(folder: &Path) -> Result<Vec<SourceFile>, Vec<Diagnostic>> {
    let paths = policy_paths(folder)
        .map_err(|error| unreadable(folder, &format!("the folder can't be read: {error}")))?;
    if paths.len() > POLICY_FILES_MAX {
        return Err(unreadable(
            folder,
            &format!("more than {POLICY_FILES_MAX} policy files"),
        ));
    }
    let files = paths
        .iter()
        .map(|path| read(path))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(files)
}

/// Journals what differs from what is in force, in one group. Ends a rollback.
pub async fn replace(engine: &EngineHandle, loaded: &Loaded) -> Result<(), Stopped> {
    replace_with(engine, &loaded.fleet, Some(&loaded.policies)).await
}

/// The same; without policies those in force stay.
async fn replace_with(
    engine: &EngineHandle,
    fleet: &SourceFile,
    policies: Option<&Vec<SourceFile>>,
) -> Result<(), Stopped> {
    let (new_fleet, new_policies) = (fleet.clone(), policies.cloned());
    let events = engine
        .ask(move |engine| {
            let state = engine.state();
            let mut events = Vec::new();
            if state.fleet.as_ref() != Some(&new_fleet) {
                events.push(Event::FleetReplaced {
                    file: PackedFile::pack(&new_fleet),
                });
            }
            let rolled_back = state.policy_history.rolled_back.is_some();
            if let Some(policies) = new_policies
                && (state.policies != policies || rolled_back)
            {
                events.push(Event::PoliciesReplaced {
                    files: policies.iter().map(PackedFile::pack).collect(),
                });
            }
            events
        })
        .await?;
    for event in &events {
        let file = if matches!(event, Event::FleetReplaced { .. }) {
            "fleet"
        } else {
            "policies"
        };
        counter!(names::RELOADS, "file" => file, "outcome" => "replaced").increment(1);
    }
    if events.is_empty() {
        counter!(names::RELOADS, "file" => "policies", "outcome" => "unchanged").increment(1);
        return Ok(());
    }
    engine.tell_all_and_wait(events).await?;
    let files = policies.map(Vec::len);
    tracing::info!(files, fleet = %fleet.path, "policies and fleet are in force");
    Ok(())
}

/// Loads the files now and whenever they change, until `shutdown`.
pub struct Loader {
    /// Where the files are.
    pub paths: Paths,
    /// Where changes go.
    pub engine: EngineHandle,
    /// `policies` is set here.
    pub readiness: Readiness,
    /// The findings of the last load, for status.
    pub findings: Findings,
}

impl Loader {
    /// The first load, then the watch.
    pub async fn run(self, shutdown: CancellationToken) {
        let (signal, mut changes) = mpsc::channel(1);
        // Kept alive for as long as the loop runs.
        let watcher = self.watch(signal);
        let mut last: Option<Result<Loaded, Vec<Diagnostic>>> = None;
        loop {
            last = Some(self.reload(last).await);
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
                Some(()) = changes.recv() => {
                    tokio::time::sleep(SETTLE).await;
                    // Whatever came meanwhile is part of the same load.
                    let _ = changes.try_recv();
                }
            }
        }
        drop(watcher);
    }

    /// Watches folders, not files: an editor or a ConfigMap replaces the file itself.
    fn watch(&self, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
        use notify::Watcher as _;
        let mut watcher = notify::recommended_watcher(move |_| {
            // One waiting signal is enough.
            let _ = changed.try_send(());
        })
        .inspect_err(|error| tracing::warn!(%error, "files are only looked at every few seconds"))
        .ok()?;
        let fleet = self.paths.fleet.as_deref().and_then(Path::parent);
        for folder in [fleet, self.paths.policies.as_deref()]
            .into_iter()
            .flatten()
        {
            let folder = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            if let Err(error) = watcher.watch(folder, notify::RecursiveMode::NonRecursive) {
                tracing::warn!(%error, folder = %folder.display(), "this folder is only looked at every few seconds");
            }
        }
        Some(watcher)
    }

    async fn reload(
        &self,
        last: Option<Result<Loaded, Vec<Diagnostic>>>,
    ) -> Result<Loaded, Vec<Diagnostic>> {
        let paths = self.paths.clone();
        let read = tokio::task::spawn_blocking(move || load(&paths)).await;
        let read =
            read.unwrap_or_else(|error| Err(unreadable(Path::new("policies"), &error.to_string())));
        let now = read
            .as_ref()
            .map(|(loaded, _)| loaded.clone())
            .map_err(Clone::clone);
        if last.as_ref() == Some(&now) {
            return now;
        }
        let read = match read {
            Ok((loaded, warnings)) => self.withheld(loaded, warnings).await,
            Err(found) => Err(found),
        };
        match read {
            Ok((loaded, withheld, warnings)) => {
                let policies = (!withheld).then_some(&loaded.policies);
                // Stopped meanwhile: the next start loads the files again.
                let _ = replace_with(&self.engine, &loaded.fleet, policies).await;
                report(&warnings);
                self.findings.set(warnings);
                self.readiness.set("policies", Ok(()));
            }
            Err(found) => {
                counter!(names::RELOADS, "file" => "policies", "outcome" => "refused").increment(1);
                report(&found);
                let first = found.iter().find(|d| d.severity == Severity::Error);
                self.readiness.set("policies", self.refused(first).await);
                self.findings.set(found);
            }
        }
        now
    }

    /// Files whose content an operator took back stay out of force, also after a restart: the fleet then has to
    /// pass with the policies that are in force. True where that is so.
    async fn withheld(
        &self,
        loaded: Loaded,
        warnings: Vec<Diagnostic>,
    ) -> Result<(Loaded, bool, Vec<Diagnostic>), Vec<Diagnostic>> {
        let taken_back = self.engine.ask(|engine| {
            let state = engine.state();
            let rolled_back = state.policy_history.rolled_back.as_ref();
            rolled_back.map(|done| (done.hash.clone(), state.policies.clone()))
        });
        let Ok(Some((hash, in_force))) = taken_back.await else {
            return Ok((loaded, false, warnings));
        };
        let on_disk = PolicySet::compile(&loaded.policies).map(|policies| policies.hash());
        if on_disk.ok().as_deref() != Some(hash.as_ref()) {
            return Ok((loaded, false, warnings));
        }
        tracing::warn!(
            taken_back = %hash,
            "the policy files hold what was rolled back: they stay out of force until their content changes"
        );
        let kept = Loaded {
            fleet: loaded.fleet,
            policies: in_force,
        };
        let warnings = check_together(&kept)?;
        Ok((kept, true, warnings))
    }

    /// A refused set leaves the daemon ready as long as a good one is in force.
    async fn refused(&self, first: Option<&Diagnostic>) -> Result<(), String> {
        let in_force = self
            .engine
            .ask(|engine| engine.state().fleet.is_some())
            .await
            .unwrap_or(false);
        let what = first.map_or_else(String::new, ToString::to_string);
        if in_force {
            Ok(())
        } else {
            Err(format!("no good set was ever loaded: {what}"))
        }
    }
}

fn report(found: &[Diagnostic]) {
    for diagnostic in found {
        match diagnostic.severity {
            Severity::Error => {
                tracing::error!(
                    code = diagnostic.code,
                    "{diagnostic}; the set in force stays"
                );
            }
            Severity::Warning => tracing::warn!(code = diagnostic.code, "{diagnostic}"),
        }
    }
}
