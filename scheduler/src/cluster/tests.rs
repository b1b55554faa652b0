//! Scenarios of following and of discovery on a mocked API server, and of several clusters.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use kube::{Api, Client};
use serde_json::{Value, json};
use sunward_core::event::Event;
use sunward_core::protocol::leader::LeaderGate;
use sunward_policies::document::SourceFile;
use tokio::sync::{mpsc, watch as changes};

use super::connect::discover;
use super::mock::{Reply, asked, json_reply, server, status_reply};
use super::task::{namespaces, probe};
use super::watch::{Backoff, Follower, Report};
use super::*;
use crate::engine_handle::Message;

fn object(name: &str, version: u64, replicas: u32) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"namespace": "gpu", "name": name, "resourceVersion": version.to_string()},
        "spec": {"replicas": replicas},
    })
}

fn list(version: &str, next: &str, items: &[Value]) -> Reply {
    json_reply(
        200,
        &json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeploymentList",
            "metadata": {"resourceVersion": version, "continue": next}, "items": items,
        }),
    )
}

/// A watch that brings these and ends.
fn events(events: &[(&str, Value)]) -> Reply {
    let line = |(kind, object): &(&str, Value)| json!({"type": kind, "object": object}).to_string();
    let lines: Vec<String> = events.iter().map(line).collect();
    Reply::Text(200, None, lines.join("\n") + "\n")
}

fn bookmark(version: &str) -> (&'static str, Value) {
    let object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"resourceVersion": version, "creationTimestamp": null},
    });
    ("BOOKMARK", object)
}

fn targets(pools: &[&str]) -> Arc<Targets> {
    let target = |name: &&str| (("gpu".into(), (*name).into()), (*name).into());
    Arc::new(pools.iter().map(target).collect())
}

/// One line per report.
fn line(report: &Report) -> String {
    let pools = |seen: &[(Arc<str>, Snapshot)]| {
        let pools = seen
            .iter()
            .map(|(pool, seen)| format!("{pool}@{}={}", seen.version, seen.replicas));
        pools.collect::<Vec<_>>().join(" ")
    };
    match report {
        Report::Listed {
            seen,
            absent,
            version,
            ..
        } => format!("listed {version}: {}, absent {absent:?}", pools(seen)),
        Report::Seen(pool, seen) => format!("seen {}", pools(&[(pool.clone(), seen.clone())])),
        Report::Gone(pool, version) => format!("gone {pool}@{version}"),
        Report::Works(part) => format!("works {part:?}"),
        Report::Fails {
            reason, unserved, ..
        } => format!("fails unserved={unserved}: {reason}"),
        Report::Upgraded => "upgraded".to_owned(),
    }
}

/// Follows namespace `gpu` on a server with these replies, until `count` reports came.
async fn follow(pools: &[&str], replies: Vec<Reply>, count: usize) -> (Vec<String>, Vec<String>) {
    let (client, mut requests) = server(replies);
    let (reports, mut inbox) = mpsc::channel(64);
    let follower = Follower {
        api: Api::namespaced_with(client, "gpu", &ApiVersion::V1Beta2.resource()),
        namespace: Some("gpu".into()),
        targets: targets(pools),
        reports,
        backoff: Backoff::new(1, "mgmt/gpu".into()),
    };
    let task = tokio::spawn(follower.run());
    let mut lines = Vec::new();
    while lines.len() < count {
        lines.push(line(&inbox.recv().await.unwrap()));
    }
    task.abort();
    let paths = asked(&mut requests).into_iter().map(|request| {
        let query = request.split_once('?').unwrap().1;
        query.trim_start_matches('&').replace(
            "watch=true&timeoutSeconds=55&allowWatchBookmarks=true",
            "WATCH",
        )
    });
    (lines, paths.collect())
}

#[tokio::test(start_paused = true)]
async fn a_list_has_pages_and_a_watch_resumes_where_it_ended() {
    let replies = vec![
        list("5", "more", &[object("a", 3, 1), object("not-ours", 4, 9)]),
        list("5", "", &[object("b", 5, 2)]),
        events(&[
            ("MODIFIED", object("a", 7, 3)),
            ("MODIFIED", object("not-ours", 8, 1)),
            ("DELETED", object("b", 9, 2)),
            ("ADDED", object("c", 10, 0)),
            bookmark("15"),
        ]),
        Reply::Silence,
    ];
    let (reports, requests) = follow(&["a", "b", "c", "d"], replies, 5).await;
    assert_eq!(
        reports,
        [
            r#"listed 5: a@3=1 b@5=2, absent {"c", "d"}"#,
            r#"works Watch(Some("gpu"))"#,
            "seen a@7=3",
            "gone b@9",
            "seen c@10=0",
        ]
    );
    assert_eq!(
        requests,
        [
            "limit=500",
            "limit=500&continue=more",
            "WATCH&resourceVersion=5",
            "WATCH&resourceVersion=15",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_server_forgot_is_listed_again() {
    let gone = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
    let replies = vec![
        list("5", "", &[object("a", 3, 1)]),
        // On the stream, as the API server does, and as an answer.
        events(&[("MODIFIED", object("a", 6, 2)), ("ERROR", gone.clone())]),
        list("20", "", &[object("a", 18, 3)]),
        json_reply(410, &gone),
        list("30", "", &[]),
        Reply::Silence,
    ];
    let (reports, requests) = follow(&["a"], replies, 7).await;
    assert_eq!(
        reports,
        [
            "listed 5: a@3=1, absent {}",
            r#"works Watch(Some("gpu"))"#,
            "seen a@6=2",
            "fails unserved=false: following MachineDeployments in namespace gpu: 410 too old",
            "listed 20: a@18=3, absent {}",
            "fails unserved=false: following MachineDeployments in namespace gpu: 410 too old",
            r#"listed 30: , absent {"a"}"#,
        ]
    );
    assert_eq!(
        requests
            .iter()
            .filter(|query| query.starts_with("limit"))
            .count(),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_is_tried_again_from_the_same_version() {
    let replies = vec![
        list("5", "", &[object("a", 3, 1)]),
        status_reply(403, "User \"x\" cannot watch"),
        Reply::Text(503, None, "no backend".into()),
        events(&[]),
        Reply::Silence,
        status_reply(404, "the server could not find the requested resource"),
        list("", "", &[]),
        Reply::Silence,
    ];
    let (reports, requests) = follow(&["a"], replies, 9).await;
    let prefix = "following MachineDeployments in namespace gpu: ";
    let expected = [
        "listed 5: a@3=1, absent {}".to_owned(),
        format!(
            "fails unserved=false: {prefix}403 User \"x\" cannot watch; grant `list` and `watch` on it \
             (deploy/rbac/management-cluster.yaml)"
        ),
        format!("fails unserved=false: {prefix}503 no backend"),
        r#"works Watch(Some("gpu"))"#.to_owned(),
        format!("fails unserved=false: {prefix}the server ended the watch at once"),
        format!("fails unserved=false: {prefix}no watch in 5 s"),
        format!(
            "fails unserved=true: {prefix}404 the server could not find the requested resource"
        ),
        format!(
            "fails unserved=false: {prefix}the list has the resourceVersion \"\", which is no number"
        ),
        format!("fails unserved=false: {prefix}no list in 15 s"),
    ];
    assert_eq!(reports, expected);
    assert_eq!(requests[1..6], vec!["WATCH&resourceVersion=5"; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_word_is_given_up_after_its_life() {
    // An open stream that brings nothing is played by a service that never ends its body.
    let service = tower::service_fn(|request: hyper::Request<kube::client::Body>| async move {
        use futures::StreamExt;
        let watch = request
            .uri()
            .query()
            .unwrap_or_default()
            .contains("watch=true");
        let first = if watch {
            String::new()
        } else {
            json!({"metadata": {"resourceVersion": "5"}, "items": []}).to_string()
        };
        let first = futures::stream::iter([Ok::<_, std::io::Error>(hyper::body::Frame::data(
            bytes::Bytes::from(first),
        ))]);
        let body = if watch {
            http_body_util::StreamBody::new(first.chain(futures::stream::pending()).boxed())
        } else {
            http_body_util::StreamBody::new(first.boxed())
        };
        Ok::<_, std::io::Error>(hyper::Response::new(body))
    });
    let (reports, mut inbox) = mpsc::channel(64);
    let follower = Follower {
        api: Api::all_with(
            Client::new(service, "default"),
            &ApiVersion::V1Beta1.resource(),
        ),
        namespace: None,
        targets: targets(&["a"]),
        reports,
        backoff: Backoff::new(1, "mgmt/".into()),
    };
    let task = tokio::spawn(follower.run());
    let start = tokio::time::Instant::now();
    let mut lines = Vec::new();
    while lines.len() < 3 {
        lines.push(line(&inbox.recv().await.unwrap()));
    }
    assert_eq!(
        lines,
        [
            r#"listed 5: , absent {"a"}"#,
            "works Watch(None)",
            "works Watch(None)"
        ]
    );
    assert_eq!(start.elapsed().as_secs(), 60);
    task.abort();
}

#[test]
fn the_backoff_grows_to_its_bound_and_is_spread() {
    let mut backoff = Backoff::new(7, "mgmt".into());
    let first: Vec<u128> = (0..12).map(|_| backoff.next().as_millis()).collect();
    for (attempt, delay) in first.iter().enumerate() {
        let base = (200_u128 << attempt.min(10)).min(5_000);
        assert!(
            (base * 8 / 10..=base * 12 / 10).contains(delay),
            "{attempt}: {delay}"
        );
    }
    backoff.reset();
    let again = backoff.next().as_millis();
    assert!((160..=240).contains(&again) && again != first[0], "{again}");
    let mut other = Backoff::new(7, "other".into());
    assert_ne!(other.next().as_millis(), first[0]);
}

fn resources(names: &[&str]) -> Reply {
    let resources: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    json_reply(
        200,
        &json!({"kind": "APIResourceList", "resources": resources}),
    )
}

#[tokio::test]
async fn v1beta2_is_spoken_where_it_is_served_whole() {
    let both = ["machinedeployments", "machinedeployments/scale", "machines"];
    let absent = || status_reply(404, "not found");
    let cases = [
        (vec![resources(&both)], Ok(ApiVersion::V1Beta2)),
        (vec![absent(), resources(&both)], Ok(ApiVersion::V1Beta1)),
        (
            vec![resources(&["machines"]), resources(&both)],
            Ok(ApiVersion::V1Beta1),
        ),
        (vec![absent(), absent()], Err("install Cluster API")),
        (
            vec![status_reply(401, "Unauthorized")],
            Err("401 Unauthorized"),
        ),
    ];
    for (replies, expected) in cases {
        let (client, mut requests) = server(replies);
        match (discover(&client).await, expected) {
            (Ok(version), Ok(expected)) => assert_eq!(version, expected),
            (Err(error), Err(words)) => assert!(error.contains(words), "{error}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
        let first = asked(&mut requests).remove(0);
        assert_eq!(first, "GET /apis/cluster.x-k8s.io/v1beta2");
    }
}

#[tokio::test(start_paused = true)]
async fn on_v1beta1_the_probe_looks_for_v1beta2_from_time_to_time() {
    let mut replies: Vec<Reply> = (0..30).map(|_| list("5", "", &[])).collect();
    replies.push(resources(&[
        "machinedeployments",
        "machinedeployments/scale",
    ]));
    replies.push(status_reply(404, "not found"));
    let (client, mut requests) = server(replies);
    let connection = Connection {
        client,
        version: ApiVersion::V1Beta1,
    };
    let (reports, mut inbox) = mpsc::channel(64);
    let task = tokio::spawn(probe(Arc::new(connection), Some("gpu".into()), reports));
    for _ in 0..30 {
        assert_eq!(line(&inbox.recv().await.unwrap()), "works Probe");
    }
    assert_eq!(line(&inbox.recv().await.unwrap()), "upgraded");
    let fails = line(&inbox.recv().await.unwrap());
    assert_eq!(
        fails,
        "fails unserved=true: listing MachineDeployments: 404 not found"
    );
    let path = "GET /apis/cluster.x-k8s.io/v1beta1/namespaces/gpu/machinedeployments?limit=1";
    assert_eq!(asked(&mut requests)[0], path);
    task.abort();
}

#[test]
fn namespaces_are_watched_one_by_one_up_to_a_bound() {
    let in_namespaces = |count: usize| -> Targets {
        let target = |n: usize| {
            (
                (format!("ns-{n:03}").into(), "a".into()),
                format!("pool-{n}").into(),
            )
        };
        (0..count).map(target).collect()
    };
    let few = namespaces(&in_namespaces(2));
    assert_eq!(few, [Some("ns-000".into()), Some("ns-001".into())]);
    assert_eq!(
        namespaces(&in_namespaces(WATCHED_NAMESPACES_MAX)).len(),
        WATCHED_NAMESPACES_MAX
    );
    assert_eq!(
        namespaces(&in_namespaces(WATCHED_NAMESPACES_MAX + 1)),
        [None]
    );
}

/// What the callback was told.
type Health = Arc<Mutex<Vec<(String, Result<(), String>)>>>;

/// Two clusters: one is a small API server, one accepts connections and says nothing.
struct Two {
    clusters: Clusters,
    inbox: mpsc::Receiver<Message>,
    health: Health,
    folder: tempfile::TempDir,
    _silent: tokio::net::TcpListener,
}

impl Two {
    async fn start() -> Two {
        let folder = tempfile::TempDir::new().unwrap();
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answering = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (name, listener) in [("silent", &silent), ("answering", &answering)] {
            let server = format!("http://{}", listener.local_addr().unwrap());
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "c", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            });
            std::fs::write(folder.path().join(name), kubeconfig.to_string()).unwrap();
        }
        tokio::spawn(async move { axum::serve(answering, small_api()).await.unwrap() });
        let (messages, inbox) = mpsc::channel(64);
        let engine = EngineHandle::new(
            messages,
            Arc::default(),
            Arc::new(Mutex::new(LeaderGate::new(1))),
            changes::channel(0).1,
        );
        let health: Health = Arc::default();
        let told = health.clone();
        let on_health =
            move |name: &str, state| told.lock().unwrap().push((name.to_owned(), state));
        Two {
            clusters: Clusters::new(engine, Arc::new(on_health)),
            inbox,
            health,
            folder,
            _silent: silent,
        }
    }

    /// A pool `NAME` on MachineDeployment `NAME` behind a cluster, each.
    fn fleet(&self, pools: &[(&str, &str)]) -> Fleet {
        let path = |name: &str| self.folder.path().join(name);
        let pools: Vec<Value> = pools
            .iter()
            .map(|(name, site)| {
                json!({
                    "name": name, "site": site, "labels": {}, "unit": "worker", "min_workers": 0, "max_workers": 9,
                    "training_kw": 1.0, "idle_kw": 0.5, "gpus_per_worker": 4, "gpu_vendor": "nvidia", "gpu_model": "A100",
                    "ready_after": "250s", "actuator": {"k0smotron": {"namespace": "gpu", "machine_deployment": name}},
                })
            })
            .collect();
        let clusters = ["silent", "answering"];
        let text = json!({
            "apiVersion": "sunward.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "fleet"},
            "spec": {
                "clusters": clusters.map(|name| json!({"name": name, "kubeconfig": path(name)})),
                "sites": clusters.map(|name| json!({"name": name, "cluster": name, "time_zone": "UTC"})),
                "pools": pools,
            },
        });
        let file = SourceFile {
            path: "fleet.yaml".into(),
            text: text.to_string(),
        };
        Fleet::parse(&file).unwrap()
    }

    async fn next(&mut self) -> Event {
        match self.inbox.recv().await.unwrap() {
            Message::Tell { mut events, .. } => events.remove(0),
            _ => panic!("clusters only tell"),
        }
    }
}

/// Discovery, one list, and a watch that stays open.
fn small_api() -> axum::Router {
    use axum::routing::get;
    let discovery = axum::Json(json!({"resources": [
        {"name": "machinedeployments"}, {"name": "machinedeployments/scale"},
    ]}));
    let items = axum::Json(json!({
        "metadata": {"resourceVersion": "9"}, "items": [object("a", 5, 1), object("b", 6, 2)],
    }));
    let list_or_watch = move |axum::extract::RawQuery(query): axum::extract::RawQuery| async move {
        use axum::response::IntoResponse;
        if query.unwrap_or_default().contains("watch=true") {
            let silence = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
            return axum::body::Body::from_stream(silence).into_response();
        }
        items.into_response()
    };
    axum::Router::new()
        .route(
            "/apis/cluster.x-k8s.io/v1beta2",
            get(async move || discovery),
        )
        .route(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/gpu/machinedeployments",
            get(list_or_watch),
        )
}

#[tokio::test]
async fn a_cluster_that_hangs_delays_no_other_and_a_new_fleet_is_followed() {
    let mut two = Two::start().await;
    let started = std::time::Instant::now();
    two.clusters
        .reconfigure(&two.fleet(&[("a", "answering"), ("x", "silent")]));
    let Event::PoolObserved(seen) = two.next().await else {
        panic!("no observation");
    };
    assert_eq!((seen.pool.as_ref(), seen.wanted, seen.version), ("a", 1, 5));
    assert_eq!(
        two.next().await,
        Event::ClusterReachable {
            cluster: "answering".into()
        }
    );
    // The silent one would have been told after 3 s at the earliest.
    assert!(started.elapsed() < Duration::from_secs(3));
    let unreachable = two.next().await;
    assert!(
        matches!(&unreachable, Event::ClusterUnreachable { cluster, reason } if cluster.as_ref() == "silent" && reason.contains("nothing for 5 s")),
        "{unreachable:?}"
    );

    // An unchanged cluster is left alone, an added pool is told with its neighbours, a cluster without pools is left.
    two.clusters
        .reconfigure(&two.fleet(&[("a", "answering"), ("x", "silent")]));
    two.clusters
        .reconfigure(&two.fleet(&[("a", "answering"), ("b", "answering")]));
    for (pool, wanted) in [("a", 1), ("b", 2)] {
        let Event::PoolObserved(seen) = two.next().await else {
            panic!("no observation");
        };
        assert_eq!((seen.pool.as_ref(), seen.wanted), (pool, wanted));
    }
    let health = two.health.lock().unwrap().clone();
    let brief: Vec<(&str, bool)> = health
        .iter()
        .map(|(name, state)| (name.as_str(), state.is_ok()))
        .collect();
    assert_eq!(
        brief[..5],
        [
            ("answering", false),
            ("silent", false),
            ("answering", true),
            ("silent", false),
            ("silent", true)
        ]
    );
    assert_eq!(two.clusters.version("answering"), Some(ApiVersion::V1Beta2));
    assert_eq!(two.clusters.version("silent"), None);
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_there_is_told_with_its_path() {
    let mut two = Two::start().await;
    let fleet = two.fleet(&[("a", "answering")]);
    let path = two.folder.path().join("answering");
    let kubeconfig = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    two.clusters.reconfigure(&fleet);
    let Event::ClusterUnreachable { reason, .. } = two.next().await else {
        panic!("not unreachable");
    };
    assert!(
        reason.contains(path.to_str().unwrap()) && reason.contains("No such file"),
        "{reason}"
    );
    // It is read anew at each try.
    std::fs::write(&path, kubeconfig).unwrap();
    let Event::PoolObserved(seen) = two.next().await else {
        panic!("no observation");
    };
    assert_eq!(seen.wanted, 1);
    assert_eq!(
        two.next().await,
        Event::ClusterReachable {
            cluster: "answering".into()
        }
    );
}
