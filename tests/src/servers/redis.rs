//! redis-server, on a port and in a folder of its own.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use crate::environment::Server;
use crate::ports::free_port;
use crate::process::{Process, Signal};
use crate::wait;

/// A port can be taken between the probe and the start.
const START_ATTEMPTS_MAX: u32 = 5;
const READY_DEADLINE: Duration = Duration::from_secs(20);
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// How it keeps its data.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// With an append-only file that is synced at each write: nothing acknowledged is lost by [`Redis::kill`]. Without it,
    /// every restart begins empty.
    pub appendonly: bool,
    /// More arguments of the server, for example `["--requirepass", "x"]`.
    pub arguments: Vec<String>,
}

/// A running redis-server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    port: u16,
    // After the process, so that the folder goes last.
    _folder: TempDir,
}

impl Redis {
    /// Starts one and waits until it answers.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        let program = Server::Redis.required()?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let folder = TempDir::with_prefix("sunward-redis-")?;
            let port = free_port();
            let mut process = Process::new("redis-server", &program, folder.path());
            let dir = folder.path().display().to_string();
            let port_text = port.to_string();
            let appendonly = if options.appendonly { "yes" } else { "no" };
            process.args([
                "--port",
                &port_text,
                "--bind",
                "127.0.0.1",
                "--dir",
                &dir,
                "--save",
                "",
            ]);
            process.args([
                "--daemonize",
                "no",
                "--appendonly",
                appendonly,
                "--appendfsync",
                "always",
            ]);
            process.args(&options.arguments);
            let mut redis = Self {
                process,
                port,
                _folder: folder,
            };
            match redis.restart().await {
                Ok(()) => return Ok(redis),
                Err(error) if attempt == START_ATTEMPTS_MAX => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Its address, `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port; the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// A connection of its own, for the runtime of the case.
    pub async fn connection(&self) -> Result<MultiplexedConnection> {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
        let client = redis::Client::open(self.url())?;
        Ok(client
            .get_multiplexed_async_connection_with_config(&config)
            .await?)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and waits for the end.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.terminate(STOP_DEADLINE).await.map(drop)
    }

    /// Starts it again on the same port and folder, after [`kill`](Self::kill) or [`stop`](Self::stop), and waits until it
    /// answers.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.spawn()?;
        let client = redis::Client::open(self.url())?;
        let pid = self.process.pid().context("it was just started")?;
        wait::try_until(READY_DEADLINE, "redis-server to answer", async || {
            let mut connection = client.get_multiplexed_async_connection().await?;
            let info: String = redis::cmd("INFO")
                .arg("server")
                .query_async(&mut connection)
                .await?;
            let field = format!("process_id:{pid}\r\n");
            ensure!(
                info.contains(&field),
                "another redis-server answers on port {}",
                self.port
            );
            let pong: String = redis::cmd("PING").query_async(&mut connection).await?;
            ensure!(pong == "PONG", "it answers {pong}");
            Ok(())
        })
        .await
        .with_context(|| format!("log of redis-server:\n{}", self.process.log_tail()))?;
        self.process.check_running()
    }

    /// SIGSTOP: connections stay open and nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }
}
