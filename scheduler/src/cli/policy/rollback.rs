//! `sunward policy rollback`: back to the last set in force.

use std::process::ExitCode;

use axum::http::Method;
use bytes::Bytes;

use crate::api::rollback::RolledBackView;
use crate::cli::ask::ask;
use crate::cli::{Output, output};
use crate::client::ServerArgs;

pub(crate) const EXAMPLES: &str = "\
The set before comes back into force at once, and memories of unchanged rules are kept. The files on disk are not
touched: they stay out of force, also after a restart, until their content changes. `sunward status` says so.
Exit code 1: there is nothing to roll back to, or the set before no longer fits the fleet.

Examples:
  sunward policy rollback
  sunward policy rollback --output json | jq -r .policies_hash";

/// Arguments of `policy rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = "/v1/policies/rollback";
    let reply = match ask(&args.server, Method::POST, path, Bytes::new()).await? {
        Ok(reply) => reply,
        Err(code) => return Ok(code),
    };
    if Output::or_default(args.output) == Output::Json {
        return output::json(&reply.json::<serde_json::Value>()?);
    }
    let done: RolledBackView = reply.json()?;
    output::line(&format!(
        "in force again: {} (set {}, first in force {})\ntaken back:     set {}; its files stay out of force until their content changes",
        done.policies.join(", "),
        short(&done.policies_hash),
        done.first_in_force,
        short(&done.taken_back),
    ))
}

/// The beginning of a hash, as people compare them.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
