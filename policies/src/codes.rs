//! The stable codes of this crate's diagnostics. Each has a page `docs/codes/<code>.md`: what, an example, how to
//! mend. A code is never used again for something else.

/// The text is not YAML.
pub const YAML_SYNTAX: &str = "SUN-P001";
/// A key that nothing acts on.
pub const UNKNOWN_KEY: &str = "SUN-P002";
/// A key that has to be there.
pub const MISSING_KEY: &str = "SUN-P003";
/// A value of the wrong type or out of range.
pub const WRONG_VALUE: &str = "SUN-P004";
/// The same key twice in one mapping.
pub const DUPLICATE_KEY: &str = "SUN-P005";
/// More text, files, signals or rules than a named limit allows.
pub const TOO_LARGE: &str = "SUN-P006";
/// Not a `sunward.dev/v1alpha1` document of the expected kind.
pub const WRONG_DOCUMENT: &str = "SUN-P007";
/// A name that can't be used.
pub const BAD_NAME: &str = "SUN-P008";
/// Two policies, or two rules of one policy, with one name.
pub const DUPLICATE_NAME: &str = "SUN-P009";
/// Not a duration.
pub const BAD_DURATION: &str = "SUN-P010";
/// Not one of the words that a key takes.
pub const UNKNOWN_WORD: &str = "SUN-P011";
/// A signal without an action for missing data.
pub const NO_ON_MISSING: &str = "SUN-P012";
/// A zone without a scheme, or a scheme without a zone.
pub const BAD_SCOPE: &str = "SUN-P013";
/// No rule, or both forms of writing them.
pub const BAD_RULES: &str = "SUN-P014";
/// A policy that selects no label.
pub const NO_SELECTOR: &str = "SUN-P015";
/// A basis that values of that kind never have.
pub const BAD_BASIS: &str = "SUN-P016";
/// A ramp that never moves.
pub const BAD_RAMP: &str = "SUN-P017";
/// An expression that can't be read.
pub const EXPRESSION_SYNTAX: &str = "SUN-P020";
/// An operator of another language, such as `=` or `and`.
pub const FOREIGN_OPERATOR: &str = "SUN-P021";
/// A name that is neither a signal of the policy nor a variable.
pub const UNKNOWN_NAME: &str = "SUN-P022";
/// A function that does not exist, or the wrong number of arguments.
pub const BAD_CALL: &str = "SUN-P023";
/// A number where a condition belongs, or the reverse.
pub const WRONG_TYPE: &str = "SUN-P024";
/// Two different units that meet.
pub const UNIT_MISMATCH: &str = "SUN-P025";
/// An expression that is too long or too deep.
pub const EXPRESSION_TOO_LARGE: &str = "SUN-P026";
/// A part of an expression that can never have a value.
pub const NEVER_KNOWN: &str = "SUN-P027";
/// Warning: a signal that no rule reads.
pub const UNUSED_SIGNAL: &str = "SUN-P040";

/// Every code, ascending.
pub const ALL: &[&str] = &[
    YAML_SYNTAX,
    UNKNOWN_KEY,
    MISSING_KEY,
    WRONG_VALUE,
    DUPLICATE_KEY,
    TOO_LARGE,
    WRONG_DOCUMENT,
    BAD_NAME,
    DUPLICATE_NAME,
    BAD_DURATION,
    UNKNOWN_WORD,
    NO_ON_MISSING,
    BAD_SCOPE,
    BAD_RULES,
    NO_SELECTOR,
    BAD_BASIS,
    BAD_RAMP,
    EXPRESSION_SYNTAX,
    FOREIGN_OPERATOR,
    UNKNOWN_NAME,
    BAD_CALL,
    WRONG_TYPE,
    UNIT_MISMATCH,
    EXPRESSION_TOO_LARGE,
    NEVER_KNOWN,
    UNUSED_SIGNAL,
];
