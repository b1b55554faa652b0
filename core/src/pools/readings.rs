//! What the board says to one policy at one instant.

use smallvec::SmallVec;
use sunward_policies::facts::Reading;
use sunward_policies::policy::{OnEstimated, Policy, SignalBinding};
use sunward_policies::time::Timestamp;

use super::{Context, Earliest};
use crate::board::StreamId;
use crate::fleet::Pool;
use crate::signal::Quality;

/// One reading per signal of a policy, with the count of readings so far; few need no allocation.
#[derive(Debug, Default)]
pub(super) struct Readings {
    readings: SmallVec<[Reading; Self::FEW]>,
    samples: SmallVec<[u64; Self::FEW]>,
}

impl Readings {
    /// Signals of a policy that need no allocation.
    const FEW: usize = 8;

    pub(super) fn read(
        &mut self,
        policy: &Policy,
        streams: &[Option<StreamId>],
        pool: &Pool,
        context: &Context<'_>,
        next: &mut Earliest,
    ) {
        self.readings.clear();
        self.samples.clear();
        for (signal, stream) in policy.signals.iter().zip(streams) {
            let seen = see(signal, *stream, pool, context);
            next.add_reading(seen.next_change_at);
            let samples = stream.map_or(0, |stream| context.board.stream(stream).readings);
            let reading = seen.reading;
            #[cfg(feature = "plant")]
            let reading = planted_reading(reading, *stream, context);
            self.readings.push(reading);
            self.samples.push(samples);
        }
    }

    pub(super) fn as_slice(&self) -> &[Reading] {
        &self.readings
    }

    /// Readings that each stream has had so far.
    pub(super) fn samples(&self) -> &[u64] {
        &self.samples
    }
}

/// A signal as a policy sees it, and how to say so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Only a fresh one is evaluated.
    pub(super) reading: Reading,
    /// `fresh`, `stale`, `estimated` or `missing`.
    pub(super) state: &'static str,
    /// kW that were added to the value because our own workers draw them.
    pub(super) own_draw: Option<f64>,
    pub(super) received_at: Option<Timestamp>,
    pub(super) next_change_at: Option<Timestamp>,
}

/// What a stream says now to a policy about a pool.
pub(super) fn see(
    signal: &SignalBinding,
    stream: Option<StreamId>,
    pool: &Pool,
    context: &Context<'_>,
) -> Seen {
    let Some(stream) = stream else {
        return Seen {
            reading: Reading::Missing,
            state: "missing",
            own_draw: None,
            received_at: None,
            next_change_at: None,
        };
    };
    let stream = context.board.stream(stream);
    let answer = stream.answer(context.now, signal.max_age);
    let estimated = matches!(answer.quality, Some(Quality::Estimated | Quality::Forecast));
    let mut seen = Seen {
        reading: answer.reading,
        state: match answer.reading {
            Reading::Fresh { .. } if estimated => "estimated",
            Reading::Fresh { .. } => "fresh",
            Reading::Stale { .. } => "stale",
            Reading::Missing => "missing",
        },
        own_draw: None,
        received_at: answer.received_at,
        next_change_at: answer.next_change_at,
    };
    if let Reading::Fresh { value } = seen.reading
        && estimated
        && signal.on_estimated == OnEstimated::Missing
    {
        seen.reading = Reading::Stale { value };
    }
    if signal.add_back_own_draw {
        seen.add_back(answer.valid_from, pool, context);
    }
    seen
}

impl Seen {
    /// Adds what our own workers drew just before the value's interval began. Where nobody knows that, the value is
    /// shown and not evaluated: without it a surplus would erase itself.
    fn add_back(&mut self, began: Option<Timestamp>, pool: &Pool, context: &Context<'_>) {
        let draw = context.draws.get(&pool.site);
        self.own_draw = began.and_then(|began| draw?.before(began));
        let own = self.own_draw.unwrap_or(0.0);
        self.reading = match self.reading {
            Reading::Fresh { value } if self.own_draw.is_some() => {
                Reading::Fresh { value: value + own }
            }
            Reading::Fresh { value } => {
                self.state = "stale";
                Reading::Stale { value }
            }
            Reading::Stale { value } => Reading::Stale { value: value + own },
            Reading::Missing => Reading::Missing,
        };
    }
}

/// The reading as the planted bugs see it.
#[cfg(feature = "plant")]
fn planted_reading(reading: Reading, stream: Option<StreamId>, context: &Context<'_>) -> Reading {
    use crate::plant::Plant;
    if context.plant.is_none() {
        return reading;
    }
    let known = stream.map(|stream| context.board.stream(stream));
    let last = known.and_then(|stream| stream.issues().last().copied());
    match (context.plant, reading) {
        (Some(Plant::EmptyIsZero), Reading::Missing) => Reading::Fresh { value: 0.0 },
        (Some(Plant::StartValueZero), Reading::Missing) if last.is_none() => {
            Reading::Fresh { value: 0.0 }
        }
        (Some(Plant::ZeroIsDirty), Reading::Fresh { value: 0.0 }) => Reading::Fresh { value: 1e9 },
        (Some(Plant::LastValueForEver), Reading::Missing | Reading::Stale { .. }) => last
            .and_then(|issue| issue.value)
            .map_or(reading, |value| Reading::Fresh { value }),
        _ => reading,
    }
}
