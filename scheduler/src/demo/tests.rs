#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use sunward_core::engine::Engine;
use sunward_core::time::{Span, Timestamp};
use sunward_simulations::generate::{WindowSeries, t1};

use super::fast;
use super::live::Live;
use super::report::Report;
use super::scenario::Scenario;
use super::score::Score;
use super::tap::tapped;
use crate::journal::{Append, Journal as _};
use crate::writer;

/// A site, its series, and from when to when its worker is ready.
type Ready = (&'static str, WindowSeries, &'static [(i64, i64)]);

/// Per site of table T1: when its worker is ready and when it is released, in seconds from the
/// start. By hand, from the table's windows and the shipped policy: below 100 for 300 s, 250 s to
/// start, at 120 or more for 600 s.
const READY: [Ready; 3] = [
    (
        "caiso",
        t1::CAISO_NORTH,
        &[
            (300 + 300 + 250, 7_500 + 600),
            (8_400 + 300 + 250, 23_100 + 600),
        ],
    ),
    // The gaps of 300 s at 36,900 and 59,100 are shorter than the release's hold.
    ("spp", t1::SPP_TX, &[(36_300 + 300 + 250, 61_500 + 600)]),
    ("nem-sa", t1::NEM_SA, &[(16_800 + 300 + 250, 54_600 + 600)]),
];
/// Of one worker, kW.
const TRAINING_KW: f64 = 2.024;

#[test]
fn the_figures_are_those_of_the_windows() {
    let report = Report::new(&fast::run(&Scenario::t1()).unwrap().score);
    for (row, (site, zone, ready)) in report.sites.iter().zip(READY) {
        assert_eq!(row.site, site);
        assert_eq!(row.starts as usize, ready.len(), "{site}");
        let seconds: i64 = ready.iter().map(|(from, to)| to - from).sum();
        let hours = seconds as f64 / 3_600.0;
        assert!(
            (row.hours - hours).abs() < 1e-6,
            "{site}: {} h, not {hours}",
            row.hours
        );
        let kwh = hours * TRAINING_KW;
        assert!(
            (row.energy_kwh - kwh).abs() < 1e-5,
            "{site}: {} kWh, not {kwh}",
            row.energy_kwh
        );
        let grams: f64 = ready
            .iter()
            .flat_map(|(from, to)| *from..*to)
            .map(|second| zone.value_at(t1::START + Span::from_secs(second)))
            .sum::<f64>()
            * TRAINING_KW
            / 3_600.0;
        let kg = row.emissions_kg.unwrap();
        assert!(
            (kg - grams / 1_000.0).abs() < 1e-5,
            "{site}: {kg} kg, not {grams} g"
        );
        assert_eq!(row.emissions_marginal_kg, row.emissions_kg);
        assert_eq!(row.emissions_average_kg, None);
    }
    assert_eq!(report.totals.hours, 18.0);
    assert_eq!(report.totals.starts, 4);
    assert_eq!(report.signals, 3 * 216);
}

#[test]
fn two_runs_agree_in_state_journal_and_account() {
    let scenario = Scenario::t1();
    let (first, second) = (fast::run(&scenario).unwrap(), fast::run(&scenario).unwrap());
    assert_eq!(
        first.writer.engine().digest(),
        second.writer.engine().digest()
    );
    assert_eq!(first.score.happenings, second.score.happenings);
    assert_eq!(Report::new(&first.score), Report::new(&second.score));
    let records = |run: &fast::Finished| run.writer.journal().read_from(1, usize::MAX).unwrap();
    assert_eq!(records(&first), records(&second));
    // History through the same core gives the same state and the same decisions.
    let replay = writer::replay(first.writer.journal(), None).unwrap();
    assert_eq!(replay.engine.digest(), first.writer.engine().digest());
    assert_eq!(replay.decisions.len() as u64, first.score.decisions);
}

#[test]
fn a_follower_keeps_the_same_account() {
    let scenario = Scenario::t1();
    let played = fast::run(&scenario).unwrap();
    let (mut tap, mut follower) = tapped(Score::new(&scenario), scenario.end);
    for record in played.writer.journal().read_from(1, usize::MAX).unwrap() {
        let entry = Append {
            at_ms: record.at_ms,
            record: &record.bytes,
            dedupe: &[],
            decisions: &[],
        };
        tap.append(record.index - 1, &entry).unwrap();
    }
    follower.finish(scenario.end).unwrap();
    assert_eq!(follower.engine().digest(), played.writer.engine().digest());
    assert_eq!(follower.score.happenings, played.score.happenings);
    assert_eq!(Report::new(&follower.score), Report::new(&played.score));
    assert!(
        follower
            .score
            .sites
            .iter()
            .zip(&played.score.sites)
            .all(|(a, b)| a.cells == b.cells)
    );
}

#[test]
fn nothing_after_the_end_is_accounted_for() {
    let scenario = Scenario::t1();
    let played = fast::run(&scenario).unwrap();
    let end = scenario.start + Span::from_secs(7_000);
    let (mut tap, mut follower) = tapped(Score::new(&scenario), end);
    for record in played.writer.journal().read_from(1, usize::MAX).unwrap() {
        let entry = Append {
            at_ms: record.at_ms,
            record: &record.bytes,
            dedupe: &[],
            decisions: &[],
        };
        tap.append(record.index - 1, &entry).unwrap();
        follower
            .catch_up(Timestamp::from_millis(record.at_ms))
            .unwrap();
    }
    follower.finish(scenario.end).unwrap();
    let report = Report::new(&follower.score);
    assert_eq!(
        report.sites[0].hours, 1.708_333,
        "caiso was ready from 850 s on"
    );
    assert_eq!(report.totals.hours, 1.944_444);
    assert_eq!(report.totals.starts, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_live_demo_is_followed_record_by_record() {
    let scenario = Arc::new(Scenario::t1());
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    // 18 h in 3.2 s. How much of the series a busy machine takes in is not asked here.
    let mut live = Live::start(&scenario, 20_000.0, metrics).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut compared = 0;
    while live.clock.now() < scenario.end {
        assert!(Instant::now() < deadline, "series time stands still");
        let look = |engine: &Engine| (engine.state().index, engine.digest());
        let (index, digest) = live.daemon.engine.ask(look).await.unwrap();
        live.follower.catch_up(live.clock.now()).unwrap();
        // The loop may have gone on meanwhile.
        if live.follower.engine().state().index == index {
            assert_eq!(live.follower.engine().digest(), digest);
            compared += 1;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(compared > 0, "never at the same index");
    let report = Report::new(&live.stop().await.unwrap().score);
    assert_eq!(report.totals.hours, 18.0);
    assert!(report.signals > 0 && report.totals.starts > 0, "{report:?}");
}
