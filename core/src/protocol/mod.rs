//! The order in which effects may happen, without I/O.
//!
//! The scheduler drives these with tokio, the simulations with a heap: the same code decides what
//! goes into one durable group, who may act, which write waits behind which, and where a sink's
//! cursor stands.

pub mod commit;
pub mod group;
pub mod leader;
pub mod outbox;
pub mod slot;
