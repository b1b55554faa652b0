//! What judging leaves for planning: what a pool's policies and operators ask of it.

use serde::{Deserialize, Serialize};
use sunward_policies::policy::{Policy, PolicySet};
use sunward_policies::rules::Intent;

use crate::planner::Limits;

/// What is asked of a pool, as it was last judged. Pools that are planned together are planned from these, whichever
/// of them was touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// What the winning rule wants; `None` where no policy governs the pool, which then stays as it is.
    pub intent: Option<Intent>,
    /// With [`Intent::Activate`]: at most so many workers; `None`: as many as the pool has.
    pub workers: Option<u32>,
    /// The winning rule could not decide for want of data: its pool may be kept, but not be started.
    pub missing: bool,
    /// The winning policy's score, the higher the better; `None` where it has none or it is unknown, which comes
    /// after every score that is known.
    pub score: Option<f64>,
    /// The winning policy, by its index in the set in force.
    pub policy: Option<u32>,
}

impl Ask {
    /// The policy that won.
    pub fn policy<'a>(&self, policies: &'a PolicySet) -> Option<&'a Policy> {
        policies.policies().get(self.policy? as usize)
    }

    /// The limits that come with the winning policy; none where none won.
    pub fn limits(&self, policies: &PolicySet) -> Limits {
        self.policy(policies)
            .map_or_else(Limits::default, |policy| Limits {
                min_run: policy.min_run,
                min_rest: policy.min_rest,
                ramp: policy.ramp,
            })
    }
}
