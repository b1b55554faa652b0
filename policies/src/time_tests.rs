//! Instants against chrono; durations against themselves.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn rfc_3339_is_read_and_shown() {
    for (text, shown) in [
        ("2023-06-01T12:30:00Z", "2023-06-01T12:30:00Z"),
        ("2023-06-01t12:30:00.250z", "2023-06-01T12:30:00.250Z"),
        ("2023-06-01 14:30:00+02:00", "2023-06-01T12:30:00Z"),
        (
            "2023-06-01T12:30:00.1234567-07:00",
            "2023-06-01T19:30:00.123Z",
        ),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(Timestamp::parse_rfc3339(text).unwrap().to_string(), shown);
    }
    assert_eq!(
        Timestamp::from_millis(0).to_string(),
        "1970-01-01T00:00:00Z"
    );
}

#[test]
fn a_local_time_is_told_apart_from_nonsense() {
    for text in ["2023-06-01T12:30:00", "2023-06-01 12:30:00.5"] {
        let error = Timestamp::parse_rfc3339(text).unwrap_err();
        assert!(matches!(&error, TimeError::LocalTime { .. }), "{text}");
        assert!(error.to_string().contains("no offset from UTC"), "{error}");
    }
    for text in [
        "",
        "now",
        "2023-06-01",
        "2023-06-01T12:30Z",
        "2023-02-29T00:00:00Z",
        "2023-13-01T00:00:00Z",
        "2023-06-01T24:00:00Z",
        "2023-06-01T12:60:00Z",
        "2023-06-01T12:30:60Z",
        "2023-06-01T12:30:00.Z",
        "2023-06-01T12:30:00+0200",
        "2023-06-01T12:30:00+24:00",
        "2023-06-01T12:30:00Zz",
        "+023-06-01T12:30:00Z",
        "2023-06-01T12:30:00é",
        "1685622600",
    ] {
        let error = Timestamp::parse_rfc3339(text).unwrap_err();
        assert!(
            matches!(error, TimeError::NotRfc3339 { .. }),
            "{text}: {error}"
        );
    }
}

#[test]
fn durations_are_read_and_shown() {
    for (text, ms, shown) in [
        ("250s", 250_000, "4m10s"),
        ("10m", 600_000, "10m"),
        ("1h30m", 5_400_000, "1h30m"),
        ("1d", 86_400_000, "1d"),
        ("500ms", 500, "500ms"),
        ("90s", 90_000, "1m30s"),
        ("1d2h3m4s5ms", 93_784_005, "1d2h3m4s5ms"),
        ("0s", 0, "0s"),
    ] {
        let span = Span::parse(text).unwrap();
        assert_eq!((span.as_millis(), span.to_string().as_str()), (ms, shown));
    }
    assert!(matches!(Span::parse("120"), Err(TimeError::NoUnit { .. })));
    for text in [
        "",
        "m",
        "5 m",
        "-5m",
        "5M",
        "1.5h",
        "5m5m",
        "5s5m",
        "5x",
        "m5",
        "9999999999999d",
        "99999999999999999999s",
    ] {
        assert!(
            matches!(Span::parse(text), Err(TimeError::NotADuration { .. })),
            "{text}"
        );
    }
    assert_eq!(Span::from_millis(-1_500).to_string(), "-1s500ms");
}

#[test]
fn arithmetic_saturates() {
    assert_eq!(Timestamp::MAX + Span::from_millis(1), Timestamp::MAX);
    assert_eq!(Timestamp::MIN - Span::MAX - Span::MAX, Timestamp::MIN);
    assert_eq!(Timestamp::MAX - Timestamp::MIN, Span::MAX);
    assert_eq!(Span::MAX + Span::from_secs(1), Span::MAX);
    assert_eq!(
        Timestamp::from_millis(5) - Timestamp::from_millis(7),
        Span::from_millis(-2)
    );
}

#[test]
fn state_holds_integers() {
    assert_eq!(
        serde_json::to_string(&(Timestamp::from_millis(5), Span::from_secs(1))).unwrap(),
        "[5,1000]"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn instants_agree_with_chrono(ms in -62_167_219_200_000_i64..253_402_300_800_000, offset in -1_439..1_440_i32) {
        let ours = Timestamp::from_millis(ms);
        let zone = chrono::FixedOffset::east_opt(offset * 60).unwrap();
        let theirs = chrono::DateTime::from_timestamp_millis(ms).unwrap();
        let shown = theirs.to_rfc3339_opts(
            if ms % 1_000 == 0 { chrono::SecondsFormat::Secs } else { chrono::SecondsFormat::Millis },
            true,
        );
        prop_assert_eq!(ours.to_string(), shown);
        let local = theirs.with_timezone(&zone);
        // Shifted out of the four-digit years it is no RFC 3339 any more.
        if (0..=9_999).contains(&chrono::Datelike::year(&local)) {
            prop_assert_eq!(Timestamp::parse_rfc3339(&local.to_rfc3339()), Ok(ours));
        }
    }

    #[test]
    fn a_shown_duration_reads_back(ms in 0..i64::MAX) {
        let span = Span::from_millis(ms);
        prop_assert_eq!(Span::parse(&span.to_string()), Ok(span));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-+0-9:.TZzé dhms]{0,30}") {
        let _ = Timestamp::parse_rfc3339(&text);
        let _ = Span::parse(&text);
    }
}
