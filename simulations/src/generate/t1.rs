//! Table T1: 18 h of marginal carbon intensity from 2026-01-11 17:00 UTC, in steps of 5 min.
//!
//! Rebuilt from published window facts (arXiv 2602.22760): one value per window and gap, in
//! gCO2e/kWh. It is not a copy of any trace. DE has no clean window and belongs to no site of the
//! published run; it is the baseline of a site that never joins.

use sunward_core::time::{Span, Timestamp};

use super::{Window, WindowSeries};

/// First instant: 2026-01-11T17:00:00Z.
pub const START: Timestamp = Timestamp::from_millis(1_768_150_800_000);
/// Length of the table.
pub const LENGTH: Span = Span::from_secs(18 * 3_600);
/// Length of one row.
pub const STEP: Span = Span::from_secs(300);

/// Northern California.
pub const CAISO_NORTH: WindowSeries = zone(
    "CAISO_NORTH",
    &[
        until(300, 463.6),
        until(7_500, 65.4),
        until(8_400, 458.1),
        until(23_100, 77.5),
    ],
    442.7,
);

/// Texas, in the Southwest Power Pool.
pub const SPP_TX: WindowSeries = zone(
    "SPP_TX",
    &[
        until(36_300, 646.4),
        until(36_900, 47.2),
        until(37_200, 661.3),
        until(59_100, 17.6),
        until(59_400, 662.2),
        until(61_500, 61.9),
    ],
    598.9,
);

/// South Australia.
pub const NEM_SA: WindowSeries = zone("NEM_SA", &[until(16_800, 851.8), until(54_600, 0.4)], 808.0);

/// Germany.
pub const DE: WindowSeries = zone("DE", &[], 751.6);

/// All zones, in the order of the published table.
pub const ZONES: [WindowSeries; 4] = [CAISO_NORTH, SPP_TX, NEM_SA, DE];

const fn zone(zone: &'static str, windows: &'static [Window], afterwards: f64) -> WindowSeries {
    WindowSeries {
        zone,
        start: START,
        step: STEP,
        windows,
        afterwards,
    }
}

const fn until(until_s: u32, value: f64) -> Window {
    Window { until_s, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_starts_when_it_says() {
        assert_eq!(Timestamp::parse_rfc3339("2026-01-11T17:00:00Z"), Ok(START));
        assert_eq!(CAISO_NORTH.rows(LENGTH).count(), 216);
    }

    #[test]
    fn windows_rise_and_lie_on_the_steps() {
        for zone in ZONES {
            let ends: Vec<u32> = zone.windows.iter().map(|window| window.until_s).collect();
            assert!(ends.is_sorted_by(|a, b| a < b), "{}: {ends:?}", zone.zone);
            assert!(ends.iter().all(|end| end % 300 == 0), "{}", zone.zone);
        }
    }
}
