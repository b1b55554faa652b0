//! Free ports for servers.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which Linux takes the ports of outgoing connections (32768 and up), so that a server that was killed
/// finds its port free again when it restarts.
const PORT_FIRST: u16 = 20_000;
const PORTS_MAX: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port of loopback that nobody listens on now. Another process can still take it before the server does: starting a
/// server retries.
///
/// # Panics
/// When every port of the range is taken.
pub fn free_port() -> u16 {
    // Each test process starts elsewhere in the range, so that several at once rarely meet.
    let offset = (std::process::id() % u32::from(PORTS_MAX)) as u16;
    for _ in 0..PORTS_MAX {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORT_FIRST + offset.wrapping_mul(37).wrapping_add(step) % PORTS_MAX;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {PORT_FIRST} on: end other servers on this machine");
}
