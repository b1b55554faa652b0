//! Budgets: what the pools of a policy may use together, at any instant or over a period.
//!
//! **At an instant** (workers, nameplate kW): the sum of the targets never exceeds the limit, but for minimums and frozen
//! pools. Growth gives way first; what runs only where the limit shrank. Nameplate means full training power: a site
//! that is held to less for a while leaves no room that would be missing afterwards.
//!
//! **Over a period** (energy, emissions, money): a pool draws for as many workers as are wanted or ready, whichever are
//! more. Growth is admitted only if what is left pays, up to the end of the longest minimum run in progress and of the
//! one that now begins (each with the time to get ready), for *everything* that then draws. That is stricter than paying
//! for minimum runs alone: what runs beyond its minimum run may go on drawing, and no start may have to be cut for it.
//! When the sum is spent, all its pools go to their minimum at once, to the end of the period.

use sunward_policies::policy::Measure;
use sunward_policies::time::{Span, Timestamp};

use super::accounts::fine_units;
use super::desk::Desk;
use super::meters::milliwatts;
use super::{Accounts, BudgetPart, Member, Meters, Note, Why};
use crate::fleet::Unit;
use crate::pools::Pin;

/// What is left of one budget while a group is planned.
#[derive(Debug)]
pub(super) struct Room {
    /// It adds up over a period; else it holds at any instant.
    pub(super) is_sum: bool,
    /// At an instant: the most. Over a period: what is left, in fine units.
    left: i128,
    /// At an instant: in use by targets. Over a period: fine units per millisecond at full power.
    used: i128,
    /// Over a period: all of it, in fine units.
    whole: i128,
    /// The end of the longest minimum run in progress.
    horizon: Timestamp,
    /// The end of the period.
    ends: Timestamp,
    spent: bool,
    known: bool,
    /// One per pool of the budget, in its order: what one worker takes.
    per_worker: Vec<i128>,
}

/// What a pool draws for while it is told to have `target`: those that are still there go on drawing.
fn drawing(member: &Member<'_>, target: u32) -> i128 {
    i128::from(target.max(member.ready))
}

/// True of a pool that no budget changes: frozen, or not seen yet.
fn is_fixed(member: &Member<'_>) -> bool {
    member.pin == Pin::Frozen || member.current.is_none()
}

/// Until when a start or a growth at `at` is to be paid for.
fn paid_until(member: &Member<'_>, at: Timestamp) -> Timestamp {
    at + member.pool.ready_after + member.min_run
}

impl Desk<'_> {
    /// Counts what every budget has left before anything changes.
    pub(super) fn open_budgets(&mut self, accounts: &Accounts, meters: &Meters) {
        let rooms = self.group.budgets.iter().map(|place| {
            let part = &self.all.budgets[*place as usize];
            self.open(*place, part, accounts, meters)
        });
        self.rooms = rooms.collect();
    }

    fn open(&self, place: u32, part: &BudgetPart, accounts: &Accounts, meters: &Meters) -> Room {
        let per_worker = |pool: u32, local: u32| {
            let member = &self.members[local as usize];
            match part.measure {
                Measure::Workers => 1,
                Measure::Power => i128::from(milliwatts(member.pool)),
                Measure::Energy | Measure::Carbon | Measure::Money => {
                    let weight = meters.weight(self.all, pool, place);
                    i128::from(milliwatts(member.pool)) * 100 * i128::from(weight)
                }
            }
        };
        let pools = part.pools.iter().zip(&part.locals);
        let mut room = Room {
            is_sum: part.is_sum(),
            left: i128::from(part.limit)
                * if part.measure == Measure::Power {
                    1_000
                } else {
                    1
                },
            used: 0,
            whole: 0,
            horizon: self.scene.now,
            ends: Timestamp::MAX,
            spent: false,
            known: true,
            per_worker: pools
                .map(|(pool, local)| per_worker(*pool, *local))
                .collect(),
        };
        if !room.is_sum {
            return room;
        }
        let Some(spend) = accounts.spend(place) else {
            return room;
        };
        // The spend stands where it was last counted; what was drawn since then is gone as well.
        let elapsed = i128::from((self.scene.now - spend.since).as_millis().max(0));
        room.left = spend.remaining(part) - meters.rate(place).saturating_mul(elapsed);
        room.whole = i128::from(part.limit) * fine_units(part.measure);
        room.ends = spend.to;
        room.spent = room.left <= 0;
        room.known = spend.known;
        room
    }

    /// Pools of a spent budget go to their minimum; where the spend is unknown nothing grows.
    pub(super) fn close_spent(&mut self, accounts: &mut Accounts) {
        for in_group in 0..self.rooms.len() {
            let place = self.group.budgets[in_group];
            let room = &self.rooms[in_group];
            let (spent, known, ends) = (room.spent, room.known, room.ends);
            if let Some(account) = accounts.budgets.get_mut(place as usize) {
                if spent && !account.spend.told {
                    self.notes.push(Note::BudgetExhausted { part: place });
                }
                account.spend.told = spent;
            }
            if !spent && known {
                continue;
            }
            self.look_again(ends);
            for local in &self.all.budgets[place as usize].locals {
                let member = &self.members[*local as usize];
                let seat = &mut self.seats[*local as usize];
                if is_fixed(member) {
                    continue;
                }
                let ceiling = if spent {
                    member.pool.min_workers
                } else {
                    seat.current
                };
                if seat.wish > ceiling {
                    let why = if spent {
                        Why::Exhausted
                    } else {
                        Why::SpendUnknown
                    };
                    seat.why = Some(why(place));
                    seat.wish = ceiling;
                }
                seat.forced |= spent;
                seat.ceiling = seat.ceiling.min(ceiling);
            }
        }
    }

    /// Sums up the targets after everything went down that goes down, and cuts what runs where a limit shrank.
    pub(super) fn fit_budgets(&mut self) {
        for in_group in 0..self.rooms.len() {
            self.sum_up(in_group);
            if !self.rooms[in_group].is_sum && self.rooms[in_group].used > self.rooms[in_group].left
            {
                self.cut(in_group);
            }
        }
        // A pool cut for one budget takes less of the others.
        for in_group in 0..self.rooms.len() {
            self.sum_up(in_group);
        }
    }

    fn sum_up(&mut self, in_group: usize) {
        let part = &self.all.budgets[self.group.budgets[in_group] as usize];
        let room = &mut self.rooms[in_group];
        room.used = 0;
        for (local, each) in part.locals.iter().zip(&room.per_worker) {
            let (seat, member) = (&self.seats[*local as usize], &self.members[*local as usize]);
            if !room.is_sum {
                room.used += each * i128::from(seat.target);
                continue;
            }
            room.used += each * drawing(member, seat.target);
            if seat.target > member.pool.min_workers {
                let last = member.started_at.max(member.changed_at);
                let until = last.map(|at| paid_until(member, at));
                room.horizon = room.horizon.max(until.unwrap_or(self.scene.now));
            }
        }
    }

    /// Takes running workers away, from the worst pool on, until the budget fits.
    fn cut(&mut self, in_group: usize) {
        let place = self.group.budgets[in_group];
        let order = self.ranked(true);
        for local in order.iter().rev() {
            let over = self.rooms[in_group].used - self.rooms[in_group].left;
            if over <= 0 {
                break;
            }
            let part = &self.all.budgets[place as usize];
            let Ok(at) = part.locals.binary_search(local) else {
                continue;
            };
            let each = self.rooms[in_group].per_worker[at].max(0);
            let member = &self.members[*local as usize];
            let seat = &mut self.seats[*local as usize];
            let spare = seat.target.saturating_sub(member.pool.min_workers);
            if is_fixed(member) || spare == 0 || each == 0 {
                continue;
            }
            let needed = u32::try_from((over + each - 1) / each).unwrap_or(u32::MAX);
            let less = match member.pool.unit {
                Unit::Pool => spare,
                Unit::Worker => needed.min(spare),
            };
            seat.target -= less;
            seat.why = Some(Why::Budget(place));
            self.rooms[in_group].used -= each * i128::from(less);
        }
        self.put_back(order);
    }

    /// True where everything that is wished for fits into every budget that holds at any instant.
    pub(super) fn all_wishes_fit_budgets(&self) -> bool {
        self.group
            .budgets
            .iter()
            .zip(&self.rooms)
            .all(|(place, room)| {
                let locals = &self.all.budgets[*place as usize].locals;
                let wished = locals.iter().zip(&room.per_worker).map(|(local, each)| {
                    let seat = &self.seats[*local as usize];
                    each * i128::from(seat.target.max(seat.wish))
                });
                wished.sum::<i128>() <= room.left
            })
    }

    /// The most that a pool may have by one budget, at least what it has, and the reason where that is less than `to`.
    pub(super) fn room_in_budget(
        &mut self,
        local: u32,
        in_group: u32,
        to: u32,
    ) -> (u32, Option<Why>) {
        let place = self.group.budgets[in_group as usize];
        let part = &self.all.budgets[place as usize];
        let room = &self.rooms[in_group as usize];
        let each = part
            .locals
            .binary_search(&local)
            .map_or(0, |at| room.per_worker[at]);
        let target = self.seats[local as usize].target;
        if room.is_sum && (room.spent || !room.known) {
            let why = if room.spent {
                Why::Exhausted
            } else {
                Why::SpendUnknown
            };
            return (target, Some(why(place)));
        }
        if each <= 0 {
            return (to, None);
        }
        if !room.is_sum {
            let more = u32::try_from(((room.left - room.used) / each).max(0)).unwrap_or(u32::MAX);
            return (target.saturating_add(more), Some(Why::Budget(place)));
        }
        let member = &self.members[local as usize];
        let others = room.used - each * drawing(member, target);
        let until = room.horizon.max(paid_until(member, self.scene.now));
        let most = (room.rate_until(self.scene.now, until) - others) / each;
        let most = u32::try_from(most.max(0)).unwrap_or(u32::MAX);
        // Workers that are there draw anyway: where even they can't be paid for, nothing is added.
        let most = if i128::from(most) < drawing(member, target) {
            target
        } else {
            most
        };
        if most < to {
            let wants = others + each * drawing(member, to);
            let again = room.admits_at(self.scene.now, paid_until(member, self.scene.now), wants);
            if let Some(at) = again {
                self.look_again(at);
            }
            let ends = self.rooms[in_group as usize].ends;
            self.look_again(ends);
        }
        (most.max(target), Some(Why::Budget(place)))
    }

    /// A pool's target went from `before` to `after`.
    pub(super) fn take_room(&mut self, local: u32, before: u32, after: u32) {
        let member = &self.members[local as usize];
        for in_group in &self.group.budgets_of[local as usize] {
            let place = self.group.budgets[*in_group as usize];
            let part = &self.all.budgets[place as usize];
            let room = &mut self.rooms[*in_group as usize];
            let Ok(at) = part.locals.binary_search(&local) else {
                continue;
            };
            let each = room.per_worker[at];
            if room.is_sum {
                room.used += each * (drawing(member, after) - drawing(member, before));
                room.horizon = room.horizon.max(paid_until(member, self.scene.now));
            } else {
                room.used += each * (i128::from(after) - i128::from(before));
            }
        }
    }
}

impl Room {
    /// The rate that can be paid from `now` to `until`: from what is left to the end of the period, from a whole new
    /// period beyond it.
    fn rate_until(&self, now: Timestamp, until: Timestamp) -> i128 {
        let this = until.min(self.ends);
        let millis = |from: Timestamp, to: Timestamp| i128::from((to - from).as_millis().max(0));
        let here = self.left.max(0) / millis(now, this).max(1);
        match millis(self.ends, until) {
            0 => here,
            beyond => here.min(self.whole / beyond),
        }
    }

    /// While a minimum run in progress asks for more than the one that would begin: when it no longer does, so that
    /// `rate` in all can be paid although nothing else changed. Early rather than late.
    fn admits_at(&self, now: Timestamp, own: Timestamp, rate: i128) -> Option<Timestamp> {
        let shrinks = (self.horizon - own).as_millis();
        let added = rate - self.used;
        if shrinks <= 0 || added <= 0 {
            return None;
        }
        // At now + t: rate x (horizon - now - t) <= left - used x t.
        let millis = i128::from((self.horizon - now).as_millis());
        let missing = rate.saturating_mul(millis) - self.left;
        let wait = i64::try_from((missing.max(0) + added - 1) / added).unwrap_or(i64::MAX);
        // Later than that its own run is the longer one, and asks for ever more of what is left.
        (wait <= shrinks).then(|| now + Span::from_millis(wait.max(1)))
    }
}
