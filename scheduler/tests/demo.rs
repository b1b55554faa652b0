//! `sunward demo` from outside: its result, its exit codes, and the reading that a newcomer pushes.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

fn sunward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunward"));
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn fast(output: &str) -> Output {
    let began = Instant::now();
    let done = sunward(&["demo", "--fast", "--output", output])
        .output()
        .unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    done
}

/// Compares with the committed file; `BLESS=1` writes it anew.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/expected")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{} differs (BLESS=1 writes it anew):\n{text}",
        path.display()
    );
}

#[test]
fn the_fast_demo_gives_the_committed_result() {
    let done = fast("json");
    golden("demo_fast.json", &String::from_utf8(done.stdout).unwrap());
}

#[test]
fn the_fast_demo_shows_the_committed_table() {
    let done = fast("table");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "too wide:\n{text}"
    );
    golden("demo_fast.txt", &text);
}

/// A demo under way, and the lines that it writes to standard error.
struct Running {
    /// Two that start at one instant may both find the usual port free.
    _alone: MutexGuard<'static, ()>,
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    began: Instant,
}

impl Running {
    fn start() -> Running {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = sunward(&["demo", "--output", "json"]);
        let began = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Running {
            _alone: alone,
            child,
            lines,
            began,
        }
    }

    fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let mut seen = String::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if wanted(&line) {
                return line;
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        panic!("no such line in:\n{seen}")
    }

    /// The exit code and the JSON on standard output.
    fn end(mut self) -> (Option<i32>, Value, Duration) {
        // Read on, lest the demo waits for us.
        let rest = std::thread::spawn(move || self.lines.count());
        let mut text = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        let status = self.child.wait().unwrap();
        let took = self.began.elapsed();
        rest.join().unwrap();
        (status.code(), serde_json::from_str(&text).unwrap(), took)
    }
}

/// Does what the printed curl line would do, without curl.
fn push_as_invited(curl: &str) -> String {
    let between = |open: &str, close: &str| {
        let rest = curl.split_once(open).unwrap().1;
        rest.split_once(close).unwrap().0.to_owned()
    };
    let (address, token, body) = (
        between("http://", "/v1/signals"),
        between("Bearer ", "'"),
        between("-d '", "'"),
    );
    let mut connection = TcpStream::connect(&address).unwrap();
    write!(
        connection,
        "POST /v1/signals HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn site<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["sites"]
        .as_array()
        .unwrap()
        .iter()
        .find(|site| site["site"] == name)
        .unwrap()
}

#[test]
fn a_pushed_reading_makes_a_site_react_and_the_live_demo_ends_within_a_minute() {
    let mut running = Running::start();
    let curl = running.line(|line| line.starts_with("curl "));
    let answer = push_as_invited(&curl);
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    running.line(|line| line.contains("spp") && line.contains("pushed"));
    running.line(|line| line.contains("spp") && line.contains("starts"));
    running.line(|line| line.contains("spp") && line.contains("trains"));
    let (code, report, took) = running.end();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(60), "{took:?}");
    // The pushed reading holds to the end: the site never leaves again.
    let spp = site(&report, "spp");
    assert_eq!(spp["starts"], 1, "{report:#}");
    assert!(spp["hours"].as_f64().unwrap() > 10.0, "{report:#}");
    assert_eq!(report["totals"]["hours"], 18.0);
    assert_eq!(report["signals"], 3 * 216 + 1);
}

#[test]
fn an_interrupt_ends_with_the_result_so_far() {
    let mut running = Running::start();
    running.line(|line| line.contains("caiso") && line.contains("trains"));
    let pid = running.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let (code, report, _) = running.end();
    assert_eq!(code, Some(130));
    let hours = report["totals"]["hours"].as_f64().unwrap();
    assert!(0.0 < hours && hours < 18.0, "{hours}");
    assert_eq!(site(&report, "caiso")["starts"], 1);
}
