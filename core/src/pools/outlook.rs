//! What is known now about later instants, for rules that look ahead.

use smallvec::SmallVec;
use sunward_policies::facts::{Ahead, CalendarFact, Facts, NoOutlook, Outlook, Reading};
use sunward_policies::policy::Policy;
use sunward_policies::time::Timestamp;

use super::readings::see;
use super::{Context, Governing, PoolState};
use crate::board::StreamId;
use crate::fleet::Pool;

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

/// The score that a policy gives a pool at an instant that is not before now, and the first later instant at which it may
/// be another; `None` where the policy has none or it is unknown.
pub(crate) fn score_at(
    governing: &Governing,
    pool: &Pool,
    state: &PoolState,
    context: &Context<'_>,
    at: Timestamp,
) -> (Option<f64>, Option<Timestamp>) {
    let policy = context.policies.policies().get(governing.policy);
    let Some((policy, score)) = policy.and_then(|policy| Some((policy, policy.score.as_ref()?)))
    else {
        return (None, None);
    };
    let outlook = BoardOutlook {
        policy,
        streams: &governing.streams,
        context,
    };
    let mut until: Option<Timestamp> = None;
    let mut look_until = |next: Option<Timestamp>| {
        let next = next.filter(|next| *next > at);
        until = until.into_iter().chain(next).min();
    };
    let mut readings: SmallVec<[Reading; 8]> = SmallVec::new();
    for (index, (signal, stream)) in policy.signals.iter().zip(&governing.streams).enumerate() {
        let reads = score.signals().contains(index);
        let ahead = outlook.signal(index, at);
        let reading = if at <= context.now {
            // The present is judged as the rules judge it.
            let seen = see(signal, *stream, pool, context);
            if reads {
                look_until(seen.next_change_at);
            }
            seen.reading
        } else {
            ahead.reading
        };
        if reads {
            look_until(ahead.until);
        }
        readings.push(reading);
    }
    let calendars: SmallVec<[CalendarFact; 4]> = (0..policy.calendars.len())
        .map(|index| outlook.calendar(index, at))
        .collect();
    for calendar in &calendars {
        look_until(calendar.until);
    }
    let facts = Facts {
        now: at,
        readings: &readings,
        samples: &[],
        calendars: &calendars,
        outlook: &NoOutlook,
        pool: state.facts(pool),
    };
    (score.evaluate(&facts), until)
}
