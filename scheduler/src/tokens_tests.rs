#![allow(clippy::unwrap_used)]

use super::*;

fn at() -> Timestamp {
    Timestamp::parse_rfc3339("2026-03-01T12:00:00Z").unwrap()
}

fn grant(text: &str) -> Grant {
    text.parse().unwrap()
}

fn fleet() -> Fleet {
    Fleet::parse(&sunward_policies::SourceFile {
        path: "fleet.yaml".into(),
        text: include_str!("../../signal-adapters/fixtures/fleet.yaml").into(),
    })
    .unwrap()
}

fn stream(source: &str, kind: Kind, scope: Scope) -> StreamKey {
    StreamKey {
        source: source.into(),
        kind,
        scope,
        basis: None,
    }
}

fn zone(scheme: &str, code: &str) -> Scope {
    Scope::Zone {
        scheme: scheme.into(),
        code: code.into(),
    }
}

#[test]
fn a_token_is_found_by_its_hash_and_nothing_else_is() {
    let (partner, secret) =
        issue("acme", vec![grant("source=a,sites=*,kinds=*")], false, at()).unwrap();
    assert!(secret.reveal().starts_with("sw_acme_"));
    assert_eq!(secret.reveal().len(), "sw_acme_".len() + 64);
    let tokens = Tokens::fixed(vec![partner], Instant::now()).unwrap();
    assert_eq!(
        tokens.lookup(secret.reveal(), Instant::now()).unwrap().name,
        "acme"
    );
    for other in [
        "",
        "sw_acme_",
        "acme",
        &secret.reveal()[1..],
        &"x".repeat(10_000),
    ] {
        assert!(tokens.lookup(other, Instant::now()).is_none());
    }
    let (_, second) = issue("acme", vec![grant("source=a,sites=*,kinds=*")], false, at()).unwrap();
    assert_ne!(second, secret);
}

#[test]
fn nothing_that_is_printed_for_debugging_shows_a_secret_or_its_hash() {
    let (partner, secret) = issue("acme", Vec::new(), true, at()).unwrap();
    let tokens = Tokens::fixed(vec![partner.clone()], Instant::now()).unwrap();
    let shown = format!("{secret:?} {partner:?}");
    let digits = secret.reveal().rsplit('_').next().unwrap();
    assert!(
        !shown.contains(digits) && !shown.contains(&partner.sha256),
        "{shown}"
    );
    assert!(!format!("{tokens:?}").contains(digits));
}

#[test]
fn the_file_is_private_keeps_no_secret_and_is_seen_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/tokens.yaml");
    let now = Instant::now();
    let tokens = Tokens::open(&path, now).unwrap();
    let (partner, secret) =
        issue("acme", vec![grant("source=a,sites=*,kinds=*")], false, at()).unwrap();
    assert!(tokens.lookup(secret.reveal(), now).is_none());
    add(&path, partner).unwrap();
    assert_eq!(tokens.lookup(secret.reveal(), now).unwrap().name, "acme");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(secret.reveal().rsplit('_').next().unwrap()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    let (second, second_secret) = issue("ops", Vec::new(), true, at()).unwrap();
    add(&path, second).unwrap();
    assert!(tokens.lookup(second_secret.reveal(), now).unwrap().operator);
    assert_eq!(read(&path).unwrap().len(), 2);
    let error = add(&path, issue("ops", Vec::new(), true, at()).unwrap().0).unwrap_err();
    assert!(matches!(error, TokensError::Taken(_)), "{error}");
}

#[test]
fn a_broken_file_does_not_replace_a_good_one_and_an_absent_one_grants_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.yaml");
    let (partner, secret) = issue("acme", Vec::new(), true, at()).unwrap();
    add(&path, partner).unwrap();
    let now = Instant::now();
    let tokens = Tokens::open(&path, now).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, "partners: [").unwrap();
    let later = now + LOOK_EVERY;
    assert!(tokens.lookup(secret.reveal(), later).is_some());
    assert!(tokens.problem(later).unwrap().contains("tokens.yaml"));
    assert!(Tokens::open(&path, now).is_err());
    fs::remove_file(&path).unwrap();
    assert!(
        tokens.lookup(secret.reveal(), later).is_some(),
        "not looked at again within a second"
    );
    assert!(tokens.lookup(secret.reveal(), later + LOOK_EVERY).is_none());
    assert_eq!(tokens.problem(later + LOOK_EVERY), None);
    // A file that is mended is found by whoever asks for the problem, too.
    fs::write(&path, "partners: [").unwrap();
    assert!(tokens.problem(later + 2 * LOOK_EVERY).is_some());
    fs::write(&path, good).unwrap();
    assert_eq!(tokens.problem(later + 3 * LOOK_EVERY), None);
}

#[test]
fn yaml_by_hand_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.yaml");
    let (partner, _) = issue("acme", Vec::new(), true, at()).unwrap();
    let yaml = format!(
        "apiVersion: sunward.dev/v1alpha1\nkind: Partners\npartners:\n  - name: acme\n    operator: true\n    \
         grants: [{{source: a, sites: [caiso], kinds: ['*']}}]\n    sha256: {}\n    created: 2026-03-01T12:00:00Z\n",
        partner.sha256
    );
    fs::write(&path, &yaml).unwrap();
    assert_eq!(
        read(&path).unwrap()[0].grants,
        [grant("source=a,sites=caiso,kinds=*")]
    );
    for (from, to) in [
        ("sha256: ", "sha256: x"),
        ("name: acme", "name: Acme"),
        ("operator", "admin"),
        ("Partners", "Fleet"),
    ] {
        fs::write(&path, yaml.replace(from, to)).unwrap();
        let found = read(&path).and_then(|partners| Partners::new(&path, partners));
        assert!(matches!(found, Err(TokensError::Invalid { .. })), "{to}");
    }
}

#[test]
fn a_grant_covers_its_source_kinds_and_sites_with_their_zones() {
    let fleet = fleet();
    let (partner, _) = issue(
        "acme",
        vec![
            grant("source=watttime,sites=caiso,kinds=carbon_intensity+energy_price"),
            grant("source=meter,sites=*,kinds=surplus_power"),
        ],
        false,
        at(),
    )
    .unwrap();
    let may = |source, kind, scope| partner.may_push(&stream(source, kind, scope), &fleet);
    assert!(may(
        "watttime",
        Kind::CarbonIntensity,
        zone("wt", "CAISO_NORTH")
    ));
    assert!(may(
        "watttime",
        Kind::EnergyPrice,
        Scope::Site("caiso".into())
    ));
    assert!(may("meter", Kind::SurplusPower, zone("em", "DE")));
    assert!(may(
        "meter",
        Kind::SurplusPower,
        Scope::Site("anywhere".into())
    ));
    assert!(!may("watttime", Kind::CarbonIntensity, zone("em", "DE")));
    assert!(!may(
        "watttime",
        Kind::CarbonIntensity,
        zone("em", "CAISO_NORTH")
    ));
    assert!(!may(
        "watttime",
        Kind::SurplusPower,
        Scope::Site("caiso".into())
    ));
    assert!(!may(
        "meter",
        Kind::CarbonIntensity,
        Scope::Site("caiso".into())
    ));
    assert!(!may(
        "other",
        Kind::CarbonIntensity,
        zone("wt", "CAISO_NORTH")
    ));
}

#[test]
fn grants_are_read_or_refused_with_the_remedy() {
    assert_eq!(
        grant("kinds=index,source=*,sites=a+b"),
        Grant {
            source: "*".into(),
            sites: vec!["a".into(), "b".into()],
            kinds: vec!["index".into()]
        }
    );
    for text in [
        "",
        "source=a",
        "source=a,sites=b",
        "source=,sites=b,kinds=*",
        "source=a,sites=b,kinds=carbon",
        "source=a,sites=b+,kinds=*",
        "source=a,sites=b,kinds=*,zones=c",
        "source=a,source=b,sites=b,kinds=*",
        "source=a,sites,kinds=*",
    ] {
        assert!(text.parse::<Grant>().unwrap_err().len() > 20, "{text}");
    }
}

#[test]
fn names_and_powers_are_checked() {
    for name in ["", "Acme", "a_b", "-a", "a-", &"a".repeat(64)] {
        assert!(
            matches!(
                issue(name, Vec::new(), true, at()),
                Err(TokensError::Name(_))
            ),
            "{name}"
        );
    }
    assert!(matches!(
        issue("a", Vec::new(), false, at()),
        Err(TokensError::Powerless(_))
    ));
    let many = vec![grant("source=a,sites=*,kinds=*"); GRANTS_MAX + 1];
    assert!(matches!(
        issue("a", many, false, at()),
        Err(TokensError::Grants(_))
    ));
}

#[test]
fn a_call_for_a_zone_needs_every_site_that_it_acts_on() {
    // Both sites in one zone.
    let text = include_str!("../../signal-adapters/fixtures/fleet.yaml")
        .replace("{scheme: em, code: DE}", "{scheme: em, code: US-CAL-CISO}");
    let fleet = Fleet::parse(&sunward_policies::SourceFile {
        path: "fleet.yaml".into(),
        text,
    })
    .unwrap();
    let may = |grants: &[&str], scope: Scope| {
        let grants = grants.iter().map(|text| grant(text)).collect();
        let (partner, _) = issue("iso", grants, false, at()).unwrap();
        partner.may_call("iso", &scope, &fleet)
    };
    let site = |name: &str| Scope::Site(name.into());
    let both = || zone("em", "US-CAL-CISO");
    let caiso = "source=iso,sites=caiso,kinds=grid_event";
    let berlin = "source=iso,sites=berlin,kinds=grid_event+energy_price";
    assert!(may(&[caiso], site("caiso")));
    assert!(!may(&[caiso], site("berlin")));
    assert!(may(&[caiso], zone("wt", "CAISO_NORTH")), "one site alone");
    assert!(!may(&[caiso], both()), "berlin lies there, too");
    assert!(may(&[caiso, berlin], both()), "by two grants together");
    assert!(may(&["source=*,sites=*,kinds=*"], both()));
    assert!(!may(&["source=iso,sites=*,kinds=carbon_intensity"], both()));
    assert!(!may(&["source=meter,sites=*,kinds=*"], both()));
    // Whether a place exists is only told to who may call everywhere.
    assert!(!may(&[caiso, berlin], zone("em", "FR")));
    assert!(may(
        &["source=iso,sites=*,kinds=grid_event"],
        zone("em", "FR")
    ));
}
