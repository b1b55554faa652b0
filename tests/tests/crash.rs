//! `kill -9` at random points of a run: what was acknowledged is there, nothing is scaled twice, the recovered state is the
//! journal's, and the end is that of a run that nobody disturbed.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use sunward_tests::actors::Hosts;
use sunward_tests::attribution::{attribute, decided};
use sunward_tests::daemon::Daemon;
use sunward_tests::environment::{CLUSTER_API, Server, long, say, skip_without};
use sunward_tests::member::{Member, Seen};
use sunward_tests::pool;
use sunward_tests::readings::{Load, stamp};
use sunward_tests::reference_policy::{Change, QUIET_MS, ReferencePolicy};
use sunward_tests::rig::{FleetPool, Rig, RigOptions, assert_no_panic, fleet};
use sunward_tests::series::{DAY, Month, Random, write_csv};
use sunward_tests::servers::{Kubernetes, Redis, RedisOptions};
use sunward_tests::wait::until;

const NAMESPACE: &str = "crash";
/// The pool of the daemon that is killed, and that of the one that is not.
const POOL: &str = "caiso-a";
const TWIN: &str = "twin-a";
const WORKERS: u32 = 3;
/// The last kill comes this long before the last reading, so that the end does not depend on it.
const CALM_MS: u64 = 14_000;
/// How long after a change an aimed kill may come, ms: what the decision, its write and the answer take.
const AIM_MS: u64 = 60;
const DEADLINE: Duration = Duration::from_secs(60);
/// Readings that are sent again at once.
const AGAIN_MAX: usize = 1_000;

/// What a daemon said of itself right after a recovery.
#[derive(Debug)]
struct Recovered {
    index: u64,
    digest: Value,
    term: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_points_lose_nothing_and_scale_nothing_twice() {
    if skip_without(CLUSTER_API) || skip_without(&[Server::Redis]) {
        return;
    }
    let mut random = Random::from_environment();
    let policy = ReferencePolicy {
        then_keep: true,
        ..ReferencePolicy::default()
    };
    let (values, changes) = stretch(&policy);
    let redis = Redis::start(RedisOptions::default()).await.unwrap();
    let kubernetes = Kubernetes::shared().await.unwrap();
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, NAMESPACE, POOL)
        .await
        .unwrap();
    let twin_pool = pool::create(&kubernetes, &client, NAMESPACE, TWIN)
        .await
        .unwrap();
    let _hosts = Hosts::start(client.clone(), NAMESPACE, Duration::from_millis(500));
    let rig = rig(&kubernetes, Some(redis.url()), &policy, POOL).await;
    let twin = rig_of_the_twin(&kubernetes, &policy).await;
    let mut daemon = rig.start().await.unwrap();
    let mut twin_daemon = twin.start().await.unwrap();
    settled(&rig, POOL, 0).await;
    settled(&twin, TWIN, 0).await;
    let member = Member::start(&redis.url(), "job", &[POOL]).unwrap();
    let load = Load::start(&rig.partner(), "load", POOL);

    let origin = Utc::now() + TimeDelta::seconds(3);
    let kills = kill_times(&mut random, values.len(), &changes);
    let csv = write_csv(&rig.path("day.csv"), &values).unwrap();
    let (from, deadline) = (
        stamp(origin),
        Duration::from_secs(values.len() as u64 + 120),
    );
    let (pushed, twin_pushed, recovered) = tokio::join!(
        rig.push(&csv, &from, "300", deadline),
        twin.push(&csv, &from, "300", deadline),
        kill_and_restart(&rig, &mut daemon, &load, origin, &kills, &mut random),
    );
    let (twin_answer, _) = twin_pushed.unwrap();
    assert_eq!(twin_answer["accepted"], values.len(), "{twin_answer}");
    // A batch whose answer was lost is a duplicate when it is sent again.
    let (answer, code) = pushed.unwrap();
    let taken = answer["accepted"].as_u64().unwrap() + answer["duplicate"].as_u64().unwrap();
    assert_eq!((taken, code), (values.len() as u64, Some(0)), "{answer}");
    assert_eq!(answer["rejected"], json!([]));

    settled(&twin, TWIN, WORKERS).await;
    settled(&rig, POOL, WORKERS).await;
    let acknowledged = load.acknowledged();
    drop(load);
    assert!(
        acknowledged.len() > 1_000,
        "{} readings",
        acknowledged.len()
    );
    all_there(&rig, &acknowledged).await;
    let (again, _) = rig.push(&csv, &from, "300", deadline).await.unwrap();
    assert_eq!(again["duplicate"], values.len(), "{again}");

    assert_eq!(
        pool.replicas(&client).await.unwrap(),
        twin_pool.replicas(&client).await.unwrap()
    );
    let seen = delivered(&rig, &member).await;
    check_events(&seen);
    for daemon in [&mut daemon, &mut twin_daemon] {
        let ended = daemon.terminate(Duration::from_secs(15)).await.unwrap();
        assert_eq!(ended.code(), Some(0));
        assert_no_panic(&daemon.log_text());
    }
    check_recoveries(&rig, &recovered, kills.len()).await;
    for (rig, name) in [(&rig, POOL), (&twin, TWIN)] {
        let moves = kubernetes.moves(NAMESPACE, name).await.unwrap();
        let moves: Vec<u64> = moves[1..]
            .iter()
            .map(|each| each.replicas.unwrap() as u64)
            .collect();
        let decided = decided(&rig.replay(None).await.unwrap(), name).unwrap();
        attribute(&moves, &decided).unwrap();
        say(&format!(
            "{name}: {} moves of {} decided",
            moves.len(),
            decided.len()
        ));
    }
}

/// Readings that end with workers running, long enough for the last kill to be forgotten.
fn stretch(policy: &ReferencePolicy) -> (Vec<f64>, Vec<Change>) {
    let month = Month::load().unwrap();
    let length = if long() { DAY } else { 75 };
    let (start, changes) = policy
        .busiest_stretch(&month.values, length, |values| {
            policy.ends_running(values, CALM_MS)
        })
        .expect("a month has a stretch that ends in a window");
    assert!(changes.len() >= 3, "several windows: {changes:?}");
    say(&format!(
        "readings {start} to {} of it, {} changes",
        start + length,
        changes.len()
    ));
    (month.values[start..start + length].to_vec(), changes)
}

async fn rig(
    kubernetes: &Kubernetes,
    redis_url: Option<String>,
    policy: &ReferencePolicy,
    pool: &str,
) -> Rig {
    Rig::new(&RigOptions {
        redis_url,
        fleet: fleet(
            Some(&kubernetes.kubeconfig()),
            &[FleetPool::k0smotron(pool, WORKERS, NAMESPACE)],
        ),
        policies: vec![("surplus.yaml".to_owned(), policy.yaml("surplus"))],
    })
    .await
    .unwrap()
}

async fn rig_of_the_twin(kubernetes: &Kubernetes, policy: &ReferencePolicy) -> Rig {
    rig(kubernetes, None, policy, TWIN).await
}

/// Instants of kills, ms after the first reading: one in each part of the run. Every second one is aimed at a change, when a
/// write to the cluster is decided, under way or just answered; the others fall anywhere.
fn kill_times(random: &mut Random, readings: usize, changes: &[Change]) -> Vec<u64> {
    let kills = if long() { 12 } else { 4 };
    let (from, to) = (QUIET_MS, readings as u64 * 1_000 - CALM_MS);
    let part = (to - from) / kills;
    (0..kills)
        .map(|kill| {
            let (begin, end) = (from + kill * part, from + (kill + 1) * part);
            let within = changes
                .iter()
                .find(|change| (begin..end).contains(&change.at_ms));
            match within {
                Some(change) if kill % 2 == 0 => change.at_ms + random.between(0, AIM_MS),
                _ => random.between(begin, end),
            }
        })
        .collect()
}

/// Kills the daemon at each instant and starts it again; every second time it is killed once more while it recovers.
async fn kill_and_restart(
    rig: &Rig,
    daemon: &mut Daemon,
    load: &Load,
    origin: DateTime<Utc>,
    kills: &[u64],
    random: &mut Random,
) -> Vec<Recovered> {
    let mut recovered = Vec::new();
    for (number, &at_ms) in kills.iter().enumerate() {
        let left = origin + TimeDelta::milliseconds(at_ms as i64) - Utc::now();
        tokio::time::sleep(left.to_std().unwrap_or_default()).await;
        daemon.kill();
        let acknowledged = load.acknowledged();
        if number % 2 == 1 {
            let recovering = Duration::from_millis(random.between(1, 1_000));
            // It may have come up before: then it is killed at its first steps.
            let _ = tokio::time::timeout(recovering, daemon.restart()).await;
            daemon.kill();
        }
        daemon.restart().await.unwrap();
        let status = rig.status().await.unwrap();
        say(&format!(
            "killed {at_ms} ms in, with {} readings acknowledged; recovered at index {}, term {}",
            acknowledged.len(),
            status["index"],
            status["term"]
        ));
        recovered.push(Recovered {
            index: status["index"].as_u64().unwrap(),
            digest: status["digest"].clone(),
            term: status["term"].as_u64().unwrap(),
        });
        all_there(rig, &acknowledged).await;
    }
    recovered
}

/// Sent again, every reading is known: none is taken in a second time, none is refused.
async fn all_there(rig: &Rig, acknowledged: &[Value]) {
    for batch in acknowledged.chunks(AGAIN_MAX) {
        let answer = rig
            .partner()
            .post_json("/v1/signals", &json!(batch))
            .await
            .unwrap();
        let body = answer.json().unwrap();
        assert_eq!(answer.status, 202, "{body}");
        assert_eq!(
            body["duplicate"],
            batch.len(),
            "acknowledged, and not there: {body}"
        );
    }
}

async fn settled(rig: &Rig, pool: &str, replicas: u32) {
    until(DEADLINE, "a settled pool", async || {
        let pool = rig.pool_status(pool).await?;
        ensure!(
            pool["state"] == "settled" && pool["desired"] == replicas && pool["wanted"] == replicas,
            "{pool}"
        );
        Ok(())
    })
    .await;
}

/// Waits until the member has every event that the daemon issued.
async fn delivered(rig: &Rig, member: &Member) -> Seen {
    until(DEADLINE, "every event at the member", async || {
        let status = rig.status().await?;
        let issued = status["federations"][0]["sequence"]
            .as_u64()
            .context("no sequence")?;
        let seen = member.seen();
        let last = seen.envelopes.last().map_or(0, |last| last.seq);
        ensure!(last >= issued, "{last} of {issued}");
        Ok(seen)
    })
    .await
}

/// Over all terms: each sequence once and in order, each event once, and terms never fall.
fn check_events(seen: &Seen) {
    assert_eq!(seen.unreadable, []);
    let sequences: Vec<u64> = seen.envelopes.iter().map(|each| each.seq).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>());
    assert!(seen.envelopes.is_sorted_by_key(|each| each.term));
    let ids: BTreeSet<&str> = seen.envelopes.iter().map(|each| each.id.as_str()).collect();
    assert_eq!(ids.len(), seen.envelopes.len(), "an event came twice");
}

/// What each start recovered is what the journal says at that index, and each start has a term of its own.
async fn check_recoveries(rig: &Rig, recovered: &[Recovered], kills: usize) {
    assert_eq!(recovered.len(), kills);
    assert!(recovered.is_sorted_by_key(|each| each.index));
    for pair in recovered.windows(2) {
        assert!(pair[0].term < pair[1].term, "{pair:?}");
    }
    for each in recovered {
        let replayed = rig.replay(Some(each.index)).await.unwrap();
        assert_eq!(
            (&replayed["digest"], &replayed["term"], &replayed["index"]),
            (&each.digest, &json!(each.term), &json!(each.index))
        );
    }
}
