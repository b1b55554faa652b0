//! The daemon as a process: how it starts, what it refuses, how it stops, and the commands that need none.

#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use sunward_tests::daemon::{Daemon, run_command};
use sunward_tests::environment::skip;
use sunward_tests::http::Http;
use sunward_tests::readings::Feed;
use sunward_tests::reference_policy::ReferencePolicy;
use sunward_tests::rig::{FleetPool, Rig, RigOptions, assert_no_panic, fleet};
use sunward_tests::wait::until;

const DEADLINE: Duration = Duration::from_secs(30);
/// A stop waits for calls at most 10 s.
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

async fn sunward(arguments: &[&str]) -> Output {
    run_command(arguments, &[], DEADLINE).await.unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A message says what, where and how to mend, on standard error; standard output stays empty.
fn assert_refused(output: &Output, parts: &[&str]) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(text(output), "");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert_no_panic(&said);
}

/// One journal, one daemon: the second is told so at once, and the first goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_on_the_same_journal_is_refused() {
    let rig = memory_rig().await;
    let mut daemon = rig.start().await.unwrap();
    let before = rig.status().await.unwrap();

    // On another port, so that only the journal is in its way.
    let other = rig.path("other.yaml");
    let port = rig.url().rsplit(':').next().unwrap().to_owned();
    let config = std::fs::read_to_string(rig.config()).unwrap();
    std::fs::write(&other, config.replace(&port, "0")).unwrap();
    let refused = sunward(&["run", "--config", &other.display().to_string()]).await;
    let journal = rig.data().join("journal.redb").display().to_string();
    assert_refused(&refused, &[&journal, "another"]);
    // Nor may a replay read what another process writes.
    let refused = sunward(&["replay", &journal]).await;
    assert_refused(&refused, &[&journal]);

    let after = rig.status().await.unwrap();
    assert_eq!(after["term"], before["term"]);
    assert!(after["index"].as_u64() >= before["index"].as_u64());
    assert!(daemon.running());
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// SIGTERM under traffic: exit 0 in time, nothing acknowledged is lost, and replicas stay as they are.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_stops_in_order_and_leaves_replicas() {
    let rig = memory_rig().await;
    let mut daemon = rig.start().await.unwrap();
    let feed = Feed::start(rig.partner(), 50.0);
    until(DEADLINE, "ready workers", async || {
        let pool = rig.pool_status("caiso-a").await?;
        ensure!(pool["ready"] == 3 && pool["state"] == "settled", "{pool}");
        Ok(())
    })
    .await;

    let asked = Instant::now();
    let ended = daemon.terminate(STOP_MAX).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(asked.elapsed() < STOP_MAX, "{:?}", asked.elapsed());
    let log = daemon.log_lines();
    assert_eq!(log.last().unwrap()["message"], "stopped");
    assert_no_panic(&daemon.log_text());
    let acknowledged: Vec<Value> = feed
        .posted()
        .into_iter()
        .filter(|post| post.status == Some(202))
        .flat_map(|post| post.items)
        .collect();
    drop(feed);

    // A closed journal replays, and a stop wrote nothing down.
    let replayed = rig.replay(None).await.unwrap();
    let last = replayed["scales"].as_array().unwrap().last().unwrap();
    assert_eq!(last["replicas"], 3, "{replayed}");

    daemon.restart().await.unwrap();
    rig.wait_ready().await.unwrap();
    let pool = rig.pool_status("caiso-a").await.unwrap();
    assert_eq!((&pool["desired"], &pool["wanted"]), (&3.into(), &3.into()));
    let answer = rig
        .partner()
        .post_json("/v1/signals", &Value::Array(acknowledged.clone()))
        .await
        .unwrap();
    assert_eq!(
        answer.json().unwrap()["duplicate"],
        acknowledged.len(),
        "{}",
        answer.text()
    );
    let status = rig.status().await.unwrap();
    assert_eq!(status["term"], replayed["term"].as_u64().unwrap() + 1);
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// A stop does not wait for ever for a partner that keeps a request open.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_does_not_hold_up_a_stop() {
    use tokio::io::AsyncWriteExt as _;
    let rig = memory_rig().await;
    let mut daemon = rig.start().await.unwrap();
    let mut open = tokio::net::TcpStream::connect(daemon.address("http").unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /v1/signals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: 1000\r\n\r\n[",
        rig.partner_token
    );
    open.write_all(head.as_bytes()).await.unwrap();
    let asked = Instant::now();
    let ended = daemon.terminate(STOP_MAX + STOP_MAX).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(asked.elapsed() < STOP_MAX, "{:?}", asked.elapsed());
}

/// In an empty folder, without any file: simulated workers, a local journal, loopback.
#[tokio::test(flavor = "multi_thread")]
async fn run_without_a_config_works_in_an_empty_folder() {
    if TcpListener::bind("127.0.0.1:7117").is_err() {
        skip("port 7117, which the default configuration takes, is in use");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start_default(folder.path()).await.unwrap();
    assert_eq!(daemon.address("http").unwrap(), "127.0.0.1:7117");
    let http = daemon.http().unwrap();
    until(DEADLINE, "it to be ready", async || {
        let answer = http.get("/readyz").await?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .await;
    assert_eq!(http.get("/healthz").await.unwrap().status, 200);
    assert_eq!(http.get("/v1/status").await.unwrap().status, 401);
    let made: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(made, ["sunward-data"]);
    operator_sees_the_example(folder.path(), &http).await;
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// A partner that is added to a running daemon is served at once.
async fn operator_sees_the_example(folder: &Path, http: &Http) {
    let tokens = folder
        .join("sunward-data/tokens.yaml")
        .display()
        .to_string();
    let added = sunward(&[
        "partner",
        "add",
        "me",
        "--operator",
        "--tokens",
        &tokens,
        "--output",
        "json",
    ])
    .await;
    assert_eq!(added.status.code(), Some(0), "{}", errors(&added));
    let added: Value = serde_json::from_slice(&added.stdout).unwrap();
    let secret = added[0]["secret"].as_str().unwrap();
    let status = http
        .with_token(secret)
        .get("/v1/status")
        .await
        .unwrap()
        .json()
        .unwrap();
    let pools: Vec<&str> = status["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| pool["pool"].as_str().unwrap())
        .collect();
    assert_eq!(pools, ["caiso-a", "spp-a"]);
    assert_eq!(status["policies"][0]["name"], "curtailment");
}

/// Wrong configurations are refused before anything is touched, with the place.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_configurations_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sunward.yaml");
    let name = path.display().to_string();
    let cases = [
        // An unknown key, a wrong type, not YAML, an address beyond loopback.
        ("http:\n  lisen: 127.0.0.1:0\n", ":2:3", "lisen"),
        ("data_dir: d\nhttp:\n  listen: nowhere\n", ":3:11", "listen"),
        (
            "http: {listen: \"127.0.0.1:0\"\nlog: [\n",
            ":2:1",
            "SUN-P001",
        ),
        ("http: {listen: \"0.0.0.0:0\"}\n", "", "loopback"),
    ];
    for (config, place, part) in cases {
        std::fs::write(&path, config).unwrap();
        let refused = sunward(&["run", "--config", &name]).await;
        assert_refused(&refused, &[&format!("{name}{place}"), part]);
    }
    let refused = sunward(&["run", "--config", &format!("{name}.absent")]).await;
    assert_refused(&refused, &[&format!("{name}.absent")]);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// What needs no daemon.
#[tokio::test(flavor = "multi_thread")]
async fn version_completions_and_help() {
    let version = sunward(&["version"]).await;
    assert_eq!(version.status.code(), Some(0));
    assert_eq!(
        text(&version),
        format!("sunward {}\n", env!("CARGO_PKG_VERSION"))
    );

    let completions = sunward(&["completions", "bash"]).await;
    assert_eq!(completions.status.code(), Some(0));
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), &completions.stdout).unwrap();
    if let Ok(checked) = std::process::Command::new("bash")
        .arg("-n")
        .arg(script.path())
        .output()
    {
        assert!(checked.status.success(), "{}", errors(&checked));
    }
    assert!(text(&completions).contains("replay"));

    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["signal", "push", "--help"],
        &["partner", "add", "--help"],
        &["replay", "--help"],
        &["demo", "--help"],
    ] {
        let help = sunward(arguments).await;
        assert_eq!(help.status.code(), Some(0), "{arguments:?}");
        assert!(text(&help).contains("Usage:"), "{arguments:?}");
    }
    let wrong = sunward(&["run", "--no-such-flag"]).await;
    assert_refused(&wrong, &["--no-such-flag"]);
}
