//! Each diagnostic code of the fleet has a page, and each page a code.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

fn codes_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes_in(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let codes = text
            .match_indices("SUN-F")
            .map(|(at, _)| text[at..].chars().take(8).collect());
        found.extend(codes);
    }
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut used = BTreeSet::new();
    codes_in(&root.join("src"), &mut used);
    let pages: BTreeSet<String> = std::fs::read_dir(root.join("docs/codes"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(used, pages);
}
