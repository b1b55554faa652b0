//! Whether anything was scaled twice: the moves that happened against the writes that the journal decided.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// A generation, and the replicas that it stands for.
pub type Write = (u64, u64);

/// The writes of one pool in what `sunward replay` prints, each generation once.
///
/// # Errors
/// When a generation falls, or says two numbers.
pub fn decided(replayed: &Value, pool: &str) -> Result<Vec<Write>> {
    let mut writes: Vec<Write> = Vec::new();
    let scales = replayed["scales"].as_array().context("no scales")?;
    for scale in scales.iter().filter(|scale| scale["pool"] == pool) {
        let number = |key: &str| {
            scale[key]
                .as_u64()
                .with_context(|| format!("no {key} in {scale}"))
        };
        let write = (number("generation")?, number("replicas")?);
        match writes.last() {
            // A retry, or the same write derived anew after a restart.
            Some(last) if *last == write => {}
            Some(last) if last.0 >= write.0 => {
                bail!(
                    "{write:?} comes after {last:?}: a generation says one number, and none comes back"
                )
            }
            _ => writes.push(write),
        }
    }
    Ok(writes)
}

/// Checks that `moves`, the values that a pool's replicas took one after the other (without the one it was created with), are
/// a subsequence of the decided writes, each used at most once.
///
/// # Errors
/// The first move that no write is left for.
pub fn attribute(moves: &[u64], decided: &[Write]) -> Result<()> {
    let mut unused = decided.iter();
    for (number, &replicas) in moves.iter().enumerate() {
        // The earliest write that fits leaves the most for the moves that follow.
        ensure!(
            unused.any(|write| write.1 == replicas),
            "move {number}, to {replicas}, has no generation of its own: moves {moves:?}, decided {decided:?}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn scales(writes: &[(&str, u64, u64)]) -> Value {
        let scales: Vec<Value> = writes
            .iter()
            .map(|(pool, generation, replicas)| json!({"pool": pool, "generation": generation, "replicas": replicas}))
            .collect();
        json!({ "scales": scales })
    }

    #[test]
    fn retries_are_one_write_and_other_pools_none() {
        let replayed = scales(&[("a", 1, 3), ("a", 1, 3), ("b", 9, 9), ("a", 2, 0)]);
        assert_eq!(decided(&replayed, "a").unwrap(), [(1, 3), (2, 0)]);
        assert!(decided(&scales(&[("a", 1, 3), ("a", 1, 0)]), "a").is_err());
        assert!(decided(&scales(&[("a", 2, 3), ("a", 1, 0)]), "a").is_err());
    }

    #[test]
    fn each_write_moves_at_most_once() {
        let decided = [(1, 3), (2, 0), (3, 3)];
        for moves in [&[][..], &[3], &[3, 0], &[3, 0, 3], &[0, 3], &[3, 3]] {
            assert!(attribute(moves, &decided).is_ok(), "{moves:?}");
        }
        for moves in [&[0, 0][..], &[3, 3, 3], &[3, 0, 3, 0], &[1], &[0, 3, 0]] {
            assert!(attribute(moves, &decided).is_err(), "{moves:?}");
        }
    }
}
