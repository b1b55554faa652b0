//! The index of ids: what was seen within the last days, capped per source, oldest out first.

use std::collections::BTreeMap;

use ::redb::{ReadTransaction, ReadableTable, Table, WriteTransaction};

use super::tables::{
    DEDUPE_AGES, DEDUPE_IDS, DEDUPE_SOURCES, Remembered, Trouble, seal_age, seal_text, unseal_age,
    unseal_number,
};
use crate::journal::{BodyHash, DEDUPE_AGED_OUT_PER_APPEND_MAX, DedupeEntry, DedupeKey, aged_out};

/// Room for the entries of one append in the order of all entries: 2^20 per index.
const ORDER_BITS: u32 = 20;

struct Tables<'t> {
    ids: Table<'t, (&'static str, &'static str), &'static [u8]>,
    ages: Table<'t, (&'static str, u64), &'static [u8]>,
    sources: Table<'t, &'static str, &'static [u8]>,
}

/// Stores the ids of one append and forgets what is over the cap or aged out, in the sources that
/// were touched and in one more: the first after `swept`, which is moved on, so that in time every
/// source is swept although no commit ever does much. Returns how many were evicted before
/// their time.
pub(super) fn remember(
    txn: &WriteTransaction,
    (index, at_ms): (u64, i64),
    entries: &[DedupeEntry<'_>],
    ids_per_source_max: u64,
    swept: &mut String,
) -> Result<u64, Trouble> {
    if entries.is_empty() {
        return Ok(0);
    }
    let mut tables = Tables {
        ids: txn.open_table(DEDUPE_IDS)?,
        ages: txn.open_table(DEDUPE_AGES)?,
        sources: txn.open_table(DEDUPE_SOURCES)?,
    };
    // How many ids each touched source had before this append, and has now.
    let mut touched = BTreeMap::new();
    if let Some(source) = tables.next_source(swept)? {
        let count = tables.count(&source)?;
        touched.insert(source, (count, count));
    }
    for (nth, entry) in entries.iter().enumerate() {
        let order = (index << ORDER_BITS) + nth as u64;
        let added = u64::from(tables.store(entry, at_ms, order)?);
        if let Some((_, now)) = touched.get_mut(entry.source) {
            *now += added;
        } else {
            let count = tables.count(entry.source)?;
            touched.insert(entry.source.to_owned(), (count, count + added));
        }
    }
    let mut evicted = 0;
    for (source, (before, mut now)) in touched {
        evicted += tables.forget(&source, at_ms, ids_per_source_max, &mut now)?;
        if now != before {
            tables.set_count(&source, now)?;
        }
    }
    Ok(evicted)
}

impl Tables<'_> {
    fn count(&self, source: &str) -> Result<u64, Trouble> {
        let value = self.sources.get(source)?;
        value.map_or(Ok(0), |value| {
            unseal_number("the count of source", source, value.value())
        })
    }

    fn set_count(&mut self, source: &str, count: u64) -> Result<(), Trouble> {
        if count == 0 {
            self.sources.remove(source)?;
        } else {
            let value = seal_text(source, &count.to_le_bytes());
            self.sources.insert(source, value.as_slice())?;
        }
        Ok(())
    }

    fn next_source(&self, swept: &mut String) -> Result<Option<String>, Trouble> {
        // A text followed by a zero byte is the first text after it.
        let after = format!("{swept}\0");
        let next = self.sources.range(after.as_str()..)?.next();
        let next = match next {
            Some(entry) => Some(entry?.0.value().to_owned()),
            None => None,
        };
        *swept = next.clone().unwrap_or_default();
        Ok(next)
    }

    /// Stores one id as its source's newest. Returns whether it was not there before.
    fn store(&mut self, entry: &DedupeEntry<'_>, at_ms: i64, order: u64) -> Result<bool, Trouble> {
        let (source, id) = (entry.source, entry.id);
        let remembered = Remembered {
            hash: entry.hash,
            at_ms,
            order,
        };
        let value = remembered.seal(source, id);
        let replaced = match self.ids.insert((source, id), value.as_slice())? {
            Some(old) => Some(Remembered::unseal(source, id, old.value())?.order),
            None => None,
        };
        if let Some(old_order) = replaced {
            self.ages.remove((source, old_order))?;
        }
        let value = seal_age(source, order, id);
        self.ages.insert((source, order), value.as_slice())?;
        Ok(replaced.is_none())
    }

    /// Forgets what is over `max` or aged out, oldest first, and counts `count` down. Returns how
    /// many went before their time.
    fn forget(
        &mut self,
        source: &str,
        now_ms: i64,
        max: u64,
        count: &mut u64,
    ) -> Result<u64, Trouble> {
        let mut evicted = 0;
        let mut aged_left = DEDUPE_AGED_OUT_PER_APPEND_MAX;
        while let Some((order, id, aged)) = self.oldest(source, now_ms)? {
            if *count <= max && (!aged || aged_left == 0) {
                break;
            }
            aged_left = aged_left.saturating_sub(usize::from(aged));
            evicted += u64::from(!aged);
            self.ages.remove((source, order))?;
            self.ids.remove((source, id.as_str()))?;
            *count = count.checked_sub(1).ok_or_else(|| {
                Trouble::broken(format!("source {source:?} has more ids than counted"))
            })?;
        }
        Ok(evicted)
    }

    /// The oldest id of a source: its order, the id, and whether it has aged out.
    fn oldest(&self, source: &str, now_ms: i64) -> Result<Option<(u64, String, bool)>, Trouble> {
        let Some(entry) = self.ages.range((source, 0)..=(source, u64::MAX))?.next() else {
            return Ok(None);
        };
        let (key, value) = entry?;
        let order = key.value().1;
        let id = unseal_age(source, order, value.value())?.to_owned();
        let Some(value) = self.ids.get((source, id.as_str()))? else {
            return Err(Trouble::broken(format!(
                "id {id:?} of source {source:?} is in one index of ids but not in the other"
            )));
        };
        let remembered = Remembered::unseal(source, &id, value.value())?;
        Ok(Some((order, id, aged_out(remembered.at_ms, now_ms))))
    }
}

/// The digests stored for `keys`, without what has aged out at `now_ms`.
pub(super) fn seen(
    txn: &ReadTransaction,
    keys: &[DedupeKey<'_>],
    now_ms: i64,
) -> Result<Vec<Option<BodyHash>>, Trouble> {
    let ids = txn.open_table(DEDUPE_IDS)?;
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let hash = match ids.get((key.source, key.id))? {
            Some(value) => {
                let remembered = Remembered::unseal(key.source, key.id, value.value())?;
                (!aged_out(remembered.at_ms, now_ms)).then_some(remembered.hash)
            }
            None => None,
        };
        found.push(hash);
    }
    Ok(found)
}
