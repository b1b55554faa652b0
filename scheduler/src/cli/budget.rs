//! `sunward budget set`: what a budget has spent so far in its running period.

use std::process::ExitCode;

use anyhow::Context as _;
use axum::http::Method;
use bytes::Bytes;

use super::ask::ask;
use super::overrides::Common;
use super::{Output, output};
use crate::api::budgets::{BudgetRequest, BudgetView};
use crate::client::path_segment;

/// Arguments of `budget`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say what a budget has spent so far in its running period.
    #[command(
        after_help = "After a start with an empty journal beside a running fleet nobody knows what was spent, and nothing starts under\n\
                      a budget until you say so or its next period begins. Also for a correction by a meter.\n\n\
                      Examples:\n  sunward budget set capped/co2 --part caiso --spent '120.5 kgCO2e'\n  \
                      sunward budget set capped/energy --spent '0 kWh'"
    )]
    Set {
        /// The budget, as POLICY/BUDGET.
        #[arg(value_name = "POLICY/BUDGET")]
        budget: String,
        /// The site, federation or pool whose sum it is; not for a budget of the fleet.
        #[arg(long, default_value = "")]
        part: String,
        /// The amount with its unit: '12.5 kgCO2e', '300 kWh', '19.99 EUR'.
        #[arg(long, value_name = "AMOUNT")]
        spent: String,
        #[command(flatten)]
        common: Common,
    },
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::Set {
        budget,
        part,
        spent,
        common,
    } = args.command;
    let (policy, name) = budget
        .split_once('/')
        .context("name the budget as POLICY/BUDGET, for example capped/co2")?;
    let path = format!(
        "/v1/budgets/{}/{}",
        path_segment(policy),
        path_segment(name)
    );
    let body = Bytes::from(serde_json::to_vec(&BudgetRequest { part, spent })?);
    let reply = match ask(&common.server, Method::POST, &path, body).await? {
        Ok(reply) => reply,
        Err(code) => return Ok(code),
    };
    if Output::or_default(common.output) == Output::Json {
        return output::json(&reply.json::<serde_json::Value>()?);
    }
    let view: BudgetView = reply.json()?;
    let part = match view.part.as_str() {
        "" => String::new(),
        part => format!(" of {part}"),
    };
    output::line(&format!(
        "set: budget {}{part} has spent {} so far in its period",
        view.budget, view.spent
    ))
}
