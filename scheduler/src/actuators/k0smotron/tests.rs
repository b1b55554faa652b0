//! Scenarios on a mocked API server: each compares the whole conversation and the outcome.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use sunward_core::action::Cause;
use sunward_core::fleet::{Cluster, Fleet};
use sunward_core::time::Timestamp;
use sunward_policies::document::SourceFile;
use tokio::sync::mpsc;

use super::*;
use crate::cluster::mock::{Reply, asked, json_reply, server, status_reply};
use crate::cluster::{Connection, Targets};
use crate::engine_handle::EngineHandle;

const OBJECT: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/gpu/machinedeployments/caiso-a";
const FLEET: &str = r"
apiVersion: sunward.dev/v1alpha1
kind: Fleet
metadata: {name: fleet}
spec:
  clusters: [{name: mgmt}]
  sites: [{name: caiso, cluster: mgmt, time_zone: America/Los_Angeles}]
  pools: [{name: caiso-a, site: caiso, labels: {}, unit: pool, min_workers: 0, max_workers: 3, training_kw: 2.0, idle_kw: 0.5,
           gpus_per_worker: 4, gpu_vendor: nvidia, gpu_model: A100, ready_after: 250s,
           actuator: {k0smotron: {namespace: gpu, machine_deployment: caiso-a}}}]
";

fn machine_deployment(version: u64, replicas: u32, term: Option<u64>) -> Value {
    let annotations = match term {
        Some(term) => {
            json!({TERM_ANNOTATION: term.to_string(), CLAIM_ANNOTATION: format!("{term}.1")})
        }
        None => json!({}),
    };
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"namespace": "gpu", "name": "caiso-a", "resourceVersion": version.to_string(), "annotations": annotations},
        "spec": {"replicas": replicas}, "status": {"replicas": 1, "readyReplicas": 1},
    })
}

fn scale_answer(version: u64, replicas: u32) -> Value {
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"resourceVersion": version.to_string()},
        "spec": {"replicas": replicas}, "status": {"replicas": 1}})
}

struct Bench {
    clusters: Arc<Clusters>,
    actuator: K0smotron,
    pool: Arc<Pool>,
}

impl Bench {
    fn new(client: Client) -> Bench {
        let file = SourceFile {
            path: "fleet.yaml".into(),
            text: FLEET.into(),
        };
        let fleet = Fleet::parse(&file).unwrap();
        let pool = fleet.pool("caiso-a").unwrap().clone();
        let (messages, _) = mpsc::channel(1);
        let gate = sunward_core::protocol::leader::LeaderGate::new(7);
        let engine = EngineHandle::new(
            messages,
            Arc::new(arc_swap::ArcSwap::from_pointee(fleet)),
            Arc::new(Mutex::new(gate)),
            tokio::sync::watch::channel(0).1,
        );
        let cluster = Cluster {
            name: "mgmt".into(),
            kubeconfig: None,
            context: None,
        };
        let targets = Targets::from([(("gpu".into(), "caiso-a".into()), pool.name.clone())]);
        let connection = Connection {
            client,
            version: ApiVersion::V1Beta2,
        };
        let clusters = Arc::new(Clusters::fixed(engine, cluster, targets, connection));
        Bench {
            actuator: K0smotron::new(clusters.clone()),
            clusters,
            pool,
        }
    }

    /// The watch saw the object like this.
    fn saw(&self, object: Value) {
        let snapshot = Snapshot::of(&serde_json::from_value(object).unwrap()).unwrap();
        let route = self.clusters.route(&self.pool).unwrap();
        route.cluster.cache().seen(&self.pool.name, snapshot);
    }

    fn known(&self) -> Snapshot {
        self.clusters.snapshot(&self.pool).unwrap()
    }

    async fn claim(&self, term: u64) -> Outcome {
        let pool = self.pool.clone();
        self.actuator.apply(&Command::Claim { pool, term }).await
    }

    /// Term 7, generation 12, from 0 to 3.
    async fn scale(&self) -> Outcome {
        let scale = Scale {
            pool: self.pool.name.clone(),
            term: 7,
            generation: 12,
            replicas: 3,
            from: 0,
            decided_at: Timestamp::from_millis(1_700_000_000_250),
            cause: Cause {
                index: 1,
                by: "test/rule".into(),
                why: "test".into(),
            },
        };
        let pool = self.pool.clone();
        self.actuator.apply(&Command::Scale { pool, scale }).await
    }
}

#[tokio::test]
async fn a_claim_reads_and_writes_the_term_on_what_it_read() {
    let claimed = machine_deployment(6, 2, Some(7));
    let (client, mut requests) = server(vec![
        json_reply(200, &machine_deployment(5, 2, Some(3))),
        json_reply(200, &claimed),
    ]);
    let bench = Bench::new(client);
    let Outcome::Accepted(seen) = bench.claim(7).await else {
        panic!("not accepted");
    };
    assert_eq!(
        (
            seen.wanted,
            seen.ready,
            seen.stopping,
            seen.version,
            seen.term
        ),
        (2, 1, 0, 6, Some(7))
    );
    let body = r#"{"metadata":{"annotations":{"sunward.dev/claim":"7.1","sunward.dev/term":"7"},"resourceVersion":"5"}}"#;
    assert_eq!(
        asked(&mut requests),
        [
            format!("GET {OBJECT}"),
            format!("PATCH {OBJECT}?fieldManager=sunward merge-patch+json {body}"),
        ]
    );
    assert_eq!(bench.known().version, 6);
}

#[tokio::test]
async fn a_second_claim_in_one_term_changes_the_object_as_well() {
    let (client, mut requests) = server(vec![
        json_reply(200, &machine_deployment(5, 2, Some(7))),
        json_reply(200, &machine_deployment(6, 2, Some(7))),
    ]);
    let bench = Bench::new(client);
    assert!(matches!(bench.claim(7).await, Outcome::Accepted(_)));
    let patch = asked(&mut requests).pop().unwrap();
    assert!(patch.contains(r#""sunward.dev/claim":"7.2""#), "{patch}");
}

#[tokio::test]
async fn a_higher_term_is_never_replaced() {
    let (client, mut requests) = server(vec![json_reply(200, &machine_deployment(5, 2, Some(9)))]);
    let bench = Bench::new(client);
    assert_eq!(bench.claim(7).await, Outcome::HigherTerm { term: 9 });
    assert_eq!(asked(&mut requests).len(), 1);
    // The watch saw it, too: a scale write is not even tried.
    assert_eq!(bench.scale().await, Outcome::HigherTerm { term: 9 });
    assert_eq!(asked(&mut requests).len(), 0);
}

#[tokio::test]
async fn a_scale_writes_absolute_replicas_on_the_known_version_and_notes_it_later() {
    let (client, mut requests) = server(vec![
        json_reply(200, &scale_answer(8, 3)),
        json_reply(200, &machine_deployment(9, 3, Some(7))),
    ]);
    let bench = Bench::new(client);
    bench.saw(machine_deployment(5, 0, Some(7)));
    let Outcome::Accepted(seen) = bench.scale().await else {
        panic!("not accepted");
    };
    assert_eq!(
        (
            seen.wanted,
            seen.ready,
            seen.stopping,
            seen.version,
            seen.term
        ),
        (3, 1, 0, 8, Some(7))
    );
    assert_eq!(
        seen.changed_at,
        Some(Timestamp::from_millis(1_700_000_000_250))
    );
    // The next write knows the new version without waiting for the watch.
    assert_eq!((bench.known().version, bench.known().replicas), (8, 3));
    let write = requests.recv().await.unwrap();
    let body = r#"{"metadata":{"resourceVersion":"5"},"spec":{"replicas":3}}"#;
    assert_eq!(
        write,
        format!("PATCH {OBJECT}/scale?fieldManager=sunward merge-patch+json {body}")
    );
    let note = requests.recv().await.unwrap();
    let body = concat!(
        r#"[{"op":"test","path":"/metadata/annotations/sunward.dev~1term","value":"7"},"#,
        r#"{"op":"add","path":"/metadata/annotations/sunward.dev~1command","value":"7.12"},"#,
        r#"{"op":"add","path":"/metadata/annotations/sunward.dev~1changed-at","value":"2023-11-14T22:13:20.250Z"}]"#
    );
    assert_eq!(
        note,
        format!("PATCH {OBJECT}?fieldManager=sunward json-patch+json {body}")
    );
    // And so does the note's answer.
    while bench.known().version != 9 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn without_a_fresh_object_of_ours_nothing_is_sent() {
    let (client, mut requests) = server(Vec::new());
    let bench = Bench::new(client);
    assert_eq!(bench.scale().await, Outcome::Conflict);
    // Someone else's number, nobody's term, a former term.
    for object in [
        machine_deployment(5, 1, Some(7)),
        machine_deployment(6, 0, None),
        machine_deployment(7, 0, Some(6)),
    ] {
        bench.saw(object);
        assert_eq!(bench.scale().await, Outcome::Conflict);
    }
    assert_eq!(asked(&mut requests), [""; 0]);
}

/// The outcome of a scale write that is answered so.
async fn scale_answered(reply: Reply) -> Outcome {
    let (client, _requests) = server(vec![reply]);
    let bench = Bench::new(client);
    bench.saw(machine_deployment(5, 0, Some(7)));
    let outcome = bench.scale().await;
    assert_eq!(
        bench.known().version,
        5,
        "a failed write changes nothing that is known"
    );
    outcome
}

/// The kind of an outcome, when to retry, and its words.
fn told(outcome: Outcome) -> (&'static str, Option<u64>, String) {
    let kind = outcome.as_str();
    match outcome {
        Outcome::Failed {
            reason,
            retry_after_ms,
        } => (kind, retry_after_ms, reason),
        Outcome::Refused { reason } | Outcome::Unknown { reason } => (kind, None, reason),
        _ => (kind, None, String::new()),
    }
}

/// Answers to a write: kind of outcome, milliseconds to wait, and words that are in the reason.
fn answers_to_a_write() -> Vec<(Reply, &'static str, Option<u64>, &'static str)> {
    let text = |code, after, body: &str| Reply::Text(code, after, body.to_owned());
    vec![
        (
            status_reply(409, "the object has been modified"),
            "conflict",
            None,
            "",
        ),
        (
            text(429, Some("2"), "Too many requests, please try again later."),
            "failed",
            Some(2_000),
            "Too many",
        ),
        (text(429, None, ""), "failed", None, "Too Many Requests"),
        (
            text(429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), ""),
            "failed",
            None,
            "429",
        ),
        (
            status_reply(503, "apiserver not ready"),
            "failed",
            None,
            "apiserver not ready",
        ),
        (
            text(503, Some("1"), "upstream connect error"),
            "unknown",
            None,
            "upstream connect error",
        ),
        (
            status_reply(500, "etcdserver: leader changed"),
            "unknown",
            None,
            "leader changed",
        ),
        (
            text(502, None, "<html>bad gateway</html>"),
            "unknown",
            None,
            "bad gateway",
        ),
        (
            status_reply(504, "request did not complete"),
            "unknown",
            None,
            "504 request did not complete",
        ),
        (text(408, None, ""), "unknown", None, "Request Timeout"),
        (status_reply(400, "bad patch"), "refused", None, "bad patch"),
        (
            status_reply(401, "Unauthorized"),
            "refused",
            None,
            "renew the credentials",
        ),
        (
            status_reply(403, "User \"x\" cannot patch"),
            "refused",
            None,
            "grant `patch` on `machinedeployments/scale`",
        ),
        (
            status_reply(404, "not found"),
            "refused",
            None,
            "create the MachineDeployment",
        ),
        (
            status_reply(422, "denied by policy"),
            "refused",
            None,
            "denied by policy",
        ),
        (text(302, None, ""), "refused", None, "302 Found"),
        (
            text(200, None, "<html>log in</html>"),
            "unknown",
            None,
            "can't be read",
        ),
        (
            json_reply(200, &json!({"metadata": {}, "spec": {"replicas": 3}})),
            "unknown",
            None,
            "no number",
        ),
    ]
}

#[tokio::test]
async fn every_answer_to_a_write_has_its_outcome() {
    let cases = answers_to_a_write();
    for (number, (reply, kind, retry_after_ms, words)) in cases.into_iter().enumerate() {
        let (told_kind, told_after, told_words) = told(scale_answered(reply).await);
        assert_eq!(
            (told_kind, told_after),
            (kind, retry_after_ms),
            "case {number}: {told_words}"
        );
        assert!(told_words.contains(words), "case {number}: {told_words}");
        if kind != "conflict" {
            assert!(
                told_words.contains("gpu/caiso-a in cluster mgmt"),
                "case {number}: {told_words}"
            );
        }
    }
}

#[tokio::test]
async fn the_api_servers_own_retry_after_is_read_from_its_status_too() {
    let busy = json!({"kind": "Status", "code": 503, "message": "starting", "details": {"retryAfterSeconds": 3}});
    let (kind, after, _) = told(scale_answered(json_reply(503, &busy)).await);
    assert_eq!((kind, after), ("failed", Some(3_000)));
}

#[tokio::test]
async fn a_read_that_fails_wrote_nothing() {
    let text = |code, body: &str| Reply::Text(code, None, body.to_owned());
    for (reply, kind, words) in [
        (
            status_reply(403, "User \"x\" cannot get"),
            "refused",
            "grant `get` on `machinedeployments`",
        ),
        (
            status_reply(404, "not found"),
            "refused",
            "create the MachineDeployment",
        ),
        (text(502, "bad gateway"), "failed", "bad gateway"),
        (status_reply(409, "odd"), "failed", "odd"),
        (text(200, "<html>"), "failed", "can't be read"),
        (
            json_reply(200, &json!({"metadata": {"resourceVersion": "x"}})),
            "refused",
            "not a decimal number",
        ),
    ] {
        let (client, mut requests) = server(vec![reply]);
        let (told_kind, _, told_words) = told(Bench::new(client).claim(7).await);
        assert_eq!(told_kind, kind, "{told_words}");
        assert!(told_words.contains(words), "{told_words}");
        assert_eq!(asked(&mut requests).len(), 1);
    }
}

#[tokio::test]
async fn a_claim_that_lost_the_race_is_a_conflict() {
    let found = json_reply(200, &machine_deployment(5, 2, None));
    let (client, _requests) = server(vec![found, status_reply(409, "modified")]);
    assert_eq!(Bench::new(client).claim(7).await, Outcome::Conflict);
}

#[tokio::test(start_paused = true)]
async fn silence_is_unknown_for_a_write_and_a_failure_for_a_read() {
    let (kind, _, words) = told(scale_answered(Reply::Silence).await);
    assert_eq!(
        (kind, words.contains("nothing for 5 s")),
        ("unknown", true),
        "{words}"
    );
    let (client, _requests) = server(vec![Reply::Silence]);
    let (kind, _, words) = told(Bench::new(client).claim(7).await);
    assert_eq!(
        (kind, words.contains("nothing for 5 s")),
        ("failed", true),
        "{words}"
    );
}

/// A client of a plain TCP address, without kube's retries.
fn client_of(address: std::net::SocketAddr) -> Client {
    let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_refused_connection_is_a_failure_and_a_broken_one_is_unknown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let broken = tokio::spawn(async move {
        use tokio::io::AsyncReadExt;
        let (mut stream, _) = listener.accept().await.unwrap();
        // The whole request arrives, and then the server is gone.
        let mut text = Vec::new();
        while !text.ends_with(b"\"replicas\":3}}") {
            stream.read_buf(&mut text).await.unwrap();
        }
    });
    let bench = Bench::new(client_of(address));
    bench.saw(machine_deployment(5, 0, Some(7)));
    let (kind, _, words) = told(bench.scale().await);
    assert_eq!(kind, "unknown", "{words}");
    broken.await.unwrap();

    let bench = Bench::new(client_of(address));
    bench.saw(machine_deployment(5, 0, Some(7)));
    let (kind, _, words) = told(bench.scale().await);
    assert_eq!(kind, "failed", "{words}");
    assert!(words.contains("not connected"), "{words}");
}

#[tokio::test]
async fn a_pool_of_no_cluster_and_a_name_that_is_none_are_said() {
    let (client, mut requests) = server(Vec::new());
    let bench = Bench::new(client);
    let mut elsewhere = Pool::clone(&bench.pool);
    elsewhere.target = sunward_core::fleet::Target::K0smotron {
        namespace: "gpu".into(),
        machine_deployment: "other".into(),
    };
    let pool = Arc::new(elsewhere);
    let (kind, _, words) = told(
        bench
            .actuator
            .apply(&Command::Claim { pool, term: 7 })
            .await,
    );
    assert_eq!(
        (kind, words.as_str()),
        (
            "failed",
            "pool caiso-a is behind no cluster of the fleet in force"
        )
    );
    for bad in ["", "..", "a/b", "a?b", "A", "a%2f"] {
        let error = Object::new("mgmt", ApiVersion::V1Beta2, "gpu", bad).unwrap_err();
        assert!(error.contains("RFC 1123"), "{error}");
    }
    assert_eq!(asked(&mut requests).len(), 0);
}
