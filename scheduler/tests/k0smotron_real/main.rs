//! The cluster watch and the k0smotron actuator on a real API server, with the rights of the shipped Role.

#![allow(clippy::unwrap_used)]

mod rig;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sunward::cluster::ApiVersion;
use sunward_core::event::{Outcome, PoolObservation};
use sunward_tests::actors::Hosts;
use sunward_tests::environment::{CLUSTER_API, CLUSTER_API_CRDS, skip_without};
use sunward_tests::pool::{self, Pool as ClusterPool};
use sunward_tests::servers::{ClusterApi, Kubernetes, KubernetesOptions, api, apply};
use sunward_tests::wait::{holds, until};

use crate::rig::{DEADLINE, Rig, fleet};

/// A cluster with only the CRDs, serving these versions.
async fn cluster(versions: &[&'static str]) -> Kubernetes {
    let options = KubernetesOptions {
        cluster_api: ClusterApi::CrdsOnly(versions.to_vec()),
        ..KubernetesOptions::default()
    };
    Kubernetes::start(options).await.unwrap()
}

/// Gives the user `sunward` the rights of the shipped Role, and no others.
async fn grant(client: &Client) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rbac/management-cluster.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for mut object in objects {
        if object["kind"] == "RoleBinding" {
            object["subjects"] = json!([{
                "kind": "User", "name": "sunward", "apiGroup": "rbac.authorization.k8s.io",
            }]);
        }
        if object["metadata"]["namespace"] == "gpu" {
            apply(client, &object).await.unwrap();
        }
    }
}

async fn annotate(client: &Client, pool: &ClusterPool, annotations: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let objects = api(
        client,
        &pool.namespace,
        &pool.api_version(),
        "MachineDeployment",
    );
    objects
        .patch(&pool.machine_deployment, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// A scale write prepared by hand from an object as it was read earlier.
async fn delayed_scale(
    client: &Client,
    pool: &ClusterPool,
    read: &Value,
    replicas: u32,
) -> kube::Result<()> {
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}, "spec": {"replicas": replicas},
    }));
    let objects = api(
        client,
        &pool.namespace,
        &pool.api_version(),
        "MachineDeployment",
    );
    let params = PatchParams::default();
    objects
        .patch_scale(&pool.machine_deployment, &params, &patch)
        .await
        .map(|_| ())
}

fn accepted(outcome: Outcome) -> PoolObservation {
    match outcome {
        Outcome::Accepted(seen) => seen,
        other => panic!("not accepted: {other:?}"),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Claim, scale, foreign changes, fencing, terms: on a server that serves both versions.
#[tokio::test(flavor = "multi_thread")]
async fn claims_scales_and_fences_on_a_real_api_server() {
    if skip_without(CLUSTER_API_CRDS) {
        return;
    }
    let kubernetes = cluster(&["v1beta1", "v1beta2"]).await;
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    grant(&client).await;
    let rig = Rig::start(&kubernetes.user_kubeconfig(), &["caiso-a", "absent"]);
    rig.until_observed("caiso-a", "the pool", |seen| {
        seen.wanted == 0 && seen.term.is_none()
    })
    .await;
    assert_eq!(rig.clusters.version("mgmt"), Some(ApiVersion::V1Beta2));
    rig.until_reachability(&[true]).await;

    claim_and_scale(&rig, &client, &pool).await;
    a_delayed_write_is_refused_after_a_claim(&rig, &client, &pool).await;
    conflicts_write_nothing(&rig, &kubernetes, &client, &pool).await;

    // Someone else scales: told with the new number, and our former plan is a conflict.
    let known = rig.known("caiso-a").unwrap().replicas;
    pool.scale(&client, known + 2).await.unwrap();
    rig.until_observed("caiso-a", "the foreign change", |seen| {
        seen.wanted == known + 2
    })
    .await;
    assert_eq!(
        rig.scale("caiso-a", 8, 90, known, known + 1).await,
        Outcome::Conflict
    );

    // The next leader claims: the watch tells, and this one's writes end.
    accepted(rig.claim("caiso-a", 9).await);
    rig.until_observed("caiso-a", "the higher term", |seen| seen.term == Some(9))
        .await;
    assert_eq!(
        rig.claim("caiso-a", 8).await,
        Outcome::HigherTerm { term: 9 }
    );
    let outcome = rig.scale("caiso-a", 8, 91, known + 2, 1).await;
    assert_eq!(outcome, Outcome::HigherTerm { term: 9 });
    assert_eq!(pool.replicas(&client).await.unwrap(), i64::from(known + 2));

    // An object that is not there, and one that goes away.
    let Outcome::Refused { reason } = rig.claim("absent", 9).await else {
        panic!("an absent object was not refused");
    };
    assert!(reason.contains("create the MachineDeployment"), "{reason}");
    let objects = api(&client, "gpu", &pool.api_version(), "MachineDeployment");
    objects
        .delete("caiso-a", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    until(DEADLINE, "the object to be forgotten", async || {
        ensure!(rig.known("caiso-a").is_none(), "still known");
        Ok(())
    })
    .await;
    assert_eq!(
        rig.scale("caiso-a", 9, 92, known + 2, 1).await,
        Outcome::Conflict
    );
    // Nothing of all this was an outage.
    assert_eq!(rig.reachability(), [true]);
}

async fn claim_and_scale(rig: &Rig, client: &Client, pool: &ClusterPool) {
    let claimed = accepted(rig.claim("caiso-a", 7).await);
    assert_eq!((claimed.wanted, claimed.term), (0, Some(7)));
    let scaled = accepted(rig.scale("caiso-a", 7, 1, 0, 3).await);
    assert_eq!((scaled.wanted, scaled.term), (3, Some(7)));
    assert!(scaled.version > claimed.version);
    rig.until_observed("caiso-a", "3 wanted workers", |seen| {
        seen.wanted == 3 && seen.version >= scaled.version
    })
    .await;
    assert_eq!(pool.replicas(client).await.unwrap(), 3);
    until(DEADLINE, "the note on the object", async || {
        let annotations = pool.get(client).await?["metadata"]["annotations"].clone();
        ensure!(annotations["sunward.dev/command"] == "7.1", "{annotations}");
        ensure!(
            annotations["sunward.dev/changed-at"] == "2023-11-14T22:13:20Z",
            "{annotations}"
        );
        Ok(())
    })
    .await;
    // Two writes at once: the second knows the first one's version without the watch.
    accepted(rig.scale("caiso-a", 7, 2, 3, 2).await);
    until(DEADLINE, "the second write", async || {
        // The first one's note may be between them; that is a conflict, and no failure.
        match rig.scale("caiso-a", 7, 3, 2, 1).await {
            Outcome::Accepted(seen) => ensure!(seen.wanted == 1, "{seen:?}"),
            other => ensure!(false, "{other:?}"),
        }
        Ok(())
    })
    .await;
    let manager = |entry: &Value| entry["manager"] == "sunward";
    let fields = pool.get(client).await.unwrap()["metadata"]["managedFields"].clone();
    assert!(fields.as_array().unwrap().iter().any(manager), "{fields}");
}

async fn a_delayed_write_is_refused_after_a_claim(rig: &Rig, client: &Client, pool: &ClusterPool) {
    // The last note may still be on its way; it moves the object, too.
    until(DEADLINE, "the last note", async || {
        let command =
            pool.get(client).await?["metadata"]["annotations"]["sunward.dev/command"].clone();
        ensure!(command == "7.3", "{command}");
        Ok(())
    })
    .await;
    let replicas = pool.replicas(client).await.unwrap();
    // Why a claim carries a number: a patch that changes nothing does not move the object.
    let before = pool.get(client).await.unwrap();
    let term = json!({"sunward.dev/term": "7"});
    annotate(client, pool, term).await.unwrap();
    assert_eq!(pool.get(client).await.unwrap(), before);
    // By the next term, and again in the same one: both times the object moves on.
    for (term, claim) in [(8, "8.1"), (8, "8.2")] {
        let read = pool.get(client).await.unwrap();
        let seen = accepted(rig.claim("caiso-a", term).await);
        assert_ne!(
            read["metadata"]["resourceVersion"],
            json!(seen.version.to_string())
        );
        let error = delayed_scale(client, pool, &read, 8).await.unwrap_err();
        assert!(is_conflict(&error), "{error}");
        let now = pool.get(client).await.unwrap();
        assert_eq!(now["metadata"]["annotations"]["sunward.dev/claim"], claim);
        assert_eq!(now["spec"]["replicas"], replicas);
    }
}

/// While someone else keeps writing on the object, each scale is accepted or a conflict, and the object moved once for each
/// accepted one.
async fn conflicts_write_nothing(
    rig: &Rig,
    kubernetes: &Kubernetes,
    client: &Client,
    pool: &ClusterPool,
) {
    let before = kubernetes.moves("gpu", "caiso-a").await.unwrap().len();
    let storm = tokio::spawn({
        let (client, pool) = (client.clone(), pool.clone());
        async move {
            for number in 0_u64.. {
                annotate(
                    &client,
                    &pool,
                    json!({"other.dev/count": number.to_string()}),
                )
                .await
                .unwrap();
            }
        }
    });
    let (mut accepted, mut conflicts) = (0, 0);
    let mut generation = 10;
    while accepted < 5 || conflicts < 5 {
        generation += 1;
        let from = rig.known("caiso-a").unwrap().replicas;
        match rig
            .scale("caiso-a", 8, generation, from, (from + 1) % 5)
            .await
        {
            Outcome::Accepted(_) => accepted += 1,
            Outcome::Conflict => conflicts += 1,
            other => panic!("{other:?}"),
        }
        assert!(
            generation < 2_000,
            "{accepted} accepted, {conflicts} conflicts"
        );
    }
    storm.abort();
    let moves = kubernetes.moves("gpu", "caiso-a").await.unwrap();
    assert_eq!(
        moves.len() - before,
        accepted,
        "after {conflicts} conflicts: {moves:?}"
    );
    rig.until_observed("caiso-a", "the last move", |seen| {
        moves
            .last()
            .is_some_and(|last| last.replicas == Some(i64::from(seen.wanted)))
    })
    .await;
}

/// A server that dies, comes back, hangs and goes on: told once each, and nothing that happened meanwhile is missed.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_and_the_watch_recovers() {
    if skip_without(CLUSTER_API_CRDS) {
        return;
    }
    let mut kubernetes = cluster(&["v1beta2"]).await;
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    let rig = Rig::start(&kubernetes.kubeconfig(), &["caiso-a"]);
    rig.until_reachability(&[true]).await;
    accepted(rig.claim("caiso-a", 7).await);

    kubernetes.kill_apiserver();
    let outcome = rig.scale("caiso-a", 7, 1, 0, 3).await;
    assert!(
        matches!(outcome, Outcome::Failed { .. } | Outcome::Unknown { .. }),
        "{outcome:?}"
    );
    rig.until_reachability(&[true, false]).await;
    let Some(Err(reason)) = rig.health.lock().unwrap().last().cloned() else {
        panic!("the readiness was not told");
    };
    assert!(
        reason.contains("Connection refused") || reason.contains("not connected"),
        "{reason}"
    );
    holds(Duration::from_secs(3), "told once", async || {
        ensure!(
            rig.reachability() == [true, false],
            "{:?}",
            rig.reachability()
        );
        Ok(())
    })
    .await;
    let outcome = rig.scale("caiso-a", 7, 1, 0, 3).await;
    assert!(
        matches!(outcome, Outcome::Failed { .. }),
        "nothing was sent: {outcome:?}"
    );
    kubernetes.restart_apiserver().await.unwrap();
    pool.scale(&client, 2).await.unwrap();
    rig.until_reachability(&[true, false, true]).await;
    rig.until_observed("caiso-a", "the change after the outage", |seen| {
        seen.wanted == 2
    })
    .await;
    accepted(rig.scale("caiso-a", 7, 2, 2, 1).await);

    // Connections stay open and nothing answers: what was sent may still take effect.
    kubernetes.pause_apiserver().unwrap();
    let outcome = rig.scale("caiso-a", 7, 3, 1, 4).await;
    match &outcome {
        Outcome::Unknown { .. } => {}
        // The probe held the one open connection.
        Outcome::Failed { reason, .. } => assert!(reason.contains("not connected"), "{reason}"),
        other => panic!("{other:?}"),
    }
    rig.until_reachability(&[true, false, true, false]).await;
    kubernetes.resume_apiserver().unwrap();
    rig.until_reachability(&[true, false, true, false, true])
        .await;
    // Known or not, the pool can be claimed and written again.
    until(DEADLINE, "a claim", async || {
        match rig.claim("caiso-a", 7).await {
            Outcome::Accepted(_) => Ok(()),
            other => Err(anyhow::anyhow!("{other:?}")),
        }
    })
    .await;
    until(DEADLINE, "a scale", async || {
        let from = rig.known("caiso-a").map_or(0, |known| known.replicas);
        match rig.scale("caiso-a", 7, 4, from, 5).await {
            Outcome::Accepted(_) => Ok(()),
            other => Err(anyhow::anyhow!("{other:?}")),
        }
    })
    .await;
    rig.until_observed("caiso-a", "the last write", |seen| seen.wanted == 5)
        .await;
    let health: Vec<bool> = rig
        .health
        .lock()
        .unwrap()
        .iter()
        .map(Result::is_ok)
        .collect();
    assert_eq!(health, [false, true, false, true, false, true]);
}

/// Cluster API 1.10 serves only v1beta1; and what is forbidden is named.
#[tokio::test(flavor = "multi_thread")]
async fn v1beta1_alone_works_and_missing_rights_are_named() {
    if skip_without(CLUSTER_API_CRDS) {
        return;
    }
    let kubernetes = cluster(&["v1beta1"]).await;
    let client = kubernetes.client().await.unwrap();
    let pool = pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    let rig = Rig::start(&kubernetes.user_kubeconfig(), &["caiso-a"]);
    rig.until_reachability(&[false]).await;
    assert_eq!(rig.clusters.version("mgmt"), Some(ApiVersion::V1Beta1));
    let Some(Err(reason)) = rig.health.lock().unwrap().last().cloned() else {
        panic!("the readiness was not told");
    };
    assert!(
        reason.contains("forbidden") && reason.contains("\"gpu\""),
        "{reason}"
    );
    let Outcome::Refused { reason } = rig.claim("caiso-a", 7).await else {
        panic!("a forbidden read was not refused");
    };
    assert!(
        reason.contains("grant `get` on `machinedeployments`"),
        "{reason}"
    );

    grant(&client).await;
    rig.until_reachability(&[false, true]).await;
    accepted(rig.claim("caiso-a", 7).await);
    accepted(rig.scale("caiso-a", 7, 1, 0, 3).await);
    rig.until_observed("caiso-a", "3 wanted workers", |seen| seen.wanted == 3)
        .await;
    assert_eq!(pool.replicas(&client).await.unwrap(), 3);

    // A pool that a new fleet file adds is followed, one that it drops is not.
    pool::create(&kubernetes, &client, "gpu", "ercot-a")
        .await
        .unwrap();
    let both = fleet(&kubernetes.user_kubeconfig(), &["ercot-a"]);
    rig.clusters.reconfigure(&both);
    rig.until_observed("ercot-a", "the added pool", |seen| seen.wanted == 0)
        .await;
    let outcome = rig.claim("caiso-a", 7).await;
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
}

/// With Cluster API's own manager, its webhooks and its status writes: from 0 to 3 ready workers and back.
#[tokio::test(flavor = "multi_thread")]
async fn workers_come_and_go_under_the_real_manager() {
    if skip_without(CLUSTER_API) {
        return;
    }
    let kubernetes = Kubernetes::shared().await.unwrap();
    let client = kubernetes.client().await.unwrap();
    pool::create(&kubernetes, &client, "gpu", "caiso-a")
        .await
        .unwrap();
    grant(&client).await;
    let _hosts = Hosts::start(client.clone(), "gpu", Duration::from_millis(200));
    let rig = Rig::start(&kubernetes.user_kubeconfig(), &["caiso-a"]);
    rig.until_reachability(&[true]).await;
    assert_eq!(rig.clusters.version("mgmt"), Some(ApiVersion::V1Beta2));
    until(DEADLINE, "a claim", async || {
        match rig.claim("caiso-a", 7).await {
            Outcome::Accepted(_) => Ok(()),
            other => Err(anyhow::anyhow!("{other:?}")),
        }
    })
    .await;
    for (generation, from, replicas) in [(1, 0, 3), (2, 3, 0)] {
        until(DEADLINE, "the scale write", async || {
            match rig.scale("caiso-a", 7, generation, from, replicas).await {
                Outcome::Accepted(seen) => ensure!(seen.wanted == replicas, "{seen:?}"),
                other => ensure!(false, "{other:?}"),
            }
            Ok(())
        })
        .await;
        rig.until_observed("caiso-a", "the workers", |seen| {
            (seen.wanted, seen.ready, seen.stopping) == (replicas, replicas, 0)
        })
        .await;
    }
    let seen = rig.observations("caiso-a");
    assert!(seen.iter().any(|seen| seen.stopping > 0), "{seen:?}");
    assert!(seen.is_sorted_by_key(|seen| seen.version), "{seen:?}");
    let moves = kubernetes.moves("gpu", "caiso-a").await.unwrap();
    let replicas: Vec<_> = moves.iter().filter_map(|each| each.replicas).collect();
    assert_eq!(replicas, [0, 3, 0]);
}
