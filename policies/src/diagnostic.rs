//! What is wrong with a text, where, and how to mend it. Rendering lives here and nowhere else.

use std::fmt;

use serde::Serialize;

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file loads, but probably does not do what was meant.
    Warning,
}

/// A range of a text: lines and columns from 1, columns counted in characters, the end one past the last character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TextRange {
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
}

/// One finding about one place of one file. The JSON form is the promise of `policy validate --output json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Stable code, such as `SUN-P012`; [`crate::codes`] lists those of this crate.
    pub code: &'static str,
    /// Whether the file is refused.
    pub severity: Severity,
    /// The path as the caller named it.
    pub file: String,
    /// First line, from 1.
    pub line: u32,
    /// First column, from 1, in characters.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: Option<String>,
}
