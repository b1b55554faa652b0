#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use sunward_core::fleet::Fleet;
use sunward_core::time::{Span, Timestamp};

use super::*;
use crate::wire::{Item, Limits, Malformed, decode_items};

const NOW: &str = "2026-03-01T12:00:00Z";

fn now() -> Timestamp {
    Timestamp::parse_rfc3339(NOW).unwrap()
}

fn good() -> Value {
    json!({
        "type": "grid_event", "source": "caiso-iso", "id": "evt-7", "revision": 2, "kind": "limit", "site": "caiso",
        "starts_at": "2026-03-01T13:00:00+01:00", "ends_at": "2026-03-01T14:00:00Z",
        "target": {"value": 0.25, "unit": "MW"}, "status": "active"
    })
}

fn with(changes: Value) -> Value {
    let mut event = good();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            event.as_object_mut().unwrap().remove(name);
        } else {
            event[name] = value.clone();
        }
    }
    event
}

type Judged = Result<(GridEvent, DedupeKey), Rejection>;

fn judge(body: &str) -> Result<Vec<Judged>, Malformed> {
    let fleet = Fleet::parse(&sunward_policies::SourceFile {
        path: "fleet.yaml".into(),
        text: include_str!("../../fixtures/fleet.yaml").into(),
    })
    .unwrap();
    let limits = Limits::default();
    let context = Context {
        now: now(),
        fleet: &fleet,
        limits: &limits,
    };
    let admit = |item| match item {
        Item::GridEvent(event) => admit_grid_event(event, "", &context),
        Item::Reading(reading) => panic!("a reading: {reading:?}"),
    };
    let items = decode_items(body.as_bytes(), limits.items_max)?;
    Ok(items.into_iter().map(|item| item.and_then(admit)).collect())
}

fn one(event: &Value) -> Judged {
    judge(&event.to_string()).unwrap().remove(0)
}

#[test]
fn a_good_event_is_read_whole() {
    let (event, key) = one(&good()).unwrap();
    let wanted = GridEvent {
        source: "caiso-iso".into(),
        id: "evt-7".into(),
        revision: 2,
        kind: GridEventKind::Limit,
        scope: Scope::Site("caiso".into()),
        starts_at: now(),
        ends_at: Some(now() + Span::from_mins(120)),
        target: Some(GridTarget::Kilowatts(250.0)),
        status: GridEventStatus::Active,
    };
    assert_eq!(event, wanted);
    assert_eq!(key.source.as_ref(), "caiso-iso");
    let bare = with(json!({
        "revision": null, "ends_at": null, "target": null, "status": null, "site": null, "kind": "emergency",
        "zone": {"scheme": "wt", "code": "CAISO_NORTH"}
    }));
    let (event, _) = one(&bare).unwrap();
    assert_eq!(
        (event.revision, event.ends_at, event.target),
        (0, None, None)
    );
    assert_eq!(event.status, GridEventStatus::Scheduled);
    assert_eq!(event.scope.to_string(), "wt:CAISO_NORTH");
    let percent = with(json!({"target": {"unit": "percent", "value": 75}}));
    let (event, _) = one(&percent).unwrap();
    assert_eq!(event.target, Some(GridTarget::PowerPercent(75)));
}

#[test]
fn every_mistake_has_its_code_and_its_place() {
    let cases = [
        (with(json!({"type": "price"})), "/type", "unknown_type"),
        (with(json!({"value": 7})), "/value", "unknown_field"),
        (with(json!({"id": null})), "/id", "missing_field"),
        (with(json!({"source": null})), "/source", "missing_field"),
        (with(json!({"kind": null})), "/kind", "missing_field"),
        (with(json!({"kind": "alarm"})), "/kind", "unknown_kind"),
        (with(json!({"status": "over"})), "/status", "unknown_status"),
        (with(json!({"revision": -1})), "/revision", "wrong_type"),
        (with(json!({"revision": "2"})), "/revision", "wrong_type"),
        (with(json!({"site": null})), "/site", "missing_field"),
        (with(json!({"site": "nowhere"})), "/site", "unknown_site"),
        (
            with(json!({"zone": {"scheme": "wt", "code": "SPP"}})),
            "/zone",
            "two_scopes",
        ),
        (
            with(json!({"starts_at": null})),
            "/starts_at",
            "missing_field",
        ),
        (
            with(json!({"starts_at": "2026-03-01T12:00:00"})),
            "/starts_at",
            "stamp_without_offset",
        ),
        (with(json!({"ends_at": NOW})), "/ends_at", "interval_order"),
        (
            with(json!({"starts_at": "2026-03-09T12:00:00Z", "ends_at": null})),
            "/starts_at",
            "horizon",
        ),
        (
            with(json!({"starts_at": "2026-03-01T09:00:00Z", "ends_at": "2026-03-01T11:00:00Z"})),
            "/ends_at",
            "too_old",
        ),
        (with(json!({"target": 40})), "/target", "wrong_type"),
        (with(json!({"target": [40, "kW"]})), "/target", "wrong_type"),
        (
            with(json!({"target": {"value": 4, "unit": "kW", "x": 1}})),
            "/target",
            "wrong_type",
        ),
        (
            with(json!({"target": {"value": 4, "unit": "kw"}})),
            "/target",
            "unknown_unit",
        ),
        (
            with(json!({"target": {"value": -4, "unit": "kW"}})),
            "/target",
            "out_of_range",
        ),
        (
            with(json!({"target": {"value": 101, "unit": "percent"}})),
            "/target",
            "out_of_range",
        ),
        (
            with(json!({"target": {"value": 12.5, "unit": "percent"}})),
            "/target",
            "out_of_range",
        ),
    ];
    for (event, pointer, code) in cases {
        let rejection = one(&event).unwrap_err();
        assert_eq!(
            (rejection.code.as_str(), rejection.pointer.as_str()),
            (code, pointer),
            "{event}"
        );
        assert!(rejection.detail.len() > 20, "{code}: {}", rejection.detail);
    }
}

#[test]
fn that_an_old_event_is_over_may_still_be_said() {
    let old = json!({"starts_at": "2026-03-01T09:00:00Z", "ends_at": "2026-03-01T11:00:00Z", "status": "cancelled"});
    assert!(one(&with(old)).is_ok());
}

#[test]
fn a_revision_is_one_key_and_each_word_of_it_counts() {
    let key = |changes| one(&with(changes)).unwrap().1;
    let first = key(json!({}));
    assert_eq!(first, key(json!({})));
    assert_ne!(first.id, key(json!({"revision": 3})).id);
    for changed in [
        json!({"kind": "emergency"}),
        json!({"ends_at": "2026-03-01T14:00:01Z"}),
        json!({"ends_at": null}),
        json!({"target": null}),
        json!({"target": {"value": 250, "unit": "kW"}, "status": "scheduled"}),
        json!({"site": "berlin"}),
    ] {
        let other = key(changed.clone());
        assert_eq!(first.id, other.id);
        assert_ne!(first.hash, other.hash, "{changed}");
    }
    let same = key(json!({"target": {"value": 250, "unit": "kW"}}));
    assert_eq!(first.hash, same.hash, "another unit of the same target");
    assert!(
        first.id.contains(char::is_control),
        "no reading has such an id"
    );
}

#[test]
fn readings_and_events_stand_side_by_side_and_each_has_its_place() {
    let reading = json!({
        "source": "watttime", "kind": "carbon_intensity", "site": "caiso", "valid_from": NOW,
        "valid_to": "2026-03-01T12:05:00Z", "value": 1, "unit": "gCO2e/kWh"
    });
    let mut strange = reading.clone();
    strange["unit"] = json!(7);
    let items = json!([reading, good(), strange, 7, ["type"], {"type": 7}]);
    let found: Vec<_> = decode_items(items.to_string().as_bytes(), 10)
        .unwrap()
        .into_iter()
        .map(|item| match item {
            Ok(Item::Reading(_)) => "reading".to_owned(),
            Ok(Item::GridEvent(_)) => "event".to_owned(),
            Err(rejection) => format!("{} {}", rejection.code.as_str(), rejection.pointer),
        })
        .collect();
    let wanted = [
        "reading",
        "event",
        "wrong_type /2/unit",
        "not_an_object /3",
        "not_an_object /4",
        "unknown_field /5/type",
    ];
    assert_eq!(found, wanted);
    let many = json!(vec![good(); 11]).to_string();
    assert!(matches!(
        decode_items(many.as_bytes(), 10),
        Err(Malformed::TooManyItems { items: 11, max: 10 })
    ));
    assert!(matches!(
        decode_items(b"[{\"type\": \"grid_event\"", 10),
        Err(Malformed::Syntax { .. })
    ));
}
