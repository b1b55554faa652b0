//! A daemon with everything around it: its folder, its files, its partners, and the commands that people use on it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{Daemon, run_command};
use crate::http::Http;
use crate::metrics::Metrics;
use crate::ports::free_port;
use crate::wait;

/// How long a short command may take.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// What a rig is made of.
#[derive(Clone, Debug, Default)]
pub struct RigOptions {
    /// Where Redis is, if events are to be published.
    pub redis_url: Option<String>,
    /// The text of `fleet.yaml`; see [`fleet`].
    pub fleet: String,
    /// The policy files: name and text.
    pub policies: Vec<(String, String)>,
}

/// A pool for [`fleet`].
#[derive(Clone, Debug)]
pub struct FleetPool {
    /// Its name; its site has the same.
    pub name: String,
    /// Most workers.
    pub max_workers: u32,
    /// `k0smotron: {...}` or `memory: {...}`.
    pub actuator: String,
}

impl FleetPool {
    /// A pool of simulated workers that are ready and gone after a second.
    pub fn memory(name: &str, max_workers: u32) -> Self {
        Self {
            name: name.to_owned(),
            max_workers,
            actuator: "memory: {start: 1s, stop: 1s}".to_owned(),
        }
    }

    /// A pool behind the cluster `mgmt`; its MachineDeployment has its name.
    pub fn k0smotron(name: &str, max_workers: u32, namespace: &str) -> Self {
        Self {
            name: name.to_owned(),
            max_workers,
            actuator: format!("k0smotron: {{namespace: {namespace}, machine_deployment: {name}}}"),
        }
    }
}

/// A fleet of the federation `job`: each pool at a site of its own name, all sites in the zone `wt/CAISO_NORTH`; with the
/// cluster `mgmt` where a kubeconfig is given.
pub fn fleet(kubeconfig: Option<&Path>, pools: &[FleetPool]) -> String {
    let mut text = String::from(
        "apiVersion: sunward.dev/v1alpha1\nkind: Fleet\nmetadata: {name: fleet}\nspec:\n",
    );
    if let Some(kubeconfig) = kubeconfig {
        let path = kubeconfig.display();
        let _ = writeln!(
            text,
            "  clusters: [{{name: mgmt, kubeconfig: {path}, context: admin}}]"
        );
    }
    text.push_str("  sites:\n");
    for pool in pools {
        let cluster = if pool.actuator.starts_with("k0smotron") {
            "cluster: mgmt, "
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "    - {{name: {}, {cluster}time_zone: America/Los_Angeles, latitude: 37.4, longitude: -122.1, power_limit_kw: 100, \
             zones: [{{scheme: wt, code: CAISO_NORTH}}]}}",
            pool.name
        );
    }
    text.push_str("  pools:\n");
    for FleetPool {
        name,
        max_workers,
        actuator,
    } in pools
    {
        let _ = writeln!(
            text,
            "    - {{name: {name}, site: {name}, labels: {{energy: surplus}}, max_workers: {max_workers}, training_kw: 2.0, \
             idle_kw: 0.5, gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 5s, actuator: {{{actuator}}}}}"
        );
    }
    let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
    let _ = writeln!(
        text,
        "  federations: [{{name: job, pools: [{}]}}]",
        names.join(", ")
    );
    text
}

/// A folder with a configuration, a fleet, policies and two partners: one that may push (source `watttime`, and `load` for
/// traffic that no policy reads) and an operator.
#[derive(Debug)]
pub struct Rig {
    /// The source partner's token.
    pub partner_token: String,
    /// The operator's token.
    pub operator_token: String,
    port: u16,
    folder: TempDir,
}

impl Rig {
    /// Writes the files and adds the partners with `sunward partner add`. The daemon's port is fixed, so that a client finds
    /// it again after a restart.
    pub async fn new(options: &RigOptions) -> Result<Self> {
        let folder = TempDir::with_prefix("sunward-rig-")?;
        let mut rig = Self {
            partner_token: String::new(),
            operator_token: String::new(),
            port: free_port(),
            folder,
        };
        std::fs::create_dir_all(rig.path("policies"))?;
        std::fs::write(rig.path("fleet.yaml"), &options.fleet)?;
        for (name, text) in &options.policies {
            std::fs::write(rig.path("policies").join(name), text)?;
        }
        let redis = options
            .redis_url
            .as_deref()
            .map_or_else(|| "null".to_owned(), str::to_owned);
        let config = format!(
            "http: {{listen: \"127.0.0.1:{}\", requests_per_second: 1000, requests_burst: 1000}}\ndata_dir: {}\nfleet: \
             {}\npolicies: {}\nredis: {{url: {redis}}}\n",
            rig.port,
            rig.data().display(),
            rig.path("fleet.yaml").display(),
            rig.path("policies").display(),
        );
        std::fs::write(rig.config(), config)?;
        let pushes = [
            "--grant",
            "source=watttime,sites=*,kinds=carbon_intensity",
            "--grant",
            "source=load,sites=*,kinds=*",
        ];
        rig.partner_token = rig.add_partner("bridge", &pushes).await?;
        rig.operator_token = rig.add_partner("operator", &["--operator"]).await?;
        std::fs::write(rig.token_file(), &rig.partner_token)?;
        Ok(rig)
    }

    /// `sunward partner add NAME ARGUMENTS`; returns the token.
    pub async fn add_partner(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let tokens = self.data().join("tokens.yaml");
        std::fs::create_dir_all(self.data())?;
        let tokens = tokens.display().to_string();
        let mut command = vec![
            "partner", "add", name, "--tokens", &tokens, "--output", "json",
        ];
        command.extend(arguments);
        let answer = self.command(&command).await?;
        let secret = answer[0]["secret"].as_str().map(str::to_owned);
        secret.with_context(|| format!("no secret in {answer}"))
    }

    /// A file or folder of the rig.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The configuration.
    pub fn config(&self) -> PathBuf {
        self.path("sunward.yaml")
    }

    /// The daemon's data folder.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// The file with the source partner's token.
    pub fn token_file(&self) -> PathBuf {
        self.path("token")
    }

    /// The address of the daemon, whether it runs or not.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A client with the source partner's token.
    pub fn partner(&self) -> Http {
        Http::new(&self.url()).with_token(&self.partner_token)
    }

    /// A client with the operator's token.
    pub fn operator(&self) -> Http {
        Http::new(&self.url()).with_token(&self.operator_token)
    }

    /// Starts the daemon and waits until it is ready.
    pub async fn start(&self) -> Result<Daemon> {
        let daemon = Daemon::start(&self.config()).await?;
        self.wait_ready().await?;
        Ok(daemon)
    }

    /// Waits until `/readyz` answers 200.
    pub async fn wait_ready(&self) -> Result<()> {
        let http = Http::new(&self.url());
        wait::try_until(READY_DEADLINE, "the daemon to be ready", async || {
            let answer = http.get("/readyz").await?;
            ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
            Ok(())
        })
        .await
    }

    /// What keeps the daemon from being ready, by name; empty when it is.
    pub async fn not_ready(&self) -> Result<Vec<(String, String)>> {
        let answer = Http::new(&self.url()).get("/readyz").await?;
        let body = answer.json()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let parts: Vec<_> = body["not_ready"]
            .as_array()
            .context("no not_ready")?
            .iter()
            .map(|part| (text(&part["name"]), text(&part["reason"])))
            .collect();
        ensure!(
            parts.is_empty() == (answer.status == 200),
            "{} {body}",
            answer.status
        );
        Ok(parts)
    }

    /// `GET /v1/status`, as an operator.
    pub async fn status(&self) -> Result<Value> {
        let answer = self.operator().get("/v1/status").await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        answer.json()
    }

    /// A pool in the status.
    pub async fn pool_status(&self, pool: &str) -> Result<Value> {
        let status = self.status().await?;
        let pools = status["pools"].as_array().context("no pools")?;
        let found = pools.iter().find(|each| each["pool"] == pool).cloned();
        found.with_context(|| format!("no pool {pool} in {status}"))
    }

    /// `/metrics`: the text, and what it says.
    pub async fn metrics(&self) -> Result<(String, Metrics)> {
        let answer = Http::new(&self.url()).get("/metrics").await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
        let text = answer.text();
        let metrics = Metrics::parse(&text)?;
        Ok((text, metrics))
    }

    /// `sunward signal push` of a CSV series as [`crate::series::write_csv`] writes it, 5 minutes per row, to the zone
    /// `wt/CAISO_NORTH`. `rebase` is RFC 3339. Returns the JSON answer and the exit code.
    ///
    /// # Errors
    /// When it does not end within `deadline`, or prints no JSON.
    pub async fn push(
        &self,
        csv: &Path,
        rebase: &str,
        speed: &str,
        deadline: Duration,
    ) -> Result<(Value, Option<i32>)> {
        let (csv, url) = (csv.display().to_string(), self.url());
        let token_file = self.token_file().display().to_string();
        let arguments = [
            "signal",
            "push",
            &csv,
            "--rebase",
            rebase,
            "--speed",
            speed,
            "--time-column",
            "time",
            "--value-column",
            "moer",
            "--time-zone",
            "UTC",
            "--interval",
            "5m",
            "--unit",
            "gCO2e/kWh",
            "--source",
            "watttime",
            "--kind",
            "carbon_intensity",
            "--basis",
            "marginal",
            "--zone",
            "wt/CAISO_NORTH",
            "--server",
            &url,
            "--token-file",
            &token_file,
            "--output",
            "json",
        ];
        let output = run_command(&arguments, &[], deadline).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("signal push ({}): {errors}", output.status))?;
        Ok((answer, output.status.code()))
    }

    /// `sunward replay` of the closed journal, or of a copy of it, up to `to`.
    pub async fn replay(&self, to: Option<u64>) -> Result<Value> {
        let journal = self.data().display().to_string();
        let to = to.map(|to| to.to_string());
        let mut arguments = vec!["replay", journal.as_str(), "--output", "json"];
        if let Some(to) = &to {
            arguments.extend(["--to", to]);
        }
        self.command(&arguments).await
    }

    /// A command that must succeed with JSON.
    async fn command(&self, arguments: &[&str]) -> Result<Value> {
        let output = run_command(arguments, &[], COMMAND_DEADLINE).await?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!(
                "sunward {} ({}): {errors}",
                arguments.join(" "),
                output.status
            );
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("sunward {} printed no JSON", arguments.join(" ")))
    }
}

/// No line of the log tells of a panic.
///
/// # Panics
/// With the line and what follows it, when one does.
pub fn assert_no_panic(log: &str) {
    if let Some(at) = log.find("panicked at") {
        let until = log[at..]
            .char_indices()
            .nth(1_000)
            .map_or(log.len(), |(end, _)| at + end);
        panic!("the daemon panicked: {}", &log[at..until]);
    }
}
