//! Any text as an expression: no panic, each finding has a place in it, and an answer that is known without a reading is
//! the same with one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sunward_policies::expr::{Condition, Scope};
use sunward_policies::{Facts, PoolFacts, Reading, Timestamp, Unit, codes};

const SIGNALS: &[(&str, Unit)] = &[
    ("carbon", Unit::GramPerKilowattHour),
    ("price", Unit::MoneyPerMegawattHour),
    ("rank", Unit::Index),
    ("share", Unit::Share),
    ("surplus", Unit::Kilowatt),
];

fn answer(condition: &Condition, reading: Reading) -> Option<bool> {
    condition.evaluate(&Facts {
        now: Timestamp::from_millis(0),
        readings: &[reading; SIGNALS.len()],
        pool: PoolFacts {
            wanted: 2,
            ready: 1,
            min: 0,
            max: 3,
            training_kw: 2.5,
            site_power_limit_kw: None,
        },
    })
}

fuzz_target!(|text: &str| {
    match Condition::compile(text, Scope { signals: SIGNALS }) {
        Ok(condition) => {
            assert_eq!(condition.text(), text);
            if let Some(known) = answer(&condition, Reading::Missing) {
                for value in [-1.5, 0.0, 1e300] {
                    assert_eq!(answer(&condition, Reading::Fresh { value }), Some(known));
                }
            }
        }
        Err(findings) => {
            assert!(!findings.is_empty(), "refused without a finding");
            for finding in findings {
                assert!(codes::ALL.contains(&finding.code), "{finding:?}");
                assert!(
                    finding.span.start <= finding.span.end && finding.span.start <= text.len(),
                    "{finding:?}"
                );
            }
        }
    }
});
