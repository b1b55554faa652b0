//! What is known now about later instants, for rules that look ahead.

use sunward_policies::facts::{Ahead, CalendarFact, Outlook, Reading};
use sunward_policies::policy::Policy;
use sunward_policies::time::Timestamp;

use super::Context;
use crate::board::StreamId;

/// The board and the calendars, as one policy sees them.
#[derive(Debug)]
pub(super) struct BoardOutlook<'a> {
    pub(super) policy: &'a Policy,
    /// One per signal of the policy.
    pub(super) streams: &'a [Option<StreamId>],
    pub(super) context: &'a Context<'a>,
}

impl Outlook for BoardOutlook<'_> {
    fn signal(&self, index: usize, at: Timestamp) -> Ahead {
        let nothing = Ahead {
            reading: Reading::Missing,
            until: None,
        };
        let (Some(signal), Some(Some(stream))) =
            (self.policy.signals.get(index), self.streams.get(index))
        else {
            return nothing;
        };
        let Some(believed) = signal.forecast_max_age else {
            return nothing;
        };
        let (board, now) = (self.context.board, self.context.now);
        board.stream(*stream).ahead(at, now, believed)
    }

    fn calendar(&self, index: usize, at: Timestamp) -> CalendarFact {
        let calendar = self.policy.calendars.get(index);
        calendar.map_or(
            CalendarFact {
                open: false,
                until: None,
            },
            |binding| binding.calendar.at(at),
        )
    }
}
