//! Floors: so many sites stay active, whatever the policies' rules say.
//!
//! Where too few sites would go on running with a worker that can train, the best of those that would be released are
//! kept, so that nobody leaves before his successor is there. Where too few would run at all, more are started: those
//! that a policy wants to start anyway, then the best; one whose signals are missing only if the floor says so. A floor
//! comes before operators' `on` and the policies, and after budgets, `off`, freezes, limits and emergencies: what these
//! leave too little for is blocked, and said.

use super::desk::{Desk, Rank};
use super::{Accounts, Member, Note, Shortfall, Why};
use crate::fleet::Unit;
use crate::pools::Pin;

/// The fewest workers with which a pool counts as active: more than its minimum, or all where nothing else is possible.
fn least(member: &Member<'_>) -> u32 {
    match member.pool.unit {
        Unit::Pool => member.pool.max_workers,
        Unit::Worker => member.pool.min_workers.saturating_add(1),
    }
}

/// Sites, each counted once.
#[derive(Default)]
struct Sites(Vec<u32>);

impl Sites {
    fn add(&mut self, site: u32) {
        if !self.has(site) {
            self.0.push(site);
        }
    }

    fn has(&self, site: u32) -> bool {
        self.0.contains(&site)
    }

    fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Desk<'_> {
    /// Keeps what a floor needs of what runs.
    pub(super) fn keep_for_floors(&mut self) {
        for place in &self.group.floors {
            let floor = &self.all.floors[*place as usize];
            let mut running: Vec<u32> = Vec::new();
            for local in &floor.locals {
                let (seat, member) = (&self.seats[*local as usize], &self.members[*local as usize]);
                let min = member.pool.min_workers;
                if member.current.is_some() && seat.current > min && seat.ceiling > min {
                    running.push(*local);
                }
            }
            // Those that stay and can train come first, as long as they are more than enough; then the best.
            running.sort_by(|a, b| {
                let held = |local: u32| self.goes_on(local);
                held(*b)
                    .cmp(&held(*a))
                    .then_with(|| self.scored_better(*a, *b))
            });
            let mut held = Sites::default();
            for local in running {
                if held.count() >= floor.sites {
                    break;
                }
                let site = self.group.site_of[local as usize];
                if held.has(site) {
                    continue;
                }
                self.contended = true;
                let member = &self.members[local as usize];
                self.seats[local as usize].essential = true;
                if self.seats[local as usize].wish > member.pool.min_workers {
                    // It stays by itself; while nobody there can train yet, another is kept beside it.
                    if self.can_train(member) {
                        held.add(site);
                    } else if member.changed_at == Some(self.scene.now) {
                        self.look_again(self.scene.now);
                    }
                    continue;
                }
                let seat = &mut self.seats[local as usize];
                held.add(site);
                seat.wish = least(member)
                    .min(seat.current)
                    .min(seat.ceiling)
                    .max(seat.wish);
                seat.rank = Rank::Needed;
                seat.why = Some(Why::Floor(*place));
            }
        }
    }

    /// True where a pool goes on running by itself and has a worker that can train.
    fn goes_on(&self, local: u32) -> bool {
        let (seat, member) = (&self.seats[local as usize], &self.members[local as usize]);
        let min = member.pool.min_workers;
        seat.wish > min && self.can_train(member)
    }

    /// True where a worker can train that was not only just told to stay.
    fn can_train(&self, member: &Member<'_>) -> bool {
        member.ready > member.pool.min_workers && member.changed_at != Some(self.scene.now)
    }

    /// Starts what a floor lacks, and notes where it can't be met.
    pub(super) fn start_for_floors(&mut self, accounts: &mut Accounts) {
        for place in &self.group.floors {
            let floor = &self.all.floors[*place as usize];
            let mut active = Sites::default();
            for local in &floor.locals {
                if self.seats[*local as usize].target
                    > self.members[*local as usize].pool.min_workers
                {
                    active.add(self.group.site_of[*local as usize]);
                }
            }
            let mut waiting = Sites::default();
            if active.count() < floor.sites && !self.scene.clock_stepped {
                for local in self.candidates(*place) {
                    if active.count() >= floor.sites {
                        break;
                    }
                    let site = self.group.site_of[local as usize];
                    if active.has(site) {
                        continue;
                    }
                    if self.start(local, *place) {
                        active.add(site);
                    } else if matches!(
                        self.seats[local as usize].why,
                        Some(Why::BlastRadius { .. })
                    ) {
                        waiting.add(site);
                    }
                }
            }
            let met = active.count() + waiting.count() >= floor.sites;
            self.report(*place, active.count(), met, accounts);
        }
    }

    /// The pools that a floor may start, the best first.
    fn candidates(&mut self, place: u32) -> Vec<u32> {
        let floor = &self.all.floors[place as usize];
        self.contended = true;
        let may = |local: &u32| {
            let (seat, member) = (&self.seats[*local as usize], &self.members[*local as usize]);
            let min = member.pool.min_workers;
            let known = !member.missing || floor.run_on_missing || seat.wish > min;
            let free = member.current.is_some()
                && matches!(member.pin, Pin::None | Pin::On { .. } | Pin::Dispatch);
            free && known
                && seat.target <= min
                && seat.ceiling >= least(member)
                && least(member) > min
        };
        let mut candidates: Vec<u32> = floor.locals.iter().copied().filter(may).collect();
        candidates.sort_by(|a, b| {
            let wanted = |local: u32| {
                self.seats[local as usize].wish > self.members[local as usize].pool.min_workers
            };
            wanted(*b)
                .cmp(&wanted(*a))
                .then_with(|| self.scored_better(*a, *b))
        });
        candidates
    }

    fn start(&mut self, local: u32, place: u32) -> bool {
        let (seat, least) = (
            self.seats[local as usize],
            least(&self.members[local as usize]),
        );
        if !self.grow(local, least) {
            return false;
        }
        let started = &mut self.seats[local as usize];
        if seat.wish < least {
            started.wish = least;
            started.why = Some(Why::Floor(place));
        }
        started.essential = true;
        true
    }

    /// Keeps in mind that a floor can't be met, and notes every change of that.
    fn report(&mut self, place: u32, active: u32, met: bool, accounts: &mut Accounts) {
        let floor = &self.all.floors[place as usize];
        let known = accounts
            .blocked
            .iter()
            .position(|blocked| blocked.floor == floor.name);
        match (known, met) {
            (Some(known), true) => {
                accounts.blocked.remove(known);
            }
            (Some(known), false) if accounts.blocked[known].active == active => {}
            (known, false) => {
                let since = known.map_or(self.scene.now, |known| accounts.blocked[known].since);
                let shortfall = Shortfall {
                    floor: floor.name.clone(),
                    since,
                    active,
                };
                match known {
                    Some(known) => accounts.blocked[known] = shortfall,
                    None => accounts.blocked.push(shortfall),
                }
                self.notes.push(Note::FloorBlocked {
                    floor: place,
                    active,
                });
            }
            (None, true) => {}
        }
    }
}
