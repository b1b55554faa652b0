//! The production core under a simulated world; series generators; reports.
