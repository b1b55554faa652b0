//! What is decided over several pools together: budgets, floors, deadlines, and the blast radius of a policy.
//!
//! Pools that share any of these form a **group** and are planned together, from what each asks for ([`Member`]).
//! A pool in no group is planned alone. [`Coordination`] is derived from fleet and policies; what has to be kept (spend,
//! progress, what was said already) is in [`Accounts`].
//!
//! The stages, each in a file of its own, in this order:
//!
//! 1. **Ceilings.** What is frozen stays. What an emergency, a limit or an operator leaves a pool is not exceeded (what
//!    a limit leaves to each pool of a site is worked out before, over all of them). A budget whose sum is spent sends its
//!    pools to their minimum; one whose sum nobody knows lets nothing grow.
//! 2. **Deadlines and floors raise**: what must run by a deadline wants all it has; what a floor needs is kept.
//! 3. **Down**: what must go down goes; what may go down goes, as far as the blast radius lets it.
//! 4. **Cuts**: where the limit of a budget shrank below what runs, the worst go.
//! 5. **Up**: floors start what they lack, then everyone else grows, the best first, as far as all limits let them.
//!
//! The best is: needed by a floor or a deadline, then switched on by an operator, then by score (unknown last), then by
//! name. Planning again at the same instant changes nothing, and the order of the members does not matter.

use serde::{Deserialize, Serialize};
use sunward_policies::time::{Span, Timestamp};

use crate::fleet::Pool;
use crate::pools::Pin;

mod accounts;
mod blast_radius;
mod budgets;
mod deadlines;
mod desk;
mod floors;
mod groups;
mod meters;
mod words;

pub use self::accounts::{
    ACCOUNTS_MAX, Account, Accounts, BudgetSummary, DeadlineSummary, FloorSummary, GroupState,
    Mode, Progress, Shortfall, Spend,
};
pub use self::deadlines::DEADLINE_SLOTS_MAX;
pub use self::groups::{BudgetPart, Coordination, DeadlinePart, FloorPart};
pub use self::meters::{Draw, Meters, Weighing};

use self::desk::Desk;

/// One pool of a group at the instant of planning.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its id.
    pub id: u32,
    /// The pool.
    pub pool: &'a Pool,
    /// Workers wanted now; `None` of a pool that was not seen yet: it counts as if all of it ran.
    pub current: Option<u32>,
    /// Workers that can train.
    pub ready: u32,
    /// What it would be told if it were alone: after holds, ramps, minimum run and rest.
    pub solo: u32,
    /// What it would be told if it were alone and its policy wanted all of it.
    pub reach: u32,
    /// What an operator or a dispatch wants.
    pub pin: Pin,
    /// The most workers that an emergency or a limit leaves it; its minimum stays.
    pub most: Option<u32>,
    /// Its policy could not decide for want of data.
    pub missing: bool,
    /// The higher the better; `None` comes last.
    pub score: Option<f64>,
    /// The policy whose verdict won, by its index in the set.
    pub policy: Option<u32>,
    /// Once started, it keeps running this long.
    pub min_run: Span,
    /// When the wanted workers last changed.
    pub changed_at: Option<Timestamp>,
    /// When the wanted workers last left the minimum.
    pub started_at: Option<Timestamp>,
}

/// What is known ahead about the scores of pools.
pub trait Ahead: std::fmt::Debug {
    /// The score that a policy gives a pool at an instant that is not before now, and the first later instant at which
    /// it may be another. `None` where it is unknown.
    fn score(&self, policy: u32, pool: u32, at: Timestamp) -> (Option<f64>, Option<Timestamp>);
}

/// Nothing is known ahead.
#[derive(Clone, Copy, Debug)]
pub struct NothingAhead;

impl Ahead for NothingAhead {
    fn score(&self, _: u32, _: u32, _: Timestamp) -> (Option<f64>, Option<Timestamp>) {
        (None, None)
    }
}

/// Everything beside the members that planning a group looks at.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The instant, in engine time.
    pub now: Timestamp,
    /// Nothing grows while true.
    pub clock_stepped: bool,
    /// What is known ahead.
    pub ahead: &'a dyn Ahead,
}

/// Why a pool's target is not what it would be alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// There is no room for more, or for all that runs, in this budget.
    Budget(u32),
    /// This budget's sum is spent.
    Exhausted(u32),
    /// What this budget has spent is not known.
    SpendUnknown(u32),
    /// This floor keeps or starts it.
    Floor(u32),
    /// This deadline needs it to run, now and until it is met.
    DeadlineNeeds(u32),
    /// Of the hours that are left for this deadline, this is among the best.
    DeadlineChose(u32),
    /// So many sites of its policy are changing already.
    BlastRadius {
        /// The policy, by its index in the set.
        policy: u32,
        /// The most that may change at a time.
        sites: u32,
    },
}

/// A pool whose target is not what it would be alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinated {
    /// The pool.
    pub id: u32,
    /// Workers that should remain.
    pub target: u32,
    /// Why; `None`: by its own plan.
    pub why: Option<Why>,
}

/// Something that operators should hear of, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A floor can't be met.
    FloorBlocked {
        /// Which.
        floor: u32,
        /// Sites that are active, or will be once it is their turn.
        active: u32,
    },
    /// A deadline has passed, and the work is not done.
    DeadlineMissed {
        /// Which.
        deadline: u32,
    },
    /// A budget's sum is spent.
    BudgetExhausted {
        /// Which part.
        part: u32,
    },
}

/// The answer for one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The pools whose target is not what it would be alone, by id.
    pub coordinated: Vec<Coordinated>,
    /// What operators should hear of.
    pub notes: Vec<Note>,
    /// When time alone changes the answer.
    pub next_change_at: Option<Timestamp>,
    /// The answer depends on scores or weights: another score of one pool may be another answer.
    pub contended: bool,
}

impl Coordination {
    /// Plans the pools of a group together. `members` are all its pools, in any order.
    ///
    /// Changes in `accounts` only what was said and how deadlines stand; the spend is the [`Meters`]' own.
    pub fn plan(
        &self,
        group: u32,
        members: &[Member<'_>],
        scene: &Scene<'_>,
        meters: &Meters,
        accounts: &mut Accounts,
    ) -> Outcome {
        let Some(known) = self.groups.get(group as usize) else {
            return Outcome::default();
        };
        let sorted;
        let members = if members.is_sorted_by(|a, b| a.id < b.id) {
            members
        } else {
            let mut by_id = members.to_vec();
            by_id.sort_by_key(|member| member.id);
            sorted = by_id;
            &sorted
        };
        if !members
            .iter()
            .map(|member| member.id)
            .eq(known.pools.iter().copied())
        {
            // Not this group's members: leave them as they would be alone rather than guess.
            return Outcome::default();
        }
        let mut desk = Desk::new(self, known, members, scene);
        desk.open_budgets(accounts, meters);
        desk.close_spent(accounts);
        desk.raise_for_deadlines(accounts, meters);
        desk.keep_for_floors();
        desk.lower();
        desk.fit_budgets();
        desk.look_around();
        desk.start_for_floors(accounts);
        desk.grow_all();
        desk.answer()
    }
}
