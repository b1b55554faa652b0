//! The desk on which one group is planned: what each pool wants, may have and gets, stage by stage.

use std::cmp::Ordering;

use sunward_policies::time::{Span, Timestamp};

use super::blast_radius::Radius;
use super::budgets::Room;
use super::groups::Group;
use super::{Coordinated, Coordination, Member, Note, Outcome, Scene, Why};
use crate::fleet::Unit;
use crate::pools::Pin;

/// Whose growth comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A floor or a deadline needs it.
    Needed,
    /// An operator switched it on.
    On,
    /// A policy wants it.
    Wanted,
}

/// One pool on the desk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// Workers wanted now, within bounds.
    pub(super) current: u32,
    /// What it wants, as far as it may.
    pub(super) wish: u32,
    /// The most that it may have.
    pub(super) ceiling: u32,
    /// What it gets.
    pub(super) target: u32,
    pub(super) rank: Rank,
    /// What brought it here, where that is not the pool's own plan.
    pub(super) why: Option<Why>,
    /// It must go down, whatever the blast radius says.
    pub(super) forced: bool,
    /// A floor counts on it: it is cut last.
    pub(super) essential: bool,
}

/// The desk.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    pub(super) all: &'a Coordination,
    pub(super) group: &'a Group,
    pub(super) members: &'a [Member<'a>],
    pub(super) scene: &'a Scene<'a>,
    pub(super) seats: Vec<Seat>,
    /// One per budget of the group.
    pub(super) rooms: Vec<Room>,
    /// One per policy of the group that bounds how many sites change.
    pub(super) radii: Vec<Radius>,
    /// The best first; empty until it is needed.
    order: Vec<u32>,
    pub(super) notes: Vec<Note>,
    next: Option<Timestamp>,
    pub(super) contended: bool,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        all: &'a Coordination,
        group: &'a Group,
        members: &'a [Member<'a>],
        scene: &'a Scene<'a>,
    ) -> Desk<'a> {
        let seat = |member: &Member<'_>| {
            let min = member.pool.min_workers;
            let max = member.pool.max_workers.max(min);
            let current = member.current.unwrap_or(max).clamp(min, max);
            let solo = member.solo.clamp(min, max);
            let most = member.most.map_or(max, |most| most.clamp(min, max));
            let (wish, ceiling) = match (member.current, member.pin) {
                (None, _) => (current, current),
                (_, Pin::Frozen) => (current.min(most), current.min(most)),
                (_, Pin::Off) => (solo.min(current), solo.min(current)),
                (_, Pin::None | Pin::On { .. } | Pin::Dispatch) => (solo.min(most), most),
            };
            let on = matches!(member.pin, Pin::On { .. });
            Seat {
                current,
                wish,
                ceiling,
                target: current,
                rank: if on { Rank::On } else { Rank::Wanted },
                why: None,
                forced: member.pin == Pin::Off || ceiling < current,
                essential: false,
            }
        };
        Desk {
            all,
            group,
            members,
            scene,
            seats: members.iter().map(seat).collect(),
            rooms: Vec::new(),
            radii: Vec::new(),
            order: Vec::new(),
            notes: Vec::new(),
            next: None,
            contended: false,
        }
    }

    /// Another answer is possible at `at`, by time alone.
    pub(super) fn look_again(&mut self, at: Timestamp) {
        let at = at.max(self.scene.now + Span::from_millis(1));
        self.next = Some(self.next.map_or(at, |known| known.min(at)));
    }

    /// The better of two pools, for anything that not both can have: by rank, then score, then name.
    fn better(&self, a: u32, b: u32) -> Ordering {
        let (seat_a, seat_b) = (&self.seats[a as usize], &self.seats[b as usize]);
        seat_a
            .rank
            .cmp(&seat_b.rank)
            .then_with(|| self.scored_better(a, b))
    }

    /// The better of two pools by score, then name.
    pub(super) fn scored_better(&self, a: u32, b: u32) -> Ordering {
        let score = |local: u32| {
            self.members[local as usize]
                .score
                .filter(|score| !score.is_nan())
        };
        let by_score = match (score(a), score(b)) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        // Ids are in the order of names.
        by_score.then(a.cmp(&b))
    }

    /// All pools, the best first; those that a floor counts on before all others where `cutting`.
    pub(super) fn ranked(&mut self, cutting: bool) -> Vec<u32> {
        self.contended = true;
        let mut order = std::mem::take(&mut self.order);
        if order.is_empty() {
            order.extend(0..self.members.len() as u32);
        }
        let spared = |local: u32| cutting && self.seats[local as usize].essential;
        order.sort_by(|a, b| {
            spared(*b)
                .cmp(&spared(*a))
                .then_with(|| self.better(*a, *b))
        });
        order
    }

    /// Gives the memory of [`Desk::ranked`] back.
    pub(super) fn put_back(&mut self, order: Vec<u32>) {
        self.order = order;
    }

    /// What must go down goes; what may go down goes as far as the blast radius lets it, the worst first.
    pub(super) fn lower(&mut self) {
        let mut waiting = false;
        for place in 0..self.seats.len() {
            let seat = &mut self.seats[place];
            if seat.wish >= seat.current {
                continue;
            }
            if seat.forced || self.group.blasts.is_empty() {
                seat.target = seat.wish;
            } else {
                waiting = true;
            }
        }
        if waiting {
            self.look_around();
            let order = self.ranked(false);
            for local in order.iter().rev() {
                let seat = self.seats[*local as usize];
                if seat.wish < seat.current && seat.target == seat.current {
                    self.move_in_turn(*local, seat.wish);
                }
            }
            self.put_back(order);
        }
    }

    /// Grows a pool towards `to`, as far as every limit lets it, and says what stood in its way. True if it got all.
    pub(super) fn grow(&mut self, local: u32, to: u32) -> bool {
        let place = local as usize;
        let (target, pool) = (self.seats[place].target, self.members[place].pool);
        if to <= target {
            return true;
        }
        let mut most = to;
        let mut why = None;
        for in_group in self.group.budgets_of[place].clone() {
            let (room, reason) = self.room_in_budget(local, in_group, to);
            if room < most {
                (most, why) = (room, reason);
            }
        }
        if pool.unit == Unit::Pool && most < to {
            most = target;
        }
        let most = most.max(target);
        let moved = most > target && self.move_in_turn(local, most);
        if moved {
            self.take_room(local, target, most);
        }
        if most < to && (moved || most == target) {
            self.seats[place].why = why.or(self.seats[place].why);
        }
        moved && most == to
    }

    /// Everyone who wants more than it has, the best first.
    pub(super) fn grow_all(&mut self) {
        if self.seats.iter().all(|seat| seat.wish <= seat.target) {
            return;
        }
        if self.everyone_fits() {
            for seat in &mut self.seats {
                seat.target = seat.target.max(seat.wish);
            }
            return;
        }
        let order = self.ranked(false);
        for local in &order {
            let seat = self.seats[*local as usize];
            if seat.wish > seat.target {
                self.grow(*local, seat.wish);
            }
        }
        self.put_back(order);
    }

    /// True where nothing stands in anybody's way, so that no order is needed.
    fn everyone_fits(&self) -> bool {
        self.group.blasts.is_empty()
            && self.rooms.iter().all(|room| !room.is_sum)
            && self.all_wishes_fit_budgets()
    }

    pub(super) fn answer(self) -> Outcome {
        let pools = self.members.iter().zip(&self.seats);
        let coordinated = pools
            .filter(|(member, seat)| member.current.is_some() && seat.target != member.solo)
            .map(|(member, seat)| Coordinated {
                id: member.id,
                target: seat.target,
                why: seat.why,
            })
            .collect();
        Outcome {
            coordinated,
            notes: self.notes,
            next_change_at: self.next,
            contended: self.contended,
        }
    }
}
