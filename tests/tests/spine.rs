//! The main job, whole: real readings go in by HTTP, a policy file judges them, a real MachineDeployment is scaled on a real API
//! server with Cluster API's own controllers, and a member on a real Redis hears of it.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use sunward_tests::actors::Hosts;
use sunward_tests::daemon::Daemon;
use sunward_tests::environment::{CLUSTER_API, Server, long, say, skip, skip_without};
use sunward_tests::member::{Member, Seen};
use sunward_tests::metrics::Metrics;
use sunward_tests::pool::{self, Pool};
use sunward_tests::readings::stamp;
use sunward_tests::reference_policy::{Change, ReferencePolicy};
use sunward_tests::replicas::{Follower, Sighting};
use sunward_tests::rig::{FleetPool, Rig, RigOptions, assert_no_panic, fleet};
use sunward_tests::series::{DAY, Month, write_csv};
use sunward_tests::servers::{Kubernetes, Redis, RedisOptions};
use sunward_tests::wait::until;

const NAMESPACE: &str = "spine";
const POOL: &str = "caiso-a";
/// A second pool in the same zone, of simulated workers: the same policy must do the same with another actuator.
const SIMULATED: &str = "caiso-b";
const MAX_WORKERS: u32 = 3;
/// Readings of a short run, a second each.
const PART_OF_A_DAY: usize = 110;
/// A move may come this much after the reference policy's, and this much before: a step of the scale, and what delivery takes.
const LATE_MAX: TimeDelta = TimeDelta::milliseconds(1_500);
const EARLY_MAX: TimeDelta = TimeDelta::milliseconds(150);

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_real_readings() {
    if skip_without(CLUSTER_API) || skip_without(&[Server::Redis]) {
        return;
    }
    let policy = ReferencePolicy::default();
    let (values, changes) = stretch(&policy);
    let redis = Redis::start(RedisOptions::default()).await.unwrap();
    let kubernetes = Kubernetes::shared().await.unwrap();
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, NAMESPACE, POOL)
        .await
        .unwrap();
    let _hosts = Hosts::start(client.clone(), NAMESPACE, Duration::from_millis(500));
    let pools = [
        FleetPool::k0smotron(POOL, MAX_WORKERS, NAMESPACE),
        FleetPool::memory(SIMULATED, MAX_WORKERS),
    ];
    let rig = Rig::new(&RigOptions {
        redis_url: Some(redis.url()),
        fleet: fleet(Some(&kubernetes.kubeconfig()), &pools),
        policies: vec![("surplus.yaml".to_owned(), policy.yaml("surplus"))],
    })
    .await
    .unwrap();
    let member = Member::start(&redis.url(), "job", &[POOL, SIMULATED]).unwrap();
    let mut daemon = rig.start().await.unwrap();
    settled(&rig, 0).await;
    let follower = Follower::start(client.clone(), &pool);

    let origin = Utc::now() + TimeDelta::seconds(3);
    let csv = write_csv(&rig.path("day.csv"), &values).unwrap();
    let deadline = Duration::from_secs(values.len() as u64 + 120);
    let (answer, code) = rig
        .push(&csv, &stamp(origin), "300", deadline)
        .await
        .unwrap();
    assert_eq!(answer["accepted"], values.len(), "{answer}");
    assert_eq!(answer["duplicate"], 0, "{answer}");
    assert_eq!(answer["rejected"], serde_json::json!([]), "{answer}");
    assert_eq!(code, Some(0));

    // The series is over: the hold for missing data ends, and the pool is given back.
    let last = changes.last().map_or(0, |change| u32::from(change.runs)) * MAX_WORKERS;
    let left = TimeDelta::seconds(values.len() as i64 + 12) - (Utc::now() - origin);
    until(
        left.to_std().unwrap_or_default() + Duration::from_secs(30),
        "the end of the last change",
        async || {
            let made = follower.seen().len() - 1;
            ensure!(made == changes.len(), "{made} of {} changes", changes.len());
            Ok(())
        },
    )
    .await;
    settled(&rig, last).await;

    let moves = kubernetes.moves(NAMESPACE, POOL).await.unwrap();
    let replicas: Vec<i64> = moves.iter().map(|each| each.replicas.unwrap()).collect();
    check_moves(&changes, origin, &follower.seen(), &replicas);
    check_metrics(&rig, values.len(), &changes, last).await;
    workers_follow(&client, &pool, last).await;
    let seen = everything_delivered(&rig, &member).await;
    check_events(&seen, &changes);
    check_end(&rig, &mut daemon, &changes).await;
}

/// The readings to push, and what the policy should do with them.
fn stretch(policy: &ReferencePolicy) -> (Vec<f64>, Vec<Change>) {
    let month = Month::load().unwrap();
    let length = if long() { DAY } else { PART_OF_A_DAY };
    let (start, changes) = policy
        .busiest_stretch(&month.values, length, |values| policy.is_steady(values))
        .expect("a month has a steady stretch");
    assert!(changes.len() >= 4, "several windows: {changes:?}");
    say(&format!(
        "readings {start} to {} of it, {} changes",
        start + length,
        changes.len()
    ));
    (month.values[start..start + length].to_vec(), changes)
}

/// Both pools are claimed and stand at `replicas`, with nothing on its way.
async fn settled(rig: &Rig, replicas: u32) {
    until(Duration::from_secs(60), "settled pools", async || {
        for pool in [POOL, SIMULATED] {
            let pool = rig.pool_status(pool).await?;
            ensure!(
                pool["state"] == "settled"
                    && pool["desired"] == replicas
                    && pool["wanted"] == replicas,
                "{pool}"
            );
        }
        Ok(())
    })
    .await;
}

/// The moves are those of the reference policy, each at its time.
fn check_moves(changes: &[Change], origin: DateTime<Utc>, seen: &[Sighting], replicas: &[i64]) {
    let runs = |change: &Change| i64::from(change.runs) * i64::from(MAX_WORKERS);
    let mut expected = vec![0];
    expected.extend(changes.iter().map(runs));
    assert_eq!(replicas, expected, "what etcd keeps of spec.replicas");
    let mut latest = TimeDelta::zero();
    for (change, sighting) in changes.iter().zip(&seen[1..]) {
        assert_eq!(sighting.replicas, runs(change));
        let planned = origin + TimeDelta::milliseconds(change.at_ms as i64);
        let late = sighting.at - planned;
        latest = latest.max(late);
        assert!(
            late >= -EARLY_MAX && late <= LATE_MAX,
            "{change:?} came {late} after its time"
        );
    }
    say(&format!(
        "the latest of {} moves came {latest} after its time",
        changes.len()
    ));
}

/// `/metrics` tells what was pushed and done, in a form that Prometheus' own checker accepts.
async fn check_metrics(rig: &Rig, pushed: usize, changes: &[Change], last: u32) {
    let (text, metrics) = rig.metrics().await.unwrap();
    let accepted = [("source", "watttime"), ("result", "accepted")];
    assert_eq!(
        metrics.get("sunward_signals_accepted_total", &accepted),
        Some(pushed as f64)
    );
    assert_eq!(metrics.sum("sunward_signals_refused_total", &[]), 0.0);
    for pool in [POOL, SIMULATED] {
        let labels = [("pool", pool), ("site", pool)];
        assert_eq!(
            metrics.get("sunward_pool_desired_workers", &labels),
            Some(f64::from(last))
        );
    }
    // Two pools, one scale each per change; a conflict with Cluster API's own writes is tried again and counted apart.
    let done = |action| {
        let labels = [("action", action), ("outcome", "accepted")];
        metrics.sum("sunward_actions_total", &labels)
    };
    assert_eq!(done("scale"), 2.0 * changes.len() as f64);
    assert_eq!(done("claim"), 2.0);
    let ups = changes.iter().filter(|change| change.runs).count() as f64;
    for pool in [POOL, SIMULATED] {
        let decided = |direction| {
            metrics.sum(
                "sunward_decisions_total",
                &[("pool", pool), ("direction", direction)],
            )
        };
        assert_eq!(
            (decided("up"), decided("down")),
            (ups, changes.len() as f64 - ups)
        );
    }
    // Every move is a new decision, and is timed once.
    assert_eq!(
        metrics.sum("sunward_signal_to_action_seconds_count", &[]),
        2.0 * changes.len() as f64
    );
    let index = rig.status().await.unwrap()["index"].as_f64().unwrap();
    let journaled = metrics.get("sunward_journal_index", &[]).unwrap();
    assert!(journaled > 0.0 && journaled <= index);
    gauges_are_right(&metrics);
    promtool_accepts(&text);
}

fn gauges_are_right(metrics: &Metrics) {
    assert_eq!(metrics.sum("sunward_leading", &[]), 1.0);
    let up = |kind, name| metrics.get("sunward_dependency_up", &[("kind", kind), ("name", name)]);
    assert_eq!(up("sink", "redis"), Some(1.0));
    assert_eq!(up("cluster", "mgmt"), Some(1.0));
}

fn promtool_accepts(text: &str) {
    let Some(promtool) = Server::Promtool.path() else {
        skip("the check of /metrics by promtool");
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "promtool: {said}");
}

/// Cluster API's own controllers brought the workers to where the replicas are.
async fn workers_follow(client: &kube::Client, pool: &Pool, last: u32) {
    until(
        Duration::from_secs(60),
        "the workers to follow",
        async || {
            let ready = pool.ready_replicas(client).await?;
            let machines = pool.machines(client).await?.len();
            ensure!(
                ready == i64::from(last) && machines == last as usize,
                "{ready} ready of {machines}"
            );
            Ok(())
        },
    )
    .await;
}

/// Waits until the member has every event that the daemon issued.
async fn everything_delivered(rig: &Rig, member: &Member) -> Seen {
    until(
        Duration::from_secs(30),
        "every event at the member",
        async || {
            let status = rig.status().await?;
            let issued = status["federations"][0]["sequence"]
                .as_u64()
                .context("no sequence")?;
            let seen = member.seen();
            ensure!(
                seen.envelopes.len() as u64 >= issued,
                "{} of {issued}",
                seen.envelopes.len()
            );
            Ok(seen)
        },
    )
    .await
}

/// Every sequence once, in order; and each site's kinds tell a story that makes sense.
fn check_events(seen: &Seen, changes: &[Change]) {
    assert_eq!(seen.unreadable, []);
    let sequences: Vec<u64> = seen.envelopes.iter().map(|each| each.seq).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
    let ids: BTreeSet<&str> = seen.envelopes.iter().map(|each| each.id.as_str()).collect();
    assert_eq!(ids.len(), seen.envelopes.len());
    let ups = changes.iter().filter(|change| change.runs).count();
    for site in [POOL, SIMULATED] {
        let kinds: Vec<&str> = seen
            .envelopes
            .iter()
            .filter(|each| each.site.as_deref() == Some(site))
            .map(|each| each.kind.as_str())
            .collect();
        let mut before = "site.drained";
        for kind in &kinds {
            let follows: &[&str] = match before {
                "site.drained" => &["site.joining"],
                "site.joining" => &["site.ready", "site.draining"],
                "site.ready" => &["site.draining"],
                "site.draining" => &["site.drained"],
                other => panic!("an unknown kind {other}"),
            };
            assert!(
                follows.contains(kind),
                "{site}: {kind} after {before}: {kinds:?}"
            );
            before = kind;
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for kind in &kinds {
            *counts.entry(kind).or_default() += 1;
        }
        assert_eq!(counts["site.joining"], ups, "{site}: {kinds:?}");
        let downs = changes.len() - ups;
        assert_eq!(
            counts.get("site.drained").copied().unwrap_or(0),
            downs,
            "{site}: {kinds:?}"
        );
        assert!(
            counts.contains_key("site.ready"),
            "{site} never had a ready worker: {kinds:?}"
        );
        let state = &seen.sites[site];
        let last = kinds.last().and_then(|kind| kind.strip_prefix("site."));
        assert_eq!(
            state.get("state").map(String::as_str),
            last,
            "{site}: {state:?}"
        );
    }
}

/// The daemon ends in order, its log is clean, and its journal tells the same story once more.
async fn check_end(rig: &Rig, daemon: &mut Daemon, changes: &[Change]) {
    let status = rig.status().await.unwrap();
    let ended = daemon.terminate(Duration::from_secs(15)).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    assert_no_panic(&daemon.log_text());
    let index = status["index"].as_u64().unwrap();
    let replayed = rig.replay(Some(index)).await.unwrap();
    assert_eq!(replayed["digest"], status["digest"]);
    let moved: Vec<bool> = replayed["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|decision| decision["pool"] == POOL && decision["target"] != decision["before"])
        .map(|decision| decision["target"] != 0)
        .collect();
    let expected: Vec<bool> = changes.iter().map(|change| change.runs).collect();
    assert_eq!(moved, expected);
}
