//! The memory of an idle daemon with many pools, in a process of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use sunward_core::engine::Engine;

use crate::COMMAND;
use crate::daemon;
use crate::figures::{Figure, Goal};

/// The argument that makes this program the idle daemon.
pub const ARGUMENT: &str = "--idle-pools";
const POOLS: usize = 10_000;
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// Starts the idle daemon and reports its memory.
pub fn measure() {
    let figure = Figure {
        name: "memory of an idle daemon with 10,000 pools (resident)",
        value: child(&[ARGUMENT, &POOLS.to_string()])[0],
        unit: "MiB",
        goal: Goal::None,
        against: None,
        command: COMMAND,
    };
    figure.report();
}

/// Runs this program with other arguments; returns the numbers that it prints.
pub fn child(arguments: &[&str]) -> Vec<f64> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Resident memory of this process, in MiB (proc(5)).
pub fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = resident
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib / 1024.0
}

/// Is the idle daemon: prints its resident memory in MiB once every pool is claimed and settled.
pub async fn run(pools: usize) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ours = daemon::start(folder.path(), pools).await;
    let began = Instant::now();
    let settled = |engine: &Engine| {
        engine
            .state()
            .pools
            .iter()
            .filter(|(_, pool)| pool.is_settled())
            .count()
    };
    while ours.daemon.engine.ask(settled).await.unwrap() < pools {
        assert!(began.elapsed() < SETTLED_WITHIN, "the pools did not settle");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{:.1}", resident_mib());
    ours.daemon.stop().await.unwrap();
}
