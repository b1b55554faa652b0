//! What a source with a full memory of ids costs: resident memory, and time to open the journal.

use std::path::Path;
use std::time::Instant;

use sunward::journal::{
    Append, DEDUPE_ENTRIES_PER_APPEND_MAX, DEDUPE_IDS_PER_SOURCE_MAX, DedupeEntry, Journal as _,
    Options, Redb,
};

use crate::COMMAND;
use crate::figures::{Figure, Goal};
use crate::idle::{child, resident_mib};

/// The argument that makes this program the one that is measured.
pub const ARGUMENT: &str = "--ids";

/// Measures in a process of its own.
pub fn measure() {
    let numbers = child(&[ARGUMENT, &DEDUPE_IDS_PER_SOURCE_MAX.to_string()]);
    let figure = |name, value, unit| {
        Figure {
            name,
            value,
            unit,
            goal: Goal::None,
            against: None,
            command: COMMAND,
        }
        .report();
    };
    figure("memory of a million ids of one source", numbers[0], "MiB");
    figure("opening a journal with a million ids", numbers[1], "s");
}

/// Fills a journal with `ids` ids and opens it again; prints memory in MiB, and seconds.
pub fn run(folder: &Path, ids: usize) {
    let path = folder.join("ids.redb");
    // Few pages in memory, so that what grows is the index.
    let options = Options {
        cache_bytes: 1024 * 1024,
        ..Options::default()
    };
    let mut journal = Redb::open(&path, options.clone()).unwrap();
    let before = resident_mib();
    let names: Vec<String> = (0..DEDUPE_ENTRIES_PER_APPEND_MAX)
        .map(|_| String::new())
        .collect();
    let (mut names, mut written) = (names, 0);
    while written < ids {
        let room = (ids - written).min(names.len());
        for (nth, name) in names[..room].iter_mut().enumerate() {
            *name = format!("meter-{:024}", written + nth);
        }
        let entry = |id| DedupeEntry {
            source: "utility",
            id,
            hash: [7; 32],
        };
        let dedupe: Vec<_> = names[..room].iter().map(|name| entry(name)).collect();
        let append = Append {
            at_ms: 1,
            record: b"r",
            dedupe: &dedupe,
            decisions: &[],
        };
        journal.append(journal.last_index(), &append).unwrap();
        written += room;
    }
    assert_eq!(journal.dedupe_evictions(), 0);
    let grown = resident_mib() - before;
    journal.close().unwrap();
    let began = Instant::now();
    Redb::open(&path, options).unwrap();
    println!("{grown:.1}");
    println!("{:.3}", began.elapsed().as_secs_f64());
}
