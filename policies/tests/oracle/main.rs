//! The expression language against two oracles.
//!
//! **The `cel` crate** ([`cel`]) says what a condition means where everything is known. It is given the same text with
//! whole numbers widened to doubles (`3` to `3.0`): in CEL a whole number is no double, here every number is one. The
//! functions `min`, `max`, `abs`, `floor` and `ceil` are registered in its context; of `&&`, `||`, `?:`, the
//! comparisons and the arithmetic it uses its own.
//!
//! cel differs by design, and nothing is compared there:
//!
//! - **Units.** cel has none: what is refused here for its units is a number like any other there. The generator makes
//!   expressions whose units agree, and every one of them must be accepted.
//! - **Unknown.** cel fails where a name is undeclared, and computes on with infinities and NaN; here each of them is
//!   unknown. Where the answer here is known, cel must give the same: that covers `false && unknown`, too. Where it is
//!   unknown, the second oracle must say the same.
//! - **Types.** cel finds a wrong type while it evaluates, and only where it comes by. Here the whole text is checked
//!   before; cel must be able to compile whatever is accepted.
//!
//! **The reference interpreter** ([`reference`]) reads the generated tree in three values, missing and stale signals
//! and results that are not finite included.
#![allow(clippy::unwrap_used)]

mod against;
#[path = "cel.rs"]
mod oracle;
mod page;
mod reference;
#[allow(dead_code, reason = "shapes are for the tests of the parser")]
mod tree;

use sunward_policies::Unit;
use sunward_policies::expr::Scope;
use sunward_policies::facts::TABLE;

/// What every expression of these tests may name.
const SCOPE: Scope<'_> = Scope {
    signals: tree::SIGNALS,
    calendars: tree::CALENDARS,
};
