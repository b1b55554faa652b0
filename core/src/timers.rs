//! When each pool is to be looked at again: one instant per pool, the earliest at hand.
//!
//! A heap that knows where each pool stands in it, so that an instant is moved in place: almost
//! every reading moves the one of the pool that it touches, and nothing is allocated for that.
//! It says only which pools are due; their order among themselves is nobody's concern here.

use sunward_policies::time::Timestamp;

/// Children of a node: four lie in one line of the cache, and the heap is half as deep as with two.
const ARITY: usize = 4;

/// The place of a pool that has no instant.
const NOWHERE: u32 = u32::MAX;

/// One instant per pool at most, for as many pools as the fleet has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    /// Ordered as a heap by the instant.
    heap: Vec<(Timestamp, u32)>,
    /// By pool: its position in the heap.
    places: Vec<u32>,
}

impl Timers {
    /// Those instants, each with its pool, for pools below `pools`.
    pub(crate) fn new(pools: usize, due: impl Iterator<Item = (Timestamp, u32)>) -> Timers {
        let mut timers = Timers {
            heap: Vec::with_capacity(pools),
            places: vec![NOWHERE; pools],
        };
        for (at, pool) in due {
            timers.set(pool, at);
        }
        timers
    }

    /// The earliest instant.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// The pool is due at `at`, whatever was said of it before.
    pub(crate) fn set(&mut self, pool: u32, at: Timestamp) {
        let Some(place) = self.places.get(pool as usize).copied() else {
            return;
        };
        if place == NOWHERE {
            self.heap.push((at, pool));
            return self.rise(self.heap.len() - 1);
        }
        let place = place as usize;
        let before = std::mem::replace(&mut self.heap[place].0, at);
        if at < before {
            self.rise(place);
        } else {
            self.sink(place);
        }
    }

    /// Takes out a pool that is due at `now` or earlier.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<u32> {
        let (at, pool) = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.heap.swap_remove(0);
        self.places[pool as usize] = NOWHERE;
        if !self.heap.is_empty() {
            self.sink(0);
        }
        Some(pool)
    }

    fn put(&mut self, place: usize, entry: (Timestamp, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }

    /// The entry at `place` moves up to where it belongs.
    fn rise(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].0 <= entry.0 {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// The entry at `place` moves down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let end = (first + ARITY).min(self.heap.len());
            let Some(child) = (first..end).min_by_key(|child| self.heap[*child].0) else {
                break;
            };
            if self.heap[child].0 >= entry.0 {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const POOLS: u32 = 40;

    proptest! {
        /// Against a map that is searched: the same instants, the same pools due.
        #[test]
        fn what_is_due_is_what_a_plain_map_says(
            steps in prop::collection::vec((0..POOLS, 0..60_i64, any::<bool>()), 1..300),
        ) {
            let mut timers = Timers::new(POOLS as usize, std::iter::empty());
            let mut plain: BTreeMap<u32, Timestamp> = BTreeMap::new();
            for (pool, ms, set) in steps {
                let at = Timestamp::from_millis(ms);
                if set {
                    timers.set(pool, at);
                    plain.insert(pool, at);
                } else {
                    let mut due: Vec<u32> = std::iter::from_fn(|| timers.pop_due(at)).collect();
                    due.sort_unstable();
                    let expected: Vec<u32> =
                        plain.extract_if(.., |_, known| *known <= at).map(|(pool, _)| pool).collect();
                    prop_assert_eq!(due, expected);
                }
                prop_assert_eq!(timers.first(), plain.values().min().copied());
            }
        }
    }
}
