//! A test file, checked: what is played, and what is expected.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::event::Event;
use sunward_core::fleet::Fleet;
use sunward_core::time::{Span, Timestamp};
use sunward_policies::document::SourceFile;
use sunward_policies::policy::PolicySet;

use super::{HitMap, Hits};

/// A file's policies, fleet and tests.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) policy_files: Vec<SourceFile>,
    pub(super) policies: PolicySet,
    pub(super) fleet_file: SourceFile,
    pub(super) fleet: Fleet,
    pub(super) cases: Vec<Case>,
}

/// One test.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// Why it is left out.
    pub(super) skip: Option<String>,
    pub(super) start: Timestamp,
    /// Workers that run at the start, where it is not the minimum.
    pub(super) running: BTreeMap<Arc<str>, u32>,
    /// What happens, in order; of one instant, events before readings.
    pub(super) script: Vec<(Timestamp, Happening)>,
    pub(super) expect: Vec<Expectation>,
    /// The last instant that is played.
    pub(super) end: Timestamp,
}

/// One thing that a test makes happen.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// An event as it stands.
    Event(Event),
    /// The daemon starts anew.
    Restart,
}

/// Something that is expected.
#[derive(Clone, Debug)]
pub(super) struct Expectation {
    /// The line of the file.
    pub(super) line: u32,
    pub(super) when: When,
    /// The pools that it is about.
    pub(super) pools: Vec<Arc<str>>,
}

/// When, and what.
#[derive(Clone, Debug)]
pub(super) enum When {
    /// At an instant, so long after the start.
    At(Span, Expected),
    /// From one to another, both included: no target changes.
    NoChange(Span, Span),
}

/// What is expected of a pool at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) workers: Option<u32>,
    pub(super) ready: Option<u32>,
    pub(super) reason: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) bent: Option<String>,
    pub(super) power_percent: Option<u8>,
}

impl Suite {
    /// Every rule, not yet hit.
    pub(super) fn rules(&self) -> HitMap {
        let policies = self.policies.policies().iter();
        policies
            .flat_map(|policy| {
                let rules = policy.rules.iter();
                rules.map(|rule| ((policy.name.clone(), rule.name.clone()), Hits::default()))
            })
            .collect()
    }
}
