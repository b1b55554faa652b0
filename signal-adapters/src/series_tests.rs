#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use crate::csv_series::CsvKeys;

fn mapping(interval: &str) -> CsvMapping {
    let text = |text: &str| Some(text.to_owned());
    CsvKeys {
        time_column: text("t"),
        value_column: text("v"),
        time_zone: text("UTC"),
        interval: text(interval),
        unit: text("kW"),
        source: text("meter"),
        kind: text("surplus_power"),
        basis: None,
        site: text("caiso"),
        zone: None,
    }
    .mapping()
    .unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).unwrap()
}

const FILE: &[u8] = b"t,v\n2023-06-08 00:05:00,2\n2023-06-08 00:00:00,1\n2023-06-08 00:20:00,3\n";

#[test]
fn rebasing_moves_the_first_stamp_and_shrinks_intervals_and_gaps() {
    let rebase = Rebase {
        start: at("2026-03-01T12:00:00Z"),
        speed: 60.0,
    };
    let series = Series::read(FILE, Some(&mapping("5m")), Some(rebase)).unwrap();
    let seen: Vec<_> = series
        .entries
        .iter()
        .map(|e| {
            (
                e.item,
                e.reading.valid_from.to_string(),
                e.reading.valid_to.to_string(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (
                1,
                "2026-03-01T12:00:00Z".into(),
                "2026-03-01T12:00:05Z".into()
            ),
            (
                0,
                "2026-03-01T12:00:05Z".into(),
                "2026-03-01T12:00:10Z".into()
            ),
            (
                2,
                "2026-03-01T12:00:20Z".into(),
                "2026-03-01T12:00:25Z".into()
            ),
        ]
    );
}

#[test]
fn issue_times_move_with_the_readings() {
    let file = br#"{"source":"s","kind":"index","site":"caiso","valid_from":"2023-06-08T01:00:00Z",
        "valid_to":"2023-06-08T02:00:00Z","issued_at":"2023-06-08T00:00:00Z","value":1,"unit":"band","quality":"forecast"}"#;
    let rebase = Rebase {
        start: at("2026-03-01T12:00:00Z"),
        speed: 60.0,
    };
    let series = Series::read(file, None, Some(rebase)).unwrap();
    let reading = &series.entries[0].reading;
    assert_eq!(reading.issued_at, Some(at("2026-03-01T11:59:00Z")));
    assert_eq!(reading.valid_to, at("2026-03-01T12:01:00Z"));
}

#[test]
fn neighbours_stay_neighbours_at_any_speed() {
    let rows: Vec<String> = (0..600)
        .map(|minute| format!("2023-06-08 {:02}:{:02}:00,1", minute / 60, minute % 60))
        .collect();
    let file = format!("t,v\n{}\n", rows.join("\n"));
    for speed in [0.37, 1.0, 7.0, 13.7, 29.97, 59.9] {
        let rebase = Rebase {
            start: at("2026-03-01T12:00:00Z"),
            speed,
        };
        let series = Series::read(file.as_bytes(), Some(&mapping("1m")), Some(rebase)).unwrap();
        assert!(
            series
                .entries
                .windows(2)
                .all(|w| w[0].reading.valid_to == w[1].reading.valid_from),
            "speed {speed}"
        );
    }
}

#[test]
fn a_speed_that_leaves_less_than_a_second_is_wrong_use() {
    let rebase = |speed| {
        Some(Rebase {
            start: Timestamp::from_millis(0),
            speed,
        })
    };
    assert!(Series::read(FILE, Some(&mapping("5m")), rebase(300.0)).is_ok());
    let error = Series::read(FILE, Some(&mapping("5m")), rebase(301.0)).unwrap_err();
    assert!(error.is_wrong_use());
    assert!(
        matches!(error, SeriesError::TooFast { most: 300.0, .. }),
        "{error}"
    );
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Series::read(FILE, Some(&mapping("5m")), rebase(speed)).unwrap_err();
        assert!(matches!(error, SeriesError::NotASpeed { .. }), "{error}");
    }
}

#[test]
fn derived_ids_name_file_row_and_rebase() {
    let start = at("2026-03-01T12:00:00Z");
    let ids = |file: &[u8], rebase| -> Vec<String> {
        let series = Series::read(file, Some(&mapping("5m")), rebase).unwrap();
        series
            .entries
            .iter()
            .map(|e| e.reading.id.as_ref().unwrap().to_string())
            .collect()
    };
    let rebase = Some(Rebase { start, speed: 60.0 });
    assert_eq!(ids(FILE, rebase), ids(FILE, rebase));
    let all: BTreeSet<String> = [
        None,
        rebase,
        Some(Rebase { start, speed: 61.0 }),
        Some(Rebase {
            start: start + Span::from_secs(1),
            speed: 60.0,
        }),
    ]
    .into_iter()
    .flat_map(|rebase| ids(FILE, rebase))
    .chain(ids(b"t,v\n2023-06-08 00:05:00,2\n", None))
    .collect();
    assert_eq!(all.len(), 3 * 4 + 1);
}

#[test]
fn a_reading_is_due_when_its_interval_begins() {
    let start = at("2026-03-01T12:00:00Z");
    let rebase = Some(Rebase { start, speed: 60.0 });
    let series = Series::read(FILE, Some(&mapping("5m")), rebase).unwrap();
    assert_eq!(series.due(0, start - Span::from_millis(1)), 0..0);
    assert_eq!(series.due(0, start), 0..1);
    assert_eq!(series.next_due(1), Some(start + Span::from_secs(5)));
    assert_eq!(series.due(1, start + Span::from_secs(20)), 1..3);
    assert_eq!(series.next_due(3), None);
    assert_eq!(series.due(3, start), 3..3);
    let at_once = Series::read(FILE, Some(&mapping("5m")), None).unwrap();
    assert_eq!(at_once.due(0, Timestamp::MIN), 0..3);
}

#[test]
fn what_can_not_be_read_is_kept_as_rejections_and_the_rest_goes_on() {
    let file = b"t,v\n2023-06-08 00:00:00,1\n2023-06-08 00:05:00,x\n2023-06-08 00:10:00,\n";
    let series = Series::read(file, Some(&mapping("5m")), None).unwrap();
    assert_eq!(
        series.entries.iter().map(|e| e.item).collect::<Vec<_>>(),
        [0, 2]
    );
    assert_eq!(series.rejected.len(), 1);
    assert_eq!(
        (series.rejected[0].item, series.rejected[0].code.as_ref()),
        (1, "bad_number")
    );
}
