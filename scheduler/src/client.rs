//! The small HTTP client of the command line: HTTP/1.1 with keep-alive, a token, and deadlines.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::{HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

use crate::api::problem::Problem;
use crate::tokens::{Secret, TOKEN_BYTES_MAX};

/// Where the daemon listens by default.
pub const SERVER_DEFAULT: &str = "http://127.0.0.1:7117";
/// Longest answer that is read, in bytes.
pub const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long one request may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which daemon, and as whom: shared by every command that asks one.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// The daemon's address.
    #[arg(long, env = "SUNWARD_SERVER", value_name = "URL", default_value = SERVER_DEFAULT)]
    pub server: String,
    /// File that holds the token; a token is never an argument, where other users could see it.
    #[arg(long, env = "SUNWARD_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// A client of that daemon. An error is wrong use, or a file that can't be read.
    pub fn client(&self) -> anyhow::Result<Client> {
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        Ok(Client::new(&self.server, token, REQUEST_TIMEOUT)?)
    }
}

fn read_token(path: &Path) -> anyhow::Result<Secret> {
    let fail = |problem: String| anyhow::anyhow!("the token file {} {problem}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| {
        fail(format!(
            "can't be read ({error}): check the path and its permissions"
        ))
    })?;
    let text = text.trim();
    if text.is_empty()
        || text.len() > TOKEN_BYTES_MAX
        || !text.bytes().all(|b| b.is_ascii_graphic())
    {
        return Err(fail("does not hold one token: write the token that `sunward partner add` showed, alone, into it".into()));
    }
    Ok(Secret::new(text))
}

/// A text as a part of a path or a query: everything but letters, digits, `-`, `_`, `.` and `~` is escaped (RFC 3986).
pub fn path_segment(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut path, byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                // Writing to a String can't fail.
                let _ = write!(path, "%{byte:02X}");
            }
            path
        })
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not an address.
    #[error("`{server}` is not the address of a daemon: write it like {SERVER_DEFAULT}")]
    Address {
        /// As given.
        server: String,
    },
    /// No trusted certificates to check `https` with.
    #[error("the system's certificates can't be read, so https can't be checked: {0}")]
    Certificates(io::Error),
    /// No connection, or it broke.
    #[error(
        "the daemon at {server} can't be reached ({reason}): check that it runs and that --server names its address"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// What went wrong.
        reason: String,
    },
    /// The answer was too long.
    #[error("the answer of {server} has more than {REPLY_BYTES_MAX} bytes: ask for less")]
    TooLong {
        /// Its address.
        server: String,
    },
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The header `Retry-After`, where it is a number of seconds.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// What the daemon says is wrong, in one line, for people.
    pub fn problem_text(&self) -> String {
        match self.json::<Problem>() {
            Ok(problem) => format!("{} {}: {}", self.status, problem.title, problem.detail),
            Err(_) => format!(
                "status {}, and not in the words of a sunward daemon: check --server",
                self.status
            ),
        }
    }
}

type Inner = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client of one daemon. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    server: String,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    inner: Inner,
}

impl Client {
    /// A client of the daemon at `server`, `http://` or `https://`.
    pub fn new(
        server: &str,
        token: Option<Secret>,
        timeout: Duration,
    ) -> Result<Client, ClientError> {
        let server = server.trim_end_matches('/').to_owned();
        let address = || ClientError::Address {
            server: server.clone(),
        };
        let uri: Uri = server.parse().map_err(|_| address())?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(address()),
        };
        if uri.host().is_none() || uri.query().is_some() {
            return Err(address());
        }
        let authorization = token
            .map(|token| HeaderValue::from_str(&format!("Bearer {}", token.reveal())))
            .transpose()
            .map_err(|_| address())?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        let inner = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .build(connector(https)?);
        Ok(Client {
            server,
            authorization,
            timeout,
            inner,
        })
    }

    /// The address, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// `GET path`.
    pub async fn get(&self, path: &str) -> Result<Reply, ClientError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// `POST path` with a JSON body.
    pub async fn post_json(&self, path: &str, body: Bytes) -> Result<Reply, ClientError> {
        self.send(Method::POST, path, body).await
    }

    /// Any request; a body is JSON.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Reply, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable {
            server: self.server.clone(),
            reason,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header(header::ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|_| ClientError::Address {
                server: format!("{}{path}", self.server),
            })?;
        tokio::time::timeout(self.timeout, self.exchange(request))
            .await
            .unwrap_or_else(|_| Err(unreachable(format!("no answer within {:?}", self.timeout))))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable {
            server: self.server.clone(),
            reason,
        };
        let response = self
            .inner
            .request(request)
            .await
            .map_err(|error| unreachable(causes(&error)))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, REPLY_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    ClientError::TooLong {
                        server: self.server.clone(),
                    }
                } else {
                    unreachable(format!("the answer broke off: {error}"))
                }
            })?;
        let retry_after = parts
            .headers
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse().ok())
            .map(Duration::from_secs);
        Ok(Reply {
            status: parts.status.as_u16(),
            retry_after,
            body: body.to_bytes(),
        })
    }
}

/// A connector that can do `https`; the system's certificates are only read where they are needed.
fn connector(https: bool) -> Result<HttpsConnector<HttpConnector>, ClientError> {
    let provider = rustls::crypto::ring::default_provider();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let builder = HttpsConnectorBuilder::new();
    let builder = if https {
        builder
            .with_provider_and_native_roots(provider)
            .map_err(ClientError::Certificates)?
    } else {
        let config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientError::Certificates(io::Error::other(error)))?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder.with_tls_config(config)
    };
    Ok(builder.https_or_http().enable_http1().wrap_connector(tcp))
}

/// An error with everything that caused it: the outermost alone says only "client error".
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_checked_and_tokens_stay_hidden() {
        for server in [
            "",
            "127.0.0.1:7117",
            "ftp://host",
            "http://",
            "http://h?q=1",
            "not an address",
        ] {
            let error = Client::new(server, None, REQUEST_TIMEOUT).unwrap_err();
            assert!(matches!(error, ClientError::Address { .. }), "{server}");
        }
        let client = Client::new(
            "http://127.0.0.1:1/",
            Some(Secret::new("sw_a_b")),
            REQUEST_TIMEOUT,
        )
        .unwrap();
        assert_eq!(client.server(), "http://127.0.0.1:1");
        assert!(!format!("{client:?}").contains("sw_a_b"));
    }

    #[test]
    fn no_name_escapes_from_its_part_of_a_path() {
        assert_eq!(path_segment("caiso-a_1.b~"), "caiso-a_1.b~");
        assert_eq!(
            path_segment("a/b?c=d e+f%é"),
            "a%2Fb%3Fc%3Dd%20e%2Bf%25%C3%A9"
        );
    }

    #[test]
    fn a_token_file_holds_one_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "sw_a_b\n").unwrap();
        assert_eq!(read_token(&path).unwrap(), Secret::new("sw_a_b"));
        for text in ["", "two words", "a\nb"] {
            std::fs::write(&path, text).unwrap();
            assert!(
                read_token(&path)
                    .unwrap_err()
                    .to_string()
                    .contains("partner add")
            );
        }
        assert!(read_token(&folder.path().join("absent")).is_err());
    }

    #[tokio::test]
    async fn nobody_listening_is_unreachable() {
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let client =
            Client::new(&format!("http://127.0.0.1:{port}"), None, REQUEST_TIMEOUT).unwrap();
        let error = client.get("/healthz").await.unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
