//! `sunward demo`: the whole loop in one process. The engine, the journal's rules, the policy and
//! the ledger are the daemon's own; the workers and the grid are simulated.
//!
//! | module | what it is responsible for |
//! |---|---|
//! | [`scenario`] | fleet, policy and series |
//! | [`fast`] | one thread that jumps from wake-up to wake-up |
//! | [`live`] | the daemon's own loop, dispatcher and HTTP surface in series time |
//! | [`tap`] | hands what the live loop journals to whoever follows it |
//! | [`screen`] | what is shown while it runs |
//! | [`score`] | follows the groups: hours, energy, emissions, what happened when |
//! | [`report`] | the result, as JSON and as a table |
//! | [`chart`] | carbon and training of the sites as lines of text |
//!
//! Nothing here decides anything about a pool.

pub mod chart;
pub mod fast;
pub mod live;
pub mod report;
pub mod scenario;
pub mod score;
pub mod screen;
pub mod tap;

#[cfg(test)]
mod tests;
