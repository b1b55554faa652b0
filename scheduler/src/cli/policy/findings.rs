//! The result of `policy validate` and `policy lint`: diagnostics, and the checks that could not be made.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use sunward_policies::diagnostic::{Diagnostic, Severity};
use sunward_policies::lint::Skipped;

use super::sources::Sources;
use crate::cli::{FOUND, Output, output};

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) skipped: Vec<Skipped>,
}

impl Findings {
    /// Names a check that was not made.
    pub(super) fn skip(&mut self, check: impl Into<String>, needs: impl Into<String>) {
        self.skipped.push(Skipped {
            check: check.into(),
            needs: needs.into(),
        });
    }

    fn count(&self, severity: Severity) -> usize {
        let of = |found: &&Diagnostic| found.severity == severity;
        self.diagnostics.iter().filter(of).count()
    }

    /// Prints the result, and says on standard error what was not checked. With `strict` a warning counts as an error.
    pub(super) fn show(
        mut self,
        sources: &[&Sources],
        strict: bool,
        form: Option<Output>,
    ) -> anyhow::Result<ExitCode> {
        self.diagnostics
            .sort_by(|a, b| (&a.file, a.range(), a.code).cmp(&(&b.file, b.range(), b.code)));
        self.diagnostics.dedup();
        for skipped in &self.skipped {
            let line = format!("not checked: {}; it needs {}", skipped.check, skipped.needs);
            // Nothing can be done about a standard error that is closed.
            let _ = writeln!(std::io::stderr().lock(), "sunward: {line}");
        }
        match Output::or_default(form) {
            Output::Json => output::json(&self)?,
            Output::Table => output::line(&self.table(sources))?,
        };
        let errors = self.count(Severity::Error);
        let counted = if strict {
            self.diagnostics.len()
        } else {
            errors
        };
        Ok(if counted > 0 {
            ExitCode::from(FOUND)
        } else {
            ExitCode::SUCCESS
        })
    }

    fn table(&self, sources: &[&Sources]) -> String {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let mut text = String::new();
        for found in &self.diagnostics {
            let source = sources.iter().find_map(|read| read.text_of(&found.file));
            text.push_str(&found.render(source, colour));
            text.push('\n');
        }
        let files: usize = sources.iter().map(|read| read.files.len()).sum();
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "{}: {}, {}",
            many(files, "file"),
            many(errors, "error"),
            many(warnings, "warning")
        );
        text
    }
}
