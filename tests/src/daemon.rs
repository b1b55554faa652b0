//! The real binary `sunward`: the daemon, and its commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::http::Http;
use crate::process::{Process, Signal};
use crate::wait;

const LISTENING_DEADLINE: Duration = Duration::from_secs(60);

static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();

/// The binary: `SUNWARD_BIN`, or the one that Cargo builds beside this test, in the same profile. It is built first (once per
/// test process), so that a case never runs an old one.
///
/// # Errors
/// When the build fails.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SUNWARD_BIN").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn build() -> Result<PathBuf> {
    // <target>/<profile>/deps/<test>
    let test = std::env::current_exe()?;
    let folder = test
        .ancestors()
        .nth(2)
        .context("the test is not in Cargo's target folder")?;
    let target = folder
        .parent()
        .context("the test is not in Cargo's target folder")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => bail!("no profile in {}", folder.display()),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What `cargo test` tells this process of its own package is nothing to the packages that are built: some are built anew
    // when they see it change.
    let own = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")
    });
    for name in own {
        command.env_remove(name);
    }
    let output = command
        .args([
            "build",
            "--quiet",
            // The same choice of features as in a build of everything, so that nothing is compiled twice.
            "--workspace",
            "--bin",
            "sunward",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    ensure!(
        output.status.success(),
        "building sunward:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(folder.join("sunward"))
}

/// Runs one command to its end, for example `run_command(&["replay", "journal.redb"], &[], deadline)`, and returns its status,
/// standard output and standard error. For a daemon that must refuse to start, too.
///
/// # Errors
/// When it still runs after `deadline` (it is killed then), or could not start. Any exit code is `Ok`.
pub async fn run_command(
    arguments: &[&str],
    environment: &[(&str, &str)],
    deadline: Duration,
) -> Result<Output> {
    let mut command = tokio::process::Command::new(binary()?);
    command
        .args(arguments)
        .envs(environment.iter().copied())
        .kill_on_drop(true);
    command.stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(deadline, command.output());
    let what = || format!("sunward {}", arguments.join(" "));
    output
        .await
        .with_context(|| format!("{} still runs after {deadline:?}", what()))?
        .with_context(what)
}

/// A running `sunward run`. It is killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    /// Where this start's part of the log begins.
    log_from: usize,
    listening: BTreeMap<String, String>,
    _folder: TempDir,
}

impl Daemon {
    /// Starts `sunward run --config FILE` and waits for its log line `listening`.
    ///
    /// # Errors
    /// When it ends or does not listen in time, with the end of its log.
    pub async fn start(config: &Path) -> Result<Self> {
        Self::start_with(config, &[], &[]).await
    }

    /// The same with more arguments and with variables.
    pub async fn start_with(
        config: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = TempDir::with_prefix("sunward-daemon-")?;
        let mut process = Process::new("sunward", binary()?, folder.path());
        process
            .arg("run")
            .arg("--config")
            .arg(config)
            .args(arguments);
        for (name, value) in environment {
            process.env(name, value);
        }
        Self::launch(process, folder).await
    }

    /// Starts `sunward run` without a file, in this working folder: the embedded default, on its own port.
    pub async fn start_default(working_folder: &Path) -> Result<Self> {
        let folder = TempDir::with_prefix("sunward-daemon-")?;
        let mut process = Process::new("sunward", binary()?, folder.path());
        process.arg("run").current_dir(working_folder);
        Self::launch(process, folder).await
    }

    async fn launch(process: Process, folder: TempDir) -> Result<Self> {
        let mut daemon = Self {
            process,
            log_from: 0,
            listening: BTreeMap::new(),
            _folder: folder,
        };
        daemon.restart().await?;
        Ok(daemon)
    }

    /// Starts it again with the same arguments, after [`kill`](Self::kill) or [`terminate`](Self::terminate). With port 0 in the
    /// config its addresses change.
    pub async fn restart(&mut self) -> Result<()> {
        self.log_from = self.process.log_text().len();
        self.process.spawn()?;
        let Self {
            process, log_from, ..
        } = self;
        let log_from = *log_from;
        let listening = wait::try_until(LISTENING_DEADLINE, "sunward to listen", async || {
            let text = process.log_text();
            let found = lines(&text[log_from..]).find(|line| line["message"] == "listening");
            // An end is final; no need to wait for the deadline.
            let ended = process.exited().is_some();
            if found.is_none() && ended {
                Ok(None)
            } else {
                found.map(Some).context("no line `listening` yet")
            }
        })
        .await
        .with_context(|| format!("log of sunward:\n{}", self.process.log_tail()))?;
        let Some(line) = listening else {
            self.process.check_running()?;
            bail!("sunward ended:\n{}", self.process.log_tail());
        };
        self.listening = line
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect();
        Ok(())
    }

    /// A bound address (`127.0.0.1:PORT`) from the line `listening`, by its name there: `http`, `grpc`, ...
    pub fn address(&self, name: &str) -> Result<&str> {
        let found = self.listening.get(name);
        found
            .map(String::as_str)
            .with_context(|| format!("no address {name} in {:?}", self.listening))
    }

    /// The base of its HTTP surface, for `--server` and [`Http`].
    pub fn url(&self) -> Result<String> {
        Ok(format!("http://{}", self.address("http")?))
    }

    /// A client of its HTTP surface, without a token.
    pub fn http(&self) -> Result<Http> {
        Ok(Http::new(&self.url()?))
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and how it ended (`.code() == Some(0)`).
    ///
    /// # Errors
    /// When it still runs after `deadline`.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.process.terminate(deadline).await
    }

    /// Sends any signal (SIGSTOP, SIGCONT, SIGHUP).
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// True while it runs.
    pub fn running(&mut self) -> bool {
        self.process.running()
    }

    /// The process id, for `/proc/PID`.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Everything that it logged, over all its starts.
    pub fn log_text(&self) -> String {
        self.process.log_text()
    }

    /// The log lines since the last start that are JSON, each with `message`, `level` and its fields at the top.
    pub fn log_lines(&self) -> Vec<Value> {
        lines(&self.process.log_text()[self.log_from..]).collect()
    }
}

/// The JSON lines of a log. Fields that `tracing-subscriber` nests under `fields` are lifted to the top.
fn lines(text: &str) -> impl Iterator<Item = Value> + '_ {
    text.lines().filter_map(|line| {
        let mut value: Value = serde_json::from_str(line).ok()?;
        let object = value.as_object_mut()?;
        if let Some(Value::Object(fields)) = object.remove("fields") {
            object.extend(fields);
        }
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_flat_and_nested_log_lines() {
        let text = "no json\n{\"level\":\"INFO\",\"message\":\"listening\",\"http\":\"127.0.0.1:1\"}\n\
                    {\"level\":\"INFO\",\"fields\":{\"message\":\"listening\",\"http\":\"127.0.0.1:2\"}}\n3\n";
        let http: Vec<Value> = lines(text).map(|line| line["http"].clone()).collect();
        assert_eq!(http, ["127.0.0.1:1", "127.0.0.1:2"]);
        assert!(lines(text).all(|line| line["message"] == "listening" && line["level"] == "INFO"));
    }
}
