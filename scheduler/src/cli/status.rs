//! `sunward status`: what the daemon knows now.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use super::{Output, UNREACHABLE, output};
use crate::api::status::Status;
use crate::client::{ClientError, ServerArgs};

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
    let client = args.server.client()?;
    let reply = match client.get("/v1/status").await {
        Ok(reply) => reply,
        Err(error @ ClientError::Unreachable { .. }) => {
            output::error(&error.into());
            return Ok(ExitCode::from(UNREACHABLE));
        }
        Err(error) => return Err(error.into()),
    };
    if reply.status == 503 {
        output::error(&anyhow::anyhow!("{}", reply.problem_text()));
        return Ok(ExitCode::from(UNREACHABLE));
    }
    if reply.status != 200 {
        bail!("{}", reply.problem_text());
    }
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
