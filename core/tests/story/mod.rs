//! Random stories: readings, forecasts, gaps, trouble, restarts, operators and grid events, on a fleet of two pools.
#![allow(dead_code, reason = "each test file uses its own part")]

use proptest::prelude::*;
use sunward_core::event::{Call, Event, Outcome, Started};
use sunward_core::grid_event::{GridEvent, GridEventKind, GridEventStatus, GridTarget};
use sunward_core::invariants;
use sunward_core::overrides::{Override, OverrideEffect, OverrideScope};
use sunward_core::signal::{Quality, Scope};
use sunward_core::time::Span;

use super::world::{self, FLEET, POLICY, World, carbon, minute};

/// A policy that uses what the plain one does not: samples, a calendar, a look ahead, a count of workers, a score.
pub const PLANNED: &str = "
apiVersion: sunward.dev/v1alpha1
kind: SchedulingPolicy
metadata: {name: planned}
spec:
  pools: {energy: surplus}
  signals:
    carbon: {source: watttime, kind: carbon_intensity, basis: marginal, scope: zone, scheme: wt, max_age: 10m, on_missing: {hold: 10m, then: release}, on_estimated: missing, forecast_max_age: 3h}
  calendars:
    pause: {cron: \"30 * * * *\", lasts: 10m, time_zone: America/Los_Angeles}
  activate: {when: carbon < 150 && !calendar.pause, samples: 2}
  release: {when: carbon >= 170, for: 5m}
  window: {expect: forecast, at_least: 10m, leave_before_end: 5m}
  workers: \"carbon < 60 ? 4 : 2\"
  score: 0 - carbon
  on_dispatch: 75%
  min_run: 30m
  min_rest: 10m
";

/// The policy of a story.
pub fn policy(planned: bool) -> &'static str {
    if planned { PLANNED } else { POLICY }
}

/// One thing that happens in a random story.
#[derive(Clone, Debug)]
pub enum Happening {
    Wait(i64),
    Carbon {
        zone: bool,
        value: i32,
        length: i64,
    },
    Gap {
        zone: bool,
    },
    Forecast {
        zone: bool,
        from: i64,
        length: i64,
        value: i32,
    },
    Ready {
        pool: bool,
        ready: u32,
    },
    Foreign {
        pool: bool,
        wanted: u32,
    },
    Restart,
    Trouble(u8),
    Clock(bool),
    Override {
        id: u8,
        scope: u8,
        effect: u8,
        lasts: i64,
    },
    Clear {
        id: u8,
    },
    Call(GridEvent),
}

/// A revision of one of three grid events, up to an hour ahead.
fn call() -> impl Strategy<Value = GridEvent> {
    let kind = prop_oneof![
        Just(GridEventKind::Dispatch),
        Just(GridEventKind::Limit),
        Just(GridEventKind::Emergency),
        Just(GridEventKind::Test),
    ];
    let target = prop_oneof![
        Just(None),
        (0..12_u32).prop_map(|kw| Some(GridTarget::Kilowatts(f64::from(kw)))),
        (0..=100_u8).prop_map(|percent| Some(GridTarget::PowerPercent(percent))),
    ];
    let scope = prop_oneof![
        any::<bool>().prop_map(|first| Scope::Site(if first { "caiso" } else { "spp" }.into())),
        any::<bool>().prop_map(|first| Scope::Zone {
            scheme: "wt".into(),
            code: zone(first).into()
        }),
        Just(Scope::Site("nowhere".into())),
    ];
    let status = prop_oneof![
        4 => Just(GridEventStatus::Scheduled),
        1 => Just(GridEventStatus::Active),
        1 => Just(GridEventStatus::Cancelled),
    ];
    let times = (0..60_i64, prop::option::of(1..90_i64));
    (0..3_u8, 0..4_u64, kind, target, scope, status, times).prop_map(
        |(id, revision, kind, target, scope, status, (from, lasts))| GridEvent {
            source: "iso".into(),
            id: format!("e{id}").into(),
            revision,
            kind,
            scope,
            // From the instant at which it is accepted; see `play`.
            starts_at: minute(from),
            ends_at: lasts.map(|lasts| minute(from + lasts)),
            target,
            status,
        },
    )
}

pub fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        4 => (1..30_i64).prop_map(Happening::Wait),
        8 => (any::<bool>(), 0..300_i32, 1..40_i64)
            .prop_map(|(zone, value, length)| Happening::Carbon { zone, value, length }),
        1 => any::<bool>().prop_map(|zone| Happening::Gap { zone }),
        3 => (any::<bool>(), 0..90_i64, 5..90_i64, 0..300_i32)
            .prop_map(|(zone, from, length, value)| Happening::Forecast { zone, from, length, value }),
        2 => (any::<bool>(), 0..5_u32).prop_map(|(pool, ready)| Happening::Ready { pool, ready }),
        1 => (any::<bool>(), 0..6_u32).prop_map(|(pool, wanted)| Happening::Foreign { pool, wanted }),
        1 => Just(Happening::Restart),
        2 => (0..5_u8).prop_map(Happening::Trouble),
        1 => any::<bool>().prop_map(Happening::Clock),
        2 => (0..4_u8, 0..5_u8, 0..5_u8, 1..90_i64)
            .prop_map(|(id, scope, effect, lasts)| Happening::Override { id, scope, effect, lasts }),
        1 => (0..4_u8).prop_map(|id| Happening::Clear { id }),
        2 => call().prop_map(Happening::Call),
    ];
    prop::collection::vec(one, 1..60)
}

pub fn zone(first: bool) -> &'static str {
    if first { "CAISO_NORTH" } else { "SPP_TX" }
}

fn pool(first: bool) -> &'static str {
    if first { "caiso-a" } else { "spp-a" }
}

/// What a story's override says; `at` is the minute at which it is set.
fn overridden(id: u8, scope: u8, effect: u8, at: i64, lasts: i64) -> Event {
    Event::OverrideSet(Override {
        id: format!("o{id}").into(),
        scope: match scope {
            0 => OverrideScope::Fleet,
            1 => OverrideScope::Site("caiso".into()),
            2 => OverrideScope::Federation("job".into()),
            3 => OverrideScope::Pool("spp-a".into()),
            _ => OverrideScope::Site("nowhere".into()),
        },
        effect: match effect {
            0 => OverrideEffect::Off,
            1 => OverrideEffect::Freeze,
            2 => OverrideEffect::On { workers: None },
            more => OverrideEffect::On {
                workers: Some(u32::from(more)),
            },
        },
        owner: "alice".into(),
        reason: "a story".into(),
        set_by: "ops".into(),
        set_at: minute(at),
        expires_at: minute(at + lasts),
    })
}

/// The same grid event, its times counted from minute `at`.
fn from_minute(call: &GridEvent, at: i64) -> GridEvent {
    let later = minute(at) - minute(0);
    GridEvent {
        starts_at: call.starts_at + later,
        ends_at: call.ends_at.map(|end| end + later),
        ..call.clone()
    }
}

/// The fleet of these tests; its first site can be throttled.
fn fleet() -> String {
    FLEET.replace(
        "power_limit_kw: 100,",
        "power_limit_kw: 100, power_tiers: [100, 90, 75, 50],",
    )
}

/// What a story is at.
struct Story {
    world: World,
    /// Minutes since its start.
    at: i64,
    term: u64,
}

/// Plays a story under `policies`, then lets all trouble end and everything settle.
pub fn play(story: &[Happening], policies: &[&str]) -> World {
    let mut played = Story {
        world: World::new(&fleet(), policies),
        at: 0,
        term: 1,
    };
    let accepted = played.world.engine.policies().policies().len();
    assert_eq!(accepted, policies.len(), "{}", played.world.transcript);
    for happening in story {
        played.happen(happening);
        let (world, now) = (&played.world, played.world.engine.state().at);
        let due = world.engine.next_wakeup();
        assert!(due.is_none_or(|due| due > now), "{}", world.transcript);
        let broken = invariants::check(&world.engine);
        assert!(broken.is_empty(), "{broken:?}\n{}", world.transcript);
    }
    let (mut world, at) = (played.world, played.at);
    world.answer = Box::new(|_| None);
    world.submit(minute(at), vec![Event::ClockRestored]);
    // What no end was given for is called off.
    for id in 0..3 {
        let over = GridEvent {
            source: "iso".into(),
            id: format!("e{id}").into(),
            revision: 9,
            kind: GridEventKind::Test,
            scope: Scope::Site("nowhere".into()),
            starts_at: minute(at),
            ends_at: None,
            target: None,
            status: GridEventStatus::Cancelled,
        };
        world.submit(minute(at), vec![Event::GridEventAccepted(over)]);
    }
    world.run_to(minute(at + 400));
    world
}

impl Story {
    fn happen(&mut self, happening: &Happening) {
        let (world, at) = (&mut self.world, self.at);
        match happening {
            Happening::Wait(minutes) => {
                self.at += minutes;
                world.run_to(minute(self.at));
            }
            Happening::Carbon {
                zone: first,
                value,
                length,
            } => {
                let reading = world::level(
                    &carbon(zone(*first)),
                    minute(at),
                    minute(at + length),
                    Some(f64::from(*value)),
                );
                world.submit(minute(at), vec![Event::SignalAccepted(reading)]);
            }
            Happening::Gap { zone: first } => {
                let gap = world::level(&carbon(zone(*first)), minute(at), minute(at + 30), None);
                world.submit(minute(at), vec![Event::SignalAccepted(gap)]);
            }
            Happening::Ready { pool: first, ready } => {
                world.at_home(minute(at), pool(*first), |home| {
                    home.ready = (*ready).min(home.wanted);
                });
            }
            Happening::Foreign {
                pool: first,
                wanted,
            } => {
                // Known limit: someone who puts back the very number that a write of ours with a
                // lost answer was made over can't be told from that write not having landed.
                let unknown = world.engine.state().pools[pool(*first)].ledger.unknown;
                if unknown.is_none_or(|sent| sent.from != *wanted) {
                    world.at_home(minute(at), pool(*first), |home| home.wanted = *wanted);
                }
            }
            Happening::Restart => {
                self.term += 1;
                let started = Started {
                    term: self.term,
                    seed: 7,
                    version: "t".into(),
                };
                world.submit(minute(at), vec![Event::Started(started)]);
            }
            Happening::Trouble(kind) => world.answer = trouble(*kind),
            Happening::Override {
                id,
                scope,
                effect,
                lasts,
            } => {
                let set = overridden(*id, *scope, *effect, at, *lasts);
                world.submit(minute(at), vec![set]);
            }
            Happening::Clear { id } => {
                let cleared = Event::OverrideCleared {
                    id: format!("o{id}").into(),
                    by: "bob".into(),
                };
                world.submit(minute(at), vec![cleared]);
            }
            Happening::Call(call) => {
                let event = from_minute(call, at);
                world.submit(minute(at), vec![Event::GridEventAccepted(event)]);
            }
            Happening::Forecast {
                zone: first,
                from,
                length,
                value,
            } => {
                let from = minute(at + from);
                let mut level = world::level(
                    &carbon(zone(*first)),
                    from,
                    from + Span::from_mins(*length),
                    Some(f64::from(*value)),
                );
                level.quality = Quality::Forecast;
                world.submit(minute(at), vec![Event::SignalAccepted(level)]);
            }
            Happening::Clock(stepped) => {
                let event = if *stepped {
                    Event::ClockStepped {
                        difference_ms: 90_000,
                    }
                } else {
                    Event::ClockRestored
                };
                world.submit(minute(at), vec![event]);
            }
        }
    }
}

/// Every third call fails in one way.
fn trouble(kind: u8) -> world::Answer {
    let mut calls = 0_u32;
    Box::new(move |_: &Call| {
        calls += 1;
        if !calls.is_multiple_of(3) {
            return None;
        }
        match kind {
            0 => Some(Outcome::Conflict),
            1 => Some(Outcome::Failed {
                reason: "busy".into(),
                retry_after_ms: Some(2_000),
            }),
            2 => Some(Outcome::Unknown {
                reason: "reset".into(),
            }),
            3 => Some(Outcome::Unknown {
                reason: world::LANDED.into(),
            }),
            _ => None,
        }
    })
}
