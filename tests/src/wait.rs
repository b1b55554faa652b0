//! Waiting for a condition with a deadline. Tests never sleep for a guessed time.
//!
//! Futures that wait like this are not `Send` (a limit of async closures in Rust 1.90): join them (`tokio::join!`) instead of
//! spawning them.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Calls `probe` until it answers `Ok`, and returns that. A probe says what is not yet so by an error
/// (`anyhow::ensure!(n == 3, "replicas are {n}")`); one that does not return is given up at the deadline.
///
/// # Errors
/// `what`, the deadline and the last error of the probe, when it did not answer `Ok` within `deadline`.
pub async fn try_until<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    let mut pause = PAUSE_FIRST;
    let mut last = anyhow!("the first probe did not return");
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => {}
        }
        if start.elapsed() >= deadline {
            return Err(last.context(format!("waited {deadline:?} for {what}")));
        }
        tokio::time::sleep(pause.min(deadline.saturating_sub(start.elapsed()))).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// [`try_until`] for cases.
///
/// # Panics
/// When the condition did not come about within `deadline`; the message has `what` and the last answer.
pub async fn until<T>(deadline: Duration, what: &str, probe: impl AsyncFnMut() -> Result<T>) -> T {
    match try_until(deadline, what, probe).await {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

/// Checks that `probe` answers `Ok` the whole time: for what must *not* happen within `span`.
///
/// # Panics
/// At the first error; the message has `what`, when, and the error.
pub async fn holds(span: Duration, what: &str, mut probe: impl AsyncFnMut() -> Result<()>) {
    let start = Instant::now();
    while start.elapsed() < span {
        if let Err(error) = probe().await {
            panic!(
                "{what} no longer held after {:?}: {error:#}",
                start.elapsed()
            );
        }
        tokio::time::sleep(PAUSE_MAX).await;
    }
}
