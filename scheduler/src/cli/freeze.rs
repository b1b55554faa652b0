//! `sunward freeze`: no target changes, but by a limit or an emergency of the grid.

use std::process::ExitCode;

use super::overrides::{self, Common};
use super::scope::{ScopeArgs, WhyArgs};

/// Arguments of `freeze`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What runs goes on running and nothing starts; limits and emergencies of the grid still act. A short form of\n\
                  `sunward override set freeze`; `sunward unfreeze` with the same scope ends it.\n\n\
                  Examples:\n  sunward freeze --for 1h --reason 'change window'\n  \
                  sunward freeze --site caiso --for 30m --reason 'meter is being replaced'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    why: WhyArgs,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let scope = args.scope.text().unwrap_or_else(|| "fleet".to_owned());
    overrides::set(&args.common, &args.why.request(scope, "freeze", None)).await
}
