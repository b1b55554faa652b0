//! The daemon, its command line and everything that touches the outside world.
//!
//! The engine (`sunward-core`) decides; this crate journals, dispatches, observes, publishes and
//! serves. See ARCHITECTURE.md for the code map.

pub mod actuators;
pub mod adapters;
pub mod api;
pub mod cli;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod dispatch;
pub mod engine_handle;
pub mod engine_loop;
pub mod files;
pub mod gauges;
pub mod journal;
mod keyed_hash;
pub mod metric_definitions;
pub mod publish;
pub mod push;
pub mod readiness;
pub mod run;
pub mod tokens;
pub mod writer;
