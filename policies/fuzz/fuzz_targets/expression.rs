//! Any text as an expression, of a condition and of a number: no panic, each finding has a place in it, and an answer that is
//! known without a reading is the same with one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sunward_policies::expr::{Condition, Expected, Finding, Quantity, Scope};
use sunward_policies::facts::CalendarFact;
use sunward_policies::{Facts, PoolFacts, Reading, Span, Timestamp, Unit, codes};

const SIGNALS: &[(&str, Unit)] = &[
    ("carbon", Unit::GramPerKilowattHour),
    ("price", Unit::MoneyPerMegawattHour),
    ("rank", Unit::Index),
    ("share", Unit::Share),
    ("surplus", Unit::Kilowatt),
];

const SCOPE: Scope<'_> = Scope {
    signals: SIGNALS,
    calendars: &["night"],
};
const POOL: PoolFacts = PoolFacts {
    wanted: 2,
    ready: 1,
    min: 0,
    max: 3,
    training_kw: 2.5,
    ready_after: Span::ZERO,
    site_power_limit_kw: None,
};

/// What `evaluate` says without a reading must be what it says with any.
fn learns<T: PartialEq + std::fmt::Debug>(evaluate: impl Fn(&Facts<'_>) -> Option<T>) {
    let answer = |reading, calendars: &[CalendarFact]| {
        let readings = [reading; SIGNALS.len()];
        let facts = Facts::present(Timestamp::from_millis(0), &readings, POOL);
        evaluate(&Facts { calendars, ..facts })
    };
    let known = answer(Reading::Missing, &[]);
    for (value, open) in [(-1.5, true), (0.0, false), (1e300, true)] {
        let calendar = CalendarFact { open, until: None };
        let learnt = answer(Reading::Fresh { value }, &[calendar]);
        assert!(
            known.is_none() || known == learnt,
            "{known:?} and {learnt:?}"
        );
    }
}

fn check(findings: &[Finding], text: &str) {
    assert!(!findings.is_empty(), "refused without a finding");
    for finding in findings {
        assert!(codes::ALL.contains(&finding.code), "{finding:?}");
        assert!(
            finding.span.start <= finding.span.end && finding.span.start <= text.len(),
            "{finding:?}"
        );
    }
}

fuzz_target!(|text: &str| {
    match Condition::compile(text, SCOPE) {
        Ok(condition) => learns(|facts| condition.evaluate(facts)),
        Err(findings) => check(&findings, text),
    }
    for expected in [Expected::Workers, Expected::Any] {
        match Quantity::compile(text, SCOPE, expected) {
            Ok(quantity) => learns(|facts| quantity.evaluate(facts)),
            Err(findings) => check(&findings, text),
        }
    }
});
