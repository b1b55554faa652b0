//! Reasons in words, with names and figures.

use std::fmt::Write as _;

use sunward_policies::policy::Measure;
use sunward_policies::time::Timestamp;

use super::{Accounts, BudgetPart, Coordination, Note, Why};

impl Why {
    /// A stable word.
    pub fn word(self) -> &'static str {
        match self {
            Why::Budget(_) => "budget",
            Why::Exhausted(_) => "budget_exhausted",
            Why::SpendUnknown(_) => "budget_unknown",
            Why::Floor(_) => "floor",
            Why::DeadlineNeeds(_) => "deadline",
            Why::DeadlineChose(_) => "deadline_hours",
            Why::BlastRadius { .. } => "blast_radius",
        }
    }
}

impl Note {
    /// A stable word, for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Note::FloorBlocked { .. } => "floor_blocked",
            Note::DeadlineMissed { .. } => "deadline_missed",
            Note::BudgetExhausted { .. } => "budget_exhausted",
        }
    }
}

/// Thousandths of `value / scale`, as a decimal without zeros at its end.
fn decimal(value: i64, scale: i64) -> String {
    let thousandths = i128::from(value) * 1_000 / i128::from(scale);
    let mut text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
    let kept = text.trim_end_matches('0').trim_end_matches('.').len();
    text.truncate(kept);
    text
}

/// An amount in the measure's integer unit, in the unit that people read.
pub(super) fn amount(part: &BudgetPart, value: i64) -> String {
    match part.measure {
        Measure::Workers => format!("{value} workers"),
        Measure::Power => format!("{} kW", decimal(value, 1_000)),
        Measure::Energy => format!("{} kWh", decimal(value, 1_000_000)),
        Measure::Carbon => format!("{} kgCO2e", decimal(value, 1_000_000)),
        Measure::Money => format!("{} {}", decimal(value, 1_000), part.unit),
    }
}

/// Worker-milliseconds as worker-hours.
fn worker_hours(value: i64) -> String {
    format!("{} worker-hours", decimal(value, 3_600_000))
}

impl Coordination {
    /// Why a target is not what it would be alone, in words.
    pub fn describe(&self, why: Why, accounts: &Accounts) -> String {
        match why {
            Why::Budget(place) => self.of_budget(place, accounts, |part, spend| {
                let room = format!("budget {} leaves no room for more", named(part));
                match spend {
                    Some((spent, to)) => format!(
                        "{room}: {spent} of {} are spent until {to}, and a start must be paid for to the end of its minimum run",
                        amount(part, part.limit)
                    ),
                    None => format!("{room}: the limit is {}", amount(part, part.limit)),
                }
            }),
            Why::Exhausted(place) => self.of_budget(place, accounts, |part, spend| {
                let spent = spend.map_or_else(String::new, |(spent, to)| {
                    format!(": {spent} of {} until {to}", amount(part, part.limit))
                });
                format!("budget {} is spent{spent}", named(part))
            }),
            Why::SpendUnknown(place) => self.of_budget(place, accounts, |part, spend| {
                let until = spend.map_or_else(String::new, |(_, to)| format!(" or {to}"));
                format!(
                    "what budget {} has spent is not known: no new starts until an operator says it{until}",
                    named(part)
                )
            }),
            Why::Floor(place) => self.floors.get(place as usize).map_or_else(String::new, |floor| {
                format!("floor {} needs {} active sites", floor.name, floor.sites)
            }),
            Why::DeadlineNeeds(place) => self.of_deadline(place, accounts, "needs all its pools"),
            Why::DeadlineChose(place) => {
                self.of_deadline(place, accounts, "runs in the best hours that are left")
            }
            Why::BlastRadius { sites, .. } => format!(
                "waiting: max_changing_sites lets {sites} of the policy's sites change at a time"
            ),
        }
    }

    /// What operators should hear of, in words.
    pub fn describe_note(&self, note: Note, accounts: &Accounts) -> String {
        match note {
            Note::FloorBlocked { floor, active } => {
                self.floors.get(floor as usize).map_or_else(String::new, |floor| {
                    format!(
                        "floor {} needs {} active sites and has {active}: limits, budgets, overrides or missing data leave no other",
                        floor.name, floor.sites
                    )
                })
            }
            Note::DeadlineMissed { deadline } => {
                self.of_deadline(deadline, accounts, "has passed; its pools go on")
            }
            Note::BudgetExhausted { part } => self.describe(Why::Exhausted(part), accounts),
        }
    }

    fn of_budget(
        &self,
        place: u32,
        accounts: &Accounts,
        words: impl Fn(&BudgetPart, Option<(String, Timestamp)>) -> String,
    ) -> String {
        let Some(part) = self.budgets.get(place as usize) else {
            return String::new();
        };
        let spend = accounts.spend(place).filter(|_| part.is_sum());
        words(
            part,
            spend.map(|spend| (amount(part, spend.spent), spend.to)),
        )
    }

    fn of_deadline(&self, place: u32, accounts: &Accounts, what: &str) -> String {
        let (Some(part), Some(progress)) = (
            self.deadlines.get(place as usize),
            accounts.deadlines.get(place as usize),
        ) else {
            return String::new();
        };
        format!(
            "deadline {} {what}: {} of {} by {}",
            part.name,
            worker_hours(progress.done),
            worker_hours(part.work),
            part.finish_by
        )
    }
}

/// The budget, and whose sum it is.
fn named(part: &BudgetPart) -> String {
    let mut name = part.budget.to_string();
    if !part.part.is_empty() {
        // Writing to a String can't fail.
        let _ = write!(name, " ({})", part.part);
    }
    name
}
