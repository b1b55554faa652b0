//! What an operator does to a running daemon: overrides, freezes, explanations, rollbacks; and what the grid does to it.

#![allow(clippy::unwrap_used)]

use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::ensure;
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use sunward_tests::daemon::{Daemon, run_command};
use sunward_tests::readings::{Feed, stamp};
use sunward_tests::reference_policy::ReferencePolicy;
use sunward_tests::rig::{FleetPool, Rig, RigOptions, assert_no_panic, fleet};
use sunward_tests::wait::{holds, until};

const DEADLINE: Duration = Duration::from_secs(40);
const POOL: &str = "caiso-a";
/// Clean enough to run, and too dirty for it.
const CLEAN: f64 = 50.0;
const DIRTY: f64 = 500.0;
/// From an operator's word, or the grid's, to the target.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A rig with one pool of three workers, and the operator's token in a file.
async fn rig(policy: &ReferencePolicy) -> Rig {
    let rig = Rig::new(&RigOptions {
        redis_url: None,
        fleet: fleet(None, &[FleetPool::memory(POOL, 3)]),
        policies: vec![("surplus.yaml".to_owned(), policy.yaml("surplus"))],
    })
    .await
    .unwrap();
    std::fs::write(rig.path("operator.token"), &rig.operator_token).unwrap();
    rig
}

/// A policy whose pool, once started, runs for an hour whatever the readings say.
fn stubborn() -> ReferencePolicy {
    ReferencePolicy {
        min_run_ms: 3_600_000,
        activate_for_ms: 500,
        min_rest_ms: 100,
        ..ReferencePolicy::default()
    }
}

/// A command of the operator, with JSON where it succeeds.
async fn command(rig: &Rig, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = raw(rig, arguments, "json").await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), value, errors)
}

async fn raw(rig: &Rig, arguments: &[&str], form: &str) -> Output {
    let (url, token) = (rig.url(), rig.path("operator.token"));
    let token = token.display().to_string();
    let mut all = arguments.to_vec();
    all.extend(["--server", &url, "--token-file", &token, "--output", form]);
    run_command(&all, &[], DEADLINE).await.unwrap()
}

async fn until_wanted(rig: &Rig, workers: u32) {
    until(DEADLINE, "the pool's target", async || {
        let pool = rig.pool_status(POOL).await?;
        ensure!(
            pool["desired"] == workers && pool["wanted"] == workers,
            "{pool}"
        );
        Ok(())
    })
    .await;
}

async fn until_wanted_at_once(rig: &Rig, workers: u32, since: Instant) {
    until_wanted(rig, workers).await;
    let took = since.elapsed();
    assert!(took < AT_ONCE, "the target took {took:?}");
}

async fn ended(mut daemon: Daemon) {
    let status = daemon.terminate(Duration::from_secs(15)).await.unwrap();
    assert_eq!(status.code(), Some(0));
    assert_no_panic(&daemon.log_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn off_stops_a_pool_at_once_survives_a_kill_and_expires() {
    let rig = rig(&stubborn()).await;
    let mut daemon = rig.start().await.unwrap();
    let _feed = Feed::start(rig.partner(), CLEAN);
    until_wanted(&rig, 3).await;

    let set = [
        "override",
        "set",
        "off",
        "--pool",
        POOL,
        "--for",
        "20s",
        "--id",
        "night-1",
        "--reason",
        "breaker 7 is replaced",
    ];
    let (code, answer, errors) = command(&rig, &set).await;
    let answered = Instant::now();
    assert_eq!(code, Some(0), "{errors}");
    let one = &answer[0];
    assert_eq!(
        (&one["id"], &one["scope"]),
        (&json!("night-1"), &json!("pool/caiso-a"))
    );
    assert_eq!(
        (&one["owner"], &one["set_by"]),
        (&json!("operator"), &json!("operator"))
    );
    until_wanted_at_once(&rig, 0, answered).await;

    // The same request again changes nothing; another content replaces it.
    let (code, again, _) = command(&rig, &set).await;
    assert_eq!((code, &again[0]["set_at"]), (Some(0), &one["set_at"]));

    daemon.kill();
    daemon.restart().await.unwrap();
    rig.wait_ready().await.unwrap();
    let status = rig.status().await.unwrap();
    assert_eq!(status["overrides"][0]["id"], "night-1", "{status}");
    assert_eq!(status["pools"][0]["desired"], 0, "{status}");
    let (_, why, _) = command(&rig, &["policy", "explain", POOL]).await;
    assert_eq!(
        (&why["target"], &why["rule"]),
        (&json!(0), &json!("override/night-1"))
    );
    let reason = why["reason"].as_str().unwrap();
    assert!(
        reason.contains("operator") && reason.contains("breaker 7"),
        "{reason}"
    );
    let beaten = why["losers"][0]["rule"].as_str().unwrap();
    assert_eq!(beaten, "surplus/threshold", "{why}");

    // It ends by itself, and the policy decides again.
    until_wanted(&rig, 3).await;
    let (code, left, _) = command(&rig, &["override", "list"]).await;
    assert_eq!((code, left), (Some(0), json!([])));
    let (code, _, errors) = command(&rig, &["override", "clear", "night-1"]).await;
    assert_eq!(code, Some(1), "{errors}");
    ended(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_keeps_the_targets_until_it_is_ended() {
    let rig = rig(&ReferencePolicy {
        activate_for_ms: 500,
        release_for_ms: 500,
        min_run_ms: 500,
        min_rest_ms: 100,
        ..ReferencePolicy::default()
    })
    .await;
    let daemon = rig.start().await.unwrap();
    let feed = Feed::start(rig.partner(), CLEAN);
    until_wanted(&rig, 3).await;
    let freeze = [
        "freeze",
        "--site",
        POOL,
        "--for",
        "10m",
        "--reason",
        "change window",
    ];
    let (code, frozen, errors) = command(&rig, &freeze).await;
    assert_eq!(code, Some(0), "{errors}");
    feed.set(DIRTY);
    holds(Duration::from_secs(4), "the frozen target", async || {
        let pool = rig.pool_status(POOL).await?;
        ensure!(pool["desired"] == 3, "{pool}");
        Ok(())
    })
    .await;
    let status = rig.status().await.unwrap();
    assert_eq!(status["frozen_pools"], json!([POOL]));

    // The whole fleet is not frozen, and is told what is.
    let (code, _, errors) = command(&rig, &["unfreeze"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("site/caiso-a"), "{errors}");
    let (code, ended_freezes, errors) = command(&rig, &["unfreeze", "--site", POOL]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(ended_freezes[0]["id"], frozen[0]["id"]);
    until_wanted(&rig, 0).await;
    ended(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_is_refused_with_the_place_and_the_remedy() {
    let rig = rig(&stubborn()).await;
    let daemon = rig.start().await.unwrap();
    until_wanted(&rig, 0).await;
    let reason = ["--reason", "test", "--for", "1h"];
    for (arguments, code, part) in [
        (
            vec!["override", "set", "off", "--pool", "caiso-b"],
            1,
            "did you mean `caiso-a`?",
        ),
        (
            vec!["override", "set", "on", "--pool", POOL, "--workers", "4"],
            1,
            "1 to 3",
        ),
        (vec!["override", "set", "off"], 2, "--fleet"),
        (
            vec!["override", "clear", "o-none"],
            1,
            "no override `o-none`",
        ),
        (
            vec!["policy", "explain", "caiso-b"],
            1,
            "did you mean `caiso-a`?",
        ),
        (
            vec!["policy", "explain", POOL, "--at", "2020-01-01T00:00:00Z"],
            1,
            "no decision recorded",
        ),
        (
            vec!["policy", "explain", POOL, "--at", "yesterday"],
            2,
            "not an instant",
        ),
        (vec!["policy", "rollback"], 1, "no other set was in force"),
    ] {
        let set = arguments[1] == "set";
        let all: Vec<&str> = arguments
            .iter()
            .copied()
            .chain(reason.iter().copied().filter(|_| set))
            .collect();
        let (got, value, errors) = command(&rig, &all).await;
        assert_eq!(got, Some(code), "{all:?}: {value} {errors}");
        assert!(errors.contains(part), "{part:?} is not in: {errors}");
        assert_eq!(value, Value::Null, "{all:?}");
    }
    let partner = rig.partner().get("/v1/overrides").await.unwrap();
    assert_eq!(
        (partner.status, partner.json().unwrap()["code"].as_str()),
        (403, Some("operator_only"))
    );
    ended(daemon).await;
    let (code, _, errors) = command(&rig, &["override", "list"]).await;
    assert_eq!(code, Some(3), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_explained_as_it_stands_and_as_it_stood() {
    let rig = rig(&stubborn()).await;
    let daemon = rig.start().await.unwrap();
    let feed = Feed::start(rig.partner(), CLEAN);
    until_wanted(&rig, 3).await;
    let (code, why, errors) = command(&rig, &["policy", "explain", POOL]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(
        (&why["pool"], &why["target"], &why["rule"]),
        (&json!(POOL), &json!(3), &json!("surplus/threshold"))
    );
    let input = &why["inputs"][0];
    assert_eq!(
        (&input["value"], &input["source"], &input["state"]),
        (&json!(CLEAN), &json!("watttime"), &json!("fresh"))
    );
    assert!(input["age_seconds"].as_f64().unwrap() < 5.0, "{input}");
    let place = &why["place"];
    assert!(
        place["file"].as_str().unwrap().ends_with("surplus.yaml"),
        "{place}"
    );
    assert!(
        place["line"].as_u64().unwrap() > 1 && place["policies"] == "then",
        "{place}"
    );
    assert!(why["why_not"].is_null(), "it runs: {why}");

    // Now: another reading shows at once, though it changed no decision.
    feed.set(DIRTY);
    until(DEADLINE, "the new reading to be shown", async || {
        let (_, later, _) = command(&rig, &["policy", "explain", POOL]).await;
        ensure!(later["inputs"][0]["value"] == DIRTY, "{later}");
        ensure!(later["target"] == 3, "kept by its minimum run: {later}");
        Ok(())
    })
    .await;

    // Then: before it started, over HTTP, with an offset whose `+` nobody escaped.
    let since = why["since"].as_str().unwrap();
    let since = chrono::DateTime::parse_from_rfc3339(since).unwrap();
    let before = (since - TimeDelta::milliseconds(1))
        .with_timezone(&chrono::FixedOffset::east_opt(3_600).unwrap());
    let path = format!("/v1/pools/{POOL}/explanation?at={}", before.to_rfc3339());
    let answer = rig.operator().get(&path).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let then = answer.json().unwrap();
    assert_eq!(
        (&then["target"], &then["until"]),
        (&json!(0), &why["since"]),
        "{then}"
    );
    assert!(
        then["why_not"]
            .as_str()
            .unwrap()
            .contains("surplus/threshold"),
        "{then}"
    );
    let ahead = "/v1/pools/caiso-a/explanation?at=2099-01-01T00:00:00Z";
    let refused = rig.operator().get(ahead).await.unwrap();
    assert_eq!(
        (refused.status, refused.json().unwrap()["code"].as_str()),
        (422, Some("bad_instant"))
    );

    let table = raw(&rig, &["policy", "explain", POOL], "table").await;
    let table = String::from_utf8(table.stdout).unwrap();
    for part in [
        "3 of 3 workers wanted",
        "surplus.yaml:",
        "INPUT",
        "watttime",
        "  next ",
    ] {
        assert!(table.contains(part), "{part:?} is not in:\n{table}");
    }
    ended(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_holds_over_a_restart_until_the_files_change() {
    let good = stubborn();
    let rig = rig(&good).await;
    let mut daemon = rig.start().await.unwrap();
    let _feed = Feed::start(rig.partner(), CLEAN);
    until_wanted(&rig, 3).await;
    let first = rig.status().await.unwrap()["policies_hash"].clone();
    let write = |below: f64| {
        let policy = ReferencePolicy {
            activate_below: below,
            ..good
        };
        std::fs::write(
            rig.path("policies").join("surplus.yaml"),
            policy.yaml("surplus"),
        )
        .unwrap();
    };
    write(1.0);
    let second = until_other_hash(&rig, &first).await;

    let (code, done, errors) = command(&rig, &["policy", "rollback"]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(
        (&done["policies_hash"], &done["taken_back"]),
        (&first, &second)
    );
    assert_eq!(
        (&done["policies"], &done["by"]),
        (&json!(["surplus"]), &json!("operator"))
    );
    let (code, _, errors) = command(&rig, &["policy", "rollback"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("operator rolled back"), "{errors}");

    daemon.kill();
    daemon.restart().await.unwrap();
    rig.wait_ready().await.unwrap();
    // Longer than the files are looked at again.
    holds(Duration::from_secs(7), "the rollback", async || {
        let status = rig.status().await?;
        ensure!(status["policies_hash"] == first, "{status}");
        let state = &status["policy_state"];
        ensure!(state["rolled_back"]["hash"] == second, "{state}");
        ensure!(
            state["rolled_back"]["by"] == "operator" && state["refused"] == json!([]),
            "{state}"
        );
        Ok(())
    })
    .await;
    let table = raw(&rig, &["status"], "table").await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("rolled back by operator"), "{table}");

    write(2.0);
    until_other_hash(&rig, &first).await;
    let state = rig.status().await.unwrap()["policy_state"].clone();
    assert!(
        state["rolled_back"].is_null() && state["can_roll_back"] == true,
        "{state}"
    );
    ended(daemon).await;
}

async fn until_other_hash(rig: &Rig, before: &Value) -> Value {
    until(DEADLINE, "another policy set in force", async || {
        let hash = rig.status().await?["policies_hash"].clone();
        ensure!(hash != *before, "still {before}");
        Ok(hash)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emergency_of_the_grid_waits_for_no_minimum_run_and_can_be_called_off() {
    let rig = rig(&stubborn()).await;
    let grant = ["--grant", "source=iso,sites=caiso-a,kinds=grid_event"];
    let token = rig.add_partner("grid", &grant).await.unwrap();
    let daemon = rig.start().await.unwrap();
    let _feed = Feed::start(rig.partner(), CLEAN);
    until_wanted(&rig, 3).await;
    let event = json!({
        "type": "grid_event", "source": "iso", "id": "evt-1", "kind": "emergency", "site": POOL,
        "starts_at": stamp(Utc::now() - TimeDelta::seconds(1)), "ends_at": stamp(Utc::now() + TimeDelta::hours(1)),
    });
    // Who is granted readings alone may not call.
    let refused = rig
        .partner()
        .post_json("/v1/signals", &event)
        .await
        .unwrap();
    assert_eq!(
        (refused.status, refused.json().unwrap()["code"].as_str()),
        (403, Some("not_granted"))
    );

    let grid = rig.partner().with_token(&token);
    let mut test = event.clone();
    test["id"] = json!("drill");
    test["kind"] = json!("test");
    let drilled = grid.post_json("/v1/signals", &test).await.unwrap();
    assert_eq!(drilled.json().unwrap()["accepted"], 1, "{}", drilled.text());
    assert_eq!(
        rig.pool_status(POOL).await.unwrap()["desired"],
        3,
        "a drill changes nothing"
    );

    let called = grid.post_json("/v1/signals", &event).await.unwrap();
    let answered = Instant::now();
    assert_eq!(
        (called.status, &called.json().unwrap()["accepted"]),
        (202, &json!(1)),
        "{}",
        called.text()
    );
    until_wanted_at_once(&rig, 0, answered).await;
    let again = grid.post_json("/v1/signals", &event).await.unwrap();
    assert_eq!(again.json().unwrap()["duplicate"], 1, "{}", again.text());
    let mut changed = event.clone();
    changed["kind"] = json!("limit");
    let conflict = grid.post_json("/v1/signals", &changed).await.unwrap();
    assert_eq!(
        conflict.status,
        409,
        "the same revision with another content: {}",
        conflict.text()
    );
    let known = rig.status().await.unwrap()["grid_events"].clone();
    let acts: Vec<_> = known
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["id"], &one["acts"]))
        .collect();
    assert_eq!(
        acts,
        [
            (&json!("drill"), &json!(true)),
            (&json!("evt-1"), &json!(true))
        ]
    );

    let stranger = rig
        .partner()
        .post_json("/v1/events/evt-1/cancel", &json!({}))
        .await
        .unwrap();
    assert_eq!(stranger.status, 404, "{}", stranger.text());
    let cancelled = grid
        .post_json("/v1/events/evt-1/cancel", &json!({}))
        .await
        .unwrap();
    assert_eq!(cancelled.status, 202, "{}", cancelled.text());
    let wanted = json!({"source": "iso", "id": "evt-1", "revision": 1, "status": "cancelled"});
    assert_eq!(cancelled.json().unwrap(), wanted);
    let twice = grid
        .post_json("/v1/events/evt-1/cancel", &json!({"source": "iso"}))
        .await
        .unwrap();
    assert_eq!((twice.status, twice.json().unwrap()), (202, wanted));
    until_wanted(&rig, 3).await;
    ended(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_says_was_spent_counts_at_once() {
    let policy = stubborn();
    let rig = rig(&policy).await;
    let budget = "  budgets: [{name: energy, limit: 2 MWh, per: day, scope: fleet}]\n";
    let text = format!("{}\n{budget}", policy.yaml("surplus").trim_end());
    std::fs::write(rig.path("policies").join("surplus.yaml"), text).unwrap();
    let daemon = rig.start().await.unwrap();
    let _feed = Feed::start(rig.partner(), CLEAN);
    until_wanted(&rig, 3).await;
    let set = |spent| ["budget", "set", "surplus/energy", "--spent", spent];
    let (code, _, errors) = command(&rig, &set("3")).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("has no unit"), "{errors}");
    let (code, done, errors) = command(&rig, &set("3000 kWh")).await;
    let answered = Instant::now();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(
        (&done["budget"], &done["set_by"]),
        (&json!("surplus/energy"), &json!("operator"))
    );
    until_wanted_at_once(&rig, 0, answered).await;
    let status = rig.status().await.unwrap()["budgets"][0].clone();
    assert_eq!(
        (&status["budget"], &status["limit"], &status["unit"]),
        (&json!("surplus/energy"), &json!(2.0), &json!("MWh"))
    );
    assert!(status["spent"].as_f64().unwrap() >= 3.0, "{status}");
    assert!(
        status["exhausted"] == true && status["known"] == true,
        "{status}"
    );
    let table = raw(&rig, &["status"], "table").await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("of 2.00 MWh") && table.contains("EXHAUSTED"),
        "{table}"
    );
    let (code, _, errors) = command(&rig, &set("0 kWh")).await;
    assert_eq!(code, Some(0), "{errors}");
    until_wanted(&rig, 3).await;
    ended(daemon).await;
}
