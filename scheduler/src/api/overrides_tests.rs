#![allow(clippy::unwrap_used)]

use super::*;

const NOW: &str = "2026-03-01T12:00:00Z";

fn fleet() -> Fleet {
    Fleet::parse(&sunward_policies::SourceFile {
        path: "fleet.yaml".into(),
        text: include_str!("../../../signal-adapters/fixtures/fleet.yaml").into(),
    })
    .unwrap()
}

fn now() -> Timestamp {
    Timestamp::parse_rfc3339(NOW).unwrap()
}

fn good() -> OverrideRequest {
    OverrideRequest {
        scope: "fleet".into(),
        effect: "off".into(),
        reason: "breaker 7 is being replaced".into(),
        lasts: Some("2h".into()),
        ..OverrideRequest::default()
    }
}

fn judge(request: &OverrideRequest) -> Result<Override, Vec<Rejected>> {
    admit(request, &"night-1".into(), &fleet(), now(), "ops")
}

#[test]
fn a_good_request_has_an_owner_a_reason_and_an_expiry() {
    let admitted = judge(&good()).unwrap();
    assert_eq!(admitted.owner, "ops", "the token's name is the default");
    assert_eq!(admitted.set_by, "ops");
    assert_eq!(admitted.expires_at, now() + Span::from_mins(120));
    assert_eq!(admitted.set_at, now());
    let named = OverrideRequest {
        owner: Some(" Ana ".into()),
        lasts: None,
        expires_at: Some("2026-03-01T15:00:00+02:00".into()),
        ..good()
    };
    let admitted = judge(&named).unwrap();
    assert_eq!(
        (admitted.owner.as_str(), admitted.set_by.as_str()),
        ("Ana", "ops")
    );
    assert_eq!(admitted.expires_at, now() + Span::from_mins(60));
}

#[test]
fn scopes_are_names_of_the_fleet_and_a_slip_is_told_the_nearest() {
    let fleet = fleet();
    let pool = fleet.pools()[0].clone();
    let of = |scope: String| judge(&OverrideRequest { scope, ..good() });
    for scope in [format!("pool/{}", pool.name), format!("site/{}", pool.site)] {
        assert_eq!(of(scope.clone()).unwrap().scope.to_string(), scope);
    }
    let slip = &pool.name[..pool.name.len() - 1];
    let wrongs = of(format!("pool/{slip}x")).unwrap_err();
    assert_eq!(wrongs[0].pointer, "/scope");
    let near = format!("did you mean `{}`?", pool.name);
    assert!(wrongs[0].detail.contains(&near), "{}", wrongs[0].detail);
    for scope in ["", "pool", "pool/", "cluster/x", "fleet/x"] {
        assert_eq!(
            of(scope.into()).unwrap_err()[0].pointer,
            "/scope",
            "{scope}"
        );
    }
}

#[test]
fn every_mistake_has_its_place() {
    let with = |change: fn(&mut OverrideRequest)| {
        let mut request = good();
        change(&mut request);
        request
    };
    let changed = [
        ("/reason", with(|asked| asked.reason = "  ".into())),
        ("/reason", with(|asked| asked.reason = "a\nb".into())),
        ("/owner", with(|asked| asked.owner = Some(String::new()))),
        (
            "/owner",
            with(|asked| asked.owner = Some("x".repeat(OVERRIDE_TEXT_MAX + 1))),
        ),
        ("/effect", with(|asked| asked.effect = "pause".into())),
        ("/workers", with(|asked| asked.workers = Some(1))),
        (
            "/workers",
            with(|asked| {
                asked.effect = "on".into();
                asked.workers = Some(0);
            }),
        ),
        ("/for", with(|asked| asked.lasts = None)),
        ("/for", with(|asked| asked.lasts = Some("0s".into()))),
        ("/for", with(|asked| asked.lasts = Some("91d".into()))),
        (
            "/expires_at",
            with(|asked| asked.expires_at = Some(NOW.into())),
        ),
        (
            "/expires_at",
            with(|asked| {
                asked.lasts = None;
                asked.expires_at = Some(NOW.into());
            }),
        ),
        (
            "/expires_at",
            with(|asked| {
                asked.lasts = None;
                asked.expires_at = Some("2026-03-02T12:00:00".into());
            }),
        ),
    ];
    for (pointer, request) in changed {
        let wrongs = judge(&request).unwrap_err();
        assert_eq!(wrongs.len(), 1, "{request:?}: {wrongs:?}");
        assert_eq!(wrongs[0].pointer, pointer, "{request:?}");
        assert!(wrongs[0].detail.len() > 20, "{}", wrongs[0].detail);
    }
}

#[test]
fn several_mistakes_are_told_at_once_and_an_id_is_a_part_of_a_path() {
    let nothing = OverrideRequest::default();
    let places: Vec<_> = judge(&nothing)
        .unwrap_err()
        .into_iter()
        .map(|one| one.pointer)
        .collect();
    assert_eq!(places, ["/reason", "/scope", "/effect", "/for"]);
    for id in ["", ".", "a b", "a/b", &"x".repeat(64)] {
        let wrongs = admit(&good(), &id.into(), &fleet(), now(), "ops").unwrap_err();
        assert_eq!(wrongs[0].pointer, "/id", "{id}");
    }
}

#[test]
fn a_pool_takes_no_more_workers_than_it_has() {
    let fleet = fleet();
    let pool = &fleet.pools()[0];
    let of = |workers| {
        judge(&OverrideRequest {
            scope: format!("pool/{}", pool.name),
            effect: "on".into(),
            workers,
            ..good()
        })
    };
    let on = |workers| Ok(OverrideEffect::On { workers });
    assert_eq!(of(None).map(|one| one.effect), on(None));
    assert_eq!(
        of(Some(pool.max_workers)).map(|one| one.effect),
        on(Some(pool.max_workers))
    );
    assert_eq!(
        of(Some(pool.max_workers + 1)).unwrap_err()[0].code,
        "out_of_range"
    );
}

#[test]
fn a_repeated_request_is_recognised_by_its_content() {
    let first = judge(&good()).unwrap();
    let mut later = first.clone();
    later.set_at = now() + Span::from_secs(30);
    later.expires_at = later.set_at + Span::from_mins(120);
    assert!(says_the_same(&first, &later), "asked for by length");
    let longer = Override {
        expires_at: later.expires_at + Span::from_secs(1),
        ..later.clone()
    };
    assert!(!says_the_same(&first, &longer));
    let other = Override {
        reason: "another".into(),
        ..first.clone()
    };
    assert!(!says_the_same(&first, &other));
}
