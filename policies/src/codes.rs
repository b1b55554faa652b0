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
/// More text, files, or entries of a list than a named limit allows.
pub const TOO_LARGE: &str = "SUN-P006";
/// Not a `sunward.dev/v1alpha1` document of the expected kind.
pub const WRONG_DOCUMENT: &str = "SUN-P007";
/// A name that can't be used.
pub const BAD_NAME: &str = "SUN-P008";
/// Two policies with one name, or two rules, budgets, floors or deadlines of one policy.
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
/// Readings in a row that can never be counted.
pub const BAD_SAMPLES: &str = "SUN-P018";
/// A meter of another kind or scope that our own draw can't be added to.
pub const BAD_ADD_BACK: &str = "SUN-P019";
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
/// Not a cron expression of five fields.
pub const BAD_CRON: &str = "SUN-P028";
/// Not a time zone of the IANA database.
pub const UNKNOWN_TIME_ZONE: &str = "SUN-P029";
/// A calendar that the policy does not declare.
pub const UNKNOWN_CALENDAR: &str = "SUN-P030";
/// Keys of a window that do not fit together, or a window that no start is ever worth.
pub const BAD_WINDOW: &str = "SUN-P031";
/// A window by forecast, and nothing that is known ahead.
pub const NO_FORECAST: &str = "SUN-P032";
/// Not an amount with a unit that a budget can limit.
pub const BAD_LIMIT: &str = "SUN-P033";
/// Keys of a budget that do not fit what it counts.
pub const BAD_BUDGET: &str = "SUN-P034";
/// A budget that does not say what counts while data is missing.
pub const NO_ASSUME: &str = "SUN-P035";
/// Not an instant with an offset from UTC.
pub const BAD_INSTANT: &str = "SUN-P036";
/// Not an amount of work.
pub const BAD_WORK: &str = "SUN-P037";
/// Warning: a signal that nothing of the policy reads.
pub const UNUSED_SIGNAL: &str = "SUN-P040";
/// Warning: a calendar that nothing of the policy reads.
pub const UNUSED_CALENDAR: &str = "SUN-P041";

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
    BAD_SAMPLES,
    BAD_ADD_BACK,
    EXPRESSION_SYNTAX,
    FOREIGN_OPERATOR,
    UNKNOWN_NAME,
    BAD_CALL,
    WRONG_TYPE,
    UNIT_MISMATCH,
    EXPRESSION_TOO_LARGE,
    NEVER_KNOWN,
    BAD_CRON,
    UNKNOWN_TIME_ZONE,
    UNKNOWN_CALENDAR,
    BAD_WINDOW,
    NO_FORECAST,
    BAD_LIMIT,
    BAD_BUDGET,
    NO_ASSUME,
    BAD_INSTANT,
    BAD_WORK,
    UNUSED_SIGNAL,
    UNUSED_CALENDAR,
];

/// Lint: a condition that can never hold.
pub const NEVER_HOLDS: &str = "SUN-L001";
/// Lint: a condition that always holds.
pub const ALWAYS_HOLDS: &str = "SUN-L002";
/// Lint: a policy whose rules are never reached, since one of higher priority always has a verdict.
pub const SHADOWED: &str = "SUN-L003";
/// Lint: activate and release can hold together.
pub const BOTH_CAN_HOLD: &str = "SUN-L004";
/// Lint: nothing damps a value that wavers around the threshold.
pub const NO_DEAD_BAND: &str = "SUN-L005";
/// Lint: a hold that is over before the next reading.
pub const HOLD_BELOW_CADENCE: &str = "SUN-L006";
/// Lint: a hold for missing data that one lost reading outlasts.
pub const MISSING_HOLD_BELOW_CADENCE: &str = "SUN-L007";
/// Lint: a value that is stale before the next one is due.
pub const MAX_AGE_BELOW_CADENCE: &str = "SUN-L008";
/// Lint: a minimum run that outlasts the typical window.
pub const MIN_RUN_ABOVE_WINDOW: &str = "SUN-L009";
/// Lint: something looks ahead where nothing is known ahead.
pub const BLIND_AHEAD: &str = "SUN-L010";
/// Lint: a budget that does not pay for the floor beside it.
pub const BUDGET_BELOW_FLOOR: &str = "SUN-L011";
/// Lint: a budget under which no pool can ever run.
pub const BUDGET_PAYS_NO_RUN: &str = "SUN-L012";
/// Lint: two policies that fight over one pool.
pub const FIGHT: &str = "SUN-L013";
/// Lint: a threshold that looks like another unit's.
pub const OTHER_UNIT: &str = "SUN-L014";
/// Lint: a condition that never, or always, held in the readings given.
pub const NEVER_IN_SERIES: &str = "SUN-L015";
/// Lint: a calendar that is always, or never, open.
pub const CONSTANT_CALENDAR: &str = "SUN-L016";

/// Every code of [`crate::lint`], ascending. Files that show them load.
pub const LINTS: &[&str] = &[
    NEVER_HOLDS,
    ALWAYS_HOLDS,
    SHADOWED,
    BOTH_CAN_HOLD,
    NO_DEAD_BAND,
    HOLD_BELOW_CADENCE,
    MISSING_HOLD_BELOW_CADENCE,
    MAX_AGE_BELOW_CADENCE,
    MIN_RUN_ABOVE_WINDOW,
    BLIND_AHEAD,
    BUDGET_BELOW_FLOOR,
    BUDGET_PAYS_NO_RUN,
    FIGHT,
    OTHER_UNIT,
    NEVER_IN_SERIES,
    CONSTANT_CALENDAR,
];

/// A series of a test file that can't be read.
pub const TEST_SERIES: &str = "SUN-T001";
/// A signal, pool, site or policy of a test file that does not exist.
pub const TEST_UNKNOWN_NAME: &str = "SUN-T002";
/// An event or expectation of a test file that says nothing, or two things at once.
pub const TEST_ENTRY: &str = "SUN-T003";
/// More tests, readings or time than one file may have.
pub const TEST_TOO_LARGE: &str = "SUN-T004";

/// Every code of test files (`*.test.yaml`), ascending.
pub const TESTS: &[&str] = &[TEST_SERIES, TEST_UNKNOWN_NAME, TEST_ENTRY, TEST_TOO_LARGE];
