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
    /// What an operator or a dispatch wants instead of the winning rule.
    pub pin: Pin,
    /// The most workers that an emergency or a limit leaves it, whatever else is asked; its minimum stays.
    pub most: Option<u32>,
}

/// What comes before the winning rule, below emergencies and limits ([`Ask::most`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// Nothing.
    #[default]
    None,
    /// A dispatch, and the winning policy releases its pools then: to the minimum, without waiting for holds or
    /// `min_run`.
    Dispatch,
    /// An operator wants it to run, without waiting for holds, `min_rest` or ramps; budgets and blast radius still
    /// count.
    On {
        /// So many workers; `None`: all.
        workers: Option<u32>,
    },
    /// An operator wants it down to its minimum, at once.
    Off,
    /// An operator wants no change.
    Frozen,
}

impl Pin {
    /// A stable word for it; empty where there is none.
    pub fn word(self) -> &'static str {
        match self {
            Pin::None => "",
            Pin::Dispatch => "dispatch",
            Pin::On { .. } => "on",
            Pin::Off => "off",
            Pin::Frozen => "frozen",
        }
    }
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
