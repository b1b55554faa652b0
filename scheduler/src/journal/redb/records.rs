//! Storing records with their decisions, and removing both.

use ::redb::{ReadableTable, WriteTransaction};

use super::tables::{
    DECISIONS, META, RECORDS, TRUNCATED_AT_KEY, Trouble, record_len, seal_decision, seal_record,
    seal_text, unseal_record,
};
use crate::journal::{Append, DecisionRecord};

/// Stores the record of an append.
pub(super) fn store_record(
    txn: &WriteTransaction,
    index: u64,
    entry: &Append<'_>,
) -> Result<(), Trouble> {
    let mut records = txn.open_table(RECORDS)?;
    let mut value = records.insert_reserve(index, record_len(entry.record.len()))?;
    seal_record(index, entry.at_ms, entry.record, value.as_mut());
    Ok(())
}

/// Stores decision records; the same key again replaces the entry.
pub(super) fn store_decisions(
    txn: &WriteTransaction,
    decisions: &[DecisionRecord],
) -> Result<(), Trouble> {
    if decisions.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(DECISIONS)?;
    for decision in decisions {
        let key = (
            decision.pool.as_str(),
            decision.at_ms,
            decision.index,
            decision.ordinal,
        );
        table.insert(key, seal_decision(key, &decision.bytes).as_slice())?;
    }
    Ok(())
}

/// Removes the records of `first..end` and the decisions they caused, but for the newest of each pool
/// that `stands`.
pub(super) fn remove_before(
    txn: &WriteTransaction,
    first: u64,
    end: u64,
    stands: &dyn Fn(&str) -> bool,
) -> Result<(), Trouble> {
    let mut records = txn.open_table(RECORDS)?;
    let last = end - 1;
    let last_at_ms = match records.get(last)? {
        Some(value) => unseal_record(last, value.value())?.0,
        None => return Err(Trouble::at(last, "the record is missing")),
    };
    records.retain_in(first..end, |_, _| false)?;
    let stamp = seal_text(TRUNCATED_AT_KEY, &last_at_ms.to_le_bytes());
    txn.open_table(META)?
        .insert(TRUNCATED_AT_KEY, stamp.as_slice())?;
    let mut decisions = txn.open_table(DECISIONS)?;
    // One range per pool, as a pool's decisions lie together, ordered by time.
    let mut after = String::new();
    while let Some(pool) = first_pool(&decisions, &after)? {
        let name = pool.as_str();
        let cut = (name, last_at_ms, end, 0);
        let before = (name, i64::MIN, 0, 0)..cut;
        let newest = match decisions.range(before.clone())?.next_back() {
            Some(entry) => Some(entry?.0.value()).map(|(_, at, index, nth)| (at, index, nth)),
            None => None,
        };
        match newest {
            Some((at, index, nth)) if stands(name) => {
                let older = (name, i64::MIN, 0, 0)..(name, at, index, nth);
                decisions.retain_in(older, |_, _| false)?;
            }
            Some(_) => decisions.retain_in(before, |_, _| false)?,
            None => {}
        }
        // A text followed by a zero byte is the first text after it.
        after = pool + "\0";
    }
    Ok(())
}

/// The first pool with decisions whose name is `from` or after it.
fn first_pool(
    decisions: &impl ReadableTable<(&'static str, i64, u64, u32), &'static [u8]>,
    from: &str,
) -> Result<Option<String>, Trouble> {
    let Some(entry) = decisions.range((from, i64::MIN, 0, 0)..)?.next() else {
        return Ok(None);
    };
    Ok(Some(entry?.0.value().0.to_owned()))
}
