//! Events on a real redis-server: nothing lost, nothing twice, nobody else's.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod publish_support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use publish_support::member::Member;
use publish_support::redis_server::{Server, program};
use publish_support::stand_in::{StandIn, TURN};
use publish_support::until;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamRangeReply;
use sunward::publish::envelope::cause_to_json;
use sunward::publish::publisher::{Pace, stream_object};
use sunward::publish::redis::{Options, RedisSink, events_key, site_key};
use sunward::publish::{EventSink, SinkError, SiteNow};
use sunward_core::action::{Envelope, EventKind};
use sunward_core::event::StreamEnd;
use sunward_core::rounds::OUTBOX_MAX;
use sunward_core::time::Span;

fn sink(server: &Server) -> Arc<RedisSink> {
    Arc::new(RedisSink::new(Options::new(server.url())).unwrap())
}

/// Envelopes `from..=to` of one federation, as an engine in this term issues them.
async fn issued(term: u64, from: u64, to: u64) -> Vec<Envelope> {
    let world = StandIn::new(term);
    world
        .turns("job", "caiso", (to as usize).div_ceil(TURN))
        .await;
    let outbox = world.outbox("job").await.into_iter();
    outbox
        .filter(|envelope| (from..=to).contains(&envelope.sequence))
        .collect()
}

/// The ids of a federation's stream.
async fn stream(connection: &mut MultiplexedConnection) -> Vec<String> {
    let range: StreamRangeReply = connection.xrange_all(events_key("job")).await.unwrap();
    range.ids.into_iter().map(|entry| entry.id).collect()
}

async fn site(connection: &mut MultiplexedConnection) -> BTreeMap<String, String> {
    connection.hgetall(site_key("job", "caiso")).await.unwrap()
}

fn ids(term: u64, sequences: std::ops::RangeInclusive<u64>) -> Vec<String> {
    sequences
        .map(|sequence| format!("{term}-{sequence}"))
        .collect()
}

fn end(term: u64, sequence: u64) -> StreamEnd {
    StreamEnd {
        federation: "job".into(),
        term,
        sequence,
    }
}

/// The sites of the federation as they are now, held to three quarters of their power.
async fn sites_of(world: &StandIn) -> Vec<(Arc<str>, SiteNow)> {
    let federation = world.state().await.federations["job"].clone();
    let now = |state| SiteNow {
        state,
        power_percent: 75,
    };
    federation
        .sites
        .into_iter()
        .map(|(site, state)| (site, now(state)))
        .collect()
}

async fn until_seen(member: &Member, sequences: u64) {
    until("the member to see the last event", || async {
        let seen = member.seen();
        (seen.sequences().last() == Some(&sequences)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_sees_each_of_a_thousand_events_once_and_the_hash_says_the_rest() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let world = StandIn::new(1);
    let member = Member::follow(&server.url(), "job", "caiso");
    let running = world.publish_to(sink(&server), Pace::default());
    for _ in 0..50 {
        world.turns("job", "caiso", 5).await;
    }
    until_seen(&member, 1_000).await;
    running.stop().await;
    let seen = member.stop().await;
    assert_eq!(seen.sequences(), (1..=1_000).collect::<Vec<_>>());
    assert!(seen.wakes > 0, "the channel carried something");
    let mut connection = server.connection().await;
    assert_eq!(stream(&mut connection).await, ids(1, 1..=1_000));
    let hash = site(&mut connection).await;
    let outbox = world.outbox("job").await;
    let last = outbox.last().unwrap();
    let expected = [
        ("cause", cause_to_json(&last.cause)),
        ("deadline_ms", String::new()),
        ("desired", "drained".to_owned()),
        ("event", "1-1000".to_owned()),
        ("power_deadline_ms", String::new()),
        ("power_event", String::new()),
        ("power_percent", "100".to_owned()),
        ("seq", "1000".to_owned()),
        ("since_ms", last.time.as_millis().to_string()),
        ("state", "drained".to_owned()),
        ("term", "1".to_owned()),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(key, value)| (key.to_owned(), value)).into();
    assert_eq!(hash, expected);
    let cursor = world.cursors.lock().unwrap()["job"];
    assert_eq!((cursor.term, cursor.sequence), (1, 1_000));
}

/// Kills Redis twice in mid-run and brings it back, while events go on.
async fn survives_kills(persistent: bool) {
    let Some(program) = program() else { return };
    let mut server = Server::start(program, persistent).await;
    let world = StandIn::new(1);
    let member = Member::follow(&server.url(), "job", "caiso");
    let running = world.publish_to(sink(&server), Pace::default());
    world.turns("job", "caiso", 25).await;
    until_seen(&member, 100).await;
    for round in 1..=2_u64 {
        // Events are on their way while it dies, and more come while it is dead.
        world.turns("job", "caiso", 100).await;
        server.kill();
        let killed = Instant::now();
        world.turns("job", "caiso", 25).await;
        world.until_ready(false).await.unwrap_err();
        eprintln!("killed Redis noticed after {:?}", killed.elapsed());
        server.restart().await;
        world.until_ready(true).await.unwrap();
        until_seen(&member, 100 + 500 * round).await;
    }
    running.stop().await;
    let seen = member.stop().await;
    assert_eq!(seen.sequences(), (1..=1_100).collect::<Vec<_>>());
    assert!(!seen.losses.is_empty(), "the member was cut off, too");
    // Whole again, from the first event on, with the ids that were stored.
    let mut connection = server.connection().await;
    assert_eq!(stream(&mut connection).await, ids(1, 1..=1_100));
    assert_eq!(site(&mut connection).await["seq"], "1100");
    let (ups, downs) = world.told();
    assert!((2..=4).contains(&downs), "{downs} outages were told");
    assert!(ups > downs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_with_an_append_only_file_loses_nothing() {
    survives_kills(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_without_persistence_is_made_good_from_the_outbox() {
    survives_kills(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_death_an_idle_freeze_and_an_idle_flush_are_noticed_and_mended() {
    let Some(program) = program() else { return };
    let mut server = Server::start(program, false).await;
    let world = StandIn::new(1);
    let running = world.publish_to(sink(&server), Pace::default());
    world.turns("job", "caiso", 10).await;
    let whole = ids(1, 1..=40);
    let mut connection = server.connection().await;
    until("the first events", || async {
        let mut connection = connection.clone();
        (stream(&mut connection).await == whole).then_some(())
    })
    .await;

    let begun = Instant::now();
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await
        .unwrap();
    until("the flushed stream to be whole again", || async {
        let mut connection = connection.clone();
        (stream(&mut connection).await == whole).then_some(())
    })
    .await;
    eprintln!("idle FLUSHALL mended after {:?}", begun.elapsed());
    assert_eq!(site(&mut connection).await["state"], "drained");
    world.until_ready(true).await.unwrap();

    for freeze in [true, false] {
        let begun = Instant::now();
        if freeze {
            server.pause(true);
        } else {
            server.kill();
        }
        world.until_ready(false).await.unwrap_err();
        let noticed = begun.elapsed();
        eprintln!("idle loss (frozen: {freeze}) noticed after {noticed:?}");
        // 1 s until the probe and 1 s for its answer, and as much again for a busy machine.
        assert!(noticed < Duration::from_secs(4), "{noticed:?}");
        if freeze {
            server.pause(false);
        } else {
            server.restart().await;
        }
        world.until_ready(true).await.unwrap();
    }
    let mut connection = server.connection().await;
    assert_eq!(stream(&mut connection).await, whole);
    running.stop().await;
}

#[tokio::test]
async fn a_former_leader_writes_nothing_at_all() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let mut connection = server.connection().await;
    let job: Arc<str> = "job".into();
    let (former, leader) = (sink(&server), sink(&server));
    former.publish(&issued(1, 1, 4).await).await.unwrap();
    leader.ends(std::slice::from_ref(&job)).await.unwrap();
    leader.publish(&issued(2, 5, 5).await).await.unwrap();
    let before = (stream(&mut connection).await, site(&mut connection).await);
    assert_eq!(before.0.last().unwrap(), "2-5");

    let listener = redis::Client::open(server.url()).unwrap();
    let mut wakes = listener.get_async_pubsub().await.unwrap();
    wakes.subscribe("sunward:{job}:wake").await.unwrap();
    // A batch, a higher sequence than the leader's, and the sites' hashes.
    let fenced = Err(SinkError::Fenced(end(2, 5)));
    let late = former.publish(&issued(1, 5, 8).await).await;
    assert_eq!(late, fenced);
    let later = former.publish(&issued(1, 9, 300).await).await;
    assert_eq!(later, fenced);
    let world = StandIn::new(1);
    world.turns("job", "caiso", 3).await;
    let sites = sites_of(&world).await;
    // Before it reads the end anew, it can't rewrite a hash either.
    let stale = sink(&server);
    stale.ends(std::slice::from_ref(&job)).await.unwrap();
    leader.publish(&issued(2, 6, 6).await).await.unwrap();
    let restated = stale.restate(&job, &sites).await;
    assert_eq!(restated, Err(SinkError::Fenced(end(2, 6))));

    let after = (stream(&mut connection).await, site(&mut connection).await);
    assert_eq!(after.0, [before.0, vec!["2-6".to_owned()]].concat());
    assert_eq!(after.1["term"], "2");
    assert_eq!(after.1["seq"], "6");
    let heard: String = {
        use futures::StreamExt as _;
        let wake = wakes.on_message().next().await.unwrap();
        wake.get_payload().unwrap()
    };
    // The first thing on the channel is the leader's: the former one's never got there.
    assert!(heard.contains(r#""term":2,"seq":6"#), "{heard}");
}

#[tokio::test]
async fn a_daemon_whose_stream_was_taken_over_resigns() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let world = StandIn::new(1);
    let running = world.publish_to(sink(&server), Pace::default());
    world.turns("job", "caiso", 1).await;
    let mut connection = server.connection().await;
    until("the first events", || async {
        let mut connection = connection.clone();
        (stream(&mut connection).await.len() == TURN).then_some(())
    })
    .await;
    let other = sink(&server);
    other.publish(&issued(2, 5, 5).await).await.unwrap();
    // Idle: the probe reads it.
    let why = world.until_ready(false).await.unwrap_err();
    assert_eq!(
        why,
        format!(
            "resigned: {} carries the higher term 2",
            stream_object("job")
        )
    );
    world.turns("job", "caiso", 5).await;
    running.stop().await;
    assert_eq!(stream(&mut connection).await.len(), TURN + 1);
}

#[tokio::test]
async fn an_answer_lost_to_a_frozen_server_is_recognised_afterwards() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let mut connection = server.connection().await;
    let job: Arc<str> = "job".into();
    let sink = sink(&server);
    sink.ends(std::slice::from_ref(&job)).await.unwrap();
    server.pause(true);
    let unanswered = sink.publish(&issued(1, 1, 300).await).await;
    assert!(matches!(unanswered, Err(SinkError::Unavailable(_))));
    server.pause(false);
    // What reached the socket takes effect now, while the same is published again beside it.
    until("the frozen pipeline", || async {
        let mut connection = connection.clone();
        (!stream(&mut connection).await.is_empty()).then_some(())
    })
    .await;
    sink.publish(&issued(1, 1, 300).await).await.unwrap();
    assert_eq!(stream(&mut connection).await, ids(1, 1..=300));
    // The same position with another envelope is no duplicate.
    let mut other = issued(1, 300, 300).await;
    other[0].id = "9-9".into();
    let refused = sink.publish(&other).await;
    assert_eq!(refused, Err(SinkError::Fenced(end(1, 300))));
}

#[tokio::test]
async fn nothing_is_appended_behind_a_gap() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let mut connection = server.connection().await;
    let sink = sink(&server);
    sink.publish(&issued(1, 1, 4).await).await.unwrap();
    // Emptied between two calls on a connection that lives on.
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut connection)
        .await
        .unwrap();
    let Err(SinkError::Unavailable(why)) = sink.publish(&issued(1, 5, 8).await).await else {
        panic!("it was appended behind a gap");
    };
    assert!(why.contains("ends at 0-0, and was left at 1-4"), "{why}");
    assert!(stream(&mut connection).await.is_empty());
    sink.publish(&issued(1, 1, 8).await).await.unwrap();
    // Out of memory at some of a batch: none behind the first refused one gets in.
    set(&mut connection, "maxmemory", "1").await;
    let refused = sink.publish(&issued(1, 9, 40).await).await;
    assert!(matches!(&refused, Err(SinkError::Unavailable(why)) if why.contains("OOM")));
    set(&mut connection, "maxmemory", "0").await;
    // Scripts that the server forgot are loaded again.
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut connection)
        .await
        .unwrap();
    sink.publish(&issued(1, 9, 40).await).await.unwrap();
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut connection)
        .await
        .unwrap();
    sink.publish(&issued(1, 41, 44).await).await.unwrap();
    assert_eq!(stream(&mut connection).await, ids(1, 1..=44));
    // A key that something else took: refused before anything is written.
    let () = connection.del(site_key("job", "caiso")).await.unwrap();
    let () = connection
        .set(site_key("job", "caiso"), "mine")
        .await
        .unwrap();
    let refused = sink.publish(&issued(1, 45, 45).await).await;
    assert!(matches!(&refused, Err(SinkError::Unavailable(why)) if why.contains("WRONGTYPE")));
    assert_eq!(stream(&mut connection).await.len(), 44);
}

async fn set(connection: &mut MultiplexedConnection, name: &str, value: &str) {
    let mut command = redis::cmd("CONFIG");
    command.arg("SET").arg(name).arg(value);
    let () = command.query_async(connection).await.unwrap();
}

#[tokio::test]
async fn the_hash_never_goes_back_through_history() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let mut connection = server.connection().await;
    let world = StandIn::new(1);
    world.turns("job", "caiso", 3).await;
    let sites = sites_of(&world).await;
    let sink = sink(&server);
    let job: Arc<str> = "job".into();
    sink.restate(&job, &sites).await.unwrap();
    let restated = site(&mut connection).await;
    assert_eq!(
        (restated["seq"].as_str(), restated["event"].as_str()),
        ("12", "")
    );
    assert_eq!(restated["power_percent"], "75");
    let outbox = world.outbox("job").await;
    sink.publish(&outbox[..11]).await.unwrap();
    assert_eq!(site(&mut connection).await, restated);
    sink.publish(&outbox[11..]).await.unwrap();
    let last = site(&mut connection).await;
    assert_eq!(
        (last["seq"].as_str(), last["event"].as_str()),
        ("12", "1-12")
    );
    // A greeting that finds nothing new keeps what the event said.
    sink.restate(&job, &sites).await.unwrap();
    assert_eq!(site(&mut connection).await, last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_outbox_fills_an_emptied_server() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let world = StandIn::new(1);
    world.turns("job", "caiso", OUTBOX_MAX / TURN + 25).await;
    let begun = Instant::now();
    let running = world.publish_to(sink(&server), Pace::default());
    let mut connection = server.connection().await;
    until("the whole outbox", || async {
        let mut connection = connection.clone();
        let held: usize = connection.xlen(events_key("job")).await.unwrap();
        (held >= OUTBOX_MAX).then_some(())
    })
    .await;
    eprintln!("{OUTBOX_MAX} events published after {:?}", begun.elapsed());
    running.stop().await;
    assert_eq!(stream(&mut connection).await, ids(1, 101..=10_100));
}

/// An envelope like `last`, issued right after it.
fn next_after(last: &Envelope, kind: EventKind) -> Envelope {
    let sequence = last.sequence + 1;
    Envelope {
        id: format!("{}-{sequence}", last.term).into(),
        sequence,
        kind,
        time: last.time + Span::from_secs(1),
        power_percent: None,
        deadline: None,
        ..last.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_of_power_leaves_the_site_where_it_stands() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let sink = sink(&server);
    let mut connection = server.connection().await;
    let member = Member::follow(&server.url(), "job", "caiso");
    let up = issued(1, 1, 2).await;
    let last = up.last().unwrap();
    assert_eq!(last.kind, EventKind::SiteReady);
    sink.publish(&up).await.unwrap();
    let ready = site(&mut connection).await;
    assert_eq!(ready["state"], "ready");
    assert!(!ready.contains_key("power_percent"), "all of it is allowed");

    let mut less = next_after(last, EventKind::SitePower);
    less.power_percent = Some(75);
    less.deadline = Some(less.time + Span::from_secs(10));
    sink.publish(std::slice::from_ref(&less)).await.unwrap();
    let held = site(&mut connection).await;
    for field in [
        "state",
        "desired",
        "since_ms",
        "event",
        "cause",
        "deadline_ms",
    ] {
        assert_eq!(held[field], ready[field], "{field}");
    }
    assert_eq!(
        (held["power_percent"].as_str(), held["seq"].as_str()),
        ("75", "3")
    );
    assert_eq!(held["power_event"], *less.id);
    let deadline = less.deadline.unwrap().as_millis().to_string();
    assert_eq!(held["power_deadline_ms"], deadline);

    // While it drains, until when it may is not forgotten either.
    let mut draining = next_after(&less, EventKind::SiteDraining);
    draining.deadline = Some(draining.time + Span::from_secs(90));
    let mut all = next_after(&draining, EventKind::SitePower);
    all.power_percent = Some(100);
    sink.publish(&[draining.clone(), all]).await.unwrap();
    let leaving = site(&mut connection).await;
    assert_eq!(
        (leaving["state"].as_str(), leaving["desired"].as_str()),
        ("draining", "drained")
    );
    assert_eq!(
        leaving["deadline_ms"],
        draining.deadline.unwrap().as_millis().to_string()
    );
    assert_eq!(
        (
            leaving["power_percent"].as_str(),
            leaving["power_deadline_ms"].as_str()
        ),
        ("100", "")
    );
    assert_eq!(stream(&mut connection).await, ids(1, 1..=5));

    until_seen(&member, 5).await;
    let kinds: Vec<String> = member
        .seen()
        .entries
        .into_iter()
        .map(|(_, _, kind)| kind)
        .collect();
    assert_eq!(
        kinds,
        [
            "site.joining",
            "site.ready",
            "site.power",
            "site.draining",
            "site.power"
        ]
    );
    member.stop().await;
}
