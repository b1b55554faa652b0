//! Every adapter of the list has a page, an example that loads, and fixtures that hold.
//!
//! `BLESS=1 cargo test -p sunward-signal-adapters --test conformance` writes the expected files anew.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sunward_signal_adapters::{ADAPTERS, AdapterConfig, Registration};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The first YAML block of an adapter's page.
fn example(adapter: &Registration) -> String {
    let page =
        std::fs::read_to_string(folder("docs").join(format!("{}.md", adapter.name))).unwrap();
    assert!(page.starts_with(&format!("# {}\n", adapter.name)));
    let (_, rest) = page.split_once("```yaml\n").expect("a page has an example");
    rest.split_once("```").unwrap().0.to_owned()
}

#[derive(serde::Deserialize)]
struct Example {
    adapters: Vec<AdapterConfig>,
}

#[test]
fn every_adapter_has_a_page_whose_example_loads() {
    for adapter in ADAPTERS {
        let example: Example = sunward_policies::read_yaml(adapter.name, &example(adapter))
            .map_err(|e| e.to_string())
            .unwrap();
        let names: Vec<_> = example.adapters.iter().map(AdapterConfig::name).collect();
        assert_eq!(names, [adapter.name]);
    }
}

#[test]
fn names_are_unique() {
    for (position, adapter) in ADAPTERS.iter().enumerate() {
        assert!(
            ADAPTERS[..position]
                .iter()
                .all(|other| other.name != adapter.name)
        );
    }
}

#[test]
fn fixtures_hold() {
    for adapter in ADAPTERS {
        let fixtures = folder("fixtures").join(adapter.name);
        let mut cases = 0;
        let mut inputs: Vec<_> = std::fs::read_dir(fixtures.join("input"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.to_string_lossy().ends_with(".options.json"))
            .collect();
        inputs.sort();
        for input in inputs {
            let options = std::fs::read(input.with_extension("options.json")).unwrap();
            let options: AdapterConfig = serde_json::from_slice(&options).unwrap();
            let readings = (adapter.decode)(&std::fs::read(&input).unwrap(), &options).unwrap();
            let found: Vec<Value> = readings
                .into_iter()
                .map(|reading| match reading {
                    Ok(reading) => json!({"reading": reading}),
                    Err(r) => json!({"rejected": {"pointer": r.pointer, "code": r.code.as_str(), "detail": r.detail}}),
                })
                .collect();
            let expected = fixtures
                .join("expected")
                .join(input.with_extension("json").file_name().unwrap());
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(
                    &expected,
                    serde_json::to_string_pretty(&found).unwrap() + "\n",
                )
                .unwrap();
            }
            let known: Vec<Value> =
                serde_json::from_slice(&std::fs::read(&expected).unwrap()).unwrap();
            assert_eq!(found, known, "{}", input.display());
            cases += 1;
        }
        assert!(cases > 0, "{} has no fixtures", adapter.name);
    }
}
