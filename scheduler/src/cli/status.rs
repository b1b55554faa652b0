//! `sunward status`: what the daemon knows now.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;

use super::ask::get;
use super::overrides::line;
use super::{Output, output};
use crate::api::status::{GridEventStatusView, Status};
use crate::client::ServerArgs;

/// Arguments of `status`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reply = match get(&args.server, "/v1/status").await? {
        Ok(reply) => reply,
        Err(code) => return Ok(code),
    };
    match Output::or_default(args.output) {
        // As it came: a newer daemon's fields are not lost on an older command.
        Output::Json => output::json(&reply.json::<serde_json::Value>()?),
        Output::Table => {
            let status: Status = reply
                .json()
                .context("the daemon's answer is not a status; is it another version?")?;
            output::line(table(&status).trim_end())
        }
    }
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = write_table(&mut text, status);
    text
}

fn write_table(text: &mut String, status: &Status) -> std::fmt::Result {
    let ready = if status.ready { "ready" } else { "NOT READY" };
    let leading = if status.leading {
        "leading"
    } else {
        "not leading"
    };
    writeln!(
        text,
        "{ready}, {leading}, term {}, index {}, {}",
        status.term, status.index, status.time
    )?;
    for part in &status.not_ready {
        writeln!(text, "  {}: {}", part.name, part.problem)?;
    }
    for finding in &status.file_findings {
        writeln!(text, "  file: {finding}")?;
    }
    write_policies(text, status)?;
    for one in &status.overrides {
        writeln!(text, "  override: {}", line(one))?;
    }
    if !status.frozen_pools.is_empty() {
        writeln!(text, "  frozen: {}", status.frozen_pools.join(", "))?;
    }
    for event in &status.grid_events {
        writeln!(text, "  grid event: {}", event_line(event))?;
    }
    write_goals(text, status)?;
    writeln!(
        text,
        "\n{:<20} {:<14} {:>7} {:>6} {:>5} {:>4}  {:<12} RULE",
        "POOL", "SITE", "DESIRED", "WANTED", "READY", "MAX", "STATE"
    )?;
    for pool in &status.pools {
        let number =
            |count: Option<u32>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        writeln!(
            text,
            "{:<20} {:<14} {:>7} {:>6} {:>5} {:>4}  {:<12} {}: {}",
            pool.pool,
            pool.site,
            number(pool.desired),
            number(pool.wanted),
            pool.ready,
            pool.max_workers,
            pool.state,
            pool.rule,
            pool.reason
        )?;
    }
    writeln!(
        text,
        "\n{:<56} {:>12} {:<10} {:>8}",
        "STREAM", "VALUE", "UNIT", "AGE"
    )?;
    for stream in &status.streams {
        let value = stream
            .value
            .map_or_else(|| "missing".to_owned(), |value| format!("{value:.2}"));
        let age = stream
            .age_seconds
            .map_or_else(|| "never".to_owned(), |age| format!("{age:.0} s"));
        writeln!(
            text,
            "{:<56} {value:>12} {:<10} {age:>8}",
            stream.stream, stream.unit
        )?;
    }
    Ok(())
}

fn write_policies(text: &mut String, status: &Status) -> std::fmt::Result {
    let state = &status.policy_state;
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    if let Some(since) = &state.since {
        let (hash, files) = (short(&state.hash), state.files.len());
        writeln!(
            text,
            "  policies: set {hash} of {files} files, in force since {since}"
        )?;
    }
    if !state.refused.is_empty() {
        writeln!(
            text,
            "  policies: the files on disk are refused; the set in force stays"
        )?;
    }
    if let Some(done) = &state.rolled_back {
        let hash = short(&done.hash);
        writeln!(
            text,
            "  policies: set {hash} was rolled back by {} at {}; its files stay out of force until they change",
            done.by, done.at
        )?;
    }
    Ok(())
}

fn write_goals(text: &mut String, status: &Status) -> std::fmt::Result {
    for budget in &status.budgets {
        let amount = |amount: Option<f64>| {
            amount.map_or_else(|| "?".to_owned(), |amount| format!("{amount:.2}"))
        };
        let part = match budget.part.as_str() {
            "" => "fleet",
            part => part,
        };
        let state = match (budget.known, budget.exhausted) {
            (false, _) => "; UNKNOWN what was spent before: `sunward budget set`",
            (_, true) => "; EXHAUSTED",
            _ => "",
        };
        let until = budget.period_to.as_ref();
        let until = until.map_or_else(String::new, |to| format!(" until {to}"));
        writeln!(
            text,
            "  budget: {} of {part}: {} of {} {}{until}{state}",
            budget.budget,
            amount(budget.spent),
            amount(budget.limit),
            budget.unit
        )?;
    }
    for floor in &status.blocked_floors {
        writeln!(
            text,
            "  floor: {} CAN'T BE MET since {}: {} of {} sites are active",
            floor.floor, floor.blocked_since, floor.active, floor.needed
        )?;
    }
    for deadline in &status.deadlines {
        let missed = if deadline.missed { "; MISSED" } else { "" };
        writeln!(
            text,
            "  deadline: {}: {:.1} of {:.1} worker-hours by {}, {}{missed}",
            deadline.deadline,
            deadline.done_hours,
            deadline.work_hours,
            deadline.finish_by,
            deadline.mode
        )?;
    }
    Ok(())
}

fn event_line(event: &GridEventStatusView) -> String {
    let acts = if event.acts {
        "acts now"
    } else {
        "does not act now"
    };
    let until = event
        .ends_at
        .as_deref()
        .unwrap_or("it is completed or cancelled");
    let target = event.target.as_deref().unwrap_or("the minimum");
    format!(
        "{} {} of {} at {}, {}, {acts}: to {target}, from {} until {until}",
        event.kind, event.id, event.source, event.scope, event.status, event.starts_at
    )
}
