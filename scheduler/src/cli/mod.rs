//! The command line: one file per subcommand, and what they share.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

mod ask;
mod budget;
mod demo;
mod freeze;
mod output;
mod overrides;
mod partner;
mod policy;
mod replay;
mod run;
mod scope;
mod signal;
mod simulate;
mod status;
mod unfreeze;

/// Done, and something was found or refused.
pub const FOUND: u8 = 1;
/// Wrong use, or a file that can't be opened.
pub const WRONG_USE: u8 = 2;
/// The daemon can't be reached.
pub const UNREACHABLE: u8 = 3;
/// Interrupted.
pub const INTERRUPTED: u8 = 130;

/// Lets GPU training follow surplus energy.
#[derive(Parser)]
#[command(
    name = "sunward",
    version,
    about = "Lets GPU training follow surplus energy: signals in, policies judge, GPU pools scale, participants are told.",
    after_help = "Start here:\n  sunward demo                 the whole loop in one process, nothing to install\n  \
                  sunward run                  the daemon with simulated workers, on 127.0.0.1:7117\n  \
                  sunward run --config FILE    the daemon\n\n\
                  Exit codes: 0 done; 1 something was found or refused; 2 wrong use; 3 daemon unreachable; 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The daemon; without --config, simulated workers and a journal in ./sunward-data.
    Run(run::Args),
    /// The whole loop in one process: three sites follow 18 h of grid carbon. Nothing to install.
    Demo(demo::Args),
    /// What the daemon knows now: pools, streams, readiness.
    Status(status::Args),
    /// Run a journal through the core again: its decisions, and the digest of the state.
    Replay(replay::Args),
    /// The production core in a simulated world, where everything goes wrong: what did not hold?
    Simulate(simulate::Args),
    /// Policy files: check them, look for what is valid but wrong, test them; why a pool stands where it
    /// stands.
    Policy(policy::Args),
    /// What operators want regardless of the policies: on, off or frozen, with owner, reason and expiry.
    Override(overrides::Args),
    /// Change no target, but by a limit or an emergency of the grid.
    Freeze(freeze::Args),
    /// End a freeze.
    Unfreeze(unfreeze::Args),
    /// Budgets: what was spent so far.
    Budget(budget::Args),
    /// Energy partners and their tokens.
    Partner(partner::Args),
    /// Readings: send them from a file.
    Signal(signal::Args),
    /// Shell completions on standard output, for example: sunward completions bash
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// The version of this program.
    Version,
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For scripts; the field names are a promise.
    Json,
}

impl Output {
    /// As asked for; else a table on a terminal and JSON elsewhere.
    pub fn or_default(asked: Option<Output>) -> Output {
        asked.unwrap_or(if std::io::stdout().is_terminal() {
            Output::Table
        } else {
            Output::Json
        })
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Status(args) => block_on(status::run(args)),
        Command::Replay(args) => replay::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Override(args) => block_on(overrides::run(args)),
        Command::Freeze(args) => block_on(freeze::run(args)),
        Command::Unfreeze(args) => block_on(unfreeze::run(args)),
        Command::Budget(args) => block_on(budget::run(args)),
        Command::Partner(args) => partner::run(args),
        Command::Signal(args) => block_on(signal::run(args)),
        Command::Completions { shell } => {
            completions(shell);
            Ok(ExitCode::SUCCESS)
        }
        Command::Version => output::line(&format!("sunward {}", env!("CARGO_PKG_VERSION"))),
    };
    done.unwrap_or_else(|error| {
        output::error(&error);
        ExitCode::from(WRONG_USE)
    })
}

/// Runs a command that asks the daemon; one thread is enough for that.
fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(command)
}

fn completions(shell: clap_complete::Shell) {
    use clap::CommandFactory as _;
    clap_complete::generate(
        shell,
        &mut Cli::command(),
        "sunward",
        &mut std::io::stdout(),
    );
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
