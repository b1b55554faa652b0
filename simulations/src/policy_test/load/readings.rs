//! The readings of a test: series of the present, and forecasts.

use std::collections::BTreeSet;

use sunward_core::event::Event;
use sunward_core::fleet::check::governs;
use sunward_core::pools::stream_key;
use sunward_core::signal::{Level, Quality, StreamKey};
use sunward_core::time::{Span, Timestamp};
use sunward_policies::codes;
use sunward_policies::policy::Policy;
use sunward_policies::yaml::Spanned;

use super::{Load, World};
use crate::policy_test::READINGS_MAX;
use crate::policy_test::case::Happening;
use crate::policy_test::form::{ForecastForm, TestForm};
use crate::policy_test::series::{self, Item};

/// How to write a series.
const HELP: &str = "a series is written like `90x6 150 _x3 missing ~80 90+5x4`: values, N readings of one, none, said to be \
                    missing, estimated, N in steps";

type Script = Vec<(Timestamp, Happening)>;

impl Load<'_> {
    pub(super) fn readings(
        &mut self,
        test: &TestForm,
        start: Timestamp,
        interval: Span,
        world: &World<'_>,
    ) -> Script {
        let mut script = Vec::new();
        for (name, values) in test.signals.iter().flat_map(|entries| &entries.0) {
            let Some(streams) = self.streams(name, world) else {
                continue;
            };
            let Some(items) = self.series(values) else {
                continue;
            };
            let issue = Issue {
                from: start,
                interval,
                issued: None,
            };
            self.send(values, &items, &streams, issue, &mut script);
        }
        for (name, forecasts) in test.forecasts.iter().flat_map(|entries| &entries.0) {
            let Some(streams) = self.streams(name, world) else {
                continue;
            };
            for forecast in &forecasts.value.0 {
                self.forecast(forecast, &streams, start, interval, &mut script);
            }
        }
        script
    }

    fn forecast(
        &mut self,
        form: &ForecastForm,
        streams: &BTreeSet<StreamKey>,
        start: Timestamp,
        interval: Span,
        script: &mut Script,
    ) {
        let items = self.series(&form.values);
        let issued = self.span(&form.issued);
        let interval = self.optional_span(form.interval.as_ref(), interval);
        let (Some(items), Some(issued), Some(interval)) = (items, issued, interval) else {
            return;
        };
        let Some(from) = self.optional_span(form.from.as_ref(), issued) else {
            return;
        };
        if interval.is_zero() {
            let message = "an interval of no time holds no value".to_owned();
            self.error(
                codes::TEST_ENTRY,
                &form.values,
                message,
                "write for example 1h",
            );
            return;
        }
        let issue = Issue {
            from: start + from,
            interval,
            issued: Some(start + issued),
        };
        self.send(&form.values, &items, streams, issue, script);
    }

    fn series(&mut self, values: &Spanned<String>) -> Option<Vec<Item>> {
        series::parse(&values.value)
            .map_err(|problem| {
                let code = codes::TEST_SERIES;
                self.error_within(code, values, problem.span, problem.message, HELP);
            })
            .ok()
    }

    fn send(
        &mut self,
        at: &Spanned<String>,
        items: &[Item],
        streams: &BTreeSet<StreamKey>,
        issue: Issue,
        script: &mut Script,
    ) {
        if script.len() + items.len() * streams.len() > READINGS_MAX {
            let message = format!(
                "{} readings for each of {} streams; a test sends at most {READINGS_MAX}",
                items.len(),
                streams.len()
            );
            let help = "take a longer interval, a smaller fleet, or split the test";
            self.error(codes::TEST_TOO_LARGE, at, message, help);
            return;
        }
        for (index, item) in items.iter().enumerate() {
            let from = issue.from + Span::from_millis(issue.interval.as_millis() * index as i64);
            let (value, quality) = match (*item, issue.issued) {
                (Item::Silence, _) => continue,
                (Item::Missing, _) => (None, Quality::Missing),
                (Item::Value { value, .. }, Some(_)) => (Some(value), Quality::Forecast),
                (Item::Value { value, estimated }, None) if estimated => {
                    (Some(value), Quality::Estimated)
                }
                (Item::Value { value, .. }, None) => (Some(value), Quality::Measured),
            };
            for stream in streams {
                let level = Level {
                    id: "".into(),
                    stream: stream.clone(),
                    valid_from: from,
                    valid_to: from + issue.interval,
                    value,
                    quality,
                    issued_at: issue.issued,
                    sequence: None,
                };
                let event = Happening::Event(Event::SignalAccepted(level));
                script.push((issue.issued.unwrap_or(from), event));
            }
        }
    }

    /// The streams that `signal`, `policy/signal` or either with `@site` stands for: those that the binding reads for
    /// the pools that its policy governs.
    fn streams(&mut self, key: &Spanned<String>, world: &World<'_>) -> Option<BTreeSet<StreamKey>> {
        let (name, site) = match key.value.split_once('@') {
            Some((name, site)) => (name, Some(site)),
            None => (key.value.as_str(), None),
        };
        let (of, name) = match name.split_once('/') {
            Some((policy, name)) => (Some(policy), name),
            None => (None, name),
        };
        if let Some(site) = site.filter(|site| world.fleet.site(site).is_none()) {
            let known: Vec<&str> = world.fleet.sites().map(|s| s.name.as_ref()).collect();
            let unknown = Spanned::new(site.to_owned(), key.referenced, key.defined);
            self.unknown(&unknown, "site", &known);
            return None;
        }
        let policies = world.policies.policies().iter();
        let policies: Vec<&Policy> = policies
            .filter(|policy| of.is_none_or(|of| policy.name == of))
            .collect();
        let bindings: Vec<_> = policies
            .iter()
            .flat_map(|policy| policy.signals.iter().map(move |signal| (*policy, signal)))
            .filter(|(_, signal)| signal.name == name)
            .collect();
        let Some((_, first)) = bindings.first() else {
            let known: Vec<&str> = policies
                .iter()
                .flat_map(|policy| &policy.signals)
                .map(|signal| signal.name.as_str())
                .collect();
            self.unknown(key, "signal", &known);
            return None;
        };
        if let Some((policy, other)) = bindings
            .iter()
            .find(|(_, signal)| signal.kind != first.kind)
        {
            let message = format!("`{name}` is {} here and {} there", first.kind, other.kind);
            let help = format!("say which: `{}/{name}`", policy.name);
            self.error(codes::TEST_UNKNOWN_NAME, key, message, &help);
            return None;
        }
        let mut streams = BTreeSet::new();
        for (policy, signal) in bindings {
            let pools = world.fleet.pools().iter().filter(|pool| {
                governs(policy, pool) && site.is_none_or(|site| pool.site.as_ref() == site)
            });
            streams.extend(pools.filter_map(|pool| stream_key(signal, pool, world.fleet)));
        }
        Some(streams)
    }
}

/// When a series holds, and when it was issued.
#[derive(Clone, Copy)]
struct Issue {
    from: Timestamp,
    interval: Span,
    /// `None`: each reading at the start of its interval.
    issued: Option<Timestamp>,
}
