//! The index of ids: what was seen within the last days, capped per source, oldest out first.
//!
//! On disk stands one entry per append, under its index: every id of the append, with the digest of
//! its body. Writing that is one insertion at the end of one table, whatever the ids look like; a
//! table keyed by id would dirty a page per random id. In memory stands where each id is, found by
//! a 64-bit hash that is keyed anew in every process; it is rebuilt from the entries on opening. An
//! id that the memory knows is read from its entry and compared, so that a hash never decides.
//!
//! Memory, measured with `memory_of_a_million_ids`: about 60 bytes per id where appends are large,
//! 110 where each has one id. An entry is deleted once none of its ids counts any more.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use ::redb::{ReadTransaction, ReadableTable as _, WriteTransaction};

use super::tables::{DEDUPE, Trouble, seal_ids, unseal_ids};
use crate::journal::{
    BodyHash, DEDUPE_AGED_OUT_PER_APPEND_MAX, DEDUPE_IDS_MAX, DEDUPE_SOURCES_MAX, DedupeEntry,
    DedupeKey, aged_out,
};

/// Room for the ids of one append in the order of all ids: 2^20 per index.
const ORDER_BITS: u32 = 20;
/// Entries deleted by one append, so that no commit grows with the length of a pause.
const ENTRIES_DELETED_PER_APPEND_MAX: usize = 256;
/// Places of ids that came again, beyond as many as there are ids, before they are swept out.
const STALE_MAX: u64 = 1_024;

/// Where an id is: the index of its append, and its position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

impl Place {
    fn new(index: u64, nth: usize) -> Place {
        Place((index << ORDER_BITS) + nth as u64)
    }

    fn index(self) -> u64 {
        self.0 >> ORDER_BITS
    }

    fn nth(self) -> usize {
        (self.0 & ((1 << ORDER_BITS) - 1)) as usize
    }
}

/// The ids of one source, oldest first. An id that came again stands here twice; only the newer
/// place counts.
#[derive(Debug, Default)]
struct Source {
    by_age: VecDeque<(u64, Place)>,
    ids: u64,
}

/// An append whose entry is stored.
#[derive(Debug)]
struct Stored {
    at_ms: i64,
    /// Ids of it that still count.
    ids: u32,
}

/// The index in memory.
#[derive(Debug)]
pub(super) struct Ids {
    per_source_max: u64,
    hasher: RandomState,
    places: HashMap<u64, Place>,
    sources: HashMap<Arc<str>, Source>,
    /// The oldest place of each source.
    oldest: BTreeMap<Place, Arc<str>>,
    stored: BTreeMap<u64, Stored>,
    /// Entries without an id that counts, to be deleted with the next appends.
    spent: BTreeSet<u64>,
}

impl Ids {
    fn new(per_source_max: u64) -> Ids {
        Ids {
            per_source_max,
            hasher: RandomState::new(),
            places: HashMap::new(),
            sources: HashMap::new(),
            oldest: BTreeMap::new(),
            stored: BTreeMap::new(),
            spent: BTreeSet::new(),
        }
    }

    /// Reads every entry of a journal whose newest stamp is `now_ms`.
    pub(super) fn read(
        txn: &ReadTransaction,
        per_source_max: u64,
        now_ms: i64,
    ) -> Result<Ids, Trouble> {
        let mut ids = Ids::new(per_source_max);
        for entry in txn.open_table(DEDUPE)?.iter()? {
            let (index, value) = entry?;
            let index = index.value();
            let (at_ms, list) = unseal_ids(index, value.value())?;
            if aged_out(at_ms, now_ms) {
                ids.spent.insert(index);
                continue;
            }
            let mut found = Vec::new();
            for id in list {
                found.push(id?);
            }
            ids.remember(index, at_ms, &found);
        }
        Ok(ids)
    }

    /// Stores the ids of one append, and deletes entries that are spent. The index in memory does
    /// not change before [`Ids::remember`].
    pub(super) fn store(
        &self,
        txn: &WriteTransaction,
        (index, at_ms): (u64, i64),
        entries: &[DedupeEntry<'_>],
    ) -> Result<(), Trouble> {
        if entries.is_empty() && self.spent.is_empty() {
            return Ok(());
        }
        let mut table = txn.open_table(DEDUPE)?;
        for index in self.spent.iter().take(ENTRIES_DELETED_PER_APPEND_MAX) {
            table.remove(index)?;
        }
        if !entries.is_empty() {
            table.insert(index, seal_ids(index, at_ms, entries).as_slice())?;
        }
        Ok(())
    }

    /// Takes in the ids of an append that is durable, and forgets what is too old or too many.
    /// Returns how many ids were forgotten before their time.
    pub(super) fn remember(&mut self, index: u64, at_ms: i64, entries: &[DedupeEntry<'_>]) -> u64 {
        for _ in 0..self.spent.len().min(ENTRIES_DELETED_PER_APPEND_MAX) {
            self.spent.pop_first();
        }
        if !entries.is_empty() {
            let ids = entries.len() as u32;
            self.stored.insert(index, Stored { at_ms, ids });
        }
        for (nth, entry) in entries.iter().enumerate() {
            self.add(entry.source, entry.id, Place::new(index, nth));
        }
        self.forget_aged(at_ms);
        let mut evicted = 0;
        for entry in entries {
            while self.source_over_its_cap(entry.source) {
                evicted += u64::from(self.drop_oldest(entry.source));
            }
        }
        while (self.places.len() > DEDUPE_IDS_MAX || self.sources.len() > DEDUPE_SOURCES_MAX)
            && let Some((_, source)) = self.oldest.first_key_value()
        {
            let source = Arc::clone(source);
            evicted += u64::from(self.drop_oldest(&source));
        }
        evicted
    }

    fn source_over_its_cap(&self, source: &str) -> bool {
        self.sources
            .get(source)
            .is_some_and(|source| source.ids > self.per_source_max)
    }

    fn key(&self, source: &str, id: &str) -> u64 {
        self.hasher.hash_one((source, id))
    }

    fn add(&mut self, source: &str, id: &str, place: Place) {
        let key = self.key(source, id);
        if !self.sources.contains_key(source) {
            self.sources.insert(source.into(), Source::default());
            let (name, _) = self.sources.get_key_value(source).expect("just inserted");
            self.oldest.insert(place, Arc::clone(name));
        }
        let of = self.sources.get_mut(source).expect("inserted above");
        of.by_age.push_back((key, place));
        match self.places.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(place);
                of.ids += 1;
            }
            Entry::Occupied(mut occupied) => {
                let before = occupied.insert(place);
                if of.by_age.len() as u64 > 2 * of.ids + STALE_MAX {
                    self.sweep(source);
                }
                self.release(before);
            }
        }
    }

    /// Takes out the places of ids that came again.
    fn sweep(&mut self, source: &str) {
        let Some(of) = self.sources.get_mut(source) else {
            return;
        };
        let name = of
            .by_age
            .front()
            .and_then(|(_, first)| self.oldest.remove(first));
        let places = &self.places;
        of.by_age
            .retain(|(key, place)| places.get(key) == Some(place));
        if let (Some(name), Some((_, first))) = (name, of.by_age.front()) {
            self.oldest.insert(*first, name);
        }
    }

    /// One id of a stored append counts no more.
    fn release(&mut self, place: Place) {
        let index = place.index();
        let Some(stored) = self.stored.get_mut(&index) else {
            return;
        };
        stored.ids -= 1;
        if stored.ids == 0 {
            self.stored.remove(&index);
            self.spent.insert(index);
        }
    }

    fn forget_aged(&mut self, now_ms: i64) {
        for _ in 0..DEDUPE_AGED_OUT_PER_APPEND_MAX {
            let Some((place, source)) = self.oldest.first_key_value() else {
                return;
            };
            if !self.is_aged(*place, now_ms) {
                return;
            }
            let source = Arc::clone(source);
            self.drop_oldest(&source);
        }
    }

    /// A place whose entry is spent counts as aged: it is only the shadow of an id that came again.
    fn is_aged(&self, place: Place, now_ms: i64) -> bool {
        self.stored
            .get(&place.index())
            .is_none_or(|stored| aged_out(stored.at_ms, now_ms))
    }

    /// Drops the oldest place of a source; true when an id was forgotten by that.
    fn drop_oldest(&mut self, source: &str) -> bool {
        let Some(of) = self.sources.get_mut(source) else {
            return false;
        };
        let Some((key, place)) = of.by_age.pop_front() else {
            return false;
        };
        let name = self.oldest.remove(&place);
        let counts = self.places.get(&key) == Some(&place);
        if counts {
            self.places.remove(&key);
            of.ids = of.ids.saturating_sub(1);
        }
        match (of.by_age.front(), name) {
            (Some((_, next)), Some(name)) => {
                self.oldest.insert(*next, name);
            }
            _ => {
                self.sources.remove(source);
            }
        }
        if counts {
            self.release(place);
        }
        counts
    }

    /// Where each key may be, without what has aged out at `now_ms`.
    pub(super) fn places(&self, keys: &[DedupeKey<'_>], now_ms: i64) -> Vec<Option<u64>> {
        let place = |key: &DedupeKey<'_>| {
            let place = *self.places.get(&self.key(key.source, key.id))?;
            (!self.is_aged(place, now_ms)).then_some(place.0)
        };
        keys.iter().map(place).collect()
    }
}

/// The digests stored for `keys` at `places`.
pub(super) fn seen(
    txn: &ReadTransaction,
    keys: &[DedupeKey<'_>],
    places: &[Option<u64>],
) -> Result<Vec<Option<BodyHash>>, Trouble> {
    let table = txn.open_table(DEDUPE)?;
    let mut found = vec![None; keys.len()];
    // A repeated request meets the ids of one append, in their order: each entry is read once.
    let mut asked: Vec<(Place, usize)> = places
        .iter()
        .enumerate()
        .filter_map(|(position, place)| Some((Place((*place)?), position)))
        .collect();
    asked.sort_unstable();
    for same in asked.chunk_by(|(a, _), (b, _)| a.index() == b.index()) {
        let index = same[0].0.index();
        let Some(value) = table.get(index)? else {
            return Err(Trouble::broken(format!(
                "the ids of index {index} are missing"
            )));
        };
        let (_, list) = unseal_ids(index, value.value())?;
        let mut wanted = same.iter().peekable();
        for (nth, id) in list.enumerate() {
            let id = id?;
            while let Some((_, position)) = wanted.next_if(|(place, _)| place.nth() == nth) {
                let key = &keys[*position];
                if id.source == key.source && id.id == key.id {
                    found[*position] = Some(id.hash);
                }
            }
        }
        if wanted.peek().is_some() {
            return Err(Trouble::broken(format!(
                "the ids of index {index} are too few"
            )));
        }
    }
    Ok(found)
}
