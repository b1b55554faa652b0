//! What a policy's file says, with places. Read leniently: the file has compiled already.

use serde::Deserialize;

use crate::diagnostic::TextRange;
use crate::document::SourceFile;
use crate::expr::CALENDAR_PREFIX;
use crate::expr::reach::{Reach, Study as Condition};
use crate::policy::{BindingScope, Policy, SignalBinding};
use crate::time::Span;
use crate::yaml::{Entries, Source, Spanned, read_yaml};

/// The name of the rule that top-level `activate` and `release` make.
const SHORT_FORM_RULE: &str = "threshold";

#[derive(Deserialize)]
struct FileParts {
    spec: SpecParts,
}

#[derive(Deserialize)]
struct SpecParts {
    activate: Option<SideParts>,
    release: Option<SideParts>,
    window: Option<WindowParts>,
    rules: Option<Vec<RuleParts>>,
    signals: Option<Entries<SignalParts>>,
    min_run: Option<Spanned<String>>,
    workers: Option<String>,
}

#[derive(Deserialize)]
struct RuleParts {
    name: String,
    activate: SideParts,
    release: Option<SideParts>,
    window: Option<WindowParts>,
    workers: Option<String>,
}

#[derive(Deserialize)]
struct SideParts {
    when: Spanned<String>,
    #[serde(rename = "for")]
    held_for: Option<Spanned<String>>,
    samples: Option<u32>,
}

#[derive(Deserialize)]
struct WindowParts {
    expect: Option<Spanned<String>>,
}

#[derive(Deserialize)]
struct SignalParts {
    max_age: Option<Spanned<String>>,
    on_missing: Option<OnMissingParts>,
}

#[derive(Deserialize)]
struct OnMissingParts {
    hold: Spanned<String>,
}

/// A time with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) span: Span,
    pub(super) at: TextRange,
}

/// A condition of a rule.
#[derive(Debug)]
pub(super) struct Side {
    when: Spanned<String>,
    /// Where the condition stands.
    pub(super) at: TextRange,
    /// `for`, where it is there and not zero.
    pub(super) held_for: Option<Timed>,
    /// Whether it counts readings.
    pub(super) samples: bool,
}

/// A rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) activate: Side,
    pub(super) release: Option<Side>,
    /// Where `expect: forecast` stands, if it does.
    pub(super) by_forecast: Option<TextRange>,
}

/// The times of a signal, with their places.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignalTimes {
    pub(super) max_age: Option<Timed>,
    pub(super) hold: Option<Timed>,
}

/// A policy with the places of what its file says.
#[derive(Debug)]
pub struct Study<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Whether it says how many workers, so that it means a pool that need not be all or nothing.
    pub sizes_pools: bool,
    source: Source<'a>,
    pub(super) rules: Vec<Rule>,
    pub(super) min_run: Option<Timed>,
    times: Vec<(String, SignalTimes)>,
}

impl<'a> Study<'a> {
    /// `None` where the file is not that policy's.
    pub(super) fn new(policy: &'a Policy, file: &'a SourceFile) -> Option<Study<'a>> {
        let parts: FileParts = read_yaml(&file.path, &file.text).ok()?;
        let source = Source::new(&file.path, &file.text);
        let spec = parts.spec;
        let listed = spec.rules.unwrap_or_default();
        let sizes_pools =
            spec.workers.is_some() || listed.iter().any(|rule| rule.workers.is_some());
        let mut rules = Vec::new();
        if let Some(activate) = spec.activate {
            let short = RuleParts {
                name: SHORT_FORM_RULE.to_owned(),
                activate,
                release: spec.release,
                window: spec.window,
                workers: None,
            };
            rules.push(rule(&source, short));
        }
        rules.extend(listed.into_iter().map(|parts| rule(&source, parts)));
        let times = spec.signals.map_or_else(Vec::new, |signals| signals.0);
        let times = times.into_iter().map(|(name, parts)| {
            let parts = parts.value;
            let times = SignalTimes {
                max_age: timed(&source, parts.max_age.as_ref()),
                hold: timed(&source, parts.on_missing.as_ref().map(|part| &part.hold)),
            };
            (name.value, times)
        });
        Some(Study {
            policy,
            sizes_pools,
            rules,
            min_run: timed(&source, spec.min_run.as_ref()),
            times: times.collect(),
            source,
        })
    }

    /// The times of a signal.
    pub(super) fn times(&self, signal: &str) -> Option<SignalTimes> {
        let known = self.times.iter().find(|(name, _)| name == signal);
        known.map(|(_, times)| *times)
    }

    /// The binding of that name.
    pub(super) fn binding(&self, name: &str) -> Option<&'a SignalBinding> {
        let signals = self.policy.signals.iter();
        signals.into_iter().find(|signal| signal.name == name)
    }

    /// Where a part of a condition stands; `part` is in bytes of the condition.
    pub(super) fn place(&self, side: &Side, part: std::ops::Range<usize>) -> TextRange {
        self.source.range_within(&side.when, part)
    }

    /// What a name of this policy stands for in any policy: its stream for a signal, itself for a fact.
    pub(super) fn stands_for(&self, name: &str) -> String {
        let Some(signal) = self.binding(name) else {
            return match name.strip_prefix(CALENDAR_PREFIX) {
                Some(calendar) => format!("{CALENDAR_PREFIX}{}/{calendar}", self.policy.name),
                None => name.to_owned(),
            };
        };
        let basis = signal.basis.map_or("", |basis| basis.as_str());
        let scope = match &signal.scope {
            BindingScope::Site => "site",
            BindingScope::Zone { scheme } => scheme.as_str(),
        };
        format!("{}/{}.{basis}/{scope}", signal.source, signal.kind)
    }

    /// When all of the policy's rules can ask to run together.
    pub(super) fn activated(&self) -> Option<Reach> {
        let each = self
            .rules
            .iter()
            .map(|rule| rule.activate.reach(self, true));
        let each: Option<Vec<Reach>> = each.collect();
        each?.into_iter().reduce(|all, next| all.and(&next))
    }

    /// When some rule of the policy can ask to release.
    pub(super) fn released(&self) -> Vec<Reach> {
        let of = |rule: &Rule| match &rule.release {
            Some(release) => release.reach(self, true),
            None => rule.activate.reach(self, false),
        };
        self.rules.iter().filter_map(of).collect()
    }

    /// The highest value of a signal, by its index among the bindings, at which the policy asks to run; `None` where
    /// its conditions set no bound.
    pub fn highest_while_activated(&self, signal: usize) -> Option<f64> {
        let name = &self.policy.signals.get(signal)?.name;
        self.activated()?.highest(&self.stands_for(name))
    }
}

impl Side {
    /// The condition.
    pub(super) fn text(&self) -> &str {
        &self.when.value
    }

    /// Its tree.
    pub(super) fn condition(&self) -> Option<Condition<'_>> {
        Condition::new(&self.when.value)
    }

    /// When it holds, or does not.
    pub(super) fn reach(&self, study: &Study<'_>, holds: bool) -> Option<Reach> {
        let rename = |name: &str| study.stands_for(name);
        Some(self.condition()?.reach(holds, &rename))
    }

    /// Whether it acts at the first reading for which it holds.
    pub(super) fn at_once(&self) -> bool {
        self.held_for.is_none() && !self.samples
    }
}

fn rule(source: &Source<'_>, parts: RuleParts) -> Rule {
    let expect = parts.window.and_then(|window| window.expect);
    Rule {
        name: parts.name,
        activate: side(source, parts.activate),
        release: parts.release.map(|release| side(source, release)),
        by_forecast: expect
            .filter(|expect| expect.value == "forecast")
            .map(|expect| source.range_of(&expect)),
    }
}

fn side(source: &Source<'_>, parts: SideParts) -> Side {
    Side {
        at: source.range_of(&parts.when),
        held_for: timed(source, parts.held_for.as_ref()).filter(|held| !held.span.is_zero()),
        samples: parts.samples.is_some_and(|samples| samples > 1),
        when: parts.when,
    }
}

fn timed(source: &Source<'_>, text: Option<&Spanned<String>>) -> Option<Timed> {
    let text = text?;
    Some(Timed {
        span: Span::parse(&text.value).ok()?,
        at: source.range_of(text),
    })
}
