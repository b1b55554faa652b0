//! The JSON form of an envelope: the one text that every sink delivers.
//!
//! The keys are those of `docs/events.md`, always all of them; what does not exist is `null`.
//! Nothing here reads a clock: the same envelope gives the same bytes, whenever it is published,
//! so that a duplicate is one in every byte.

use serde::Serialize;
use sunward_core::action::{Cause, Envelope};
use sunward_core::time::Timestamp;

/// The version of the form. It grows only when a key changes its meaning; a new key does not.
pub const ENVELOPE_VERSION: u32 = 1;

/// The keys in their order on the wire.
#[derive(Serialize)]
struct Wire<'a> {
    v: u32,
    id: &'a str,
    term: u64,
    seq: u64,
    federation: &'a str,
    /// Flower's run; a string, because it is a `uint64` there.
    run_id: Option<&'a str>,
    kind: &'static str,
    round: Option<u64>,
    site: &'a str,
    /// Flower's node; a string, for the same reason.
    node_id: Option<&'a str>,
    time_ms: i64,
    deadline_ms: Option<i64>,
    deadline_in_ms: Option<i64>,
    cause: WireCause<'a>,
    data: Option<WireData>,
}

/// What a kind has to say besides.
#[derive(Serialize)]
struct WireData {
    power_percent: u8,
}

/// Why an envelope was issued.
#[derive(Serialize)]
struct WireCause<'a> {
    index: u64,
    by: &'a str,
    why: &'a str,
}

impl<'a> From<&'a Cause> for WireCause<'a> {
    fn from(cause: &'a Cause) -> Self {
        WireCause {
            index: cause.index,
            by: &cause.by,
            why: &cause.why,
        }
    }
}

/// The envelope as one line of JSON. `time_ms` and `deadline_ms` are milliseconds since
/// 1970-01-01T00:00:00Z; `deadline_in_ms` is the time between them, for receivers whose clock
/// is off.
pub fn to_json(envelope: &Envelope) -> String {
    let deadline = envelope.deadline;
    let wire = Wire {
        v: ENVELOPE_VERSION,
        id: &envelope.id,
        term: envelope.term,
        seq: envelope.sequence,
        federation: &envelope.federation,
        run_id: None,
        kind: envelope.kind.as_str(),
        round: None,
        site: &envelope.site,
        node_id: None,
        time_ms: envelope.time.as_millis(),
        deadline_ms: deadline.map(Timestamp::as_millis),
        deadline_in_ms: deadline.map(|at| (at - envelope.time).as_millis()),
        cause: WireCause::from(&envelope.cause),
        data: envelope
            .power_percent
            .map(|power_percent| WireData { power_percent }),
    };
    serde_json::to_string(&wire).expect("strings and integers always encode")
}

/// The cause alone, as it stands in an envelope and in a site's hash.
pub fn cause_to_json(cause: &Cause) -> String {
    serde_json::to_string(&WireCause::from(cause)).expect("strings and integers always encode")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sunward_core::action::EventKind;

    use super::*;

    fn envelope() -> Envelope {
        Envelope {
            id: "3-17".into(),
            term: 4,
            sequence: 17,
            federation: "job".into(),
            kind: EventKind::SiteDraining,
            site: "caiso".into(),
            time: Timestamp::from_millis(1_686_000_000_123),
            deadline: None,
            power_percent: None,
            cause: Cause {
                index: 912,
                by: "curtailment/threshold".into(),
                why: "carbon >= 120 for 10m, \"release\"".into(),
            },
        }
    }

    #[test]
    fn the_wire_form_is_this_text() {
        assert_eq!(
            to_json(&envelope()),
            concat!(
                r#"{"v":1,"id":"3-17","term":4,"seq":17,"federation":"job","run_id":null,"#,
                r#""kind":"site.draining","round":null,"site":"caiso","node_id":null,"#,
                r#""time_ms":1686000000123,"deadline_ms":null,"deadline_in_ms":null,"#,
                r#""cause":{"index":912,"by":"curtailment/threshold","#,
                r#""why":"carbon >= 120 for 10m, \"release\""},"data":null}"#,
            )
        );
    }

    #[test]
    fn a_share_of_power_is_said_in_the_data() {
        let mut with = envelope();
        with.kind = EventKind::SitePower;
        with.power_percent = Some(75);
        let json: serde_json::Value = serde_json::from_str(&to_json(&with)).unwrap();
        assert_eq!(json["kind"], "site.power");
        assert_eq!(json["data"], serde_json::json!({"power_percent": 75}));
    }

    #[test]
    fn a_deadline_stands_there_twice_absolute_and_from_the_stamp_on() {
        let mut with = envelope();
        with.deadline = Some(Timestamp::from_millis(1_686_000_090_123));
        let json: serde_json::Value = serde_json::from_str(&to_json(&with)).unwrap();
        assert_eq!(json["deadline_ms"], 1_686_000_090_123_i64);
        assert_eq!(json["deadline_in_ms"], 90_000);
    }
}
