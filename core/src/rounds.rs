//! Federations: what their members are told, in which order, and what was told already.
//!
//! Envelopes are engine state: every replica and every snapshot holds the same outbox, so a sink
//! only needs a cursor. The sequence is continuous per federation, over leaders.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sunward_policies::time::Timestamp;

use crate::action::{Action, Cause, Effects, Envelope, EventKind};
use crate::event::StreamEnd;

/// Envelopes kept per federation, published or not.
pub const OUTBOX_MAX: usize = 10_000;

/// The federation of a pool that is in none.
pub const NO_FEDERATION: &str = "_none";

/// Where a site stands in a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// No worker is wanted.
    Away,
    /// Workers are wanted, none can train yet.
    Joining,
    /// At least one worker can train.
    Ready,
}

impl Presence {
    /// The value of `state` in the site's hash.
    pub fn as_str(self) -> &'static str {
        match self {
            Presence::Away => "drained",
            Presence::Joining => "joining",
            Presence::Ready => "ready",
        }
    }
}

/// A site as its members see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteState {
    /// Where it stands.
    pub presence: Presence,
    /// The envelope that said so last.
    pub sequence: u64,
    /// That envelope's term.
    pub term: u64,
    /// Since when.
    pub since: Timestamp,
}

/// One federation's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Federation {
    /// Sequence of the last envelope.
    pub sequence: u64,
    /// The last [`OUTBOX_MAX`] envelopes, oldest first.
    pub outbox: VecDeque<Envelope>,
    /// Sites that were ever present.
    pub sites: BTreeMap<Arc<str>, SiteState>,
}

impl Federation {
    /// Moves a site to where its workers put it, and says so.
    pub fn settle_site(
        &mut self,
        name: &Arc<str>,
        site: &Arc<str>,
        wanted: u32,
        ready: u32,
        issue: &Issuer<'_>,
        out: &mut Effects,
    ) {
        let before = self
            .sites
            .get(site)
            .map_or(Presence::Away, |state| state.presence);
        let after = match (wanted, ready) {
            (0, _) => Presence::Away,
            (_, 0) if before == Presence::Ready => Presence::Ready,
            (_, 0) => Presence::Joining,
            _ => Presence::Ready,
        };
        if before == after && !(planted!(issue.plant, DoubleDrain) && ready > 0 && wanted == 0) {
            return;
        }
        if planted!(issue.plant, LostStop) && before == Presence::Joining && wanted == 0 {
            if let Some(state) = self.sites.get_mut(site) {
                state.presence = after;
            }
            return;
        }
        let mut say = |kind| self.issue(name, site, kind, after, issue, out);
        if after == Presence::Away {
            say(EventKind::SiteDraining);
            // A site without participants has nothing to bring home: its leave is done at once.
            say(EventKind::SiteDrained);
            return;
        }
        if before == Presence::Away {
            say(EventKind::SiteJoining);
        }
        if after == Presence::Ready {
            say(EventKind::SiteReady);
        }
    }

    /// Says that the share of training power that a site may use has changed.
    pub fn limit_power(
        &mut self,
        name: &Arc<str>,
        site: &Arc<str>,
        power: Power,
        issuer: &Issuer<'_>,
        out: &mut Effects,
    ) {
        let known = self.sites.get(site);
        let (presence, since) = known.map_or((Presence::Away, issuer.at), |known| {
            (known.presence, known.since)
        });
        let place = (name, site, EventKind::SitePower, presence);
        self.append(place, Some(power), issuer, out);
        // Where the site stands did not change.
        if let Some(state) = self.sites.get_mut(site) {
            state.since = since;
        }
    }

    fn issue(
        &mut self,
        federation: &Arc<str>,
        site: &Arc<str>,
        kind: EventKind,
        presence: Presence,
        issuer: &Issuer<'_>,
        out: &mut Effects,
    ) {
        self.append((federation, site, kind, presence), None, issuer, out);
    }

    fn append(
        &mut self,
        (federation, site, kind, presence): (&Arc<str>, &Arc<str>, EventKind, Presence),
        power: Option<Power>,
        issuer: &Issuer<'_>,
        out: &mut Effects,
    ) {
        if planted!(issuer.plant, SequenceGap)
            && self
                .outbox
                .back()
                .is_some_and(|last| last.term != issuer.term)
        {
            self.sequence += 1;
        }
        self.sequence += 1;
        let envelope = Envelope {
            id: format!("{}-{}", issuer.term, self.sequence).into(),
            term: issuer.term,
            sequence: self.sequence,
            federation: federation.clone(),
            kind,
            site: site.clone(),
            time: issuer.at,
            deadline: power.and_then(|power| power.deadline),
            power_percent: power.map(|power| power.percent),
            cause: issuer.cause.clone(),
        };
        let state = SiteState {
            presence,
            sequence: self.sequence,
            term: issuer.term,
            since: issuer.at,
        };
        self.sites.insert(site.clone(), state);
        if self.outbox.len() == OUTBOX_MAX {
            self.outbox.pop_front();
        }
        self.outbox.push_back(envelope.clone());
        out.actions.push(Action::Broadcast(envelope));
    }

    /// A sink is connected and its stream ends at `end`: what it does not have yet is issued anew
    /// under `term`, under the same ids, with the sequence going on from the stream's end.
    ///
    /// Where that end is an envelope of ours, what follows it is what the sink lacks. Where it
    /// lies before everything that is kept, nothing is renumbered: members see the gap. Else the
    /// stream was written by a journal that this one does not know (this one is empty or was
    /// restored), and what the sink lacks is what comes after `taken`.
    pub fn resume(&mut self, end: &StreamEnd, taken: Option<&StreamEnd>, term: u64) {
        let at_end = |e: &Envelope| (e.term, e.sequence) == (end.term, end.sequence);
        let first_lacking = match self.outbox.iter().rposition(at_end) {
            Some(index) => index + 1,
            None if self.lies_before_outbox(end) => return,
            None => {
                let taken = taken.map_or((0, 0), |taken| (taken.term, taken.sequence));
                self.outbox
                    .partition_point(|e| (e.term, e.sequence) <= taken)
            }
        };
        let mut sequence = end.sequence;
        for envelope in self.outbox.range_mut(first_lacking..) {
            sequence += 1;
            envelope.term = term;
            envelope.sequence = sequence;
            if let Some(state) = self.sites.get_mut(&envelope.site) {
                state.term = term;
                state.sequence = sequence;
            }
        }
        self.sequence = if first_lacking < self.outbox.len() {
            sequence
        } else {
            self.sequence.max(sequence)
        };
    }

    /// True when the outbox was trimmed and `end` belongs to what was.
    fn lies_before_outbox(&self, end: &StreamEnd) -> bool {
        self.outbox.len() == OUTBOX_MAX
            && self
                .outbox
                .front()
                .is_some_and(|first| end.term <= first.term && end.sequence < first.sequence)
    }

    /// Up to `max` envelopes after `(term, sequence)`, oldest first.
    pub fn after(&self, term: u64, sequence: u64, max: usize) -> Vec<Envelope> {
        let start = self
            .outbox
            .partition_point(|envelope| (envelope.term, envelope.sequence) <= (term, sequence));
        self.outbox.range(start..).take(max).cloned().collect()
    }
}

/// The share of training power that a site may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// In percent of the nameplate.
    pub percent: u8,
    /// By when the participants must have come down to it; `None` where they may go up.
    pub deadline: Option<Timestamp>,
}

/// Who issues an envelope, when and why.
#[derive(Clone, Copy, Debug)]
pub struct Issuer<'a> {
    /// The current term.
    pub term: u64,
    /// The group's stamp.
    pub at: Timestamp,
    /// Why.
    pub cause: &'a Cause,
    /// A planted bug.
    #[cfg(feature = "plant")]
    pub plant: Option<crate::plant::Plant>,
}

impl<'a> Issuer<'a> {
    /// Issued in `term` at `at`, because of `cause`.
    pub fn new(term: u64, at: Timestamp, cause: &'a Cause) -> Issuer<'a> {
        Issuer {
            term,
            at,
            cause,
            #[cfg(feature = "plant")]
            plant: None,
        }
    }
}
