//! The `calendars` of a policy, and time zones.

use chrono_tz::{TZ_VARIANTS, Tz};

use super::Compiler;
use super::names::Names;
use crate::calendar::Calendar;
use crate::codes;
use crate::diagnostic::nearest;
use crate::document::CalendarDocument;
use crate::policy::CalendarBinding;
use crate::rules::CALENDARS_MAX;
use crate::time::Span;
use crate::yaml::{Entries, Spanned, suggestion};

/// The fewest characters of a part of a zone's name that make it a hint at the whole.
const ZONE_PART_MIN: usize = 3;

impl Compiler<'_> {
    pub(super) fn calendars(
        &mut self,
        calendars: Option<&Entries<CalendarDocument>>,
    ) -> Option<Vec<CalendarBinding>> {
        let entries = calendars.map_or(&[][..], |entries| &entries.0);
        if let Some((name, _)) = entries.get(CALENDARS_MAX) {
            let message = format!("{} calendars; {CALENDARS_MAX} are allowed", entries.len());
            self.error_at(codes::TOO_LARGE, name, message, "split the policy");
            return None;
        }
        let bindings: Vec<Option<CalendarBinding>> = entries
            .iter()
            .map(|(name, calendar)| self.calendar(name, &calendar.value))
            .collect();
        let mut bindings: Vec<CalendarBinding> = bindings.into_iter().collect::<Option<_>>()?;
        bindings.sort_by(|a, b| a.name.cmp(&b.name));
        Some(bindings)
    }

    fn calendar(
        &mut self,
        name: &Spanned<String>,
        document: &CalendarDocument,
    ) -> Option<CalendarBinding> {
        let variable = self.variable(name, "calendar");
        let lasts = self.positive_duration(
            &document.lasts,
            "a window that lasts 0s is never open",
            "say how long each window is open, such as `8h`",
        );
        let zone = self.time_zone(&document.time_zone);
        // The expression is checked in any case, so that every mistake is told at once.
        let checked = (lasts.unwrap_or(Span::from_mins(1)), zone.unwrap_or(Tz::UTC));
        let calendar = match Calendar::compile(&document.cron.value, checked.0, checked.1) {
            Ok(calendar) => Some(calendar),
            Err(error) => {
                let (code, range) = match error.span {
                    Some(span) => (
                        codes::BAD_CRON,
                        self.source.range_within(&document.cron, span),
                    ),
                    None => (codes::BAD_DURATION, self.source.range_of(&document.lasts)),
                };
                self.error(code, range, error.message, error.help);
                None
            }
        };
        lasts?;
        zone?;
        Some(CalendarBinding {
            name: variable?,
            calendar: calendar?,
            words: format!(
                "{} for {} in {}",
                document.cron.value.trim(),
                document.lasts.value,
                document.time_zone.value
            ),
            range: self.source.range_of(name),
        })
    }

    /// A zone by its name in the IANA database.
    pub(super) fn time_zone(&mut self, zone: &Spanned<String>) -> Option<Tz> {
        if let Ok(zone) = zone.value.parse() {
            return Some(zone);
        }
        let message = format!("`{}` is not a time zone of the IANA database", zone.value);
        self.error_at(
            codes::UNKNOWN_TIME_ZONE,
            zone,
            message,
            zone_help(&zone.value),
        );
        None
    }

    /// A calendar of this policy, by its name.
    pub(super) fn declared_calendar(
        &mut self,
        name: &Spanned<String>,
        names: &Names<'_>,
    ) -> Option<usize> {
        // In expressions it is written with the prefix.
        let bare = name.value.strip_prefix("calendar.").unwrap_or(&name.value);
        let found = names.calendar(&name.value);
        if found.is_none() {
            let message = format!("this policy has no calendar `{}`", name.value);
            let help = if names.calendar(bare).is_some() {
                format!("write `{bare}`: only expressions use the prefix")
            } else if names.calendar_names().is_empty() {
                format!(
                    "declare it: `calendars: {{{bare}: {{cron: \"0 22 * * *\", lasts: 8h, time_zone: Europe/Berlin}}}}`"
                )
            } else {
                suggestion(bare, names.calendar_names(), "calendars")
            };
            self.error_at(codes::UNKNOWN_CALENDAR, name, message, help);
        }
        found
    }
}

/// How to mend the name of a zone: the nearest, one of which it is a part, or what is wrong with it in general.
fn zone_help(name: &str) -> String {
    let offset = name
        .trim_start_matches("UTC")
        .trim_start_matches("GMT")
        .starts_with(['+', '-']);
    if offset {
        return "name the region, such as `Europe/Berlin`: an offset does not follow summer time"
            .to_owned();
    }
    let known = || TZ_VARIANTS.iter().map(|zone| zone.name());
    let lower = name.to_ascii_lowercase().replace(' ', "_");
    let same = known().find(|zone| zone.eq_ignore_ascii_case(&lower));
    let part = || {
        known().find(|zone| {
            let city = zone.rsplit('/').next().unwrap_or_default();
            lower.len() >= ZONE_PART_MIN && city.eq_ignore_ascii_case(&lower)
        })
    };
    let near = || {
        let cities = known().filter_map(|zone| zone.split_once('/').map(|(_, city)| city));
        nearest(name, known()).map(str::to_owned).or_else(|| {
            let city = nearest(name, cities)?;
            known().find(|zone| zone.ends_with(city)).map(str::to_owned)
        })
    };
    match same.or_else(part).map(str::to_owned).or_else(near) {
        Some(zone) => format!("did you mean `{zone}`? zones are named by region and city"),
        None => "use a name such as `Europe/Berlin`, `America/Los_Angeles` or `UTC`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::zone_help;

    #[test]
    fn the_zone_that_was_meant_is_named() {
        for (written, meant) in [
            ("europe/berlin", "`Europe/Berlin`"),
            ("Europe/Berln", "`Europe/Berlin`"),
            ("Berlin", "`Europe/Berlin`"),
            ("America/Los Angeles", "`America/Los_Angeles`"),
            ("New York", "`America/New_York`"),
            ("Sidney", "`Australia/Sydney`"),
            ("utc", "`UTC`"),
            ("UTC+2", "an offset does not follow summer time"),
            ("+02:00", "an offset does not follow summer time"),
            ("W. Europe Standard Time", "use a name such as"),
            ("", "use a name such as"),
        ] {
            let help = zone_help(written);
            assert!(help.contains(meant), "{written}: {help}");
        }
    }
}
