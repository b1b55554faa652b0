//! A redis-server of one's own, on a free port and in a folder of its own.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tempfile::TempDir;

use super::until;

/// A port can be taken between the probe and the start.
const START_ATTEMPTS_MAX: usize = 5;

/// The program, or `None` after saying that the case is skipped.
pub fn program() -> Option<OsString> {
    if let Some(path) = std::env::var_os("SUNWARD_TEST_REDIS") {
        return Some(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("redis-server").is_file()) {
        return Some("redis-server".into());
    }
    skip("without redis-server (put it on PATH, or its path into SUNWARD_TEST_REDIS)");
    None
}

/// Says past the test runner's capture that the running case is skipped, and why.
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

/// A running server; it is killed when this is dropped.
pub struct Server {
    program: OsString,
    pub port: u16,
    arguments: Vec<String>,
    child: Child,
    folder: TempDir,
}

impl Server {
    /// Starts one that keeps its data over a kill, or loses all of it.
    pub async fn start(program: OsString, persistent: bool) -> Server {
        let mode = if persistent { "yes" } else { "no" };
        let arguments = ["--appendonly", mode, "--appendfsync", "always"];
        Server::start_with(program, &arguments.map(String::from)).await
    }

    /// Starts one with more arguments.
    pub async fn start_with(program: OsString, arguments: &[String]) -> Server {
        for _ in 0..START_ATTEMPTS_MAX {
            let folder = TempDir::with_prefix("sunward-redis-").unwrap();
            let probe = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = probe.local_addr().unwrap().port();
            drop(probe);
            let child = spawn(&program, port, &folder, arguments);
            let mut server = Server {
                program: program.clone(),
                port,
                arguments: arguments.to_vec(),
                child,
                folder,
            };
            if server.until_answering().await {
                return server;
            }
        }
        panic!("redis-server did not start on any of {START_ATTEMPTS_MAX} ports");
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A connection as `user[:password]`, or as the default user.
    pub async fn connection_as(&self, user: &str) -> redis::RedisResult<MultiplexedConnection> {
        let at = if user.is_empty() { "" } else { "@" };
        let client = Client::open(format!("redis://{user}{at}127.0.0.1:{}", self.port))?;
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// A connection as the default user.
    pub async fn connection(&self) -> MultiplexedConnection {
        self.connection_as("").await.unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, on the same port and folder.
    pub async fn restart(&mut self) {
        self.child = spawn(&self.program, self.port, &self.folder, &self.arguments);
        assert!(self.until_answering().await, "redis-server did not restart");
    }

    /// SIGSTOP (true): connections stay open and nothing answers; or SIGCONT.
    pub fn pause(&self, paused: bool) {
        let signal = if paused { "-STOP" } else { "-CONT" };
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// False when it ended instead.
    async fn until_answering(&mut self) -> bool {
        // A server with TLS alone answers to nobody here: its own test waits for it.
        if self
            .arguments
            .iter()
            .any(|argument| argument == "--tls-port")
        {
            return true;
        }
        let pid = format!("process_id:{}\r\n", self.child.id());
        let client = Client::open(self.url()).unwrap();
        let child = &mut self.child;
        loop {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            let answers = until("redis-server to answer", || async {
                let mut connection = client.get_multiplexed_async_connection().await.ok()?;
                let info: redis::RedisResult<String> = redis::cmd("INFO")
                    .arg("server")
                    .query_async(&mut connection)
                    .await;
                info.ok().map(|info| info.contains(&pid))
            });
            if tokio::time::timeout(Duration::from_secs(2), answers).await == Ok(true) {
                return true;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &OsString, port: u16, folder: &TempDir, arguments: &[String]) -> Child {
    let tls = arguments.iter().any(|argument| argument == "--tls-port");
    let port = if tls { 0 } else { port };
    Command::new(program)
        .args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
        .args(["--port", &port.to_string()])
        .arg("--dir")
        .arg(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
