//! The file format of `kind: SchedulingPolicy`: Kubernetes-shaped, unknown keys refused, places kept.
//!
//! These types say which keys exist and which are required; what the values mean is [`crate::policy`]'s business.
//! Values with a syntax of their own (durations, words, expressions) are read as text, so that one file can be told
//! about several mistakes at once. A key stands here only once something acts on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::yaml::{Entries, Spanned};

/// The most bytes one policy file may have.
pub const POLICY_TEXT_MAX: usize = 64 * 1024;
/// The most files of one set.
pub const POLICY_FILES_MAX: usize = 1_024;
/// The most rules one policy may have.
pub const RULES_MAX: usize = 64;
/// The most labels a policy may select by.
pub const LABELS_MAX: usize = 32;
/// The most budgets one policy may have.
pub const BUDGETS_MAX: usize = 16;
/// The most floors one policy may have.
pub const FLOORS_MAX: usize = 16;
/// The most deadlines one policy may have.
pub const DEADLINES_MAX: usize = 16;
/// The most readings in a row that a condition may have to hold for.
pub const SAMPLES_MAX: u32 = 1_000;
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

/// What a document says it is; read where a policy can't be read, so that a file of another kind is told that and not its
/// keys.
#[derive(Debug, Deserialize)]
pub(crate) struct HeaderDocument {
    #[serde(rename = "apiVersion")]
    pub(crate) api_version: Option<Spanned<String>>,
    pub(crate) kind: Option<Spanned<String>>,
}

/// A scheduling policy of sunward: which pools of GPU workers run when, on which signals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "SchedulingPolicy", rename = "SchedulingPolicy")]
pub(crate) struct PolicyDocument {
    /// The version of the file format.
    #[serde(rename = "apiVersion")]
    #[schemars(with = "schema::ApiVersion")]
    pub(crate) api_version: Spanned<String>,
    /// What the document is.
    #[schemars(with = "schema::DocumentKind")]
    pub(crate) kind: Spanned<String>,
    /// What the policy is called.
    pub(crate) metadata: MetadataDocument,
    /// What the policy says.
    #[schemars(with = "SpecDocument")]
    pub(crate) spec: Spanned<SpecDocument>,
}

/// What the policy is called.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Metadata")]
pub(crate) struct MetadataDocument {
    /// The policy's name, unique within a set; decisions and explanations name it.
    #[schemars(with = "schema::Name")]
    pub(crate) name: Spanned<String>,
}

/// What the policy says: the pools it governs, the signals it reads, its rules, and the limits it keeps.
///
/// Either `activate` (the short form of one threshold rule) or `rules`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Spec", transform = schema::one_form_of_rules)]
pub(crate) struct SpecDocument {
    /// Labels that a pool must all have to be governed by this policy.
    #[schemars(with = "schema::Labels")]
    pub(crate) pools: Spanned<Entries<String>>,
    /// Among the policies with a verdict on a pool the highest priority wins. At equal priority release wins over hold
    /// and hold over activate, then the lower name.
    #[serde(default)]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub(crate) priority: i32,
    /// Whether the policy moves pools or only records what it would do. Default: enforce.
    #[schemars(with = "Option<schema::Mode>")]
    pub(crate) mode: Option<Spanned<String>>,
    /// The signals that the policy reads. A key is the variable's name in expressions.
    #[schemars(with = "Option<schema::Signals>")]
    pub(crate) signals: Option<Entries<SignalDocument>>,
    /// Windows that recur. The calendar `night` is the condition `calendar.night` in expressions, true while one of its
    /// windows is open.
    #[schemars(with = "Option<schema::Calendars>")]
    pub(crate) calendars: Option<Entries<CalendarDocument>>,
    /// When to start. The short form of one rule of the kind threshold, called `threshold`.
    #[schemars(with = "Option<ConditionDocument>")]
    pub(crate) activate: Option<Spanned<ConditionDocument>>,
    /// When to stop. Default: as soon as `activate.when` does not hold.
    #[schemars(with = "Option<ConditionDocument>")]
    pub(crate) release: Option<Spanned<ConditionDocument>>,
    /// The least window worth starting for, and when to leave it.
    #[schemars(with = "Option<WindowDocument>")]
    pub(crate) window: Option<Spanned<WindowDocument>>,
    /// Several rules in place of `activate`, `release` and `window`.
    #[schemars(with = "Option<Vec<RuleDocument>>", length(min = 1, max = RULES_MAX))]
    pub(crate) rules: Option<Spanned<Vec<Spanned<RuleDocument>>>>,
    /// How many workers to run while activated: a number expression, rounded down, kept within the pool's bounds.
    /// Default: the pool's maximum. A pool of `unit: pool` runs all or none, so for it less than the maximum means:
    /// start nothing.
    #[schemars(with = "Option<schema::Quantity>")]
    pub(crate) workers: Option<Spanned<String>>,
    /// Which pools to prefer where not all can run: a number expression, the higher the better. A score that is unknown
    /// comes last.
    #[schemars(with = "Option<schema::Quantity>")]
    pub(crate) score: Option<Spanned<String>>,
    /// The least time between a start and a release. Default: 0s.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) min_run: Option<Spanned<String>>,
    /// The least time between a release and a start. Default: 0s.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) min_rest: Option<Spanned<String>>,
    /// How fast a pool may change. Default: at once. Not for pools of `unit: pool`.
    #[schemars(with = "Option<RampDocument>")]
    pub(crate) ramp: Option<Spanned<RampDocument>>,
    /// At most so many sites may be changing at a time, starts and releases alike; the others wait. Default: no limit.
    #[schemars(with = "Option<u32>", range(min = 1))]
    pub(crate) max_changing_sites: Option<Spanned<u32>>,
    /// What a dispatch (a call for demand response) does: `keep` nothing, `release` goes to the minimum, a percentage
    /// from 1% to 99% holds training power to that share where the site supports it. Default: keep. Limits and
    /// emergencies always act.
    #[schemars(with = "Option<schema::OnDispatch>")]
    pub(crate) on_dispatch: Option<Spanned<String>>,
    /// Hard limits on workers, power, energy, emissions or money.
    #[schemars(with = "Option<Vec<BudgetDocument>>", length(max = BUDGETS_MAX))]
    pub(crate) budgets: Option<Spanned<Vec<Spanned<BudgetDocument>>>>,
    /// So many sites stay active, whatever the rules say.
    #[schemars(with = "Option<Vec<FloorDocument>>", length(max = FLOORS_MAX))]
    pub(crate) floors: Option<Spanned<Vec<Spanned<FloorDocument>>>>,
    /// So much work is done by an instant, in the least bad hours.
    #[schemars(with = "Option<Vec<DeadlineDocument>>", length(max = DEADLINES_MAX))]
    pub(crate) deadlines: Option<Spanned<Vec<Spanned<DeadlineDocument>>>>,
}

/// One signal: a stream of readings of one source.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Signal", transform = schema::scheme_with_zone)]
pub(crate) struct SignalDocument {
    /// The source's name, as its readings carry it.
    #[schemars(with = "String", length(min = 1, max = SOURCE_NAME_MAX))]
    pub(crate) source: Spanned<String>,
    /// What it measures; this fixes the unit of the variable.
    #[schemars(with = "schema::SignalKind")]
    pub(crate) kind: Spanned<String>,
    /// How the value was derived, or on which market it holds. Part of the stream: leave it out only where the readings
    /// have none.
    #[schemars(with = "Option<schema::SignalBasis>")]
    pub(crate) basis: Option<Spanned<String>>,
    /// Where it is looked up for a pool: the pool's own site, or the site's zone of `scheme`.
    #[schemars(with = "schema::SignalScope")]
    pub(crate) scope: Spanned<String>,
    /// With `scope: zone`: which of the site's zones.
    #[schemars(with = "Option<schema::Scheme>")]
    pub(crate) scheme: Option<Spanned<String>>,
    /// How long after its receipt a value is fresh. Longer than 0s.
    #[schemars(with = "schema::Duration")]
    pub(crate) max_age: Spanned<String>,
    /// What happens while there is no fresh value. Required: a policy that does not say so does not load.
    #[schemars(with = "OnMissingDocument")]
    pub(crate) on_missing: Option<Spanned<OnMissingDocument>>,
    /// What a value counts as that the source estimated or forecast for the present. Default: use.
    #[schemars(with = "Option<schema::OnEstimated>")]
    pub(crate) on_estimated: Option<Spanned<String>>,
    /// How long after its issue a value for the future is believed. Without it the policy does not look ahead on this
    /// signal.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) forecast_max_age: Option<Spanned<String>>,
    /// The meter includes what our own pools draw at the site: that draw is added to the value before it is evaluated,
    /// so that a start does not erase the surplus it was made for. Only for kinds in kW with `scope: site`. Default:
    /// false.
    #[schemars(with = "Option<bool>")]
    pub(crate) add_back_own_draw: Option<Spanned<bool>>,
}

/// What happens while a signal has no fresh value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OnMissing")]
pub(crate) struct OnMissingDocument {
    /// How long what runs is kept, from the first instant at which a condition can't be decided.
    #[schemars(with = "schema::Duration")]
    pub(crate) hold: Spanned<String>,
    /// What happens then.
    #[schemars(with = "schema::Then")]
    pub(crate) then: Spanned<String>,
}

/// Windows that begin as a cron expression says, in a named time zone, and last a fixed time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Calendar")]
pub(crate) struct CalendarDocument {
    /// When a window begins, in five fields: minute, hour, day of the month, month, day of the week.
    #[schemars(with = "schema::Cron")]
    pub(crate) cron: Spanned<String>,
    /// How long each window is open. Longer than 0s.
    #[schemars(with = "schema::Duration")]
    pub(crate) lasts: Spanned<String>,
    /// The zone that the cron expression is read in, by its name in the IANA database.
    #[schemars(with = "schema::TimeZone")]
    pub(crate) time_zone: Spanned<String>,
}

/// A condition, and how long or for how many readings it must hold. With both `for` and `samples`, both must hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Condition")]
pub(crate) struct ConditionDocument {
    /// The condition: an expression over the signals, the calendars and the facts of the pool.
    #[schemars(with = "schema::Expression")]
    pub(crate) when: Spanned<String>,
    /// How long it must hold without a break. Default: 0s, it acts at once.
    #[serde(rename = "for")]
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) held_for: Option<Spanned<String>>,
    /// For how many readings in a row it must hold. Default: they are not counted.
    #[schemars(with = "Option<u32>", range(min = 1, max = SAMPLES_MAX))]
    pub(crate) samples: Option<Spanned<u32>>,
}

/// The least window worth starting for, and when to leave it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Window", transform = schema::keys_of_expectation)]
pub(crate) struct WindowDocument {
    /// From what the window's length is expected: the issued forecast of the signals, a calendar, or the partner's
    /// guarantee.
    #[schemars(with = "schema::Expect")]
    pub(crate) expect: Spanned<String>,
    /// With `expect: schedule`: the calendar whose open window it is.
    #[schemars(with = "Option<schema::Variable>")]
    pub(crate) calendar: Option<Spanned<String>>,
    /// With `expect: guarantee`: how long each window lasts from the instant at which `activate.when` became true.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) lasts: Option<Spanned<String>>,
    /// Training time that must be left once a worker is ready and the start is paid for. Default: 0s.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) at_least: Option<Spanned<String>>,
    /// Training time that a start costs beside the pool's `ready_after` (image pull, checkpoint load). Default: 0s.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) start_cost: Option<Spanned<String>>,
    /// Release so long before the expected end; shorter than `at_least`. Default: the release condition alone ends it.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) leave_before_end: Option<Spanned<String>>,
}

/// One rule.
// One struct for all kinds, not a tagged enum: serde buffers those and loses the places.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Rule")]
pub(crate) struct RuleDocument {
    /// The kind of rule. `threshold`: a latch with a condition to start and one to stop.
    #[schemars(with = "schema::RuleKind")]
    pub(crate) kind: Spanned<String>,
    /// Unique within the policy; what the rule remembers is kept under it.
    #[schemars(with = "schema::Name")]
    pub(crate) name: Spanned<String>,
    /// When to start.
    #[schemars(with = "ConditionDocument")]
    pub(crate) activate: Option<Spanned<ConditionDocument>>,
    /// When to stop. Default: as soon as `activate.when` does not hold.
    #[schemars(with = "Option<ConditionDocument>")]
    pub(crate) release: Option<Spanned<ConditionDocument>>,
    /// The least window worth starting for, and when to leave it.
    #[schemars(with = "Option<WindowDocument>")]
    pub(crate) window: Option<Spanned<WindowDocument>>,
}

/// How fast a pool may change; at least one of the two directions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Ramp", extend("minProperties" = 1))]
pub(crate) struct RampDocument {
    /// Upwards. Default: at once.
    #[schemars(with = "Option<RampStepDocument>")]
    pub(crate) up: Option<Spanned<RampStepDocument>>,
    /// Downwards. Default: at once.
    #[schemars(with = "Option<RampStepDocument>")]
    pub(crate) down: Option<Spanned<RampStepDocument>>,
}

/// At most `workers` more (or fewer) in any `every`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RampStep")]
pub(crate) struct RampStepDocument {
    /// How many.
    #[schemars(range(min = 1))]
    pub(crate) workers: u32,
    /// In which time. Longer than 0s.
    #[schemars(with = "schema::Duration")]
    pub(crate) every: Spanned<String>,
}

/// A hard budget over the pools that the policy governs.
///
/// Workers, kW and MW are kept at any instant; energy, emissions and money per period.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Budget", transform = schema::keys_of_budget)]
pub(crate) struct BudgetDocument {
    /// Unique among the policy's budgets; decisions and explanations name it.
    #[schemars(with = "schema::Name")]
    pub(crate) name: Spanned<String>,
    /// The most: an amount with its unit, which says what is counted. Workers and kW or MW at any instant; kWh, MWh or
    /// GWh of energy, kgCO2e or tCO2e of emissions, and money by its ISO 4217 code, per period.
    #[schemars(with = "schema::Limit")]
    pub(crate) limit: Spanned<String>,
    /// The period after which energy, emissions or money are counted from 0 again. Required for these, and for these
    /// alone.
    #[schemars(with = "Option<schema::Period>")]
    pub(crate) per: Option<Spanned<String>>,
    /// The zone in which the period begins, by its name in the IANA database. Default: UTC.
    #[schemars(with = "Option<schema::TimeZone>")]
    pub(crate) time_zone: Option<Spanned<String>>,
    /// Over which of the policy's pools the sum is kept; each site, federation or pool has a sum of its own.
    #[schemars(with = "schema::BudgetScope")]
    pub(crate) scope: Spanned<String>,
    /// For emissions and money: the signal that weighs the energy, of the kind carbon_intensity or energy_price.
    #[schemars(with = "Option<schema::Variable>")]
    pub(crate) signal: Option<Spanned<String>>,
    /// For emissions and money: what counts while the signal has no fresh value, above 0. A bare number is in gCO2e/kWh
    /// or in the budget's currency per MWh.
    #[schemars(with = "Option<schema::Assume>")]
    pub(crate) assume: Option<Spanned<String>>,
}

/// So many sites stay active, whatever the rules say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Floor")]
pub(crate) struct FloorDocument {
    /// Unique among the policy's floors; decisions and explanations name it.
    #[schemars(with = "schema::Name")]
    pub(crate) name: Spanned<String>,
    /// Whose sites, among the pools that the policy governs. Default: all of them.
    #[schemars(with = "Option<schema::Name>")]
    pub(crate) federation: Option<Spanned<String>>,
    /// How many. A site is active with more than the minimum of a pool.
    #[schemars(with = "u32", range(min = 1))]
    pub(crate) sites: Spanned<u32>,
    /// Whether the floor may start a site whose signals are missing (`run`), or only keeps what runs (`keep`). Default:
    /// keep.
    #[schemars(with = "Option<schema::FloorOnMissing>")]
    pub(crate) on_missing: Option<Spanned<String>>,
}

/// So much work is done by an instant, in the least bad hours by `score`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Deadline")]
pub(crate) struct DeadlineDocument {
    /// Unique among the policy's deadlines; decisions and explanations name it.
    #[schemars(with = "schema::Name")]
    pub(crate) name: Spanned<String>,
    /// Whose pools, among those that the policy governs. Default: all of them.
    #[schemars(with = "Option<schema::Name>")]
    pub(crate) federation: Option<Spanned<String>>,
    /// By when: RFC 3339 with an offset from UTC.
    #[schemars(with = "schema::Instant")]
    pub(crate) finish_by: Spanned<String>,
    /// How much: worker-hours of ready workers, counted from when the policy came into force.
    #[schemars(with = "schema::Work")]
    pub(crate) work: Spanned<String>,
    /// Spare time kept before `finish_by`. Default: 0s.
    #[schemars(with = "Option<schema::Duration>")]
    pub(crate) margin: Option<Spanned<String>>,
}
