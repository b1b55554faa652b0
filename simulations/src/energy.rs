//! The physical side of a site: battery and meter, the response to a power cap, and rounds.
//!
//! These are plant models for the simulated world: they produce what a meter would read and what
//! workers do. Nothing here decides.

use sunward_core::time::{Span, Timestamp};

use crate::draw::Draws;
use crate::generate::solar::Solar;
use crate::generate::{Row, grid};

/// A battery that takes in what is left over and gives it back in the dark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Battery {
    /// What it holds, kWh.
    pub capacity_kwh: f64,
    /// How fast it charges and discharges, kW.
    pub power_kw: f64,
    /// What is in it, kWh.
    pub charge_kwh: f64,
}

impl Battery {
    /// Takes in as much of a surplus (kW; below zero: a lack) as it can for `step`, and returns
    /// what is left of it.
    pub fn smooth(&mut self, surplus_kw: f64, step: Span) -> f64 {
        let hours = step.as_millis() as f64 / 3_600_000.0;
        if hours <= 0.0 {
            return surplus_kw;
        }
        let room_kw = (self.capacity_kwh - self.charge_kwh) / hours;
        let there_kw = self.charge_kwh / hours;
        let taken_kw = surplus_kw
            .clamp(-self.power_kw, self.power_kw)
            .clamp(-there_kw, room_kw);
        self.charge_kwh += taken_kw * hours;
        surplus_kw - taken_kw
    }
}

/// A site meter: solar behind it, a base load beside the GPUs, perhaps a battery. It reads the
/// surplus without the pools' own draw, as if that had been added back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meter {
    /// Panels.
    pub solar: Solar,
    /// What the rest of the site draws, kW.
    pub base_kw: f64,
    /// In between, where there is one.
    pub battery: Option<Battery>,
}

impl Meter {
    /// Surplus in kW per `step`, from `start` on.
    pub fn rows(
        mut self,
        start: Timestamp,
        length: Span,
        step: Span,
        draws: &mut Draws,
    ) -> Vec<Row> {
        let mut rows = self.solar.rows(start, length, step, draws);
        for row in &mut rows {
            let surplus = row.value - self.base_kw;
            let left = match &mut self.battery {
                Some(battery) => battery.smooth(surplus, step),
                None => surplus,
            };
            row.value = grid(left);
        }
        rows
    }
}

/// What a power cap leaves of a GPU's power and speed: (share of training power still allowed,
/// share of power drawn, share of speed). A100 of 400 W capped at 300, 250 and 200 W; middles of
/// the ranges in arXiv 2507.00909: 300 W draws 76-83 % at 86-95 % speed, 250 W runs at 78-90 %,
/// 200 W draws 51-57 % at 62-81 %. The power at 250 W is interpolated.
const CAPS: [(f64, f64, f64); 4] = [
    (1.0, 1.0, 1.0),
    (0.75, 0.795, 0.905),
    (0.625, 0.6675, 0.84),
    (0.5, 0.54, 0.715),
];

/// What a site under a cap draws and trains, as shares of the uncapped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Of its power.
    pub power: f64,
    /// Of its speed.
    pub speed: f64,
}

/// The response to a cap at `allowed` (0.5 to 1 of training power; lower caps count as 0.5),
/// linear between the published points.
pub fn response(allowed: f64) -> Response {
    for pair in CAPS.windows(2) {
        let ((high, power_high, speed_high), (low, power_low, speed_low)) = (pair[0], pair[1]);
        if allowed >= low {
            let share = ((allowed - low) / (high - low)).min(1.0);
            return Response {
                power: power_low + share * (power_high - power_low),
                speed: speed_low + share * (speed_high - speed_low),
            };
        }
    }
    let (_, power, speed) = CAPS[CAPS.len() - 1];
    Response { power, speed }
}

/// What rounds leave of the time for training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Length of a round, model transfer and process spawn included.
    pub round: Span,
    /// Of which training.
    pub train: Span,
}

impl Rounds {
    /// The published run (arXiv 2602.22760): rounds of 647 s train for 512 s.
    pub const PUBLISHED: Rounds = Rounds {
        round: Span::from_secs(647),
        train: Span::from_secs(512),
    };

    /// The share of time that each of `sites` ready sites trains: alone always, else per round.
    pub fn training_share(&self, sites: usize) -> f64 {
        if sites < 2 {
            return 1.0;
        }
        self.train.as_millis() as f64 / self.round.as_millis().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_battery_takes_what_it_can_and_gives_it_back() {
        let mut battery = Battery {
            capacity_kwh: 10.0,
            power_kw: 8.0,
            charge_kwh: 0.0,
        };
        let hour = Span::from_mins(60);
        assert_eq!(battery.smooth(20.0, hour), 12.0);
        assert_eq!(battery.smooth(5.0, hour), 3.0);
        assert_eq!(battery.charge_kwh, 10.0);
        assert_eq!(battery.smooth(-6.0, hour), 0.0);
        assert_eq!(battery.smooth(-6.0, hour), -2.0);
        assert_eq!(battery.charge_kwh, 0.0);
    }

    #[test]
    fn caps_answer_within_the_published_ranges() {
        let within = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
        let three = response(0.75);
        assert!(within(three.power, 0.76, 0.83) && within(three.speed, 0.86, 0.95));
        assert!(within(response(0.625).speed, 0.78, 0.90));
        let half = response(0.5);
        assert!(within(half.power, 0.51, 0.57) && within(half.speed, 0.62, 0.81));
        assert_eq!(response(0.2), half);
        assert_eq!(
            response(1.0),
            Response {
                power: 1.0,
                speed: 1.0
            }
        );
        // The demonstration: 94.0 kW down by 31 % to about 65 kW needs a cap between the two.
        let demonstrated = response(0.645);
        assert!(
            (94.0 * demonstrated.power - 65.0).abs() < 2.0,
            "{demonstrated:?}"
        );
    }

    #[test]
    fn two_sites_train_for_79_percent() {
        let share = Rounds::PUBLISHED.training_share(2);
        assert!((share - 0.792).abs() < 0.001);
        assert_eq!(Rounds::PUBLISHED.training_share(1), 1.0);
    }
}
