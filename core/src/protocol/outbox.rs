//! Where a sink stands in one federation's outbox.

use serde::{Deserialize, Serialize};

use crate::action::Envelope;

/// The last envelope that a sink holds, as (term, sequence); (0, 0) before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// Term of that envelope.
    pub term: u64,
    /// Sequence of that envelope.
    pub sequence: u64,
}

impl Cursor {
    /// The position of an envelope.
    pub fn of(envelope: &Envelope) -> Cursor {
        Cursor {
            term: envelope.term,
            sequence: envelope.sequence,
        }
    }

    /// Moves on past `envelope`, never back.
    pub fn advance(&mut self, envelope: &Envelope) {
        *self = (*self).max(Cursor::of(envelope));
    }
}
