//! A member of a federation that listens on Redis: the loop that misses nothing.
//!
//! Read the state, read the stream from the stored position, subscribe, read the stream again (which closes the race), then
//! follow: read on each wake and at least once a second. When the connection breaks, the same again from the stored position.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use serde_json::Value;
use tokio::task::JoinHandle;

/// The member looks at least this often, wake or not.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
const RECONNECT_AFTER: Duration = Duration::from_millis(50);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Entries per read.
const READ_COUNT: usize = 1_000;

/// One event, from the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The id of the stream entry, `<term>-<sequence>`.
    pub entry: String,
    /// The leader's term.
    pub term: u64,
    /// The sequence number of the federation.
    pub seq: u64,
    /// The kind, for example `site.joining`.
    pub kind: String,
    /// The id of the command: the same when it is issued anew.
    pub id: String,
    /// The site.
    pub site: Option<String>,
    /// The whole envelope.
    pub body: Value,
}

/// What a member has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Every stream entry, in the order of reading.
    pub envelopes: Vec<Envelope>,
    /// Entries that are no envelope: the id and why. A case expects none.
    pub unreadable: Vec<(String, String)>,
    /// The state hash of each site, as last read.
    pub sites: BTreeMap<String, HashMap<String, String>>,
    /// Messages on the wake channel; some are missed while the connection is down, that is what the stream is for.
    pub wakes: u64,
    /// Connections that were made.
    pub connections: u64,
}

/// A running member. The loop ends when this is dropped.
#[derive(Debug)]
pub struct Member {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Member {
    /// Starts the loop for a federation (`_none` for pools in none), reading the state of `sites`, from the stream's beginning.
    /// It retries for ever, also when Redis is not there yet.
    pub fn start(redis_url: &str, federation: &str, sites: &[&str]) -> Result<Self> {
        let client = redis::Client::open(redis_url)?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut reader = Reader {
            seen: Arc::clone(&seen),
            federation: federation.to_owned(),
            sites: sites.iter().map(|&site| site.to_owned()).collect(),
            position: "0-0".to_owned(),
        };
        let task = tokio::spawn(async move {
            loop {
                // It only returns because the connection broke.
                let _ = reader.follow(&client).await;
                tokio::time::sleep(RECONNECT_AFTER).await;
            }
        });
        Ok(Self { seen, task })
    }

    /// What it has seen so far.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Ends the loop and returns what it has seen.
    pub async fn stop(mut self) -> Seen {
        self.task.abort();
        // The only error here is the abort itself.
        let _ = (&mut self.task).await;
        self.seen()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Reader {
    seen: Arc<Mutex<Seen>>,
    federation: String,
    sites: Vec<String>,
    /// The last entry that was processed: what a real member stores.
    position: String,
}

impl Reader {
    async fn follow(&mut self, client: &redis::Client) -> Result<()> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        lock(&self.seen).connections += 1;
        self.read_state(&mut connection).await?;
        self.read_stream(&mut connection).await?;
        let mut wakes = client.get_async_pubsub().await?;
        wakes
            .subscribe(format!("sunward:{{{}}}:wake", self.federation))
            .await?;
        let mut wakes = wakes.into_on_message();
        loop {
            self.read_stream(&mut connection).await?;
            self.read_state(&mut connection).await?;
            match tokio::time::timeout(FOLLOW_EVERY, wakes.next()).await {
                Ok(Some(_)) => lock(&self.seen).wakes += 1,
                Ok(None) => anyhow::bail!("the subscription ended"),
                Err(_) => {}
            }
        }
    }

    async fn read_state(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        for site in &self.sites {
            let key = format!("sunward:{{{}}}:site:{site}", self.federation);
            let state: HashMap<String, String> = redis::cmd("HGETALL")
                .arg(key)
                .query_async(connection)
                .await?;
            lock(&self.seen).sites.insert(site.clone(), state);
        }
        Ok(())
    }

    async fn read_stream(&mut self, connection: &mut MultiplexedConnection) -> Result<()> {
        let key = format!("sunward:{{{}}}:events", self.federation);
        loop {
            let mut read = redis::cmd("XREAD");
            read.arg("COUNT")
                .arg(READ_COUNT)
                .arg("STREAMS")
                .arg(&key)
                .arg(&self.position);
            let reply: Option<StreamReadReply> = read.query_async(connection).await?;
            let entries: Vec<_> = reply
                .into_iter()
                .flat_map(|reply| reply.keys)
                .flat_map(|key| key.ids)
                .collect();
            if entries.is_empty() {
                return Ok(());
            }
            let mut seen = lock(&self.seen);
            for entry in entries {
                match envelope(&entry.id, &entry.map) {
                    Ok(envelope) => seen.envelopes.push(envelope),
                    Err(error) => seen
                        .unreadable
                        .push((entry.id.clone(), format!("{error:#}"))),
                }
                self.position = entry.id;
            }
        }
    }
}

/// An entry holds the envelope as JSON in one field, or its keys as fields.
fn envelope(entry: &str, fields: &HashMap<String, redis::Value>) -> Result<Envelope> {
    let mut texts = BTreeMap::new();
    for (name, value) in fields {
        let text: String = redis::from_redis_value(value.clone())?;
        texts.insert(name.as_str(), text);
    }
    let whole = texts
        .values()
        .filter_map(|text| serde_json::from_str::<Value>(text).ok())
        .find(Value::is_object);
    let body = match whole {
        Some(body) if !texts.contains_key("kind") => body,
        _ => serde_json::to_value(&texts)?,
    };
    let text = |key: &str| body[key].as_str().map(str::to_owned);
    let number = |key: &str| {
        let value = &body[key];
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        number.with_context(|| format!("no {key} in {body}"))
    };
    Ok(Envelope {
        entry: entry.to_owned(),
        term: number("term")?,
        seq: number("seq")?,
        kind: text("kind").with_context(|| format!("no kind in {body}"))?,
        id: text("id").with_context(|| format!("no id in {body}"))?,
        site: text("site").filter(|site| !site.is_empty()),
        body,
    })
}

/// A panic elsewhere does not make what was seen wrong.
fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
