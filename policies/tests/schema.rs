//! The JSON schema of policy files is the one that is committed, and says of files what the compiler says.
//!
//! After a change of the document types, write it anew with
//! `SUNWARD_BLESS=1 cargo test -p sunward-policies --test schema` and read the difference.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::{Value, json};
use sunward_policies::schema::policy_schema;
use sunward_policies::{PolicySet, SourceFile, codes, read_yaml};

/// Codes of mistakes that no schema can see: within expressions, between two places of a file, between files, and in the
/// finer grammar of cron and numbers.
const BEYOND_A_SCHEMA: &[&str] = &[
    codes::YAML_SYNTAX,
    codes::DUPLICATE_KEY,
    codes::DUPLICATE_NAME,
    codes::BAD_DURATION,
    codes::BAD_BASIS,
    codes::BAD_RAMP,
    codes::BAD_SAMPLES,
    codes::BAD_ADD_BACK,
    codes::EXPRESSION_SYNTAX,
    codes::FOREIGN_OPERATOR,
    codes::UNKNOWN_NAME,
    codes::BAD_CALL,
    codes::WRONG_TYPE,
    codes::UNIT_MISMATCH,
    codes::EXPRESSION_TOO_LARGE,
    codes::NEVER_KNOWN,
    codes::BAD_CRON,
    codes::UNKNOWN_CALENDAR,
    codes::BAD_WINDOW,
    codes::NO_FORECAST,
    codes::BAD_LIMIT,
    codes::BAD_BUDGET,
    codes::NO_ASSUME,
    codes::UNUSED_SIGNAL,
    codes::UNUSED_CALENDAR,
    codes::TOO_LARGE,
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(&policy_schema()).unwrap();
    jsonschema::draft7::new(&schema).unwrap()
}

/// The policy files of a folder, by name; tests of policies are another kind of document.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .filter(|path| !path.to_string_lossy().ends_with(".test.yaml"))
        .collect();
    paths.sort();
    paths
}

/// What is wrong with a text, as an editor would list it; `None` where it is not YAML.
fn mistakes(validator: &Validator, text: &str) -> Option<Vec<String>> {
    let document: Value = read_yaml("a.yaml", text).ok()?;
    let errors = validator.iter_errors(&document);
    Some(
        errors
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect(),
    )
}

#[test]
fn the_committed_schema_is_that_of_the_types() {
    let path = root().join("schema/scheduling-policy.schema.json");
    let schema = policy_schema();
    if std::env::var_os("SUNWARD_BLESS").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "{} is not what the types say: write it anew with SUNWARD_BLESS=1",
        path.display()
    );
    jsonschema::meta::validate(&serde_json::from_str::<Value>(&schema).unwrap()).unwrap();
}

/// Keys at any depth have a line of text for the editor, and no key may be null.
#[test]
fn every_key_is_described() {
    let schema: Value = serde_json::from_str(&policy_schema()).unwrap();
    let mut described = 0;
    let definitions = schema["definitions"].as_object().unwrap();
    for (name, definition) in definitions {
        let Some(properties) = definition["properties"].as_object() else {
            continue;
        };
        for (key, property) in properties {
            let text = property["description"].as_str().unwrap_or_default();
            assert!(text.len() > 8, "{name}.{key} says what it is");
            described += 1;
        }
    }
    assert!(described > 60, "only {described} keys were found");
    assert!(!policy_schema().contains("\"null\"\n"), "no key takes null");
}

#[test]
fn good_files_are_good_in_the_editor_too() {
    let validator = validator();
    let mut texts: Vec<(String, String)> = files("library")
        .into_iter()
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();
    assert!(!texts.is_empty());
    let sample = fs::read_to_string(root().join("tests/good/every-key.yaml")).unwrap();
    texts.push(("every-key.yaml".to_owned(), sample));
    for (path, text) in texts {
        assert_eq!(mistakes(&validator, &text), Some(Vec::new()), "{path}");
    }
}

/// What the editor marks in a broken file is broken, and it marks each file whose mistakes a schema can see.
#[test]
fn broken_files_are_marked_where_a_schema_can_see_the_mistake() {
    let validator = validator();
    let (mut marked, mut beyond) = (0, Vec::new());
    for path in files("tests/broken") {
        let text = fs::read_to_string(&path).unwrap();
        let found = PolicySet::compile(&[SourceFile {
            path: "a.yaml".to_owned(),
            text: text.clone(),
        }])
        .unwrap_err();
        let visible = found
            .iter()
            .any(|found| !BEYOND_A_SCHEMA.contains(&found.code));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        match mistakes(&validator, &text) {
            None => {}
            Some(mistakes) if mistakes.is_empty() => {
                assert!(!visible, "{name}: the schema lets {found:?} pass");
                beyond.push(name);
            }
            Some(_) => marked += 1,
        }
    }
    assert!(
        marked > 70,
        "only {marked} files are marked, not {beyond:?}"
    );
}

/// One key or word changed at a time: each change is seen.
#[test]
fn slips_in_a_good_file_are_marked() {
    let validator = validator();
    let text = fs::read_to_string(root().join("tests/good/every-key.yaml")).unwrap();
    let good: Value = read_yaml("a.yaml", &text).unwrap();
    assert!(validator.is_valid(&good));
    let slips: &[(&str, &str, Value)] = &[
        ("/spec", "quorum", json!(2)),
        ("/spec", "min_run", json!("30")),
        ("/spec", "min_run", json!(30)),
        ("/spec", "min_run", Value::Null),
        ("/spec", "mode", json!("shadow")),
        ("/spec", "on_dispatch", json!("100%")),
        ("/spec", "max_changing_sites", json!(0)),
        ("/spec", "pools", json!({})),
        ("/spec", "rules", json!([])),
        ("/spec/signals", "pool", json!({})),
        ("/spec/signals/carbon", "scope", json!("site")),
        ("/spec/signals/carbon", "kind", json!("carbon")),
        ("/spec/signals/surplus", "scheme", json!("wt")),
        ("/spec/calendars/night", "time_zone", json!("Europe/Berln")),
        ("/spec/calendars/night", "cron", json!("0 0 22 * * *")),
        ("/spec/activate", "samples", json!(0)),
        ("/spec/window", "lasts", json!("2h")),
        ("/spec/window", "expect", json!("schedule")),
        ("/spec/budgets/0", "per", json!("day")),
        ("/spec/budgets/0", "limit", json!(60)),
        ("/spec/budgets/0", "limit", json!("0 kW")),
        ("/spec/budgets/0", "limit", json!("60 kw")),
        ("/spec/budgets/0", "signal", json!("carbon")),
        ("/spec/floors/0", "sites", json!(0)),
        (
            "/spec/deadlines/0",
            "finish_by",
            json!("2026-12-24T12:00:00"),
        ),
        ("/spec/deadlines/0", "work", json!("400 hours")),
    ];
    for (place, key, value) in slips {
        let mut changed = good.clone();
        changed.pointer_mut(place).unwrap()[*key] = value.clone();
        assert!(!validator.is_valid(&changed), "{place}/{key}: {value}");
    }
    for (place, key) in [
        ("/spec", "activate"),
        ("/spec/signals/carbon", "on_missing"),
        ("/spec/signals/carbon", "scheme"),
        ("/spec/budgets/1", "per"),
        ("/spec/budgets/1", "assume"),
    ] {
        let mut changed = good.clone();
        let object = changed.pointer_mut(place).unwrap().as_object_mut().unwrap();
        assert!(object.remove(key).is_some(), "{place}/{key}");
        assert!(!validator.is_valid(&changed), "{place} without {key}");
    }
}
