//! `sunward policy explain POOL`: why, and why not.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use sunward_core::time::{Span, Timestamp};

use crate::api::explain::{Explanation, InputView, Place};
use crate::cli::ask::get;
use crate::cli::scope::stamp;
use crate::cli::{Output, output};
use crate::client::{ServerArgs, path_segment};

pub(crate) const EXAMPLES: &str = "\
Asked about now, inputs and ages are those of now; asked about an instant, those of the decision that held then.
Exit code 1: no such pool, or nothing was decided for it yet.

Examples:
  sunward policy explain caiso-a
  sunward policy explain caiso-a --at 2026-03-01T02:30:00+01:00
  sunward policy explain caiso-a --output json | jq '.inputs[] | {name, value, age_seconds}'";

/// Arguments of `policy explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The pool.
    pool: String,
    /// The instant, RFC 3339 with an offset; by default now.
    #[arg(long, value_name = "TIME", value_parser = stamp)]
    at: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut path = format!("/v1/pools/{}/explanation", path_segment(&args.pool));
    if let Some(at) = &args.at {
        let _ = write!(path, "?at={}", path_segment(at));
    }
    let reply = match get(&args.server, &path).await? {
        Ok(reply) => reply,
        Err(code) => return Ok(code),
    };
    if Output::or_default(args.output) == Output::Json {
        return output::json(&reply.json::<serde_json::Value>()?);
    }
    let explanation: Explanation = reply
        .json()
        .context("the daemon's answer is not an explanation; is it another version?")?;
    output::line(note(&explanation).trim_end())
}

/// The explanation as it stands in an incident note.
fn note(explanation: &Explanation) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = write_note(&mut text, explanation);
    text
}

fn write_note(text: &mut String, explanation: &Explanation) -> std::fmt::Result {
    let of = explanation
        .max_workers
        .map_or_else(String::new, |most| format!(" of {most}"));
    let ready = explanation
        .ready
        .map_or_else(String::new, |ready| format!(", {ready} ready"));
    writeln!(
        text,
        "{} at {}: {}{of} workers wanted{ready}",
        explanation.pool, explanation.at, explanation.target
    )?;
    let until = explanation.until.as_ref().map_or_else(
        || after(&explanation.since, &explanation.at, "for"),
        |until| format!(", until {until}"),
    );
    writeln!(
        text,
        "  since    {}{until} (index {}; {} before)",
        explanation.since, explanation.index, explanation.before
    )?;
    writeln!(
        text,
        "  rule     {}{}",
        explanation.rule,
        stands(explanation.place.as_ref())
    )?;
    writeln!(text, "  because  {}", explanation.reason)?;
    if let Some(why_not) = &explanation.why_not {
        writeln!(text, "  why not  {why_not}")?;
    }
    match &explanation.next_possible_change {
        Some(next) => {
            let ahead = after(&explanation.at, next, "in");
            writeln!(
                text,
                "  next     by time alone at {next} at the earliest{ahead}"
            )?;
        }
        None => writeln!(
            text,
            "  next     not by time alone: a reading, an event, an operator or a file can change it"
        )?,
    }
    write_inputs(text, &explanation.inputs)?;
    if !explanation.losers.is_empty() {
        writeln!(text, "\nwhat did not count")?;
    }
    for loser in &explanation.losers {
        writeln!(
            text,
            "  {}{}: {}",
            loser.rule,
            stands(loser.place.as_ref()),
            loser.reason
        )?;
    }
    Ok(())
}

fn write_inputs(text: &mut String, inputs: &[InputView]) -> std::fmt::Result {
    if inputs.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n{:<14} {:>12} {:<12} {:>9}  {:<9} {:<14} STREAM",
        "INPUT", "VALUE", "UNIT", "AGE", "STATE", "SOURCE"
    )?;
    for input in inputs {
        let value = input
            .value
            .map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let age = input
            .age_seconds
            .map_or_else(|| "-".to_owned(), |age| length((age * 1_000.0) as i64));
        writeln!(
            text,
            "{:<14} {value:>12} {:<12} {age:>9}  {:<9} {:<14} {}",
            input.name, input.unit, input.state, input.source, input.stream
        )?;
    }
    Ok(())
}

/// Where a rule stands, as an editor opens it.
fn stands(place: Option<&Place>) -> String {
    let Some(place) = place else {
        return String::new();
    };
    let since = match place.policies.as_str() {
        "now" => ", as it is now",
        _ => "",
    };
    format!(" ({}:{}:{}{since})", place.file, place.line, place.column)
}

/// The time between two stamps in words; nothing where one can't be read.
fn after(from: &str, to: &str, word: &str) -> String {
    let between = Timestamp::parse_rfc3339(from)
        .and_then(|from| Ok((Timestamp::parse_rfc3339(to)? - from).as_millis()));
    match between {
        Ok(ms) if ms >= 0 => format!(" ({word} {})", length(ms)),
        _ => String::new(),
    }
}

/// A length of time to the second.
fn length(ms: i64) -> String {
    Span::from_millis(ms / 1_000 * 1_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::explain::LoserView;

    fn place(line: u32, policies: &str) -> Place {
        Place {
            file: "curtailment.yaml".into(),
            line,
            column: 3,
            end_line: line,
            end_column: 9,
            policies: policies.into(),
        }
    }

    fn explanation() -> Explanation {
        Explanation {
            pool: "caiso-a".into(),
            at: "2026-03-01T14:10:00Z".into(),
            target: 0,
            rule: "curtailment/threshold".into(),
            inputs: vec![InputView {
                name: "carbon".into(),
                stream: "watttime/carbon_intensity.marginal/wt:CAISO_NORTH".into(),
                value: Some(312.0),
                unit: "gCO2e/kWh".into(),
                age_seconds: Some(245.5),
                source: "watttime".into(),
                state: "fresh".into(),
            }],
            losers: vec![LoserView {
                rule: "night/threshold".into(),
                reason: "activated; it only observes".into(),
                place: Some(place(9, "now")),
            }],
            next_possible_change: Some("2026-03-01T14:20:00Z".into()),
            since: "2026-03-01T12:05:00Z".into(),
            until: None,
            index: 912,
            before: 3,
            reason: "released; the activate condition does not hold".into(),
            why_not: Some("curtailment/threshold decides".into()),
            place: Some(place(14, "then")),
            ready: Some(0),
            max_workers: Some(3),
        }
    }

    #[test]
    fn the_table_reads_like_an_incident_note() {
        let wanted = "\
caiso-a at 2026-03-01T14:10:00Z: 0 of 3 workers wanted, 0 ready
  since    2026-03-01T12:05:00Z (for 2h5m) (index 912; 3 before)
  rule     curtailment/threshold (curtailment.yaml:14:3)
  because  released; the activate condition does not hold
  why not  curtailment/threshold decides
  next     by time alone at 2026-03-01T14:20:00Z at the earliest (in 10m)

INPUT                 VALUE UNIT               AGE  STATE     SOURCE         STREAM
carbon               312.00 gCO2e/kWh         4m5s  fresh     watttime       watttime/carbon_intensity.marginal/wt:CAISO_NORTH

what did not count
  night/threshold (curtailment.yaml:9:3, as it is now): activated; it only observes
";
        assert_eq!(note(&explanation()), wanted);
    }

    #[test]
    fn what_is_over_says_until_when() {
        let over = Explanation {
            until: Some("2026-03-01T15:00:00Z".into()),
            next_possible_change: None,
            inputs: Vec::new(),
            losers: Vec::new(),
            ..explanation()
        };
        let note = note(&over);
        assert!(note.contains(", until 2026-03-01T15:00:00Z"), "{note}");
        assert!(note.contains("not by time alone"), "{note}");
        assert!(
            !note.contains("INPUT") && !note.contains("did not count"),
            "{note}"
        );
    }
}
