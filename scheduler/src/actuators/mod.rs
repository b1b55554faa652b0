//! What scales pools, one file each. An actuator makes one call with a deadline and says what
//! became of it; it never retries and never decides.

pub mod k0smotron;
pub mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use sunward_core::action::Scale;
use sunward_core::event::Outcome;
use sunward_core::fleet::Pool;

/// One order to a pool.
#[derive(Clone, Debug)]
pub enum Command {
    /// Write the term on the pool's object (never replacing a higher one) and answer with what
    /// the object is now.
    Claim {
        /// The pool.
        pool: Arc<Pool>,
        /// The claiming term.
        term: u64,
    },
    /// Set the wanted workers.
    Scale {
        /// The pool.
        pool: Arc<Pool>,
        /// The order.
        scale: Scale,
    },
}

/// Scales pools of one kind of target.
#[async_trait]
pub trait Actuator: Send + Sync {
    /// Carries out one command and says what became of it. `dispatch.rs` alone calls this, for
    /// one command per pool at a time, and sets the deadline.
    async fn apply(&self, command: &Command) -> Outcome;
}
