//! Calendars against a slow and simple reading of the same words, on every change of the clocks of two years.

use std::collections::BTreeSet;

use chrono::{DateTime, Datelike as _, LocalResult, NaiveDateTime, TimeZone as _, Timelike as _};
use chrono_tz::Tz;
use proptest::prelude::*;

use super::super::*;
use super::{ZONES, changes};

/// A field as the oracle understands it.
#[derive(Clone, Debug)]
enum Values {
    Any,
    Every(u32),
    List(Vec<u32>),
}

impl Values {
    fn text(&self) -> String {
        match self {
            Values::Any => "*".to_owned(),
            Values::Every(step) => format!("*/{step}"),
            Values::List(list) => list
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(","),
        }
    }

    fn has(&self, value: u32, least: u32) -> bool {
        match self {
            Values::Any => true,
            Values::Every(step) => (value - least).is_multiple_of(*step),
            Values::List(list) => list.contains(&value),
        }
    }

    fn is_list(&self) -> bool {
        matches!(self, Values::List(_))
    }
}

/// The same calendar once more, as plainly as can be.
#[derive(Clone, Debug)]
struct Oracle {
    minute: Values,
    hour: Values,
    day: Values,
    weekday: Values,
    lasts: i64,
    zone: Tz,
}

impl Oracle {
    fn calendar(&self) -> Calendar {
        let (minute, hour) = (self.minute.text(), self.hour.text());
        let cron = format!(
            "{minute} {hour} {} * {}",
            self.day.text(),
            self.weekday.text()
        );
        Calendar::compile(&cron, Span::from_mins(self.lasts), self.zone).unwrap()
    }

    fn names(&self, local: NaiveDateTime) -> bool {
        let day = self.day.has(local.day(), 1);
        let weekday = self.weekday.has(local.weekday().num_days_from_sunday(), 0);
        let date = if self.day.is_list() && self.weekday.is_list() {
            day || weekday
        } else {
            day && weekday
        };
        date && self.hour.has(local.hour(), 0) && self.minute.has(local.minute(), 0)
    }

    /// The starts between two instants, in minutes since 1970.
    fn starts(&self, from: i64, to: i64) -> BTreeSet<i64> {
        let utc = |minute: i64| DateTime::from_timestamp(minute * 60, 0).unwrap();
        if !self.minute.is_list() || !self.hour.is_list() {
            return (from..to)
                .filter(|minute| self.names(utc(*minute).with_timezone(&self.zone).naive_local()))
                .collect();
        }
        let day = 24 * 60;
        (from - day..to + day)
            .map(|minute| utc(minute).naive_utc())
            .filter(|local| self.names(*local))
            .map(|mut local| {
                loop {
                    match self.zone.from_local_datetime(&local) {
                        LocalResult::Single(at) => break at.timestamp() / 60,
                        LocalResult::Ambiguous(a, b) => break a.min(b).timestamp() / 60,
                        LocalResult::None => local += chrono::Duration::minutes(1),
                    }
                }
            })
            .filter(|start| (from..to).contains(start))
            .collect()
    }

    /// Walks minute by minute from `from` to `to` and compares.
    fn check(&self, from: i64, to: i64) {
        let calendar = self.calendar();
        let reach = 4 * 24 * 60;
        let starts = self.starts(from - reach, to + reach);
        let open = |minute: i64| {
            starts
                .range(minute - self.lasts + 1..=minute)
                .next()
                .is_some()
        };
        // From behind, so that the next change is known.
        let mut change = None;
        let mut state = open(to + reach - 1);
        let (mut expected, mut minute) = (Vec::new(), to + reach - 2);
        while minute >= from {
            if open(minute) != state {
                change = Some(minute + 1);
                state = !state;
            }
            if minute < to {
                expected.push((
                    minute,
                    CalendarFact {
                        open: state,
                        until: change.map(minutes),
                    },
                ));
            }
            minute -= 1;
        }
        for (minute, expected) in expected {
            for inside in [0, 59_999] {
                let now = minutes(minute) + Span::from_millis(inside);
                let found = calendar.at(now);
                assert_eq!(found.open, expected.open, "{self:?} at {now}");
                match expected.until {
                    Some(_) => assert_eq!(found.until, expected.until, "{self:?} at {now}"),
                    None => assert!(
                        found
                            .until
                            .is_none_or(|until| until >= minutes(to + reach - 1)),
                        "{self:?} at {now}"
                    ),
                }
            }
            self.check_window(&calendar, minutes(minute), expected);
        }
    }

    fn check_window(&self, calendar: &Calendar, now: Timestamp, fact: CalendarFact) {
        // Looking for the beginning is slow: once an hour will do.
        if now.as_millis() % zone::HOUR_MS != 0 {
            return;
        }
        let window = calendar.window(now);
        assert_eq!(window.is_some(), fact.open, "{self:?} at {now}");
        if let Some((from, to)) = window.filter(|window| window.0 > Timestamp::MIN) {
            assert!(from <= now && now < to);
            assert!(
                !calendar.at(from - Span::from_millis(1)).open,
                "{self:?} at {from}"
            );
            assert!(calendar.at(from).open, "{self:?} at {from}");
        }
    }
}

fn minutes(minute: i64) -> Timestamp {
    Timestamp::from_millis(minute * MINUTE_MS)
}

#[test]
fn every_change_of_two_years_agrees_with_the_oracle() {
    let list = |list: &[u32]| Values::List(list.to_vec());
    for zone in ZONES {
        for change in changes(zone) {
            let minute = change / MINUTE_MS;
            let hour = list(&[u32::try_from(
                (change + zone::offset(zone, change)).rem_euclid(DAY_MS) / zone::HOUR_MS,
            )
            .unwrap()]);
            // Before, inside and after the change, over it from the evening before, and often.
            for (minutes, hours, lasts) in [
                (list(&[45]), list(&[0, 1]), 20),
                (list(&[0, 10, 30]), list(&[1, 2, 3]), 25),
                (list(&[15]), hour, 60),
                (list(&[0]), list(&[22]), 8 * 60),
                (Values::Every(15), Values::Any, 5),
                (Values::Every(20), list(&[1, 2, 3]), 20),
            ] {
                let (day, weekday) = (Values::Any, Values::Any);
                let oracle = Oracle {
                    minute: minutes,
                    hour: hours,
                    day,
                    weekday,
                    lasts,
                    zone,
                };
                oracle.check(minute - 6 * 60, minute + 10 * 60);
            }
        }
    }
}

fn any_values(least: u32, most: u32) -> impl Strategy<Value = Values> {
    prop_oneof![
        1 => Just(Values::Any),
        1 => (1..most - least).prop_map(Values::Every),
        3 => prop::collection::btree_set(least..=most, 1..4).prop_map(|set| Values::List(set.into_iter().collect())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_calendar_agrees_with_the_oracle(
        minute in any_values(0, 59),
        hour in any_values(0, 23),
        day in prop_oneof![2 => Just(Values::Any), 1 => any_values(1, 28)],
        weekday in prop_oneof![2 => Just(Values::Any), 1 => any_values(0, 6)],
        lasts in prop_oneof![1..90_i64, 90..3_000_i64],
        zone in prop::sample::select(ZONES.to_vec()),
        which: prop::sample::Index,
        away in -40 * 60..40 * 60_i64,
    ) {
        let changes = changes(Tz::Europe__Berlin).into_iter().chain(changes(zone)).collect::<Vec<_>>();
        let middle = changes[which.index(changes.len())] / MINUTE_MS + away;
        let oracle = Oracle { minute, hour, day, weekday, lasts, zone };
        oracle.check(middle - 300, middle + 300);
    }
}
