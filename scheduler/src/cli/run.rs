//! `sunward run`: the daemon.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sunward_core::time::Span;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::INTERRUPTED;
use crate::api::ApiLimits;
use crate::api::quota::Rate;
use crate::clock::{Clock, wall_now};
use crate::config::{Config, LogFormat};
use crate::files::Paths;
use crate::journal::{Options, Redb};
use crate::metric_definitions::SECONDS_BUCKETS;
use crate::publish::EventSink;
use crate::publish::redis::{self, RedisSink};
use crate::publish::wiring::highest_term;
use crate::run::{self, Files, Setup, open_tokens};
use crate::writer::{Writer, journal_path};

/// A wall clock that is further behind the last record refuses the start.
const BEHIND_MAX: Span = Span::from_secs(60);

/// Arguments of `run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration; without it, simulated workers, a journal in ./sunward-data, loopback.
    /// `--print-default` shows every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the default configuration and stop.
    #[arg(long)]
    print_default: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.print_default {
        return super::output::line(crate::config::DEFAULT.trim_end());
    }
    let config = Config::load(args.config.as_deref())?;
    init_log(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(config));
    // A file system or a credentials plugin that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(2));
    served
}

async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    let metrics = install_metrics()?;
    std::fs::create_dir_all(&config.data_dir).with_context(|| {
        format!(
            "the data folder {} can't be made",
            config.data_dir.display()
        )
    })?;
    let path = journal_path(&config.data_dir);
    let journal = Redb::open(&path, Options::default())?;
    let writer = Writer::recover(Box::new(journal)).context("the journal can't be recovered")?;
    let last = writer.engine().state().at;
    if writer.engine().state().index > 0 && wall_now() + BEHIND_MAX < last {
        bail!(
            "the wall clock ({}) is more than 60 s behind the journal's last record ({last}): set the clock \
             (is NTP running?), or start beside an empty journal",
            wall_now()
        );
    }
    let sinks = sinks(&config)?;
    let federations: Vec<Arc<str>> = writer
        .engine()
        .state()
        .federations
        .keys()
        .cloned()
        .collect();
    let outside = highest_term(&sinks, &federations).await;
    let term = 1 + outside.max(writer.engine().state().term);
    let setup = Setup {
        clock: Clock::wall(last + Span::from_millis(1)),
        term,
        seed: seed()?,
        files: Files::Watched(Paths {
            fleet: config.fleet.clone(),
            policies: config.policies.clone(),
        }),
        tokens: open_tokens(&config.tokens_path())?,
        listen: config.http.listen,
        metrics_listen: config.http.metrics_listen,
        limits: ApiLimits {
            rate: Rate {
                per_second: f64::from(config.http.requests_per_second),
                burst: config.http.requests_burst,
            },
            ..ApiLimits::default()
        },
        sinks,
        adapters: config.adapters.clone(),
        metrics,
        writer,
    };
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let daemon = run::start(setup).await?;
    announce(&daemon.addresses, term);
    let code = tokio::select! {
        _ = terminate.recv() => ExitCode::SUCCESS,
        _ = interrupt.recv() => ExitCode::from(INTERRUPTED),
        () = daemon.broken() => {
            bail!("the engine loop has stopped by itself: this is a fault of sunward, please report it with the log above; the journal is whole, so start again");
        }
    };
    daemon.stop().await?;
    tracing::info!("stopped");
    Ok(code)
}

/// The one line that scripts wait for.
fn announce(addresses: &std::collections::BTreeMap<&'static str, std::net::SocketAddr>, term: u64) {
    let of = |name| {
        addresses
            .get(name)
            .map_or_else(|| "none".to_owned(), ToString::to_string)
    };
    tracing::info!(
        http = of("http"),
        metrics = of("metrics"),
        term,
        "listening"
    );
}

fn sinks(config: &Config) -> anyhow::Result<Vec<Arc<dyn EventSink>>> {
    let Some(url) = &config.redis.url else {
        return Ok(Vec::new());
    };
    let mut options = redis::Options::new(url);
    options
        .password_file
        .clone_from(&config.redis.password_file);
    options.ca_file.clone_from(&config.redis.ca_file);
    let sink = RedisSink::new(options).context("the configuration's redis.url")?;
    Ok(vec![Arc::new(sink)])
}

/// Seeds the named random streams of this term; journaled, so that a replay draws the same.
fn seed() -> anyhow::Result<u64> {
    use ring::rand::SecureRandom as _;
    let mut bytes = [0; 8];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("the operating system gives no random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}

fn init_log(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log.filter)
        .with_context(|| format!("log.filter `{}` can't be read", config.log.filter))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match config.log.format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.init(),
    }
    Ok(())
}

/// The process-wide recorder; `/metrics` renders it.
pub(crate) fn install_metrics() -> anyhow::Result<PrometheusHandle> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)?
        .install_recorder()
        .context("the metrics recorder can't be installed")
}
