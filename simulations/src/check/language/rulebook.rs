//! One policy, as far as the checkers judge by it.

use std::sync::Arc;

use sunward_core::fleet::{Fleet, Pool};
use sunward_core::signal::StreamKey;
use sunward_core::time::{Span, Timestamp};
use sunward_policies::document::SourceFile;

use super::sums::{self, Limit, Sum};
use super::text::{self, Document, Side, Stream};
use super::{Boards, local_time, read};

/// Calendars are looked at from so long before the start on, so that a window in progress is known.
const LOOK_BACK: Span = Span::from_mins(8 * 24 * 60);

/// A rule that starts only while a calendar is open: `calendar.name && signal < number`, or the calendar alone.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    /// The windows of its calendar.
    pub(super) windows: Vec<(Timestamp, Timestamp)>,
    /// What must hold beside it: a signal, by its place, below a number or not.
    pub(super) below: Option<(usize, f64)>,
    /// What a window must leave after the time to get ready.
    pub(super) least: Span,
}

/// A policy.
#[derive(Clone, Debug)]
pub(super) struct Rulebook {
    pub(super) name: String,
    document: Arc<Document>,
    pub(super) min_run: Span,
    pub(super) min_rest: Span,
    /// All its rules, where each of them starts in the windows of a calendar alone.
    pub(super) openings: Option<Vec<Opening>>,
    /// Limits that hold at any instant.
    pub(super) limits: Vec<Limit>,
    /// Sums over a period.
    pub(super) sums: Vec<Sum>,
    streams_in_use: Vec<StreamKey>,
}

impl Rulebook {
    /// Reads a policy; `None` where it only observes, or can't be read.
    pub(super) fn read(
        file: &SourceFile,
        fleet: &Fleet,
        start: Timestamp,
        end: Timestamp,
    ) -> Option<Rulebook> {
        let document = read(file)?;
        let spec = &document.spec;
        if spec.mode.as_deref() == Some("observe") || fleet.pools().is_empty() {
            return None;
        }
        Some(Rulebook {
            name: document.metadata.name.clone(),
            min_run: text::span(spec.min_run.as_deref()),
            min_rest: text::span(spec.min_rest.as_deref()),
            openings: openings(&document, start - LOOK_BACK, end),
            limits: Vec::new(),
            sums: Vec::new(),
            streams_in_use: Vec::new(),
            document: Arc::new(document),
        })
    }

    pub(super) fn governs(&self, pool: &Pool) -> bool {
        let pools = &self.document.spec.pools;
        pools
            .iter()
            .all(|(label, value)| pool.labels.get(label) == Some(value))
    }

    /// The streams of its signals for a pool, by the signals' names.
    pub(super) fn streams_of(&self, pool: &Pool, fleet: &Fleet) -> Vec<Option<Stream>> {
        let signals = self.document.spec.signals.values();
        signals.map(|signal| signal.stream(pool, fleet)).collect()
    }

    /// The pools that it alone governs.
    pub(super) fn take_pools(&mut self, governed: &[(usize, Arc<Pool>)], fleet: &Fleet) {
        let document = self.document.clone();
        for budget in &document.spec.budgets {
            for (part, pools) in sums::parts(&budget.scope, governed) {
                let streams = pools.iter().map(|index| {
                    let signal = document.spec.signals.get(budget.signal.as_ref()?)?;
                    let (_, pool) = governed.iter().find(|(place, _)| place == index)?;
                    signal.stream(pool, fleet)
                });
                let streams = streams.collect();
                self.limits
                    .extend(sums::limit(&self.name, budget, pools.clone()));
                self.sums
                    .extend(sums::sum(&self.name, budget, &part, pools, streams));
            }
        }
        self.streams_in_use = governed
            .iter()
            .flat_map(|(_, pool)| self.streams_of(pool, fleet))
            .flatten()
            .map(|stream| stream.key)
            .collect();
    }

    pub(super) fn streams(&self) -> Vec<StreamKey> {
        self.streams_in_use.clone()
    }

    pub(super) fn begin(&mut self, at: Timestamp) {
        self.sums.iter_mut().for_each(|sum| sum.begin(at));
    }

    pub(super) fn count(&mut self, at: Timestamp, draws: &[i128], boards: &Boards) {
        self.sums
            .iter_mut()
            .for_each(|sum| sum.count(at, draws, boards));
    }

    pub(super) fn set_spent(&mut self, budget: &str, part: &str, spent: i64) {
        self.sums
            .iter_mut()
            .for_each(|sum| sum.set(budget, part, spent));
    }

    /// A sum that a pool is in is spent.
    pub(super) fn is_spent_for(&self, pool: usize) -> bool {
        self.sums
            .iter()
            .any(|sum| sum.pools.contains(&pool) && sum.is_spent())
    }

    /// At most so many of its sites change at a time.
    pub(super) fn changing_most(&self) -> Option<u32> {
        self.document.spec.max_changing_sites
    }

    /// What a dispatch does: `keep`, `release`, or a percentage.
    pub(super) fn on_dispatch(&self) -> &str {
        self.document.spec.on_dispatch.as_deref().unwrap_or("keep")
    }

    /// Something of it may start a pool without its signals: a deadline, or a floor that says so.
    pub(super) fn starts_blind(&self) -> bool {
        let spec = &self.document.spec;
        let run = |floor: &text::FloorText| floor.on_missing.as_deref() == Some("run");
        !spec.deadlines.is_empty() || spec.floors.iter().any(run)
    }

    /// Nothing but its own rules decides on a pool: no budgets, floors, deadlines, blast radius.
    pub(super) fn is_alone(&self) -> bool {
        let spec = &self.document.spec;
        spec.budgets.is_empty()
            && spec.floors.is_empty()
            && spec.deadlines.is_empty()
            && spec.max_changing_sites.is_none()
    }
}

/// The openings of all rules, or `None` where one of them is more than that.
fn openings(document: &Document, from: Timestamp, to: Timestamp) -> Option<Vec<Opening>> {
    let spec = &document.spec;
    if spec.rules.is_empty() || spec.calendars.is_empty() {
        return None;
    }
    let opening = |rule: &text::Rule| {
        let Side {
            when,
            held: None,
            samples: None,
        } = &rule.activate
        else {
            return None;
        };
        let (calendar, rest) = match when.split_once("&&") {
            Some((calendar, rest)) => (calendar, Some(rest)),
            None => (when.as_str(), None),
        };
        let cron = spec
            .calendars
            .get(calendar.trim().strip_prefix("calendar.")?)?;
        let below = match rest {
            None => None,
            Some(rest) => {
                let (signal, number) = rest.split_once('<')?;
                let place = spec.signals.keys().position(|name| name == signal.trim())?;
                Some((place, number.trim().parse().ok()?))
            }
        };
        let window = rule.window.as_ref();
        let least = |text: Option<&String>| text::span(text.map(String::as_str));
        Some(Opening {
            windows: local_time::windows(cron, from, to)?,
            below,
            least: least(window.and_then(|window| window.at_least.as_ref()))
                + least(window.and_then(|window| window.start_cost.as_ref())),
        })
    };
    spec.rules.iter().map(opening).collect()
}
