//! `sunward policy lint PATH...`: what loads and does not do what was meant.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use sunward_core::fleet::lint::studies_on_fleet;
use sunward_core::signal::{Quality, Scope, StreamKey};
use sunward_policies::lint::{
    Series, SeriesReading, alone, on_series, pairs, share_by_labels, studies,
};
use sunward_policies::policy::BindingScope;
use sunward_signal_adapters::csv_series::CsvMapping;
use sunward_signal_adapters::series;

use super::validate::Checked;
use crate::cli::signal::{CsvArgs, flags, read};
use crate::cli::{FOUND, Output, output};

pub(super) const EXAMPLES: &str = "\
Finds what `validate` can't call an error: conditions that never hold, policies that fight or are never reached, pools \
that would flap, thresholds in another unit. With --fleet also budgets against floors; with --signals also holds \
against the cadence of the signals, and minimum runs against the windows that there were.

Examples:
  sunward policy lint policies/
  sunward policy lint policies/ --fleet fleet.yaml --strict
  sunward policy lint policies/ --signals moer.csv --time-column time --value-column moer --time-zone UTC \\
      --interval 5m --unit lb/MWh --source watttime --kind carbon_intensity --basis marginal --zone wt/CAISO_NORTH

Exit codes: 0 no error (with --strict: no warning either); 1 an error, or a file of readings that does not parse; \
2 wrong use, or a path can't be opened.";

/// Arguments of `policy lint`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy files, or folders of them (`*.yaml`, without `*.test.yaml`). All together are one set.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The fleet file, for what policies and pools say together.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
    /// Readings of the signals, for cadence and windows: JSON as `signal push` takes it, or CSV with the keys below,
    /// which are then those of each CSV file. May be given several times.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    signals: Vec<PathBuf>,
    /// Exit with 1 for a warning, too.
    #[arg(long)]
    strict: bool,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    csv: CsvArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let keys = args.csv.keys();
    let mapping = (!keys.is_empty()).then(|| keys.mapping()).transpose();
    let mapping = mapping.map_err(|error| flags(&error.to_string()))?;
    let mut readings = Readings::default();
    for path in &args.signals {
        if let Err(error) = readings.read(path, mapping.as_ref())? {
            output::error(&error);
            return Ok(ExitCode::from(FOUND));
        }
    }
    let mut checked = Checked::read(&args.paths, args.fleet.as_ref())?;
    let findings = &mut checked.findings;
    match &checked.policies {
        None => findings.skip("what is valid but wrong", "policies without errors"),
        Some(policies) => {
            let studies = studies(policies, &checked.sources.files);
            findings.diagnostics.extend(alone(&studies));
            #[expect(clippy::single_match_else, reason = "two ways of one weight")]
            match &checked.fleet {
                Some(fleet) => {
                    let found = studies_on_fleet(&studies, fleet);
                    findings.diagnostics.extend(found);
                }
                None => {
                    let found = pairs(&studies, &share_by_labels);
                    findings.diagnostics.extend(found);
                    let check = "fights over pools that different labels share, and budgets against floors and starts";
                    findings.skip(check, "--fleet FILE without errors");
                }
            }
            if args.signals.is_empty() {
                let check = "holds and ages against the cadence of signals, and min_run against their windows";
                findings.skip(check, "--signals FILE");
            } else {
                let series = readings.series();
                let found = on_series(&studies, &series, &mut findings.skipped);
                findings.diagnostics.extend(found);
            }
        }
    }
    let sources = [&checked.sources, &checked.fleet_source];
    checked.findings.show(&sources, args.strict, args.output)
}

/// Readings by stream.
#[derive(Default)]
struct Readings(BTreeMap<StreamKey, Vec<SeriesReading>>);

impl Readings {
    /// A file that can't be opened is wrong use; one that does not parse is a finding.
    fn read(
        &mut self,
        path: &Path,
        mapping: Option<&CsvMapping>,
    ) -> anyhow::Result<anyhow::Result<()>> {
        let is_csv = path
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        anyhow::ensure!(
            !is_csv || mapping.is_some(),
            "{} is CSV by its name, and nothing says what its columns are: give --time-column, --value-column, \
             --interval, --unit, --source, --kind, and --site or --zone",
            path.display()
        );
        let file = read(path)?;
        Ok(self
            .take(&file, mapping.filter(|_| is_csv))
            .with_context(|| path.display().to_string()))
    }

    fn take(&mut self, file: &[u8], mapping: Option<&CsvMapping>) -> anyhow::Result<()> {
        let series = series::Series::read(file, mapping, None)?;
        if let Some(rejected) = series.rejected.first() {
            anyhow::bail!(
                "{} readings can't be read, the first at {}: {}",
                series.rejected.len(),
                rejected.pointer,
                rejected.detail
            );
        }
        for entry in series.entries {
            let reading = entry.reading;
            let value = match (reading.value, &reading.unit) {
                (Some(value), Some(unit)) => Some(reading.stream.kind.convert(value, unit)?),
                _ => None,
            };
            self.0
                .entry(reading.stream)
                .or_default()
                .push(SeriesReading {
                    from: reading.valid_from,
                    to: reading.valid_to,
                    value,
                    forecast: reading.quality == Quality::Forecast,
                });
        }
        Ok(())
    }

    fn series(self) -> Vec<Series> {
        let of = |(key, readings): (StreamKey, Vec<SeriesReading>)| {
            let (scope, place) = match &key.scope {
                Scope::Site(site) => (BindingScope::Site, site),
                Scope::Zone { scheme, code } => {
                    let scheme = scheme.to_string();
                    (BindingScope::Zone { scheme }, code)
                }
            };
            Series::new(&key.source, key.kind, key.basis, scope, place, readings)
        };
        self.0.into_iter().map(of).collect()
    }
}
