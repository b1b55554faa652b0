//! Standard output holds the result alone; standard error says what went wrong.

use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;

/// Writes one line of result.
pub(crate) fn line(text: &str) -> anyhow::Result<ExitCode> {
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Writes a result as JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<ExitCode> {
    line(&serde_json::to_string_pretty(value)?)
}

/// A reader that has seen enough (`| head`) is no error.
fn written(done: std::io::Result<()>) -> anyhow::Result<ExitCode> {
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Says on standard error what went wrong, with every cause.
pub(crate) fn error(error: &anyhow::Error) {
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(std::io::stderr().lock(), "sunward: {error:#}");
}
