//! Valid but wrong: what loads and does not do what was meant. Pure; every finding is a warning.
//!
//! [`studies`] reads the files once more for the places of what they say. [`alone`] looks at each policy by itself,
//! [`on_series`] holds it against readings of its signals, [`pairs`] looks at policies that govern the same pools.
//! What needs the fleet (budgets against floors) stands beside the fleet, in the crate above.
//!
//! A finding here is certain, or the check keeps silent: conditions are compared by interval reasoning that never
//! calls possible what is not.

use serde::Serialize;

use crate::diagnostic::{Diagnostic, TextRange};
use crate::document::SourceFile;
use crate::policy::{Policy, PolicySet};
use crate::time::Timestamp;

mod ahead;
mod conditions;
mod pairs;
mod parts;
mod series;
mod times;

pub use pairs::{Shared, pairs, share_by_labels};
pub use parts::Study;
pub use series::{Series, SeriesReading};

/// Where looking for what recurs begins: any instant would do, as long as it is the same on every machine.
pub(crate) const REFERENCE: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A check that was not made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Skipped {
    /// What it looks for.
    pub check: String,
    /// What it would have needed.
    pub needs: String,
}

/// The policies of a set with the places of what their files say. A policy whose file is not among `files` is left
/// out.
pub fn studies<'a>(set: &'a PolicySet, files: &'a [SourceFile]) -> Vec<Study<'a>> {
    let of = |policy: &'a Policy| {
        let file = files.iter().find(|file| file.path == policy.file)?;
        Study::new(policy, file)
    };
    set.policies().iter().filter_map(of).collect()
}

/// What each policy shows by itself.
pub fn alone(studies: &[Study<'_>]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for study in studies {
        conditions::look(study, &mut found);
        ahead::look(study, &mut found);
    }
    found
}

/// What the policies show against readings of their signals; signals without any are named in `skipped`.
pub fn on_series(
    studies: &[Study<'_>],
    series: &[Series],
    skipped: &mut Vec<Skipped>,
) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for study in studies {
        times::look(study, series, &mut found, skipped);
    }
    found
}

/// A warning of a study.
fn warning(
    study: &Study<'_>,
    code: &'static str,
    at: TextRange,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Diagnostic {
    Diagnostic::warning(code, &study.policy.file, at, message).with_help(help)
}
