//! What is known: per stream, the issues that hold now or can still win.
//!
//! The board answers one question on the hot path, "which value holds at T", and never invents an
//! answer: where no interval covers T the answer is missing, not zero and not the last value.
//! Older questions ("what did we know at T about I") are the journal's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Serialize};
use sunward_policies::facts::{Ahead, Reading};
use sunward_policies::time::{Span, Timestamp};

use crate::derived::Derived;
use crate::signal::{Issue, Level, Quality, StreamKey};

/// Streams that the board holds at most; a level of one more is answered with `board_full`.
pub const STREAMS_MAX: usize = 20_000;

/// Issues kept per stream: 7 days of 1-minute forecasts. Where more arrive, those that begin
/// last go first, and are counted in [`Board::dropped`].
pub const ISSUES_PER_STREAM_MAX: usize = 10_080;

/// Issues kept on the whole board, so that a snapshot always fits.
pub const ISSUES_MAX: usize = 500_000;

/// Issues kept per stream after their interval has ended.
pub const ISSUES_PAST_MAX: usize = 4;

/// Index of a stream on the board; stable for the life of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamId(u32);

impl StreamId {
    /// Position in the board's order of first sight.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the board did with a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It stands.
    Accepted(StreamId),
    /// It stands, behind a higher sequence of the same stream.
    Superseded(StreamId),
    /// There is no room for another stream.
    BoardFull,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Its identity.
    pub key: StreamKey,
    /// Ordered by start, then by precedence.
    issues: Vec<Issue>,
    /// Highest sequence seen.
    sequence_max: Option<u64>,
    /// When the newest level was received.
    pub received_at: Option<Timestamp>,
    /// Readings so far, for conditions that count them: levels that held at their receipt. One that was issued for
    /// later, came late or stood behind a higher sequence says nothing new about the present.
    pub readings: u64,
    /// A policy reads it: it keeps its place on a full board.
    #[serde(skip)]
    read: bool,
    /// No issue kept is for a longer interval.
    #[serde(skip)]
    longest: Derived<Span>,
}

/// What a stream says at an instant, for one maximum age.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// Fresh, stale or missing.
    pub reading: Reading,
    /// When the value was received, if an interval covers the instant.
    pub received_at: Option<Timestamp>,
    /// How the value came about, if an interval covers the instant.
    pub quality: Option<Quality>,
    /// When the value's interval began, if one covers the instant.
    pub valid_from: Option<Timestamp>,
    /// The first later instant at which the answer can differ without a new level.
    pub next_change_at: Option<Timestamp>,
}

/// All streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Board {
    streams: Vec<Stream>,
    /// Issues dropped because a stream held [`ISSUES_PER_STREAM_MAX`].
    pub dropped: u64,
    /// When the last level was posted.
    at: Timestamp,
    /// Issues kept, over all streams.
    #[serde(skip)]
    issues: usize,
    /// By the key's hash: a look-up compares integers, and one key at the end. Never iterated.
    #[serde(skip)]
    ids: BTreeMap<u64, StreamId>,
    /// The keys whose hash was taken already.
    #[serde(skip)]
    collided: BTreeMap<StreamKey, StreamId>,
    /// The stream after the one that was posted last. Senders keep to an order, so it is most
    /// often the next one, and then its key is compared and not looked up.
    #[serde(skip)]
    likely: Derived<usize>,
}

impl Board {
    /// Rebuilds what is derived, after a snapshot was read.
    pub fn index(&mut self) {
        self.ids.clear();
        self.collided.clear();
        self.issues = self.streams.iter().map(|stream| stream.issues.len()).sum();
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            let lengths = stream.issues.iter().map(Issue::lasts);
            stream.longest = Derived(lengths.max().unwrap_or_default());
            let key = stream.key.clone();
            self.enter(&key, StreamId(index as u32));
        }
    }

    fn enter(&mut self, key: &StreamKey, id: StreamId) {
        match self.ids.entry(key.hash()) {
            Entry::Vacant(vacant) => {
                vacant.insert(id);
            }
            Entry::Occupied(_) => {
                self.collided.insert(key.clone(), id);
            }
        }
    }

    /// The id of a stream that was seen or asked for before.
    pub fn find(&self, key: &StreamKey) -> Option<StreamId> {
        let id = *self.ids.get(&key.hash())?;
        if self
            .streams
            .get(id.index())
            .is_some_and(|stream| stream.key == *key)
        {
            return Some(id);
        }
        self.collided.get(key).copied()
    }

    /// The id of `key`, made if absent; `None` when the board is full.
    pub fn intern(&mut self, key: &StreamKey) -> Option<StreamId> {
        let likely = self.likely.0;
        if self
            .streams
            .get(likely)
            .is_some_and(|stream| stream.key == *key)
        {
            return Some(StreamId(likely as u32));
        }
        if let Some(id) = self.find(key) {
            return Some(id);
        }
        if self.streams.len() >= STREAMS_MAX {
            return self.reuse(key);
        }
        let id = StreamId(self.streams.len() as u32);
        self.enter(key, id);
        self.streams.push(Stream::new(key.clone()));
        Some(id)
    }

    /// A stream that nobody reads and whose issues are all over.
    fn reusable(&self) -> Option<usize> {
        self.streams.iter().position(|stream| {
            !stream.read && stream.issues.iter().all(|issue| issue.valid_to <= self.at)
        })
    }

    /// Gives the place of such a stream to `key`.
    fn reuse(&mut self, key: &StreamKey) -> Option<StreamId> {
        let index = self.reusable()?;
        self.streams[index] = Stream::new(key.clone());
        // Rare; and the key that left may have been the first of its hash.
        self.index();
        self.find(key)
    }

    /// True when a level of `key` would find room; asked before it is journaled.
    pub fn admits(&self, key: &StreamKey) -> bool {
        let place = self.streams.len() < STREAMS_MAX
            || self.find(key).is_some()
            || self.reusable().is_some();
        place && self.issues < ISSUES_MAX
    }

    /// Marks the streams that policies read, and no others.
    pub fn mark_read(&mut self, read: impl Fn(StreamId) -> bool) {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.read = read(StreamId(index as u32));
        }
    }

    /// All streams in the order of their ids.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The stream of `id`.
    pub fn stream(&self, id: StreamId) -> &Stream {
        &self.streams[id.index()]
    }

    /// Posts a level received at `at`.
    pub fn post(&mut self, level: &Level, at: Timestamp) -> Posted {
        self.at = at;
        let Some(id) = self
            .intern(&level.stream)
            .filter(|_| self.issues < ISSUES_MAX)
        else {
            return Posted::BoardFull;
        };
        let next = id.index() + 1;
        self.likely = Derived(if next < self.streams.len() { next } else { 0 });
        let stream = &mut self.streams[id.index()];
        let superseded =
            matches!((level.sequence, stream.sequence_max), (Some(new), Some(max)) if new < max);
        stream.sequence_max = stream.sequence_max.max(level.sequence);
        stream.received_at = Some(at);
        let before = stream.issues.len();
        let issue = Issue::new(level, at);
        stream.readings += u64::from(!superseded && issue.covers(at));
        stream.insert(issue);
        stream.prune(at);
        self.dropped += stream.shed();
        self.issues = self.issues + stream.issues.len() - before;
        if superseded {
            Posted::Superseded(id)
        } else {
            Posted::Accepted(id)
        }
    }
}

impl Stream {
    fn new(key: StreamKey) -> Stream {
        Stream {
            key,
            issues: Vec::new(),
            sequence_max: None,
            received_at: None,
            readings: 0,
            read: false,
            longest: Derived(Span::ZERO),
        }
    }

    /// The issues kept, ordered by the start of their interval.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }

    /// The highest sequence number seen.
    pub fn sequence_max(&self) -> Option<u64> {
        self.sequence_max
    }

    fn insert(&mut self, issue: Issue) {
        self.longest.0 = self.longest.0.max(issue.lasts());
        let last = self.issues.last();
        if last.is_none_or(|last| last.valid_from < issue.valid_from) {
            return self.issues.push(issue);
        }
        let kind = self.key.kind;
        let start = self
            .issues
            .partition_point(|other| other.valid_from < issue.valid_from);
        let end = start
            + self.issues[start..].partition_point(|other| other.valid_from == issue.valid_from);
        // The loser of two issues for the same interval can never win again.
        if let Some(same) = self.issues[start..end]
            .iter()
            .position(|other| other.valid_to == issue.valid_to)
        {
            let other = &mut self.issues[start + same];
            if other.precedence(&issue, kind).is_lt() {
                *other = issue;
            }
            return;
        }
        self.issues.insert(end, issue);
    }

    /// Drops what ended, but for the last few.
    fn prune(&mut self, at: Timestamp) {
        if self.issues.len() <= 2 * ISSUES_PAST_MAX {
            return;
        }
        let past = self
            .issues
            .iter()
            .take_while(|issue| issue.valid_from <= at);
        let ended = past.filter(|issue| issue.valid_to <= at).count();
        if ended <= 2 * ISSUES_PAST_MAX {
            return;
        }
        let mut excess = ended - ISSUES_PAST_MAX;
        self.issues.retain(|issue| {
            let drop = excess > 0 && issue.valid_to <= at;
            excess -= usize::from(drop);
            !drop
        });
    }

    fn shed(&mut self) -> u64 {
        let excess = self.issues.len().saturating_sub(ISSUES_PER_STREAM_MAX);
        self.issues.truncate(ISSUES_PER_STREAM_MAX);
        excess as u64
    }

    /// The issue that holds at `t`, if one does.
    pub fn holds(&self, t: Timestamp) -> Option<&Issue> {
        self.at(t).0
    }

    /// The issue that holds at `t`, if one does, and where the first later one begins.
    fn at(&self, t: Timestamp) -> (Option<&Issue>, Option<Timestamp>) {
        let mut holds: Option<&Issue> = None;
        for issue in &self.issues {
            if issue.valid_from > t {
                return (holds, Some(issue.valid_from));
            }
            if t < issue.valid_to
                && holds.is_none_or(|known| known.precedence(issue, self.key.kind).is_le())
            {
                holds = Some(issue);
            }
        }
        (holds, None)
    }

    /// What the stream says at `t` to a policy that believes a value for `max_age`.
    pub fn answer(&self, t: Timestamp, max_age: Span) -> Answer {
        let (holds, next_start) = self.at(t);
        let Some(issue) = holds else {
            return Answer {
                reading: Reading::Missing,
                received_at: None,
                quality: None,
                valid_from: None,
                next_change_at: next_start,
            };
        };
        let old_at = issue.received_at + max_age;
        let (reading, until) = match issue.value {
            None => (Reading::Missing, issue.valid_to),
            Some(value) if t < old_at => (Reading::Fresh { value }, issue.valid_to.min(old_at)),
            Some(value) => (Reading::Stale { value }, issue.valid_to),
        };
        Answer {
            reading,
            received_at: Some(issue.received_at),
            quality: Some(issue.quality),
            valid_from: Some(issue.valid_from),
            next_change_at: Some(next_start.map_or(until, |start| start.min(until))),
        }
    }

    /// What the stream is said at `now` to be at `at`, to a policy that believes an issue for `believed` after it was
    /// issued. What is not believed is missing; what stands behind it does not take its place.
    pub fn ahead(&self, at: Timestamp, now: Timestamp, believed: Span) -> Ahead {
        let later = self.issues.partition_point(|issue| issue.valid_from <= at);
        let next_start = self.issues.get(later).map(|issue| issue.valid_from);
        // A look ahead goes through a whole forecast, so each step may only look at a few issues: none that began
        // longer ago than the longest lasts can still hold.
        let earlier = self.issues[..later].iter().rev();
        let holds = earlier
            .take_while(|issue| at - issue.valid_from < self.longest.0)
            .filter(|issue| issue.covers(at))
            .max_by(|a, b| a.precedence(b, self.key.kind));
        let Some(issue) = holds else {
            return Ahead {
                reading: Reading::Missing,
                until: next_start,
            };
        };
        let until = next_start.map_or(issue.valid_to, |start| start.min(issue.valid_to));
        let is_believed = now < issue.issued_at + believed;
        let value = issue.value.filter(|_| is_believed);
        Ahead {
            reading: value.map_or(Reading::Missing, |value| Reading::Fresh { value }),
            // What is not believed may hold now, by the maximum age of its receipt, and says nothing of any later
            // instant.
            until: Some(if at <= now && !is_believed {
                until.min(now + Span::from_millis(1))
            } else {
                until
            }),
        }
    }
}
