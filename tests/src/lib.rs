//! End to end: the binary from outside, with real servers. Links no engine code.
