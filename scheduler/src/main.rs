//! The binary `sunward`.

fn main() {}
