//! The policy language: files, expressions, rules and their verdicts. Pure: no I/O, no clock.
