//! Whole sets of policies: what is read from a file, warnings, hashes, arbitration, and the shipped library.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use sunward_policies::{
    Basis, BindingScope, Candidate, Facts, Intent, Kind, Memory, Mode, OnMissing, Policy,
    PolicySet, PoolFacts, Ramp, RampStep, Reading, Reason, SourceFile, Span, Then, Timestamp,
    Verdict, arbitrate, read_yaml,
};

const FULL: &str = r#"
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: full}
spec:
  pools: {energy: surplus, tier: "1"}
  priority: -7
  mode: observe
  signals:
    surplus: {source: meter, kind: surplus_power, scope: site, max_age: 2m, on_missing: {hold: 5m, then: keep}}
    carbon: {source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, on_missing: {hold: 90s, then: release}}
  rules:
    - kind: threshold
      name: green
      activate: {when: carbon < 100}
    - {kind: threshold, name: sunny, activate: {when: surplus > pool.training_kw, for: 1m}, release: {when: surplus <= 0, for: 30s}}
  min_run: 30m
  min_rest: 1h30m
  ramp: {up: {workers: 2, every: 5m}}
"#;

fn file(path: &str, text: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn shipped() -> SourceFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("library/curtailment.yaml");
    file("curtailment.yaml", &fs::read_to_string(path).unwrap())
}

#[test]
fn all_of_a_file_arrives() {
    let set = PolicySet::compile(&[file("full.yaml", FULL)]).unwrap();
    assert_eq!(set.warnings(), []);
    let [policy] = set.policies() else {
        panic!("one policy")
    };
    assert_eq!(
        (policy.name.as_str(), policy.priority, policy.mode),
        ("full", -7, Mode::Observe)
    );
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    assert_eq!(
        policy.selector,
        labels(&[("energy", "surplus"), ("tier", "1")])
    );
    assert!(policy.selects(&labels(&[
        ("energy", "surplus"),
        ("tier", "1"),
        ("gpu", "a100")
    ])));
    assert!(!policy.selects(&labels(&[("energy", "surplus")])));
    assert_eq!(
        (policy.min_run, policy.min_rest),
        (Span::from_mins(30), Span::from_mins(90))
    );
    let up = Some(RampStep {
        workers: 2,
        every: Span::from_mins(5),
    });
    assert_eq!(policy.ramp, Ramp { up, down: None });
    assert_eq!(
        (
            policy.ramp_range.unwrap().line,
            policy.name_range.line,
            policy.pools_range.line
        ),
        (19, 4, 6)
    );

    let [carbon, surplus] = policy.signals.as_slice() else {
        panic!("two signals, by name")
    };
    assert_eq!(
        (carbon.name.as_str(), carbon.source.as_str(), carbon.kind),
        ("carbon", "watttime", Kind::CarbonIntensity)
    );
    assert_eq!(
        (carbon.basis, carbon.max_age),
        (Some(Basis::Marginal), Span::from_mins(10))
    );
    assert_eq!(
        carbon.scope,
        BindingScope::Zone {
            scheme: "wt".to_owned()
        }
    );
    assert_eq!(
        carbon.on_missing,
        OnMissing {
            hold: Span::from_secs(90),
            then: Then::Release
        }
    );
    assert_eq!(
        (surplus.basis, &surplus.scope, surplus.range.line),
        (None, &BindingScope::Site, 10)
    );

    let names: Vec<(&str, u32, Vec<usize>)> = policy
        .rules
        .iter()
        .map(|rule| {
            (
                rule.name.as_str(),
                rule.range.line,
                rule.rule.signals().iter().collect(),
            )
        })
        .collect();
    assert_eq!(names, [("green", 14, vec![0]), ("sunny", 16, vec![1])]);
}

#[test]
fn the_shipped_policy_does_what_its_comment_says() {
    let set = PolicySet::compile(&[shipped()]).unwrap();
    assert_eq!(set.warnings(), []);
    let policy = &set.policies()[0];
    assert_eq!(
        (policy.min_run, policy.min_rest),
        (Span::from_mins(30), Span::from_mins(10))
    );
    let pool = PoolFacts {
        wanted: 0,
        ready: 0,
        min: 0,
        max: 3,
        training_kw: 2.0,
        ready_after: Span::ZERO,
        site_power_limit_kw: None,
    };
    let mut memory = Memory::new(false);
    let mut judge = |minute: i64, reading: Reading| {
        let readings = [reading];
        let facts = Facts::present(Timestamp::from_millis(minute * 60_000), &readings, pool);
        let judgement = policy.rules[0].rule.judge(&facts, &mut memory);
        (
            judgement.verdict.unwrap().intent,
            judgement.next_change_at.map(|at| at.as_millis() / 60_000),
        )
    };
    let fresh = |value| Reading::Fresh { value };
    assert_eq!(judge(0, fresh(99.0)), (Intent::Release, Some(5)));
    assert_eq!(judge(5, fresh(99.0)), (Intent::Activate, None));
    assert_eq!(judge(20, fresh(119.0)), (Intent::Activate, None));
    assert_eq!(judge(30, fresh(120.0)), (Intent::Activate, Some(40)));
    assert_eq!(
        judge(35, Reading::Stale { value: 120.0 }),
        (Intent::Hold, Some(45))
    );
    assert_eq!(judge(45, Reading::Missing), (Intent::Release, None));
}

#[test]
fn a_set_is_its_content() {
    let (full, library) = (file("full.yaml", FULL), shipped());
    let set = PolicySet::compile(&[full.clone(), library.clone()]).unwrap();
    let names: Vec<&str> = set
        .policies()
        .iter()
        .map(|policy| policy.name.as_str())
        .collect();
    assert_eq!(names, ["curtailment", "full"]);
    assert_eq!(set.hash().len(), 64);
    let moved = [
        file("elsewhere/c.yaml", &library.text),
        file("f.yaml", &full.text),
    ];
    assert_eq!(
        PolicySet::compile(&moved).unwrap().hash(),
        set.hash(),
        "neither order nor paths count"
    );
    let changed = [file("full.yaml", &FULL.replace("-7", "-8")), library];
    assert_ne!(PolicySet::compile(&changed).unwrap().hash(), set.hash());
    assert_ne!(PolicySet::compile(&[full]).unwrap().hash(), set.hash());
    assert_eq!(
        PolicySet::compile(&[]).unwrap().hash(),
        PolicySet::empty().hash()
    );
}

#[test]
fn a_rules_hash_changes_with_what_its_memory_depends_on_and_with_nothing_else() {
    let hashes = |text: &str| -> Vec<[u8; 32]> {
        let set = PolicySet::compile(&[file("full.yaml", text)]).unwrap();
        set.policies()[0]
            .rules
            .iter()
            .map(|rule| rule.hash)
            .collect()
    };
    let before = hashes(FULL);
    assert_ne!(before[0], before[1]);
    for (from, to) in [
        ("-7", "8"),
        ("min_run: 30m", "min_run: 31m"),
        ("observe", "enforce"),
        ("{energy: surplus, ", "{"),
    ] {
        assert_eq!(hashes(&FULL.replace(from, to)), before, "{from} -> {to}");
    }
    for (from, to, changed) in [
        ("for: 1m", "for: 2m", [false, true]),
        ("surplus <= 0", "surplus < 0", [false, true]),
        ("source: meter", "source: meter-2", [false, true]),
        ("hold: 90s", "hold: 91s", [true, false]),
        ("basis: marginal", "basis: average", [true, false]),
        ("scheme: wt", "scheme: em", [true, false]),
    ] {
        let after = hashes(&FULL.replace(from, to));
        assert_eq!(
            [after[0] != before[0], after[1] != before[1]],
            changed,
            "{from} -> {to}"
        );
    }
}

#[test]
fn a_warning_loads_and_is_told() {
    let text = FULL
        .replace("surplus > pool.training_kw", "carbon < 50")
        .replace("surplus <= 0", "carbon > 60");
    let set = PolicySet::compile(&[file("full.yaml", &text)]).unwrap();
    let told: Vec<String> = set.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "full.yaml:10:5: warning[SUN-P040]: nothing reads the signal `surplus` (help: remove it, or use it in a condition)"
        ]
    );
}

#[test]
fn the_json_form_is_the_promised_one() {
    let found = PolicySet::compile(&[file(
        "full.yaml",
        &FULL.replace("carbon < 100", "carbn < 100"),
    )])
    .unwrap_err();
    let json = serde_json::to_value(&found[0]).unwrap();
    let keys: Vec<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut promised = [
        "code",
        "severity",
        "file",
        "line",
        "column",
        "end_line",
        "end_column",
        "message",
        "help",
    ];
    promised.sort_unstable();
    let mut keys_sorted = keys.clone();
    keys_sorted.sort_unstable();
    assert_eq!(keys_sorted, promised);
    assert_eq!(
        (json["code"].as_str(), json["severity"].as_str()),
        (Some("SUN-P022"), Some("error"))
    );
    let place = ["line", "column", "end_line", "end_column"].map(|key| json[key].as_u64().unwrap());
    assert_eq!(place, [15, 24, 15, 29]);
}

#[test]
fn other_documents_can_be_read_with_the_same_diagnostics() {
    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Fleet {
        sites: Vec<String>,
    }
    let found = read_yaml::<Fleet>("fleet.yaml", "site: [a]\n").unwrap_err();
    assert_eq!(
        (found.code, found.line, found.column, found.end_column),
        ("SUN-P002", 1, 1, 5)
    );
    assert!(found.help.unwrap().starts_with("did you mean `sites`?"));
}

#[test]
fn a_fleet_of_ten_thousand_pools_is_not_too_large_to_read() {
    let text = (0..10_000).fold("pools:\n".to_owned(), |mut text, index| {
        writeln!(text, "- {{name: p{index}, a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h: 8, i: 9, j: 10, k: 11, l: 12}}").unwrap();
        text
    });
    let fleet =
        read_yaml::<BTreeMap<String, Vec<BTreeMap<String, String>>>>("fleet.yaml", &text).unwrap();
    assert_eq!(fleet["pools"].len(), 10_000);
}

#[test]
fn hostile_nesting_is_refused_not_fatal() {
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = format!(
            "apiVersion: {}x{}\n",
            open.repeat(20_000 / open.len()),
            close.repeat(20_000 / open.len())
        );
        let found = PolicySet::compile(&[file("deep.yaml", &text)]).unwrap_err();
        assert_eq!(found.len(), 1);
        let text = format!(
            "x: {}1{}\n",
            open.repeat(20_000 / open.len()),
            close.repeat(20_000 / open.len())
        );
        let found = PolicySet::compile(&[file("deep.yaml", &text)]).unwrap_err();
        assert_eq!(found.len(), 1);
    }
    let found = PolicySet::compile(&[file("long.yaml", &"#".repeat(70_000))]).unwrap_err();
    assert_eq!(found[0].code, "SUN-P006");
    let many: Vec<SourceFile> = (0..1_025)
        .map(|index| file(&format!("{index}.yaml"), ""))
        .collect();
    assert_eq!(PolicySet::compile(&many).unwrap_err()[0].code, "SUN-P006");
}

/// A policy of that name, priority and mode.
fn policy(name: &str, priority: i32, observes: bool) -> Policy {
    let text = FULL
        .replace("{name: full}", &format!("{{name: {name}}}"))
        .replace("-7", &priority.to_string());
    let text = if observes {
        text
    } else {
        text.replace("observe", "enforce")
    };
    PolicySet::compile(&[file(name, &text)]).unwrap().policies()[0].clone()
}

fn verdict(intent: Intent) -> Verdict {
    Verdict {
        intent,
        workers: None,
        reason: Reason::Running,
    }
}

#[test]
fn the_winner_is_the_one_that_the_rules_name() {
    let (a, b, high, shadow) = (
        policy("a", 1, false),
        policy("b", 1, false),
        policy("z", 9, false),
        policy("s", 99, true),
    );
    let candidate = |policy, verdict| Candidate {
        policy,
        rule: 0,
        verdict,
    };
    let (up, hold, down) = (
        Some(verdict(Intent::Activate)),
        Some(verdict(Intent::Hold)),
        Some(verdict(Intent::Release)),
    );
    for (candidates, winner) in [
        (vec![], None),
        (vec![candidate(&shadow, up)], None),
        (vec![candidate(&a, None)], None),
        (vec![candidate(&a, down), candidate(&high, up)], Some(1)),
        (vec![candidate(&a, down), candidate(&high, None)], Some(0)),
        (vec![candidate(&shadow, down), candidate(&a, up)], Some(1)),
        (vec![candidate(&a, up), candidate(&b, hold)], Some(1)),
        (vec![candidate(&a, hold), candidate(&b, down)], Some(1)),
        (vec![candidate(&b, up), candidate(&a, up)], Some(1)),
        (
            vec![
                Candidate {
                    policy: &a,
                    rule: 1,
                    verdict: up,
                },
                candidate(&a, up),
            ],
            Some(1),
        ),
    ] {
        assert_eq!(arbitrate(&candidates), winner);
    }
}

static FOUR: LazyLock<[Policy; 4]> = LazyLock::new(|| {
    [
        policy("a", 1, false),
        policy("b", 1, false),
        policy("z", 2, false),
        policy("s", 9, true),
    ]
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_the_candidates_does_not_matter(
        picks in prop::collection::vec((0..4_usize, 0..2_usize, 0..4_usize), 1..8), turn in 0..8_usize,
    ) {
        let policies = &*FOUR;
        let verdicts = [None, Some(verdict(Intent::Activate)), Some(verdict(Intent::Hold)), Some(verdict(Intent::Release))];
        let mut candidates: Vec<Candidate<'_>> = picks
            .iter()
            .map(|(policy, rule, said)| Candidate { policy: &policies[*policy], rule: *rule, verdict: verdicts[*said] })
            .collect();
        let key = |candidates: &[Candidate<'_>]| {
            arbitrate(candidates).map(|winner| {
                let winner = &candidates[winner];
                (winner.policy.name.clone(), winner.rule, winner.verdict)
            })
        };
        let before = key(&candidates);
        let turn = turn % candidates.len();
        candidates.rotate_left(turn);
        prop_assert_eq!(key(&candidates), before.clone());
        candidates.reverse();
        prop_assert_eq!(key(&candidates), before);
    }
}
