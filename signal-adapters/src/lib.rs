//! Sources of energy signals, one file each, and the wire form they share.
//!
//! An adapter turns what its source says into [`sunward_core::signal::Level`]s and submits them
//! through the [`intake::Intake`]; it never decides, and nothing of its source's format goes
//! further than its own file.

pub mod intake;
pub mod wire;
