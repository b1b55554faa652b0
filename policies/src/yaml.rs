//! Reading YAML into typed documents, with every error as a [`Diagnostic`].

use serde::de::DeserializeOwned;
pub use serde_saphyr::Spanned;

use crate::diagnostic::Diagnostic;

/// Reads one YAML document. Unknown keys are refused where the type says so.
pub fn read_yaml<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Diagnostic> {
    serde_saphyr::from_str(text).map_err(|error| Diagnostic {
        code: "SUN-P001",
        severity: crate::Severity::Error,
        file: file.to_owned(),
        line: 1,
        column: 1,
        end_line: 1,
        end_column: 1,
        message: error.to_string(),
        help: None,
    })
}
