//! `sunward replay JOURNAL`: history through the same core.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use super::{FOUND, Output, output};
use crate::journal::{self, Access, Options, Redb};
use crate::writer::{self, JOURNAL_FILE};

/// Arguments of `replay`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A journal file, or the daemon's data folder. The daemon must not be running on it: copy
    /// the file first.
    journal: PathBuf,
    /// Stop after this index.
    #[arg(long, value_name = "INDEX")]
    to: Option<u64>,
    /// The form of the result.
    #[arg(long, value_enum)]
    output: Option<Output>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = if args.journal.is_dir() {
        args.journal.join(JOURNAL_FILE)
    } else {
        args.journal.clone()
    };
    let journal = match Redb::open(
        &path,
        Options {
            access: Access::ReadOnly,
            ..Options::default()
        },
    ) {
        Ok(journal) => journal,
        Err(error @ journal::Error::Damaged { .. }) => {
            output::error(&error.into());
            return Ok(ExitCode::from(FOUND));
        }
        Err(error) => return Err(error.into()),
    };
    let replay = writer::replay(&journal, args.to).context("the journal can't be replayed")?;
    let digest = replay.engine.digest().to_string();
    match Output::or_default(args.output) {
        Output::Json => output::json(&json!({
            "index": replay.index,
            "digest": digest,
            "term": replay.engine.state().term,
            "decisions": replay.decisions,
            "scales": replay.scales,
        })),
        Output::Table => {
            for decision in &replay.decisions {
                output::line(&format!(
                    "{}  {:<20} {:>4} -> {:<4} {}: {}",
                    decision.at,
                    decision.pool,
                    decision.before,
                    decision.target,
                    decision.rule,
                    decision.reason
                ))?;
            }
            output::line(&format!(
                "index {}  term {}  digest {digest}",
                replay.index,
                replay.engine.state().term
            ))
        }
    }
}
