//! `sunward demo`: the whole loop in one process. The engine, the journal's rules, the policy and
//! the ledger are the daemon's own; the workers and the grid are simulated.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`scenario`] | fleet, policy and series |
//! | [`fast`] | one thread that jumps from wake-up to wake-up |
//! | [`score`] | follows the groups: hours, energy, emissions, what happened when |
//! | [`report`] | the result, as JSON and as a table |
//! | [`chart`] | carbon and training of the sites as lines of text |
//!
//! Nothing here decides anything about a pool.

pub mod chart;
pub mod fast;
pub mod report;
pub mod scenario;
pub mod score;
