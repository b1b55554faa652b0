//! A server process with its own folder and log, which never outlives the case that started it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
pub use rustix::process::Signal;

use crate::wait;

/// Lines of a log that are shown after a panic.
const TAIL_LINES_MAX: usize = 40;

/// One server: how to start it, and the running process if there is one. It can be killed and started again with the same
/// arguments. Dropped, the process is killed and reaped: that holds on a panic, too. (`std`'s child and not tokio's, so that
/// a server may outlive the runtime of the case that started it, when cases share it.)
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    working_folder: Option<PathBuf>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A process that is not yet started. Its standard output and error are appended to `<folder>/<name>.log`.
    pub fn new(name: &str, program: impl Into<PathBuf>, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            working_folder: None,
            log: folder.join(format!("{name}.log")),
            child: None,
        }
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.arguments.extend(
            arguments
                .into_iter()
                .map(|argument| argument.as_ref().to_owned()),
        );
        self
    }

    /// Sets a variable of its environment; the rest is inherited.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the folder that it runs in; without, it is the test's.
    pub fn current_dir(&mut self, folder: &Path) -> &mut Self {
        self.working_folder = Some(folder.to_owned());
        self
    }

    /// Starts it. It stays in the process group of the test, so that an interrupt from the terminal ends it too.
    pub fn spawn(&mut self) -> Result<()> {
        if self.running() {
            bail!("{} already runs", self.name);
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening {}", self.log.display()))?;
        let errors: File = log.try_clone()?;
        let mut command = Command::new(&self.program);
        if let Some(folder) = &self.working_folder {
            command.current_dir(folder);
        }
        let child = command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("starting {} ({})", self.name, self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// The process id, while there is a process that was not reaped.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// True while it runs.
    pub fn running(&mut self) -> bool {
        self.child.is_some() && self.exited().is_none()
    }

    /// How it ended, if it did; the next [`spawn`](Self::spawn) forgets it.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self
            .pid()
            .with_context(|| format!("{} does not run", self.name))?;
        let pid = rustix::process::Pid::from_raw(pid as i32).context("a process id is never 0")?;
        rustix::process::kill_process(pid, signal)
            .with_context(|| format!("sending {signal:?} to {}", self.name))
    }

    /// SIGKILL, and waits until the process is gone. Nothing happens when none runs.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error here means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and how it ended.
    ///
    /// # Errors
    /// When it still runs after `deadline`; it is left running then.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(deadline).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it still runs after `deadline`.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let status = wait::try_until(deadline, &what, async || {
            self.exited().context("it still runs")
        })
        .await?;
        self.child = None;
        Ok(status)
    }

    /// The error that a start failed with, once the process has ended.
    ///
    /// # Errors
    /// When it has ended: the status and the tail of its log.
    pub fn check_running(&mut self) -> Result<()> {
        match self.exited() {
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, self.log_tail()),
            None => Ok(()),
        }
    }

    /// Everything that it wrote, over all its starts.
    pub fn log_text(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file that it writes to.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines that it wrote.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES_MAX)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            // Not past the test runner's capture: it belongs to the output of the case that fails.
            #[expect(clippy::print_stderr, reason = "the output of a test")]
            {
                eprintln!(
                    "---- log of {}, its end ----\n{}",
                    self.name,
                    self.log_tail()
                );
            }
        }
    }
}
