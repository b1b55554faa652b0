//! Conditions in CEL syntax.
