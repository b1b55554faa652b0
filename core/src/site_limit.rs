//! What a site's pools may run while a limit or an emergency acts on it.
//!
//! First the highest power tier of the site under which what runs fits; where none does, fewer workers at the lowest,
//! the worst score first, pools that are all or nothing as a whole. Nothing starts beyond the limit. Minima stay.

use std::cmp::Ordering;

use crate::fleet::{Pool, Unit};
use crate::orders::SiteOrder;

/// One of the site's pools, in the order of their names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) pool: &'a Pool,
    /// Workers wanted so far.
    pub(crate) current: u32,
    /// Workers that it would have without the limit.
    pub(crate) wanted: u32,
    /// The higher the better; unknown comes last.
    pub(crate) score: Option<f64>,
}

/// What is left to a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cut {
    /// The share of training power that its workers are held to.
    pub(crate) percent: u8,
    /// The most workers of each member.
    pub(crate) most: Vec<u32>,
}

/// Cuts what the members of a site want to what its limits leave. `ceiling` is the highest percentage that may be
/// used; `None` where the site has no tier that low, which means the minimum.
pub(crate) fn cut(order: &SiteOrder, ceiling: Option<u8>, members: &[Member<'_>]) -> Cut {
    let minimum = |percent: u8| Cut {
        percent,
        most: members
            .iter()
            .map(|member| member.pool.min_workers)
            .collect(),
    };
    let Some(ceiling) = ceiling else {
        return minimum(100);
    };
    if order.to_minimum {
        return minimum(ceiling);
    }
    // What goes down anyway needs no room.
    let mut most: Vec<u32> = members
        .iter()
        .map(|member| {
            member
                .current
                .min(member.wanted)
                .max(member.pool.min_workers)
        })
        .collect();
    let Some(limit) = order.kilowatts else {
        // What goes down by its own policy may still be kept by a floor.
        for (most, member) in most.iter_mut().zip(members) {
            *most = (*most).max(member.current);
        }
        return Cut {
            percent: ceiling,
            most,
        };
    };
    let tiers = tiers(order, ceiling);
    let lowest = tiers.last().copied().unwrap_or(ceiling);
    let best_first = best_first(members);
    if draw(members, &most, lowest) > limit {
        for index in best_first.iter().rev() {
            shrink(members, &mut most, *index, lowest, limit);
        }
    }
    let fits = tiers
        .iter()
        .copied()
        .find(|tier| draw(members, &most, *tier) <= limit);
    let percent = fits.unwrap_or(lowest);
    let grows = percent == ceiling && order.percent.is_none() && fits.is_some();
    if grows {
        for index in &best_first {
            let wanted = members[*index].wanted;
            grow(members, &mut most, *index, wanted, percent, limit);
        }
    }
    // Where there is room beside that, a floor or a deadline may keep what goes down by its own policy, or start more.
    if fits.is_some() {
        for index in best_first {
            let member = &members[index];
            let may = if grows {
                member.pool.max_workers
            } else {
                member.current
            };
            grow(members, &mut most, index, may, percent, limit);
        }
    }
    Cut { percent, most }
}

/// The percentages that may be used, the highest first.
fn tiers(order: &SiteOrder, ceiling: u8) -> Vec<u8> {
    let mut tiers = vec![ceiling];
    tiers.extend(order.tiers.iter().copied().filter(|tier| *tier < ceiling));
    tiers.sort_unstable_by(|a, b| b.cmp(a));
    tiers
}

/// Indexes of the members, the best first: the highest score, then the lower name.
fn best_first(members: &[Member<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    // Stable, so that equal scores stay in the order of names.
    order.sort_by(|a, b| match (members[*a].score, members[*b].score) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
    order
}

/// Nameplate power of so many workers at a percentage, kW.
fn draw(members: &[Member<'_>], workers: &[u32], percent: u8) -> f64 {
    let each = members.iter().zip(workers);
    let kw = each.map(|(member, workers)| f64::from(*workers) * member.pool.training_kw);
    kw.sum::<f64>() * f64::from(percent) / 100.0
}

/// Takes workers from one member until all fit or it is at its minimum.
fn shrink(members: &[Member<'_>], most: &mut [u32], index: usize, percent: u8, limit: f64) {
    let pool = members[index].pool;
    while most[index] > pool.min_workers && draw(members, most, percent) > limit {
        match pool.unit {
            Unit::Pool => most[index] = pool.min_workers,
            Unit::Worker => most[index] = fewer(members, most, index, percent, limit),
        }
    }
}

/// As many workers of one member as fit beside the others, fewer than it has now.
fn fewer(members: &[Member<'_>], most: &[u32], index: usize, percent: u8, limit: f64) -> u32 {
    let mut others = most.to_vec();
    let now = std::mem::take(&mut others[index]);
    let room = limit - draw(members, &others, percent);
    let pool = members[index].pool;
    let each = pool.training_kw * f64::from(percent) / 100.0;
    let fit = if each > 0.0 {
        (room / each).floor().max(0.0)
    } else {
        0.0
    };
    // Saturates where the quotient is beyond any count.
    (fit as u32).clamp(pool.min_workers, now - 1)
}

/// Lets one member grow towards `to`, as far as all still fit.
fn grow(members: &[Member<'_>], most: &mut [u32], index: usize, to: u32, percent: u8, limit: f64) {
    let (pool, from) = (members[index].pool, most[index]);
    if to <= from {
        return;
    }
    most[index] = to;
    if draw(members, most, percent) <= limit {
        return;
    }
    most[index] = match pool.unit {
        Unit::Pool => from,
        Unit::Worker => fewer(members, most, index, percent, limit).max(from),
    };
    if draw(members, most, percent) > limit {
        most[index] = from;
    }
}
