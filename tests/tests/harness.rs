//! The harness itself, on the real servers: what the other cases stand on.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use sunward_tests::actors::{Hosts, ReadyReplicas};
use sunward_tests::environment::{CLUSTER_API, CLUSTER_API_CRDS, Server, skip_without};
use sunward_tests::member::Member;
use sunward_tests::pool;
use sunward_tests::servers::{
    ClusterApi, Kubernetes, KubernetesOptions, Redis, RedisOptions, api, apply,
};
use sunward_tests::wait::until;

const DEADLINE: Duration = Duration::from_secs(60);

fn with(cluster_api: ClusterApi) -> KubernetesOptions {
    KubernetesOptions {
        cluster_api,
        ..KubernetesOptions::default()
    }
}

/// The core manager turns replicas into Machines, the hosts make them ready, and back to 0.
#[tokio::test(flavor = "multi_thread")]
async fn machines_follow_replicas_with_the_real_manager() {
    if skip_without(CLUSTER_API) {
        return;
    }
    let kubernetes = Kubernetes::shared().await.unwrap();
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    let other = pool::create(&kubernetes, &client, "gpu", "ercot-a")
        .await
        .unwrap();
    let _hosts = Hosts::start(client.clone(), "gpu", Duration::from_millis(500));

    pool.scale(&client, 2).await.unwrap();
    until(DEADLINE, "two Machines", async || {
        let machines = pool.machines(&client).await?.len();
        ensure!(machines == 2, "there are {machines}");
        Ok(())
    })
    .await;
    until(DEADLINE, "two ready workers", async || {
        let ready = pool.ready_replicas(&client).await?;
        ensure!(
            ready == 2,
            "{ready} are ready: {}",
            pool.get(&client).await?["status"]
        );
        Ok(())
    })
    .await;

    pool.scale(&client, 0).await.unwrap();
    until(DEADLINE, "no Machine and no Node", async || {
        let machines = pool.machines(&client).await?.len();
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
        let nodes = nodes
            .list(&kube::api::ListParams::default())
            .await?
            .items
            .len();
        ensure!(
            machines == 0 && nodes == 0,
            "{machines} Machines, {nodes} Nodes"
        );
        Ok(())
    })
    .await;

    let moves = kubernetes.moves("gpu", "caiso-a").await.unwrap();
    let replicas: Vec<_> = moves.iter().filter_map(|each| each.replicas).collect();
    assert_eq!(replicas, [0, 2, 0]);
    assert!(moves.is_sorted_by_key(|each| each.resource_version));
    assert_eq!(kubernetes.moves("gpu", "ercot-a").await.unwrap().len(), 1);
    assert_eq!(other.replicas(&client).await.unwrap(), 0);
}

/// Both versions are served, and really converted; the webhooks refuse what they should.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_convert_and_refuse() {
    if skip_without(CLUSTER_API) {
        return;
    }
    let kubernetes = Kubernetes::shared().await.unwrap();
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "converted", "caiso-a")
        .await
        .unwrap();
    assert_eq!(pool.version, "v1beta2");

    let old = api(
        &client,
        "converted",
        "cluster.x-k8s.io/v1beta1",
        "MachineDeployment",
    )
    .get("caiso-a")
    .await
    .unwrap();
    let reference = &old.data["spec"]["template"]["spec"]["infrastructureRef"];
    // v1beta1 names a version in a reference, v1beta2 does not.
    assert_eq!(
        reference["apiVersion"], "infrastructure.cluster.x-k8s.io/v1beta2",
        "{reference}"
    );
    assert!(reference["apiGroup"].is_null(), "{reference}");

    let bad = json!({"spec": {"selector": {"matchLabels": {"another": "label"}}}});
    let deployments = api(
        &client,
        "converted",
        "cluster.x-k8s.io/v1beta2",
        "MachineDeployment",
    );
    let patch = kube::api::Patch::Merge(bad);
    let error = deployments
        .patch("caiso-a", &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("admission webhook"), "{error}");
}

/// Killed and started again on the same port, the API server has everything, and no move of the replicas is missed.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_restart_loses_nothing() {
    if skip_without(CLUSTER_API_CRDS) {
        return;
    }
    let mut kubernetes = Kubernetes::start(with(ClusterApi::CrdsOnly(vec!["v1beta2"])))
        .await
        .unwrap();
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    let _ready = ReadyReplicas::start(client.clone(), &pool, Duration::from_millis(200));
    for replicas in [3, 1] {
        pool.scale(&client, replicas).await.unwrap();
    }
    let url = kubernetes.url();
    kubernetes.kill_apiserver();
    assert!(pool.get(&client).await.is_err());
    kubernetes.restart_apiserver().await.unwrap();
    assert_eq!(kubernetes.url(), url);

    // The same client, on a new connection.
    assert_eq!(
        until(DEADLINE, "an answer", async || pool.replicas(&client).await).await,
        1
    );
    pool.scale(&client, 4).await.unwrap();
    until(DEADLINE, "four ready workers", async || {
        let ready = pool.ready_replicas(&client).await?;
        ensure!(ready == 4, "{ready} are ready");
        Ok(())
    })
    .await;
    let moves = kubernetes.moves("gpu", "caiso-a").await.unwrap();
    assert_eq!(
        moves
            .iter()
            .filter_map(|each| each.replicas)
            .collect::<Vec<_>>(),
        [0, 3, 1, 4]
    );
    assert!(moves[1].generation > moves[0].generation, "{moves:?}");
}

/// A server that has only the old version of Cluster API.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_version_alone_can_be_served() {
    if skip_without(CLUSTER_API_CRDS) {
        return;
    }
    let kubernetes = Kubernetes::start(with(ClusterApi::CrdsOnly(vec!["v1beta1"])))
        .await
        .unwrap();
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    assert_eq!(pool.version, "v1beta1");
    assert!(
        api(
            &client,
            "gpu",
            "cluster.x-k8s.io/v1beta2",
            "MachineDeployment"
        )
        .get("caiso-a")
        .await
        .is_err()
    );
    let _ready = ReadyReplicas::start(client.clone(), &pool, Duration::ZERO);
    pool.scale(&client, 2).await.unwrap();
    until(DEADLINE, "two ready workers", async || {
        let ready = pool.ready_replicas(&client).await?;
        ensure!(ready == 2, "{ready} are ready");
        Ok(())
    })
    .await;
}

/// The controller manager collects what has lost its owner; a user without a role may read nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_controller_manager_collects_garbage() {
    if skip_without(&[
        Server::Etcd,
        Server::KubeApiserver,
        Server::KubeControllerManager,
    ]) {
        return;
    }
    let options = KubernetesOptions {
        controller_manager: true,
        ..KubernetesOptions::default()
    };
    let kubernetes = Kubernetes::start(options).await.unwrap();
    let client = kubernetes.client().await.unwrap();
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    let owner = apply(&client, &map("owner")).await.unwrap();
    let mut dependent = map("dependent");
    let uid = owner.metadata.uid.unwrap();
    dependent["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    apply(&client, &dependent).await.unwrap();
    let maps = api(&client, "default", "v1", "ConfigMap");
    maps.delete("owner", &kube::api::DeleteParams::background())
        .await
        .unwrap();
    until(DEADLINE, "the owned object to go", async || {
        ensure!(maps.get_opt("dependent").await?.is_none(), "it is there");
        Ok(())
    })
    .await;

    let user = kubernetes.user_client().await.unwrap();
    let error = api(&user, "default", "v1", "ConfigMap")
        .get("dependent")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("forbidden"), "{error}");
}

/// A member sees every entry once and in order over a kill of Redis; a pause only delays.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_misses_nothing_over_a_redis_kill() {
    if skip_without(&[Server::Redis]) {
        return;
    }
    let mut redis = Redis::start(RedisOptions {
        appendonly: true,
        ..RedisOptions::default()
    })
    .await
    .unwrap();
    let member = Member::start(&redis.url(), "job", &["caiso"]).unwrap();
    publish(&redis, 1..=100).await;
    until(DEADLINE, "the first half", async || seen_all(&member, 100)).await;

    redis.kill();
    assert!(redis.connection().await.is_err());
    redis.restart().await.unwrap();
    publish(&redis, 101..=200).await;
    until(DEADLINE, "the second half", async || seen_all(&member, 200)).await;

    redis.pause().unwrap();
    redis.resume().unwrap();
    redis.stop().await.unwrap();
    redis.restart().await.unwrap();
    publish(&redis, 201..=210).await;
    until(DEADLINE, "the rest", async || seen_all(&member, 210)).await;

    until(DEADLINE, "the site's state", async || {
        let seen = member.seen();
        let last = seen.sites["caiso"].get("last_seq").cloned();
        ensure!(last.as_deref() == Some("210"), "the last is {last:?}");
        Ok(())
    })
    .await;

    let seen = member.stop().await;
    let sequence: Vec<u64> = seen.envelopes.iter().map(|envelope| envelope.seq).collect();
    assert_eq!(sequence, (1..=210).collect::<Vec<_>>());
    assert!(
        seen.envelopes
            .iter()
            .all(|envelope| envelope.term == 7 && envelope.kind == "site.ready")
    );
    assert_eq!(
        seen.envelopes
            .iter()
            .map(|envelope| &envelope.id)
            .collect::<BTreeSet<_>>()
            .len(),
        210
    );
    assert_eq!(seen.unreadable, []);
    assert!(
        seen.wakes > 0 && seen.connections >= 3,
        "{} wakes, {} connections",
        seen.wakes,
        seen.connections
    );
}

/// Without an append-only file a restart begins empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_a_file_begins_empty() {
    if skip_without(&[Server::Redis]) {
        return;
    }
    let mut redis = Redis::start(RedisOptions::default()).await.unwrap();
    publish(&redis, 1..=3).await;
    redis.stop().await.unwrap();
    redis.restart().await.unwrap();
    let length: u64 = redis::cmd("XLEN")
        .arg("sunward:{job}:events")
        .query_async(&mut redis.connection().await.unwrap())
        .await
        .unwrap();
    assert_eq!(length, 0);
}

/// A case that panics leaves no server behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_the_servers() {
    if skip_without(&[Server::Redis]) {
        return;
    }
    let redis = Redis::start(RedisOptions::default()).await.unwrap();
    let (pid, port) = (redis.pid().unwrap(), redis.port());
    let case = tokio::spawn(async move { panic!("as a case that fails with {redis:?}") });
    assert!(case.await.unwrap_err().is_panic());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

fn seen_all(member: &Member, count: usize) -> anyhow::Result<()> {
    let seen = member.seen().envelopes.len();
    ensure!(seen == count, "{seen} of {count} seen");
    Ok(())
}

/// As a publisher: stream entry, state hash and wake of each envelope.
async fn publish(redis: &Redis, sequence: std::ops::RangeInclusive<u64>) {
    let mut connection = redis.connection().await.unwrap();
    for seq in sequence {
        let envelope =
            json!({"v": 1, "id": format!("c{seq}"), "term": 7, "seq": seq, "kind": "site.ready", "site": "caiso"}).to_string();
        redis::pipe()
            .atomic()
            .cmd("XADD")
            .arg("sunward:{job}:events")
            .arg(format!("7-{seq}"))
            .arg("envelope")
            .arg(&envelope)
            .cmd("HSET")
            .arg("sunward:{job}:site:caiso")
            .arg("last_seq")
            .arg(seq)
            .cmd("PUBLISH")
            .arg("sunward:{job}:wake")
            .arg(&envelope)
            .exec_async(&mut connection)
            .await
            .unwrap();
    }
}
