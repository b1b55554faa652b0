//! The commands that talk to a daemon, from a shell: what they print, and their exit codes.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::Utc;
use serde_json::{Value, json};
use sunward_tests::daemon::run_command;
use sunward_tests::ports::free_port;
use sunward_tests::readings::{carbon, stamp};
use sunward_tests::reference_policy::ReferencePolicy;
use sunward_tests::rig::{FleetPool, Rig, RigOptions, fleet};
use sunward_tests::series::write_csv;
use sunward_tests::wait::until;

const DEADLINE: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(10);

async fn memory_rig() -> Rig {
    Rig::new(&RigOptions {
        redis_url: None,
        fleet: fleet(None, &[FleetPool::memory("caiso-a", 3)]),
        policies: vec![(
            "surplus.yaml".to_owned(),
            ReferencePolicy::default().yaml("surplus"),
        )],
    })
    .await
    .unwrap()
}

/// A command as a script would call it: the server and the token in its environment.
async fn sunward(rig: &Rig, arguments: &[&str]) -> Output {
    let (url, token) = (rig.url(), rig.token_file().display().to_string());
    let environment = [
        ("SUNWARD_SERVER", url.as_str()),
        ("SUNWARD_TOKEN_FILE", token.as_str()),
    ];
    run_command(arguments, &environment, DEADLINE)
        .await
        .unwrap()
}

fn code_and_errors(output: &Output) -> (Option<i32>, String) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors)
}

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.display().to_string()
}

/// 0 all taken; again, all known; 1 something refused, and the rest taken.
#[tokio::test(flavor = "multi_thread")]
async fn push_tells_what_became_of_each_reading() {
    let rig = memory_rig().await;
    let mut daemon = rig.start().await.unwrap();
    let minute = chrono::TimeDelta::seconds(60);
    let good: Vec<Value> = (0..250)
        .map(|item| carbon(&format!("r-{item}"), Utc::now(), minute, f64::from(item)))
        .collect();
    let file = write(&rig.path("good.json"), &json!(good).to_string());
    let pushed = sunward(&rig, &["signal", "push", &file, "--output", "json"]).await;
    assert_eq!(code_and_errors(&pushed).0, Some(0));
    assert_eq!(answer(&pushed)["accepted"], 250);
    let again = sunward(&rig, &["signal", "push", &file, "--output", "json"]).await;
    assert_eq!(answer(&again)["duplicate"], 250);

    // Batches on the way are no affair of the reader: items and pointers are those of the file.
    let mut mixed: Vec<Value> = (0..150)
        .map(|item| carbon(&format!("m-{item}"), Utc::now(), minute, f64::from(item)))
        .collect();
    mixed[120]["unit"] = json!("furlong");
    let file = write(&rig.path("mixed.json"), &json!(mixed).to_string());
    let pushed = sunward(&rig, &["signal", "push", &file, "--output", "json"]).await;
    assert_eq!(code_and_errors(&pushed).0, Some(1));
    let told = answer(&pushed);
    assert_eq!(told["accepted"], 149, "{told}");
    assert_eq!(told["rejected"].as_array().unwrap().len(), 1, "{told}");
    let rejected = &told["rejected"][0];
    assert_eq!(
        (&rejected["item"], &rejected["pointer"], &rejected["code"]),
        (&json!(120), &json!("/120/unit"), &json!("unknown_unit"))
    );

    let file = write(&rig.path("none.json"), "no readings");
    let (code, errors) = code_and_errors(&sunward(&rig, &["signal", "push", &file]).await);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains(&file), "{errors}");
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// 2 is wrong use, before anything is sent.
#[tokio::test(flavor = "multi_thread")]
async fn push_refuses_wrong_use() {
    let rig = memory_rig().await;
    let mut daemon = rig.start().await.unwrap();
    let absent = rig.path("absent.json").display().to_string();
    let (code, errors) = code_and_errors(&sunward(&rig, &["signal", "push", &absent]).await);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains(&absent), "{errors}");

    // An interval that shrinks below a second.
    let csv = write_csv(&rig.path("day.csv"), &[50.0; 10]).unwrap();
    let pushed = rig.push(&csv, &stamp(Utc::now()), "301", DEADLINE).await;
    let error = format!("{:#}", pushed.unwrap_err());
    assert!(
        error.contains("exit status: 2") && error.contains("300"),
        "{error}"
    );
    // CSV without a word on its columns.
    let csv = csv.display().to_string();
    let (code, errors) = code_and_errors(&sunward(&rig, &["signal", "push", &csv]).await);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("--time-column"), "{errors}");
    let (_, metrics) = rig.metrics().await.unwrap();
    assert_eq!(metrics.sum("sunward_signals_accepted_total", &[]), 0.0);
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// 3 is a daemon that can't be reached for as long as was allowed; one that comes back in time gets the same bytes.
#[tokio::test(flavor = "multi_thread")]
async fn push_waits_for_a_daemon_as_long_as_it_may() {
    let rig = memory_rig().await;
    let reading = carbon("late", Utc::now(), chrono::TimeDelta::seconds(120), 50.0);
    let file = write(&rig.path("one.json"), &reading.to_string());
    let began = Instant::now();
    let push = ["signal", "push", &file, "--output", "json", "--retry-for"];
    let (code, errors) = code_and_errors(&sunward(&rig, &[&push[..], &["1s"]].concat()).await);
    assert_eq!(code, Some(3), "{errors}");
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(errors.contains(&rig.url()), "{errors}");

    let arguments = [&push[..], &["50s"]].concat();
    let (pushed, daemon) = tokio::join!(sunward(&rig, &arguments), rig.start());
    let mut daemon = daemon.unwrap();
    assert_eq!(code_and_errors(&pushed).0, Some(0));
    let told = answer(&pushed);
    // Also where the port was bound before the fleet was read: that is said to be temporary.
    assert_eq!(told["accepted"], 1, "{told}");
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// `status` says what HTTP says.
#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_daemon() {
    let rig = memory_rig().await;
    let mut daemon = rig.start().await.unwrap();
    until(DEADLINE, "a settled pool", async || {
        let pool = rig.pool_status("caiso-a").await?;
        ensure!(pool["state"] == "settled", "{pool}");
        Ok(())
    })
    .await;
    let token = write(&rig.path("operator"), &rig.operator_token);
    let url = rig.url();
    let arguments = [
        "status",
        "--server",
        &url,
        "--token-file",
        &token,
        "--output",
    ];
    let shown = sunward(&rig, &[&arguments[..], &["json"]].concat()).await;
    assert_eq!(code_and_errors(&shown).0, Some(0));
    let (shown, asked) = (answer(&shown), rig.status().await.unwrap());
    for key in [
        "term",
        "pools",
        "policies",
        "policies_hash",
        "ready",
        "leading",
    ] {
        assert_eq!(shown[key], asked[key], "{key}");
    }
    assert!(shown["index"].as_u64() > Some(0));
    assert_eq!(shown["digest"].as_str().unwrap().len(), 64);
    let table = sunward(&rig, &[&arguments[..], &["table"]].concat()).await;
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        text.contains("caiso-a") && text.contains("surplus"),
        "{text}"
    );

    // A partner may not ask; and a daemon that is not there is no wrong use.
    let (code, errors) = code_and_errors(&sunward(&rig, &["status"]).await);
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("operator"), "{errors}");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let (code, errors) = code_and_errors(&sunward(&rig, &["status", "--server", &nobody]).await);
    assert_eq!(code, Some(3), "{errors}");
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}
