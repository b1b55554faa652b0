//! Planted bugs, for the tests of the simulations' checkers: one at a time, chosen at run time.
//!
//! Only with the feature `plant`, which nothing but a test turns on. Each names a fault that real
//! systems had (or that this design is there to prevent); a test plants them one by one and
//! demands that a checker catches each.

/// One bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// An error of a call ends all further tries (curtail-llm: an HTTP error kills the thread).
    DeadLoop,
    /// While one pool starts, no other pool is decided on (curtail-llm: creating a node blocks).
    BlockingStart,
    /// A site whose workers are on their way out is told to drain again.
    DoubleDrain,
    /// A site that had not become ready yet is not told that it must leave.
    LostStop,
    /// A missing value reads as 0 (KEDA #3065).
    EmptyIsZero,
    /// Exactly 0 reads as the dirtiest value (Azure carbon-aware operator: the 0 g bucket).
    ZeroIsDirty,
    /// A stream that never had a value starts at 0 (Vessim).
    StartValueZero,
    /// The last value holds for ever (Vessim).
    LastValueForEver,
    /// A machine that can't be deleted keeps its pool from ever growing again.
    StuckDelete,
    /// Who was superseded goes on acting.
    TwoLeaders,
    /// A sender is answered before its reading is durable.
    ReplyBeforeFsync,
    /// Each look at a missing signal begins its hold anew.
    HoldThatResets,
    /// The first event of a term skips a sequence number.
    SequenceGap,
    /// An older observation undoes a newer one.
    StaleCacheScale,
    /// A retry opens a new generation.
    RetryCounts,
    /// After a start pools are written without a claim.
    UnclaimedWrite,
    /// A start forgets since when a pool runs.
    ForgottenRun,
    /// A start beside a running fleet takes it for an idle one.
    EmptyStart,
    /// A stepped clock does not stop growth.
    ClockGrows,
    /// An override goes on after its expiry.
    OverrideThatNeverEnds,
    /// A calendar only opens if somebody looks in the first minute of its window (as a missed cron run is lost).
    MissedCalendarMinute,
    /// A restart forgets what budgets have spent.
    BudgetThatForgets,
}

impl Plant {
    /// Those that show in any world.
    pub const ALL: [Plant; 19] = [
        Plant::DeadLoop,
        Plant::BlockingStart,
        Plant::DoubleDrain,
        Plant::LostStop,
        Plant::EmptyIsZero,
        Plant::ZeroIsDirty,
        Plant::StartValueZero,
        Plant::LastValueForEver,
        Plant::StuckDelete,
        Plant::TwoLeaders,
        Plant::ReplyBeforeFsync,
        Plant::HoldThatResets,
        Plant::SequenceGap,
        Plant::StaleCacheScale,
        Plant::RetryCounts,
        Plant::UnclaimedWrite,
        Plant::ForgottenRun,
        Plant::EmptyStart,
        Plant::ClockGrows,
    ];

    /// Those that show only where operators set overrides and policies have calendars.
    pub const OPERATED: [Plant; 2] = [Plant::OverrideThatNeverEnds, Plant::MissedCalendarMinute];
}
