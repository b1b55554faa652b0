//! What the tests of event sinks share: an engine loop without a journal, a real redis-server,
//! and a member that reads events as `docs/events.md` tells it to.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod member;
pub mod redis_server;
pub mod stand_in;

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a condition may take to come true on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Looks again and again until `look` finds something.
pub async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
