//! Federation events on Redis: a stream per federation, a hash per site, and a wake-up channel.
//!
//! `docs/events.md` describes the layout for members. One script does all that belongs to one
//! envelope, and only where the stream ends with the envelope's predecessor: so a former leader
//! is fenced, a lost reply is recognised, and a stream that was cut or emptied meanwhile is
//! noticed before anything is appended behind a gap.
//!
//! This file must never retry, decide, or log a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, Pipeline,
    RedisError, RedisResult, Script, ServerErrorKind, TlsCertificates, Value,
};
use async_trait::async_trait;
use sunward_core::action::{Envelope, EventKind};
use sunward_core::event::StreamEnd;
use sunward_core::protocol::outbox::Cursor;
use sunward_core::rounds::{OUTBOX_MAX, Presence};
use tokio::sync::Mutex;

use self::options::read_bounded;
pub use self::options::{CERTIFICATES_BYTES_MAX, Options, OptionsError, PASSWORD_BYTES_MAX};
use super::envelope::{cause_to_json, to_json};
use super::{EventSink, SinkError, SiteNow};

mod options;

/// Entries that a stream keeps, approximately: what the outbox keeps.
pub const STREAM_ENTRIES_MAX: usize = OUTBOX_MAX;
/// Commands that are sent in one pipeline.
pub const PIPELINE_MAX: usize = 256;
/// Sites whose hashes one call of the script rewrites.
pub const RESTATED_SITES_MAX: usize = 256;
/// The field of a site's hash that says which share of training power is allowed; absent: all of it.
const POWER_PERCENT: &str = "power_percent";

/// The key of a federation's stream.
pub fn events_key(federation: &str) -> String {
    format!("sunward:{{{federation}}}:events")
}

/// The key of a site's state hash in a federation.
pub fn site_key(federation: &str, site: &str) -> String {
    format!("sunward:{{{federation}}}:site:{site}")
}

/// The key of the stream in which a site acknowledges.
pub fn ack_key(federation: &str, site: &str) -> String {
    format!("sunward:{{{federation}}}:ack:{site}")
}

/// The key whose time to live is a member's lease.
pub fn live_key(federation: &str, site: &str) -> String {
    format!("sunward:{{{federation}}}:live:{site}")
}

/// The channel that carries each envelope to whoever listens.
pub fn wake_channel(federation: &str) -> String {
    format!("sunward:{{{federation}}}:wake")
}

/// Carries federation events to Redis.
pub struct RedisSink {
    options: Options,
    info: ConnectionInfo,
    /// The address without user and password, for messages.
    address: String,
    scripts: Scripts,
    link: Mutex<Link>,
}

impl fmt::Debug for RedisSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSink")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

struct Scripts {
    end: Script,
    append: Script,
    restate: Script,
}

impl Scripts {
    fn new() -> Scripts {
        Scripts {
            end: Script::new(concat!(
                include_str!("redis/stream_end.lua"),
                include_str!("redis/end.lua")
            )),
            append: Script::new(concat!(
                include_str!("redis/stream_end.lua"),
                include_str!("redis/append.lua")
            )),
            restate: Script::new(concat!(
                include_str!("redis/stream_end.lua"),
                include_str!("redis/restate.lua")
            )),
        }
    }
}

/// The connection, and where each stream ended when it was last read or written over it.
#[derive(Default)]
struct Link {
    connection: Option<MultiplexedConnection>,
    ends: BTreeMap<Arc<str>, Cursor>,
}

impl RedisSink {
    /// A sink that connects when it is first asked for something.
    pub fn new(options: Options) -> Result<RedisSink, OptionsError> {
        let info = options
            .url
            .as_str()
            .into_connection_info()
            .map_err(|error| OptionsError::Url(error.category().to_owned()))?;
        let address = format!("{}/{}", info.addr(), info.redis_settings().db());
        if options.password_file.is_some() && info.redis_settings().password().is_some() {
            return Err(OptionsError::TwoPasswords(address));
        }
        let tls = matches!(info.addr(), ::redis::ConnectionAddr::TcpTls { .. });
        if options.ca_file.is_some() && !tls {
            return Err(OptionsError::CaWithoutTls(address));
        }
        Ok(RedisSink {
            options,
            info,
            address,
            scripts: Scripts::new(),
            link: Mutex::default(),
        })
    }

    /// Where it connects to, without user and password.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn unavailable(&self, doing: &str, error: impl fmt::Display) -> SinkError {
        SinkError::Unavailable(format!("redis at {}: {doing}: {error}", self.address))
    }

    async fn connect(&self) -> Result<MultiplexedConnection, SinkError> {
        let mut info = self.info.clone();
        if let Some(path) = &self.options.password_file {
            let text = read_bounded(path, PASSWORD_BYTES_MAX)
                .await
                .map_err(|error| self.unavailable("reading the password file", error))?;
            let settings = info.redis_settings().clone();
            info =
                info.set_redis_settings(settings.set_password(text.trim_end_matches(['\r', '\n'])));
        }
        let client = match &self.options.ca_file {
            None => Client::open(info),
            Some(path) => {
                let pem = read_bounded(path, CERTIFICATES_BYTES_MAX)
                    .await
                    .map_err(|error| self.unavailable("reading the CA file", error))?;
                let trusted = TlsCertificates {
                    client_tls: None,
                    root_cert: Some(pem.into_bytes()),
                };
                Client::build_with_tls(info, trusted)
            }
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(self.options.response_timeout));
        let client = client.map_err(|error| self.unavailable("connecting", error))?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| self.unavailable("connecting", error))?;
        self.load(&mut connection)
            .await
            .map_err(|error| self.unavailable("loading the scripts", error))?;
        Ok(connection)
    }

    async fn load(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        for script in [
            &self.scripts.end,
            &self.scripts.append,
            &self.scripts.restate,
        ] {
            script.load_async(connection).await?;
        }
        Ok(())
    }

    /// Sends one pipeline and returns an answer for each command. Connects if need be; scripts
    /// that the server forgot are loaded, and the pipeline is sent once more (what it did the
    /// first time is then recognised). An error leaves the link closed.
    async fn send(
        &self,
        link: &mut Link,
        doing: &str,
        pipeline: &mut Pipeline,
    ) -> Result<Vec<RedisResult<Value>>, SinkError> {
        let mut connection = if let Some(connection) = link.connection.take() {
            connection
        } else {
            link.ends.clear();
            self.connect().await?
        };
        let lost = |error: RedisError| self.unavailable(doing, error);
        pipeline.ignore_errors();
        let mut answers: Vec<RedisResult<Value>> =
            pipeline.query_async(&mut connection).await.map_err(lost)?;
        if answers.iter().any(is_unknown_script) {
            self.load(&mut connection).await.map_err(lost)?;
            answers = pipeline.query_async(&mut connection).await.map_err(lost)?;
        }
        if answers.iter().all(Result::is_ok) {
            link.connection = Some(connection);
        }
        Ok(answers)
    }

    async fn read_ends(
        &self,
        link: &mut Link,
        federations: &[Arc<str>],
    ) -> Result<Vec<StreamEnd>, SinkError> {
        let mut pipeline = ::redis::pipe();
        pipeline.cmd("PING");
        for federation in federations {
            pipeline
                .cmd("EVALSHA")
                .arg(self.scripts.end.get_hash())
                .arg(1)
                .arg(events_key(federation));
        }
        let doing = "reading where the streams end";
        let answers = self.send(link, doing, &mut pipeline).await?;
        let mut ends = Vec::new();
        for (federation, answer) in federations.iter().zip(answers.into_iter().skip(1)) {
            let answer = answer.map_err(|error| self.unavailable(doing, error))?;
            let end = position_of(&answer).ok_or_else(|| self.strange(federation, &answer))?;
            link.ends.insert(federation.clone(), end);
            if end != Cursor::default() {
                ends.push(stream_end(federation, end));
            }
        }
        Ok(ends)
    }

    /// Where the stream must end before the next entry: as it was last seen over this link.
    async fn known_end(&self, link: &mut Link, federation: &Arc<str>) -> Result<Cursor, SinkError> {
        if link.connection.is_none() || !link.ends.contains_key(federation) {
            self.read_ends(link, std::slice::from_ref(federation))
                .await?;
        }
        Ok(link.ends.get(federation).copied().unwrap_or_default())
    }

    fn append_call(&self, pipeline: &mut Pipeline, envelope: &Envelope, after: Cursor) {
        // A stream that has reached the envelope's position already can't end before it.
        let must_end_with = if after < Cursor::of(envelope) {
            entry_id(after)
        } else {
            "nowhere".to_owned()
        };
        let call = pipeline
            .cmd("EVALSHA")
            .arg(self.scripts.append.get_hash())
            .arg(2)
            .arg(events_key(&envelope.federation))
            .arg(site_key(&envelope.federation, &envelope.site))
            .arg(wake_channel(&envelope.federation))
            .arg(entry_id(Cursor::of(envelope)))
            .arg(must_end_with)
            .arg(STREAM_ENTRIES_MAX)
            .arg(envelope.id.as_ref())
            .arg(to_json(envelope))
            .arg(envelope.term)
            .arg(envelope.sequence);
        for (field, value) in site_fields(envelope) {
            call.arg(field).arg(value);
        }
    }

    async fn publish_batch(&self, link: &mut Link, batch: &[Envelope]) -> Result<(), SinkError> {
        let Some(first) = batch.first() else {
            return Ok(());
        };
        let federation = &first.federation;
        let mut after = self.known_end(link, federation).await?;
        let mut pipeline = ::redis::Pipeline::with_capacity(batch.len());
        let mut expected = Vec::with_capacity(batch.len());
        for envelope in batch {
            self.append_call(&mut pipeline, envelope, after);
            expected.push(after);
            after = Cursor::of(envelope);
        }
        let doing = "publishing";
        let answers = self.send(link, doing, &mut pipeline).await?;
        for ((envelope, after), answer) in batch.iter().zip(expected).zip(answers) {
            match answer.map_err(|error| self.unavailable(doing, error))? {
                Value::Int(_) => {
                    link.ends.insert(federation.clone(), Cursor::of(envelope));
                }
                other => {
                    let at = Some(Cursor::of(envelope));
                    return Err(self.mismatch(link, federation, after, at, &other));
                }
            }
        }
        Ok(())
    }

    /// The stream did not end where it was left: someone else wrote there, or it was cut.
    /// `at` is the position that was to be written, if one was.
    fn mismatch(
        &self,
        link: &mut Link,
        federation: &Arc<str>,
        left_at: Cursor,
        at: Option<Cursor>,
        answer: &Value,
    ) -> SinkError {
        link.ends.remove(federation);
        match position_of(answer) {
            None => self.strange(federation, answer),
            Some(end) if end > left_at || at.is_some_and(|at| end >= at) => {
                SinkError::Fenced(stream_end(federation, end))
            }
            Some(end) => self.unavailable(
                "writing",
                format!(
                    "the stream of federation {federation} ends at {}, and was left at {}: \
                     the server lost data",
                    entry_id(end),
                    entry_id(left_at)
                ),
            ),
        }
    }

    fn strange(&self, federation: &str, answer: &Value) -> SinkError {
        self.unavailable(
            "reading an answer",
            format!(
                "{answer:?} is not the end of a stream; is {} written by something else?",
                events_key(federation)
            ),
        )
    }
}

#[async_trait]
impl EventSink for RedisSink {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn ends(&self, federations: &[Arc<str>]) -> Result<Vec<StreamEnd>, SinkError> {
        let mut link = self.link.lock().await;
        if federations.is_empty() {
            return self.read_ends(&mut link, federations).await;
        }
        let mut ends = Vec::new();
        for some in federations.chunks(PIPELINE_MAX) {
            ends.append(&mut self.read_ends(&mut link, some).await?);
        }
        Ok(ends)
    }

    async fn restate(
        &self,
        federation: &Arc<str>,
        sites: &[(Arc<str>, SiteNow)],
    ) -> Result<(), SinkError> {
        if sites.is_empty() {
            return Ok(());
        }
        let mut link = self.link.lock().await;
        let end = self.known_end(&mut link, federation).await?;
        let mut pipeline = ::redis::pipe();
        for some in sites.chunks(RESTATED_SITES_MAX) {
            let call = pipeline
                .cmd("EVALSHA")
                .arg(self.scripts.restate.get_hash())
                .arg(1 + some.len())
                .arg(events_key(federation));
            for (site, _) in some {
                call.arg(site_key(federation, site));
            }
            call.arg(entry_id(end));
            for (
                _,
                SiteNow {
                    state,
                    power_percent,
                },
            ) in some
            {
                call.arg(state.presence.as_str())
                    .arg(desired_of(state.presence))
                    .arg(state.term)
                    .arg(state.sequence)
                    .arg(state.since.as_millis())
                    .arg(*power_percent);
            }
        }
        let doing = "rewriting the sites";
        for answer in self.send(&mut link, doing, &mut pipeline).await? {
            match answer.map_err(|error| self.unavailable(doing, error))? {
                Value::Int(_) => {}
                other => {
                    return Err(self.mismatch(&mut link, federation, end, None, &other));
                }
            }
        }
        Ok(())
    }

    async fn publish(&self, envelopes: &[Envelope]) -> Result<(), SinkError> {
        let mut link = self.link.lock().await;
        for batch in envelopes.chunks(PIPELINE_MAX) {
            self.publish_batch(&mut link, batch).await?;
        }
        Ok(())
    }
}

fn is_unknown_script(answer: &RedisResult<Value>) -> bool {
    answer
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}

/// The id of a stream's entry.
fn entry_id(at: Cursor) -> String {
    format!("{}-{}", at.term, at.sequence)
}

/// The position that an answer of a script names.
fn position_of(answer: &Value) -> Option<Cursor> {
    let text = match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) => text.as_str(),
        _ => return None,
    };
    let (term, sequence) = text.split_once('-')?;
    Some(Cursor {
        term: term.parse().ok()?,
        sequence: sequence.parse().ok()?,
    })
}

fn stream_end(federation: &Arc<str>, at: Cursor) -> StreamEnd {
    StreamEnd {
        federation: federation.clone(),
        term: at.term,
        sequence: at.sequence,
    }
}

/// What an event changes in its site's hash, besides the term and the sequence.
fn site_fields(envelope: &Envelope) -> Vec<(&'static str, String)> {
    let deadline = envelope
        .deadline
        .map_or_else(String::new, |at| at.as_millis().to_string());
    let id = envelope.id.to_string();
    let (state, desired) = match envelope.kind {
        EventKind::SiteJoining => ("joining", "ready"),
        EventKind::SiteReady => ("ready", "ready"),
        EventKind::SiteDraining => ("draining", "drained"),
        EventKind::SiteDrained => ("drained", "drained"),
        // How much power a site may use says nothing about whether it trains or leaves: where it stands, and until
        // when it may drain, stays.
        EventKind::SitePower => {
            return vec![
                (
                    POWER_PERCENT,
                    envelope.power_percent.unwrap_or(100).to_string(),
                ),
                ("power_event", id),
                ("power_deadline_ms", deadline),
            ];
        }
    };
    vec![
        ("state", state.to_owned()),
        ("desired", desired.to_owned()),
        ("since_ms", envelope.time.as_millis().to_string()),
        ("event", id),
        ("cause", cause_to_json(&envelope.cause)),
        ("deadline_ms", deadline),
    ]
}

/// What a site is asked to become.
fn desired_of(presence: Presence) -> &'static str {
    match presence {
        Presence::Away => "drained",
        Presence::Joining | Presence::Ready => "ready",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn keys_of_a_federation_share_its_hash_tag() {
        assert_eq!(events_key("job"), "sunward:{job}:events");
        assert_eq!(site_key("job", "caiso"), "sunward:{job}:site:caiso");
        assert_eq!(ack_key("job", "caiso"), "sunward:{job}:ack:caiso");
        assert_eq!(live_key("_none", "caiso"), "sunward:{_none}:live:caiso");
        assert_eq!(wake_channel("_none"), "sunward:{_none}:wake");
    }

    #[test]
    fn no_secret_is_shown_and_contradictions_are_refused() {
        let mut options = Options::new("redis://user:hunter2@redis.example:6380/2");
        let sink = RedisSink::new(options.clone()).unwrap();
        assert_eq!(sink.address(), "redis.example:6380/2");
        let shown = format!("{options:?} {sink:?} {}", sink.unavailable("x", "y"));
        assert!(!shown.contains("hunter2"), "{shown}");

        options.password_file = Some("/run/secrets/redis".into());
        let refused = RedisSink::new(options).unwrap_err();
        assert_eq!(
            refused,
            OptionsError::TwoPasswords("redis.example:6380/2".into())
        );

        let mut options = Options::new("redis://redis.example");
        options.ca_file = Some("/etc/ca.pem".into());
        let refused = RedisSink::new(options).unwrap_err();
        assert_eq!(
            refused,
            OptionsError::CaWithoutTls("redis.example:6379/0".into())
        );

        let refused = RedisSink::new(Options::new("http://user:hunter2@x")).unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }

    #[test]
    fn positions_are_read_back_from_ids() {
        let at = Cursor {
            term: u64::MAX,
            sequence: 7,
        };
        let answer = Value::BulkString(entry_id(at).into_bytes());
        assert_eq!(position_of(&answer), Some(at));
        assert_eq!(position_of(&Value::Int(1)), None);
        assert_eq!(position_of(&Value::BulkString(b"1-x".to_vec())), None);
    }
}
