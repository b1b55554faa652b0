//! Solar generation by latitude and day of the year, with passing clouds.
//!
//! Declination by Cooper (1969): 23.45 deg x sin(360/365 x (284 + day)); elevation from latitude,
//! declination and hour angle; clear-sky irradiance by Haurwitz (1945):
//! 1098 x cos z x exp(-0.057 / cos z) W/m2, as a share of 1000 W/m2.

use sunward_core::time::{Span, Timestamp};

use super::{Row, grid};
use crate::draw::Draws;

const DAY_MS: i64 = 24 * 3_600_000;

/// A plant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solar {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east; gives solar noon.
    pub longitude: f64,
    /// Output under 1000 W/m2, kW.
    pub peak_kw: f64,
    /// How much clouds take away on average, 0 to 1.
    pub clouds: f64,
}

impl Solar {
    /// Output under a clear sky, kW.
    pub fn clear_sky_kw(&self, at: Timestamp) -> f64 {
        let days = at.as_millis().div_euclid(DAY_MS);
        // The days since 1970 modulo a mean year: the declination is off by less than 0.4 degrees.
        let day_of_year = (days as f64).rem_euclid(365.2425) + 1.0;
        let hour = at.as_millis().rem_euclid(DAY_MS) as f64 / 3_600_000.0 + self.longitude / 15.0;
        let declination =
            (23.45_f64 * (360.0 / 365.0 * (284.0 + day_of_year)).to_radians().sin()).to_radians();
        let latitude = self.latitude.to_radians();
        let hour_angle = (15.0 * (hour - 12.0)).to_radians();
        let cos_zenith = latitude.sin() * declination.sin()
            + latitude.cos() * declination.cos() * hour_angle.cos();
        if cos_zenith <= 0.0 {
            return 0.0;
        }
        let irradiance = 1_098.0 * cos_zenith * (-0.057 / cos_zenith).exp();
        self.peak_kw * irradiance / 1_000.0
    }

    /// Rows of one `step` each that cover `length` from `start` on. Clouds last about an hour.
    pub fn rows(&self, start: Timestamp, length: Span, step: Span, draws: &mut Draws) -> Vec<Row> {
        let mut rows = Vec::new();
        let (mut from, mut until, mut share) = (start, start, 1.0);
        while from < start + length && step > Span::ZERO {
            if until <= from {
                until = from + draws.around(Span::from_mins(60));
                share = 1.0 - (2.0 * self.clouds.clamp(0.0, 1.0) * draws.unit()).min(1.0);
            }
            rows.push(Row {
                from,
                to: from + step,
                value: grid(self.clear_sky_kw(from) * share),
            });
            from += step;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).unwrap()
    }

    #[test]
    fn noon_in_june_is_bright_midnight_dark_and_the_polar_night_long() {
        let madrid = Solar {
            latitude: 40.4,
            longitude: -3.7,
            peak_kw: 100.0,
            clouds: 0.0,
        };
        let noon = madrid.clear_sky_kw(at("2026-06-21T12:15:00Z"));
        // cos z = cos(40.4 - 23.45) = 0.957: 1098 x 0.957 x exp(-0.0596) = 990 W/m2.
        assert!((noon - 99.0).abs() < 1.0, "{noon}");
        assert_eq!(madrid.clear_sky_kw(at("2026-06-21T00:15:00Z")), 0.0);
        let winter = madrid.clear_sky_kw(at("2026-12-21T12:15:00Z"));
        assert!(winter > 30.0 && winter < 50.0, "{winter}");
        let arctic = Solar {
            latitude: 75.0,
            ..madrid
        };
        assert_eq!(arctic.clear_sky_kw(at("2026-12-21T12:15:00Z")), 0.0);
        assert!(arctic.clear_sky_kw(at("2026-06-21T00:15:00Z")) > 0.0);
    }
}
