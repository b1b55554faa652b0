//! Grid events on the wire: items of `POST /v1/signals` with `type: grid_event`.
//!
//! `{type, source, id, revision?, kind, site | zone, starts_at, ends_at?, target?, status?}`. `kind` is `dispatch`,
//! `limit`, `emergency` or `test`; `target` is `{value, unit}` in kW, MW or percent of training power; without
//! `ends_at` it acts until it is completed or cancelled. All revisions of one event share its id.

use std::borrow::Cow;

use serde::Deserialize;
use sunward_core::grid_event::{GridEvent, GridEventKind, GridEventStatus, GridTarget};
use sunward_core::signal::Scope;

use super::admit::{Content, check_scope};
use super::decode::{Shared, scope, share};
use super::members::{Members, Names, missing};
use super::{Code, Context, Rejection, Shown};
use crate::intake::DedupeKey;

/// The value of `type` that makes an item a grid event.
pub const TYPE: &str = "grid_event";

/// The fields, in the order in which they are looked at.
const FIELDS: [&str; 11] = [
    "type",
    "source",
    "id",
    "revision",
    "kind",
    "site",
    "zone",
    "starts_at",
    "ends_at",
    "target",
    "status",
];

/// A grid event, its fields as they stand in the body.
pub(super) type Draft<'de> = Members<'de, 11>;

impl Names for Members<'_, 11> {
    const NAMES: &'static [&'static str] = &FIELDS;
}

const KINDS: [GridEventKind; 4] = [
    GridEventKind::Dispatch,
    GridEventKind::Limit,
    GridEventKind::Emergency,
    GridEventKind::Test,
];

const STATUSES: [GridEventStatus; 5] = [
    GridEventStatus::Scheduled,
    GridEventStatus::Active,
    GridEventStatus::Completed,
    GridEventStatus::Cancelled,
    GridEventStatus::Superseded,
];

/// The kind's name on the wire.
pub const fn kind_word(kind: GridEventKind) -> &'static str {
    match kind {
        GridEventKind::Dispatch => "dispatch",
        GridEventKind::Limit => "limit",
        GridEventKind::Emergency => "emergency",
        GridEventKind::Test => "test",
    }
}

/// The status' name on the wire.
pub const fn status_word(status: GridEventStatus) -> &'static str {
    match status {
        GridEventStatus::Scheduled => "scheduled",
        GridEventStatus::Active => "active",
        GridEventStatus::Completed => "completed",
        GridEventStatus::Cancelled => "cancelled",
        GridEventStatus::Superseded => "superseded",
    }
}

impl Draft<'_> {
    /// The event, or the first thing that is wrong with it.
    pub(super) fn read(&self, shared: &mut Shared) -> Result<GridEvent, Rejection> {
        let at = "";
        self.check(at)?;
        let kind = self.word(
            at,
            "kind",
            Code::UnknownKind,
            |text| KINDS.into_iter().find(|kind| kind_word(*kind) == text),
            &KINDS.map(kind_word),
        )?;
        let status = self.word(
            at,
            "status",
            Code::UnknownStatus,
            |text| {
                STATUSES
                    .into_iter()
                    .find(|status| status_word(*status) == text)
            },
            &STATUSES.map(status_word),
        )?;
        Ok(GridEvent {
            source: share(&mut shared.source, &self.required_text(at, "source")?),
            id: self.required_text(at, "id")?.into(),
            revision: self.revision(at)?,
            kind: kind.ok_or_else(|| missing(at, "kind"))?,
            scope: scope(self, at, shared)?,
            starts_at: self.required_stamp(at, "starts_at")?,
            ends_at: self.stamp(at, "ends_at")?,
            target: self.target(at)?,
            status: status.unwrap_or(GridEventStatus::Scheduled),
        })
    }

    fn revision(&self, at: &str) -> Result<u64, Rejection> {
        let Some(raw) = self.raw("revision") else {
            return Ok(0);
        };
        raw.parse().map_err(|_| {
            let detail = format!(
                "{} is not a revision: send a whole number from 0 to {}, without quotes",
                Shown(raw),
                u64::MAX
            );
            Rejection::field(at, "revision", Code::WrongType, detail)
        })
    }

    fn target(&self, at: &str) -> Result<Option<GridTarget>, Rejection> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Target<'a> {
            value: f64,
            #[serde(borrow)]
            unit: Cow<'a, str>,
        }
        let Some(raw) = self.raw("target") else {
            return Ok(None);
        };
        let reject = |code, detail: String| Err(Rejection::field(at, "target", code, detail));
        let object = Some(raw).filter(|raw| raw.starts_with('{'));
        let Some(target) = object.and_then(|raw| serde_json::from_str::<Target<'_>>(raw).ok())
        else {
            let detail = format!(
                "{} is not a target: write it like {{\"value\": 40, \"unit\": \"kW\"}}, or leave it out to ask for the minimum",
                Shown(raw)
            );
            return reject(Code::WrongType, detail);
        };
        let value = target.value;
        match target.unit.as_ref() {
            "kW" | "MW" if !(value >= 0.0 && value.is_finite()) => reject(
                Code::OutOfRange,
                format!(
                    "{value} {} is not what pools may draw: send 0 or more",
                    target.unit
                ),
            ),
            "kW" => Ok(Some(GridTarget::Kilowatts(value))),
            "MW" => Ok(Some(GridTarget::Kilowatts(value * 1_000.0))),
            "percent" if (0.0..=100.0).contains(&value) && value.fract() == 0.0 => {
                Ok(Some(GridTarget::PowerPercent(value as u8)))
            }
            "percent" => reject(
                Code::OutOfRange,
                format!(
                    "{value} percent of training power: send a whole number from 0 to 100, the share that is still allowed"
                ),
            ),
            other => reject(
                Code::UnknownUnit,
                format!(
                    "{} is not a unit of a target: use kW, MW or percent",
                    Shown(other)
                ),
            ),
        }
    }
}

/// Judges one grid event: its place and its times. The key is its (source, id, revision).
pub fn admit_grid_event(
    event: GridEvent,
    at: &str,
    context: &Context<'_>,
) -> Result<(GridEvent, DedupeKey), Rejection> {
    check_scope(&event.scope, at, context)?;
    check_times(&event, at, context)?;
    let key = grid_event_key(&event);
    Ok((event, key))
}

fn check_times(event: &GridEvent, at: &str, context: &Context<'_>) -> Result<(), Rejection> {
    let (now, limits) = (context.now, context.limits);
    if let Some(ends_at) = event.ends_at.filter(|ends| *ends <= event.starts_at) {
        let detail = format!(
            "the event ends at {ends_at}, which is not after its start at {}: the end is exclusive and later than the start",
            event.starts_at
        );
        return Err(Rejection::field(at, "ends_at", Code::IntervalOrder, detail));
    }
    if event.starts_at > now + limits.horizon_max {
        let detail = format!(
            "the event begins at {}, more than {} after now ({now}): send it later",
            event.starts_at, limits.horizon_max
        );
        return Err(Rejection::field(at, "starts_at", Code::Horizon, detail));
    }
    // That one is over may be said of an old one, too.
    let stands = matches!(
        event.status,
        GridEventStatus::Scheduled | GridEventStatus::Active
    );
    let oldest = now - limits.live_age_max;
    if let Some(ends_at) = event.ends_at.filter(|ends| stands && *ends < oldest) {
        let detail = format!(
            "the event ended at {ends_at}, more than {} before now ({now}): it can't act any more",
            limits.live_age_max
        );
        return Err(Rejection::field(at, "ends_at", Code::TooOld, detail));
    }
    Ok(())
}

/// Names a revision across retries. The separators can't stand in an id, so that no reading has such a key.
pub fn grid_event_key(event: &GridEvent) -> DedupeKey {
    DedupeKey {
        source: event.source.clone(),
        id: format!("\u{1f}{TYPE}\u{1f}{}\u{1f}{}", event.id, event.revision).into(),
        hash: content_hash(event),
    }
}

fn content_hash(event: &GridEvent) -> [u8; 32] {
    let mut hash = Content::new(b"sunward grid event content 1");
    hash.text(&event.source);
    hash.text(&event.id);
    hash.number(Some(event.revision));
    hash.text(kind_word(event.kind));
    match &event.scope {
        Scope::Site(site) => {
            hash.text("site");
            hash.text(site);
        }
        Scope::Zone { scheme, code } => {
            hash.text("zone");
            hash.text(scheme);
            hash.text(code);
        }
    }
    hash.number(Some(event.starts_at.as_millis() as u64));
    hash.number(event.ends_at.map(|at| at.as_millis() as u64));
    let (kilowatts, percent) = match event.target {
        Some(GridTarget::Kilowatts(most)) => (Some(most.to_bits()), None),
        Some(GridTarget::PowerPercent(percent)) => (None, Some(u64::from(percent))),
        None => (None, None),
    };
    hash.number(kilowatts);
    hash.number(percent);
    hash.text(status_word(event.status));
    hash.finish()
}

#[cfg(test)]
#[path = "grid_event_tests.rs"]
mod tests;
