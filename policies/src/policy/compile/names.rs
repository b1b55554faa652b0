//! The names that a file declares, known before any of its expressions is read.

use crate::document::{CalendarDocument, SignalDocument, SpecDocument};
use crate::expr::Scope;
use crate::rules::{CALENDARS_MAX, SIGNALS_MAX};
use crate::time::Span;
use crate::units::{Kind, Unit};
use crate::yaml::Entries;

/// What the file declares, in binding order (by name), right or wrong: an expression is told about its own mistakes
/// alone.
pub(super) struct Names<'d> {
    signals: Vec<(&'d str, Unit)>,
    documents: Vec<&'d SignalDocument>,
    calendars: Vec<&'d str>,
    calendar_documents: Vec<&'d CalendarDocument>,
}

impl<'d> Names<'d> {
    pub(super) fn of(spec: &'d SpecDocument) -> Self {
        let signals = sorted(spec.signals.as_ref(), SIGNALS_MAX);
        let calendars = sorted(spec.calendars.as_ref(), CALENDARS_MAX);
        let unit = |document: &SignalDocument| {
            Kind::parse(&document.kind.value).map_or(Unit::Plain, Kind::unit)
        };
        Names {
            signals: signals
                .iter()
                .map(|(name, document)| (*name, unit(document)))
                .collect(),
            documents: signals.iter().map(|pair| pair.1).collect(),
            calendars: calendars.iter().map(|pair| pair.0).collect(),
            calendar_documents: calendars.iter().map(|pair| pair.1).collect(),
        }
    }

    /// For the compiler of expressions.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope {
            signals: &self.signals,
            calendars: &self.calendars,
        }
    }

    /// The index of a signal among the bindings, and its kind; the inner `None` is a kind that is not known.
    pub(super) fn signal(&self, name: &str) -> Option<(usize, Option<Kind>)> {
        let index = self.signals.iter().position(|signal| signal.0 == name)?;
        let kind = Kind::parse(&self.documents[index].kind.value);
        Some((index, kind))
    }

    /// Whether the file looks ahead on a signal, by its index.
    pub(super) fn looks_ahead(&self, signal: usize) -> bool {
        self.documents
            .get(signal)
            .is_some_and(|document| document.forecast_max_age.is_some())
    }

    /// The name of a signal, by its index.
    pub(super) fn signal_name(&self, signal: usize) -> &'d str {
        self.signals.get(signal).map_or("?", |signal| signal.0)
    }

    /// The names of the signals of a kind.
    pub(super) fn signals_of(&self, kind: Kind) -> Vec<&'d str> {
        let of_kind = |index: &usize| self.documents[*index].kind.value == kind.as_str();
        (0..self.signals.len())
            .filter(of_kind)
            .map(|index| self.signals[index].0)
            .collect()
    }

    /// The names of all signals.
    pub(super) fn signal_names(&self) -> Vec<&'d str> {
        self.signals.iter().map(|signal| signal.0).collect()
    }

    /// The index of a calendar among the policy's calendars.
    pub(super) fn calendar(&self, name: &str) -> Option<usize> {
        self.calendars.iter().position(|calendar| *calendar == name)
    }

    /// The names of all calendars.
    pub(super) fn calendar_names(&self) -> &[&'d str] {
        &self.calendars
    }

    /// A calendar as it was written, by its index.
    pub(super) fn calendar_document(&self, calendar: usize) -> Option<&'d CalendarDocument> {
        self.calendar_documents.get(calendar).copied()
    }

    /// How long each window of a calendar is open, where that is well written.
    pub(super) fn calendar_lasts(&self, calendar: usize) -> Option<Span> {
        let document = self.calendar_documents.get(calendar)?;
        Span::parse(&document.lasts.value).ok()
    }
}

fn sorted<D>(entries: Option<&Entries<D>>, most: usize) -> Vec<(&str, &D)> {
    let entries = entries.map_or(&[][..], |entries| &entries.0);
    let mut named: Vec<(&str, &D)> = entries
        .iter()
        .take(most)
        .map(|(name, document)| (name.value.as_str(), &document.value))
        .collect();
    named.sort_by_key(|pair| pair.0);
    named
}
