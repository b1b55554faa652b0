//! `sunward partner add|list`: who may push readings and ask.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::{FOUND, Output, output};
use crate::clock::wall_now;
use crate::config::Config;
use crate::tokens::{self, Grant, Partner, Secret, TokensError};

/// Arguments of `partner`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add a partner and show its token, once.
    #[command(
        after_help = "Example:\n  sunward partner add watttime-bridge --grant source=watttime,sites=caiso+berlin,kinds=carbon_intensity\n\
                            A grant for a site covers the zones that the fleet maps to it. `*` stands for every source, site or kind.\n\
                            A running daemon takes the change at once."
    )]
    Add {
        /// 1 to 63 characters: a-z, 0-9 and `-`.
        name: String,
        /// What it may push: source=A,sites=S1+S2,kinds=K1+K2. Repeatable.
        #[arg(long, value_name = "GRANT")]
        grant: Vec<Grant>,
        /// It may also ask and steer.
        #[arg(long)]
        operator: bool,
        #[command(flatten)]
        common: Common,
    },
    /// The partners and their grants.
    List {
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct Common {
    /// The tokens file; by default the one of the daemon's default configuration.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

impl Common {
    fn path(&self) -> PathBuf {
        self.tokens
            .clone()
            .unwrap_or_else(|| Config::default().tokens_path())
    }
}

/// A partner as it is shown; without the hash, which is nobody's business.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    operator: bool,
    grants: &'a [Grant],
    created: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn new(partner: &'a Partner, secret: Option<&'a Secret>) -> Row<'a> {
        Row {
            name: &partner.name,
            operator: partner.operator,
            grants: &partner.grants,
            created: &partner.created,
            secret: secret.map(Secret::reveal),
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let done = match args.command {
        Command::Add {
            name,
            grant,
            operator,
            common,
        } => tokens::issue(&name, grant, operator, wall_now()).and_then(|(partner, secret)| {
            tokens::add(&common.path(), partner.clone())?;
            Ok(show(&[Row::new(&partner, Some(&secret))], common.output))
        }),
        Command::List { common } => tokens::read(&common.path()).map(|partners| {
            let rows: Vec<_> = partners
                .iter()
                .map(|partner| Row::new(partner, None))
                .collect();
            show(&rows, common.output)
        }),
    };
    match done {
        Ok(shown) => shown,
        Err(error @ (TokensError::Invalid { .. } | TokensError::Taken(_) | TokensError::Full)) => {
            output::error(&error.into());
            Ok(ExitCode::from(FOUND))
        }
        Err(error) => Err(error.into()),
    }
}

fn show(rows: &[Row<'_>], form: Option<Output>) -> anyhow::Result<ExitCode> {
    if Output::or_default(form) == Output::Json {
        return output::json(&rows);
    }
    if rows.is_empty() {
        return output::line("no partners: add one with `sunward partner add`");
    }
    for row in rows {
        let role = if row.operator { "operator" } else { "partner" };
        output::line(&format!("{:<24} {role:<9} {}", row.name, row.created))?;
        for grant in row.grants {
            let (sites, kinds) = (grant.sites.join("+"), grant.kinds.join("+"));
            output::line(&format!(
                "  source={},sites={sites},kinds={kinds}",
                grant.source
            ))?;
        }
        if let Some(secret) = row.secret {
            output::line(&format!("token, shown only now: {secret}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
