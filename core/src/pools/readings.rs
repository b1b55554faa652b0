//! What the board says to one policy at one instant.

use sunward_policies::facts::Reading;
use sunward_policies::policy::Policy;

use super::{Context, Earliest};
use crate::board::StreamId;

/// One reading per signal of a policy, in a fixed buffer where it fits.
#[derive(Debug)]
pub(super) struct Readings {
    few: [Reading; Self::FEW],
    many: Vec<Reading>,
    len: usize,
}

impl Default for Readings {
    fn default() -> Self {
        Readings {
            few: [Reading::Missing; Self::FEW],
            many: Vec::new(),
            len: 0,
        }
    }
}

impl Readings {
    /// Signals of a policy that need no allocation.
    const FEW: usize = 8;

    pub(super) fn read(
        &mut self,
        policy: &Policy,
        streams: &[Option<StreamId>],
        context: &Context<'_>,
        next: &mut Earliest,
    ) {
        self.len = streams.len();
        self.many.clear();
        for (index, (signal, stream)) in policy.signals.iter().zip(streams).enumerate() {
            let reading = stream.map_or(Reading::Missing, |stream| {
                let answer = context
                    .board
                    .stream(stream)
                    .answer(context.now, signal.max_age);
                next.add(answer.next_change_at);
                answer.reading
            });
            #[cfg(feature = "plant")]
            let reading = planted_reading(reading, *stream, context);
            if streams.len() <= Self::FEW {
                self.few[index] = reading;
            } else {
                self.many.push(reading);
            }
        }
    }

    pub(super) fn as_slice(&self) -> &[Reading] {
        if self.len <= Self::FEW {
            &self.few[..self.len]
        } else {
            &self.many
        }
    }
}

/// The reading as the planted bugs see it.
#[cfg(feature = "plant")]
fn planted_reading(reading: Reading, stream: Option<StreamId>, context: &Context<'_>) -> Reading {
    use crate::plant::Plant;
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
