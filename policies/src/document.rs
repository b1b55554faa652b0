//! The file format of `kind: SchedulingPolicy`.

use serde::{Deserialize, Serialize};

/// The most bytes one policy file may have.
pub const POLICY_TEXT_MAX: usize = 64 * 1024;
/// The most files of one set.
pub const POLICY_FILES_MAX: usize = 1_024;

/// A file as it was read: its path, for messages, and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// As the caller names it; shown in diagnostics.
    pub path: String,
    /// The whole text.
    pub text: String,
}
