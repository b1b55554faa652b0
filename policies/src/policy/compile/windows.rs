//! The `window` of a rule.

use super::Compiler;
use super::names::Names;
use crate::codes;
use crate::document::WindowDocument;
use crate::expr::Condition;
use crate::policy::{Expectation, Window};
use crate::rules::CalendarSet;
use crate::time::Span;
use crate::words::{EXPECTS, Expect};
use crate::yaml::Spanned;

impl Compiler<'_> {
    /// `ending` is the condition whose turning true ends the window; it is absent where that is wrong itself.
    pub(super) fn window(
        &mut self,
        window: &WindowDocument,
        ending: Option<&Condition>,
        names: &Names<'_>,
    ) -> Option<Window> {
        let expect = self.word(&window.expect, "expect", EXPECTS);
        let at_least = self.optional_duration(window.at_least.as_ref());
        let start_cost = self.optional_duration(window.start_cost.as_ref());
        let leave = match &window.leave_before_end {
            None => Some(None),
            Some(text) => self.duration(text).map(Some),
        };
        let expectation = expect.and_then(|expect| self.expectation(expect, window, names));
        if expect == Some(Expect::Forecast) {
            self.looks_ahead(&window.expect, ending?, names)?;
        }
        let (at_least, start_cost, leave) = (at_least?, start_cost?, leave?);
        let expect = expectation?;
        let compiled = Window {
            expect,
            at_least,
            start_cost,
            leave_before_end: leave,
        };
        self.leaves_time_to_train(&compiled, window)?;
        self.is_long_enough(&compiled, window, names)?;
        Some(compiled)
    }

    fn expectation(
        &mut self,
        expect: Expect,
        window: &WindowDocument,
        names: &Names<'_>,
    ) -> Option<Expectation> {
        if let Some(calendar) = window
            .calendar
            .as_ref()
            .filter(|_| expect != Expect::Schedule)
        {
            let message = "`calendar` belongs to `expect: schedule`";
            self.error_at(
                codes::BAD_WINDOW,
                calendar,
                message,
                "remove it, or write `expect: schedule`",
            );
            return None;
        }
        if let Some(lasts) = window
            .lasts
            .as_ref()
            .filter(|_| expect != Expect::Guarantee)
        {
            let message = "`lasts` belongs to `expect: guarantee`";
            let help = match expect {
                Expect::Schedule => "remove it: the calendar itself says how long its windows last",
                _ => "remove it, or write `expect: guarantee`",
            };
            self.error_at(codes::BAD_WINDOW, lasts, message, help);
            return None;
        }
        match (expect, &window.calendar, &window.lasts) {
            (Expect::Forecast, ..) => Some(Expectation::Forecast),
            (Expect::Schedule, Some(calendar), _) => {
                let calendar = self.declared_calendar(calendar, names)?;
                self.calendars_read = self.calendars_read.union(CalendarSet::of(calendar));
                Some(Expectation::Schedule { calendar })
            }
            (Expect::Schedule, None, _) => {
                let help = match names.calendar_names().first() {
                    Some(name) => format!("add `calendar: {name}`"),
                    None => {
                        "declare a calendar under `calendars` and add `calendar: NAME`".to_owned()
                    }
                };
                let message = "a schedule needs the calendar that it follows";
                self.error_at(codes::BAD_WINDOW, &window.expect, message, help);
                None
            }
            (Expect::Guarantee, _, Some(lasts)) => {
                let lasts = self.positive_duration(
                    lasts,
                    "a guarantee of 0s promises nothing",
                    "write how long each window lasts, such as `2h`",
                )?;
                Some(Expectation::Guarantee { lasts })
            }
            (Expect::Guarantee, _, None) => {
                let message = "a guarantee needs the time that it is for";
                let help =
                    "add `lasts: 2h`, what the partner guarantees from the start of a window";
                self.error_at(codes::BAD_WINDOW, &window.expect, message, help);
                None
            }
        }
    }

    /// A window by forecast needs something that is known ahead: a signal that the policy looks ahead on, or a
    /// calendar.
    fn looks_ahead(
        &mut self,
        expect: &Spanned<String>,
        ending: &Condition,
        names: &Names<'_>,
    ) -> Option<()> {
        let mut signals = ending.signals().iter();
        let known = signals.any(|signal| names.looks_ahead(signal))
            || (ending.signals().is_empty() && !ending.calendars().is_empty());
        if known {
            return Some(());
        }
        let read: Vec<String> = ending
            .signals()
            .iter()
            .map(|signal| format!("`{}`", names.signal_name(signal)))
            .collect();
        let message = if read.is_empty() {
            "the condition that ends the window reads no signal, so no forecast can tell its end"
                .to_owned()
        } else {
            format!(
                "nothing ahead is known: the condition that ends the window reads {}, without `forecast_max_age`",
                read.join(", ")
            )
        };
        let help = "add `forecast_max_age: 26h` to a signal whose source issues forecasts, or write \
                    `expect: schedule` or `guarantee`";
        self.error_at(codes::NO_FORECAST, expect, message, help);
        None
    }

    /// Leaving before `at_least` has passed would break the promise that the start was made on.
    fn leaves_time_to_train(&mut self, window: &Window, document: &WindowDocument) -> Option<()> {
        let (Some(leave), Some(text)) = (window.leave_before_end, &document.leave_before_end)
        else {
            return Some(());
        };
        if leave < window.at_least {
            return Some(());
        }
        let message = format!(
            "leaving {leave} before the end leaves nothing of the shortest window, of which {} are for training",
            window.at_least
        );
        let help = "make `leave_before_end` shorter than `at_least`";
        self.error_at(codes::BAD_WINDOW, text, message, help);
        None
    }

    /// A window whose length is known beforehand has to be long enough for a start.
    fn is_long_enough(
        &mut self,
        window: &Window,
        document: &WindowDocument,
        names: &Names<'_>,
    ) -> Option<()> {
        let needed: Span = window.start_cost + window.at_least;
        let lasts = match window.expect {
            Expectation::Forecast => return Some(()),
            Expectation::Schedule { calendar } => names.calendar_lasts(calendar)?,
            Expectation::Guarantee { lasts } => lasts,
        };
        if needed <= lasts {
            return Some(());
        }
        let message = format!(
            "no start is ever made: each window lasts {lasts}, and {needed} are needed beside the time to become ready"
        );
        let help = "make `at_least` or `start_cost` shorter, or the window longer";
        let place = document.at_least.as_ref().or(document.start_cost.as_ref());
        self.error_at(
            codes::BAD_WINDOW,
            place.unwrap_or(&document.expect),
            message,
            help,
        );
        None
    }
}
