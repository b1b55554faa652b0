//! What a rule's memory depends on, as one hash.

use sha2::{Digest as _, Sha256};

use super::names::Names;
use crate::document::CalendarDocument;
use crate::policy::{BindingScope, Expectation, OnEstimated, SignalBinding, Then, Window};
use crate::rules::threshold::{Side, ThresholdParts};
use crate::rules::{CalendarSet, SignalSet};
use crate::time::Span;
use crate::units::Basis;

/// Each field is preceded by its length, so that no two lists of fields agree.
struct Fields(Sha256);

impl Fields {
    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }

    fn span(&mut self, span: Span) {
        self.text(&span.as_millis().to_string());
    }

    fn optional_span(&mut self, span: Option<Span>) {
        match span {
            None => self.text(""),
            Some(span) => self.span(span),
        }
    }

    fn side(&mut self, side: &Side) {
        self.text(side.when.text());
        self.span(side.held_for);
        self.text(&side.samples.to_string());
    }

    fn window(&mut self, window: &Window, names: &Names<'_>) {
        match window.expect {
            Expectation::Forecast => self.text("forecast"),
            Expectation::Schedule { calendar } => {
                self.text("schedule");
                self.text(names.calendar_names().get(calendar).copied().unwrap_or("?"));
            }
            Expectation::Guarantee { lasts } => {
                self.text("guarantee");
                self.span(lasts);
            }
        }
        self.span(window.at_least);
        self.span(window.start_cost);
        self.optional_span(window.leave_before_end);
    }

    fn binding(&mut self, binding: &SignalBinding) {
        self.text(&binding.name);
        self.text(&binding.source);
        self.text(binding.kind.as_str());
        self.text(binding.basis.map_or("", Basis::as_str));
        match &binding.scope {
            BindingScope::Site => self.text("site"),
            BindingScope::Zone { scheme } => self.text(scheme),
        }
        self.span(binding.max_age);
        self.span(binding.on_missing.hold);
        self.text(match binding.on_missing.then {
            Then::Release => "release",
            Then::Keep => "keep",
        });
        self.text(match binding.on_estimated {
            OnEstimated::Use => "use",
            OnEstimated::Missing => "missing",
        });
        self.optional_span(binding.forecast_max_age);
        self.text(if binding.add_back_own_draw {
            "add back"
        } else {
            ""
        });
    }

    fn calendar(&mut self, name: &str, document: &CalendarDocument) {
        self.text(name);
        self.text(&document.cron.value);
        self.text(&document.lasts.value);
        self.text(&document.time_zone.value);
    }
}

/// Of everything that a threshold's memory depends on: conditions, times, window and workers, and what they read.
pub(super) fn rule_hash(
    parts: &ThresholdParts,
    signals: &[SignalBinding],
    names: &Names<'_>,
) -> [u8; 32] {
    let mut fields = Fields(Sha256::new());
    fields.text("threshold 2");
    let (mut signals_read, mut calendars_read) = (SignalSet::EMPTY, CalendarSet::EMPTY);
    // What is not given is a field of its own, so that a part can't stand in another's place.
    for side in [Some(&parts.activate), parts.release.as_ref()] {
        let Some(side) = side else {
            fields.text("no release");
            continue;
        };
        fields.side(side);
        signals_read = signals_read.union(side.when.signals());
        calendars_read = calendars_read.union(side.when.calendars());
    }
    match &parts.window {
        None => fields.text("no window"),
        Some(window) => fields.window(window, names),
    }
    if let Some(Window {
        expect: Expectation::Schedule { calendar },
        ..
    }) = parts.window
    {
        calendars_read = calendars_read.union(CalendarSet::of(calendar));
    }
    match &parts.workers {
        None => fields.text("all workers"),
        Some(workers) => {
            fields.text("workers");
            fields.text(workers.text());
            signals_read = signals_read.union(workers.signals());
            calendars_read = calendars_read.union(workers.calendars());
        }
    }
    for binding in signals_read.iter().filter_map(|index| signals.get(index)) {
        fields.binding(binding);
    }
    for index in calendars_read.iter() {
        if let (Some(name), Some(document)) = (
            names.calendar_names().get(index),
            names.calendar_document(index),
        ) {
            fields.calendar(name, document);
        }
    }
    fields.0.finalize().into()
}
