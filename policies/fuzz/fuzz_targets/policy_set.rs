//! Any text as a policy file: no panic, each diagnostic has a place and can be shown, and what is accepted can be judged
//! and is the same when it is read again.
#![no_main]

mod diagnostics;

use libfuzzer_sys::fuzz_target;
use sunward_policies::{
    Facts, Memory, Policy, PolicySet, PoolFacts, Reading, SourceFile, Span, Timestamp,
};

/// Judges every rule while its signals come, go and come back.
fn judge(policy: &Policy) {
    let pool = PoolFacts {
        wanted: 1,
        ready: 1,
        min: 0,
        max: 3,
        training_kw: 2.5,
        ready_after: Span::ZERO,
        site_power_limit_kw: Some(10.0),
    };
    let fresh = |value| Reading::Fresh { value };
    for rule in &policy.rules {
        let mut memory = Memory::new(false);
        for (minute, reading) in [
            fresh(0.0),
            fresh(1e9),
            Reading::Missing,
            Reading::Stale { value: 1.0 },
            fresh(-1e9),
        ]
        .into_iter()
        .enumerate()
        {
            let now = Timestamp::from_millis(minute as i64 * 60_000);
            let readings = vec![reading; policy.signals.len()];
            let facts = Facts::present(now, &readings, pool);
            let judged = rule.rule.judge(&facts, &mut memory);
            assert!(judged.next_change_at.is_none_or(|at| at > facts.now));
        }
    }
}

fuzz_target!(|text: &str| {
    let files = [SourceFile {
        path: "policy.yaml".to_owned(),
        text: text.to_owned(),
    }];
    match PolicySet::compile(&files) {
        Ok(set) => {
            diagnostics::check(set.warnings(), text);
            set.policies().iter().for_each(judge);
            let again = PolicySet::compile(&files).expect("what was accepted is accepted again");
            assert_eq!(again.hash(), set.hash());
        }
        Err(found) => {
            assert!(!found.is_empty(), "refused without a diagnostic");
            diagnostics::check(&found, text);
        }
    }
});
