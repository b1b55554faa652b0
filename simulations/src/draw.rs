//! Random numbers of the world: one seed, and a named stream for every purpose.
//!
//! A stream of its own for each purpose means that one more draw somewhere shifts no other. Only
//! integers and + - x / are used, nothing from libm, so that a seed means the same everywhere.

use sunward_core::time::Span;

/// One stream of draws.
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The stream called `name` of `seed`.
    pub fn new(seed: u64, name: &str) -> Draws {
        let state = name
            .bytes()
            .fold(mix(seed), |state, byte| mix(state ^ u64::from(byte)));
        Draws(state)
    }

    /// 64 random bits: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        finish(self.0)
    }

    /// A number in `0..1`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A whole number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        // The bias of a remainder is below 2^-50 for any n in use.
        (self.bits() % n as u64) as usize
    }

    /// A length of time from `low` to `high`, both included, to the millisecond.
    pub fn span(&mut self, low: Span, high: Span) -> Span {
        let width = (high - low).as_millis().max(0) as u64 + 1;
        low + Span::from_millis((self.bits() % width) as i64)
    }

    /// A length of time around `mean`: from a fifth of it to 1.8 times, evenly.
    pub fn around(&mut self, mean: Span) -> Span {
        let mean_ms = mean.as_millis().max(1);
        self.span(
            Span::from_millis(mean_ms / 5),
            Span::from_millis(mean_ms / 5 * 9),
        )
    }
}

fn mix(state: u64) -> u64 {
    finish(state.wrapping_add(0x9E37_79B9_7F4A_7C15))
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_their_own_and_repeat() {
        let draw = |seed, name| Draws::new(seed, name).bits();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }

    #[test]
    fn draws_keep_their_bounds_and_their_mean() {
        let mut draws = Draws::new(3, "bounds");
        let (low, high) = (Span::from_secs(1), Span::from_secs(3));
        let mut sum = 0.0;
        for _ in 0..10_000 {
            let span = draws.span(low, high);
            assert!((low..=high).contains(&span));
            sum += draws.unit();
            assert!(draws.below(7) < 7);
        }
        assert!((sum / 10_000.0 - 0.5).abs() < 0.02);
        assert_eq!(draws.below(0), 0);
    }
}
