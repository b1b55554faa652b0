//! `sunward demo [--fast]`: the whole loop in one process.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use super::{Output, output};
use crate::demo::chart::Colour;
use crate::demo::fast;
use crate::demo::report::{Report, table};
use crate::demo::scenario::Scenario;
use crate::demo::score::Score;

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
    let scenario = Scenario::t1();
    let finished = fast::run(&scenario)?;
    show(&scenario, &finished.score, args.output)
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
