//! What the tests of the HTTP surface stand on: the real router over a real intake, and an engine
//! loop that answers by the first letters of an id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use sunward_core::fleet::Fleet;
use sunward_core::protocol::leader::LeaderGate;
use sunward_core::time::Timestamp;
use sunward_signal_adapters::intake::{ItemResult, Submission};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt as _;

use super::super::*;
use crate::tokens::{self, Grant};

pub(super) const NOW: &str = "2026-03-01T12:00:00Z";

/// A router over a real intake, with an engine loop that answers by the first letters of an id.
pub(super) struct Surface {
    pub(super) router: Router,
    pub(super) readiness: Readiness,
    pub(super) partner: String,
    pub(super) operator: String,
    pub(super) committed: Arc<AtomicUsize>,
    /// The engine loop's ends, kept so that the handle stays whole.
    _ends: (
        mpsc::Receiver<crate::engine_handle::Message>,
        watch::Sender<u64>,
    ),
}

pub(super) fn result_of(id: &str) -> ItemResult {
    match id.split('-').next() {
        Some("dup") => ItemResult::Duplicate,
        Some("old") => ItemResult::Superseded,
        Some("conflict") => ItemResult::Conflict,
        Some("full") => ItemResult::BoardFull,
        _ => ItemResult::Accepted,
    }
}

pub(super) async fn answer(mut outlet: mpsc::Receiver<Submission>, committed: Arc<AtomicUsize>) {
    while let Some(submission) = outlet.recv().await {
        if submission.keys.iter().any(|key| key.id.starts_with("lost")) {
            continue;
        }
        let results: Vec<_> = submission
            .keys
            .iter()
            .map(|key| result_of(&key.id))
            .collect();
        committed.fetch_add(results.len(), Ordering::SeqCst);
        let _ = submission.ticket.send(results);
    }
}

pub(super) fn state(limits: ApiLimits, intake: Intake) -> (ApiState, Surface) {
    let handle = PrometheusBuilder::new().build_recorder().handle();
    state_rendering(
        limits,
        intake,
        render_metrics(handle, || Box::pin(async {})),
    )
}

pub(super) fn state_rendering(
    limits: ApiLimits,
    intake: Intake,
    render: RenderMetrics,
) -> (ApiState, Surface) {
    let fleet = Fleet::parse(&sunward_policies::SourceFile {
        path: "fleet.yaml".into(),
        text: include_str!("../../../../signal-adapters/fixtures/fleet.yaml").into(),
    })
    .unwrap();
    let at = Timestamp::parse_rfc3339(NOW).unwrap();
    let grants: Vec<Grant> = vec![
        "source=watttime,sites=caiso,kinds=carbon_intensity"
            .parse()
            .unwrap(),
        "source=meter,sites=*,kinds=*".parse().unwrap(),
    ];
    let (partner, partner_secret) = tokens::issue("acme", grants, false, at).unwrap();
    let (operator, operator_secret) = tokens::issue("ops", Vec::new(), true, at).unwrap();
    let tokens = Tokens::fixed(vec![partner, operator], Instant::now()).unwrap();
    let (messages, told) = mpsc::channel(1);
    let (stepped, index) = watch::channel(0);
    let engine = EngineHandle::new(
        messages,
        Arc::new(ArcSwap::from_pointee(fleet)),
        Arc::new(Mutex::new(LeaderGate::new(1))),
        index,
    );
    let readiness = Readiness::default();
    let state = ApiState::new(
        intake,
        engine,
        Arc::new(tokens),
        readiness.clone(),
        // The series' clock, so that stamps of the tests are now.
        Clock::series(at, 0.001),
        limits,
        render,
    );
    let surface = Surface {
        router: Router::new(),
        readiness,
        partner: partner_secret.reveal().to_owned(),
        operator: operator_secret.reveal().to_owned(),
        committed: Arc::default(),
        _ends: (told, stepped),
    };
    (state, surface)
}

pub(super) fn surface_with(limits: ApiLimits) -> Surface {
    let (intake, outlet) = Intake::channel();
    let (state, mut surface) = state(limits, intake);
    let more = Router::new()
        .route(
            "/v1/operators",
            get(|auth::Operator(partner): auth::Operator| async move { partner.name.clone() }),
        )
        .route("/v1/fault", get(fault));
    surface.router = router_with(state, more);
    tokio::spawn(answer(outlet, surface.committed.clone()));
    surface
}

pub(super) async fn fault() -> &'static str {
    panic!("on purpose")
}

pub(super) fn surface() -> Surface {
    surface_with(ApiLimits::default())
}

pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

impl Surface {
    pub(super) async fn send(&self, request: Request) -> Answered {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answered {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    pub(super) async fn push(&self, body: impl Into<Body>) -> Answered {
        self.send(self.request(body)).await
    }

    pub(super) fn request(&self, body: impl Into<Body>) -> Request {
        Request::post("/v1/signals")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.partner))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.into())
            .unwrap()
    }

    /// Expects a problem, well formed, with this status and code.
    pub(super) async fn refused(&self, request: Request, status: u16, code: &str) -> Answered {
        let answered = self.send(request).await;
        assert_eq!(
            (answered.status, answered.body["code"].as_str()),
            (status, Some(code)),
            "{}",
            answered.body
        );
        assert_eq!(
            answered.headers[header::CONTENT_TYPE],
            "application/problem+json"
        );
        assert_eq!(answered.body["status"], status);
        assert_eq!(
            answered.body["type"],
            format!("https://sunward.dev/problems/{code}")
        );
        assert!(answered.body["title"].as_str().unwrap().len() > 5);
        assert!(
            answered.body["detail"].as_str().unwrap().len() > 20,
            "{}",
            answered.body
        );
        assert_eq!(
            answered.body["retryable"],
            answered.headers.contains_key(header::RETRY_AFTER)
        );
        assert!(answered.body["errors"].is_array());
        answered
    }

    pub(super) fn committed(&self) -> usize {
        self.committed.load(Ordering::SeqCst)
    }
}

pub(super) fn reading(id: &str) -> Value {
    json!({
        "id": id, "source": "watttime", "kind": "carbon_intensity", "basis": "marginal",
        "zone": {"scheme": "wt", "code": "CAISO_NORTH"}, "valid_from": "2026-03-01T12:00:00Z",
        "valid_to": "2026-03-01T12:05:00Z", "value": 90.5, "unit": "gCO2e/kWh"
    })
}

pub(super) fn changed(name: &str, value: Value) -> Value {
    let mut reading = reading("changed");
    reading[name] = value;
    reading
}
