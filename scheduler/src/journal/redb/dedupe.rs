//! The index of ids: what was seen within the last days, capped per source, oldest out first.
//!
//! On disk stands one entry per append, under its index: every id of the append, with the digest of
//! its body. Writing that is one insertion at the end of one table, whatever the ids look like; a
//! table keyed by id would dirty a page per random id. In memory stands where each id is, found by
//! a 64-bit hash that is keyed anew in every process; it is rebuilt from the entries on opening. An
//! id that the memory knows is read from its entry and compared, so that a hash never decides.
//!
//! Memory, as `cargo bench -p sunward --bench ingest` measures it: about 50 MiB for a million ids; where
//! every append has one id only, about 40 bytes more per id. An entry is deleted once none of its ids
//! counts any more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use ::redb::{ReadTransaction, ReadableTable as _, WriteTransaction};

use super::tables::{DEDUPE, Trouble, ids_len, seal_ids, unseal_ids};
use crate::journal::{
    BodyHash, DEDUPE_AGED_OUT_PER_APPEND_MAX, DEDUPE_IDS_MAX, DEDUPE_SOURCES_MAX, DedupeEntry,
    DedupeKey, aged_out,
};
use crate::keyed_hash::{ByHash, KeyedHash};

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

/// The keyed hash of a source and an id.
type Key = u64;

/// Parts of [`Places`]; each grows by itself.
const PARTS: usize = 256;

/// Where each id is. In parts, so that growing moves a few thousand places at once, which stay in the
/// processor's cache, and never a million, which would hold up a commit.
#[derive(Debug)]
struct Places {
    parts: Vec<ByHash<Place>>,
    len: usize,
}

impl Default for Places {
    fn default() -> Self {
        let mut parts = Vec::new();
        parts.resize_with(PARTS, ByHash::default);
        Places { parts, len: 0 }
    }
}

impl Places {
    /// Bits of the key that a part's own table does not look at first: it takes the lowest and the
    /// highest.
    fn part(key: Key) -> usize {
        (key >> 32) as usize % PARTS
    }

    fn get(&self, key: Key) -> Option<Place> {
        self.parts[Self::part(key)].get(&key).copied()
    }

    fn insert(&mut self, key: Key, place: Place) -> Option<Place> {
        let before = self.parts[Self::part(key)].insert(key, place);
        self.len += usize::from(before.is_none());
        before
    }

    fn remove(&mut self, key: Key) {
        let removed = self.parts[Self::part(key)].remove(&key);
        self.len -= usize::from(removed.is_some());
    }
}

/// An append whose entry is stored.
#[derive(Debug)]
struct Stored {
    at_ms: i64,
    /// Ids of it that still count.
    ids: u32,
}

/// What counts, whatever its source.
#[derive(Debug, Default)]
struct Known {
    places: Places,
    stored: BTreeMap<u64, Stored>,
    /// Entries without an id that counts, to be deleted with the next appends.
    spent: BTreeSet<u64>,
}

impl Known {
    /// An id is at `place` now; true when it was nowhere before.
    fn put(&mut self, key: Key, place: Place) -> bool {
        let before = self.places.insert(key, place);
        if let Some(before) = before {
            self.release(before);
        }
        before.is_none()
    }

    /// Forgets the id at `place`, unless it has moved on; returns its stamp.
    fn forget(&mut self, key: Key, place: Place) -> Option<i64> {
        if self.places.get(key) != Some(place) {
            return None;
        }
        self.places.remove(key);
        self.release(place)
    }

    /// One id of a stored append counts no more.
    fn release(&mut self, place: Place) -> Option<i64> {
        let index = place.index();
        let stored = self.stored.get_mut(&index)?;
        let at_ms = stored.at_ms;
        stored.ids -= 1;
        if stored.ids == 0 {
            self.stored.remove(&index);
            self.spent.insert(index);
        }
        Some(at_ms)
    }

    /// Whether what is at `place` is too old at `now_ms`. A place whose entry is spent is only the
    /// shadow of an id that came again or was forgotten.
    fn is_aged(&self, place: Place, now_ms: i64) -> bool {
        self.stored
            .get(&place.index())
            .is_none_or(|stored| aged_out(stored.at_ms, now_ms))
    }
}

/// The ids of one source, oldest first. An id that came again stands here twice; only the newer
/// place counts.
#[derive(Debug, Default)]
struct Source {
    by_age: VecDeque<(Key, Place)>,
    ids: u64,
}

impl Source {
    fn oldest(&self) -> Option<Place> {
        self.by_age.front().map(|(_, place)| *place)
    }

    /// Puts ids at `first` and the places after it.
    fn add(&mut self, first: Place, keys: &[Key], known: &mut Known) {
        // Looked up all at once before they are put one by one: the processor fetches what is far in
        // memory for many of them together.
        let new = keys.iter().filter(|key| known.places.get(**key).is_none());
        self.by_age.reserve(new.count());
        for (nth, key) in (0..).zip(keys) {
            let place = Place(first.0 + nth);
            self.by_age.push_back((*key, place));
            self.ids += u64::from(known.put(*key, place));
        }
    }

    /// Drops the `count` oldest places; returns how many ids were forgotten by that before they had
    /// aged out.
    fn evict(&mut self, count: u64, known: &mut Known, now_ms: i64) -> u64 {
        let count = self.by_age.len().min(count as usize);
        let oldest: Vec<(Key, Place)> = self.by_age.drain(..count).collect();
        // All at once, as above.
        let current = |(key, place): &(Key, Place)| known.places.get(*key) == Some(*place);
        let current: Vec<bool> = oldest.iter().map(current).collect();
        let mut evicted = 0;
        for ((key, place), _) in oldest
            .into_iter()
            .zip(current)
            .filter(|(_, current)| *current)
        {
            let at_ms = known.forget(key, place);
            self.ids = self.ids.saturating_sub(1);
            evicted += u64::from(at_ms.is_some_and(|at_ms| !aged_out(at_ms, now_ms)));
        }
        evicted
    }

    /// Drops the oldest place; returns the stamp of the id that was forgotten by that, if one was.
    fn drop_oldest(&mut self, known: &mut Known) -> Option<i64> {
        let (key, place) = self.by_age.pop_front()?;
        let at_ms = known.forget(key, place)?;
        self.ids = self.ids.saturating_sub(1);
        Some(at_ms)
    }

    /// Takes out the places of ids that came again, once there are many.
    fn sweep(&mut self, known: &Known) {
        if self.by_age.len() as u64 > 2 * self.ids + STALE_MAX {
            self.by_age
                .retain(|(key, place)| known.places.get(*key) == Some(*place));
        }
    }
}

/// The index in memory.
#[derive(Debug)]
pub(super) struct Ids {
    per_source_max: u64,
    hash: KeyedHash,
    known: Known,
    sources: HashMap<Arc<str>, Source>,
    /// The oldest place of each source.
    oldest: BTreeMap<Place, Arc<str>>,
}

impl Ids {
    fn new(per_source_max: u64) -> Ids {
        Ids {
            per_source_max,
            hash: KeyedHash::default(),
            known: Known::default(),
            sources: HashMap::new(),
            oldest: BTreeMap::new(),
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
                ids.known.spent.insert(index);
                continue;
            }
            let found = list.collect::<Result<Vec<_>, _>>()?;
            ids.take_in(index, at_ms, &found);
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
        if entries.is_empty() && self.known.spent.is_empty() {
            return Ok(());
        }
        let mut table = txn.open_table(DEDUPE)?;
        for index in self.known.spent.iter().take(ENTRIES_DELETED_PER_APPEND_MAX) {
            table.remove(index)?;
        }
        if !entries.is_empty() {
            let mut value = table.insert_reserve(index, ids_len(entries))?;
            seal_ids(index, at_ms, entries, value.as_mut());
        }
        Ok(())
    }

    /// Takes in the ids of an append that is durable, as [`Ids::store`] stored them. Returns how many
    /// ids were forgotten before their time.
    pub(super) fn remember(&mut self, index: u64, at_ms: i64, entries: &[DedupeEntry<'_>]) -> u64 {
        for _ in 0..self.known.spent.len().min(ENTRIES_DELETED_PER_APPEND_MAX) {
            self.known.spent.pop_first();
        }
        self.take_in(index, at_ms, entries)
    }

    /// Adds ids, and forgets what is too old or too many.
    fn take_in(&mut self, index: u64, at_ms: i64, entries: &[DedupeEntry<'_>]) -> u64 {
        self.forget_aged(at_ms);
        if !entries.is_empty() {
            let ids = entries.len() as u32;
            self.known.stored.insert(index, Stored { at_ms, ids });
        }
        let (mut evicted, mut nth) = (0, 0);
        for of_one_source in entries.chunk_by(|a, b| a.source == b.source) {
            evicted += self.add(Place::new(index, nth), at_ms, of_one_source);
            nth += of_one_source.len();
        }
        while (self.known.places.len > DEDUPE_IDS_MAX || self.sources.len() > DEDUPE_SOURCES_MAX)
            && let Some((_, source)) = self.oldest.first_key_value()
        {
            let source = Arc::clone(source);
            evicted += u64::from(self.drop_oldest(&source).is_some());
        }
        evicted
    }

    /// Adds the ids of one source that stand at `first` and after it; its oldest go where it has too
    /// many. Returns how many went before their time.
    fn add(&mut self, first: Place, now_ms: i64, entries: &[DedupeEntry<'_>]) -> u64 {
        let Some(name) = entries.first().map(|entry| entry.source) else {
            return 0;
        };
        if !self.sources.contains_key(name) {
            self.sources.insert(name.into(), Source::default());
        }
        let Some(source) = self.sources.get_mut(name) else {
            return 0;
        };
        let oldest = source.oldest();
        let key = |entry: &DedupeEntry<'_>| self.hash.of(entry.source, entry.id);
        let keys: Vec<Key> = entries.iter().map(key).collect();
        source.add(first, &keys, &mut self.known);
        source.sweep(&self.known);
        let mut evicted = 0;
        while source.ids > self.per_source_max && !source.by_age.is_empty() {
            let over = source.ids - self.per_source_max;
            evicted += source.evict(over, &mut self.known, now_ms);
        }
        self.note_oldest(name, oldest);
        evicted
    }

    /// Notes what the oldest place of a source is, where it was `before`; a source without ids goes.
    fn note_oldest(&mut self, name: &str, before: Option<Place>) {
        let Some((known_as, source)) = self.sources.get_key_value(name) else {
            return;
        };
        let oldest = source.oldest();
        if oldest == before {
            return;
        }
        let known_as = Arc::clone(known_as);
        if let Some(before) = before {
            self.oldest.remove(&before);
        }
        match oldest {
            Some(oldest) => {
                self.oldest.insert(oldest, known_as);
            }
            None => {
                self.sources.remove(name);
            }
        }
    }

    fn forget_aged(&mut self, now_ms: i64) {
        for _ in 0..DEDUPE_AGED_OUT_PER_APPEND_MAX {
            let Some((place, source)) = self.oldest.first_key_value() else {
                return;
            };
            if !self.known.is_aged(*place, now_ms) {
                return;
            }
            let source = Arc::clone(source);
            self.drop_oldest(&source);
        }
    }

    fn drop_oldest(&mut self, name: &str) -> Option<i64> {
        let source = self.sources.get_mut(name)?;
        let oldest = source.oldest();
        let at_ms = source.drop_oldest(&mut self.known);
        self.note_oldest(name, oldest);
        at_ms
    }

    /// Where each key may be, without what has aged out at `now_ms`.
    pub(super) fn places(&self, keys: &[DedupeKey<'_>], now_ms: i64) -> Vec<Option<u64>> {
        let place = |key: &DedupeKey<'_>| {
            let place = self.known.places.get(self.hash.of(key.source, key.id))?;
            (!self.known.is_aged(place, now_ms)).then_some(place.0)
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
