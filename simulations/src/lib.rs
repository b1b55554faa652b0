//! A simulated world for the production core: series generators and energy accounting.
//!
//! Nothing here reads a clock, draws a random number of its own or decides anything about a pool:
//! generators turn published facts into series, and the accounting turns what the engine saw into
//! hours, energy and emissions.

pub mod accounting;
pub mod generate;
