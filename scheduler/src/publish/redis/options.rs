//! How to reach Redis. Nothing here is ever printed with a secret in it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest password file, in bytes.
pub const PASSWORD_BYTES_MAX: u64 = 4_096;
/// Longest file of certificates, in bytes.
pub const CERTIFICATES_BYTES_MAX: u64 = 1 << 20;

/// How to reach Redis.
#[derive(Clone)]
pub struct Options {
    /// `redis://HOST[:PORT][/DB]`, `rediss://...` for TLS, or `redis+unix:///PATH`. A user name
    /// may stand in it; a password should be in `password_file` instead.
    pub url: String,
    /// The password's file, read at each connect, so that a rotated one is found; a line break
    /// at its end is dropped.
    pub password_file: Option<PathBuf>,
    /// PEM file of the authorities to trust instead of the machine's (TLS only).
    pub ca_file: Option<PathBuf>,
    /// Wait for a connection at most so long.
    pub connect_timeout: Duration,
    /// Wait for an answer at most so long.
    pub response_timeout: Duration,
}

impl Options {
    /// The options for a URL, with timeouts such that a dead server is noticed within 2 s.
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            password_file: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Options")
            .field("password_file", &self.password_file)
            .field("ca_file", &self.ca_file)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

/// Options that can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Not a URL of Redis. The text is not repeated, because it may hold a password.
    #[error(
        "the URL of Redis can't be read ({0}): write redis://HOST:PORT/DB, rediss://HOST:PORT/DB or redis+unix:///PATH"
    )]
    Url(String),
    /// Two passwords.
    #[error(
        "the URL of Redis at {0} holds a password and a password file is given: remove one of them"
    )]
    TwoPasswords(String),
    /// A certificate file for a connection without TLS.
    #[error("a CA file is given, but the URL of Redis at {0} is not rediss://")]
    CaWithoutTls(String),
}

/// Reads a small text file; the error names it.
pub(super) async fn read_bounded(path: &Path, bytes_max: u64) -> Result<String, String> {
    let shown = path.display();
    let size = tokio::fs::metadata(path)
        .await
        .map_err(|error| format!("{shown}: {error}"))?
        .len();
    if size > bytes_max {
        return Err(format!(
            "{shown}: {size} bytes, at most {bytes_max} are read"
        ));
    }
    tokio::fs::read_to_string(path)
        .await
        .map_err(|error| format!("{shown}: {error}"))
}
