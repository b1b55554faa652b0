//! What the tests of the world share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::PathBuf;

use sunward_core::time::Span;
use sunward_simulations::scenario::Scenario;

/// The crate's folder of scenarios.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// A scenario that is shipped.
pub fn scenario(name: &str) -> Scenario {
    let path = folder().join(format!("{name}.scenario"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut read = |file: &str| {
        std::fs::read_to_string(folder().join(file)).map_err(|error| error.to_string())
    };
    let parsed = Scenario::parse(name, &format!("{name}.scenario"), &text, &mut read);
    parsed.unwrap_or_else(|error| panic!("{error}"))
}

/// The scenario of the policy library; without the full matrices only its first night, which ends over the beginning of a
/// weekend.
pub fn policies() -> Scenario {
    let mut scenario = scenario("policies");
    if !long() {
        scenario.end = scenario.start + Span::from_mins(15 * 60);
        scenario.faults_end = scenario.start + Span::from_mins(12 * 60);
    }
    scenario
}

/// True where the full matrices are asked for.
pub fn long() -> bool {
    std::env::var_os("SUNWARD_LONG").is_some()
}

/// A line on standard error, also where the harness keeps standard output.
pub fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}
