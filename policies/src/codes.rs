//! The stable codes of this crate's diagnostics. Each has a page in `docs/codes/`.
