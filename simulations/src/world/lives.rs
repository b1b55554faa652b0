//! Life and death of daemons: who leads, who stands by, who is gone.
//!
//! One lease, as in a cluster: it is renewed while its holder lives, and runs out some time after
//! it died or froze. A former holder that goes on is stopped by the journal and by the objects.

use sunward_core::engine::Engine;
use sunward_core::event::{Event, PackedFile};
use sunward_core::time::{Span, Timestamp};

use super::daemon::Ticket;
use super::disturb::Ending;
use super::{Happening, World};
use crate::fault::Fault;

/// How long a lease holds without being renewed.
const LEASE: Span = Span::from_secs(15);

impl World<'_> {
    /// Takes the lease and leads: a term above everything that can be read, then `started`.
    pub(super) fn take_lease(&mut self, replica: usize) {
        self.holder = Some(replica);
        self.catch_up(replica);
        let mut term = self.replicas[replica].engine.state().term;
        term = term.max(self.clusters.highest_term(self.now));
        if !self.streams.is_away(self.now) {
            let ends = self.streams.ends();
            term = ends.iter().map(|end| end.term).fold(term, u64::max);
        }
        let tickets = self.replicas[replica].forget();
        self.send_again(tickets);
        let known = &mut self.replicas[replica];
        known.gate = Some((self.options.core.gate)(term + 1));
        known.sink.positions = self.log.cursors.clone();
        self.begin_term(replica, term + 1);
        if self.replicas[replica].engine.fleet().pools().is_empty() {
            let fleet = PackedFile::pack(&self.scenario.fleet_file);
            let files = self.scenario.policy_files.iter().map(PackedFile::pack);
            let files = files.collect();
            let both = vec![
                Event::FleetReplaced { file: fleet },
                Event::PoliciesReplaced { files },
            ];
            self.tell(replica, both, Ticket::Nobody);
        }
        self.list_everything(replica);
        self.publish_soon(replica);
    }

    /// The gate has closed: nothing more is written. A standby goes on reading; a daemon alone
    /// stays up until somebody restarts it.
    pub(super) fn resigned(&mut self, replica: usize) {
        self.write_down(&format!("replica {replica} resigns"));
        let tickets = self.replicas[replica].forget();
        self.send_again(tickets);
        self.catch_up(replica);
        if self.replicas.len() == 1 {
            return self.after(
                Span::from_secs(30),
                Happening::Ends(Ending::Restart(replica)),
            );
        }
        if self.holder == Some(replica) {
            self.holder = None;
            self.after(Span::from_secs(1), Happening::Lease);
        }
    }

    /// Kills a process. Its lease runs out by itself.
    pub(super) fn kill(&mut self, replica: usize) {
        let down = self
            .dice
            .faults
            .span(Span::from_secs(3), Span::from_secs(60));
        self.kill_for(replica, down);
    }

    /// The same; it is started again after `down`.
    pub(super) fn kill_for(&mut self, replica: usize, down: Span) {
        let tickets = self.replicas[replica].forget();
        self.send_again(tickets);
        let known = &mut self.replicas[replica];
        known.alive = false;
        known.life += 1;
        known.tailing = false;
        known.frozen_until = Timestamp::MIN;
        self.after(down, Happening::Ends(Ending::Restart(replica)));
        if self.holder == Some(replica) && self.replicas.len() > 1 {
            self.after(LEASE, Happening::Lease);
        }
    }

    /// The journal is lost: objects and streams are as they were, and whoever wrote them is gone.
    pub(super) fn lose_journal(&mut self) {
        self.count(Fault::JournalLost);
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].alive {
                self.kill(replica);
            }
        }
        self.log.lose();
        self.progress.looked_at = 0;
        self.progress.acknowledged.clear();
        if let Some(checks) = &mut self.checks {
            let streams = &self.streams;
            checks.journal_lost(&|federation, id| streams.has_acted(federation, id));
        }
    }

    /// Nothing is known from the journal, and nobody answers who could say what went before.
    fn is_blind(&self) -> bool {
        let away = |cluster| self.clusters.is_away(cluster, self.now);
        self.log.last() == 0
            && self.now > self.scenario.start
            && self.streams.is_away(self.now)
            && (0..self.clusters.servers.len()).all(away)
    }

    /// A process comes back: snapshot, then the log.
    pub(super) fn restart(&mut self, replica: usize) {
        if self.is_blind() {
            // It would begin at term 1, and what it says could carry an id of the lost journal: nothing
            // in the world tells the two apart. Here somebody starts it once something answers.
            let again = Happening::Ends(Ending::Restart(replica));
            return self.after(Span::from_secs(10), again);
        }
        let state = self.log.snapshot.as_ref();
        let state = state.and_then(|(_, bytes)| Engine::decode_snapshot(bytes).ok());
        self.replicas[replica].engine = (self.options.core.engine)(state.unwrap_or_default());
        self.replicas[replica].alive = true;
        self.catch_up(replica);
        self.write_down(&format!("replica {replica} is back"));
        if self.replicas.len() == 1 {
            self.take_lease(replica);
        } else if self.holder.is_none() {
            self.after(Span::from_secs(1), Happening::Lease);
        }
    }

    /// Stands still for a while. Its lease may run out meanwhile.
    pub(super) fn freeze(&mut self, replica: usize, length: Span) {
        self.replicas[replica].frozen_until = self.now + length;
        if length > LEASE && self.replicas.len() > 1 && self.holder == Some(replica) {
            self.after(LEASE, Happening::Lease);
        }
    }

    pub(super) fn lease_due(&mut self) {
        let able = |r: &usize| {
            let replica = &self.replicas[*r];
            replica.alive && replica.frozen_until <= self.now
        };
        if self
            .holder
            .filter(able)
            .is_some_and(|r| self.replicas[r].is_leading())
        {
            return;
        }
        let able: Vec<usize> = (0..self.replicas.len()).filter(able).collect();
        if let Some(next) = able.get(self.dice.lease.below(able.len())) {
            return self.take_lease(*next);
        }
        self.holder = None;
        self.after(Span::from_secs(5), Happening::Lease);
    }

    /// Who acts at this moment, if anyone can.
    pub(super) fn acting(&self) -> Option<usize> {
        self.holder.filter(|r| {
            let replica = &self.replicas[*r];
            replica.is_leading() && replica.frozen_until <= self.now
        })
    }
}
