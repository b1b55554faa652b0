//! Group commit: whole requests gathered into one record, one record per journal index.
//!
//! A record is the MessagePack array `[format, at, [event, ...]]`. Events are encoded where they
//! are made (in many tasks), so that the one engine loop only concatenates.

use sunward_policies::time::Timestamp;

use crate::event::Event;

/// Most events of one group.
pub const GROUP_EVENTS_MAX: usize = 1_024;
/// Most bytes of one record.
pub const GROUP_BYTES_MAX: usize = 768 * 1024;
/// The record format that this version writes.
pub const RECORD_FORMAT: u8 = 1;
/// Room made for an event in advance; a reading takes about 300 bytes.
const EVENT_BYTES_USUAL: usize = 384;
/// Room for the record's own header.
const HEADER_BYTES_MAX: usize = 32;

/// Events with their encodings, in order.
#[derive(Clone, Debug, Default)]
pub struct Request {
    events: Vec<Event>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Why a request can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// More events than a group holds.
    #[error("more than {GROUP_EVENTS_MAX} events in one request")]
    Events,
    /// More bytes than a record holds.
    #[error("more than {GROUP_BYTES_MAX} bytes in one request")]
    Bytes,
}

impl Request {
    /// Encodes `events`; the whole must fit into one group.
    pub fn new(events: Vec<Event>) -> Result<Request, TooLarge> {
        if events.len() > GROUP_EVENTS_MAX {
            return Err(TooLarge::Events);
        }
        let mut request = Request {
            bytes: Vec::with_capacity(events.len() * EVENT_BYTES_USUAL),
            ends: Vec::with_capacity(events.len()),
            events,
        };
        for event in &request.events {
            rmp_serde::encode::write_named(&mut request.bytes, event)
                .expect("events hold only encodable types");
            request.ends.push(request.bytes.len());
        }
        if request.bytes.len() + HEADER_BYTES_MAX > GROUP_BYTES_MAX {
            return Err(TooLarge::Bytes);
        }
        Ok(request)
    }

    /// The events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Keeps the events whose position `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        if (0..self.events.len()).all(&keep) {
            return;
        }
        let mut kept = Request::default();
        let mut start = 0;
        for (position, (event, end)) in self.events.drain(..).zip(&self.ends).enumerate() {
            if keep(position) {
                kept.bytes.extend_from_slice(&self.bytes[start..*end]);
                kept.ends.push(kept.bytes.len());
                kept.events.push(event);
            }
            start = *end;
        }
        *self = kept;
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True without events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// Requests on their way into one record.
#[derive(Debug, Default)]
pub struct Group {
    events: Vec<Event>,
    /// Room for the header, then the encoded events; empty while there are none.
    bytes: Vec<u8>,
}

impl Group {
    /// True when `request` still fits.
    pub fn fits(&self, request: &Request) -> bool {
        self.events.len() + request.len() <= GROUP_EVENTS_MAX
            && self.bytes.len().max(HEADER_BYTES_MAX) + request.bytes.len() <= GROUP_BYTES_MAX
    }

    /// Adds a whole request and returns the position of its first event. The caller has asked
    /// [`Group::fits`].
    pub fn add(&mut self, request: Request) -> usize {
        let first = self.events.len();
        self.make_room_for_header();
        self.bytes.extend_from_slice(&request.bytes);
        self.events.extend(request.events);
        first
    }

    /// The events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// True without events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The record, stamped `at`. The header is put before the events where they are.
    pub fn record(&mut self, at: Timestamp) -> &[u8] {
        self.make_room_for_header();
        let mut header = Vec::with_capacity(HEADER_BYTES_MAX);
        // [format, at, [n events ...: fixarray of 3, then the array header of 32 bits.
        header.push(0x93);
        header.push(RECORD_FORMAT);
        rmp_serde::encode::write(&mut header, &at).expect("a stamp is an integer");
        header.push(0xdd);
        header.extend_from_slice(&(self.events.len() as u32).to_be_bytes());
        // 16 bytes at most: a stamp takes 9.
        let start = HEADER_BYTES_MAX - header.len();
        self.bytes[start..HEADER_BYTES_MAX].copy_from_slice(&header);
        &self.bytes[start..]
    }

    fn make_room_for_header(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER_BYTES_MAX, 0);
        }
    }

    /// Forgets everything, keeping the memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.bytes.clear();
    }
}

/// Why a record can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Written by a version that this one does not know.
    #[error("record format {0}; this version reads up to {RECORD_FORMAT}: use a newer sunward")]
    Format(u8),
    /// Not a record.
    #[error("not a record: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
}

/// The stamp and the events of a record.
pub fn decode_record(bytes: &[u8]) -> Result<(Timestamp, Vec<Event>), RecordError> {
    if let [0x93, format, ..] = bytes
        && *format > RECORD_FORMAT
    {
        return Err(RecordError::Format(*format));
    }
    let (_, at, events): (u8, Timestamp, Vec<Event>) = rmp_serde::from_slice(bytes)?;
    Ok((at, events))
}
