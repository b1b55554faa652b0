//! What goes wrong: each kind of fault by its rate, at drawn instants, until the faults end.
//!
//! A fault that needs something to strike (a call, a reading, a host) is armed and counted only
//! when it does.

use sunward_core::event::{Event, PackedFile};
use sunward_core::time::{Span, Timestamp};
use sunward_policies::document::SourceFile;

use super::daemon::Ticket;
use super::{Happening, Life, World};
use crate::fault::Fault;

/// Faults of one family that wait for something to strike, at most.
const ARMED_MAX: usize = 16;

/// The end of a lasting fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// An API server has been away long enough to be called unreachable.
    ApiMissed(usize),
    /// An API server is back.
    ApiBack(usize),
    /// A process starts again.
    Restart(usize),
    /// A wall clock is right again.
    Clock(Life),
    /// The time of the override of this number is over.
    Override(u64),
    /// No more faults.
    Everything,
}

impl World<'_> {
    pub(super) fn plan_faults(&mut self) {
        let scenario = self.scenario;
        for (fault, rate) in &scenario.faults {
            if *rate > 0.0 {
                self.plan_next(*fault, *rate);
            }
        }
        self.push(scenario.faults_end, Happening::Ends(Ending::Everything));
    }

    fn plan_next(&mut self, fault: Fault, rate: f64) {
        let sites = self.scenario.fleet.sites().count() as f64;
        let mean = Span::from_millis((3_600_000.0 / (rate * sites)) as i64);
        let at = self.now + self.dice.faults.around(mean);
        if at < self.scenario.faults_end {
            self.push(at, Happening::Strike(fault));
        }
    }

    /// From `low` to `high`, but not beyond the end of the faults.
    fn fault_span(&mut self, low: Span, high: Span) -> Span {
        let span = self.dice.faults.span(low, high);
        span.min((self.scenario.faults_end - self.now).max(Span::ZERO))
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        let rate = self.scenario.faults.iter().find(|(kind, _)| *kind == fault);
        if let Some((_, rate)) = rate {
            self.plan_next(fault, *rate);
        }
        match fault {
            Fault::SignalLate
            | Fault::SignalDuplicated
            | Fault::SignalReordered
            | Fault::SignalMissing
            | Fault::SignalGap => arm(&mut self.armed_signals, fault),
            Fault::CallLost
            | Fault::ReplyLost
            | Fault::ReplyDuplicated
            | Fault::CallLate
            | Fault::CallError
            | Fault::Conflict => arm(&mut self.armed_calls, fault),
            Fault::HostDead | Fault::HostSlow | Fault::DeleteStuck => {
                arm(&mut self.armed_hosts, fault);
            }
            Fault::AnswerLost => self.armed_answers = (self.armed_answers + 1).min(8),
            Fault::PublishReplyLost => self.armed_publishes = 1,
            Fault::LeaderKilledInCommit => self.armed_kills = 1,
            Fault::SignalOutage | Fault::SignalZero => self.strike_source(fault),
            Fault::ApiAway | Fault::ForeignScale => self.strike_cluster(fault),
            Fault::RedisAway
            | Fault::RedisRestarted
            | Fault::RedisEmptied
            | Fault::RedisRolledBack => self.strike_redis(fault),
            Fault::LeaderKilled
            | Fault::LeaderAway
            | Fault::LeaderFrozen
            | Fault::ClockStepped
            | Fault::PolicyBroken
            | Fault::CacheStale
            | Fault::WatchLate => self.strike_leader(fault),
            Fault::FollowerKilled => self.strike_follower(),
            Fault::JournalLost => self.lose_journal(),
            Fault::ForecastLate | Fault::ForecastMissing => self.strike_forecast(fault),
            Fault::OverrideExpired => {}
            Fault::OverrideSet | Fault::OverrideCleared => self.operate(fault),
            Fault::GridDispatch
            | Fault::GridLimit
            | Fault::GridEmergency
            | Fault::GridTest
            | Fault::GridRevised
            | Fault::GridCancelled => self.call(fault),
            Fault::BudgetNearlySpent => self.set_budget(),
        }
    }

    fn strike_source(&mut self, fault: Fault) {
        let source = self.dice.faults.below(self.sources.len());
        let until = self.now + self.fault_span(Span::from_mins(8), Span::from_mins(60));
        let Some(source) = self.sources.get_mut(source) else {
            return;
        };
        if fault == Fault::SignalOutage {
            source.out_until = until;
        } else {
            source.zero_until = until;
        }
        self.count(fault);
    }

    /// The next issue of some forecast.
    fn strike_forecast(&mut self, fault: Fault) {
        let ahead = |source: &&mut super::signals::Source| source.next_issue().is_some();
        let mut ahead: Vec<_> = self.sources.iter_mut().filter(ahead).collect();
        let which = self.dice.faults.below(ahead.len());
        let late = self
            .dice
            .faults
            .span(Span::from_mins(20), Span::from_mins(300));
        let Some(source) = ahead.get_mut(which) else {
            return;
        };
        source.spoil_issue((fault == Fault::ForecastLate).then_some(late));
        self.note_fault(fault);
    }

    fn strike_cluster(&mut self, fault: Fault) {
        if fault == Fault::ApiAway {
            let server = self.dice.faults.below(self.clusters.servers.len());
            let away = self.fault_span(Span::from_secs(10), Span::from_mins(8));
            let hangs = self.dice.faults.chance(0.3);
            if self.clusters.is_away(server, self.now) {
                return;
            }
            self.count(fault);
            self.clusters.servers[server].away_until = self.now + away;
            self.clusters.servers[server].hangs = hangs;
            self.after(
                Span::from_secs(3),
                Happening::Ends(Ending::ApiMissed(server)),
            );
            return self.after(away, Happening::Ends(Ending::ApiBack(server)));
        }
        let pool = self.dice.faults.below(self.clusters.homes.len());
        let home = &self.clusters.homes[pool];
        let wanted = self.dice.faults.below(home.pool.max_workers as usize + 1) as u32;
        if home.wanted == wanted || self.clusters.is_away(home.cluster, self.now) {
            return;
        }
        let name = home.pool.name.clone();
        self.count(fault);
        if let Some(checks) = &mut self.checks {
            checks.history.foreign(&name);
        }
        self.set_wanted(pool, wanted);
        self.home_changed(pool);
    }

    /// The cluster that the options name is gone, as long as the run lasts.
    pub(super) fn break_cluster(&mut self) {
        let name = self.options.broken.as_ref().map(|(name, _)| name);
        let mut servers = self.clusters.servers.iter_mut().enumerate();
        let found = servers.find(|(_, server)| Some(&server.name) == name);
        if let Some((number, server)) = found {
            server.away_until = Timestamp::MAX;
            server.hangs = true;
            let missed = Happening::Ends(Ending::ApiMissed(number));
            self.after(Span::from_secs(3), missed);
        }
    }

    fn strike_redis(&mut self, fault: Fault) {
        let away = match fault {
            Fault::RedisAway => self.fault_span(Span::from_secs(10), Span::from_mins(5)),
            _ => self.fault_span(Span::from_secs(1), Span::from_secs(5)),
        };
        self.count(fault);
        self.streams.away_until = self.streams.away_until.max(self.now + away);
        match fault {
            Fault::RedisEmptied => self.streams.empty(),
            Fault::RedisRolledBack => self.streams.roll_back(),
            _ => {}
        }
    }

    fn strike_leader(&mut self, fault: Fault) {
        let Some(leader) = self.acting() else {
            return;
        };
        self.count(fault);
        match fault {
            Fault::LeaderKilled => self.kill(leader),
            Fault::LeaderAway => {
                let away = self.fault_span(Span::from_mins(10), Span::from_mins(120));
                self.kill_for(leader, away.max(Span::from_secs(3)));
            }
            Fault::LeaderFrozen => {
                let length = self
                    .dice
                    .faults
                    .span(Span::from_secs(2), Span::from_secs(60));
                self.freeze(leader, length);
            }
            Fault::ClockStepped => {
                let event = Event::ClockStepped {
                    difference_ms: 3_600_000,
                };
                self.tell(leader, vec![event], Ticket::Nobody);
                let life = self.life(leader);
                let length = self.fault_span(Span::from_mins(2), Span::from_mins(40));
                self.after(length, Happening::Ends(Ending::Clock(life)));
            }
            Fault::PolicyBroken => {
                let file = PackedFile::pack(&SourceFile {
                    path: "broken.yaml".to_owned(),
                    text: "apiVersion: sunward.dev/v1alpha1\nkind: SchedulingPolicy\n".to_owned(),
                });
                let event = Event::PoliciesReplaced { files: vec![file] };
                self.tell(leader, vec![event], Ticket::Nobody);
            }
            Fault::CacheStale => {
                let pool = self.dice.faults.below(self.clusters.homes.len());
                let cluster = self.clusters.homes[pool].cluster;
                if !self.clusters.is_away(cluster, self.now) {
                    self.list_stale(leader, pool);
                }
            }
            _ => {
                let wait = self.fault_span(Span::from_secs(20), Span::from_mins(3));
                for cached in &mut self.replicas[leader].cache {
                    cached.delivered = cached.delivered.max(self.now + wait);
                }
            }
        }
    }

    fn strike_follower(&mut self) {
        let idle = |r: &usize| Some(*r) != self.holder && self.replicas[*r].alive;
        let idle: Vec<usize> = (0..self.replicas.len()).filter(idle).collect();
        if let Some(follower) = idle.get(self.dice.faults.below(idle.len())).copied() {
            self.count(Fault::FollowerKilled);
            self.kill(follower);
        }
    }

    pub(super) fn ends(&mut self, ending: Ending) {
        match ending {
            Ending::Restart(replica) => self.restart(replica),
            Ending::Clock((replica, life)) => {
                let known = &self.replicas[replica];
                if known.life == life && known.is_leading() {
                    self.tell(replica, vec![Event::ClockRestored], Ticket::Nobody);
                }
            }
            Ending::ApiMissed(server) => {
                if let Some(leader) = self.acting()
                    && self.clusters.is_away(server, self.now)
                {
                    let event = Event::ClusterUnreachable {
                        cluster: self.clusters.servers[server].name.clone(),
                        reason: "connection refused".to_owned(),
                    };
                    self.tell(leader, vec![event], Ticket::Nobody);
                }
            }
            Ending::ApiBack(server) => self.api_back(server),
            Ending::Override(number) => self.override_over(number),
            Ending::Everything => {
                self.end_calls();
                self.armed_calls.clear();
                self.armed_hosts.clear();
                self.armed_signals.clear();
                (self.armed_answers, self.armed_publishes, self.armed_kills) = (0, 0, 0);
            }
        }
    }

    /// Everyone who watches lists anew.
    fn api_back(&mut self, server: usize) {
        self.progress.disturbed = self.now;
        let cluster = self.clusters.servers[server].name.clone();
        for replica in 0..self.replicas.len() {
            if self.replicas[replica].gate.is_none() {
                continue;
            }
            for pool in 0..self.clusters.homes.len() {
                if self.clusters.homes[pool].cluster == server {
                    let object = self.clusters.homes[pool].observation();
                    self.deliver_object(replica, pool, object, true, Span::from_millis(100));
                }
            }
        }
        if let Some(leader) = self.acting() {
            let event = Event::ClusterReachable { cluster };
            self.tell(leader, vec![event], Ticket::Nobody);
        }
    }
}

fn arm(armed: &mut std::collections::VecDeque<Fault>, fault: Fault) {
    if armed.len() < ARMED_MAX {
        armed.push_back(fault);
    }
}
