//! Carbon intensity to push: a recorded month where it is present, else a generated one with the same duty cycle.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::environment::say;

/// Where the recorded month lies, from the workspace's root.
const RECORDED: &str = "../shared/traces/watttime_caiso_north_moer_5min_2023-06.csv";
/// Readings of a day, one per 5 minutes.
pub const DAY: usize = 288;
/// Days of a generated month, as many as the recorded one has.
const GENERATED_DAYS: usize = 31;
/// A month of marginal carbon intensity at 5 minute steps, gCO2e/kWh.
#[derive(Clone, Debug)]
pub struct Month {
    /// The values, oldest first.
    pub values: Vec<f64>,
    /// Recorded or generated, and what is known of it.
    pub origin: String,
}

impl Month {
    /// Seeds the month that is generated where the recorded one is absent.
    pub const SEED: u64 = 0x5EED_CA15;

    /// The recorded month, or a generated one where the recording is absent; standard error says which.
    ///
    /// # Errors
    /// When the recording is there and cannot be read.
    pub fn load() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(RECORDED);
        let month = if path.exists() {
            Self::recorded(&path)?
        } else {
            Self::generated(Self::SEED)
        };
        say(&month.origin);
        Ok(month)
    }

    fn recorded(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let values = text
            .lines()
            .skip(1)
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let value = line.split(',').nth(1).context("no second column")?;
                value
                    .trim()
                    .parse::<f64>()
                    .with_context(|| format!("no number in {line}"))
            })
            .collect::<Result<Vec<_>>>()
            .with_context(|| format!("reading {}", path.display()))?;
        ensure!(
            values.len() >= DAY,
            "{} has {} rows",
            path.display(),
            values.len()
        );
        Ok(Self {
            origin: format!("a recorded series, {} readings of {RECORDED}", values.len()),
            values,
        })
    }

    /// A month whose share of time below 100 gCO2e/kWh and number of windows are near the recorded one's (16.7 %, 101 windows,
    /// half of them 15 minutes or shorter): high nights, a valley each afternoon, and in it plants that take the margin for
    /// some minutes and tear it into windows.
    pub fn generated(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut values = Vec::with_capacity(GENERATED_DAYS * DAY);
        let mut drift = 0.0;
        let mut plant_on_margin = false;
        for _ in 0..GENERATED_DAYS {
            // How deep the valley of the day is; on some days it stays above the threshold.
            let depth = 200.0 + 260.0 * random.unit();
            let middle = 205.0 + 40.0 * random.unit();
            let width = 90.0 * (0.5 + random.unit());
            for step in 0..DAY {
                drift = 0.8 * drift + 16.0 * (random.unit() - 0.5);
                let draw = random.unit();
                plant_on_margin = draw < if plant_on_margin { 0.6 } else { 0.04 };
                let distance = (step as f64 - middle) / width;
                let valley = depth / (1.0 + distance.powi(4));
                let fall = if plant_on_margin {
                    valley / 4.0
                } else {
                    valley
                };
                values.push((420.0 + drift - fall).clamp(35.0, 463.0));
            }
        }
        Self {
            origin: format!(
                "a generated series, since {RECORDED} is absent: seed {seed:#x}, {} readings",
                values.len()
            ),
            values,
        }
    }

    /// The share of readings below `threshold`.
    pub fn share_below(&self, threshold: f64) -> f64 {
        let below = self
            .values
            .iter()
            .filter(|&&value| value < threshold)
            .count();
        below as f64 / self.values.len() as f64
    }
}

/// Writes readings as a CSV file with the columns `time` (UTC, without an offset, 5 minutes apart) and `moer`.
pub fn write_csv(path: &Path, values: &[f64]) -> Result<PathBuf> {
    let mut text = String::from("time,moer\n");
    for (index, value) in values.iter().enumerate() {
        let minutes = index * 5;
        let (day, hour, minute) = (1 + minutes / 1440, minutes / 60 % 24, minutes % 60);
        writeln!(text, "2023-06-{day:02} {hour:02}:{minute:02}:00,{value}")?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path.to_owned())
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): enough for choosing instants, and
/// the same everywhere for one seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the variable `SUNWARD_TEST_SEED`, or one from the clock; standard error says which, so that a run can be
    /// repeated.
    pub fn from_environment() -> Self {
        let named = std::env::var("SUNWARD_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = named.unwrap_or_else(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(1, |since| since.as_millis() as u64)
        });
        say(&format!("SUNWARD_TEST_SEED={seed} repeats this run"));
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number in `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.bits() % (to - from).max(1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn windows(values: &[f64]) -> usize {
        values
            .windows(2)
            .filter(|pair| pair[0] >= 100.0 && pair[1] < 100.0)
            .count()
    }

    #[test]
    fn a_generated_month_has_the_duty_cycle_of_the_recorded_one() {
        let month = Month::generated(Month::SEED);
        let (share, windows) = (month.share_below(100.0), windows(&month.values));
        assert!((0.12..0.22).contains(&share), "{share}");
        assert!((70..140).contains(&windows), "{windows}");
        assert_eq!(month.values.len(), 31 * DAY);
    }

    #[test]
    fn csv_stamps_go_on_over_midnight() {
        let folder = tempfile::tempdir().unwrap();
        let path = write_csv(&folder.path().join("a.csv"), &vec![1.5; DAY + 1]).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "2023-06-01 00:00:00,1.5");
        assert_eq!(lines[DAY], "2023-06-01 23:55:00,1.5");
        assert_eq!(lines[DAY + 1], "2023-06-02 00:00:00,1.5");
    }
}
