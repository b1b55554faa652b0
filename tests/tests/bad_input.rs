//! Bad input at every door: each has the right answer, and nothing else is lost by it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use sunward_tests::daemon::Daemon;
use sunward_tests::http::{Http, Response};
use sunward_tests::metrics::Metrics;
use sunward_tests::readings::{Feed, carbon, stamp};
use sunward_tests::reference_policy::ReferencePolicy;
use sunward_tests::rig::{FleetPool, Rig, RigOptions, assert_no_panic, fleet};
use sunward_tests::wait::until;

const POOL: &str = "caiso-a";
/// A changed file is seen within 5 s even where the file system tells nothing.
const RELOAD: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);

async fn memory_rig(kubeconfig: Option<&Path>) -> Rig {
    Rig::new(&RigOptions {
        redis_url: None,
        fleet: fleet(kubeconfig, &[FleetPool::memory(POOL, 3)]),
        policies: vec![(
            "surplus.yaml".to_owned(),
            ReferencePolicy::default().yaml("surplus"),
        )],
    })
    .await
    .unwrap()
}

/// A good reading that holds for a minute.
fn reading(id: &str, value: f64) -> Value {
    carbon(id, Utc::now(), TimeDelta::seconds(60), value)
}

/// The reading with some members set, or left out where the value is null.
fn with(mut reading: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            reading.as_object_mut().unwrap().remove(key);
        } else {
            reading[key] = value.clone();
        }
    }
    reading
}

/// One bad request, and the answer that it must have.
struct Case {
    name: &'static str,
    body: Bytes,
    status: u16,
    /// The problem's code, or for a single reading that of its only error.
    code: &'static str,
    /// Where in the body, for a single reading.
    pointer: Option<&'static str>,
}

fn whole(name: &'static str, body: impl Into<Bytes>, status: u16, code: &'static str) -> Case {
    Case {
        name,
        body: body.into(),
        status,
        code,
        pointer: None,
    }
}

fn single(name: &'static str, body: &Value, code: &'static str, pointer: &'static str) -> Case {
    Case {
        name,
        body: body.to_string().into(),
        status: 422,
        code,
        pointer: Some(pointer),
    }
}

fn cases() -> Vec<Case> {
    let now = Utc::now();
    let good = || reading("bad", 50.0);
    let local = now.format("%Y-%m-%dT%H:%M:%S").to_string();
    let backwards = json!({"valid_to": stamp(now - TimeDelta::seconds(60))});
    let nan = good().to_string().replace("50.0", "NaN");
    assert!(nan.contains("NaN"));
    let elsewhere = json!({"zone": {"scheme": "wt", "code": "ATLANTIS"}});
    vec![
        whole("not JSON", "carbon=50", 400, "syntax"),
        whole("cut off", "[{\"source\": \"watt", 400, "syntax"),
        whole("no body", "", 400, "syntax"),
        whole("NaN, which is not JSON", nan, 400, "syntax"),
        whole("2 MiB", vec![b' '; 2 * 1024 * 1024], 413, "too_large"),
        single(
            "NaN as text",
            &with(good(), json!({"value": "NaN"})),
            "not_finite",
            "/value",
        ),
        single(
            "a unit that does not exist",
            &with(good(), json!({"unit": "gCO2e/furlong"})),
            "unknown_unit",
            "/unit",
        ),
        single(
            "a unit of another kind",
            &with(good(), json!({"unit": "kW"})),
            "unknown_unit",
            "/unit",
        ),
        single(
            "an end before the start",
            &with(good(), backwards),
            "interval_order",
            "/valid_to",
        ),
        single(
            "a time without an offset",
            &with(good(), json!({"valid_from": local})),
            "stamp_without_offset",
            "/valid_from",
        ),
        single(
            "an unknown zone",
            &with(good(), elsewhere),
            "unknown_zone",
            "/zone",
        ),
        single(
            "an unknown site",
            &with(good(), json!({"zone": null, "site": "atlantis"})),
            "unknown_site",
            "/site",
        ),
        single(
            "an unknown field",
            &with(good(), json!({"vaule": 1})),
            "unknown_field",
            "/vaule",
        ),
        single(
            "no value",
            &with(good(), json!({"value": null})),
            "value_missing",
            "/value",
        ),
        single(
            "long past",
            &carbon(
                "bad",
                now - TimeDelta::hours(2),
                TimeDelta::seconds(60),
                50.0,
            ),
            "too_old",
            "/valid_to",
        ),
    ]
}

/// A problem is one of RFC 9457, names its code, says what to do, and never looks like a success.
fn problem(answer: &Response, name: &str) -> Value {
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json"),
        "{name}"
    );
    let problem = answer.json().unwrap();
    assert_eq!(problem["status"], answer.status, "{name}: {problem}");
    for member in ["type", "title", "detail", "code"] {
        assert!(
            !problem[member].as_str().unwrap().is_empty(),
            "{name}: {problem}"
        );
    }
    problem
}

async fn post(http: &Http, body: impl Into<Bytes>) -> Response {
    http.post("/v1/signals", "application/json", body)
        .await
        .unwrap()
}

/// The value that holds now for the stream that the policy reads.
async fn holds(rig: &Rig) -> Value {
    let status = rig.status().await.unwrap();
    let streams = status["streams"].as_array().unwrap();
    let carbon = streams
        .iter()
        .find(|stream| stream["stream"].as_str().unwrap().contains("watttime"));
    carbon.map_or(Value::Null, |stream| stream["value"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_readings_are_refused_one_by_one() {
    let rig = memory_rig(None).await;
    let mut daemon = rig.start().await.unwrap();
    let partner = rig.partner();
    let mut refused: BTreeMap<&str, f64> = BTreeMap::new();
    let mut accepted = 0.0;
    for (number, case) in cases().into_iter().enumerate() {
        let answer = post(&partner, case.body).await;
        assert_eq!(
            answer.status,
            case.status,
            "{}: {}",
            case.name,
            answer.text()
        );
        let problem = problem(&answer, case.name);
        match case.pointer {
            None => assert_eq!(problem["code"], case.code, "{}: {problem}", case.name),
            Some(pointer) => {
                let errors = problem["errors"].as_array().unwrap();
                assert_eq!(errors.len(), 1, "{}: {problem}", case.name);
                assert_eq!(
                    (&errors[0]["code"], &errors[0]["pointer"]),
                    (&json!(case.code), &json!(pointer)),
                    "{}: {problem}",
                    case.name
                );
            }
        }
        *refused.entry(case.code).or_default() += 1.0;

        // Nothing else is lost: the next good reading is taken in and holds.
        let value = 200.0 + number as f64;
        let answer = post(
            &partner,
            reading(&format!("good-{number}"), value).to_string(),
        )
        .await;
        assert_eq!(
            (answer.status, &answer.json().unwrap()["accepted"]),
            (202, &json!(1)),
            "after {}",
            case.name
        );
        accepted += 1.0;
        assert_eq!(holds(&rig).await, json!(value), "after {}", case.name);
    }
    one_bad_of_ten(&rig).await;
    *refused.entry("unknown_unit").or_default() += 1.0;
    // Nine of ten, and the tenth once it was mended.
    accepted += 10.0;

    let (_, metrics) = rig.metrics().await.unwrap();
    for (code, count) in refused {
        let labels = [("reason", code)];
        assert_eq!(
            metrics.get("sunward_signals_refused_total", &labels),
            Some(count),
            "{code}"
        );
    }
    assert_eq!(taken_in(&metrics), accepted);
    assert_no_panic(&daemon.log_text());
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

fn taken_in(metrics: &Metrics) -> f64 {
    metrics.sum("sunward_signals_accepted_total", &[("result", "accepted")])
}

/// Nine of ten are durable, and the answer says which one is not and why.
async fn one_bad_of_ten(rig: &Rig) {
    let mut batch: Vec<Value> = (0..10)
        .map(|item| reading(&format!("batch-{item}"), 300.0 + f64::from(item)))
        .collect();
    batch[6]["unit"] = json!("gCO2e/furlong");
    let answer = post(&rig.partner(), json!(batch).to_string()).await;
    let body = answer.json().unwrap();
    assert_eq!(answer.status, 202, "{body}");
    assert_eq!(body["accepted"], 9, "{body}");
    let rejected = body["rejected"].as_array().unwrap();
    assert_eq!(rejected.len(), 1, "{body}");
    assert_eq!(rejected[0]["item"], 6);
    assert_eq!(rejected[0]["pointer"], "/6/unit");
    assert_eq!(rejected[0]["code"], "unknown_unit");
    assert!(rejected[0]["detail"].as_str().unwrap().contains("furlong"));
    // Sent again with the sixth mended, the nine are known.
    batch[6]["unit"] = json!("gCO2e/kWh");
    let again = post(&rig.partner(), json!(batch).to_string())
        .await
        .json()
        .unwrap();
    assert_eq!(
        (&again["accepted"], &again["duplicate"]),
        (&json!(1), &json!(9)),
        "{again}"
    );
    // The tenth reading was issued last, but for the one that was mended.
    assert_eq!(holds(rig).await, json!(306.0));
}

/// Without a token, with a wrong one, and with one that has no grant for what it sends.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_the_grant_pushes_nothing() {
    let rig = memory_rig(None).await;
    let mut daemon = rig.start().await.unwrap();
    let plain = Http::new(&rig.url());
    let price = ["--grant", "source=market,sites=caiso-a,kinds=energy_price"];
    let other = rig.add_partner("market", &price).await.unwrap();
    let unknown = format!("sw_nobody_{}", "0".repeat(64));
    let clients = [
        ("no token", plain.clone(), 401, "unauthenticated"),
        (
            "an unknown token",
            plain.with_token(&unknown),
            401,
            "unauthenticated",
        ),
        (
            "another source's token",
            plain.with_token(&other),
            403,
            "not_granted",
        ),
        (
            "an operator's token without a grant",
            rig.operator(),
            403,
            "not_granted",
        ),
    ];
    for (name, http, status, code) in clients {
        let answer = post(&http, reading("stolen", 1.0).to_string()).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        assert_eq!(problem(&answer, name)["code"], code, "{name}");
    }
    // Of two readings, the one that is granted is kept.
    let granted = json!({
        "id": "price", "source": "market", "kind": "energy_price", "site": POOL, "valid_from": stamp(Utc::now()),
        "valid_to": stamp(Utc::now() + TimeDelta::seconds(60)), "value": -3.0, "unit": "EUR/MWh",
    });
    let both = json!([reading("stolen", 1.0), granted]);
    let answer = post(&plain.with_token(&other), both.to_string()).await;
    let body = answer.json().unwrap();
    assert_eq!(
        (answer.status, &body["accepted"]),
        (202, &json!(1)),
        "{body}"
    );
    assert_eq!(
        (&body["rejected"][0]["item"], &body["rejected"][0]["code"]),
        (&json!(0), &json!("not_granted")),
        "{body}"
    );
    // A partner may not ask.
    let answer = rig.partner().get("/v1/status").await.unwrap();
    assert_eq!(
        problem(&answer, "a partner that asks")["code"],
        "operator_only"
    );
    assert_eq!(holds(&rig).await, Value::Null);
    // No secret is in the log.
    let log = daemon.log_text();
    for secret in [&other, &unknown, &rig.partner_token, &rig.operator_token] {
        assert!(!log.contains(secret.rsplit('_').next().unwrap()));
    }
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// Bad policy files: name, text (of which `{}` is a good policy's), the place, and a part of the reason.
fn bad_policies() -> Vec<(&'static str, String, String, &'static str)> {
    let good = ReferencePolicy::default().yaml("other");
    // The line and column of `word` in the text that results.
    let bad = |name, from: &str, to: &str, word: &str, reason| {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        let at = text.find(word).unwrap();
        let line = text[..at].matches('\n').count() + 1;
        let column = at - text[..at].rfind('\n').map_or(0, |newline| newline + 1) + 1;
        (name, text, format!(":{line}:{column}: "), reason)
    };
    vec![
        bad(
            "a syntax error in the expression",
            "carbon < 100",
            "\"carbon < < 100\"",
            "< 100",
            "SUN-P02",
        ),
        bad(
            "an unknown key",
            "priority: 100",
            "prioritty: 100",
            "prioritty",
            "prioritty",
        ),
        bad(
            "an unknown signal",
            "carbon < 100",
            "wind < 100",
            "wind",
            "wind",
        ),
        bad(
            "no action for missing data",
            ", on_missing: {hold: 3000ms, then: release}",
            "",
            "carbon",
            "on_missing",
        ),
    ]
}

/// Each bad file is refused with file, line, column and reason while the set in force goes on; mended, it is taken over.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_never_replaces_a_good_one() {
    let rig = memory_rig(None).await;
    let mut daemon = rig.start().await.unwrap();
    let feed = Feed::start(rig.partner(), 50.0);
    until(RELOAD, "the pool to run", async || {
        let pool = rig.pool_status(POOL).await?;
        ensure!(pool["ready"] == 3, "{pool}");
        Ok(())
    })
    .await;
    let in_force = rig.status().await.unwrap()["policies_hash"].clone();
    let path = rig.path("policies").join("other.yaml");
    for (name, text, place, reason) in bad_policies() {
        std::fs::write(&path, &text).unwrap();
        finding(&rig, name, &format!("{}{place}", path.display()), reason).await;
        still_as_it_was(&rig, &in_force, name).await;
        // A refused set is in the log, too.
        assert!(daemon.log_text().contains(reason), "{name}");
        std::fs::remove_file(&path).unwrap();
        no_finding(&rig, name).await;
    }
    // YAML that is none.
    let unclosed = ReferencePolicy::default()
        .yaml("other")
        .replace("{name: other}", "{name: other");
    std::fs::write(&path, unclosed).unwrap();
    finding(&rig, "not YAML", &path.display().to_string(), "SUN-P001").await;
    still_as_it_was(&rig, &in_force, "not YAML").await;

    std::fs::write(&path, ReferencePolicy::default().yaml("other")).unwrap();
    no_finding(&rig, "the mended file").await;
    let status = rig.status().await.unwrap();
    assert_ne!(status["policies_hash"], in_force);
    assert_eq!(
        status["policies"].as_array().unwrap().len(),
        2,
        "{}",
        status["policies"]
    );
    let (_, metrics) = rig.metrics().await.unwrap();
    let refused = metrics.sum("sunward_reloads_total", &[("outcome", "refused")]);
    assert!(refused >= 5.0, "{refused}");

    a_bad_fleet(&rig).await;
    assert!(
        feed.posted().iter().all(|post| post.status == Some(202)),
        "no reading was lost by a reload"
    );
    assert_no_panic(&daemon.log_text());
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// A start without one good set is no start of scaling; a start beside a good one goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_at_the_start_is_told_and_nothing_good_is_forgotten() {
    let rig = memory_rig(None).await;
    let path = rig.path("policies").join("surplus.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    let bad = good.replace("priority:", "prioritty:");
    std::fs::write(&path, &bad).unwrap();
    let mut daemon = Daemon::start(&rig.config()).await.unwrap();
    let place = format!("{}:6:3: ", path.display());
    until(RELOAD, "readiness to say why", async || {
        let parts = rig.not_ready().await?;
        let told = parts
            .iter()
            .any(|(name, reason)| name == "policies" && reason.contains(&place));
        ensure!(told, "{parts:?}");
        Ok(())
    })
    .await;
    // A reading is not refused for a place that cannot be known yet.
    let answer = post(&rig.partner(), reading("early", 50.0).to_string()).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(problem(&answer, "no fleet")["code"], "no_fleet");
    assert!(answer.header("retry-after").is_some());
    std::fs::write(&path, &good).unwrap();
    rig.wait_ready().await.unwrap();
    let in_force = rig.status().await.unwrap()["policies_hash"].clone();
    daemon.terminate(STOP_MAX).await.unwrap();

    // The journal has the good set.
    std::fs::write(&path, &bad).unwrap();
    daemon.restart().await.unwrap();
    finding(&rig, "the bad file", &place, "prioritty").await;
    rig.wait_ready().await.unwrap();
    assert_eq!(rig.status().await.unwrap()["policies_hash"], in_force);
    let answer = post(&rig.partner(), reading("after", 50.0).to_string()).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert_eq!(holds(&rig).await, json!(50.0));
    assert_no_panic(&daemon.log_text());
    assert_eq!(daemon.terminate(STOP_MAX).await.unwrap().code(), Some(0));
}

/// Two pools on one MachineDeployment would overrule each other for ever.
async fn a_bad_fleet(rig: &Rig) {
    let kubeconfig = rig.path("kubeconfig");
    let path = rig.path("fleet.yaml");
    let one = |second: &str| {
        let mut other = FleetPool::k0smotron("caiso-c", 3, "gpu");
        other.actuator = other.actuator.replace("caiso-c", second);
        let pools = [
            FleetPool::memory(POOL, 3),
            FleetPool::k0smotron("caiso-b", 3, "gpu"),
            other,
        ];
        fleet(Some(&kubeconfig), &pools)
    };
    let good = std::fs::read_to_string(&path).unwrap();
    let bad = one("caiso-b");
    std::fs::write(&path, &bad).unwrap();
    let second = bad.rfind("machine_deployment: caiso-b").unwrap() + "machine_deployment: ".len();
    let line = bad[..second].matches('\n').count() + 1;
    let column = second - bad[..second].rfind('\n').unwrap();
    let place = format!("{}:{line}:{column}: ", path.display());
    finding(
        rig,
        "two pools on one MachineDeployment",
        &place,
        "SUN-F008",
    )
    .await;
    let pools = rig.status().await.unwrap()["pools"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(pools, 1, "the fleet in force stays");
    assert_eq!(rig.pool_status(POOL).await.unwrap()["ready"], 3);
    std::fs::write(&path, good).unwrap();
    no_finding(rig, "the mended fleet").await;
    assert_eq!(rig.pool_status(POOL).await.unwrap()["ready"], 3);
}

/// Waits until status names the place and the reason.
async fn finding(rig: &Rig, name: &str, place: &str, reason: &str) {
    until(RELOAD, name, async || {
        let status = rig.status().await?;
        let findings = status["file_findings"]
            .as_array()
            .context("no file_findings")?;
        let found = findings
            .iter()
            .filter_map(Value::as_str)
            .any(|finding| finding.starts_with(place) && finding.contains(reason));
        ensure!(found, "no {place} with {reason} in {findings:?}");
        Ok(())
    })
    .await;
}

async fn no_finding(rig: &Rig, name: &str) {
    until(RELOAD, name, async || {
        let status = rig.status().await?;
        ensure!(
            status["file_findings"] == json!([]),
            "{}",
            status["file_findings"]
        );
        Ok(())
    })
    .await;
}

/// The good set is in force, the workers run, and the daemon is ready.
async fn still_as_it_was(rig: &Rig, in_force: &Value, name: &str) {
    let status = rig.status().await.unwrap();
    assert_eq!(&status["policies_hash"], in_force, "{name}");
    assert_eq!(status["pools"][0]["ready"], 3, "{name}");
    assert_eq!(rig.not_ready().await.unwrap(), [], "{name}");
}
