//! Every broken file in `tests/broken` is refused with exactly the diagnostics beside it.
//!
//! A `.yaml` is compiled alone, a folder's files together. After a change of a message, write the expected files
//! anew with `SUNWARD_BLESS=1 cargo test -p sunward-policies --test broken` and read the difference.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sunward_policies::{PolicySet, SourceFile, codes};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken")
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> SourceFile {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    SourceFile {
        path: name,
        text: fs::read_to_string(path).unwrap(),
    }
}

/// The files of a case and where its expected diagnostics stand.
fn cases() -> Vec<(Vec<SourceFile>, PathBuf)> {
    let mut cases = Vec::new();
    for path in sorted(&folder()) {
        let files = if path.is_dir() {
            sorted(&path).iter().map(|path| read(path)).collect()
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            vec![read(&path)]
        } else {
            continue;
        };
        cases.push((files, path.with_extension("expected")));
    }
    cases
}

#[test]
fn each_broken_file_gives_its_expected_diagnostics() {
    let bless = std::env::var_os("SUNWARD_BLESS").is_some();
    let mut differences = String::new();
    let cases = cases();
    assert!(cases.len() >= 150, "the corpus is at hand");
    for (files, expected_path) in &cases {
        let found =
            PolicySet::compile(files).expect_err(&format!("{} is broken", expected_path.display()));
        let mut rendered = String::new();
        for diagnostic in &found {
            let source = files
                .iter()
                .find(|file| file.path == diagnostic.file)
                .map(|file| file.text.as_str());
            rendered.push_str(&diagnostic.render(source, false));
        }
        if bless {
            fs::write(expected_path, &rendered).unwrap();
        }
        let expected = fs::read_to_string(expected_path).unwrap_or_default();
        if rendered != expected {
            let _ = writeln!(
                differences,
                "{}: found\n{rendered}expected\n{expected}",
                expected_path.display()
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn every_code_but_the_limits_of_many_files_is_shown_by_the_corpus() {
    let mut shown: Vec<&str> = cases()
        .iter()
        .flat_map(|(files, _)| PolicySet::compile(files).unwrap_err())
        .map(|diagnostic| diagnostic.code)
        .collect();
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown, codes::ALL);
}
