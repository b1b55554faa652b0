//! The rules themselves, one function each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sunward_core::action::Action;
use sunward_core::engine::Engine;
use sunward_core::grid_event::GridEventKind;
use sunward_core::overrides::OverrideEffect;
use sunward_core::time::Timestamp;

use super::sums::Instant;
use super::{Acting, Language, Watched};
use crate::check::history::Broken;

impl Language {
    /// Looks at every pool after a step.
    pub(super) fn look(
        &self,
        at: Timestamp,
        engine: &Engine,
        actions: &[Action],
        broken: &mut Vec<Broken>,
    ) {
        self.ended_overrides(engine, broken);
        for (index, watched) in self.pools.iter().enumerate() {
            let Some(wanted) = watched.wanted else {
                continue;
            };
            let acting = self.acting(&watched.pool);
            bounds(watched, wanted, broken);
            self.pinned(index, watched, wanted, acting, broken);
            self.in_its_windows(at, watched, wanted, acting, broken);
            self.ran_long_enough(at, index, watched, acting, broken);
            self.grew_knowing(at, watched, acting, broken);
        }
        self.sites_obey(engine, broken);
        self.budgets(engine, broken);
        self.changes_in_turn(at, broken);
        self.drills_do_nothing(actions, broken);
    }

    /// An override is gone once it was cleared or its time is over, and not before.
    fn ended_overrides(&self, engine: &Engine, broken: &mut Vec<Broken>) {
        let theirs: BTreeSet<&Arc<str>> = engine.state().overrides.keys().collect();
        let ours: BTreeSet<&Arc<str>> = self.overrides.keys().collect();
        if let Some(id) = theirs.difference(&ours).next() {
            let detail = format!("{id} is over and acts");
            broken.push(("override: it ends when it was said to", detail));
        }
        if let Some(id) = ours.difference(&theirs).next() {
            let detail = format!("{id} was set and does not act");
            broken.push(("override: it acts until it ends", detail));
        }
    }

    /// Off, freeze and on, within the step.
    fn pinned(
        &self,
        index: usize,
        watched: &Watched,
        wanted: u32,
        acting: Acting,
        broken: &mut Vec<Broken>,
    ) {
        let pool = &watched.pool;
        match acting.pin {
            Some(OverrideEffect::Off) if wanted != pool.min_workers => {
                let detail = format!("pool {}: {wanted} workers wanted", pool.name);
                broken.push(("override: off is obeyed at once", detail));
            }
            Some(OverrideEffect::Freeze) => {
                let Some((before, after)) = watched.change() else {
                    return;
                };
                if after > before || !acting.limited {
                    let detail = format!("pool {}: {before} -> {after}", pool.name);
                    broken.push(("override: what is frozen stays", detail));
                }
            }
            Some(OverrideEffect::On { workers }) => {
                let book = watched.policy.map(|policy| &self.books[policy]);
                let free = book.is_none_or(|book| book.is_alone() && !book.is_spent_for(index));
                let asked = workers
                    .unwrap_or(pool.max_workers)
                    .clamp(pool.min_workers, pool.max_workers);
                if free && !acting.limited && !self.clock_stepped && wanted < asked {
                    let detail = format!("pool {}: {wanted} of {asked} wanted", pool.name);
                    broken.push(("override: on is obeyed at once", detail));
                }
            }
            _ => {}
        }
    }

    /// A pool whose policy knows nothing but calendars runs in their windows, and only there.
    fn in_its_windows(
        &self,
        at: Timestamp,
        watched: &Watched,
        wanted: u32,
        acting: Acting,
        broken: &mut Vec<Broken>,
    ) {
        let book = watched.policy.map(|policy| &self.books[policy]);
        let Some((book, openings)) = book.and_then(|book| Some((book, book.openings.as_ref()?)))
        else {
            return;
        };
        let pool = &watched.pool;
        let open = |opening: &super::rulebook::Opening| {
            let windows = opening.windows.iter();
            windows
                .filter(|(from, to)| *from <= at && at < *to)
                .map(|window| window.1)
                .max()
        };
        if openings.iter().all(|opening| open(opening).is_none()) {
            let running = watched
                .started_at
                .is_some_and(|since| at < since + book.min_run);
            if wanted > pool.min_workers
                && !running
                && acting.pin.is_none()
                && watched.before.is_some()
            {
                let detail = format!("pool {}: {wanted} workers wanted", pool.name);
                broken.push(("calendar: outside its windows a pool rests", detail));
            }
            return;
        }
        if acting.pin.is_some() || acting.limited || self.clock_stepped || !book.is_alone() {
            return;
        }
        let starts = openings.iter().any(|opening| {
            let long =
                open(opening).is_some_and(|end| end >= at + pool.ready_after + opening.least);
            let holds = opening.below.is_none_or(|(signal, number)| {
                let stream = watched.streams.get(signal).and_then(Option::as_ref);
                let value = stream.and_then(|stream| self.boards.believed(stream, at));
                value.is_some_and(|value| value < number)
            });
            long && holds
        });
        if starts && book.min_rest.is_zero() && wanted < pool.max_workers {
            let detail = format!("pool {}: {wanted} workers wanted", pool.name);
            broken.push(("calendar: inside its windows a pool runs", detail));
        }
    }

    /// A pool is not taken down before its minimum run is over, but by what may do that.
    fn ran_long_enough(
        &self,
        at: Timestamp,
        index: usize,
        watched: &Watched,
        acting: Acting,
        broken: &mut Vec<Broken>,
    ) {
        let (Some(policy), Some((before, after))) = (watched.policy, watched.change()) else {
            return;
        };
        let book = &self.books[policy];
        let young = watched
            .started_at
            .is_some_and(|since| at < since + book.min_run);
        if after > before || !young {
            return;
        }
        let off = acting.pin == Some(OverrideEffect::Off);
        let called = self.releases_on_dispatch(watched);
        if !(off || acting.limited || called || book.is_spent_for(index)) {
            let since = watched
                .started_at
                .map_or_else(String::new, |since| since.to_string());
            let detail = format!(
                "pool {}: {before} -> {after}, started {since}",
                watched.pool.name
            );
            broken.push(("min_run: only what may breaks it", detail));
        }
    }

    /// A dispatch acts, and its policy releases the pool then.
    fn releases_on_dispatch(&self, watched: &Watched) -> bool {
        let site = watched.pool.site.as_ref();
        let Some(policy) = watched.policy else {
            return false;
        };
        let acts = self
            .calls_at(site)
            .any(|call| call.kind == GridEventKind::Dispatch);
        acts && match self.books[policy].on_dispatch() {
            "release" => true,
            percent => match percent
                .strip_suffix('%')
                .and_then(|number| number.trim().parse().ok())
            {
                Some(percent) => self.tier(site, percent).is_none(),
                None => false,
            },
        }
    }

    /// The highest power tier of a site at or below a percentage.
    fn tier(&self, site: &str, percent: u8) -> Option<u8> {
        let site = self.fleet.as_ref()?.site(site)?;
        let tiers = site.power_tiers.iter().copied();
        tiers.filter(|tier| *tier <= percent).max()
    }

    /// Nothing grows without a value that may be believed, unless an operator or the policy says so.
    fn grew_knowing(
        &self,
        at: Timestamp,
        watched: &Watched,
        acting: Acting,
        broken: &mut Vec<Broken>,
    ) {
        let (Some(policy), Some((before, after))) = (watched.policy, watched.change()) else {
            return;
        };
        let on = matches!(acting.pin, Some(OverrideEffect::On { .. }));
        if after <= before.max(watched.pool.min_workers) || on || self.books[policy].starts_blind()
        {
            return;
        }
        let known = |stream: &Option<super::Stream>| {
            let stream = stream.as_ref();
            stream.is_some_and(|stream| self.boards.believed(stream, at).is_some())
        };
        if !watched.streams.iter().all(known) {
            let detail = format!("pool {}: {before} -> {after}", watched.pool.name);
            broken.push(("10 absence of data never raises capacity", detail));
        }
    }

    /// Limits, emergencies and dispatches, within the step; full power once none of them acts.
    fn sites_obey(&self, engine: &Engine, broken: &mut Vec<Broken>) {
        let Some(fleet) = &self.fleet else {
            return;
        };
        for site in fleet.sites() {
            let name = site.name.as_ref();
            let percent = engine
                .state()
                .power_percent
                .get(&site.name)
                .copied()
                .unwrap_or(100);
            let (minimum, most_percent, most_kw) = self.allowed(name);
            let here = self
                .pools
                .iter()
                .filter(|watched| watched.pool.site == site.name);
            let above = |watched: &&Watched| {
                watched
                    .wanted
                    .is_some_and(|wanted| wanted > watched.pool.min_workers)
            };
            let running = here.clone().filter(above).count();
            let kw: f64 = here
                .clone()
                .map(|watched| f64::from(watched.wanted.unwrap_or(0)) * watched.pool.training_kw)
                .sum();
            let kw = kw * f64::from(percent) / 100.0;
            let too_much = minimum
                || most_percent.is_some_and(|most| percent > most)
                || most_kw.is_some_and(|most| kw > most + 1e-6);
            if running > 0 && too_much {
                let detail = format!("site {name}: {running} pools run, {kw} kW at {percent} %");
                broken.push(("grid: limits and emergencies are obeyed at once", detail));
            }
            let acts = self
                .calls_at(name)
                .any(|call| call.kind != GridEventKind::Test);
            if !acts && percent != 100 {
                let detail = format!("site {name}: {percent} %");
                broken.push(("grid: full power once nothing acts", detail));
            }
            let called = self
                .calls_at(name)
                .any(|call| call.kind == GridEventKind::Dispatch);
            for watched in here.filter(|watched| called && watched.wanted.is_some()) {
                self.dispatched(watched, percent, broken);
            }
        }
    }

    /// A dispatch acts on a pool that no operator has taken over.
    fn dispatched(&self, watched: &Watched, percent: u8, broken: &mut Vec<Broken>) {
        let Some(policy) = watched
            .policy
            .filter(|_| self.acting(&watched.pool).pin.is_none())
        else {
            return;
        };
        let asked = self.books[policy].on_dispatch().strip_suffix('%');
        let asked = asked.and_then(|number| number.trim().parse().ok());
        if let Some(tier) = asked.and_then(|asked| self.tier(&watched.pool.site, asked)) {
            if percent > tier {
                let detail = format!("pool {}: {percent} %, not {tier}", watched.pool.name);
                broken.push(("grid: a dispatch is answered", detail));
            }
            return;
        }
        let grew = watched
            .change()
            .is_some_and(|(before, after)| after > before);
        if self.releases_on_dispatch(watched) && grew {
            let detail = format!("pool {} grows", watched.pool.name);
            broken.push(("grid: a dispatch is answered", detail));
        }
    }

    /// Limits at any instant hold; sums are counted to the last unit, and what is spent stops everything.
    fn budgets(&self, engine: &Engine, broken: &mut Vec<Broken>) {
        for book in &self.books {
            for limit in &book.limits {
                let (mut used, mut firm) = (0.0, 0.0);
                for index in &limit.pools {
                    let watched = &self.pools[*index];
                    let each = match limit.counts {
                        Instant::Workers => 1.0,
                        Instant::Power => watched.pool.training_kw,
                    };
                    let wanted = watched.wanted.unwrap_or(0);
                    let frozen = self.acting(&watched.pool).pin == Some(OverrideEffect::Freeze);
                    let stays = if frozen {
                        wanted
                    } else {
                        wanted.min(watched.pool.min_workers)
                    };
                    used += each * f64::from(wanted);
                    firm += each * f64::from(stays);
                }
                if used > limit.most.max(firm) + 1e-6 {
                    let detail = format!("{}: {used} of {}", limit.name, limit.most);
                    broken.push(("budget: a limit holds at any instant", detail));
                }
            }
            for sum in book.sums.iter().filter(|sum| sum.counted()) {
                sum_is_right(sum, engine, broken);
                if !sum.is_spent() {
                    continue;
                }
                for index in &sum.pools {
                    let watched = &self.pools[*index];
                    let frozen = self.acting(&watched.pool).pin == Some(OverrideEffect::Freeze);
                    let runs = watched
                        .wanted
                        .is_some_and(|wanted| wanted > watched.pool.min_workers);
                    if runs && !frozen {
                        let detail =
                            format!("{} is spent, and {} runs", sum.budget, watched.pool.name);
                        broken.push(("budget: what is spent is spent", detail));
                    }
                }
            }
        }
    }

    /// Of the sites of a policy, no more change at a time than it says, but for what does not wait.
    fn changes_in_turn(&self, at: Timestamp, broken: &mut Vec<Broken>) {
        for (policy, book) in self.books.iter().enumerate() {
            let Some(most) = book.changing_most() else {
                continue;
            };
            // Per site: was it changing before, does it change now, and does it have to.
            let mut sites: BTreeMap<&Arc<str>, (bool, bool, bool)> = BTreeMap::new();
            for (index, watched) in self.pools.iter().enumerate() {
                if watched.policy != Some(policy) || watched.wanted.is_none() {
                    continue;
                }
                let site = sites.entry(&watched.pool.site).or_default();
                let within = watched.pool.ready_after + watched.pool.ready_after;
                if watched.changed() {
                    let acting = self.acting(&watched.pool);
                    let down = watched.wanted < watched.before;
                    let forced = acting.pin == Some(OverrideEffect::Off)
                        || acting.limited
                        || book.is_spent_for(index);
                    site.1 = true;
                    site.2 |= down && forced;
                } else if watched
                    .changed_at
                    .is_some_and(|changed| at < changed + within)
                {
                    site.0 |= watched.wanted != Some(watched.ready);
                }
            }
            let changing = sites.values().filter(|site| site.0 || site.1).count();
            let chosen = sites
                .values()
                .filter(|site| site.1 && !site.0 && !site.2)
                .count();
            if chosen > 0 && changing > most as usize {
                let detail = format!("policy {}: {changing} sites change, {most} may", book.name);
                broken.push(("blast radius: sites change in turn", detail));
            }
        }
    }

    /// A test event is nothing but an entry in the log.
    fn drills_do_nothing(&self, actions: &[Action], broken: &mut Vec<Broken>) {
        for action in actions {
            let cause = match action {
                Action::Scale(scale) => &scale.cause.by,
                Action::Broadcast(envelope) => &envelope.cause.by,
                _ => continue,
            };
            let Some(id) = cause.strip_prefix("grid_event/") else {
                continue;
            };
            let drill = |(key, call): (&(Arc<str>, Arc<str>), &super::GridEvent)| {
                key.1.as_ref() == id && call.kind == GridEventKind::Test
            };
            if self.calls.iter().any(drill) {
                broken.push(("grid: a test changes nothing", format!("{id}: {action:?}")));
            }
        }
    }
}

fn bounds(watched: &Watched, wanted: u32, broken: &mut Vec<Broken>) {
    let (min, max) = (watched.pool.min_workers, watched.pool.max_workers);
    if !(min..=max).contains(&wanted) {
        let detail = format!("pool {}: {wanted}, not {min} to {max}", watched.pool.name);
        broken.push(("bounds", detail));
    }
}

/// Where the engine has counted a sum up to now, it has counted what we have.
fn sum_is_right(sum: &super::sums::Sum, engine: &Engine, broken: &mut Vec<Broken>) {
    let accounts = &engine.state().accounts.budgets;
    let same = |account: &&sunward_core::coordination::Account| {
        account.budget.as_ref() == sum.budget && account.part.as_ref() == sum.part
    };
    let Some(account) = accounts.iter().find(same) else {
        let detail = format!("{} {} has no account", sum.budget, sum.part);
        return broken.push(("budget: what was spent is counted", detail));
    };
    let spend = &account.spend;
    if spend.since == engine.state().at && i128::from(spend.spent) != sum.spent() {
        let (theirs, ours) = (spend.spent, sum.spent());
        let detail = format!(
            "{} {}: {theirs} by its account, {ours} drawn",
            sum.budget, sum.part
        );
        broken.push(("budget: what was spent is counted", detail));
    }
}
