//! What the demo plays: three sites, the shipped policy, and table T1.

use std::sync::Arc;

use sunward_core::fleet::Fleet;
use sunward_core::signal::{Level, Quality, Scope, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};
use sunward_policies::document::SourceFile;
use sunward_policies::policy::PolicySet;
use sunward_simulations::generate::{WindowSeries, t1};

use crate::config::SHIPPED_POLICY;

/// The fleet file.
const FLEET: &str = include_str!("fleet.yaml");
/// The source that the shipped policy names.
const SOURCE: &str = "watttime";
/// The scheme of the series' zones.
const SCHEME: &str = "wt";
/// How long the shipped policy believes a reading, which suits the feed of a running grid.
const SHIPPED_AGE: &str = "max_age: 10m";
/// The zone that a newcomer is invited to push a reading for: its own window opens late.
const INVITED_ZONE: &str = "SPP_TX";

/// Readings that hold from the same instant on.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When they begin to hold.
    pub at: Timestamp,
    /// One per site.
    pub readings: Vec<Level>,
}

/// Everything that the demo plays.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The fleet file.
    pub fleet_file: SourceFile,
    /// The policy file.
    pub policy_file: SourceFile,
    /// The fleet.
    pub fleet: Fleet,
    /// The policy.
    pub policies: PolicySet,
    /// First instant.
    pub start: Timestamp,
    /// First instant that no longer belongs to it.
    pub end: Timestamp,
    series: Vec<WindowSeries>,
}

impl Scenario {
    /// Table T1 at the sites of its published run.
    pub fn t1() -> Scenario {
        let fleet_file = SourceFile {
            path: "demo/fleet.yaml".to_owned(),
            text: FLEET.to_owned(),
        };
        // A reading that someone pushes holds to the series' end, many times the age at which the
        // feed of a running grid is given up. The series itself has a new reading every step.
        let age = format!("max_age: {}", t1::LENGTH);
        let policy_file = SourceFile {
            path: "policies/library/curtailment.yaml".to_owned(),
            text: SHIPPED_POLICY.replace(SHIPPED_AGE, &age),
        };
        let fleet =
            Fleet::parse(&fleet_file).expect("the embedded fleet is valid: a test loads it");
        let policies = PolicySet::compile(std::slice::from_ref(&policy_file))
            .expect("the shipped policy is valid: a test loads it");
        Scenario {
            fleet_file,
            policy_file,
            fleet,
            policies,
            start: t1::START,
            end: t1::START + t1::LENGTH,
            series: vec![t1::CAISO_NORTH, t1::SPP_TX, t1::NEM_SA],
        }
    }

    /// The lines of the policy file that say when a site starts and leaves.
    pub fn conditions(&self) -> impl Iterator<Item = &str> {
        let lines = self.policy_file.text.lines().map(str::trim);
        lines.filter(|line| line.starts_with("activate:") || line.starts_with("release:"))
    }

    /// How long it lasts.
    pub fn length(&self) -> Span {
        self.end - self.start
    }

    /// The readings in the order in which they begin to hold.
    pub fn steps(&self) -> impl Iterator<Item = Step> + use<> {
        let start = self.start;
        let length = self.length();
        let mut rows: Vec<_> = self
            .series
            .iter()
            .map(|series| (stream(series.zone), series.rows(length)))
            .collect();
        std::iter::from_fn(move || {
            let readings: Vec<Level> = rows
                .iter_mut()
                .filter_map(|(stream, rows)| {
                    let row = rows.next()?;
                    Some(Level {
                        id: "".into(),
                        stream: stream.clone(),
                        valid_from: row.from,
                        valid_to: row.to,
                        value: Some(row.value),
                        quality: Quality::Measured,
                        // All of the series is as old as its start: whatever is pushed is newer.
                        issued_at: Some(start),
                        sequence: None,
                    })
                })
                .collect();
            let at = readings.first()?.valid_from;
            Some(Step { at, readings })
        })
    }

    /// The stream that a newcomer is invited to push to.
    pub fn invited_stream(&self) -> StreamKey {
        stream(INVITED_ZONE)
    }

    /// The sites, in the order of the fleet file.
    pub fn sites(&self) -> Vec<Arc<str>> {
        let of_zone = |series: &WindowSeries| {
            let mut sites = self.fleet.sites();
            sites
                .find(|site| {
                    site.zones
                        .get(SCHEME)
                        .is_some_and(|code| code.as_ref() == series.zone)
                })
                .map(|site| site.name.clone())
        };
        self.series.iter().filter_map(of_zone).collect()
    }

    /// The series' mean at a site, in gCO2e/kWh.
    pub fn mean_level(&self, site: &str) -> Option<f64> {
        let zone = self.fleet.site(site)?.zones.get(SCHEME)?;
        let series = self
            .series
            .iter()
            .find(|series| series.zone == zone.as_ref())?;
        let values: Vec<f64> = series.rows(self.length()).map(|row| row.value).collect();
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }
}

fn stream(zone: &str) -> StreamKey {
    StreamKey {
        source: SOURCE.into(),
        kind: Kind::CarbonIntensity,
        scope: Scope::Zone {
            scheme: SCHEME.into(),
            code: zone.into(),
        },
        basis: Some(Basis::Marginal),
    }
}

#[cfg(test)]
mod tests {
    use sunward_core::fleet::check::policies_on_fleet;
    use sunward_core::pools::stream_key;

    use super::*;

    #[test]
    fn fleet_and_policy_load_without_a_finding() {
        let scenario = Scenario::t1();
        assert_eq!(scenario.policies.warnings(), []);
        assert_eq!(policies_on_fleet(&scenario.policies, &scenario.fleet), []);
    }

    #[test]
    fn only_the_age_of_the_shipped_policy_differs() {
        let scenario = Scenario::t1();
        let differing: Vec<_> = SHIPPED_POLICY
            .lines()
            .zip(scenario.policy_file.text.lines())
            .filter(|(shipped, played)| shipped != played)
            .map(|(shipped, played)| (shipped.trim(), played.trim()))
            .collect();
        assert_eq!(differing, [("max_age: 10m", "max_age: 18h")]);
    }

    #[test]
    fn every_pool_reads_one_of_the_series() {
        let scenario = Scenario::t1();
        let first = scenario.steps().next();
        let played: Vec<_> = first
            .iter()
            .flat_map(|step| &step.readings)
            .map(|level| &level.stream)
            .collect();
        for pool in scenario.fleet.pools() {
            for policy in scenario.policies.policies() {
                for signal in &policy.signals {
                    let read = stream_key(signal, pool, &scenario.fleet);
                    assert!(
                        read.as_ref().is_some_and(|key| played.contains(&key)),
                        "{read:?}"
                    );
                }
            }
        }
        assert_eq!(scenario.sites().len(), 3);
        assert!(played.contains(&&scenario.invited_stream()));
    }

    #[test]
    fn there_are_three_readings_every_five_minutes_for_eighteen_hours() {
        let scenario = Scenario::t1();
        let steps: Vec<Step> = scenario.steps().collect();
        assert_eq!(steps.len(), 216);
        assert!(steps.iter().all(|step| step.readings.len() == 3));
        assert!(steps.iter().flat_map(|step| &step.readings).all(|level| {
            level.issued_at == Some(scenario.start) && level.valid_from < level.valid_to
        }));
    }
}
