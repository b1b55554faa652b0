#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use sunward_core::fleet::Fleet;
use sunward_core::time::Span;

use super::*;
use crate::intake::INBOX_REQUESTS_MAX;

const START: &str = "2026-03-01T12:00:00Z";

/// Surroundings whose engine time follows tokio's paused clock, and what was reported.
fn surroundings() -> (Surroundings, Arc<Mutex<Vec<String>>>) {
    let fleet = Arc::new(
        Fleet::parse(&sunward_policies::SourceFile {
            path: "fleet.yaml".into(),
            text: include_str!("../fixtures/fleet.yaml").into(),
        })
        .unwrap(),
    );
    let began = tokio::time::Instant::now();
    let start = Timestamp::parse_rfc3339(START).unwrap();
    let now = move || start + Span::from_millis(began.elapsed().as_millis() as i64);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let reported = reports.clone();
    let surroundings = Surroundings {
        now: Arc::new(now),
        until: Arc::new(move |at| Duration::from_millis((at - now()).as_millis().max(0) as u64)),
        fleet: Arc::new(move || fleet.clone()),
        report: Arc::new(move |report| {
            reported.lock().unwrap().push(match report {
                Report::Answered { source, result } => format!("{source} {result:?}"),
                Report::Refused { code } => code.to_owned(),
            });
        }),
        limits: wire::Limits::default(),
    };
    (surroundings, reports)
}

fn options(
    file: &tempfile::NamedTempFile,
    rebase: Option<&str>,
    speed: Option<f64>,
) -> FileReplayOptions {
    let text = |text: &str| Some(text.to_owned());
    FileReplayOptions {
        path: file.path().to_owned(),
        rebase: rebase.map(str::to_owned),
        speed,
        time_column: text("time"),
        value_column: text("value"),
        time_zone: text("UTC"),
        interval: text("5m"),
        unit: text("gCO2e/kWh"),
        source: text("watttime"),
        kind: text("carbon_intensity"),
        basis: text("marginal"),
        zone: text("wt/CAISO_NORTH"),
        site: None,
    }
}

fn file(rows: usize) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rows: Vec<String> = (0..rows)
        .map(|n| format!("2023-06-08 {:02}:{:02}:00,{n}", n / 12, n % 12 * 5))
        .collect();
    std::fs::write(file.path(), format!("time,value\n{}\n", rows.join("\n"))).unwrap();
    file
}

#[tokio::test(start_paused = true)]
async fn a_rebased_series_goes_out_on_its_own_clock() {
    let file = file(24);
    let (surroundings, reports) = surroundings();
    let now = surroundings.now.clone();
    let adapter = FileReplay::new(options(&file, Some("now"), Some(60.0)), surroundings).unwrap();
    let (intake, mut outlet) = Intake::channel();
    let running = tokio::spawn(Box::new(adapter).run(intake, CancellationToken::new()));
    let mut first = None;
    for n in 0..24 {
        let submission = outlet.recv().await.unwrap();
        let [sunward_core::event::Event::SignalAccepted(level)] = submission.request.events()
        else {
            panic!("one reading at a time")
        };
        assert_eq!(level.value, Some(f64::from(n)));
        let late = now() - level.valid_from;
        assert!((0..20).contains(&late.as_millis()), "{late}");
        let first = *first.get_or_insert(level.valid_from);
        assert_eq!(level.valid_from - first, Span::from_secs(5 * i64::from(n)));
        submission.ticket.send(vec![ItemResult::Accepted]).unwrap();
    }
    running.await.unwrap().unwrap();
    assert_eq!(*reports.lock().unwrap(), vec!["watttime Accepted"; 24]);
}

#[tokio::test(start_paused = true)]
async fn without_rebase_all_go_at_once_and_old_readings_are_refused() {
    let file = file(3);
    let (surroundings, reports) = surroundings();
    let adapter = FileReplay::new(options(&file, None, None), surroundings).unwrap();
    let (intake, _outlet) = Intake::channel();
    Box::new(adapter)
        .run(intake, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(*reports.lock().unwrap(), ["too_old"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_full_intake_and_a_lost_ticket_lose_nothing() {
    let file = file(1);
    let (surroundings, reports) = surroundings();
    let adapter = FileReplay::new(options(&file, Some("now"), None), surroundings).unwrap();
    let (intake, mut outlet) = Intake::channel();
    for _ in 0..INBOX_REQUESTS_MAX {
        drop(intake.submit(Vec::new(), Instant::now()).unwrap());
    }
    assert_eq!(
        intake.submit(Vec::new(), Instant::now()).unwrap_err(),
        SubmitError::Full
    );
    let running = tokio::spawn(Box::new(adapter).run(intake, CancellationToken::new()));
    let mut keys = Vec::new();
    while keys.len() < 2 {
        let submission = outlet.recv().await.unwrap();
        if submission.request.is_empty() {
            continue;
        }
        keys.push(submission.keys[0].clone());
        if keys.len() == 2 {
            submission.ticket.send(vec![ItemResult::Duplicate]).unwrap();
        }
    }
    assert_eq!(keys[0], keys[1]);
    running.await.unwrap().unwrap();
    assert_eq!(*reports.lock().unwrap(), ["watttime Duplicate"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_and_a_closed_intake_end_it() {
    let file = file(2);
    let (surroundings, _) = surroundings();
    let (intake, outlet) = Intake::channel();
    let shutdown = CancellationToken::new();
    let adapter = FileReplay::new(
        options(&file, Some("2026-03-02T00:00:00Z"), None),
        surroundings.clone(),
    )
    .unwrap();
    let running = tokio::spawn(Box::new(adapter).run(intake.clone(), shutdown.clone()));
    shutdown.cancel();
    running.await.unwrap().unwrap();
    drop(outlet);
    let adapter = FileReplay::new(options(&file, Some("now"), None), surroundings).unwrap();
    let error = Box::new(adapter)
        .run(intake, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        matches!(error, AdapterError::IntakeClosed { left: 2, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn wrong_options_and_absent_files_say_so() {
    let file = file(1);
    let (surroundings, _) = surroundings();
    let problem = |options| {
        FileReplay::new(options, surroundings.clone())
            .unwrap_err()
            .to_string()
    };
    assert!(problem(FileReplayOptions::default()).contains("`path` is required"));
    assert!(problem(options(&file, Some("today"), None)).contains("`rebase`"));
    let no_unit = FileReplayOptions {
        unit: None,
        ..options(&file, None, None)
    };
    assert!(problem(no_unit).contains("`unit`"));
    let absent = FileReplayOptions {
        path: "absent.csv".into(),
        ..options(&file, None, None)
    };
    let adapter = FileReplay::new(absent, surroundings.clone()).unwrap();
    let (intake, _outlet) = Intake::channel();
    let error = Box::new(adapter)
        .run(intake, CancellationToken::new())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("absent.csv"), "{error}");
}
