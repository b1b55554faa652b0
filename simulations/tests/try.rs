#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]
mod common;
use sunward_simulations::world::{Options, run};
#[test]
fn try_one() {
    let name = std::env::var("SCEN").unwrap_or("storm".into());
    let seed: u64 = std::env::var("SEED").map_or(1, |s| s.parse().unwrap());
    let seeds: u64 = std::env::var("SEEDS").map_or(1, |s| s.parse().unwrap());
    let s = common::scenario(&name);
    let mut total = 0;
    for seed in seed..seed + seeds {
        let t = std::time::Instant::now();
        let o = run(
            &s,
            &Options {
                seed,
                transcript: seeds == 1,
                unchecked: std::env::var_os("UNCHECKED").is_some(),
                ..Options::default()
            },
        );
        if seeds == 1 {
            std::fs::write("/tmp/wt/transcript.txt", &o.transcript).unwrap();
            println!("{:?}", o.faults);
        }
        total += o.violations.len();
        if seeds == 1 || !o.violations.is_empty() {
            println!(
                "seed {seed}: index {} faults {} took {:?} judged {}",
                o.index,
                o.faults.total(),
                t.elapsed(),
                o.judged_pools
            );
            for v in o.violations.iter().take(4) {
                println!("  {} {}: {}", v.at, v.rule, v.detail);
            }
        }
    }
    println!("total {total}");
}
