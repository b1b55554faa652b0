//! A daemon that lets GPU training follow surplus energy.

pub mod journal;
