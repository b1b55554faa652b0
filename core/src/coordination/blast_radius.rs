//! Blast radius: of the pools that a policy decides on, at most so many sites may be changing at a time.
//!
//! A site is changing while one of these pools has another number of workers than is wanted, for at most twice the time
//! that the pool takes to get ready (then something else is wrong with it, and the others do not wait for that), and in
//! any case at the instant of the change. Releases come before starts, the worst first, and starts the best first. What
//! an emergency, an operator's `off`, a shrunken limit or a spent budget stops does not wait, but counts.

use sunward_policies::time::Timestamp;

use super::desk::Desk;
use super::{Member, Why};

/// The sites of one policy that are changing, while a group is planned.
#[derive(Debug)]
pub(super) struct Radius {
    policy: u32,
    most: u32,
    /// One per site of the group.
    changing: Vec<bool>,
    count: u32,
    /// When the first of those that change no longer counts.
    soonest: Option<Timestamp>,
}

impl Radius {
    fn mark(&mut self, site: u32, until: Timestamp) {
        let known = &mut self.changing[site as usize];
        self.count += u32::from(!*known);
        *known = true;
        self.soonest = self.soonest.into_iter().chain([until]).min();
    }
}

impl Desk<'_> {
    /// Notes which sites are changing by now.
    pub(super) fn look_around(&mut self) {
        if self.group.blasts.is_empty() {
            return;
        }
        let mut radii: Vec<Radius> = Vec::with_capacity(self.group.blasts.len());
        for (policy, most) in &self.group.blasts {
            radii.push(Radius {
                policy: *policy,
                most: *most,
                changing: vec![false; self.group.sites.len()],
                count: 0,
                soonest: None,
            });
        }
        for place in 0..self.members.len() {
            let policy = self.members[place].policy;
            let radius = radii
                .iter_mut()
                .find(|radius| Some(radius.policy) == policy);
            if let (Some(radius), Some(until)) = (radius, self.changing_until(place)) {
                radius.mark(self.group.site_of[place], until);
            }
        }
        self.radii = radii;
    }

    /// Moves a pool to `target` if its policy's blast radius lets it; else says why not. True if it does.
    pub(super) fn move_in_turn(&mut self, local: u32, target: u32) -> bool {
        let place = local as usize;
        let (site, now) = (self.group.site_of[place], self.scene.now);
        let policy = self.members[place].policy;
        let radius = self
            .radii
            .iter_mut()
            .find(|radius| Some(radius.policy) == policy);
        if let Some(radius) = radius {
            if !radius.changing[site as usize] && radius.count >= radius.most {
                let (policy, sites, soonest) = (radius.policy, radius.most, radius.soonest);
                self.seats[place].why = Some(Why::BlastRadius { policy, sites });
                self.contended = true;
                if let Some(at) = soonest {
                    self.look_again(at);
                }
                return false;
            }
            radius.mark(site, settled_by(&self.members[place], now));
        }
        self.seats[place].target = target;
        true
    }

    /// Until when a pool counts as changing at the latest; `None`: it does not.
    fn changing_until(&self, place: usize) -> Option<Timestamp> {
        let (member, seat, now) = (&self.members[place], &self.seats[place], self.scene.now);
        let current = member.current?;
        if seat.target != seat.current {
            return Some(settled_by(member, now));
        }
        let changed_at = member.changed_at?;
        if changed_at == now {
            return Some(settled_by(member, now));
        }
        let until = settled_by(member, changed_at);
        (current != member.ready && now < until).then_some(until)
    }
}

/// When a change at `at` no longer counts.
fn settled_by(member: &Member<'_>, at: Timestamp) -> Timestamp {
    at + member.pool.ready_after + member.pool.ready_after
}
