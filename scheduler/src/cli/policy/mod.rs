//! `sunward policy ...`: the kit of the policy language, on the same code as the daemon.

use std::process::ExitCode;

mod findings;
mod lint;
mod sources;
mod validate;

/// Arguments of `policy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check policy files as the daemon would before it loads them.
    #[command(after_help = validate::EXAMPLES)]
    Validate(validate::Args),
    /// Look for what is valid but wrong.
    #[command(after_help = lint::EXAMPLES)]
    Lint(Box<lint::Args>),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Validate(args) => validate::run(args),
        Command::Lint(args) => lint::run(args),
    }
}
