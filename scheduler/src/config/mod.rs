//! The configuration of `sunward run`: one YAML file, one options struct per component. The
//! embedded default.yaml is the default, key by key.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use sunward_policies::yaml::read_yaml;
use sunward_signal_adapters::AdapterConfig;

/// The text of the default configuration.
pub const DEFAULT: &str = include_str!("default.yaml");
/// The example fleet that is used where none is configured.
pub const EXAMPLE_FLEET: &str = include_str!("fleet.yaml");
/// The shipped policy that is used where no folder is configured.
pub const SHIPPED_POLICY: &str = include_str!("../../../policies/library/curtailment.yaml");

/// The configuration of the daemon. Relative paths are relative to the working directory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The HTTP server.
    pub http: HttpOptions,
    /// The journal's folder; made if absent.
    pub data_dir: PathBuf,
    /// The fleet file.
    pub fleet: Option<PathBuf>,
    /// The folder of policy files.
    pub policies: Option<PathBuf>,
    /// The tokens file; by default `tokens.yaml` in `data_dir`.
    pub tokens: Option<PathBuf>,
    /// The Redis sink.
    pub redis: RedisOptions,
    /// Sources that the daemon reads by itself.
    pub adapters: Vec<AdapterConfig>,
    /// Logging.
    pub log: LogOptions,
}

/// Options of the HTTP server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpOptions {
    /// Address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A separate address for metrics and health.
    pub metrics_listen: Option<SocketAddr>,
    /// Sustained requests per second and partner.
    pub requests_per_second: u32,
    /// Requests that a partner may send at once.
    pub requests_burst: u32,
}

/// Options of the Redis sink.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisOptions {
    /// `redis://HOST:PORT/DB` or `rediss://...`; absent = no Redis.
    pub url: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// PEM file of the authorities to trust instead of the machine's, for `rediss://`.
    pub ca_file: Option<PathBuf>,
}

/// Options of the log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogOptions {
    /// One JSON object a line, or text for people.
    pub format: LogFormat,
    /// As in `info,sunward=debug`.
    pub filter: String,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisOptions")
            .field("set", &self.url.is_some())
            .finish_non_exhaustive()
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            listen: ([127, 0, 0, 1], 7117).into(),
            metrics_listen: None,
            requests_per_second: 10,
            requests_burst: 50,
        }
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            format: LogFormat::Json,
            filter: "info".to_owned(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            http: HttpOptions::default(),
            data_dir: "sunward-data".into(),
            fleet: None,
            policies: None,
            tokens: None,
            redis: RedisOptions::default(),
            adapters: Vec::new(),
            log: LogOptions::default(),
        }
    }
}

impl Config {
    /// The configuration in `path`, or the default without one.
    pub fn load(path: Option<&Path>) -> anyhow::Result<Config> {
        let Some(path) = path else {
            return Config::parse("default.yaml", DEFAULT);
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the configuration {} can't be read", path.display()))?;
        Config::parse(&path.display().to_string(), &text)
    }

    fn parse(name: &str, text: &str) -> anyhow::Result<Config> {
        let config: Config = read_yaml(name, text)
            .map_err(|diagnostic| anyhow::anyhow!("{}", diagnostic.render(Some(text), false)))?;
        for address in [Some(config.http.listen), config.http.metrics_listen]
            .into_iter()
            .flatten()
        {
            if !address.ip().is_loopback() {
                bail!(
                    "{name}: http listens on {address}, which is beyond loopback, and this version has no TLS: \
                     listen on 127.0.0.1 and put a TLS proxy in front"
                );
            }
        }
        if config.http.requests_per_second == 0 || config.http.requests_burst == 0 {
            bail!("{name}: http.requests_per_second and http.requests_burst must be at least 1");
        }
        Ok(config)
    }

    /// Where the tokens are.
    pub fn tokens_path(&self) -> PathBuf {
        self.tokens
            .clone()
            .unwrap_or_else(|| self.data_dir.join("tokens.yaml"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_embedded_file_says_what_the_types_say() {
        let from_file = Config::parse("default.yaml", DEFAULT).unwrap();
        assert_eq!(format!("{from_file:?}"), format!("{:?}", Config::default()));
    }

    #[test]
    fn a_listen_address_beyond_loopback_and_an_unknown_key_are_refused() {
        let error = Config::parse("c.yaml", "http: {listen: \"0.0.0.0:7117\"}").unwrap_err();
        assert!(error.to_string().contains("beyond loopback"), "{error}");
        let error = Config::parse("c.yaml", "htp: {}").unwrap_err().to_string();
        assert!(error.contains("c.yaml:1"), "{error}");
    }
}
