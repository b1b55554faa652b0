//! The daemon, its command line and everything that touches the outside world.
//!
//! The engine (`sunward-core`) decides; this crate journals, dispatches, observes, publishes and
//! serves. See ARCHITECTURE.md for the code map.

pub mod actuators;
pub mod clock;
pub mod cluster;
pub mod engine_handle;
pub mod metric_definitions;
pub mod publish;
