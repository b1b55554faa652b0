//! `sunward override set|list|clear`: what operators want regardless of the policies.

use std::process::ExitCode;

use axum::http::Method;
use bytes::Bytes;

use super::ask::{ask, get};
use super::scope::{ScopeArgs, WhyArgs};
use super::{Output, output};
use crate::api::overrides::{OverrideRequest, OverrideView};
use crate::client::{Reply, ServerArgs, path_segment};

/// Arguments of `override`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Limits and emergencies of the grid come before every override; then off and freeze, then hard budgets, then floors,\n\
                  then on, then the policies. A pool's minimum and maximum always hold.\n\n\
                  Examples:\n  \
                  sunward override set off --site caiso --for 2h --reason 'breaker 7 is replaced'\n  \
                  sunward override set on --pool caiso-a --workers 2 --until 2026-12-24T18:00:00Z --reason 'paper deadline'\n  \
                  sunward override list\n  sunward override clear o-3f9a21c4d0"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Set an override: it has an owner, a reason and an expiry, always.
    Set(Box<SetArgs>),
    /// Every override in force.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// End an override before its expiry.
    Clear {
        /// Its id: see `sunward override list`.
        id: String,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    /// on: run, as far as limits and budgets allow. off: go to the minimum at once. freeze: change no target.
    #[arg(value_parser = ["on", "off", "freeze"])]
    effect: String,
    #[command(flatten)]
    scope: ScopeArgs,
    /// With `on`: so many workers instead of each pool's maximum.
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    #[command(flatten)]
    why: WhyArgs,
    #[command(flatten)]
    common: Common,
}

/// Which daemon, and the form of the result.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The form of the result.
    #[arg(long, value_enum)]
    pub(crate) output: Option<Output>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Set(args) => {
            let SetArgs {
                effect,
                scope,
                workers,
                why,
                common,
            } = *args;
            let scope = scope.text().ok_or_else(|| {
                anyhow::anyhow!(
                    "about which pools? Say --pool POOL, --site SITE, --federation FEDERATION or --fleet"
                )
            })?;
            set(&common, &why.request(scope, &effect, workers)).await
        }
        Command::List { common } => match get(&common.server, "/v1/overrides").await? {
            Ok(reply) => show_all(&reply, common.output),
            Err(code) => Ok(code),
        },
        Command::Clear { id, common } => match clear(&common.server, &id).await? {
            Ok(reply) => show(&reply, common.output, "cleared"),
            Err(code) => Ok(code),
        },
    }
}

/// Sets an override and shows it.
pub(crate) async fn set(common: &Common, request: &OverrideRequest) -> anyhow::Result<ExitCode> {
    let body = Bytes::from(serde_json::to_vec(request)?);
    match ask(&common.server, Method::POST, "/v1/overrides", body).await? {
        Ok(reply) => show(&reply, common.output, "set"),
        Err(code) => Ok(code),
    }
}

/// Clears the override of that id.
pub(crate) async fn clear(
    server: &ServerArgs,
    id: &str,
) -> anyhow::Result<Result<Reply, ExitCode>> {
    let path = format!("/v1/overrides/{}", path_segment(id));
    ask(server, Method::DELETE, &path, Bytes::new()).await
}

/// One override, in a list as every answer of these commands.
fn show(reply: &Reply, form: Option<Output>, done: &str) -> anyhow::Result<ExitCode> {
    if Output::or_default(form) == Output::Json {
        return output::json(&[reply.json::<serde_json::Value>()?]);
    }
    let view: OverrideView = reply.json()?;
    output::line(&format!("{done}: {}", line(&view)))
}

fn show_all(reply: &Reply, form: Option<Output>) -> anyhow::Result<ExitCode> {
    if Output::or_default(form) == Output::Json {
        return output::json(&reply.json::<serde_json::Value>()?);
    }
    let views: Vec<OverrideView> = reply.json()?;
    if views.is_empty() {
        return output::line("no override is in force: the policies decide");
    }
    for view in &views {
        output::line(&line(view))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An override in one line.
pub(crate) fn line(view: &OverrideView) -> String {
    let workers = view
        .workers
        .map_or_else(String::new, |workers| format!(" {workers} workers"));
    let pools = if view.pools == 1 { "pool" } else { "pools" };
    format!(
        "{:<14} {}{workers} {} ({} {pools}) until {} by {}: {}",
        view.id, view.effect, view.scope, view.pools, view.expires_at, view.owner, view.reason
    )
}
