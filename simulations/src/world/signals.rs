//! Sources of readings, and the partners' way into the daemon: post, wait, post again.

use std::sync::Arc;

use sunward_core::event::Event;
use sunward_core::signal::{Level, Quality, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_core::units::{Basis, Kind};

use super::daemon::{Entry, Ticket};
use super::{Happening, World};
use crate::accounting::CarbonLevel;
use crate::fault::Fault;
use crate::scenario::Scenario;
use crate::trace::Sample;

/// One source of one stream.
#[derive(Debug)]
pub(super) struct Source {
    stream: StreamKey,
    samples: Vec<Sample>,
    next: usize,
    /// When it sends that one.
    due: Option<Timestamp>,
    lag: Span,
    silent_until: Timestamp,
    /// Silent until then by a fault.
    pub(super) out_until: Timestamp,
    /// Nothing but zeros until then.
    pub(super) zero_until: Timestamp,
    /// An issue that is spoiled: never sent, or so much later.
    spoiled: Option<(Timestamp, Option<Span>)>,
    /// The site whose workers' draw is missing from its values.
    drawn_at: Option<usize>,
    /// The sites whose carbon it measures.
    sites: Vec<usize>,
    /// The last value that they were told, and the level that it is.
    noted: (Option<f64>, CarbonLevel),
}

impl Source {
    /// The next sample is the one at `next`.
    fn turn_to(&mut self, next: usize) {
        self.next = next;
        let sent_at = |sample: &Sample| {
            let late = match self.spoiled {
                Some((issue, Some(late))) if sample.issued_at == Some(issue) => late,
                _ => Span::ZERO,
            };
            sample.issued_at.unwrap_or(sample.from) + self.lag + late
        };
        self.due = self.samples.get(next).map(sent_at);
    }

    /// The issue that it sends next, if it looks ahead.
    pub(super) fn next_issue(&self) -> Option<Timestamp> {
        self.samples.get(self.next)?.issued_at
    }

    /// The next issue comes so much later, or never.
    pub(super) fn spoil_issue(&mut self, late: Option<Span>) {
        self.spoiled = self.next_issue().map(|issue| (issue, late));
        self.turn_to(self.next);
    }
}

/// A reading on its way.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) level: Level,
}

fn quality(value: Option<f64>, issued_at: Option<Timestamp>) -> Quality {
    match (value, issued_at) {
        (None, _) => Quality::Missing,
        (Some(_), Some(_)) => Quality::Forecast,
        (Some(_), None) => Quality::Measured,
    }
}

/// Readings of a quiet world, on their way into the next group. The events of the last group are
/// written over in place, since most sources send most of the time.
#[derive(Debug, Default)]
pub(super) struct Batch {
    events: Vec<Event>,
    sources: Vec<usize>,
    len: usize,
}

impl Batch {
    /// The next event's level, where the last group had that source at this place; it then counts
    /// as put.
    fn slot(&mut self, source: usize) -> Option<&mut Level> {
        if self.sources.get(self.len) != Some(&source) {
            return None;
        }
        match self.events.get_mut(self.len) {
            Some(Event::SignalAccepted(level)) => {
                self.len += 1;
                Some(level)
            }
            _ => None,
        }
    }

    fn put(&mut self, source: usize, event: Event) {
        self.events.truncate(self.len);
        self.sources.truncate(self.len);
        self.events.push(event);
        self.sources.push(source);
        self.len += 1;
    }

    /// What waits.
    pub(super) fn events(&self) -> &[Event] {
        &self.events[..self.len]
    }

    /// It was taken.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

/// The sources of a scenario.
pub(super) fn sources(scenario: &Scenario, seed: u64) -> Vec<Source> {
    let sites: Vec<_> = scenario.fleet.sites().collect();
    let source = |spec: &crate::scenario::SourceSpec| {
        let lies_in = |site: &sunward_core::fleet::Site| match &spec.stream.scope {
            sunward_core::signal::Scope::Site(name) => site.name == *name,
            sunward_core::signal::Scope::Zone { scheme, code } => {
                site.zones.get(scheme.as_ref()) == Some(code)
            }
        };
        let carbon = spec.stream.kind == Kind::CarbonIntensity;
        let measured = sites
            .iter()
            .enumerate()
            .filter(|(_, site)| carbon && lies_in(site));
        let mut source = Source {
            stream: spec.stream.clone(),
            samples: scenario.samples(spec, seed),
            next: 0,
            due: None,
            lag: spec.lag,
            silent_until: spec.silent_until,
            out_until: Timestamp::MIN,
            zero_until: Timestamp::MIN,
            spoiled: None,
            drawn_at: drawn_at(&sites, spec),
            sites: measured.map(|(index, _)| index).collect(),
            noted: (None, CarbonLevel::Missing),
        };
        source.turn_to(0);
        source
    };
    scenario.sources.iter().map(source).collect()
}

fn drawn_at(
    sites: &[&sunward_core::fleet::Site],
    spec: &crate::scenario::SourceSpec,
) -> Option<usize> {
    let sunward_core::signal::Scope::Site(name) = &spec.stream.scope else {
        return None;
    };
    let here = |site: &&sunward_core::fleet::Site| site.name == *name;
    sites.iter().position(here).filter(|_| spec.own_draw)
}

impl World<'_> {
    /// Plans the next instant at which some source sends.
    pub(super) fn plan_emit(&mut self) {
        let next = self.sources.iter().filter_map(|source| source.due).min();
        if let Some(at) = next {
            self.push(at, Happening::Emit);
        }
    }

    /// Sends every reading that is due.
    pub(super) fn emit(&mut self) {
        for index in 0..self.sources.len() {
            while self.sources[index].due.is_some_and(|at| at <= self.now) {
                self.emit_next(index);
            }
        }
        if !self.batch.events().is_empty() {
            self.kick_soon(0);
        }
        self.plan_emit();
    }

    fn emit_next(&mut self, index: usize) {
        let source = &mut self.sources[index];
        let (number, mut sample) = (source.next, source.samples[source.next]);
        source.turn_to(number + 1);
        let never =
            sample.issued_at.is_some() && source.spoiled == sample.issued_at.map(|at| (at, None));
        let zero = source.zero_until > self.now;
        let out = source.out_until.max(source.silent_until) > self.now;
        self.note_carbon(index, &sample);
        if out || never {
            return;
        }
        if let Some(site) = self.sources[index].drawn_at {
            let draw = self.clusters.draw_kw(site);
            sample.value = sample
                .value
                .map(|value| crate::generate::grid(value - draw));
        }
        if self.log.keep {
            let level = self.level(index, number, &sample, zero);
            return self.send_reading(Reading { level });
        }
        // Nobody can be away and nobody asks again: it is in the next group.
        let measured = sample.issued_at.is_none();
        if let Some(level) = measured.then(|| self.batch.slot(index)).flatten() {
            (level.valid_from, level.valid_to, level.value) =
                (sample.from, sample.to, sample.value);
            (level.quality, level.issued_at) = (quality(sample.value, None), None);
        } else {
            let level = self.level(index, number, &sample, zero);
            self.batch.put(index, Event::SignalAccepted(level));
        }
    }

    /// What a site's energy costs from now on, whatever the daemon hears of it.
    fn note_carbon(&mut self, index: usize, sample: &Sample) {
        let source = &mut self.sources[index];
        if source.sites.is_empty() || sample.issued_at.is_some() {
            return;
        }
        if source.noted.0 != sample.value {
            let level = sample.value.map(CarbonLevel::from_grams);
            source.noted = (sample.value, level.unwrap_or(CarbonLevel::Missing));
        }
        let average = source.stream.basis == Some(Basis::Average);
        for site in &source.sites {
            self.accounts
                .carbon(*site, self.now, source.noted.1, average);
        }
    }

    fn level(&self, index: usize, number: usize, sample: &Sample, zero: bool) -> Level {
        let value = if zero { Some(0.0) } else { sample.value };
        let id: Arc<str> = if self.log.keep {
            format!("{index}-{number}").into()
        } else {
            self.blank.clone()
        };
        Level {
            id,
            stream: self.sources[index].stream.clone(),
            valid_from: sample.from,
            valid_to: sample.to,
            value,
            quality: quality(value, sample.issued_at),
            issued_at: sample.issued_at,
            sequence: None,
        }
    }

    /// One reading, with whatever happens to it on the way.
    fn send_reading(&mut self, mut reading: Reading) {
        let fault = self.armed_signals.pop_front();
        if let Some(fault) = fault {
            self.count(fault);
        }
        let dice = &mut self.dice.partners;
        let trip = dice.span(Span::from_millis(5), Span::from_millis(400));
        let late = dice.span(Span::from_secs(20), Span::from_mins(20));
        match fault {
            Some(Fault::SignalMissing) => return,
            Some(Fault::SignalLate) => return self.after(late, Happening::Deliver(reading.into())),
            Some(Fault::SignalReordered) => {
                let length = reading.level.valid_to - reading.level.valid_from;
                let wait = length + Span::from_secs(10);
                return self.after(wait, Happening::Deliver(reading.into()));
            }
            Some(Fault::SignalDuplicated) => {
                self.after(trip, Happening::Deliver(reading.clone().into()));
            }
            Some(Fault::SignalGap) => {
                reading.level.value = None;
                reading.level.quality = Quality::Missing;
            }
            _ => {}
        }
        self.after(trip, Happening::Deliver(reading.into()));
    }

    /// A POST reaches the service: whoever holds the lease takes it, or nobody does.
    pub(super) fn deliver(&mut self, reading: Reading) {
        let leader = self.holder.filter(|r| {
            let replica = &self.replicas[*r];
            replica.is_leading() && replica.frozen_until <= self.now
        });
        let Some(leader) = leader else {
            return self.post_again(reading);
        };
        let events = vec![Event::SignalAccepted(reading.level.clone())];
        let ticket = Ticket::Reading(reading);
        self.replicas[leader]
            .inbox
            .push_back(Entry { events, ticket });
        self.kick_soon(leader);
    }

    /// The sender's answer; it may get lost, and then the same comes again.
    pub(super) fn acknowledge(&mut self, reading: Reading) {
        if let Some(checks) = &mut self.checks {
            let durable = self.log.has(&reading.level.id);
            checks.acknowledged(self.now, &reading.level.id, durable);
            self.progress.acknowledged.push(reading.level.id.clone());
        }
        if self.armed_answers > 0 {
            self.armed_answers -= 1;
            self.count(Fault::AnswerLost);
            self.post_again(reading);
        }
    }

    /// No answer: the sender tries again.
    pub(super) fn post_again(&mut self, reading: Reading) {
        let wait = self
            .dice
            .partners
            .span(Span::from_secs(1), Span::from_secs(5));
        self.after(wait, Happening::Deliver(reading.into()));
    }

    /// What these tickets waited for did not happen.
    pub(super) fn send_again(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            if let Ticket::Reading(reading) = ticket {
                self.post_again(reading);
            }
        }
    }
}
