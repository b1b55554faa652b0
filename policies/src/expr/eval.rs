//! The typed tree and its evaluation. An unknown number is NaN within this file and nowhere else; an unknown
//! condition is `None`. Nothing allocates, and nothing comes from libm: `floor` and `ceil` are exact everywhere.

use super::parser::Comparison;
use crate::facts::{Facts, Variable};

/// A condition.
#[derive(Clone, Debug)]
pub(super) enum Truth {
    Constant(bool),
    Compare(Comparison, Box<(Number, Number)>),
    /// A signal against a number that is written out: most conditions are made of these, so they get a short way.
    SignalAgainst(Comparison, u16, f64),
    /// Whether a window of a calendar is open.
    Calendar(u16),
    /// Whether two conditions are equal (`true`) or differ (`false`).
    Same(bool, Box<(Truth, Truth)>),
    Not(Box<Truth>),
    All(Box<[Truth]>),
    Any(Box<[Truth]>),
    Choose(Box<(Truth, Truth, Truth)>),
}

/// A number.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Constant(f64),
    Signal(u16),
    Variable(Variable),
    Negate(Box<Number>),
    Add(Box<(Number, Number)>),
    Subtract(Box<(Number, Number)>),
    Multiply(Box<(Number, Number)>),
    Divide(Box<(Number, Number)>),
    Min(Box<[Number]>),
    Max(Box<[Number]>),
    Abs(Box<Number>),
    Floor(Box<Number>),
    Ceil(Box<Number>),
    Choose(Box<(Truth, Number, Number)>),
}

impl Truth {
    /// The commonest condition is decided where it is asked for; the others are a call away.
    #[inline]
    pub(super) fn evaluate(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Truth::SignalAgainst(comparison, index, constant) => {
                compare(*comparison, facts.signal(usize::from(*index)), *constant)
            }
            other => other.evaluate_tree(facts),
        }
    }

    fn evaluate_tree(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Truth::Constant(value) => Some(*value),
            Truth::Compare(comparison, sides) => compare(
                *comparison,
                sides.0.evaluate(facts),
                sides.1.evaluate(facts),
            ),
            Truth::SignalAgainst(comparison, index, constant) => {
                compare(*comparison, facts.signal(usize::from(*index)), *constant)
            }
            Truth::Calendar(index) => facts
                .calendars
                .get(usize::from(*index))
                .map(|calendar| calendar.open),
            Truth::Same(same, sides) => {
                let (left, right) = (sides.0.evaluate(facts)?, sides.1.evaluate(facts)?);
                Some((left == right) == *same)
            }
            Truth::Not(inner) => inner.evaluate(facts).map(|value| !value),
            Truth::All(list) => until(list, false, facts),
            Truth::Any(list) => until(list, true, facts),
            Truth::Choose(parts) => {
                if parts.0.evaluate(facts)? {
                    parts.1.evaluate(facts)
                } else {
                    parts.2.evaluate(facts)
                }
            }
        }
    }
}

/// `deciding` if any is that; else unknown if any is unknown; else the other.
#[inline]
fn until(list: &[Truth], deciding: bool, facts: &Facts<'_>) -> Option<bool> {
    let mut answer = Some(!deciding);
    for condition in list {
        match condition.evaluate(facts) {
            Some(value) if value == deciding => return Some(deciding),
            Some(_) => {}
            None => answer = None,
        }
    }
    answer
}

#[inline]
fn compare(comparison: Comparison, left: f64, right: f64) -> Option<bool> {
    if left.is_nan() || right.is_nan() {
        return None;
    }
    Some(match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterEqual => left >= right,
    })
}

/// What is not finite is unknown.
#[inline]
fn known(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::NAN }
}

impl Number {
    pub(super) fn evaluate(&self, facts: &Facts<'_>) -> f64 {
        match self {
            Number::Constant(value) => *value,
            Number::Signal(index) => facts.signal(usize::from(*index)),
            Number::Variable(variable) => known(facts.variable(*variable)),
            Number::Negate(inner) => -inner.evaluate(facts),
            Number::Add(sides) => known(sides.0.evaluate(facts) + sides.1.evaluate(facts)),
            Number::Subtract(sides) => known(sides.0.evaluate(facts) - sides.1.evaluate(facts)),
            Number::Multiply(sides) => known(sides.0.evaluate(facts) * sides.1.evaluate(facts)),
            Number::Divide(sides) => known(sides.0.evaluate(facts) / sides.1.evaluate(facts)),
            Number::Min(list) => fold(list, facts, |best, next| next < best),
            Number::Max(list) => fold(list, facts, |best, next| next > best),
            Number::Abs(inner) => inner.evaluate(facts).abs(),
            Number::Floor(inner) => inner.evaluate(facts).floor(),
            Number::Ceil(inner) => inner.evaluate(facts).ceil(),
            Number::Choose(parts) => match parts.0.evaluate(facts) {
                Some(true) => parts.1.evaluate(facts),
                Some(false) => parts.2.evaluate(facts),
                None => f64::NAN,
            },
        }
    }
}

/// The best of a list; unknown if any is. (`f64::min` would pass over an unknown one.)
fn fold(list: &[Number], facts: &Facts<'_>, better: impl Fn(f64, f64) -> bool) -> f64 {
    let mut best = f64::NAN;
    for (index, number) in list.iter().enumerate() {
        let next = number.evaluate(facts);
        if next.is_nan() {
            return f64::NAN;
        }
        if index == 0 || better(best, next) {
            best = next;
        }
    }
    best
}
