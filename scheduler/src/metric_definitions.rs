//! Every metric name of the daemon, with its help text: dashboards and alerts are checked against
//! this file. Base units only; label values come from enums or from `fleet.yaml`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Readings taken in, by `source` and `result` (accepted, duplicate, superseded).
pub const SIGNALS_ACCEPTED: &str = "sunward_signals_accepted_total";
/// Readings and requests refused, by `reason` (the stable code of the problem).
pub const SIGNALS_REFUSED: &str = "sunward_signals_refused_total";
/// Seconds since a stream's newest level was received, by `stream`.
pub const BOARD_AGE: &str = "sunward_board_age_seconds";
/// Decisions by `pool` and `direction` (up, down, same).
pub const DECISIONS: &str = "sunward_decisions_total";
/// Workers that the engine wants, by `pool` and `site`.
pub const POOL_DESIRED: &str = "sunward_pool_desired_workers";
/// Workers that can train, by `pool` and `site`.
pub const POOL_READY: &str = "sunward_pool_ready_workers";
/// Calls to actuators, by `action` (claim, scale) and `outcome`.
pub const ACTIONS: &str = "sunward_actions_total";
/// Things that were not done, by `reason`.
pub const REFUSALS: &str = "sunward_refusals_total";
/// From the last byte of an accepted reading, or from the end of the hold time that it began, to the scale call that it led
/// to, in seconds.
pub const SIGNAL_TO_ACTION: &str = "sunward_signal_to_action_seconds";
/// Journal index of the last group stepped.
pub const JOURNAL_INDEX: &str = "sunward_journal_index";
/// Bytes that the journal's file occupies.
pub const JOURNAL_BYTES: &str = "sunward_journal_bytes";
/// Duration of one durable append, in seconds.
pub const JOURNAL_APPEND: &str = "sunward_journal_append_seconds";
/// Ids that left the dedupe index before their time because a source sent too many.
pub const DEDUPE_EVICTIONS: &str = "sunward_dedupe_evictions_total";
/// Decision records that were never stored because too many waited.
pub const DECISIONS_DROPPED: &str = "sunward_decisions_dropped_total";
/// Levels that left a stream's board before their time because it held too many.
pub const BOARD_DROPPED: &str = "sunward_board_dropped_total";
/// Entries that wait, by `queue` (ingest, internal, dispatch).
pub const QUEUE_DEPTH: &str = "sunward_queue_depth";
/// Envelopes delivered, by `sink` and `kind`.
pub const EVENTS_PUBLISHED: &str = "sunward_events_published_total";
/// Envelopes that a sink does not have yet, by `sink` and `federation`.
pub const OUTBOX_LAG: &str = "sunward_outbox_lag";
/// Envelopes that left the outbox before a sink took them, by `sink` and `federation`.
pub const OUTBOX_OVERFLOWS: &str = "sunward_outbox_overflows_total";
/// 1 while a dependency answers, 0 while not, by `kind` (cluster, sink) and `name`.
pub const DEPENDENCY_UP: &str = "sunward_dependency_up";
/// Loads of policy and fleet files, by `file` (policies, fleet) and `outcome` (replaced, unchanged, refused).
pub const RELOADS: &str = "sunward_reloads_total";
/// HTTP requests, by `route`, `method` and `status`.
pub const HTTP_REQUESTS: &str = "sunward_http_requests_total";
/// The current term.
pub const TERM: &str = "sunward_term";
/// 1 while this process may write to clusters and sinks.
pub const LEADING: &str = "sunward_leading";

/// Upper bounds of the histograms' buckets, seconds: 0.1 ms to 60 s.
pub const SECONDS_BUCKETS: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// Registers the help text of every metric; called once at start.
pub fn describe() {
    describe_counter!(
        SIGNALS_ACCEPTED,
        Unit::Count,
        "Readings taken in, by source and result"
    );
    describe_counter!(
        SIGNALS_REFUSED,
        Unit::Count,
        "Readings and requests refused, by reason"
    );
    describe_gauge!(
        BOARD_AGE,
        Unit::Seconds,
        "Seconds since a stream's newest level was received"
    );
    describe_counter!(DECISIONS, Unit::Count, "Decisions by pool and direction");
    describe_gauge!(POOL_DESIRED, Unit::Count, "Workers that the engine wants");
    describe_gauge!(POOL_READY, Unit::Count, "Workers that can train");
    describe_counter!(
        ACTIONS,
        Unit::Count,
        "Calls to actuators, by action and outcome"
    );
    describe_counter!(
        REFUSALS,
        Unit::Count,
        "Things that were not done, by reason"
    );
    describe_histogram!(
        SIGNAL_TO_ACTION,
        Unit::Seconds,
        "From an accepted reading, or the end of the hold that it began, to the scale call"
    );
    describe_gauge!(
        JOURNAL_INDEX,
        Unit::Count,
        "Journal index of the last group stepped"
    );
    describe_gauge!(
        JOURNAL_BYTES,
        Unit::Bytes,
        "Bytes that the journal's file occupies"
    );
    describe_histogram!(
        JOURNAL_APPEND,
        Unit::Seconds,
        "Duration of one durable append"
    );
    describe_counter!(
        DEDUPE_EVICTIONS,
        Unit::Count,
        "Ids evicted from the dedupe index before their time"
    );
    describe_counter!(
        DECISIONS_DROPPED,
        Unit::Count,
        "Decision records that were never stored"
    );
    describe_counter!(
        BOARD_DROPPED,
        Unit::Count,
        "Levels dropped from the board before their time"
    );
    describe_gauge!(QUEUE_DEPTH, Unit::Count, "Entries that wait, by queue");
    describe_counter!(
        EVENTS_PUBLISHED,
        Unit::Count,
        "Envelopes delivered, by sink and kind"
    );
    describe_gauge!(
        OUTBOX_LAG,
        Unit::Count,
        "Envelopes that a sink does not have yet"
    );
    describe_counter!(
        OUTBOX_OVERFLOWS,
        Unit::Count,
        "Envelopes that left the outbox before a sink took them"
    );
    describe_gauge!(DEPENDENCY_UP, Unit::Count, "1 while a dependency answers");
    describe_counter!(
        RELOADS,
        Unit::Count,
        "Loads of policy and fleet files, by outcome"
    );
    describe_counter!(
        HTTP_REQUESTS,
        Unit::Count,
        "HTTP requests, by route, method and status"
    );
    describe_gauge!(TERM, Unit::Count, "The current term");
    describe_gauge!(
        LEADING,
        Unit::Count,
        "1 while this process may write to clusters and sinks"
    );
}
