//! `sunward demo [--fast]`: the whole loop in one process.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::MissedTickBehavior;

use super::run::install_metrics;
use super::{INTERRUPTED, Output, output};
use crate::demo::chart::Colour;
use crate::demo::fast;
use crate::demo::live::{Live, SPEED};
use crate::demo::report::{Report, table};
use crate::demo::scenario::Scenario;
use crate::demo::score::Score;
use crate::demo::screen::Screen;

/// How often the screen is redrawn.
const REDRAW_EVERY: Duration = Duration::from_millis(100);
/// How long connections that are still open at the end may take.
const CLOSE_WITHIN: Duration = Duration::from_millis(200);

/// Arguments of `demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do not wait and serve nothing: jump through the series in under a second.
    #[arg(long)]
    fast: bool,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scenario = Arc::new(Scenario::t1());
    if args.fast {
        let finished = fast::run(&scenario)?;
        return show(&scenario, &finished.score, args.output);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the demo's threads could not be started")?;
    let (score, interrupted) = runtime.block_on(play(&scenario))?;
    runtime.shutdown_timeout(CLOSE_WITHIN);
    let shown = show(&scenario, &score, args.output)?;
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        shown
    })
}

/// Plays the scenario in series time, with a view on standard error. Returns the account, and
/// whether it was interrupted.
async fn play(scenario: &Arc<Scenario>) -> anyhow::Result<(Score, bool)> {
    let terminal = std::io::stderr().is_terminal();
    let colour = Colour::on(terminal);
    let mut screen = Screen::new(std::io::stderr().lock(), terminal, colour);
    let mut interrupt = std::pin::pin!(async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Then an interrupt ends the process at once, as without us.
            std::future::pending::<()>().await;
        }
    });
    let mut live = Live::start(scenario, SPEED, install_metrics()?).await?;
    screen.introduce(&introduction(scenario, &live, colour))?;
    let mut redraw = tokio::time::interval(REDRAW_EVERY);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut interrupted = false;
    let watched = loop {
        tokio::select! {
            _ = redraw.tick() => {}
            () = &mut interrupt => interrupted = true,
        }
        let now = live.clock.now().min(scenario.end);
        let shown = live.follower.catch_up(now).map_err(anyhow::Error::from);
        let shown = shown.and_then(|()| Ok(screen.show(&live.follower.score, now)?));
        if shown.is_err() || interrupted || now >= scenario.end {
            break shown;
        }
    };
    let stopped = live.stop().await;
    screen.leave()?;
    watched.context("the demo could not be followed to its end")?;
    let follower = stopped?;
    Ok((follower.score, interrupted))
}

fn introduction(scenario: &Scenario, live: &Live, colour: Colour) -> Vec<String> {
    let hours = scenario.length().as_millis() / 3_600_000;
    let seconds = scenario.length().as_millis() as f64 / 1_000.0 / SPEED;
    let mut lines = vec![
        colour.bold(&format!(
            "sunward demo: GPU training follows clean energy over three sites, {hours} h in {seconds:.0} s"
        )),
        format!("Sites start and leave by {}:", scenario.policy_file.path),
    ];
    lines.extend(
        scenario
            .conditions()
            .map(|line| colour.dim(&format!("  {line}"))),
    );
    lines.push(String::new());
    lines.push(
        "Make Texas clean, from another shell, and see spp react (the token ends with the demo):"
            .to_owned(),
    );
    lines.push(live.curl.clone());
    lines.push(format!("Metrics: http://{}/metrics", live.address));
    lines.push(String::new());
    lines
}

fn show(scenario: &Scenario, score: &Score, asked: Option<Output>) -> anyhow::Result<ExitCode> {
    match Output::or_default(asked) {
        Output::Json => output::json(&Report::new(score)),
        Output::Table => {
            let colour = Colour::on(std::io::stdout().is_terminal());
            output::line(&table(scenario, score, colour))
        }
    }
}
