//! The clients of both sides: raw keep-alive connections with prepared requests, so that what is measured is the server.

use std::fmt;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sunward_core::time::{Span, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::daemon::{SITES, SOURCE};

/// How readings are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Counted up per connection.
    Sequential,
    /// 128 bits that look random, as a UUID's do.
    Random,
}

impl Ids {
    pub fn word(self) -> &'static str {
        match self {
            Ids::Sequential => "sequential",
            Ids::Random => "random",
        }
    }
}

/// What one turn pushes.
pub struct Batch {
    /// Readings of one request.
    pub size: usize,
    pub ids: Ids,
    /// Every id of the turn lies above it.
    pub first_id: u64,
    /// How long.
    pub turn: Duration,
}

/// What one turn achieved.
pub struct Pushed {
    pub requests: u64,
    pub size: usize,
    pub elapsed: Duration,
    /// Processor time of the whole process, clients included.
    pub cpu: Duration,
}

impl Pushed {
    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

impl fmt::Display for Pushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.per_second();
        let cpu = self.cpu.as_secs_f64() * 1e6 / self.requests as f64;
        write!(
            f,
            "{rate:.0} requests/s ({:.0} readings/s, {cpu:.0} us CPU per request)",
            rate * self.size as f64
        )
    }
}

/// Pushes over `connections` connections for one turn; every request must be answered 202.
pub async fn push(address: SocketAddr, token: &str, batch: &Batch, connections: usize) -> Pushed {
    let mut clients = Vec::with_capacity(connections);
    for number in 0..connections {
        clients.push(Client::connect(address, token, batch, number).await);
    }
    let (began, cpu_before) = (Instant::now(), cpu_time());
    let end = began + batch.turn;
    let running: Vec<_> = clients
        .into_iter()
        .map(|client| tokio::spawn(client.run(end)))
        .collect();
    let mut requests = 0;
    for client in running {
        requests += client.await.unwrap();
    }
    Pushed {
        requests,
        size: batch.size,
        elapsed: began.elapsed(),
        cpu: cpu_time().saturating_sub(cpu_before),
    }
}

/// User and system time of this process, in the kernel's ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The second field is a name in parentheses; utime and stime are the 14th and 15th (proc(5)).
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    /// Where the ids stand in the request.
    ids_at: Vec<usize>,
    ids: Ids,
    next_id: u64,
    answer: Vec<u8>,
}

/// Digits of an id after its prefix; the same for both kinds.
const ID_DIGITS: usize = 24;

impl Client {
    async fn connect(address: SocketAddr, token: &str, batch: &Batch, number: usize) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let placeholder = "#".repeat(ID_DIGITS);
        let readings: Vec<String> = (0..batch.size)
            .map(|nth| {
                reading(
                    number + nth,
                    &format!("meter-{placeholder}"),
                    10.0 + nth as f64 / 7.0,
                )
            })
            .collect();
        let body = if batch.size == 1 {
            readings[0].clone()
        } else {
            format!("[{}]", readings.join(","))
        };
        let request = request(token, &body);
        let ids_at = request
            .match_indices(&placeholder)
            .map(|(at, _)| at)
            .collect();
        Client {
            stream,
            ids_at,
            request: request.into_bytes(),
            ids: batch.ids,
            next_id: batch.first_id + ((number as u64) << 20),
            answer: Vec::new(),
        }
    }

    async fn run(mut self, end: Instant) -> u64 {
        let mut requests = 0;
        while Instant::now() < end {
            self.name_readings();
            exchange(&mut self.stream, &self.request, &mut self.answer).await;
            requests += 1;
        }
        requests
    }

    fn name_readings(&mut self) {
        for at in &self.ids_at {
            self.next_id += 1;
            let id = match self.ids {
                Ids::Sequential => format!("{:0ID_DIGITS$}", self.next_id),
                Ids::Random => {
                    let (high, low) = (mix(self.next_id), mix(!self.next_id));
                    format!("{:08x}{low:016x}", high >> 32)
                }
            };
            self.request[*at..*at + ID_DIGITS].copy_from_slice(id.as_bytes());
        }
    }
}

/// A reading that flips nothing.
pub fn reading(site: usize, id: &str, value: f64) -> String {
    let minute = 60_000;
    let now = sunward::clock::wall_now().as_millis() / minute * minute;
    let (from, to) = (
        Timestamp::from_millis(now),
        Timestamp::from_millis(now) + Span::from_mins(15),
    );
    let site = site % SITES;
    format!(
        "{{\"id\":\"{id}\",\"source\":\"{SOURCE}\",\"kind\":\"surplus_power\",\"site\":\"site-{site}\",\
         \"valid_from\":\"{from}\",\"valid_to\":\"{to}\",\"value\":{value},\"unit\":\"kW\"}}"
    )
}

/// A whole request.
pub fn request(token: &str, body: &str) -> String {
    let mut request = String::new();
    write!(
        request,
        "POST /v1/signals HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    request
}

/// Sends a request and reads the whole answer, which must be 202.
pub async fn exchange(stream: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) {
    stream.write_all(request).await.unwrap();
    answer.clear();
    loop {
        let read = stream.read_buf(answer).await.unwrap();
        assert!(
            read > 0,
            "the connection was closed: {}",
            String::from_utf8_lossy(answer)
        );
        if let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = std::str::from_utf8(&answer[..end])
                .unwrap()
                .to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.split('\r').next().unwrap().parse().unwrap();
            if answer.len() >= end + 4 + length {
                break;
            }
        }
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 202"),
        "{}",
        String::from_utf8_lossy(answer)
    );
}

/// splitmix64 (Steele, Lea, Flood 2014).
fn mix(of: u64) -> u64 {
    let mut z = of.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
