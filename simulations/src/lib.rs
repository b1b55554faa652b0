//! The production core under a simulated world; series generators; checkers; reports.
//!
//! [`world::run`] plays a [`scenario::Scenario`] on a heap of events in simulated time: the
//! shipped engine and protocol modules against stand-ins for API servers, Redis and the journal,
//! while [`fault`]s of every kind strike and the [`check`]ers look after each step. Everything is
//! determined by the scenario and a seed. Nothing here reads a clock, a file or the network.

pub mod accounting;
pub mod check;
mod draw;
pub mod energy;
pub mod fault;
pub mod generate;
pub mod policy_test;
pub mod report;
pub mod scenario;
pub mod trace;
pub mod world;

pub use draw::Draws;
