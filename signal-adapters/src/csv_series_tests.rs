#![allow(clippy::unwrap_used)]

use super::*;

fn keys() -> CsvKeys {
    let text = |text: &str| Some(text.to_owned());
    CsvKeys {
        time_column: text("time"),
        value_column: text("value"),
        time_zone: None,
        interval: text("15m"),
        unit: text("gCO2e/kWh"),
        source: text("watttime"),
        kind: text("carbon_intensity"),
        basis: text("marginal"),
        site: None,
        zone: text("em/DE"),
    }
}

fn rows(file: &str, zone: Option<&str>) -> Vec<Result<String, &'static str>> {
    let mapping = CsvKeys {
        time_zone: zone.map(str::to_owned),
        ..keys()
    }
    .mapping()
    .unwrap();
    read(file.as_bytes(), &mapping, 100)
        .unwrap()
        .into_iter()
        .map(|row| {
            row.map(|r| format!("{} {:?}", r.valid_from, r.value))
                .map_err(|r| r.code.as_str())
        })
        .collect()
}

#[test]
fn a_row_holds_for_the_interval_and_an_empty_cell_is_missing() {
    let mapping = keys().mapping().unwrap();
    let file = "other,time,value\n1,2026-03-01T00:00:00Z,90.5\n2,2026-03-01T00:15:00Z,\n";
    let rows = read(file.as_bytes(), &mapping, 10).unwrap();
    let first = rows[0].as_ref().unwrap();
    assert_eq!(first.valid_to - first.valid_from, Span::from_mins(15));
    assert_eq!(
        (first.value, first.quality),
        (Some(90.5), Quality::Measured)
    );
    assert_eq!(
        first.stream.to_string(),
        "watttime/carbon_intensity.marginal/em:DE"
    );
    let second = rows[1].as_ref().unwrap();
    assert_eq!((second.value, second.quality), (None, Quality::Missing));
}

#[test]
fn stamps_may_be_written_in_several_ways() {
    let file = "time,value\n2026-03-01 00:00:00+00:00,1\n2026-03-01T01:15+01:00,2\n2026-03-01T00:30Z,3\n\
                2026-03-01 00:45:00.000Z,4\n";
    assert_eq!(
        rows(file, None),
        [
            Ok("2026-03-01T00:00:00Z Some(1.0)".to_owned()),
            Ok("2026-03-01T00:15:00Z Some(2.0)".to_owned()),
            Ok("2026-03-01T00:30:00Z Some(3.0)".to_owned()),
            Ok("2026-03-01T00:45:00Z Some(4.0)".to_owned()),
        ]
    );
}

#[test]
fn the_hour_that_a_clock_change_skips_is_refused_and_the_day_has_23_hours() {
    let file = "time,value\n2026-03-29 01:45,1\n2026-03-29 02:00,2\n2026-03-29 02:45:00,3\n2026-03-29 03:00,4\n";
    assert_eq!(
        rows(file, Some("Europe/Berlin")),
        [
            Ok("2026-03-29T00:45:00Z Some(1.0)".to_owned()),
            Err("nonexistent_local_time"),
            Err("nonexistent_local_time"),
            Ok("2026-03-29T01:00:00Z Some(4.0)".to_owned()),
        ]
    );
}

#[test]
fn the_hour_that_a_clock_change_repeats_is_refused_unless_it_has_an_offset() {
    let file = "time,value\n2026-10-25 01:59:59,1\n2026-10-25 02:00,2\n2026-10-25T02:30:00+02:00,3\n\
                2026-10-25T02:30:00+01:00,4\n2026-10-25 03:00,5\n";
    assert_eq!(
        rows(file, Some("Europe/Berlin")),
        [
            Ok("2026-10-24T23:59:59Z Some(1.0)".to_owned()),
            Err("ambiguous_local_time"),
            Ok("2026-10-25T00:30:00Z Some(3.0)".to_owned()),
            Ok("2026-10-25T01:30:00Z Some(4.0)".to_owned()),
            Ok("2026-10-25T02:00:00Z Some(5.0)".to_owned()),
        ]
    );
}

#[test]
fn a_zone_without_clock_changes_takes_every_hour() {
    let file = "time,value\n2026-03-29 02:30:00,1\n2026-10-25 02:30:00,2\n";
    assert_eq!(
        rows(file, Some("UTC")),
        [
            Ok("2026-03-29T02:30:00Z Some(1.0)".to_owned()),
            Ok("2026-10-25T02:30:00Z Some(2.0)".to_owned()),
        ]
    );
}

#[test]
fn a_bad_row_is_refused_alone() {
    let file = b"time,value\n2026-03-01T00:00:00Z,NaN\nyesterday,1\n2026-03-01T00:15:00Z,low\n2026-03-01T00:30:00Z\n\
                 \xff\xfe,3\n2026-03-01T00:45:00Z,-1\n";
    let rows = read(file, &keys().mapping().unwrap(), 10).unwrap();
    let codes: Vec<_> = rows
        .iter()
        .map(|row| row.as_ref().map_or_else(|r| r.code.as_str(), |_| "good"))
        .collect();
    assert_eq!(
        codes,
        [
            "not_finite",
            "bad_stamp",
            "bad_number",
            "bad_row",
            "bad_row",
            "good"
        ]
    );
    let rejection = rows[2].as_ref().unwrap_err();
    assert_eq!(rejection.pointer, "/2/value");
    assert!(rejection.detail.contains("line 4"), "{}", rejection.detail);
}

#[test]
fn stamps_without_offset_need_a_zone() {
    let error = read(
        b"time,value\n2026-03-01 00:00:00,1\n",
        &keys().mapping().unwrap(),
        10,
    )
    .unwrap_err();
    assert!(
        matches!(error, CsvError::NoTimeZone { line: 2, .. }),
        "{error}"
    );
}

#[test]
fn columns_are_found_by_name_or_the_file_is_refused() {
    let mapping = keys().mapping().unwrap();
    let error = read(b"stamp,value\n", &mapping, 10).unwrap_err();
    assert_eq!(
        error,
        CsvError::NoColumn {
            column: "time".into(),
            have: "stamp, value".into()
        }
    );
    let error = read(b"time,value,value\n", &mapping, 10).unwrap_err();
    assert!(matches!(error, CsvError::TwoColumns { .. }));
    assert!(
        read("\u{feff}time, value\n".as_bytes(), &mapping, 10)
            .unwrap()
            .is_empty()
    );
    let error = read(
        b"time,value\n2026-03-01T00:00:00Z,1\n2026-03-01T00:00:00Z,1\n",
        &mapping,
        1,
    );
    assert_eq!(error, Err(CsvError::TooManyRows { max: 1 }));
}

#[test]
fn wrong_keys_name_themselves() {
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (
            CsvKeys {
                interval: None,
                ..keys()
            },
            "interval",
        ),
        (
            CsvKeys {
                interval: text("300"),
                ..keys()
            },
            "interval",
        ),
        (
            CsvKeys {
                interval: text("0s"),
                ..keys()
            },
            "interval",
        ),
        (
            CsvKeys {
                unit: text("EUR/MWh"),
                ..keys()
            },
            "unit",
        ),
        (
            CsvKeys {
                kind: text("carbon"),
                ..keys()
            },
            "kind",
        ),
        (
            CsvKeys {
                basis: text("retail"),
                ..keys()
            },
            "basis",
        ),
        (
            CsvKeys {
                zone: text("DE"),
                ..keys()
            },
            "zone",
        ),
        (
            CsvKeys {
                zone: None,
                ..keys()
            },
            "site",
        ),
        (
            CsvKeys {
                site: text("berlin"),
                ..keys()
            },
            "zone",
        ),
        (
            CsvKeys {
                time_zone: text("CET+1"),
                ..keys()
            },
            "time_zone",
        ),
        (
            CsvKeys {
                source: None,
                ..keys()
            },
            "source",
        ),
        (
            CsvKeys {
                time_column: text(""),
                ..keys()
            },
            "time_column",
        ),
    ];
    for (keys, expected) in cases {
        let key = match keys.mapping().unwrap_err() {
            KeysError::Missing { key, .. } | KeysError::Bad { key, .. } => key,
        };
        assert_eq!(key, expected);
    }
}
