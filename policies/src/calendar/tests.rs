//! Calendars and periods by example: the changes of the clocks, what is refused, what is rare.
#![allow(clippy::unwrap_used)]

use chrono::{DateTime, Datelike as _};
use chrono_tz::Tz;
use proptest::prelude::*;

use super::*;

mod oracle;

const ZONES: [Tz; 5] = [
    Tz::Europe__Berlin,
    Tz::America__Los_Angeles,
    Tz::Australia__Sydney,
    // It moves by half an hour.
    Tz::Australia__Lord_Howe,
    // It never moves, and is not a whole number of hours from UTC.
    Tz::Asia__Kolkata,
];

fn at(text: &str) -> Timestamp {
    Timestamp::parse_rfc3339(text).unwrap()
}

fn calendar(cron: &str, lasts: &str, zone: Tz) -> Calendar {
    Calendar::compile(cron, Span::parse(lasts).unwrap(), zone)
        .unwrap_or_else(|error| panic!("{cron}: {error}"))
}

/// Every change of a zone's clocks in 2026 and 2027, in milliseconds.
fn changes(zone: Tz) -> Vec<i64> {
    let (from, to) = (at("2026-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"));
    let mut found = Vec::new();
    let mut hour = from.as_millis();
    while hour < to.as_millis() {
        let next = hour + zone::HOUR_MS;
        if zone::offset(zone, hour) != zone::offset(zone, next) {
            found.push(zone::change(zone, hour, next));
        }
        hour = next;
    }
    found
}

#[test]
fn the_changes_of_two_years_are_the_published_ones() {
    let expected = [
        "2026-03-29T01:00:00Z 2026-10-25T01:00:00Z 2027-03-28T01:00:00Z 2027-10-31T01:00:00Z",
        "2026-03-08T10:00:00Z 2026-11-01T09:00:00Z 2027-03-14T10:00:00Z 2027-11-07T09:00:00Z",
        "2026-04-04T16:00:00Z 2026-10-03T16:00:00Z 2027-04-03T16:00:00Z 2027-10-02T16:00:00Z",
        "2026-04-04T15:00:00Z 2026-10-03T15:30:00Z 2027-04-03T15:00:00Z 2027-10-02T15:30:00Z",
        "",
    ];
    for (zone, expected) in ZONES.into_iter().zip(expected) {
        let found: Vec<String> = changes(zone)
            .into_iter()
            .map(|at| Timestamp::from_millis(at).to_string())
            .collect();
        assert_eq!(found.join(" "), expected, "{zone}");
    }
    assert!(zone_database_version() >= "2025a");
}

#[test]
fn no_zone_changes_its_offset_twice_within_nine_days() {
    let (from, to) = (at("2024-01-01T00:00:00Z"), at("2034-01-01T00:00:00Z"));
    for zone in chrono_tz::TZ_VARIANTS {
        let mut now = from.as_millis();
        let (mut before, mut changed) = (zone::offset(zone, now), i64::MIN);
        while now < to.as_millis() {
            now += DAY_MS;
            let after = zone::offset(zone, now);
            if after != before {
                assert!(changed < now - 10 * DAY_MS, "{zone}");
                changed = now;
            }
            before = after;
        }
    }
}

/// The rows of a table, cut at its bars.
fn rows<const COLUMNS: usize>(table: &str) -> Vec<[&str; COLUMNS]> {
    table
        .trim()
        .lines()
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells.try_into().unwrap()
        })
        .collect()
}

/// Eight elapsed hours over the nights that have 23 and 25 hours. A start that is skipped is made after the gap; two are
/// one; one shown twice is made the first time. Windows before, at and over the change of the United States; the
/// evening of the day that Sydney's summer ends; a change by half an hour. Last: every day, a day long: the windows of
/// a summer are one, which the day of 25 hours ends.
const WINDOWS: &str = "
    0 22 * * *   | 8h  | Europe/Berlin       | 2026-03-29T00:59:00Z | 2026-03-28T21:00:00Z | 2026-03-29T05:00:00Z
    0 22 * * *   | 8h  | Europe/Berlin       | 2026-10-25T02:00:00Z | 2026-10-24T20:00:00Z | 2026-10-25T04:00:00Z
    30 2 * * *   | 1h  | Europe/Berlin       | 2026-03-29T01:00:00Z | 2026-03-29T01:00:00Z | 2026-03-29T02:00:00Z
    0,30 2 * * * | 10m | Europe/Berlin       | 2027-03-28T01:05:00Z | 2027-03-28T01:00:00Z | 2027-03-28T01:10:00Z
    30 2 * * *   | 1h  | Europe/Berlin       | 2026-10-25T01:00:00Z | 2026-10-25T00:30:00Z | 2026-10-25T01:30:00Z
    45 1 * * *   | 30m | America/Los_Angeles | 2026-03-08T10:10:00Z | 2026-03-08T09:45:00Z | 2026-03-08T10:15:00Z
    0 3 * * *    | 30m | America/Los_Angeles | 2026-03-08T10:10:00Z | 2026-03-08T10:00:00Z | 2026-03-08T10:30:00Z
    30 1 * * *   | 1h  | America/Los_Angeles | 2026-11-01T08:30:00Z | 2026-11-01T08:30:00Z | 2026-11-01T09:30:00Z
    0 18 * * *   | 2h  | Australia/Sydney    | 2026-04-05T09:00:00Z | 2026-04-05T08:00:00Z | 2026-04-05T10:00:00Z
    15 2 * * *   | 1h  | Australia/Lord_Howe | 2026-10-03T15:45:00Z | 2026-10-03T15:30:00Z | 2026-10-03T16:30:00Z
    0 0 * * *    | 1d  | Europe/Berlin       | 2026-07-01T12:00:00Z | 2025-10-26T23:00:00Z | 2026-10-25T22:00:00Z
";

#[test]
fn windows_over_the_changes_of_the_clocks() {
    for [cron, lasts, zone, looked, begins, ends] in rows(WINDOWS) {
        let calendar = calendar(cron, lasts, zone.parse().unwrap());
        let (looked, ends) = (at(looked), at(ends));
        let found = calendar.window(looked);
        assert_eq!(
            found,
            Some((at(begins), ends)),
            "{cron} for {lasts} in {zone} at {looked}"
        );
        assert_eq!(calendar.at(looked).until, Some(ends));
        assert!(
            !calendar.at(ends).open,
            "{cron} for {lasts} in {zone} at {ends}"
        );
    }
}

#[test]
fn a_schedule_of_every_so_often_runs_in_real_time() {
    let starts = |cron, from, to| {
        let calendar = calendar(cron, "1m", Tz::Europe__Berlin);
        let (mut now, to) = (at(from), at(to));
        let mut found = Vec::new();
        while let Some(next) = calendar.at(now).until.filter(|next| *next < to) {
            if calendar.at(next).open {
                found.push(next.to_string()[11..16].to_owned());
            }
            now = next;
        }
        found.join(" ")
    };
    let spring = ("2026-03-28T23:30:00Z", "2026-03-29T03:30:00Z");
    let autumn = ("2026-10-24T23:30:00Z", "2026-10-25T03:30:00Z");
    assert_eq!(
        starts("0 * * * *", spring.0, spring.1),
        "00:00 01:00 02:00 03:00"
    );
    assert_eq!(
        starts("0 * * * *", autumn.0, autumn.1),
        "00:00 01:00 02:00 03:00"
    );
    // 02:00 and 02:30 do not exist in spring, and exist twice in autumn.
    assert_eq!(starts("*/30 2 * * *", spring.0, spring.1), "");
    assert_eq!(
        starts("*/30 2 * * *", autumn.0, autumn.1),
        "00:00 00:30 01:00 01:30"
    );
    assert_eq!(starts("0,30 2 * * *", spring.0, spring.1), "01:00");
    assert_eq!(starts("0,30 2 * * *", autumn.0, autumn.1), "00:00 00:30");
}

#[test]
fn the_days_of_both_fields() {
    let zone = Tz::UTC;
    for (cron, looked, open) in [
        // 2026-06-01 is a Monday.
        ("0 0 1 * MON", "2026-06-01T00:30:00Z", true),
        ("0 0 1 * MON", "2026-06-08T00:30:00Z", true),
        ("0 0 1 * MON", "2026-07-01T00:30:00Z", true),
        ("0 0 1 * MON", "2026-07-02T00:30:00Z", false),
        // A field that begins with a star restricts, but widens nothing.
        ("0 0 */2 * MON", "2026-06-01T00:30:00Z", true),
        ("0 0 */2 * MON", "2026-06-08T00:30:00Z", false),
        ("0 0 */2 * MON", "2026-06-03T00:30:00Z", false),
        ("0 0 * jun sat-sun", "2026-06-07T00:30:00Z", true),
        ("0 0 * 6 6,7", "2026-06-06T00:30:00Z", true),
        ("0 0 * JUN-AUG 7-1", "2026-08-03T00:30:00Z", true),
        ("0 0 * 1-6/2 *", "2026-05-03T00:30:00Z", true),
        ("0 0 * 1-6/2 *", "2026-06-03T00:30:00Z", false),
        ("0 0-12/6,18 * * *", "2026-06-03T18:30:00Z", true),
    ] {
        assert_eq!(
            calendar(cron, "1h", zone).at(at(looked)).open,
            open,
            "{cron} at {looked}"
        );
    }
}

#[test]
fn rare_and_constant_windows_are_found() {
    let leap = calendar("0 12 29 2 *", "1h", Tz::UTC);
    assert_eq!(
        leap.at(at("2024-03-01T00:00:00Z")).until,
        Some(at("2028-02-29T12:00:00Z"))
    );
    assert_eq!(
        leap.at(at("2097-01-01T00:00:00Z")).until,
        Some(at("2104-02-29T12:00:00Z"))
    );
    // A field of weekdays that begins with a star narrows: a Saturday or a Sunday.
    let weekend = calendar("0 12 29 2 */6", "1h", Tz::UTC);
    assert_eq!(
        weekend.at(at("2026-03-01T00:00:00Z")).until,
        Some(at("2032-02-29T12:00:00Z"))
    );
    assert_eq!(
        weekend.at(at("2032-03-01T00:00:00Z")).until,
        Some(at("2048-02-29T12:00:00Z"))
    );
    assert_eq!(
        weekend.at(at("2088-03-01T00:00:00Z")).until,
        Some(at("2116-02-29T12:00:00Z"))
    );

    let always = calendar("*/5 * * * *", "5m", Tz::Europe__Berlin);
    let now = at("2026-06-01T12:34:56Z");
    assert_eq!(
        always.at(now),
        CalendarFact {
            open: true,
            until: None
        }
    );
    assert_eq!(always.window(now), Some((Timestamp::MIN, Timestamp::MAX)));
    let year = calendar("0 0 1 1 *", "366d", Tz::UTC);
    assert_eq!(
        year.at(now),
        CalendarFact {
            open: true,
            until: None
        }
    );
    let days = calendar("0 0 1 1 *", "200d", Tz::UTC);
    assert_eq!(
        days.window(now),
        Some((at("2026-01-01T00:00:00Z"), at("2026-07-20T00:00:00Z")))
    );
    // An hour each hour, where the clocks move by half an hour: it closes for that long in spring.
    let hourly = calendar("0 * * * *", "1h", Tz::Australia__Lord_Howe);
    assert_eq!(hourly.at(now).until, Some(at("2026-10-03T15:30:00Z")));
    assert_eq!(
        hourly.at(at("2026-10-03T15:30:00Z")),
        CalendarFact {
            open: false,
            until: Some(at("2026-10-03T16:00:00Z"))
        }
    );
}

#[test]
fn no_instant_makes_it_panic() {
    let calendar = calendar("0 22 * * MON-FRI", "8h", Tz::America__New_York);
    for at in [
        i64::MIN,
        EARLIEST_MS - 1,
        EARLIEST_MS,
        0,
        LATEST_MS,
        LATEST_MS + 1,
        i64::MAX,
    ] {
        let at = Timestamp::from_millis(at);
        let _ = (calendar.at(at), calendar.window(at));
        for period in PERIODS {
            let (from, to) = Recurrence {
                period,
                zone: Tz::America__New_York,
            }
            .bounds(at);
            assert!(from < to, "{period:?} {at}");
        }
    }
}

/// The expression, the part that is marked, the message, and how the help begins.
const REFUSED: &str = "
    0 22 * *            | 0 22 * *       | 4 fields where five belong             | write five fields
    0                   | 0              | 1 field where five belong              | write five fields
    0 0 22 * * *        | 0 0 22 * * *   | six fields where five belong           | seconds and years have no field
    @daily              | @daily         | `@daily` is a nickname                 | write `0 0 * * *`
    60 22 * * *         | 60             | there is no minute 60                  | use 0 to 59
    0 22,24 * * *       | 24             | there is no hour 24                    | use 0 to 23
    0 22 0 * *          | 0              | there is no day of the month 0         | use 1 to 31
    0 22 * MAY-13 *     | MAY-13         | there is no month 13                   | use 1 to 12
    0 22 * * MON-FRIDAY | MON-FRIDAY     | `FRIDAY` is no day of the week         | write `FRI`
    0 22 * * MO         | MO             | `MO` is no day of the week             | use a number, or one of SUN, MON
    0 22 ? * *          | ?              | `?` is no day of the month             | write `*` for any
    0 22 L * *          | L              | `L` is no day of the month             | `L`, `W` and `#` of other dialects
    0 22 * * FRI#2      | FRI#2          | `FRI#2` is no day of the week          | `L`, `W` and `#` of other dialects
    0 22-6 * * *        | 22-6           | the range `22-6` runs backwards        | split it in two: `22-23,0-6`
    0 22 * * FRI-MON    | FRI-MON        | the range `FRI-MON` runs backwards     | split it in two: `FRI-SAT,SUN-MON`
    5/15 * * * *        | 5/15           | `5/15` is a step without a range       | write `5-59/15`
    */0 * * * *         | */0            | `0` is no step of the minute           | use a whole number from 1 to 59
    */90 * * * *        | */90           | `90` is no step of the minute          | use a whole number from 1 to 59
    0,,5 22 * * *       |                | a value of the minute is missing       | write for example 0, 30 or */15
    +5 22 * * *         | +5             | `+5` is no minute                      | write for example 0, 30 or */15
    0 0 30 2 *          | 0 0 30 2 *     | no year has such a day                 | take a day that the month has
    0 0 31 4,6,9,11 *   |                | no year has such a day                 | take a day that the month has
";

#[test]
fn what_is_no_calendar_is_refused_with_its_place() {
    for [cron, place, message, help] in rows(REFUSED) {
        let error = Calendar::compile(cron, Span::from_mins(60), Tz::UTC).unwrap_err();
        let marked = &cron[error.span.clone().unwrap()];
        assert!(place.is_empty() || marked == place, "{cron}: {marked}");
        assert_eq!(error.message, message, "{cron}");
        assert!(error.help.starts_with(help), "{cron}: {}", error.help);
    }
    for lasts in [
        Span::ZERO,
        Span::from_millis(-1),
        LASTS_MAX + Span::from_millis(1),
    ] {
        let error = Calendar::compile("0 0 * * *", lasts, Tz::UTC).unwrap_err();
        assert_eq!(error.span, None);
        assert_eq!(error.help, "a window lasts more than 0s and at most 366d");
    }
    assert!(Calendar::compile("0 0 29 2 MON", LASTS_MAX, Tz::UTC).is_ok());
    assert!(Calendar::compile(&"0 ".repeat(200), LASTS_MAX, Tz::UTC).is_err());
}

const PERIODS: [Period; 5] = [
    Period::Hour,
    Period::Day,
    Period::Week,
    Period::Month,
    Period::Year,
];

#[test]
fn periods_tile_the_line_and_have_the_length_of_their_calendar() {
    for zone in ZONES
        .into_iter()
        .chain([Tz::America__Santiago, Tz::Africa__Casablanca])
    {
        for period in PERIODS {
            let recurrence = Recurrence { period, zone };
            let (mut from, mut to) = recurrence.bounds(at("2026-01-01T12:00:00Z"));
            while to < at("2028-01-02T00:00:00Z") {
                assert!(from < to);
                for inside in [from, to - Span::from_millis(1)] {
                    assert_eq!(
                        recurrence.bounds(inside),
                        (from, to),
                        "{period:?} {zone} {inside}"
                    );
                }
                let (next_from, next_to) = recurrence.bounds(to);
                assert_eq!(next_from, to, "{period:?} {zone}");
                let local = |at: Timestamp| {
                    DateTime::from_timestamp_millis(at.as_millis())
                        .unwrap()
                        .with_timezone(&zone)
                        .naive_local()
                };
                let (begins, ends) = (local(from), local(to));
                match period {
                    Period::Hour => assert!((to - from).as_millis() <= zone::HOUR_MS),
                    Period::Day => assert_eq!(begins.date().succ_opt(), Some(ends.date())),
                    Period::Week => assert_eq!(
                        (begins.weekday(), ends.weekday()),
                        (chrono::Weekday::Mon, chrono::Weekday::Mon)
                    ),
                    Period::Month => assert!(
                        begins.day() == 1 && ends.day() == 1 && begins.month() != ends.month()
                    ),
                    Period::Year => {
                        assert!(begins.ordinal() == 1 && ends.year() == begins.year() + 1);
                    }
                }
                (from, to) = (next_from, next_to);
            }
        }
    }
    let hours = |zone, text| {
        let (from, to) = Recurrence {
            period: Period::Day,
            zone,
        }
        .bounds(at(text));
        (to - from).as_millis() / MINUTE_MS
    };
    assert_eq!(hours(Tz::Europe__Berlin, "2026-03-29T12:00:00Z"), 23 * 60);
    assert_eq!(hours(Tz::Europe__Berlin, "2026-10-25T12:00:00Z"), 25 * 60);
    assert_eq!(
        hours(Tz::Australia__Lord_Howe, "2026-04-05T00:00:00Z"),
        24 * 60 + 30
    );
    // Midnight is skipped in Santiago.
    let (from, _) = Recurrence {
        period: Period::Day,
        zone: Tz::America__Santiago,
    }
    .bounds(at("2026-09-06T12:00:00Z"));
    assert_eq!(from, at("2026-09-06T04:00:00Z"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "[-0-9*/,A-Za-z?@# ]{0,40}") {
        if let Err(error) = Calendar::compile(&text, Span::from_mins(5), Tz::UTC) {
            let span = error.span.unwrap();
            prop_assert!(text.get(span).is_some());
            prop_assert!(!error.message.is_empty() && !error.help.is_empty());
        }
    }

    #[test]
    fn a_period_holds_its_instant(ms in EARLIEST_MS..LATEST_MS, zone in prop::sample::select(chrono_tz::TZ_VARIANTS.to_vec())) {
        let at = Timestamp::from_millis(ms);
        for period in PERIODS {
            let (from, to) = Recurrence { period, zone }.bounds(at);
            prop_assert!(from <= at && at < to, "{:?} {} {}: {} to {}", period, zone, at, from, to);
        }
    }
}
