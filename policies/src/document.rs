//! The file format of `kind: SchedulingPolicy`: Kubernetes-shaped, unknown keys refused, places kept.
//!
//! These types say which keys exist and which are required; what the values mean is [`crate::policy`]'s business.
//! Values with a syntax of their own (durations, words, expressions) are read as text, so that one file can be told
//! about several mistakes at once. A key stands here only once something acts on it.

use serde::{Deserialize, Serialize};

use crate::yaml::{Entries, Spanned};

/// The most bytes one policy file may have.
pub const POLICY_TEXT_MAX: usize = 64 * 1024;
/// The most files of one set.
pub const POLICY_FILES_MAX: usize = 1_024;
/// The most rules one policy may have.
pub const RULES_MAX: usize = 64;
/// The most labels a policy may select by.
pub const LABELS_MAX: usize = 32;
/// The longest name or label value, in bytes.
pub const NAME_MAX: usize = 63;
/// The longest source name, in bytes; as on the wire.
pub const SOURCE_NAME_MAX: usize = 128;

/// What `apiVersion` has to be.
pub const API_VERSION: &str = "sunward.dev/v1alpha1";
/// What `kind` has to be.
pub const KIND: &str = "SchedulingPolicy";
/// The schemes of grid zones.
pub const SCHEMES: &[&str] = &["eic", "em", "wt", "uk_region", "iso_node"];

/// A file as it was read: its path, for messages, and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// As the caller names it; shown in diagnostics.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// What a document says it is; read first, so that a file of another kind is told that and not its keys.
#[derive(Debug, Deserialize)]
pub(crate) struct HeaderDocument {
    #[serde(rename = "apiVersion")]
    pub(crate) api_version: Option<Spanned<String>>,
    pub(crate) kind: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyDocument {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub(crate) metadata: MetadataDocument,
    pub(crate) spec: Spanned<SpecDocument>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetadataDocument {
    pub(crate) name: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecDocument {
    pub(crate) pools: Spanned<Entries<String>>,
    #[serde(default)]
    pub(crate) priority: i32,
    pub(crate) mode: Option<Spanned<String>>,
    pub(crate) signals: Option<Entries<SignalDocument>>,
    pub(crate) activate: Option<Spanned<ConditionDocument>>,
    pub(crate) release: Option<Spanned<ConditionDocument>>,
    pub(crate) rules: Option<Spanned<Vec<Spanned<RuleDocument>>>>,
    pub(crate) min_run: Option<Spanned<String>>,
    pub(crate) min_rest: Option<Spanned<String>>,
    pub(crate) ramp: Option<Spanned<RampDocument>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalDocument {
    pub(crate) source: Spanned<String>,
    pub(crate) kind: Spanned<String>,
    pub(crate) basis: Option<Spanned<String>>,
    pub(crate) scope: Spanned<String>,
    pub(crate) scheme: Option<Spanned<String>>,
    pub(crate) max_age: Spanned<String>,
    pub(crate) on_missing: Option<Spanned<OnMissingDocument>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnMissingDocument {
    pub(crate) hold: Spanned<String>,
    pub(crate) then: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConditionDocument {
    pub(crate) when: Spanned<String>,
    #[serde(rename = "for")]
    pub(crate) held_for: Option<Spanned<String>>,
}

/// One entry of `spec.rules`. One struct for all kinds, not a tagged enum: serde buffers those and loses the places.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleDocument {
    pub(crate) kind: Spanned<String>,
    pub(crate) name: Spanned<String>,
    pub(crate) activate: Option<Spanned<ConditionDocument>>,
    pub(crate) release: Option<Spanned<ConditionDocument>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RampDocument {
    pub(crate) up: Option<Spanned<RampStepDocument>>,
    pub(crate) down: Option<Spanned<RampStepDocument>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RampStepDocument {
    pub(crate) workers: u32,
    pub(crate) every: Spanned<String>,
}
