//! `sunward unfreeze`: ends the freezes of a scope.

use std::process::ExitCode;

use super::ask::get;
use super::overrides::{self, Common, line};
use super::scope::ScopeArgs;
use super::{FOUND, Output, output};
use crate::api::overrides::OverrideView;

/// Arguments of `unfreeze`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ends every freeze of exactly this scope, the whole fleet by default; a freeze of a wider or narrower scope stays.\n\
                  Exit code 1 where there was none.\n\n\
                  Examples:\n  sunward unfreeze\n  sunward unfreeze --site caiso"
)]
pub(crate) struct Args {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let scope = args.scope.text().unwrap_or_else(|| "fleet".to_owned());
    let server = &args.common.server;
    let reply = match get(server, "/v1/overrides").await? {
        Ok(reply) => reply,
        Err(code) => return Ok(code),
    };
    let views: Vec<OverrideView> = reply.json()?;
    let freezes = views.into_iter().filter(|view| view.effect == "freeze");
    let (mine, others): (Vec<_>, Vec<_>) = freezes.partition(|view| view.scope == scope);
    if mine.is_empty() {
        output::error(&nothing_frozen(&scope, &others));
        return Ok(ExitCode::from(FOUND));
    }
    let mut cleared = Vec::with_capacity(mine.len());
    for freeze in &mine {
        match overrides::clear(server, &freeze.id).await? {
            Ok(reply) => cleared.push(reply.json::<serde_json::Value>()?),
            Err(code) => return Ok(code),
        }
    }
    if Output::or_default(args.common.output) == Output::Json {
        return output::json(&cleared);
    }
    for freeze in &mine {
        output::line(&format!("cleared: {}", line(freeze)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn nothing_frozen(scope: &str, others: &[OverrideView]) -> anyhow::Error {
    let others: Vec<&str> = others.iter().map(|view| view.scope.as_str()).collect();
    let help = if others.is_empty() {
        "nothing is frozen at all".to_owned()
    } else {
        format!("frozen are {}", others.join(", "))
    };
    anyhow::anyhow!("no freeze of {scope} is in force: {help}")
}
