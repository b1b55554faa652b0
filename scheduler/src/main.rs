//! The binary `sunward`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sunward::cli::main()
}
