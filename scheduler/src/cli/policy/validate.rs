//! `sunward policy validate PATH...`: what the daemon would say about these files.

use std::path::PathBuf;
use std::process::ExitCode;

use sunward_core::fleet::{Fleet, check};
use sunward_policies::policy::PolicySet;

use super::findings::Findings;
use super::sources::Sources;
use crate::cli::Output;

pub(super) const EXAMPLES: &str = "\
Every finding has a place, a reason, a way to mend it, and a code with a page in policies/docs/codes.

Examples:
  sunward policy validate policies/                        every policy of a folder, together
  sunward policy validate a.yaml b.yaml --fleet fleet.yaml    against the fleet: labels, zones, units
  sunward policy validate policies/ --output json | jq '.diagnostics[].code'

Exit codes: 0 the daemon would load them; 1 it would not; 2 a path can't be opened.
See also: sunward policy lint, for what loads but does not do what was meant.";

/// Arguments of `policy validate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Policy files, or folders of them (`*.yaml`, without `*.test.yaml`). All together are one set.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The fleet file: with it, labels, zones and units that policies name are checked, too.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
    /// Exit with 1 for a warning, too.
    #[arg(long)]
    strict: bool,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

/// Policies and the fleet, as far as they are good.
pub(super) struct Checked {
    /// The policy files.
    pub(super) sources: Sources,
    /// The fleet file.
    pub(super) fleet_source: Sources,
    /// `None` where one of them has an error.
    pub(super) policies: Option<PolicySet>,
    /// `None` where it has an error, or was not given.
    pub(super) fleet: Option<Fleet>,
    /// What was found so far.
    pub(super) findings: Findings,
}

impl Checked {
    /// Reads and checks policy files and, where it is given, the fleet file.
    pub(super) fn read(paths: &[PathBuf], fleet: Option<&PathBuf>) -> anyhow::Result<Checked> {
        let mut sources = Sources::policies(paths)?;
        let mut fleet_source = fleet.map(|path| Sources::fleet(path)).transpose()?;
        let mut findings = Findings::default();
        findings.diagnostics.append(&mut sources.found);
        let whole = findings.diagnostics.is_empty();
        let policies = match PolicySet::compile(&sources.files) {
            Ok(set) => {
                findings.diagnostics.extend_from_slice(set.warnings());
                whole.then_some(set)
            }
            Err(found) => {
                findings.diagnostics.extend(found);
                None
            }
        };
        let fleet_asked = fleet.is_some();
        let fleet = fleet_source.as_mut().and_then(|read| {
            findings.diagnostics.append(&mut read.found);
            let file = read.files.first()?;
            let parsed = Fleet::parse(file);
            parsed
                .map_err(|found| findings.diagnostics.extend(found))
                .ok()
        });
        let check = "names of labels, zones and federations against the fleet";
        match (&policies, &fleet) {
            (Some(policies), Some(fleet)) => findings
                .diagnostics
                .extend(check::policies_on_fleet(policies, fleet)),
            _ if !fleet_asked => findings.skip(check, "--fleet FILE"),
            _ => findings.skip(check, "policies and a fleet without errors"),
        }
        Ok(Checked {
            sources,
            fleet_source: fleet_source.unwrap_or_default(),
            policies,
            fleet,
            findings,
        })
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let checked = Checked::read(&args.paths, args.fleet.as_ref())?;
    let sources = [&checked.sources, &checked.fleet_source];
    checked.findings.show(&sources, args.strict, args.output)
}
