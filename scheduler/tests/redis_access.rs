//! Who may do what on Redis, with the recipes of `docs/events.md`, and TLS.
#![allow(clippy::unwrap_used, missing_docs)]

mod publish_support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use publish_support::member::Member;
use publish_support::redis_server::{Server, program, skip};
use publish_support::stand_in::{StandIn, TURN};
use publish_support::until;
use redis::aio::MultiplexedConnection;
use sunward::publish::publisher::Pace;
use sunward::publish::redis::{
    Options, RedisSink, ack_key, events_key, live_key, site_key, wake_channel,
};
use sunward::publish::{EventSink, SinkError};

/// The rules of one user, taken from the page that promises them.
fn recipe(user: &str, password: &str) -> String {
    let page = include_str!("../docs/events.md");
    let begin = format!("ACL SETUSER {user} ");
    let line = page.lines().find(|line| line.starts_with(&begin)).unwrap();
    line.replace("SECRET", password)
}

async fn run(connection: &mut MultiplexedConnection, words: &[&str]) -> Result<(), String> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let answer = command.query_async::<redis::Value>(connection).await;
    answer
        .map(drop)
        .map_err(|error| error.code().unwrap_or("?").to_owned())
}

async fn set_up(connection: &mut MultiplexedConnection, user: &str, password: &str) {
    let recipe = recipe(user, password);
    let words: Vec<&str> = recipe.split(' ').collect();
    run(connection, &words).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recipes_let_each_do_its_work_and_nothing_else() {
    let Some(program) = program() else { return };
    let server = Server::start(program, false).await;
    let mut admin = server.connection().await;
    set_up(&mut admin, "sunward", "hub-secret").await;
    set_up(&mut admin, "job-caiso", "site-secret").await;
    let words = ["ACL", "SETUSER", "nobody", "on", ">nothing", "+ping"];
    run(&mut admin, &words).await.unwrap();

    let password_file = server.folder().join("password");
    std::fs::write(&password_file, "hub-secret\n").unwrap();
    let mut options = Options::new(format!("redis://sunward@127.0.0.1:{}", server.port));
    options.password_file = Some(password_file.clone());
    let sink = Arc::new(RedisSink::new(options.clone()).unwrap());
    let world = StandIn::new(1);
    let running = world.publish_to(sink, Pace::default());
    let url = format!("redis://job-caiso:site-secret@127.0.0.1:{}", server.port);
    let member = Member::follow(&url, "job", "caiso");
    world.turns("job", "caiso", 5).await;
    until("the member to see the events as its own user", || async {
        let seen = member.seen();
        (seen.entries.len() == 5 * TURN).then_some(())
    })
    .await;
    // Once more, now that it is subscribed for sure.
    world.turns("job", "caiso", 5).await;
    until("a wake-up", || async {
        (member.seen().wakes > 0).then_some(())
    })
    .await;
    assert_eq!(member.stop().await.losses, Vec::<String>::new());
    running.stop().await;

    let mut site = server.connection_as("job-caiso:site-secret").await.unwrap();
    let denied = Err("NOPERM".to_owned());
    let (events, wake) = (events_key("job"), wake_channel("job"));
    let own = ack_key("job", "caiso");
    assert_eq!(
        run(&mut site, &["XADD", &own, "*", "id", "1-1"]).await,
        Ok(())
    );
    let lease = live_key("job", "caiso");
    assert_eq!(
        run(&mut site, &["SET", &lease, "1", "EX", "30"]).await,
        Ok(())
    );
    for words in [
        vec!["PUBLISH", &wake, "{}"],
        vec!["XADD", &events, "*", "id", "1-1"],
        vec!["XADD", &ack_key("job", "ercot"), "*", "id", "1-1"],
        vec!["SET", &live_key("job", "ercot"), "1"],
        vec!["SET", &events, "1"],
        vec!["HSET", &site_key("job", "caiso"), "state", "ready"],
        vec!["DEL", &events],
        vec!["XTRIM", &events, "MAXLEN", "0"],
        vec!["XREAD", "STREAMS", &events_key("night"), "0"],
        vec!["HGETALL", &site_key("night", "caiso")],
        vec!["EVAL", "return 1", "0"],
        vec!["FLUSHALL"],
        vec!["CONFIG", "GET", "*"],
        vec!["KEYS", "*"],
    ] {
        assert_eq!(run(&mut site, &words).await, denied, "{words:?}");
    }
    let mut hub = server.connection_as("sunward:hub-secret").await.unwrap();
    for words in [
        vec!["FLUSHALL"],
        vec!["SET", "other", "1"],
        vec!["KEYS", "*"],
    ] {
        assert_eq!(run(&mut hub, &words).await, denied, "{words:?}");
    }

    // A wrong password says so, and says neither.
    std::fs::write(&password_file, "guess").unwrap();
    let refused = RedisSink::new(options).unwrap().ends(&[]).await;
    let Err(SinkError::Unavailable(why)) = refused else {
        panic!("a wrong password was taken");
    };
    assert!(
        why.contains("WRONGPASS") || why.contains("uthentication"),
        "{why}"
    );
    assert!(
        !why.contains("guess") && !why.contains("hub-secret"),
        "{why}"
    );
}

/// An authority of one's own and a certificate for 127.0.0.1, by the openssl program.
fn certificates(folder: &Path) -> bool {
    let openssl = |arguments: &str| {
        Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    std::fs::write(folder.join("ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca")
        && openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=redis")
        && openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile ext",
        )
}

#[tokio::test]
async fn it_publishes_over_tls_to_whom_it_trusts_alone() {
    let Some(program) = program() else { return };
    let folder = tempfile::TempDir::new().unwrap();
    if !certificates(folder.path()) {
        skip("without the openssl program");
        return;
    }
    let file = |name: &str| folder.path().join(name).display().to_string();
    // A port that was free a moment ago; the server listens there with TLS alone.
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let arguments = [
        "--tls-port".to_owned(),
        port.to_string(),
        "--tls-cert-file".to_owned(),
        file("server.crt"),
        "--tls-key-file".to_owned(),
        file("server.key"),
        "--tls-ca-cert-file".to_owned(),
        file("ca.crt"),
        "--tls-auth-clients".to_owned(),
        "no".to_owned(),
    ];
    let _server = Server::start_with(program, &arguments).await;
    let mut options = Options::new(format!("rediss://127.0.0.1:{port}"));
    let stranger = RedisSink::new(options.clone()).unwrap();
    options.ca_file = Some(folder.path().join("ca.crt"));
    let sink = RedisSink::new(options).unwrap();
    until("the server to answer with TLS", || async {
        sink.ends(&[]).await.ok()
    })
    .await;
    let world = StandIn::new(1);
    world.turns("job", "caiso", 1).await;
    sink.publish(&world.outbox("job").await).await.unwrap();
    let ends = sink.ends(&["job".into()]).await.unwrap();
    assert_eq!(ends[0].sequence, TURN as u64);
    let refused = stranger.ends(&[]).await;
    assert!(
        matches!(&refused, Err(SinkError::Unavailable(why)) if why.to_lowercase().contains("certificate")
            || why.contains("UnknownIssuer")),
        "{refused:?}"
    );
}
