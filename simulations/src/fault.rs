//! The kinds of fault that the world knows, and how often each struck.

use std::collections::BTreeMap;

macro_rules! faults {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of fault. A scenario gives each a rate per site and hour.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($(#[$doc])* $kind,)* }

        impl Fault {
            /// All kinds, in their order.
            pub const ALL: &'static [Fault] = &[$(Fault::$kind,)*];

            /// The name in scenarios and reports.
            pub fn as_str(self) -> &'static str {
                match self { $(Fault::$kind => $name,)* }
            }
        }
    };
}

faults! {
    /// A reading arrives up to 20 minutes late.
    SignalLate = "signal_late",
    /// A reading is sent twice.
    SignalDuplicated = "signal_duplicated",
    /// A reading arrives after the one that follows it.
    SignalReordered = "signal_reordered",
    /// A reading is never sent.
    SignalMissing = "signal_missing",
    /// The source says "missing" instead of a value.
    SignalGap = "signal_gap",
    /// A source is silent for a while.
    SignalOutage = "signal_outage",
    /// A source sends nothing but zeros for a while.
    SignalZero = "signal_zero",
    /// The answer to an accepted reading is lost; its sender tries again.
    AnswerLost = "answer_lost",
    /// A call to the API server is lost on its way there.
    CallLost = "call_lost",
    /// The answer of the API server is lost: the call took effect.
    ReplyLost = "reply_lost",
    /// The answer of the API server arrives twice.
    ReplyDuplicated = "reply_duplicated",
    /// A call lands long after its deadline.
    CallLate = "call_late",
    /// The API server answers with an error, or asks to wait.
    CallError = "call_error",
    /// Something else writes the object just before.
    Conflict = "conflict",
    /// An API server is away: calls fail, or hang.
    ApiAway = "api_away",
    /// A watch is made anew and lists an old state first.
    CacheStale = "cache_stale",
    /// A watch falls far behind.
    WatchLate = "watch_late",
    /// Someone else scales a pool.
    ForeignScale = "foreign_scale",
    /// A host never boots; someone replaces it much later.
    HostDead = "host_dead",
    /// A host takes several times as long to boot.
    HostSlow = "host_slow",
    /// A machine can't be deleted for hours.
    DeleteStuck = "delete_stuck",
    /// Redis is away.
    RedisAway = "redis_away",
    /// Redis restarts and has kept everything.
    RedisRestarted = "redis_restarted",
    /// Redis restarts empty.
    RedisEmptied = "redis_emptied",
    /// Redis restarts without its last entries.
    RedisRolledBack = "redis_rolled_back",
    /// The answer to a publish is lost: the entries are there.
    PublishReplyLost = "publish_reply_lost",
    /// The leader is killed.
    LeaderKilled = "leader_killed",
    /// The leader is killed while a group is on its way to the disk.
    LeaderKilledInCommit = "leader_killed_in_commit",
    /// The leader stands still for a while and goes on where it was.
    LeaderFrozen = "leader_frozen",
    /// A replica that does not lead is killed.
    FollowerKilled = "follower_killed",
    /// The journal is lost with everything beside it; every daemon starts anew beside the running fleet.
    JournalLost = "journal_lost",
    /// The leader's wall clock is stepped, and comes back later.
    ClockStepped = "clock_stepped",
    /// A policy file that does not compile reaches the engine.
    PolicyBroken = "policy_broken",
    /// The leader is killed and stays away for up to two hours.
    LeaderAway = "leader_away",
    /// An issue of a forecast comes hours late.
    ForecastLate = "forecast_late",
    /// An issue of a forecast never comes.
    ForecastMissing = "forecast_missing",
    /// An operator sets an override: on, off or freeze.
    OverrideSet = "override_set",
    /// An operator ends an override before its time.
    OverrideCleared = "override_cleared",
    /// An override's time is over. Follows from those that are set; a rate of its own means nothing.
    OverrideExpired = "override_expired",
    /// A call for demand response.
    GridDispatch = "grid_dispatch",
    /// The grid operator limits a site or a zone.
    GridLimit = "grid_limit",
    /// An emergency of the grid.
    GridEmergency = "grid_emergency",
    /// A drill of the grid.
    GridTest = "grid_test",
    /// A new revision of a grid event, or a late old one.
    GridRevised = "grid_revised",
    /// A grid event is called off.
    GridCancelled = "grid_cancelled",
    /// An operator says that a budget is spent, nearly or not at all.
    BudgetNearlySpent = "budget_nearly_spent",
}

impl Fault {
    /// The inverse of [`Fault::as_str`].
    pub fn parse(name: &str) -> Option<Fault> {
        Fault::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == name)
    }
}

/// How often each kind struck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// One more.
    pub fn count(&mut self, fault: Fault) {
        *self.0.entry(fault.as_str()).or_default() += 1;
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Counts) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// Name and count of each kind that struck.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for kind in Fault::ALL {
            assert_eq!(Fault::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(Fault::parse("flood"), None);
    }
}
