//! From a reading's last byte to the actuator call, at low load, as the daemon's own histogram sees it.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::COMMAND;
use crate::client::{exchange, reading, request};
use crate::daemon::{Ours, SITES};
use crate::figures::{Figure, Goal};

/// Each flips one pool; a pool has long settled when it is flipped again.
const FLIPS: usize = 5 * SITES;
/// Between two readings.
const PAUSE: Duration = Duration::from_millis(10);

/// Pushes readings that each scale one pool, one at a time.
pub async fn measure(ours: &Ours) {
    let mut stream = TcpStream::connect(ours.address).await.unwrap();
    let mut answer = Vec::new();
    for flip in 0..FLIPS {
        let value = if (flip / SITES).is_multiple_of(2) {
            2_000.0
        } else {
            100.0
        };
        let request = request(&ours.token, &reading(flip, &format!("flip-{flip}"), value));
        exchange(&mut stream, request.as_bytes(), &mut answer).await;
        tokio::time::sleep(PAUSE).await;
    }
    ours.metrics.run_upkeep();
    let rendered = ours.metrics.render();
    let series = |suffix: &str| -> f64 {
        let name = format!("{}{suffix} ", sunward::metric_definitions::SIGNAL_TO_ACTION);
        let line = rendered.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("{name} is not among the metrics"))
            .parse()
            .unwrap()
    };
    assert_eq!(
        series("_count"),
        FLIPS as f64,
        "each reading scales one pool"
    );
    for (quantile, word) in [("0.5", "median"), ("0.99", "99th percentile")] {
        let value = 1e3 * series(&format!("{{quantile=\"{quantile}\"}}"));
        let name = format!("signal to action at low load, memory actuator: {word}");
        Figure {
            name: &name,
            value,
            unit: "ms",
            goal: Goal::None,
            against: None,
            command: COMMAND,
        }
        .report();
    }
}
