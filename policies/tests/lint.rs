//! What is valid but wrong is found, and what only looks like it is not: each file of `tests/lint` gives exactly the
//! findings beside it, and a `.near-miss` none.
//!
//! A folder's files are one set. Readings stand in a first line such as `# readings carbon every 5m: 90*12 400*3`.
//! After a change of a message, write the expected files anew with
//! `SUNWARD_BLESS=1 cargo test -p sunward-policies --test lint` and read the difference.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sunward_policies::lint::{
    Series, SeriesReading, alone, on_series, pairs, share_by_labels, studies,
};
use sunward_policies::time::{Span, Timestamp};
use sunward_policies::{PolicySet, Severity, SourceFile, codes};

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> SourceFile {
    SourceFile {
        path: path.file_name().unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(path).unwrap(),
    }
}

/// The files of each case, and its path without an ending.
fn cases() -> Vec<(Vec<SourceFile>, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lint");
    let mut cases = Vec::new();
    for path in sorted(&folder) {
        let name = path.display().to_string();
        if path.is_dir() {
            cases.push((sorted(&path).iter().map(|path| read(path)).collect(), path));
        } else if let Some(stem) = name.strip_suffix(".yaml") {
            cases.push((vec![read(&path)], PathBuf::from(stem)));
        }
    }
    cases
}

/// The readings that a file's first line gives, as the stream of the signal that it names.
fn series(set: &PolicySet, files: &[SourceFile]) -> Vec<Series> {
    let lines = files.iter().filter_map(|file| file.text.lines().next());
    let of = |line: &str| {
        let (head, values) = line.strip_prefix("# readings ")?.split_once(": ")?;
        let (name, every) = head.split_once(" every ")?;
        let every = Span::parse(every).unwrap();
        let mut readings = Vec::new();
        for word in values.split(' ') {
            let (value, times) = word.split_once('*').unwrap_or((word, "1"));
            for _ in 0..times.parse::<usize>().unwrap() {
                let from = Timestamp::from_millis(every.as_millis() * readings.len() as i64);
                readings.push(SeriesReading {
                    from,
                    to: from + every,
                    value: Some(value.parse().unwrap()),
                    forecast: false,
                });
            }
        }
        let signal = set.policies()[0].signals.iter().find(|s| s.name == name)?;
        let scope = signal.scope.clone();
        Some(Series::new(
            &signal.source,
            signal.kind,
            signal.basis,
            scope,
            "ZONE",
            readings,
        ))
    };
    lines.filter_map(of).collect()
}

/// The findings of a case, as people see them, and their codes.
fn look(files: &[SourceFile]) -> (String, Vec<&'static str>) {
    let set = PolicySet::compile(files).unwrap_or_else(|found| panic!("{found:?}"));
    assert!(set.warnings().is_empty(), "{:?}", set.warnings());
    let studies = studies(&set, files);
    assert_eq!(studies.len(), files.len());
    let mut found = alone(&studies);
    found.extend(pairs(&studies, &share_by_labels));
    let series = series(&set, files);
    if !series.is_empty() {
        let mut skipped = Vec::new();
        found.extend(on_series(&studies, &series, &mut skipped));
        assert_eq!(skipped, []);
    }
    let mut shown = String::new();
    for one in &found {
        assert_eq!(one.severity, Severity::Warning);
        let source = files.iter().find(|file| file.path == one.file);
        shown.push_str(&one.render(source.map(|file| file.text.as_str()), false));
    }
    (shown, found.iter().map(|one| one.code).collect())
}

#[test]
fn each_file_gives_its_expected_findings_and_a_near_miss_none() {
    let bless = std::env::var_os("SUNWARD_BLESS").is_some();
    let mut differences = String::new();
    for (files, path) in cases() {
        let (shown, _) = look(&files);
        let name = path.display().to_string();
        if name.ends_with(".near-miss") {
            if !shown.is_empty() {
                let _ = writeln!(differences, "{name}: found\n{shown}");
            }
            continue;
        }
        let expected_path = format!("{name}.expected");
        if bless {
            fs::write(&expected_path, &shown).unwrap();
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if shown != expected || shown.is_empty() {
            let _ = writeln!(differences, "{name}: found\n{shown}expected\n{expected}");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// Budgets are looked at beside the fleet, with tests of their own.
#[test]
fn every_lint_has_a_hit_and_a_near_miss() {
    let elsewhere = [codes::BUDGET_BELOW_FLOOR, codes::BUDGET_PAYS_NO_RUN];
    let mut hit: BTreeSet<&str> = elsewhere.into();
    let mut missed = 0;
    for (files, path) in cases() {
        let (_, found) = look(&files);
        missed += usize::from(path.display().to_string().ends_with(".near-miss"));
        hit.extend(found);
    }
    let all: Vec<&str> = hit.into_iter().collect();
    assert_eq!(all, codes::LINTS);
    assert!(missed >= codes::LINTS.len() - elsewhere.len());
}

#[test]
fn the_library_has_nothing_to_mend() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("library");
    for path in sorted(&library) {
        let name = path.display().to_string();
        let is_yaml = path.extension().is_some_and(|end| end == "yaml");
        if is_yaml && !name.ends_with(".test.yaml") {
            let (shown, _) = look(&[read(&path)]);
            assert_eq!(shown, "", "{name}");
        }
    }
}
