//! `sunward simulate SCENARIO`: the production core in the simulated world.

use std::io::IsTerminal as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sunward_policies::document::SourceFile;
use sunward_simulations::report::{Report, SEEDS_MAX, run_seeds};
use sunward_simulations::scenario::Scenario;
use sunward_simulations::world::{Core, Options, run as run_world};

use super::{FOUND, Output, output};

/// How often a long run says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Seeds whose first violation the table shows.
const SHOWN_MAX: usize = 10;

/// Arguments of `simulate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A scenario file; `simulations/docs/failing-seed.md` says how to read what it finds.
    scenario: PathBuf,
    /// This policy file instead of the scenario's own.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The first seed: it determines everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after another from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    seeds: u64,
    /// Also write down what happens under --seed, line by line, to this file.
    #[arg(long, value_name = "FILE")]
    transcript: Option<PathBuf>,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scenario = match load(args)? {
        Ok(scenario) => scenario,
        Err(error) => {
            output::error(&error);
            return Ok(ExitCode::from(FOUND));
        }
    };
    if let Some(path) = &args.transcript {
        let options = Options {
            seed: args.seed,
            transcript: true,
            ..Options::default()
        };
        let outcome = run_world(&scenario, &options);
        std::fs::write(path, outcome.transcript)
            .with_context(|| format!("the transcript can't be written to {}", path.display()))?;
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let place = args.scenario.display().to_string();
    let place = match &args.policy {
        Some(policy) => format!("{place} --policy {}", policy.display()),
        None => place,
    };
    let progress = Progress::new(args.seeds);
    let report = run_seeds(
        &scenario,
        &place,
        args.seed,
        args.seeds,
        threads,
        &Core::default(),
        &|done| progress.show(done),
    );
    match Output::or_default(args.output) {
        Output::Json => output::json(&report)?,
        Output::Table => output::line(&table(&report))?,
    };
    Ok(if report.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// A file that can't be opened is wrong use; one that does not parse is a finding.
fn load(args: &Args) -> anyhow::Result<anyhow::Result<Scenario>> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))
    };
    let text = read(&args.scenario)?;
    let policy = args
        .policy
        .as_deref()
        .map(|path| Ok::<_, anyhow::Error>((path, read(path)?)));
    let policy = policy.transpose()?;
    let name = args
        .scenario
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let folder = args.scenario.parent().unwrap_or(Path::new("."));
    let mut read_series =
        |file: &str| std::fs::read_to_string(folder.join(file)).map_err(|error| error.to_string());
    let place = args.scenario.display().to_string();
    let parsed = Scenario::parse(&name, &place, &text, &mut read_series);
    let parsed = parsed.and_then(|scenario| match policy {
        Some((path, text)) => scenario.with_policies(vec![SourceFile {
            path: path.display().to_string(),
            text,
        }]),
        None => Ok(scenario),
    });
    Ok(parsed.map_err(anyhow::Error::from))
}

/// Says on standard error how far a run of many seeds is.
struct Progress {
    seeds: u64,
    began: Instant,
    shown: Mutex<Instant>,
    terminal: bool,
}

impl Progress {
    fn new(seeds: u64) -> Progress {
        let now = Instant::now();
        Progress {
            seeds,
            began: now,
            shown: Mutex::new(now),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn show(&self, done: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if done == self.seeds && self.terminal && self.began.elapsed() >= PROGRESS_EVERY {
            // The result does not begin behind the last word of progress.
            let _ = write!(std::io::stderr().lock(), "\r{:60}\r", "");
        }
        if shown.elapsed() < PROGRESS_EVERY || done == self.seeds {
            return;
        }
        *shown = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let left = seconds / done as f64 * (self.seeds - done) as f64;
        let line = format!("{done} of {} seeds, about {left:.0} s left", self.seeds);
        let mut stderr = std::io::stderr().lock();
        // A closed standard error is no reason to stop.
        let _ = if self.terminal {
            write!(stderr, "\r{line}   ")
        } else {
            writeln!(stderr, "{line}")
        };
    }
}

fn table(report: &Report) -> String {
    let mut lines = vec![format!(
        "{}: {} seed{} from {}, {:.0} simulated site-hours",
        report.scenario,
        report.seeds,
        if report.seeds == 1 { "" } else { "s" },
        report.seed,
        report.simulated_site_hours
    )];
    lines.push(format!(
        "{:<16} {:>10} {:>12} {:>12} {:>7}",
        "site", "hours", "kWh", "kg CO2e", "starts"
    ));
    let kg = |kg: Option<f64>| kg.map_or_else(|| "-".to_owned(), |kg| format!("{kg:.3}"));
    for row in &report.sites {
        lines.push(format!(
            "{:<16} {:>10.2} {:>12.2} {:>12} {:>7}",
            row.site,
            row.hours,
            row.energy_kwh,
            kg(row.emissions_kg),
            row.starts
        ));
    }
    lines.push(format!(
        "{:<16} {:>10.2} {:>12.2} {:>12} {:>7}",
        "all",
        report.site_hours,
        report.totals.energy_kwh,
        kg(report.totals.emissions_kg),
        report.totals.starts
    ));
    let total: u64 = report.faults.values().sum();
    let faults: Vec<String> = report
        .faults
        .iter()
        .map(|(kind, n)| format!("{kind} {n}"))
        .collect();
    lines.push(format!("faults {total}: {}", faults.join(", ")));
    lines.push(format!("digest {}", report.digest));
    if report.violations.is_empty() {
        lines.push("nothing was violated".to_owned());
    }
    // The first of each seed is the one to read; what follows it often only follows from it.
    let mut firsts: Vec<_> = report.violations.iter().collect();
    firsts.dedup_by_key(|found| found.seed);
    for found in firsts.iter().take(SHOWN_MAX) {
        lines.push(format!(
            "VIOLATED at {}: {}: {}",
            found.at, found.rule, found.detail
        ));
        lines.push(format!("  see it again: {}", found.command));
    }
    let more = report.violations.len() - firsts.len().min(SHOWN_MAX);
    if more > 0 {
        lines.push(format!("and {more} more (all of them: --output json)"));
    }
    lines.join("\n")
}
