#![allow(clippy::unwrap_used)]

use std::time::Instant;

use axum::body::Body;
use axum::http::header;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use sunward_core::time::Timestamp;
use sunward_signal_adapters::intake::INBOX_REQUESTS_MAX;
use sunward_signal_adapters::series::Series;
use sunward_signal_adapters::wire::Answer;

use self::surface::*;
use super::*;
use crate::client::{Client, REQUEST_TIMEOUT};
use crate::push::{Patience, push};
use crate::tokens::Secret;

mod surface;

#[tokio::test]
async fn a_reading_is_answered_202_after_its_commit() {
    let surface = surface();
    let answered = surface.push(reading("a").to_string()).await;
    assert_eq!(answered.status, 202);
    assert_eq!(
        answered.body,
        json!({"accepted": 1, "duplicate": 0, "superseded": 0, "rejected": []})
    );
    assert_eq!(surface.committed(), 1);
    let empty = surface.push("[]").await;
    assert_eq!(
        (empty.status, empty.body["accepted"].as_u64()),
        (202, Some(0))
    );
}

#[tokio::test]
async fn each_item_has_its_own_answer() {
    let surface = surface();
    let items = [
        reading("a"),
        reading("dup-1"),
        reading("old-1"),
        reading("conflict-1"),
        reading("full-1"),
        changed("unit", json!("furlong")),
        changed("source", json!("entsoe")),
        json!(7),
    ];
    let answered = surface.push(Value::from(items.to_vec()).to_string()).await;
    assert_eq!(answered.status, 202);
    let body = answered.body;
    assert_eq!(
        (&body["accepted"], &body["duplicate"], &body["superseded"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let rejected: Vec<_> = body["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            (
                r["item"].as_u64().unwrap(),
                r["pointer"].as_str().unwrap(),
                r["code"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rejected,
        [
            (3, "/3/id", "conflict"),
            (4, "/4", "board_full"),
            (5, "/5/unit", "unknown_unit"),
            (6, "/6", "not_granted"),
            (7, "/7", "not_an_object"),
        ]
    );
    assert_eq!(surface.committed(), 5);
}

#[tokio::test]
async fn grid_events_stand_among_readings_and_need_a_grant_of_their_own() {
    let surface = surface();
    let event = |source: &str| {
        json!({
            "type": "grid_event", "source": source, "id": "evt-1", "kind": "emergency", "site": "caiso",
            "starts_at": NOW
        })
    };
    let mut broken = event("meter");
    broken["target"] = json!({"value": 4, "unit": "furlong"});
    let items = json!([reading("a"), event("meter"), event("watttime"), broken]);
    let answered = surface.push(items.to_string()).await;
    assert_eq!(
        (answered.status, &answered.body["accepted"]),
        (202, &json!(2))
    );
    let rejected = answered.body["rejected"].as_array().unwrap().iter();
    let rejected: Vec<_> = rejected
        .map(|one| (&one["pointer"], &one["code"]))
        .collect();
    let wanted = [
        (&json!("/2"), &json!("not_granted")),
        (&json!("/3/target"), &json!("unknown_unit")),
    ];
    assert_eq!(rejected, wanted);
    assert_eq!(surface.committed(), 2);
    let refused = surface.request(event("watttime").to_string());
    let refused = surface.refused(refused, 403, "not_granted").await;
    assert!(
        refused.body["errors"][0]["detail"]
            .as_str()
            .unwrap()
            .contains("kinds=grid_event")
    );
}

#[tokio::test]
async fn who_has_no_valid_token_gets_401_and_nothing_is_read() {
    let surface = surface();
    for authorization in [
        None,
        Some("Bearer nonsense".to_owned()),
        Some("Bearer".into()),
        Some(format!("Basic {}", surface.partner)),
    ] {
        let mut request = surface.request(reading("a").to_string());
        request.headers_mut().remove(header::AUTHORIZATION);
        if let Some(authorization) = authorization {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, authorization.parse().unwrap());
        }
        let answered = surface.refused(request, 401, "unauthenticated").await;
        assert!(
            answered.headers[header::WWW_AUTHENTICATE]
                .to_str()
                .unwrap()
                .starts_with("Bearer")
        );
        assert!(!answered.body.to_string().contains("nonsense"));
    }
    assert_eq!(surface.committed(), 0);
}

#[tokio::test]
async fn a_token_without_the_grant_gets_403_and_learns_nothing_of_the_fleet() {
    let surface = surface();
    let not_granted = changed("zone", json!({"scheme": "em", "code": "DE"}));
    let answered = surface
        .refused(surface.request(not_granted.to_string()), 403, "not_granted")
        .await;
    assert_eq!(answered.body["errors"][0]["pointer"], "");
    let mut unknown = changed("site", json!("nowhere"));
    unknown.as_object_mut().unwrap().remove("zone");
    surface
        .refused(surface.request(unknown.to_string()), 403, "not_granted")
        .await;
    // The same question with a grant for every site.
    unknown["source"] = json!("meter");
    let answered = surface
        .refused(
            surface.request(unknown.to_string()),
            422,
            "all_items_refused",
        )
        .await;
    assert_eq!(answered.body["errors"][0]["code"], "unknown_site");
    assert_eq!(surface.committed(), 0);
}

#[tokio::test]
async fn size_form_and_syntax_are_refused_whole() {
    let surface = surface();
    let request = |body: Vec<u8>| surface.request(body);
    surface
        .refused(request(b"kind: carbon".to_vec()), 400, "syntax")
        .await;
    surface.refused(request(Vec::new()), 400, "syntax").await;
    surface
        .refused(request("[".repeat(65).into_bytes()), 400, "depth")
        .await;
    surface
        .refused(request(vec![b' '; 2 * 1024 * 1024]), 413, "too_large")
        .await;
    surface
        .refused(request(vec![b' '; 9 * 1024 * 1024]), 413, "too_large")
        .await;
    surface
        .refused(
            request(format!("[{}]", vec!["1"; 1_001].join(",")).into_bytes()),
            413,
            "too_many_items",
        )
        .await;
    let mut without = request(b"{}".to_vec());
    without.headers_mut().remove(header::CONTENT_TYPE);
    surface.refused(without, 415, "content_type").await;
    let mut yaml = request(b"{}".to_vec());
    yaml.headers_mut()
        .insert(header::CONTENT_TYPE, "application/yaml".parse().unwrap());
    surface.refused(yaml, 415, "content_type").await;
    let mut zipped = request(b"{}".to_vec());
    zipped
        .headers_mut()
        .insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
    surface.refused(zipped, 415, "content_encoding").await;
    let mut charset = request(reading("a").to_string().into_bytes());
    charset.headers_mut().insert(
        header::CONTENT_TYPE,
        "Application/JSON; charset=utf-8".parse().unwrap(),
    );
    assert_eq!(surface.send(charset).await.status, 202);
}

#[tokio::test]
async fn a_body_that_breaks_off_or_never_ends_is_refused() {
    let limits = ApiLimits {
        body_timeout: Duration::from_millis(20),
        ..ApiLimits::default()
    };
    let surface = surface_with(limits);
    let broken = futures::stream::iter([Ok("["), Err(std::io::Error::other("gone"))]);
    surface
        .refused(
            surface.request(Body::from_stream(broken)),
            400,
            "body_incomplete",
        )
        .await;
    let endless = futures::stream::pending::<Result<&str, std::io::Error>>();
    surface
        .refused(
            surface.request(Body::from_stream(endless)),
            408,
            "body_too_slow",
        )
        .await;
}

#[tokio::test]
async fn the_same_id_with_another_content_alone_is_409() {
    let surface = surface();
    let answered = surface
        .refused(
            surface.request(reading("conflict-1").to_string()),
            409,
            "conflict",
        )
        .await;
    assert_eq!(answered.body["errors"][0]["pointer"], "/id");
    let two = json!([reading("conflict-1"), changed("unit", json!("x"))]);
    surface
        .refused(surface.request(two.to_string()), 422, "all_items_refused")
        .await;
}

#[tokio::test]
async fn over_its_quota_a_partner_gets_429_and_others_do_not() {
    let limits = ApiLimits {
        rate: Rate {
            per_second: 0.001,
            burst: 2,
        },
        ..ApiLimits::default()
    };
    let surface = surface_with(limits);
    for _ in 0..2 {
        assert_eq!(surface.push(reading("a").to_string()).await.status, 202);
    }
    let answered = surface
        .refused(surface.request(reading("a").to_string()), 429, "over_quota")
        .await;
    let wait: u64 = answered.headers[header::RETRY_AFTER]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=1_000).contains(&wait), "{wait}");
    let operator = Request::get("/v1/operators")
        .header(
            header::AUTHORIZATION,
            format!("Bearer {}", surface.operator),
        )
        .body(Body::empty())
        .unwrap();
    assert_eq!(surface.send(operator).await.status, 200);
}

#[tokio::test]
async fn a_full_a_closed_and_a_silent_engine_loop_are_503() {
    let (intake, outlet) = Intake::channel();
    let limits = ApiLimits {
        commit_timeout: Duration::from_millis(20),
        ..ApiLimits::default()
    };
    let (state, mut surface) = state(limits, intake.clone());
    surface.router = router(state);
    // Nobody reads the inbox: the first request waits for its commit in vain.
    surface
        .refused(
            surface.request(reading("a").to_string()),
            503,
            "not_confirmed",
        )
        .await;
    while intake.depth() < INBOX_REQUESTS_MAX {
        drop(intake.submit(Vec::new(), Instant::now()).unwrap());
    }
    surface
        .refused(surface.request(reading("a").to_string()), 503, "busy")
        .await;
    drop(outlet);
    surface
        .refused(
            surface.request(reading("a").to_string()),
            503,
            "not_taking_readings",
        )
        .await;
}

#[tokio::test]
async fn a_dropped_ticket_is_never_202() {
    let surface = surface();
    surface
        .refused(
            surface.request(reading("lost-1").to_string()),
            503,
            "not_confirmed",
        )
        .await;
}

#[tokio::test]
async fn other_paths_methods_operators_and_faults_have_problems_too() {
    let surface = surface();
    let get = |path: &str, token: Option<&str>| {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request.body(Body::empty()).unwrap()
    };
    surface
        .refused(get("/v2/signals", None), 404, "not_found")
        .await;
    let answered = surface
        .refused(get("/v1/signals", None), 405, "method_not_allowed")
        .await;
    assert_eq!(answered.headers[header::ALLOW], "POST");
    surface
        .refused(get("/v1/operators", None), 401, "unauthenticated")
        .await;
    surface
        .refused(
            get("/v1/operators", Some(&surface.partner)),
            403,
            "operator_only",
        )
        .await;
    assert_eq!(
        surface
            .send(get("/v1/operators", Some(&surface.operator)))
            .await
            .body,
        "ops"
    );
    surface
        .refused(get("/v1/fault", None), 500, "internal")
        .await;
}

#[tokio::test]
async fn health_needs_no_token_and_says_what_is_wrong() {
    let surface = surface();
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    assert_eq!(surface.send(get("/healthz")).await.body, "ok\n");
    surface.readiness.set("journal", Ok(()));
    let ready = surface.send(get("/readyz")).await;
    assert_eq!(
        (ready.status, ready.body),
        (200, json!({"ready": true, "not_ready": []}))
    );
    surface
        .readiness
        .set("sink:redis", Err("connection refused".into()));
    let ready = surface.send(get("/readyz")).await;
    assert_eq!(ready.status, 503);
    assert_eq!(
        ready.body["not_ready"],
        json!([{"name": "sink:redis", "reason": "connection refused"}])
    );
    assert_eq!(surface.send(get("/healthz")).await.status, 200);
    surface.readiness.set("sink:redis", Ok(()));
    assert_eq!(surface.send(get("/readyz")).await.status, 200);
}

#[tokio::test]
async fn every_answer_is_counted_and_metrics_are_refreshed_first() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (intake, outlet) = Intake::channel();
    let render = render_metrics(handle, || {
        Box::pin(async {
            metrics::gauge!(crate::metric_definitions::TERM).set(3.0);
        })
    });
    let (state, mut surface) = state_rendering(ApiLimits::default(), intake, render);
    surface.router = router(state);
    tokio::spawn(answer(outlet, surface.committed.clone()));
    let items = json!([
        reading("a"),
        reading("b"),
        reading("dup-1"),
        changed("unit", json!("x"))
    ]);
    surface.push(items.to_string()).await;
    surface.push("{").await;
    surface.push(changed("unit", json!("x")).to_string()).await;
    surface
        .send(
            Request::builder()
                .method("BREW")
                .uri("/coffee")
                .body(Body::empty())
                .unwrap(),
        )
        .await;
    let metrics = surface
        .send(Request::get("/metrics").body(Body::empty()).unwrap())
        .await;
    assert_eq!(
        metrics.headers[header::CONTENT_TYPE],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = metrics.body.as_str().unwrap();
    for line in [
        "sunward_signals_accepted_total{source=\"watttime\",result=\"accepted\"} 2",
        "sunward_signals_accepted_total{source=\"watttime\",result=\"duplicate\"} 1",
        "sunward_signals_refused_total{reason=\"unknown_unit\"} 2",
        "sunward_signals_refused_total{reason=\"syntax\"} 1",
        "sunward_http_requests_total{route=\"/v1/signals\",method=\"POST\",status=\"202\"} 1",
        "sunward_http_requests_total{route=\"/v1/signals\",method=\"POST\",status=\"400\"} 1",
        "sunward_http_requests_total{route=\"/v1/signals\",method=\"POST\",status=\"422\"} 1",
        "sunward_http_requests_total{route=\"none\",method=\"other\",status=\"404\"} 1",
        "sunward_term 3",
    ] {
        assert!(
            text.lines().any(|have| have == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(
        !text.contains("all_items_refused") && !text.contains("not_found"),
        "{text}"
    );
}

/// The bad input that the issue lists, each with a good reading beside it where it is one item.
#[tokio::test]
async fn bad_input_has_the_right_answer_and_loses_nothing_else() {
    let surface = surface();
    surface
        .refused(surface.request("not json at all"), 400, "syntax")
        .await;
    let nan = format!(
        "[{}, {}]",
        reading("x"),
        reading("a").to_string().replace("90.5", "NaN")
    );
    let answered = surface.refused(surface.request(nan), 400, "syntax").await;
    assert!(
        answered.body["detail"]
            .as_str()
            .unwrap()
            .contains("quality: missing")
    );
    surface
        .refused(
            surface.request(vec![b'1'; 2 * 1024 * 1024]),
            413,
            "too_large",
        )
        .await;
    assert_eq!(surface.committed(), 0);
    let cases = [
        (
            changed("unit", json!("gCO2e/mile")),
            "unknown_unit",
            "/unit",
        ),
        (changed("value", json!("NaN")), "not_finite", "/value"),
        (
            changed("valid_to", json!("2026-03-01T11:55:00Z")),
            "interval_order",
            "/valid_to",
        ),
        (
            changed("valid_from", json!("2026-03-01T12:00:00")),
            "stamp_without_offset",
            "/valid_from",
        ),
        (
            changed("zone", json!({"scheme": "wt", "code": "NOWHERE"})),
            "not_granted",
            "",
        ),
        (changed("source", json!("entsoe")), "not_granted", ""),
        (
            {
                let mut reading = changed("zone", json!({"scheme": "wt", "code": "NOWHERE"}));
                reading["source"] = json!("meter");
                reading
            },
            "unknown_zone",
            "/zone",
        ),
    ];
    for (bad, code, field) in cases {
        let before = surface.committed();
        let mut items: Vec<Value> = (0..9).map(|n| reading(&format!("good-{n}"))).collect();
        items.insert(4, bad);
        let answered = surface.push(Value::from(items).to_string()).await;
        assert_eq!(
            (answered.status, answered.body["accepted"].as_u64()),
            (202, Some(9)),
            "{code}"
        );
        assert_eq!(answered.body["rejected"].as_array().unwrap().len(), 1);
        assert_eq!(answered.body["rejected"][0]["code"], code);
        assert_eq!(
            answered.body["rejected"][0]["pointer"],
            format!("/4{field}")
        );
        assert_eq!(surface.committed() - before, 9);
    }
}

#[tokio::test]
async fn what_push_sends_the_surface_takes() {
    let surface = surface();
    let mut lines: Vec<String> = (0..230)
        .map(|n| reading(&format!("r-{n}")).to_string())
        .collect();
    lines.insert(150, changed("unit", json!("furlong")).to_string());
    let series = Series::read(lines.join("\n").as_bytes(), None, None).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = surface.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client =
        |token: &str| Client::new(&server, Some(Secret::new(token)), REQUEST_TIMEOUT).unwrap();
    let (patience, mut answer) = (Patience::new(Duration::ZERO), Answer::default());
    let now = || Timestamp::MAX;
    push(
        &series,
        &client(&surface.partner),
        now,
        patience,
        &mut answer,
        &mut |_| {},
    )
    .await
    .unwrap();
    assert_eq!((answer.accepted, answer.rejected.len()), (230, 1));
    assert_eq!(answer.rejected[0].pointer, "/150/unit");
    assert_eq!(surface.committed(), 230);
    let error = push(
        &series,
        &client("sw_who"),
        now,
        patience,
        &mut Answer::default(),
        &mut |_| {},
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
}

#[test]
fn labels_of_sources_are_bounded() {
    let labels = SourceLabels::default();
    for n in 0..SOURCE_LABELS_MAX {
        assert_eq!(labels.label(&format!("s{n}")), format!("s{n}"));
    }
    assert_eq!(labels.label("one-more"), "other");
    assert_eq!(labels.label("s7"), "s7");
}
