//! Deadlines: so much work is done by an instant, in the least bad hours.
//!
//! Work is the time of ready workers. While there is slack, the time to `finish_by - margin` is cut into slots of at most
//! an hour, at the instants at which scores are said to change, for each pool; a pool runs now if its present slot is
//! among the best that cover the work that is left. Slots whose score is unknown come last, and none of them starts
//! anything: the absence of data raises nothing. Without a score the hours are alike, and the work is done at once.
//! When all pools together could only just do what is left, all of them run, whatever their policies' rules say; so
//! they do when the deadline has passed.

use std::cmp::Ordering;

use sunward_policies::time::{Span, Timestamp};

use super::accounts::Mode;
use super::desk::{Desk, Rank};
use super::{Accounts, Ahead, Meters, Note, Why};
use crate::pools::Pin;

/// Slots that are compared at most, over all pools of a deadline; with more pools, or further ahead, slots are longer.
pub const DEADLINE_SLOTS_MAX: usize = 8_192;

/// A slot is at most this long, as long as there are few enough.
const SLOT: Span = Span::from_mins(60);

/// So much slack ends the time in which all pools must run, so that a little does not.
const RELIEF: Span = Span::from_mins(60);

/// One pool in one slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    score: Option<f64>,
    from: Timestamp,
    /// Worker-milliseconds.
    work: i64,
    local: u32,
}

impl Slot {
    fn better(&self, other: &Slot) -> Ordering {
        let by_score = match (self.score, other.score) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        by_score
            .then(self.from.cmp(&other.from))
            .then(self.local.cmp(&other.local))
    }
}

impl Desk<'_> {
    /// Raises what deadlines want to run now.
    pub(super) fn raise_for_deadlines(&mut self, accounts: &mut Accounts, meters: &Meters) {
        for place in self.group.deadlines.clone() {
            let Some(progress) = accounts.deadlines.get_mut(place as usize) else {
                continue;
            };
            let part = &self.all.deadlines[place as usize];
            let now = self.scene.now;
            let ready = meters.ready(place);
            let mut counted = progress.clone();
            counted.count(ready, now);
            let left = part.work.saturating_sub(counted.done);
            if left <= 0 {
                progress.mode = Mode::Finished;
                continue;
            }
            if let Some(at) = finished_at(left, ready, now) {
                self.look_again(at);
            }
            if now < part.finish_by {
                self.look_again(part.finish_by);
            } else if !progress.missed {
                progress.missed = true;
                self.notes.push(Note::DeadlineMissed { deadline: place });
            }
            let latest = self.latest_start(place, left);
            let relieved = progress.mode != Mode::Needs || latest - now > RELIEF;
            if now >= latest || !relieved {
                progress.mode = Mode::Needs;
                if latest > now {
                    self.look_again(latest);
                }
                self.raise_all(place);
            } else {
                progress.mode = Mode::Choosing;
                self.look_again(latest);
                self.raise_in_best_hours(place, left);
            }
        }
    }

    /// The last instant at which all pools, started together, still do what is left in time.
    fn latest_start(&self, place: u32, left: i64) -> Timestamp {
        let part = &self.all.deadlines[place as usize];
        let (mut workers, mut ready_after) = (0_i64, Span::ZERO);
        for local in &part.locals {
            let member = &self.members[*local as usize];
            let seat = &self.seats[*local as usize];
            let free = member.current.is_some()
                && matches!(member.pin, Pin::None | Pin::On { .. } | Pin::Dispatch);
            workers += i64::from(if free {
                seat.ceiling.min(member.pool.max_workers)
            } else {
                // How long it stays so nobody knows.
                seat.wish.min(member.ready)
            });
            ready_after = ready_after.max(member.pool.ready_after);
        }
        if workers == 0 {
            return self.scene.now;
        }
        let takes = left / workers + i64::from(left % workers != 0);
        part.finish_by - part.margin - Span::from_millis(takes) - ready_after
    }

    /// Everyone runs that may: nothing starts on missing data.
    fn raise_all(&mut self, place: u32) {
        for local in &self.all.deadlines[place as usize].locals {
            let (member, seat) = (&self.members[*local as usize], &self.seats[*local as usize]);
            let to = if member.missing {
                seat.current
            } else {
                member.reach
            };
            self.raise(*local, to, Why::DeadlineNeeds(place));
        }
    }

    fn raise(&mut self, local: u32, to: u32, why: Why) {
        let seat = &mut self.seats[local as usize];
        let to = to.min(seat.ceiling);
        if matches!(why, Why::DeadlineNeeds(_)) && to > 0 {
            seat.rank = Rank::Needed;
        }
        if to > seat.wish {
            seat.wish = to;
            seat.why = Some(why);
        }
    }

    /// Raises the pools whose present slot is among the best that cover what is left.
    fn raise_in_best_hours(&mut self, place: u32, left: i64) {
        let part = &self.all.deadlines[place as usize];
        let why = Why::DeadlineChose(place);
        if !part.scored {
            for local in &part.locals {
                let (member, seat) = (&self.members[*local as usize], &self.seats[*local as usize]);
                let to = if member.missing {
                    seat.current
                } else {
                    member.reach
                };
                self.raise(*local, to, why);
            }
            return;
        }
        self.contended = true;
        let mut slots = self.slots(place);
        slots.sort_by(Slot::better);
        let mut covered = 0_i64;
        for slot in slots {
            if covered >= left {
                break;
            }
            covered = covered.saturating_add(slot.work);
            if slot.from > self.scene.now {
                continue;
            }
            let place = slot.local as usize;
            let (member, current) = (&self.members[place], self.seats[place].current);
            let starts = slot.score.is_some() && !member.missing;
            self.raise(slot.local, if starts { member.reach } else { current }, why);
        }
    }

    /// The slots of every pool that may run, from now on.
    fn slots(&mut self, place: u32) -> Vec<Slot> {
        let part = &self.all.deadlines[place as usize];
        let (now, ahead) = (self.scene.now, self.scene.ahead);
        let end = part.finish_by - part.margin;
        let each = (DEADLINE_SLOTS_MAX / part.locals.len().max(1)).max(1);
        let hours = (end - now).as_millis() / SLOT.as_millis() + 2;
        // Half of them for instants at which scores change within an hour.
        let stretch = (hours / (each as i64 / 2).max(1) + 1).max(1);
        let length = Span::from_millis(SLOT.as_millis().saturating_mul(stretch));
        let mut slots = Vec::new();
        for local in &part.locals {
            let (member, seat) = (&self.members[*local as usize], &self.seats[*local as usize]);
            if seat.ceiling <= member.pool.min_workers {
                continue;
            }
            let workers = i64::from(member.pool.max_workers);
            let mut from = now;
            for _ in 0..each {
                if from >= end {
                    break;
                }
                let (score, to) = slot(ahead, part.policy, member.id, from, length, now);
                let to = to.min(end);
                let work = workers.saturating_mul((to - from).as_millis());
                slots.push(Slot {
                    score,
                    from,
                    work,
                    local: *local,
                });
                from = to;
            }
        }
        let ends = slots.iter().filter(|slot| slot.from == now);
        let first = ends
            .map(|slot| {
                let workers = i64::from(self.members[slot.local as usize].pool.max_workers);
                now + Span::from_millis(slot.work / workers.max(1))
            })
            .min();
        if let Some(at) = first {
            self.look_again(at);
        }
        slots
    }
}

/// The score of a pool from an instant on, and the end of that slot: where the score changes, or a whole length since the
/// epoch is full, so that slots do not move with the clock.
///
/// Time ahead of which nothing is known any more is one slot, however long: what is unknown comes last and raises nothing
/// before it is the present, so that its parts would be alike.
fn slot(
    ahead: &dyn Ahead,
    policy: u32,
    pool: u32,
    from: Timestamp,
    length: Span,
    now: Timestamp,
) -> (Option<f64>, Timestamp) {
    let (score, until) = ahead.score(policy, pool, from);
    if score.is_none() && until.is_none() && from > now {
        return (None, Timestamp::MAX);
    }
    let millis = length.as_millis();
    let full = from
        .as_millis()
        .div_euclid(millis)
        .saturating_add(1)
        .saturating_mul(millis);
    let full = Timestamp::from_millis(full);
    let to = until.map_or(full, |until| until.min(full));
    let to = to.max(from + Span::from_millis(1));
    (score.filter(|score| !score.is_nan()), to)
}

/// When the work is done if as many workers stay ready; `None` where none is.
fn finished_at(left: i64, ready: u64, now: Timestamp) -> Option<Timestamp> {
    let ready = i64::try_from(ready).ok().filter(|ready| *ready > 0)?;
    Some(now + Span::from_millis(left / ready + i64::from(left % ready != 0)))
}
