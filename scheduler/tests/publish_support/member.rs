//! A member as `docs/events.md` describes one: state, stream, subscribe, stream again, follow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands as _, Client, RedisResult};
use sunward::publish::redis::{events_key, site_key, wake_channel};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Entries of one read.
const READ_MAX: usize = 100;

/// What a member saw.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// (sequence, envelope id, kind), in the order of arrival.
    pub entries: Vec<(u64, String, String)>,
    /// Wake-ups heard; they need not be complete.
    pub wakes: usize,
    /// The site's hash, at each (re)connect.
    pub states: Vec<BTreeMap<String, String>>,
    /// Why connections ended.
    pub losses: Vec<String>,
}

impl Seen {
    /// The sequence numbers, in the order of arrival.
    pub fn sequences(&self) -> Vec<u64> {
        self.entries
            .iter()
            .map(|(sequence, ..)| *sequence)
            .collect()
    }
}

/// A member that follows one federation.
pub struct Member {
    pub seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

struct Reader {
    client: Client,
    federation: String,
    site: String,
    /// The stored position; a real member keeps it in its volume.
    position: String,
    seen: Arc<Mutex<Seen>>,
}

impl Member {
    /// Starts one that connects to `url`.
    pub fn follow(url: &str, federation: &str, site: &str) -> Member {
        let seen = Arc::default();
        let stop = CancellationToken::new();
        let mut reader = Reader {
            client: Client::open(url).unwrap(),
            federation: federation.to_owned(),
            site: site.to_owned(),
            position: "0-0".to_owned(),
            seen: Arc::clone(&seen),
        };
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                if let Err(error) = reader.run(&stopped).await {
                    reader.seen.lock().unwrap().losses.push(error.to_string());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
        Member { seen, stop, task }
    }

    /// What it saw so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Stops it.
    pub async fn stop(self) -> Seen {
        self.stop.cancel();
        self.task.await.unwrap();
        let seen = self.seen.lock().unwrap();
        seen.clone()
    }
}

impl Reader {
    async fn run(&mut self, stop: &CancellationToken) -> RedisResult<()> {
        let mut commands = self.client.get_multiplexed_async_connection().await?;
        let state = commands
            .hgetall(site_key(&self.federation, &self.site))
            .await?;
        self.seen.lock().unwrap().states.push(state);
        self.read(&mut commands).await?;
        let mut wakes = self.client.get_async_pubsub().await?;
        wakes.subscribe(wake_channel(&self.federation)).await?;
        let mut wakes = wakes.into_on_message();
        loop {
            // The second read closes the race between the first and the subscription.
            self.read(&mut commands).await?;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                wake = wakes.next() => match wake {
                    Some(_) => self.seen.lock().unwrap().wakes += 1,
                    None => return Err((redis::ErrorKind::Io, "the subscription ended").into()),
                },
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn read(&mut self, commands: &mut MultiplexedConnection) -> RedisResult<()> {
        let keys = [events_key(&self.federation)];
        let options = StreamReadOptions::default().count(READ_MAX);
        loop {
            let reply: Option<StreamReadReply> = commands
                .xread_options(&keys, &[self.position.as_str()], &options)
                .await?;
            let entries = reply
                .into_iter()
                .flat_map(|reply| reply.keys)
                .flat_map(|key| key.ids);
            let before = self.position.clone();
            for entry in entries {
                let text: String = entry.get("envelope").unwrap();
                let envelope: serde_json::Value = serde_json::from_str(&text).unwrap();
                let sequence = envelope["seq"].as_u64().unwrap();
                assert_eq!(
                    entry.id,
                    format!("{}-{sequence}", envelope["term"].as_u64().unwrap())
                );
                let word = |key: &str| envelope[key].as_str().unwrap().to_owned();
                let known = (sequence, word("id"), word("kind"));
                self.seen.lock().unwrap().entries.push(known);
                self.position = entry.id;
            }
            if self.position == before {
                return Ok(());
            }
        }
    }
}
