//! Durable ingest beside a bare handler, in one run: the daemon (token, grants, JSON, units, dedupe, journal, engine) against
//! an axum handler that parses the same JSON and appends it to a file, with one fdatasync per group.
//!
//! Both sides run in this process behind the same HTTP server, on the same file system, asked by the same 64 keep-alive
//! connections, in turns. `cargo bench -p sunward --bench ingest [-- --seconds N]`; with `--profile SIZE` one turn of the
//! daemon alone.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

mod bare;
mod client;
mod daemon;
#[path = "../../../tests/figures.rs"]
mod figures;
mod idle;
mod ids;
mod latency;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use figures::{Figure, Goal};

use crate::client::{Batch, Ids, Pushed};

/// Connections that push at once.
pub const CONNECTIONS: usize = 64;
/// Turns of each side and kind of batch.
const ROUNDS: usize = 7;
/// A turn's length unless `--seconds` says otherwise.
const SECONDS: f64 = 2.0;
const COMMAND: &str = "cargo bench -p sunward --bench ingest";

fn main() {
    // `cargo test --benches` and `cargo nextest` pass flags; a plain run measures.
    let arguments: Vec<String> = std::env::args().collect();
    if arguments
        .iter()
        .any(|argument| argument == "--test" || argument == "--list")
    {
        return;
    }
    let number = |name: &str| -> Option<f64> {
        let at = arguments.iter().position(|argument| argument == name)?;
        Some(arguments[at + 1].parse().unwrap())
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    if let Some(pools) = number(idle::ARGUMENT) {
        return runtime.block_on(idle::run(pools as usize));
    }
    let turn = Duration::from_secs_f64(number("--seconds").unwrap_or(SECONDS));
    // On the file system of the build, not on one in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if let Some(count) = number(ids::ARGUMENT) {
        return ids::run(folder.path(), count as usize);
    }
    if let Some(size) = number("--profile") {
        return runtime.block_on(profile(folder.path(), turn, size as usize));
    }
    runtime.block_on(measure(folder.path(), turn));
    idle::measure();
    ids::measure();
}

async fn measure(folder: &Path, turn: Duration) {
    let ours = daemon::start(folder, daemon::SITES).await;
    let bare = bare::start(folder).await;
    let mut first_id = 0;
    for (size, ids) in [
        (1, Ids::Sequential),
        (100, Ids::Sequential),
        (1, Ids::Random),
        (100, Ids::Random),
    ] {
        let mut turns = Turns::default();
        for round in 0..ROUNDS {
            let batch = Batch {
                size,
                ids,
                first_id,
                turn,
            };
            // Each begins every other time, so that neither profits from what goes on beside.
            if round % 2 == 0 {
                turns
                    .ours
                    .push(push(ours.address, &ours.token, &batch).await);
                turns.bare.push(push(bare, &ours.token, &batch).await);
            } else {
                turns.bare.push(push(bare, &ours.token, &batch).await);
                turns
                    .ours
                    .push(push(ours.address, &ours.token, &batch).await);
            }
            first_id += 1 << 28;
        }
        turns.report(size, ids);
    }
    latency::measure(&ours).await;
    ours.daemon.stop().await.unwrap();
}

/// The daemon's side alone, for a profiler.
async fn profile(folder: &Path, turn: Duration, size: usize) {
    let ours = daemon::start(folder, daemon::SITES).await;
    let batch = Batch {
        size,
        ids: Ids::Sequential,
        first_id: 0,
        turn,
    };
    println!("{}", push(ours.address, &ours.token, &batch).await);
    ours.daemon.stop().await.unwrap();
}

async fn push(address: SocketAddr, token: &str, batch: &Batch) -> Pushed {
    client::push(address, token, batch, CONNECTIONS).await
}

/// The turns of both sides with one kind of batch.
#[derive(Default)]
struct Turns {
    ours: Vec<Pushed>,
    bare: Vec<Pushed>,
}

impl Turns {
    fn report(&self, size: usize, ids: Ids) {
        let kind = format!(
            "ingest, batches of {size}, {} ids, {CONNECTIONS} connections",
            ids.word()
        );
        println!("{kind}:");
        let mut shares = Vec::with_capacity(ROUNDS);
        for (ours, bare) in self.ours.iter().zip(&self.bare) {
            let share = 100.0 * ours.per_second() / bare.per_second();
            println!("  ours {ours}, bare {bare}: {share:.0} %");
            shares.push(share);
        }
        shares.sort_by(f64::total_cmp);
        let rate = |turns: &[Pushed]| {
            let requests: u64 = turns.iter().map(|turn| turn.requests).sum();
            requests as f64
                / turns
                    .iter()
                    .map(|turn| turn.elapsed.as_secs_f64())
                    .sum::<f64>()
        };
        let (ours, bare) = (rate(&self.ours), rate(&self.bare));
        let figure = |name: &str, value, unit, goal, against| {
            Figure {
                name: &format!("{kind}: {name}"),
                value,
                unit,
                goal,
                against,
                command: COMMAND,
            }
            .report();
        };
        figure("requests", ours, "1/s", Goal::None, Some(bare));
        figure(
            "readings",
            ours * size as f64,
            "1/s",
            Goal::None,
            Some(bare * size as f64),
        );
        // What a partner sends counts its ids up; the others are measured beside it. The two turns of a
        // pair follow each other, so that what goes on beside weighs on both alike.
        let goal = if ids == Ids::Sequential {
            Goal::AtLeast(50.0)
        } else {
            Goal::None
        };
        figure(
            &format!("share of the bare handler (median of {ROUNDS} pairs)"),
            shares[ROUNDS / 2],
            "%",
            goal,
            Some(100.0),
        );
        let cpu = |turns: &[Pushed]| {
            let readings: u64 = turns.iter().map(|turn| turn.requests * size as u64).sum();
            turns.iter().map(|turn| turn.cpu.as_secs_f64()).sum::<f64>() * 1e6 / readings as f64
        };
        figure(
            "processor time per reading, clients included",
            cpu(&self.ours),
            "us",
            Goal::None,
            Some(cpu(&self.bare)),
        );
    }
}
