//! Random numbers as an argument: one seed, and a stream of its own for every purpose.
//!
//! A draw is a pure function of (seed, purpose, key), so that one more draw somewhere shifts no
//! other, and nothing has to be kept in the state.

/// What a draw is for. Each purpose has its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Spreading retries, so that many pools do not try again in step.
    RetryJitter,
}

impl Purpose {
    fn tag(self) -> u64 {
        match self {
            Purpose::RetryJitter => 0x7265_7472_795f_6a69,
        }
    }
}

/// A number in `0..1`, determined by its arguments.
pub fn unit_draw(seed: u64, purpose: Purpose, name: &str, counter: u64) -> f64 {
    let mut state = splitmix(seed ^ purpose.tag());
    for byte in name.bytes() {
        state = splitmix(state ^ u64::from(byte));
    }
    // The upper 53 bits fill the mantissa of an f64 exactly.
    (splitmix(state ^ counter) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
fn splitmix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_every_argument_and_on_nothing_else() {
        let base = unit_draw(1, Purpose::RetryJitter, "pool", 0);
        assert_eq!(base, unit_draw(1, Purpose::RetryJitter, "pool", 0));
        assert_ne!(base, unit_draw(2, Purpose::RetryJitter, "pool", 0));
        assert_ne!(base, unit_draw(1, Purpose::RetryJitter, "loop", 0));
        assert_ne!(base, unit_draw(1, Purpose::RetryJitter, "pool", 1));
    }

    #[test]
    fn draws_fill_the_unit_interval() {
        let draws: Vec<f64> = (0..10_000)
            .map(|i| unit_draw(7, Purpose::RetryJitter, "p", i))
            .collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        assert!((mean - 0.5).abs() < 0.02, "mean {mean}");
    }
}
