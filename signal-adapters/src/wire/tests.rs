#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use sunward_core::fleet::Fleet;
use sunward_core::signal::Level;
use sunward_core::time::Timestamp;

use super::*;
use crate::intake::DedupeKey;

const NOW: &str = "2026-03-01T12:00:00Z";

fn fleet() -> Fleet {
    Fleet::parse(&sunward_policies::SourceFile {
        path: "fleet.yaml".into(),
        text: include_str!("../../fixtures/fleet.yaml").into(),
    })
    .unwrap()
}

fn now() -> Timestamp {
    Timestamp::parse_rfc3339(NOW).unwrap()
}

fn good() -> Value {
    json!({
        "id": "r-1", "source": "watttime", "kind": "carbon_intensity", "basis": "marginal",
        "zone": {"scheme": "wt", "code": "CAISO_NORTH"},
        "valid_from": "2026-03-01T12:00:00Z", "valid_to": "2026-03-01T12:05:00Z",
        "value": 90.5, "unit": "gCO2e/kWh", "quality": "measured",
        "issued_at": "2026-03-01T11:59:00Z", "sequence": 7
    })
}

fn judge(body: &str) -> Vec<Result<(Level, DedupeKey), Rejection>> {
    let (fleet, limits) = (fleet(), Limits::default());
    let context = Context {
        now: now(),
        fleet: &fleet,
        limits: &limits,
    };
    let array = body.trim_start().starts_with('[');
    decode(body.as_bytes(), limits.items_max)
        .unwrap()
        .into_iter()
        .enumerate()
        .map(|(item, reading)| {
            let at = if array {
                format!("/{item}")
            } else {
                String::new()
            };
            reading.and_then(|reading| admit(reading, &at, &context))
        })
        .collect()
}

fn one(reading: &Value) -> Result<(Level, DedupeKey), Rejection> {
    judge(&reading.to_string()).remove(0)
}

/// `good()` with fields replaced; `null` removes one.
fn with(changes: Value) -> Value {
    let mut reading = good();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            reading.as_object_mut().unwrap().remove(name);
        } else {
            reading[name] = value.clone();
        }
    }
    reading
}

#[test]
fn a_good_reading_becomes_a_level_in_canonical_units() {
    let (level, key) = one(&with(json!({"unit": "lbs_co2_per_mwh", "value": 100}))).unwrap();
    assert_eq!(
        level.stream.to_string(),
        "watttime/carbon_intensity.marginal/wt:CAISO_NORTH"
    );
    assert_eq!(level.value, Some(45.359_237));
    assert_eq!(level.valid_from, now());
    assert_eq!(level.sequence, Some(7));
    assert_eq!((key.source.as_ref(), key.id.as_ref()), ("watttime", "r-1"));
}

fn refused_each<const N: usize>(cases: [(Value, &str, &str); N]) {
    for (reading, pointer, code) in cases {
        let rejection = one(&reading).unwrap_err();
        assert_eq!(
            (rejection.code.as_str(), rejection.pointer.as_str()),
            (code, pointer),
            "{reading}"
        );
        assert!(rejection.detail.len() > 20, "{code}: {}", rejection.detail);
    }
}

#[test]
fn every_mistake_has_its_code_and_its_place() {
    let long = "x".repeat(129);
    let cases = [
        (with(json!({"colour": "green"})), "/colour", "unknown_field"),
        (with(json!({"a/b~c": 1})), "/a~1b~0c", "unknown_field"),
        (with(json!({"source": null})), "/source", "missing_field"),
        (with(json!({"kind": null})), "/kind", "missing_field"),
        (
            with(json!({"valid_to": null})),
            "/valid_to",
            "missing_field",
        ),
        (with(json!({"unit": null})), "/unit", "missing_field"),
        (with(json!({"zone": null})), "/site", "missing_field"),
        (
            with(json!({"zone": {"scheme": "wt"}})),
            "/zone/code",
            "missing_field",
        ),
        (
            with(json!({"zone": {"scheme": "wt", "code": "X", "name": "y"}})),
            "/zone/name",
            "unknown_field",
        ),
        (
            with(json!({"zone": "CAISO_NORTH"})),
            "/zone",
            "not_an_object",
        ),
        (with(json!({"site": "caiso"})), "/zone", "two_scopes"),
        (with(json!({"source": 3})), "/source", "wrong_type"),
        (with(json!({"source": ""})), "/source", "bad_text"),
        (with(json!({"id": "a\nb"})), "/id", "bad_text"),
        (with(json!({"id": long})), "/id", "string_too_long"),
        (with(json!({"kind": "carbon"})), "/kind", "unknown_kind"),
        (with(json!({"basis": "mean"})), "/basis", "unknown_basis"),
        (
            with(json!({"basis": "day_ahead"})),
            "/basis",
            "basis_does_not_fit",
        ),
        (
            with(json!({"quality": "good"})),
            "/quality",
            "unknown_quality",
        ),
        (with(json!({"unit": "furlong"})), "/unit", "unknown_unit"),
        (with(json!({"value": "NaN"})), "/value", "not_finite"),
        (with(json!({"value": "-Infinity"})), "/value", "not_finite"),
        (with(json!({"value": "12.5"})), "/value", "wrong_type"),
        (with(json!({"value": true})), "/value", "wrong_type"),
        (with(json!({"value": null})), "/value", "value_missing"),
        (
            with(json!({"quality": "missing"})),
            "/value",
            "value_with_missing_quality",
        ),
        (
            with(json!({"quality": "missing", "value": null, "unit": "furlong"})),
            "/unit",
            "unknown_unit",
        ),
    ];
    refused_each(cases);
}

#[test]
fn every_mistake_in_time_and_place_has_its_code_too() {
    let cases = [
        (
            with(json!({"valid_from": "2026-03-01T12:00:00"})),
            "/valid_from",
            "stamp_without_offset",
        ),
        (
            with(json!({"valid_from": "yesterday"})),
            "/valid_from",
            "bad_stamp",
        ),
        (
            with(json!({"valid_from": 1_772_366_400})),
            "/valid_from",
            "wrong_type",
        ),
        (
            with(json!({"valid_to": "2026-03-01T12:00:00Z"})),
            "/valid_to",
            "interval_order",
        ),
        (
            with(json!({"valid_to": "2026-03-01T11:00:00Z"})),
            "/valid_to",
            "interval_order",
        ),
        (
            with(json!({"valid_to": "2026-03-01T12:00:00.999Z"})),
            "/valid_to",
            "interval_too_short",
        ),
        (
            with(json!({"valid_to": "2026-03-08T12:00:00.001Z"})),
            "/valid_to",
            "interval_too_long",
        ),
        (
            with(json!({"issued_at": "2026-03-01T12:05:00.001Z"})),
            "/issued_at",
            "issued_in_future",
        ),
        (
            with(
                json!({"valid_from": "2026-03-08T12:00:00.001Z", "valid_to": "2026-03-08T13:00:00Z"}),
            ),
            "/valid_from",
            "horizon",
        ),
        (
            with(
                json!({"valid_from": "2026-03-01T11:00:00Z", "valid_to": "2026-03-01T11:44:59.999Z"}),
            ),
            "/valid_to",
            "too_old",
        ),
        (
            with(json!({"zone": null, "site": "nowhere"})),
            "/site",
            "unknown_site",
        ),
        (
            with(json!({"zone": {"scheme": "wt", "code": "MARS"}})),
            "/zone",
            "unknown_zone",
        ),
        (with(json!({"sequence": -1})), "/sequence", "wrong_type"),
        (with(json!({"sequence": 1.5})), "/sequence", "wrong_type"),
        (json!([[]]), "/0", "not_an_object"),
        (json!(12), "", "not_an_object"),
    ];
    refused_each(cases);
}

#[test]
fn limits_are_inclusive_and_zero_and_negative_values_are_real() {
    for changes in [
        json!({"valid_to": "2026-03-01T12:00:01Z"}),
        json!({"valid_to": "2026-03-08T12:00:00Z"}),
        json!({"issued_at": "2026-03-01T12:05:00Z"}),
        json!({"valid_from": "2026-03-08T12:00:00Z", "valid_to": "2026-03-08T13:00:00Z"}),
        json!({"valid_from": "2026-03-01T11:00:00Z", "valid_to": "2026-03-01T11:45:00Z"}),
        json!({"value": 0}),
        json!({"value": -3.5}),
        json!({"quality": "missing", "value": null, "unit": null}),
        json!({"id": "x".repeat(128)}),
        json!({"sequence": u64::MAX}),
    ] {
        one(&with(changes.clone())).unwrap_or_else(|r| panic!("{changes}: {}", r.detail));
    }
}

#[test]
fn a_number_that_json_allows_and_no_float_holds_is_a_rejection_of_its_item() {
    let body = format!(
        "[{}, {}]",
        good().to_string().replace("90.5", "1e999"),
        good()
    );
    let results = judge(&body);
    let rejection = results[0].as_ref().unwrap_err();
    assert_eq!(
        (rejection.code, rejection.pointer.as_str()),
        (Code::NotFinite, "/0/value")
    );
    assert!(results[1].is_ok());
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let body = good()
        .to_string()
        .replace("\"value\":90.5", "\"value\":90.5,\"value\":10");
    let rejection = judge(&body).remove(0).unwrap_err();
    assert_eq!(
        (rejection.code, rejection.pointer.as_str()),
        (Code::DuplicateField, "/value")
    );
}

#[test]
fn what_is_not_json_says_where_and_how_to_mend_it() {
    let Err(Malformed::Syntax {
        line,
        column,
        problem,
    }) = decode(b"[\n{\"source\": NaN}]", ITEMS_MAX)
    else {
        panic!("NaN is not JSON")
    };
    assert_eq!((line, column), (2, 12), "{problem}");
    assert!(problem.contains("quality: missing"), "{problem}");
    for body in [
        "",
        "   ",
        "{",
        "[{}",
        "{}{}",
        "kind: carbon",
        "{\"a\": .5}",
        "[{},]",
        "\u{feff}{}",
    ] {
        let error = decode(body.as_bytes(), ITEMS_MAX).unwrap_err();
        assert_eq!(error.code(), "syntax", "{body}");
    }
    assert_eq!(
        decode(b"{\"id\": \"\xff\"}", ITEMS_MAX).unwrap_err().code(),
        "syntax"
    );
}

#[test]
fn depth_and_number_of_items_are_bounded() {
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    assert_eq!(
        decode(deep.as_bytes(), ITEMS_MAX),
        Err(Malformed::Depth { depth: 65 })
    );
    let brackets_in_text = json!({"id": "[".repeat(100)}).to_string();
    assert!(decode(brackets_in_text.as_bytes(), ITEMS_MAX).is_ok());
    // Far beyond any stack, were it read by recursion.
    let abyss = "{\"a\":".repeat(200_000);
    assert_eq!(
        decode(abyss.as_bytes(), ITEMS_MAX).unwrap_err().code(),
        "depth"
    );
    let many = format!("[{}]", vec!["{}"; 1_001].join(","));
    assert_eq!(
        decode(many.as_bytes(), ITEMS_MAX),
        Err(Malformed::TooManyItems {
            items: 1_001,
            max: 1_000
        })
    );
    assert_eq!(decode(b"[]", ITEMS_MAX), Ok(vec![]));
}

#[test]
fn good_items_go_on_beside_bad_ones_in_any_order() {
    let bad = [
        json!(null),
        json!({"kind": 1}),
        with(json!({"unit": "x"})),
        json!([]),
        json!("text"),
    ];
    for bad_at in 0..=4 {
        let mut items: Vec<Value> = (0..4)
            .map(|n| with(json!({"id": format!("r-{n}")})))
            .collect();
        items.insert(bad_at, bad[bad_at].clone());
        let results = judge(&Value::Array(items).to_string());
        for (item, result) in results.iter().enumerate() {
            assert_eq!(result.is_err(), item == bad_at, "item {item}");
        }
        let pointer = &results[bad_at].as_ref().unwrap_err().pointer;
        assert!(pointer.starts_with(&format!("/{bad_at}")), "{pointer}");
    }
}

#[test]
fn the_order_and_spelling_of_fields_change_neither_id_nor_hash() {
    let reading = with(json!({"id": null, "unit": "kgCO2e/kWh", "value": 0.25}));
    let (_, key) = one(&reading).unwrap();
    let reversed = format!(
        "{{{}}}",
        reading
            .as_object()
            .unwrap()
            .iter()
            .rev()
            .map(|(name, value)| format!("\n  {}: {value}", json!(name)))
            .collect::<Vec<_>>()
            .join(",")
    );
    assert_eq!(judge(&reversed).remove(0).unwrap().1, key);
    let escaped = reading.to_string().replace("watttime", "w\\u0061tttime");
    assert_eq!(judge(&escaped).remove(0).unwrap().1, key);
    // The same instant and the same quantity, written otherwise.
    let same = with(json!({
        "id": null, "value": 250, "valid_from": "2026-03-01T13:00:00+01:00", "quality": null
    }));
    assert_eq!(one(&same).unwrap().1, key);
}

#[test]
fn without_an_id_the_name_leaves_the_value_out_and_the_hash_does_not() {
    let base = one(&with(json!({"id": null}))).unwrap().1;
    assert_eq!(base.id.len(), 64);
    let revised = one(&with(json!({"id": null, "value": 91}))).unwrap().1;
    assert_eq!(revised.id, base.id);
    assert_ne!(revised.hash, base.hash);
    for changes in [
        json!({"sequence": 8}),
        json!({"sequence": null}),
        json!({"issued_at": "2026-03-01T11:58:00Z"}),
        json!({"source": "other"}),
        json!({"basis": "average"}),
        json!({"zone": null, "site": "caiso"}),
        json!({"valid_to": "2026-03-01T12:06:00Z"}),
    ] {
        let mut changed = with(changes.clone());
        changed.as_object_mut().unwrap().remove("id");
        let key = one(&changed).unwrap().1;
        assert_ne!(key.id, base.id, "{changes}");
        assert_ne!(key.hash, base.hash, "{changes}");
    }
    let quality = one(&with(json!({"id": null, "quality": "estimated"})))
        .unwrap()
        .1;
    assert_eq!(quality.id, base.id);
    assert_ne!(quality.hash, base.hash);
}

#[test]
fn what_is_written_is_read_back() {
    for reading in [
        good(),
        with(
            json!({"id": null, "zone": null, "site": "caiso", "basis": null, "sequence": null, "issued_at": null}),
        ),
        with(json!({"quality": "missing", "value": null})),
        with(json!({"quality": "forecast", "value": -0.1, "valid_to": "2026-03-01T12:05:00.250Z"})),
    ] {
        let read = decode(reading.to_string().as_bytes(), 1)
            .unwrap()
            .remove(0)
            .unwrap();
        let written = serde_json::to_vec(&read).unwrap();
        assert_eq!(decode(&written, 1).unwrap().remove(0).unwrap(), read);
    }
}

#[test]
fn a_file_may_hold_one_object_a_line() {
    let lines = format!("{}\n{}\n\n{{\"kind\": 3}}\n", good(), good());
    let results = decode_file(lines.as_bytes(), 10).unwrap();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 2);
    assert_eq!(results[2].as_ref().unwrap_err().pointer, "/2/source");
    let pretty = serde_json::to_string_pretty(&good()).unwrap();
    assert_eq!(decode_file(pretty.as_bytes(), 10).unwrap().len(), 1);
    assert_eq!(decode_file(b"", 10), Ok(vec![]));
    assert!(matches!(
        decode_file(b"{}\n{}\n{}", 2),
        Err(Malformed::TooManyItems { .. })
    ));
    assert!(matches!(
        decode_file(b"{}\n{\n", 2),
        Err(Malformed::Syntax { .. })
    ));
}

/// What a field may be sent as, sound or not.
const FIELD_FORMS: [&str; 28] = [
    "null",
    "true",
    "0",
    "-0",
    "7",
    "-7",
    "1.5",
    "-0.0",
    "5e0",
    "1e400",
    "-1e400",
    "18446744073709551616",
    "0.1000000000000000055511151231257827",
    "9007199254740993",
    "[]",
    "[[1]]",
    "{}",
    r#"{"scheme":"wt","code":"X","more":1}"#,
    r#"{"scheme":"em","code":"DE"}"#,
    r#"["wt","CAISO_NORTH"]"#,
    r#""""#,
    r#"" ""#,
    r#""caiso""#,
    r#""caf\u00e9""#,
    r#""caf\u0001""#,
    "\"caf\u{7f}\"",
    "\"caf\u{85}\"",
    r#""missing""#,
];

#[test]
fn the_fast_way_reads_what_the_slow_way_reads() {
    let good = good().to_string();
    let Value::Object(members) = serde_json::from_str(&good).unwrap() else {
        unreachable!()
    };
    let render = |changed: &str, form: Option<&str>| {
        let text = |(name, value): (&String, &Value)| {
            let value = if name == changed {
                form.map(str::to_owned)
            } else {
                Some(value.to_string())
            };
            value.map(|value| format!("\"{name}\":{value}"))
        };
        let fields: Vec<_> = members.iter().filter_map(text).collect();
        format!("{{{}}}", fields.join(","))
    };
    let mut bodies = vec![
        good.clone(),
        "[]".into(),
        "[1]".into(),
        " ".into(),
        "{".into(),
        "\u{feff}{}".into(),
    ];
    for name in members.keys() {
        bodies.push(render(name, None));
        bodies.extend(FIELD_FORMS.iter().map(|form| render(name, Some(form))));
        bodies.push(good.replacen('{', &format!("{{\"{name}\":null,"), 1));
        bodies.push(good.replacen(
            &format!("\"{name}\""),
            &format!("\"\\u{:04x}{}\"", name.as_bytes()[0], &name[1..]),
            1,
        ));
    }
    for form in FIELD_FORMS {
        bodies.push(good.replacen('{', &format!("{{\"site\":{form},"), 1));
        bodies.push(good.replacen('{', &format!("{{\"more\":{form},"), 1));
        bodies.push(form.to_owned());
    }
    let values: Vec<_> = members.values().map(Value::to_string).collect();
    bodies.push(format!("[{}]", values.join(",")));
    bodies.push(format!("{good} 1"));
    bodies.push("[".repeat(100) + &"]".repeat(100));
    let in_arrays: Vec<_> = bodies
        .iter()
        .map(|body| format!("[{good},{body},{good}]"))
        .collect();
    bodies.extend(in_arrays);
    let (mut fast, mut refused) = (0, 0);
    for body in &bodies {
        let slow = decode::decode_item_by_item(body.as_bytes(), 3);
        assert_eq!(decode(body.as_bytes(), 3), slow, "{body}");
        let array = body.trim_start().starts_with('[');
        match plain::readings(body, array, 3) {
            Some(_) => fast += 1,
            None => refused += 1,
        }
    }
    assert!(
        plain::readings(&good, false, 3).is_some(),
        "the usual form goes the fast way"
    );
    assert!(
        fast > 50 && refused > 500,
        "{fast} bodies went the fast way, {refused} the slow one"
    );
    let four = format!("[{good},{good},{good},{good}]");
    assert_eq!(
        decode(four.as_bytes(), 3),
        Err(Malformed::TooManyItems { items: 4, max: 3 })
    );
}
