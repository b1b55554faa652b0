//! Every diagnostic code has a page, every page a code, and the pages have one shape.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use sunward_policies::codes;

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/codes");
    let mut pages: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let all: Vec<&str> = [codes::ALL, codes::LINTS, codes::TESTS].concat();
    let mut expected: Vec<String> = all.iter().map(|code| format!("{code}.md")).collect();
    expected.sort();
    assert_eq!(pages, expected);
    for code in all {
        let page = fs::read_to_string(folder.join(format!("{code}.md"))).unwrap();
        assert!(
            page.starts_with(&format!("# {code}: ")),
            "{code}: the title names the code"
        );
        for part in ["\n## Example\n\n```yaml\n", "\n## How to mend\n\n"] {
            let text = page.split(part).nth(1).unwrap_or_default();
            assert!(text.trim().len() > 12, "{code}: {part:?} says something");
        }
    }
}
