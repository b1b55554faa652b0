//! The API server goes away in mid-run, then Redis: the daemon holds what it has, says what is wrong, and catches up by itself.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::ensure;
use kube::Client;
use sunward_tests::actors::ReadyReplicas;
use sunward_tests::daemon::Daemon;
use sunward_tests::environment::{CLUSTER_API_CRDS, Server, long, skip_without};
use sunward_tests::member::Member;
use sunward_tests::pool::{self, Pool};
use sunward_tests::readings::Feed;
use sunward_tests::reference_policy::ReferencePolicy;
use sunward_tests::rig::{FleetPool, Rig, RigOptions, assert_no_panic, fleet};
use sunward_tests::servers::{ClusterApi, Kubernetes, KubernetesOptions, Redis, RedisOptions};
use sunward_tests::wait::{holds, until};

const NAMESPACE: &str = "outages";
const POOL: &str = "caiso-a";
const WORKERS: i64 = 3;
/// Well below and well above the policy's thresholds, gCO2e/kWh.
const GREEN: f64 = 50.0;
const GREY: f64 = 400.0;
const DEADLINE: Duration = Duration::from_secs(60);

/// How long a server is away.
fn outage() -> Duration {
    Duration::from_secs(if long() { 30 } else { 10 })
}

/// Everything of the case.
struct Run {
    rig: Rig,
    daemon: Daemon,
    kubernetes: Kubernetes,
    redis: Redis,
    client: Client,
    pool: Pool,
    feed: Feed,
}

impl Run {
    async fn start() -> Self {
        let redis = Redis::start(RedisOptions {
            appendonly: true,
            ..RedisOptions::default()
        })
        .await
        .unwrap();
        let kubernetes = Kubernetes::start(KubernetesOptions {
            cluster_api: ClusterApi::CrdsOnly(vec!["v1beta2"]),
            ..KubernetesOptions::default()
        })
        .await
        .unwrap();
        let client = kubernetes.client().await.unwrap();
        let pool = pool::create(&kubernetes, &client, NAMESPACE, POOL)
            .await
            .unwrap();
        let rig = Rig::new(&RigOptions {
            redis_url: Some(redis.url()),
            fleet: fleet(
                Some(&kubernetes.kubeconfig()),
                &[FleetPool::k0smotron(POOL, WORKERS as u32, NAMESPACE)],
            ),
            policies: vec![(
                "surplus.yaml".to_owned(),
                ReferencePolicy::default().yaml("surplus"),
            )],
        })
        .await
        .unwrap();
        let daemon = rig.start().await.unwrap();
        let feed = Feed::start(rig.partner(), GREY);
        Self {
            rig,
            daemon,
            kubernetes,
            redis,
            client,
            pool,
            feed,
        }
    }

    /// The replicas, the ready workers and the daemon's view of them all say `workers`.
    async fn settled(&self, workers: i64) {
        until(DEADLINE, "a settled pool", async || {
            let replicas = self.pool.replicas(&self.client).await?;
            let pool = self.rig.pool_status(POOL).await?;
            ensure!(
                replicas == workers
                    && pool["state"] == "settled"
                    && pool["desired"] == workers
                    && pool["ready"] == workers,
                "replicas {replicas}, wanted {workers}: {pool}"
            );
            Ok(())
        })
        .await;
    }

    /// Every value that the replicas ever had.
    async fn moves(&self) -> Vec<i64> {
        let moves = self.kubernetes.moves(NAMESPACE, POOL).await.unwrap();
        moves.iter().map(|each| each.replicas.unwrap()).collect()
    }

    /// Waits until readiness names `part`, with a reason.
    async fn complains(&self, part: &str) {
        until(Duration::from_secs(15), part, async || {
            let parts = self.rig.not_ready().await?;
            let found = parts
                .iter()
                .any(|(name, reason)| name == part && !reason.is_empty());
            ensure!(found, "not ready: {parts:?}");
            Ok(())
        })
        .await;
    }

    /// Until `span` after `since`, the daemon runs, takes readings in, and complains of `part` alone.
    async fn bears(&mut self, since: Instant, span: Duration, part: &str) {
        let posted = self.feed.posted().len();
        let (rig, daemon, feed) = (&self.rig, &mut self.daemon, &self.feed);
        holds(span.saturating_sub(since.elapsed()), part, async || {
            ensure!(daemon.running(), "the daemon ended");
            let parts = rig.not_ready().await?;
            ensure!(
                parts.len() == 1 && parts[0].0 == part,
                "not ready: {parts:?}"
            );
            ensure!(
                feed.posted().iter().all(|post| post.status == Some(202)),
                "a reading was refused"
            );
            Ok(())
        })
        .await;
        assert!(self.feed.posted().len() > posted, "readings went on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outages_of_the_api_server_and_of_redis_are_borne() {
    if skip_without(CLUSTER_API_CRDS) || skip_without(&[Server::Redis]) {
        return;
    }
    let mut run = Run::start().await;
    let member = Member::start(&run.redis.url(), "job", &[POOL]).unwrap();
    let _ready = ReadyReplicas::start(run.client.clone(), &run.pool, Duration::from_millis(500));
    run.settled(0).await;
    run.feed.set(GREEN);
    run.settled(WORKERS).await;

    the_api_server_is_killed(&mut run).await;
    a_window_that_nobody_could_use(&mut run).await;
    redis_is_killed(&mut run, &member).await;
    if long() {
        both_hang(&mut run).await;
    }

    let status = run.rig.status().await.unwrap();
    let issued = status["federations"][0]["sequence"].as_u64().unwrap();
    until(DEADLINE, "every event at the member", async || {
        let seen = member.seen().envelopes.len() as u64;
        ensure!(seen >= issued, "{seen} of {issued}");
        Ok(())
    })
    .await;
    let seen = member.stop().await;
    let sequences: Vec<u64> = seen.envelopes.iter().map(|each| each.seq).collect();
    assert_eq!(sequences, (1..=issued).collect::<Vec<_>>());
    let ids: BTreeSet<&str> = seen.envelopes.iter().map(|each| each.id.as_str()).collect();
    assert_eq!(ids.len(), sequences.len());
    assert_eq!(seen.unreadable, []);

    assert!(
        run.feed
            .posted()
            .iter()
            .all(|post| post.status == Some(202) && post.answer["accepted"] == 1),
        "every reading was taken in"
    );
    let ended = run.daemon.terminate(Duration::from_secs(15)).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    assert_no_panic(&run.daemon.log_text());
    run.daemon.restart().await.unwrap();
    run.rig.wait_ready().await.unwrap();
}

/// The window closes while the API server is away: nothing moves until it is back, and then one write does it.
async fn the_api_server_is_killed(run: &mut Run) {
    let before = run.moves().await;
    assert_eq!(before, [0, WORKERS]);
    let since = Instant::now();
    run.kubernetes.kill_apiserver();
    run.feed.set(GREY);
    run.complains("cluster:mgmt").await;
    run.bears(since, outage(), "cluster:mgmt").await;
    // The policy's word is known, and not yet done.
    let pool = run.rig.pool_status(POOL).await.unwrap();
    assert_eq!(
        (&pool["desired"], &pool["wanted"]),
        (&0.into(), &WORKERS.into()),
        "{pool}"
    );
    let (_, metrics) = run.rig.metrics().await.unwrap();
    let up = [("kind", "cluster"), ("name", "mgmt")];
    assert_eq!(metrics.get("sunward_dependency_up", &up), Some(0.0));
    assert_eq!(run.moves().await, before);

    run.kubernetes.restart_apiserver().await.unwrap();
    run.settled(0).await;
    run.rig.wait_ready().await.unwrap();
    assert_eq!(run.moves().await, [0, WORKERS, 0]);
}

/// A window opens and closes while the API server is away: afterwards nothing is left to do, and nothing is done.
async fn a_window_that_nobody_could_use(run: &mut Run) {
    let before = run.moves().await;
    let since = Instant::now();
    run.kubernetes.kill_apiserver();
    run.feed.set(GREEN);
    let feed = &run.feed;
    let rig = &run.rig;
    let desired = |wanted: i64| async move {
        until(DEADLINE, "the decision", async || {
            let pool = rig.pool_status(POOL).await?;
            ensure!(pool["desired"] == wanted, "{pool}");
            Ok(())
        })
        .await;
    };
    desired(WORKERS).await;
    feed.set(GREY);
    desired(0).await;
    run.complains("cluster:mgmt").await;
    run.bears(since, outage(), "cluster:mgmt").await;
    run.kubernetes.restart_apiserver().await.unwrap();
    run.rig.wait_ready().await.unwrap();
    run.settled(0).await;
    assert_eq!(run.moves().await, before);
}

/// Redis is away while a window opens: workers come all the same, and members hear of it when it is back.
async fn redis_is_killed(run: &mut Run, member: &Member) {
    let heard = member.seen().envelopes.len();
    let since = Instant::now();
    run.redis.kill();
    run.feed.set(GREEN);
    run.complains("sink:redis").await;
    run.settled(WORKERS).await;
    run.bears(since, outage(), "sink:redis").await;
    assert_eq!(run.moves().await, [0, WORKERS, 0, WORKERS]);
    let (_, metrics) = run.rig.metrics().await.unwrap();
    let lag = metrics.sum("sunward_outbox_lag", &[("sink", "redis")]);
    assert!(lag >= 1.0, "{lag} envelopes wait");
    assert_eq!(member.seen().envelopes.len(), heard);

    run.redis.restart().await.unwrap();
    run.rig.wait_ready().await.unwrap();
    until(DEADLINE, "the site's state at the member", async || {
        let seen = member.seen();
        let state = seen.sites[POOL].get("state").cloned();
        ensure!(state.as_deref() == Some("ready"), "{state:?}");
        Ok(())
    })
    .await;
    assert_eq!(run.moves().await, [0, WORKERS, 0, WORKERS]);
}

/// Both stop answering without closing a connection, which only deadlines can tell.
async fn both_hang(run: &mut Run) {
    let before = run.moves().await;
    run.kubernetes.pause_apiserver().unwrap();
    run.redis.pause().unwrap();
    run.feed.set(GREY);
    run.complains("cluster:mgmt").await;
    run.complains("sink:redis").await;
    run.kubernetes.resume_apiserver().unwrap();
    run.redis.resume().unwrap();
    run.settled(0).await;
    run.rig.wait_ready().await.unwrap();
    assert_eq!(run.moves().await, [&before[..], &[0]].concat());
}
