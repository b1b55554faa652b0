//! The publisher: carries a leader's outbox to the streams, as the daemon's does.
//!
//! It greets (reads where the streams end, and tells the engine), then publishes what they lack,
//! and begins anew whenever something does not add up.

use std::collections::BTreeMap;
use std::sync::Arc;

use sunward_core::event::{Event, StreamEnd};
use sunward_core::protocol::outbox::Cursor;
use sunward_core::time::Span;

use super::daemon::Ticket;
use super::streams::Refused;
use super::{Happening, World};
use crate::fault::Fault;

/// Envelopes of one federation that are handed over at once.
const BATCH: usize = 256;
/// An idle stream is looked at this often.
const PROBE: Span = Span::from_secs(30);

/// How far a publisher is with the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Lost,
    /// A greeting is on its way through the journal.
    Greeting,
    Connected,
}

/// Where a publisher stands.
#[derive(Debug, Default)]
pub(super) struct Driver {
    stage: Stage,
    greeted_in: u64,
    losses: u32,
    told_down: bool,
    turn_planned: bool,
    pub(super) positions: BTreeMap<Arc<str>, Cursor>,
}

fn sink() -> Arc<str> {
    "redis".into()
}

impl World<'_> {
    /// The publisher looks soon.
    pub(super) fn publish_soon(&mut self, replica: usize) {
        self.turn_after(replica, Span::from_millis(2));
    }

    fn turn_after(&mut self, replica: usize, wait: Span) {
        let driver = &mut self.replicas[replica].sink;
        if driver.turn_planned && wait >= PROBE {
            return;
        }
        driver.turn_planned = true;
        let life = self.life(replica);
        self.after(wait, Happening::Sink(life));
    }

    /// One turn of the publisher.
    pub(super) fn publish_turn(&mut self, replica: usize) {
        let known = &mut self.replicas[replica];
        known.sink.turn_planned = false;
        if !known.is_leading() || known.sink.stage == Stage::Greeting {
            return;
        }
        if self.streams.is_away(self.now) {
            return self.lost_sink(replica);
        }
        if known.engine.state().term != known.sink.greeted_in {
            known.sink.stage = Stage::Lost;
        }
        if known.sink.stage != Stage::Connected {
            return self.greet(replica);
        }
        if self.log.keep && !self.probe(replica) {
            return self.lost_sink(replica);
        }
        self.publish(replica);
    }

    /// True where every stream ends where it was left.
    fn probe(&self, replica: usize) -> bool {
        let positions = &self.replicas[replica].sink.positions;
        let ends = |(federation, left): (&Arc<str>, &Cursor)| self.streams.end(federation) == *left;
        positions.iter().all(ends)
    }

    fn greet(&mut self, replica: usize) {
        let ends = self.streams.ends();
        if let Some(highest) = ends.iter().max_by_key(|end| end.term) {
            let object = format!("stream:{}", highest.federation).into();
            if !self.saw_term(replica, &object, highest.term) {
                if self.replicas[replica].is_leading() {
                    self.turn_after(replica, Span::from_millis(20));
                }
                return;
            }
        }
        let driver = &mut self.replicas[replica].sink;
        driver.stage = Stage::Greeting;
        let taken = driver.positions.iter();
        let taken = taken.map(|(federation, cursor)| StreamEnd {
            federation: federation.clone(),
            term: cursor.term,
            sequence: cursor.sequence,
        });
        let taken = taken.collect();
        let event = Event::SinkUp {
            sink: sink(),
            ends,
            taken,
        };
        self.tell(replica, vec![event], Ticket::Greeting);
    }

    /// The greeting is durable and stepped.
    pub(super) fn greeted(&mut self, replica: usize) {
        let known = &mut self.replicas[replica];
        let driver = &mut known.sink;
        driver.stage = Stage::Connected;
        driver.losses = 0;
        driver.told_down = false;
        driver.greeted_in = known.engine.state().term;
        driver.positions.clear();
        for federation in known.engine.state().federations.keys() {
            let end = self.streams.end(federation);
            driver.positions.insert(federation.clone(), end);
        }
        self.publish_soon(replica);
    }

    fn publish(&mut self, replica: usize) {
        let federations = self.replicas[replica].engine.state().federations.keys();
        let federations: Vec<Arc<str>> = federations.cloned().collect();
        for federation in federations {
            let known = &self.replicas[replica];
            let Some(after) = known.sink.positions.get(&federation).copied() else {
                self.replicas[replica].sink.stage = Stage::Lost;
                return self.publish_soon(replica);
            };
            let known = &known.engine.state().federations[&federation];
            let pending = known.after(after.term, after.sequence, BATCH);
            if pending.is_empty() {
                continue;
            }
            let published = self.streams.publish(self.now, &pending);
            match published {
                Ok(gaps) => self.report_gaps(&federation, &gaps),
                Err(Refused::Away) => return self.lost_sink(replica),
                Err(Refused::Fenced(end)) => {
                    let object = format!("stream:{federation}").into();
                    if self.saw_term(replica, &object, end.term) {
                        self.lost_sink(replica);
                    }
                    return;
                }
            }
            if self.armed_publishes > 0 {
                self.armed_publishes -= 1;
                self.count(Fault::PublishReplyLost);
                return self.lost_sink(replica);
            }
            if let Some(gate) = &mut self.replicas[replica].gate {
                gate.wrote(&format!("stream:{federation}").into());
            }
            if let Some(last) = pending.last() {
                let cursor = Cursor::of(last);
                self.log.cursors.insert(federation.clone(), cursor);
                self.replicas[replica]
                    .sink
                    .positions
                    .insert(federation, cursor);
            }
        }
        if self.log.keep {
            self.turn_after(replica, PROBE);
        }
    }

    fn report_gaps(&mut self, federation: &str, gaps: &[(u64, u64)]) {
        let Some(checks) = &mut self.checks else {
            return;
        };
        for (before, after) in gaps {
            let detail = format!("federation {federation}: {before} is followed by {after}");
            checks.report(self.now, "events: sequence without gap or repeat", detail);
        }
    }

    fn lost_sink(&mut self, replica: usize) {
        let driver = &mut self.replicas[replica].sink;
        driver.stage = Stage::Lost;
        driver.losses = driver.losses.saturating_add(1);
        let wait = Span::from_millis((100_i64 << driver.losses.min(6)).min(5_000));
        let tell = !std::mem::replace(&mut driver.told_down, true);
        if tell {
            let event = Event::SinkDown {
                sink: sink(),
                reason: "connection reset".to_owned(),
            };
            self.tell(replica, vec![event], Ticket::Nobody);
        }
        self.turn_after(replica, wait);
    }
}
