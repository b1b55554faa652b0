//! End to end: the binary from outside, with real servers. Links no engine code.
//!
//! This library is the harness: it starts real servers on free ports in folders of their own, starts the real `sunward`
//! binary, and reads what came out. The cases are in `tests/`. Nothing here knows how the engine decides.
//!
//! A server's binary is found through a variable (see [`environment::Server`]) that `tests/run` sets; where it is absent a
//! case skips itself and says so ([`environment::skip_without`]). Everything a case started ends with it, also when it
//! panics: each [`process::Process`] is killed and reaped when dropped, and the tail of its log is shown after a panic.

pub mod actors;
pub mod attribution;
pub mod certificates;
pub mod crds;
pub mod daemon;
pub mod environment;
pub mod http;
pub mod member;
pub mod metrics;
pub mod pool;
pub mod ports;
pub mod process;
pub mod readings;
pub mod reference_policy;
pub mod replicas;
pub mod rig;
pub mod series;
pub mod servers;
pub mod wait;
