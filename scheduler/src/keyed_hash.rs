//! A fast keyed hash of a source and an id, for tables in memory.
//!
//! Keyed anew in every process, so that nobody can choose ids that collide. A hash only ever says where
//! to look: whoever finds something compares it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};

/// A table by [`KeyedHash`]; its keys are hashes already.
pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Unhashed>>;

/// The hash function of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedHash {
    key: [u64; 2],
}

impl Default for KeyedHash {
    /// With a key that the operating system's randomness gives.
    fn default() -> Self {
        let random = RandomState::new();
        KeyedHash {
            key: [random.hash_one(0), random.hash_one(1)],
        }
    }
}

impl KeyedHash {
    /// The hash of an id of a source: eight bytes at a time, multiplied and folded as in wyhash (Wang
    /// Yi). Each text's length goes in with its last bytes, so that the two never run into one another.
    pub(crate) fn of(self, source: &str, id: &str) -> u64 {
        self.text(self.text(self.key[0], source), id)
    }

    fn text(self, hash: u64, text: &str) -> u64 {
        let (chunks, rest) = text.as_bytes().as_chunks::<8>();
        let hash = chunks.iter().fold(hash, |hash, chunk| {
            self.mix(hash, u64::from_le_bytes(*chunk))
        });
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(hash, u64::from_le_bytes(last) ^ (text.len() as u64) << 56)
    }

    fn mix(self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash ^ word) * u128::from(self.key[1] | 1);
        (product as u64) ^ (product >> 64) as u64
    }
}

/// Hands a key of [`ByHash`] on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn near_ids_lie_apart_and_texts_do_not_run_together() {
        let hash = KeyedHash::default();
        let mut seen = BTreeSet::new();
        for source in ["", "a", "meter", "utility-1"] {
            for n in 0..10_000 {
                assert!(seen.insert(hash.of(source, &format!("meter-{n:024}"))));
            }
        }
        // Evenly spread over the bits that a table looks at: the lowest, and the seven highest.
        let mut low = [0_u32; 64];
        let mut high = [0_u32; 128];
        for hash in &seen {
            low[(hash % 64) as usize] += 1;
            high[(hash >> 57) as usize] += 1;
        }
        assert!(
            low.iter().all(|count| (400..900).contains(count)),
            "{low:?}"
        );
        assert!(
            high.iter().all(|count| (180..460).contains(count)),
            "{high:?}"
        );
        assert_ne!(hash.of("ab", "c"), hash.of("a", "bc"));
        assert_ne!(hash.of("", "a"), hash.of("a", ""));
        assert_ne!(hash.of("a", "b"), KeyedHash::default().of("a", "b"));
    }
}
