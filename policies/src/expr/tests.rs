//! The language: what is accepted, what it means in three values, and that nothing makes it panic.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::facts::{CalendarFact, PoolFacts, Reading};
use crate::time::Timestamp;

const POOL: PoolFacts = PoolFacts {
    wanted: 2,
    ready: 1,
    min: 0,
    max: 3,
    training_kw: 2.5,
    ready_after: crate::Span::ZERO,
    site_power_limit_kw: None,
};

const SIGNALS: &[(&str, Unit)] = &[
    ("carbon", Unit::GramPerKilowattHour),
    ("surplus", Unit::Kilowatt),
    ("price", Unit::MoneyPerMegawattHour),
    ("share", Unit::Share),
    ("rank", Unit::Index),
];

const CALENDARS: &[&str] = &["night", "works_council"];

fn compile(text: &str) -> Result<Condition, Vec<Finding>> {
    Condition::compile(
        text,
        Scope {
            signals: SIGNALS,
            calendars: CALENDARS,
        },
    )
}

/// Evaluates with carbon 90, surplus 12, price -5, share missing, rank stale.
fn value(text: &str) -> Option<bool> {
    let readings = [
        Reading::Fresh { value: 90.0 },
        Reading::Fresh { value: 12.0 },
        Reading::Fresh { value: -5.0 },
        Reading::Missing,
        Reading::Stale { value: 10.0 },
    ];
    let facts = Facts::present(Timestamp::from_millis(0), &readings, POOL);
    compile(text)
        .unwrap_or_else(|findings| panic!("{text}: {findings:?}"))
        .evaluate(&facts)
}

#[test]
fn expressions_mean_what_cel_says() {
    for (text, expected) in [
        ("carbon < 100 && surplus > 5", Some(true)),
        ("carbon < 100 == true", Some(true)),
        ("!(carbon < 100) || price < 0", Some(true)),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", Some(true)),
        ("10 - 4 - 3 == 3 && 16 / 4 / 2 == 2", Some(true)),
        ("-price == 5 && - - price == -5", Some(true)),
        ("false && false || true", Some(true)),
        ("true || false && false", Some(true)),
        ("true ? false : true ? true : true", Some(false)),
        ("carbon > 50 ? surplus > 50 : true", Some(false)),
        ("min(carbon, 80, 85) == 80 && max(1, 2, 3) == 3", Some(true)),
        (
            "abs(price) == 5 && floor(2.9) == 2 && ceil(2.1) == 3",
            Some(true),
        ),
        (
            "floor(-0.5) == -1 && .5 == 5e-1 && 1.5E+1 == 15.0",
            Some(true),
        ),
        (
            "pool.wanted_workers < pool.max_workers && pool.ready_workers == 1",
            Some(true),
        ),
        ("surplus >= pool.max_workers * pool.training_kw", Some(true)),
        ("surplus / pool.training_kw >= pool.max_workers", Some(true)),
        ("surplus * 2 > 20 && 2 * surplus / 2 == surplus", Some(true)),
        ("(carbon < 100) != (surplus < 5)", Some(true)),
        ("1 - 0.3 > 0.5", Some(true)),
        ("(carbon) < (100) && ((surplus) > 5)", Some(true)),
        ("5 != 5", Some(false)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn missing_stale_and_not_finite_are_unknown() {
    for (text, expected) in [
        ("share > 0.5", None),
        ("share == share", None),
        ("rank < 50", None),
        ("site.power_limit_kw > 5", None),
        ("true || share > 0.5", Some(true)),
        ("share > 0.5 || true", Some(true)),
        ("false && share > 0.5", Some(false)),
        ("share > 0.5 && false", Some(false)),
        ("true && share > 0.5", None),
        ("false || share > 0.5", None),
        ("!(share > 0.5)", None),
        ("(share > 0.5) == (share > 0.5)", None),
        ("share > 0.5 ? true : true", None),
        ("min(1, share) < 2", None),
        ("max(share, 1) > 0", None),
        ("(carbon < 100 ? 1 : share) == 1", Some(true)),
        ("surplus / (surplus - 12) > 0", None),
        ("surplus / (surplus - 12) < 0", None),
        ("5 < surplus / (surplus - 12)", None),
        ("0 * (surplus / (surplus - 12)) == 0", None),
        ("carbon * 1e308 > 0", None),
        ("abs(share) >= 0 || floor(share) < 0 || -share > 3", None),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn units_agree_or_the_expression_is_refused() {
    for text in [
        "carbon < price",
        "carbon + 5 < surplus",
        "min(carbon, 5, surplus) < 3",
        "(true ? carbon : surplus) < 3",
        "carbon == rank",
        "carbon * price < 3",
        "5 / carbon < 3",
        "surplus / carbon < 3",
        "share < pool.max_workers",
        "carbon / carbon < carbon",
    ] {
        let findings = compile(text).unwrap_err();
        assert_eq!(
            findings
                .iter()
                .map(|finding| finding.code)
                .collect::<Vec<_>>(),
            [codes::UNIT_MISMATCH],
            "{text}"
        );
    }
    for text in [
        "carbon / 2 < 50 * 2",
        "carbon / carbon < 2",
        "surplus * share > 3",
        "surplus / 10 < pool.training_kw",
        "1 - share < 0.3",
        "surplus / pool.training_kw < share",
        "min(5, carbon, 7) < carbon",
        "rank / 2 < 50",
    ] {
        assert!(compile(text).is_ok(), "{text}");
    }
}

#[test]
fn a_calendar_is_a_condition() {
    let condition = compile("calendar.night && carbon < 100").unwrap();
    assert_eq!(condition.calendars().iter().collect::<Vec<_>>(), [0]);
    assert_eq!(condition.signals().iter().collect::<Vec<_>>(), [0]);
    let readings = [Reading::Fresh { value: 90.0 }];
    let fact = |open| CalendarFact { open, until: None };
    let bare = Facts::present(Timestamp::from_millis(0), &readings, POOL);
    assert_eq!(condition.evaluate(&bare), None, "not given: unknown");
    for open in [true, false] {
        let calendars = [fact(open), fact(!open)];
        let facts = Facts {
            calendars: &calendars,
            ..bare
        };
        assert_eq!(condition.evaluate(&facts), Some(open));
        let other = compile("!calendar.works_council || calendar.night").unwrap();
        assert_eq!(other.evaluate(&facts), Some(open));
        assert_eq!(other.calendars().iter().collect::<Vec<_>>(), [0, 1]);
    }
}

#[test]
fn a_misspelt_calendar_is_told_its_name() {
    for (text, code, help) in [
        (
            "calendar.nigth",
            codes::UNKNOWN_NAME,
            "did you mean `calendar.night`?",
        ),
        (
            "calendar.Night",
            codes::UNKNOWN_NAME,
            "did you mean `calendar.night`?",
        ),
        (
            "night",
            codes::UNKNOWN_NAME,
            "`night` is a calendar: write `calendar.night`",
        ),
        (
            "calender.night",
            codes::UNKNOWN_NAME,
            "did you mean `calendar.night`?",
        ),
        (
            "calendar.holiday",
            codes::UNKNOWN_NAME,
            "add it under `calendars`",
        ),
        (
            "calendar.night > 0",
            codes::WRONG_TYPE,
            "turn it into a number with `(calendar.night ? 1 : 0)`",
        ),
    ] {
        let findings = compile(text).unwrap_err();
        let found = findings[0].help.clone().unwrap();
        assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        assert_eq!(findings[0].code, code, "{text}");
        assert!(found.starts_with(help), "{text}: {found}");
    }
}

fn quantity(text: &str, expected: Expected) -> Result<Quantity, Vec<Finding>> {
    let scope = Scope {
        signals: SIGNALS,
        calendars: CALENDARS,
    };
    Quantity::compile(text, scope, expected)
}

#[test]
fn numbers_are_evaluated_in_their_unit() {
    let readings = [
        Reading::Fresh { value: 90.0 },
        Reading::Fresh { value: 12.0 },
    ];
    let facts = Facts::present(Timestamp::from_millis(0), &readings, POOL);
    for (text, expected, value) in [
        (
            "floor(surplus * 0.9 / pool.training_kw)",
            Expected::Workers,
            Some(4.0),
        ),
        ("pool.max_workers - 1", Expected::Workers, Some(2.0)),
        ("2", Expected::Workers, Some(2.0)),
        (
            "carbon < 100 ? pool.max_workers : 0",
            Expected::Workers,
            Some(3.0),
        ),
        ("surplus / pool.training_kw", Expected::Workers, Some(4.8)),
        ("0 - carbon", Expected::Any, Some(-90.0)),
        ("price", Expected::Any, None),
        ("surplus / (surplus - 12)", Expected::Any, None),
    ] {
        let quantity = quantity(text, expected).unwrap_or_else(|found| panic!("{text}: {found:?}"));
        assert_eq!(quantity.evaluate(&facts), value, "{text}");
        assert_eq!(quantity.text(), text);
    }
    let read = quantity("calendar.night ? surplus / 2 : carbon * 0", Expected::Any);
    assert!(read.is_err(), "two units");
    let read = quantity("calendar.night ? surplus / 2 : surplus", Expected::Any).unwrap();
    assert_eq!(read.signals().iter().collect::<Vec<_>>(), [1]);
    assert_eq!(read.calendars().iter().collect::<Vec<_>>(), [0]);
}

#[test]
fn workers_are_counted_in_workers() {
    for (text, code, help) in [
        (
            "surplus",
            codes::UNIT_MISMATCH,
            "divide by what one worker draws: `floor(surplus / pool.training_kw)`",
        ),
        (
            "surplus - 5",
            codes::UNIT_MISMATCH,
            "divide by what one worker draws: `floor((surplus - 5) / pool.training_kw)`",
        ),
        (
            "share",
            codes::UNIT_MISMATCH,
            "multiply by a count: `floor(share * pool.max_workers)`",
        ),
        (
            "carbon",
            codes::UNIT_MISMATCH,
            "compare it and choose a count, for example `carbon < 100 ? pool.max_workers : 0`",
        ),
        (
            "surplus > 5",
            codes::WRONG_TYPE,
            "write `surplus > 5 ? pool.max_workers : 0`",
        ),
    ] {
        let findings = quantity(text, Expected::Workers).unwrap_err();
        assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        assert_eq!(findings[0].code, code, "{text}");
        assert_eq!(findings[0].help.as_deref(), Some(help), "{text}");
        // What the help says to write compiles, but for the words around it.
        let written = help.split('`').nth(1).unwrap();
        assert!(quantity(written, Expected::Workers).is_ok(), "{written}");
    }
    assert!(quantity("surplus", Expected::Any).is_ok());
    assert!(quantity("surplus > 5", Expected::Any).is_err());
}

#[test]
fn every_mistake_of_an_expression_is_found() {
    let findings = compile("carbn < 3 && surplus && min(1) > 2 && price < carbon").unwrap_err();
    let found: Vec<(&str, usize)> = findings
        .iter()
        .map(|finding| (finding.code, finding.span.start))
        .collect();
    let expected = [
        (codes::UNKNOWN_NAME, 0),
        (codes::WRONG_TYPE, 13),
        (codes::BAD_CALL, 24),
        (codes::UNIT_MISMATCH, 38),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_signals_that_it_reads_are_known() {
    let condition = compile("carbon < 100 && (rank > 3 || carbon > 5)").unwrap();
    assert_eq!(condition.signals().iter().collect::<Vec<_>>(), [0, 4]);
}

#[test]
fn length_and_depth_are_bounded() {
    let chain = vec!["carbon < 100"; 200].join(" && ");
    assert!(compile(&chain).is_ok(), "a long list is not a deep one");
    for text in [
        "!".repeat(2_000) + "true",
        "-".repeat(2_000) + "1 > 0",
        "(".repeat(2_000),
        "min(1,".repeat(500),
        vec!["1"; 100].join(" + ") + " > 3",
        "true ? (".repeat(500),
        "true ? true : ".repeat(200) + "true",
        "true".to_owned() + &" && true".repeat(1_000),
    ] {
        let findings = compile(&text).unwrap_err();
        assert!(
            findings
                .iter()
                .any(|finding| finding.code == codes::EXPRESSION_TOO_LARGE),
            "{text}: {findings:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "[-a-z0-9.()<>=!&|?:,+*/ '\"≤é%_]{0,60}") {
        if let Err(findings) = compile(&text) {
            prop_assert!(!findings.is_empty());
            for finding in findings {
                prop_assert!(finding.span.start <= finding.span.end, "{:?}", finding);
                prop_assert!(codes::ALL.contains(&finding.code));
            }
        }
    }
}
