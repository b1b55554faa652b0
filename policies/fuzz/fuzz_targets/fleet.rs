//! Any text as a fleet file: no panic, and each diagnostic has a place and can be shown.
#![no_main]

mod diagnostics;

use libfuzzer_sys::fuzz_target;
use sunward_core::fleet::Fleet;
use sunward_policies::SourceFile;

fuzz_target!(|text: &str| {
    let file = SourceFile {
        path: "fleet.yaml".to_owned(),
        text: text.to_owned(),
    };
    match Fleet::parse(&file) {
        Ok(fleet) => {
            for pool in fleet.pools() {
                assert!(fleet.site(&pool.site).is_some(), "{}", pool.name);
            }
        }
        Err(found) => {
            assert!(!found.is_empty(), "refused without a diagnostic");
            diagnostics::check(&found, text);
        }
    }
});
