//! The tower of crates: no arrow runs back up, and the two at the bottom touch nothing but their arguments.
//!
//! Read from Cargo itself and from the sources, so that a dependency that someone adds, or that a dependency brings along,
//! fails here.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Crates that do I/O, keep a clock, start threads or draw random numbers: none may stand below a pure crate.
const IMPURE: &[&str] = &[
    "tokio",
    "kube",
    "redis",
    "tonic",
    "hyper",
    "axum",
    "mio",
    "socket2",
    "notify",
    "redb",
    "rand",
    "getrandom",
    "rustix",
    "nix",
    "reqwest",
    "rayon",
    "iana-time-zone",
];
/// The same by how a name begins.
const IMPURE_PREFIXES: &[&str] = &["async-", "tokio-", "hyper-", "kube-", "crossbeam", "rand_"];

/// What a pure crate's source may not say: files, sockets, clocks, threads, environment, and maps without an order.
const IMPURE_WORDS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::env",
    "std::process",
    "SystemTime",
    "Instant::now",
    "Utc::now",
    "Local::now",
    "HashMap",
    "HashSet",
    "println!",
];

/// What only a crate's own tests may use besides: the daemon's adapters are tried against the harness's real servers.
const ARROWS_OF_TESTS: &[(&str, &str)] = &[("sunward", "sunward-tests")];

/// Which of our crates each of our crates may stand on.
const ARROWS: &[(&str, &[&str])] = &[
    ("sunward-policies", &[]),
    ("sunward-core", &["sunward-policies"]),
    ("sunward-proto", &[]),
    (
        "sunward-signal-adapters",
        &["sunward-core", "sunward-policies", "sunward-proto"],
    ),
    ("sunward-simulations", &["sunward-core", "sunward-policies"]),
    (
        "sunward",
        &[
            "sunward-core",
            "sunward-policies",
            "sunward-proto",
            "sunward-signal-adapters",
            "sunward-simulations",
        ],
    ),
    ("sunward-tests", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Every crate that `package` is built from, on any platform, with the features that it alone asks for.
fn built_from(package: &str) -> BTreeMap<String, BTreeSet<String>> {
    let tree = cargo(&[
        "tree",
        "--package",
        package,
        "--edges",
        "normal,build",
        "--target",
        "all",
        "--prefix",
        "none",
        "--format",
        "{p}|{f}",
    ]);
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (name, features) = line.split_once('|').unwrap();
        let name = name.split_whitespace().next().unwrap().to_owned();
        let features = features.trim_end_matches(" (*)");
        crates.entry(name).or_default().extend(
            features
                .split(',')
                .filter(|feature| !feature.is_empty())
                .map(str::to_owned),
        );
    }
    assert!(crates.contains_key(package), "{tree}");
    crates
}

fn impure(name: &str) -> bool {
    IMPURE.contains(&name)
        || IMPURE_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// `policies` and `core` are built from nothing that could touch the world, and from no clock.
#[test]
fn pure_crates_are_built_without_io_or_clocks() {
    for package in ["sunward-policies", "sunward-core"] {
        let crates = built_from(package);
        let found: Vec<&String> = crates.keys().filter(|name| impure(name)).collect();
        assert!(
            found.is_empty(),
            "{package} is pure, and {found:?} is not: see architecture.md 1; `cargo tree -p {package} -i {}` says who brings it",
            found[0]
        );
        let chrono = &crates["chrono"];
        assert!(
            !chrono.contains("clock") && !chrono.contains("now"),
            "{package} builds chrono with a clock: {chrono:?}"
        );
    }
}

/// The check itself sees what it is for: the daemon is built from all that the pure crates must not have.
#[test]
fn the_check_sees_the_daemons_io() {
    let crates = built_from("sunward");
    for name in ["tokio", "kube", "redis", "hyper", "redb", "notify"] {
        assert!(crates.contains_key(name) && impure(name), "{name}");
    }
    assert!(crates["chrono"].contains("clock"));
}

/// Each of our crates stands on those below it and on no other.
#[test]
fn no_arrow_runs_back_up() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let planned: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names, planned,
        "the crates of the workspace and the plan differ"
    );
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let (_, allowed) = ARROWS.iter().find(|(crate_, _)| *crate_ == name).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let kind = dependency["kind"].as_str().unwrap_or("normal");
            let of_tests = kind == "dev" && ARROWS_OF_TESTS.contains(&(name, on));
            assert!(
                !names.contains(on) || allowed.contains(&on) || of_tests,
                "{name} may not depend on {on} ({kind})"
            );
        }
    }
}

/// The harness sees the daemon from outside alone, however its own dependencies change.
#[test]
fn the_end_to_end_tests_link_no_engine_code() {
    let ours: Vec<String> = built_from("sunward-tests")
        .into_keys()
        .filter(|name| name.starts_with("sunward") && name != "sunward-tests")
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

/// The sources of the pure crates name no file, socket, clock, thread or variable; clippy's lists of disallowed types say the
/// same, but only where clippy runs.
#[test]
fn pure_sources_name_nothing_of_the_world() {
    let mut read = 0;
    for crate_ in ["policies", "core"] {
        let mut files = Vec::new();
        collect(&root().join(crate_).join("src"), &mut files);
        for file in files {
            read += 1;
            let text = std::fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                let env_outside = code
                    .replace("env!(\"CARGO_PKG_VERSION\")", "")
                    .contains("env!(");
                let word = IMPURE_WORDS.iter().find(|word| code.contains(**word));
                assert!(
                    word.is_none() && !env_outside,
                    "{}:{}: a pure crate names {}: {line}",
                    file.display(),
                    number + 1,
                    word.unwrap_or(&"env!")
                );
            }
        }
    }
    assert!(read > 20, "only {read} sources were found");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}
