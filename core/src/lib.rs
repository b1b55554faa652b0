//! Everything the daemon decides. Pure: events and time go in, actions come out.
//!
//! This crate never reads a clock, a file, a socket or an environment variable, and never fails:
//! [`engine::Engine::step`] is total. Who drives it (the scheduler with tokio, the simulations
//! with a heap) journals each group of events first, and carries out the actions afterwards.

/// True where that bug was planted in `holder`; without the feature `plant` it is a plain `false`.
macro_rules! planted {
    ($holder:expr, $plant:ident) => {{
        #[cfg(feature = "plant")]
        let planted = $holder == Some(crate::plant::Plant::$plant);
        #[cfg(not(feature = "plant"))]
        let planted = false;
        planted
    }};
}

pub mod action;
pub mod board;
mod calendars;
pub mod coordination;
mod derived;
pub mod draw;
pub mod engine;
pub mod event;
pub mod fleet;
pub mod grid_event;
pub mod invariants;
pub mod ledger;
mod orders;
pub mod overrides;
pub mod planner;
#[cfg(feature = "plant")]
pub mod plant;
pub mod policy_history;
pub mod pools;
pub mod protocol;
pub mod rng;
pub mod rounds;
pub mod signal;
mod site_limit;
pub mod state;
mod timers;

pub use sunward_policies::{time, units};
