//! `sunward policy ...`: the kit of the policy language, on the same code as the daemon.

use std::process::ExitCode;

use super::block_on;

mod explain;
mod findings;
mod lint;
mod rollback;
mod schema;
mod sources;
mod test;
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
    /// Why a pool stands where it stands, and why not elsewhere; now or at an instant.
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Args),
    /// Back to the policy set that was in force before the present one.
    #[command(after_help = rollback::EXAMPLES)]
    Rollback(rollback::Args),
    /// Run the unit tests beside policies, with rule coverage.
    #[command(after_help = test::EXAMPLES)]
    Test(test::Args),
    /// The JSON schema of policy files, for editors.
    #[command(after_help = schema::EXAMPLES)]
    Schema,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Validate(args) => validate::run(args),
        Command::Lint(args) => lint::run(args),
        Command::Explain(args) => block_on(explain::run(args)),
        Command::Rollback(args) => block_on(rollback::run(args)),
        Command::Test(args) => test::run(args),
        Command::Schema => schema::run(),
    }
}
