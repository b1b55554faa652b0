#![allow(clippy::unwrap_used)]

use sunward_core::protocol::group::{Group, Request};
use sunward_core::time::Span;
use sunward_policies::SourceFile;

use super::*;
use crate::config::SHIPPED_POLICY;
use crate::journal::{Append, DecisionRecord, Journal as _, Memory};

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_772_323_200_000) + Span::from_secs(second)
}

fn decision(second: i64, target: u32) -> Decision {
    Decision {
        pool: "gone-a".into(),
        at: at(second),
        index: second as u64,
        target,
        before: 3 - target,
        rule: "curtailment/threshold".into(),
        reason: "released; the activate condition does not hold".to_owned(),
        inputs: vec![Input {
            name: "carbon".to_owned(),
            stream: "watttime/carbon_intensity.marginal/wt:CAISO_NORTH".to_owned(),
            value: None,
            unit: "gCO2e/kWh".to_owned(),
            age_ms: Some(90_500),
            state: "missing".to_owned(),
        }],
        losers: vec![Loser {
            rule: "night/threshold".to_owned(),
            reason: "activated; it only observes".to_owned(),
        }],
        next_possible_change: Some(at(second + 600)),
    }
}

/// A writer over a journal with decisions of a pool that has left the fleet.
fn writer() -> Writer {
    let mut journal = Memory::new(1_000);
    let decisions: Vec<_> = [decision(10, 0), decision(20, 3), decision(30, 0)]
        .iter()
        .map(|decision| DecisionRecord {
            pool: decision.pool.to_string(),
            at_ms: decision.at.as_millis(),
            index: decision.index,
            ordinal: 0,
            bytes: rmp_serde::to_vec_named(decision).unwrap(),
        })
        .collect();
    let mut group = Group::default();
    group.add(Request::new(vec![sunward_core::event::Event::Tick]).unwrap());
    let entry = Append {
        at_ms: at(40).as_millis(),
        record: group.record(at(40)),
        dedupe: &[],
        decisions: &decisions,
    };
    journal.append(0, &entry).unwrap();
    Writer::recover(Box::new(journal)).unwrap()
}

#[test]
fn what_held_at_an_instant_is_the_last_decision_until_then() {
    let writer = writer();
    let held = |second, millis| {
        let asked = at(second) + Span::from_millis(millis);
        look(&writer, "gone-a", Some(asked), at(60))
            .unwrap()
            .explain(asked)
    };
    assert_eq!(
        (held(10, 0).target, held(19, 999).target, held(20, 0).target),
        (0, 0, 3)
    );
    let explained = held(19, 0);
    assert_eq!(explained.since, at(10).to_string());
    assert_eq!(explained.until, Some(at(20).to_string()));
    assert_eq!(explained.at, at(19).to_string());
    assert_eq!(explained.next_possible_change, Some(at(610).to_string()));
    assert_eq!(
        explained.inputs[0].age_seconds,
        Some(90.5),
        "as it was then"
    );
    assert_eq!(explained.inputs[0].source, "watttime");
    assert_eq!(explained.max_workers, None, "it has left the fleet");
    assert_eq!(held(50, 0).until, None, "the last one");
    // Now: of a pool that is gone nothing newer is known.
    let now = look(&writer, "gone-a", None, at(60))
        .unwrap()
        .explain(at(60));
    assert_eq!(
        (now.target, now.ready, now.at),
        (0, None, at(60).to_string())
    );
}

#[test]
fn before_the_first_record_and_for_a_stranger_nothing_is_made_up() {
    let writer = writer();
    let early = look(&writer, "gone-a", Some(at(9)), at(60)).err().unwrap();
    assert!(
        matches!(early, Nothing::NotYet { first: Some(first) } if first == at(10)),
        "{early:?}"
    );
    let stranger = look(&writer, "nobody", None, at(60)).err().unwrap();
    assert!(matches!(stranger, Nothing::UnknownPool), "{stranger:?}");
}

#[test]
fn why_not_names_the_rule_the_missing_input_and_who_did_not_count() {
    let writer = writer();
    let explained = look(&writer, "gone-a", Some(at(15)), at(60))
        .unwrap()
        .explain(at(15));
    assert_eq!(
        explained.why_not.unwrap(),
        "curtailment/threshold decides: released; the activate condition does not hold; carbon is missing \
         (watttime/carbon_intensity.marginal/wt:CAISO_NORTH, the last was received 90 s ago); night/threshold does \
         not count: activated; it only observes"
    );
    let runs = look(&writer, "gone-a", Some(at(25)), at(60))
        .unwrap()
        .explain(at(25));
    assert_eq!(runs.why_not, None);
}

#[test]
fn rules_have_places_and_the_daemon_s_own_words_have_none() {
    let file = SourceFile {
        path: "curtailment.yaml".to_owned(),
        text: SHIPPED_POLICY.to_owned(),
    };
    let policies = PolicySet::compile(&[file]).unwrap();
    let known = place(&policies, "curtailment/threshold", true).unwrap();
    assert_eq!(
        (known.file.as_str(), known.policies.as_str()),
        ("curtailment.yaml", "then")
    );
    let line = SHIPPED_POLICY.lines().nth(known.line as usize - 1).unwrap();
    assert!(line.contains("activate"), "{line}");
    assert_eq!(place(&policies, "none", true), None);
    assert_eq!(place(&policies, "override/o-1", true), None);
    assert_eq!(place(&policies, "curtailment/gone", true), None);
}

#[test]
fn the_source_is_what_stands_before_the_kind() {
    for (stream, source) in [
        ("watttime/carbon_intensity.marginal/wt:X", "watttime"),
        ("a/b/surplus_power/site:x/energy_price", "a/b"),
        ("none", ""),
        ("0 22 * * MON-FRI for 8h in Europe/Berlin", ""),
    ] {
        assert_eq!(source_of(stream), source, "{stream}");
    }
}

#[test]
fn an_instant_that_is_ahead_or_no_instant_is_refused() {
    let now = at(0);
    assert_eq!(instant("2026-03-01T01:00:00 01:00", now).unwrap(), now);
    for text in ["2026-03-01T00:00:01Z", "yesterday", "2026-03-01T00:00:00"] {
        let refused = instant(text, now).unwrap_err();
        assert_eq!(
            (refused.status, refused.code.as_ref()),
            (422, "bad_instant"),
            "{text}"
        );
    }
}
