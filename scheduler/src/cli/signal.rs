//! `sunward signal push FILE|-`: readings from a shell.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sunward_core::time::Span;
use sunward_signal_adapters::csv_series::CsvKeys;
use sunward_signal_adapters::file_replay::{RebaseStart, rebase};
use sunward_signal_adapters::series::{FILE_BYTES_MAX, Series};
use sunward_signal_adapters::wire::Answer;

use super::{FOUND, INTERRUPTED, Output, UNREACHABLE, output};
use crate::client::ServerArgs;
use crate::clock::wall_now;
use crate::push::{Patience, Progress, PushError, push};

/// Rejections that a table shows; the JSON form has all.
const REJECTIONS_SHOWN_MAX: usize = 20;

/// Arguments of `signal`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Send readings from a CSV or JSON file to the daemon.
    #[command(
        after_help = "A file with --time-column is CSV; another holds JSON readings: one object, an array, or one object \
                            a line.\nOld series live on the present clock with --rebase now --speed 300 (five minutes become a \
                            second)."
    )]
    Push(Box<PushArgs>),
}

#[derive(Debug, clap::Args)]
struct PushArgs {
    /// The file; `-` is standard input.
    file: PathBuf,
    /// What the first stamp becomes: `now`, or an RFC 3339 time. Without it, stamps stay and all
    /// readings go at once (with --speed alone: now).
    #[arg(long, value_name = "TIME", value_parser = RebaseStart::parse)]
    rebase: Option<RebaseStart>,
    /// Intervals and gaps shrink by this.
    #[arg(long, value_name = "N")]
    speed: Option<f64>,
    #[command(flatten)]
    server: ServerArgs,
    /// How long to go on trying while the daemon can't be reached or says "later".
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    retry_for: Duration,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    csv: CsvArgs,
}

/// The keys of a CSV series.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "CSV series")]
pub(super) struct CsvArgs {
    /// Header of the column of stamps.
    #[arg(long, value_name = "HEADER")]
    time_column: Option<String>,
    /// Header of the column of values; an empty cell is "no value", never 0.
    #[arg(long, value_name = "HEADER")]
    value_column: Option<String>,
    /// Zone of stamps without an offset, such as UTC or Europe/Berlin.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// How long a row holds, such as 5m.
    #[arg(long, value_name = "DURATION")]
    interval: Option<String>,
    /// Unit of the values, such as gCO2e/kWh.
    #[arg(long)]
    unit: Option<String>,
    /// Name of the source, as granted.
    #[arg(long)]
    source: Option<String>,
    /// Kind of signal, such as carbon_intensity.
    #[arg(long)]
    kind: Option<String>,
    /// Basis, such as marginal or day_ahead.
    #[arg(long)]
    basis: Option<String>,
    /// The site where the values hold.
    #[arg(long)]
    site: Option<String>,
    /// The grid zone where the values hold.
    #[arg(long, value_name = "SCHEME/CODE")]
    zone: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = Span::parse(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_millis(span.as_millis().max(0) as u64))
}

impl CsvArgs {
    pub(super) fn keys(&self) -> CsvKeys {
        CsvKeys {
            time_column: self.time_column.clone(),
            value_column: self.value_column.clone(),
            time_zone: self.time_zone.clone(),
            interval: self.interval.clone(),
            unit: self.unit.clone(),
            source: self.source.clone(),
            kind: self.kind.clone(),
            basis: self.basis.clone(),
            site: self.site.clone(),
            zone: self.zone.clone(),
        }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::Push(args) = args.command;
    push_file(&args).await
}

async fn push_file(args: &PushArgs) -> anyhow::Result<ExitCode> {
    let keys = args.csv.keys();
    let mapping = if keys.is_empty() {
        if args
            .file
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("csv"))
        {
            anyhow::bail!(
                "{} is CSV by its name, and nothing says what its columns are: give --time-column, --value-column, \
                 --interval, --unit, --source, --kind, and --site or --zone",
                args.file.display()
            );
        }
        None
    } else {
        Some(keys.mapping().map_err(|error| flags(&error.to_string()))?)
    };
    let client = args.server.client()?;
    let file = read(&args.file)?;
    let rebase = rebase(args.rebase, args.speed, wall_now());
    let series = match Series::read(&file, mapping.as_ref(), rebase) {
        Ok(series) => series,
        Err(error) => {
            let wrong_use = error.is_wrong_use();
            let error = flags(&error.to_string()).context(args.file.display().to_string());
            if wrong_use {
                return Err(error);
            }
            output::error(&error);
            return Ok(ExitCode::from(FOUND));
        }
    };
    drop(file);
    let mut answer = Answer::default();
    let mut reporter = Reporter::new();
    let mut report = |progress: Progress<'_>| reporter.show(progress);
    let ended = tokio::select! {
        ended = push(&series, &client, wall_now, Patience::new(args.retry_for), &mut answer, &mut report) => Some(ended),
        _ = tokio::signal::ctrl_c() => None,
    };
    reporter.end();
    show(&answer, Output::or_default(args.output))?;
    Ok(ExitCode::from(match ended {
        Some(Ok(())) if answer.rejected.is_empty() => 0,
        Some(Ok(())) => FOUND,
        Some(Err(error)) => {
            let code = if matches!(error, PushError::Unreachable { .. }) {
                UNREACHABLE
            } else {
                FOUND
            };
            output::error(&error.into());
            code
        }
        None => INTERRUPTED,
    }))
}

/// The keys as the flags that they are here.
pub(super) fn flags(text: &str) -> anyhow::Error {
    let keys = [
        "time_column",
        "value_column",
        "time_zone",
        "interval",
        "unit",
        "source",
        "kind",
        "basis",
        "site",
        "zone",
    ];
    let text = keys.iter().fold(text.to_owned(), |text, key| {
        text.replace(&format!("`{key}`"), &format!("--{}", key.replace('_', "-")))
    });
    anyhow::anyhow!(text)
}

pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut file = Vec::new();
    // One byte more than allowed tells a file that is too long from one that just fits.
    let most = FILE_BYTES_MAX as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(most)
            .read_to_end(&mut file)
            .context("standard input can't be read")?;
    } else {
        std::fs::File::open(path)
            .and_then(|open| open.take(most).read_to_end(&mut file))
            .with_context(|| {
                format!(
                    "{} can't be read: check the path and its permissions",
                    path.display()
                )
            })?;
    }
    Ok(file)
}

fn show(answer: &Answer, form: Output) -> anyhow::Result<()> {
    if form == Output::Json {
        output::json(answer)?;
        return Ok(());
    }
    output::line(&format!(
        "accepted {}  duplicate {}  superseded {}  rejected {}",
        answer.accepted,
        answer.duplicate,
        answer.superseded,
        answer.rejected.len()
    ))?;
    for rejected in answer.rejected.iter().take(REJECTIONS_SHOWN_MAX) {
        output::line(&format!(
            "  {:<20} {}: {}",
            rejected.pointer, rejected.code, rejected.detail
        ))?;
    }
    if answer.rejected.len() > REJECTIONS_SHOWN_MAX {
        output::line(&format!(
            "  and {} more: see --output json",
            answer.rejected.len() - REJECTIONS_SHOWN_MAX
        ))?;
    }
    Ok(())
}

/// Progress on standard error: one line that is written over on a terminal, a line now and then
/// elsewhere.
struct Reporter {
    terminal: bool,
    every: Duration,
    last: Option<Instant>,
    open_line: bool,
}

impl Reporter {
    fn new() -> Reporter {
        let terminal = std::io::stderr().is_terminal();
        let every = if terminal {
            Duration::from_millis(100)
        } else {
            Duration::from_secs(10)
        };
        // Elsewhere than on a terminal a short push says nothing at all.
        Reporter {
            terminal,
            every,
            last: (!terminal).then(Instant::now),
            open_line: false,
        }
    }

    fn show(&mut self, progress: Progress<'_>) {
        let finished = progress.answered == progress.total && self.terminal;
        if !finished && self.last.is_some_and(|last| last.elapsed() < self.every) {
            return;
        }
        self.last = Some(Instant::now());
        let text = progress_line(progress);
        let mut out = std::io::stderr().lock();
        // Nothing can be done about a standard error that is closed.
        let _ = if self.terminal {
            self.open_line = true;
            write!(out, "\r\u{1b}[K{text}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{text}")
        };
    }

    fn end(&mut self) {
        if self.open_line {
            let _ = writeln!(std::io::stderr().lock());
        }
    }
}

fn progress_line(progress: Progress<'_>) -> String {
    let Progress {
        answered,
        total,
        rejected,
        waiting,
    } = progress;
    let refused = if rejected > 0 {
        format!(", {rejected} refused")
    } else {
        String::new()
    };
    let again = waiting
        .map(|problem| format!("; trying again: {problem}"))
        .unwrap_or_default();
    format!("{answered} of {total} readings sent{refused}{again}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<PushArgs, clap::Error> {
        let Command::Push(args) = Cli::try_parse_from(format!("signal push {line}").split(' '))?
            .args
            .command;
        Ok(*args)
    }

    #[test]
    fn flags_are_those_of_the_adapter() {
        let args = parse(
            "moer.csv --time-column t --value-column v --time-zone UTC --interval 5m --unit lb/MWh --source watttime \
             --kind carbon_intensity --basis marginal --zone wt/CAISO_NORTH --rebase now --speed 300 --retry-for 1m30s",
        )
        .unwrap();
        assert_eq!(args.retry_for, Duration::from_secs(90));
        assert_eq!(args.rebase, Some(RebaseStart::Now));
        let mapping = args.csv.keys().mapping().unwrap();
        assert_eq!(
            mapping.stream.to_string(),
            "watttime/carbon_intensity.marginal/wt:CAISO_NORTH"
        );
        assert!(parse("f.csv --rebase yesterday").is_err());
        assert!(parse("f.csv --retry-for 60").is_err());
        assert!(
            parse("- --rebase 2026-03-01T00:00:00Z")
                .unwrap()
                .csv
                .keys()
                .is_empty()
        );
    }

    #[tokio::test]
    async fn wrong_use_is_an_error_that_names_the_flag() {
        for (line, word) in [
            ("absent.csv", "--time-column"),
            ("absent.csv --time-column t", "--"),
            (
                "absent.csv --time-column t --value-column v --interval 5m --unit x --source s --kind index --site a",
                "--unit",
            ),
            ("absent.json", "absent.json"),
            ("absent.json --server nowhere", "nowhere"),
        ] {
            let error = push_file(&parse(line).unwrap()).await.unwrap_err();
            assert!(format!("{error:#}").contains(word), "{line}: {error:#}");
        }
    }

    #[test]
    fn progress_says_what_it_waits_for() {
        let progress = Progress {
            answered: 3,
            total: 9,
            rejected: 1,
            waiting: Some("busy"),
        };
        assert_eq!(
            progress_line(progress),
            "3 of 9 readings sent, 1 refused; trying again: busy"
        );
    }
}
