//! The reference page of policy files: every block of YAML on it compiles, and it has a row for every key, fact,
//! function and word that the code knows.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use sunward_policies::expr::FUNCTIONS;
use sunward_policies::schema::policy_schema;
use sunward_policies::{Kind, PolicySet, Severity, SourceFile, facts};

/// What the pieces of the page stand in; a piece takes the place of the keys that it has.
const AROUND: &[(&str, &str)] = &[
    ("pools", "pools: {energy: surplus}"),
    (
        "signals",
        "signals:\n  \
         carbon: {source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, forecast_max_age: 26h, on_missing: {hold: 10m, then: release}}\n  \
         surplus: {source: meter, kind: surplus_power, scope: site, max_age: 2m, on_missing: {hold: 5m, then: keep}}\n  \
         price: {source: nordpool, kind: energy_price, basis: day_ahead, scope: zone, scheme: eic, max_age: 26h, on_missing: {hold: 1h, then: release}}",
    ),
    ("activate", "activate: {when: carbon < 100, for: 5m}"),
];

/// Where the keys of each definition of the schema stand on the page.
const SECTIONS: &[(&str, &str)] = &[
    ("", "## The document"),
    ("Metadata", "### metadata"),
    ("Spec", "## spec"),
    ("Signal", "## signals"),
    ("OnMissing", "### on_missing"),
    ("Calendar", "## calendars"),
    ("Condition", "## activate and release"),
    ("Window", "## window"),
    ("Rule", "## rules"),
    ("Ramp", "## ramp"),
    ("RampStep", "### step"),
    ("Budget", "## budgets"),
    ("Floor", "## floors"),
    ("Deadline", "## deadlines"),
];

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/policy-files.md");
    fs::read_to_string(path).unwrap()
}

/// A piece as a whole file.
fn completed(block: &str) -> String {
    if block.contains("apiVersion:") {
        return block.to_owned();
    }
    let has = |key: &str| {
        block.lines().any(|line| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(':'))
        })
    };
    let replaced = |key: &str| has(key) || (key == "activate" && has("rules"));
    let around = AROUND
        .iter()
        .filter(|(key, _)| !replaced(key))
        .map(|(_, text)| *text);
    let pieces: Vec<&str> = around.chain([block]).collect();
    let spec = pieces.join("\n").replace('\n', "\n  ");
    format!(
        "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\nmetadata: {{name: piece}}\nspec:\n  {spec}\n"
    )
}

#[test]
fn every_block_on_the_page_compiles() {
    let page = page();
    let blocks: Vec<&str> = page
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 12, "{} blocks", blocks.len());
    for block in blocks {
        let file = SourceFile {
            path: "page".to_owned(),
            text: completed(block),
        };
        if let Err(found) = PolicySet::compile(std::slice::from_ref(&file)) {
            let errors: String = found
                .iter()
                .filter(|found| found.severity == Severity::Error)
                .map(|found| found.render(Some(&file.text), false))
                .collect();
            panic!("{errors}\n{block}");
        }
    }
}

/// The rows of a section's tables, by the first word between back quotes: the other cells.
fn rows(page: &str, heading: &str) -> BTreeMap<String, Vec<String>> {
    let section = page
        .split(&format!("\n{heading}\n"))
        .nth(1)
        .unwrap_or_else(|| panic!("no section `{heading}`"));
    let end = section.find("\n#").unwrap_or(section.len());
    section[..end]
        .lines()
        .filter_map(|line| {
            let cells: Vec<String> = line
                .strip_prefix("| `")?
                .trim_end_matches('|')
                .split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect();
            let key = cells[0].split('`').next().unwrap_or_default().to_owned();
            Some((key, cells[1..].to_vec()))
        })
        .collect()
}

#[test]
fn every_key_has_a_row_that_says_whether_it_is_required() {
    let page = page();
    let schema: Value = serde_json::from_str(&policy_schema()).unwrap();
    let definitions = schema["definitions"].as_object().unwrap();
    let with_keys: Vec<&str> = definitions
        .iter()
        .filter(|(_, definition)| definition["properties"].is_object())
        .map(|(name, _)| name.as_str())
        .collect();
    for name in &with_keys {
        assert!(
            SECTIONS.iter().any(|section| section.0 == *name),
            "{name} has no section"
        );
    }
    for (name, heading) in SECTIONS {
        let definition = if name.is_empty() {
            &schema
        } else {
            &definitions[*name]
        };
        let required: Vec<&str> = definition["required"]
            .as_array()
            .map_or_else(Vec::new, |keys| {
                keys.iter().filter_map(Value::as_str).collect()
            });
        let rows = rows(&page, heading);
        for key in definition["properties"].as_object().unwrap().keys() {
            let cells = rows
                .get(key)
                .unwrap_or_else(|| panic!("`{heading}` has no row `{key}`"));
            let [value, default, _] = cells.as_slice() else {
                panic!("{heading}: {key}: {cells:?}")
            };
            assert!(!value.is_empty() && !default.is_empty(), "{heading}: {key}");
            assert_eq!(
                default == "required",
                required.contains(&key.as_str()),
                "{heading}: {key}"
            );
        }
    }
}

#[test]
fn facts_functions_kinds_and_words_are_those_of_the_code() {
    let page = page();
    let expressions = rows(&page, "## Expressions");
    for row in facts::TABLE {
        let expected = [row.unit.as_str().to_owned(), row.doc.to_owned()];
        assert_eq!(
            expressions.get(row.name).unwrap()[..],
            expected,
            "{}",
            row.name
        );
    }
    assert_eq!(expressions.len(), facts::TABLE.len());
    for (function, ..) in FUNCTIONS {
        assert!(page.contains(&format!("`{function}`")), "{function}");
    }
    let kinds = rows(&page, "### kinds");
    for kind in Kind::ALL {
        let unit = &kinds.get(kind.as_str()).unwrap()[0];
        let known = kind.unit().as_str();
        assert!(
            kind == Kind::Index || unit.starts_with(known),
            "{kind}: {unit}"
        );
    }
    let schema: Value = serde_json::from_str(&policy_schema()).unwrap();
    for (definition, key) in [
        ("Spec", "mode"),
        ("Signal", "basis"),
        ("Signal", "scope"),
        ("Signal", "scheme"),
        ("Signal", "on_estimated"),
        ("OnMissing", "then"),
        ("Window", "expect"),
        ("Rule", "kind"),
        ("Budget", "per"),
        ("Budget", "scope"),
        ("Floor", "on_missing"),
    ] {
        let words = &schema["definitions"][definition]["properties"][key]["enum"];
        let heading = SECTIONS
            .iter()
            .find(|section| section.0 == definition)
            .unwrap()
            .1;
        let value = &rows(&page, heading)[key][0];
        for word in words.as_array().unwrap() {
            let word = word.as_str().unwrap();
            assert!(
                value.contains(&format!("`{word}`")),
                "{heading}: {key}: {word}"
            );
        }
    }
}
