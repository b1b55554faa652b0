//! What an expression means, as plain as can be: three values, straight from the tree.

use sunward_policies::facts::CalendarFact;
use sunward_policies::{Facts, PoolFacts, Reading, Timestamp};

use super::TABLE;
use super::tree::{CONDITIONS, Number, SIGNALS, Truth, value_of};

/// What is known at the instant of evaluation.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// In the order of [`SIGNALS`].
    pub(crate) readings: Vec<Reading>,
    /// In the order of [`CONDITIONS`]; one that is not there is unknown.
    pub(crate) calendars: Vec<CalendarFact>,
    pub(crate) pool: PoolFacts,
}

impl World {
    /// As the compiled expression is given it.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            calendars: &self.calendars,
            ..Facts::present(Timestamp::from_millis(0), &self.readings, self.pool)
        }
    }

    /// The value of a name, where it is known.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        let value = if let Some(index) = SIGNALS.iter().position(|signal| signal.0 == name) {
            match self.readings[index] {
                Reading::Fresh { value } => value,
                Reading::Stale { .. } | Reading::Missing => return None,
            }
        } else {
            let row = TABLE.iter().find(|row| row.name == name)?;
            self.facts().variable(row.variable)
        };
        value.is_finite().then_some(value)
    }

    /// Whether the condition of that name holds, where that is known.
    pub(crate) fn condition(&self, name: &str) -> Option<bool> {
        let index = CONDITIONS.iter().position(|known| *known == name)?;
        self.calendars.get(index).map(|calendar| calendar.open)
    }
}

/// The value of a number; `None` where it is unknown.
pub(crate) fn number(tree: &Number, world: &World) -> Option<f64> {
    let value = match tree {
        Number::Literal(text) => value_of(text),
        Number::Name(name) => world.number(name)?,
        Number::Negate(inner) => -number(inner, world)?,
        Number::Two(operator, left, right) => {
            let (left, right) = (number(left, world)?, number(right, world)?);
            match operator {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                _ => left / right,
            }
        }
        Number::Call(function, arguments) => {
            let values = arguments.iter().map(|argument| number(argument, world));
            call(function, &values.collect::<Option<Vec<f64>>>()?)
        }
        Number::Choose(condition, yes, no) => {
            number(if truth(condition, world)? { yes } else { no }, world)?
        }
    };
    value.is_finite().then_some(value)
}

/// What a function gives for numbers that are known.
pub(crate) fn call(function: &str, values: &[f64]) -> f64 {
    match function {
        "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
        "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "abs" => values[0].abs(),
        "floor" => values[0].floor(),
        "ceil" => values[0].ceil(),
        other => unreachable!("there is no function {other}"),
    }
}

/// Whether a condition holds; `None` where that is unknown.
pub(crate) fn truth(tree: &Truth, world: &World) -> Option<bool> {
    match tree {
        Truth::Literal(value) => Some(*value),
        Truth::Name(name) => world.condition(name),
        Truth::Compare(operator, left, right) => {
            let (left, right) = (number(left, world)?, number(right, world)?);
            Some(match *operator {
                "<" => left < right,
                "<=" => left <= right,
                ">" => left > right,
                ">=" => left >= right,
                "==" => left == right,
                _ => left != right,
            })
        }
        Truth::Same(operator, left, right) => {
            let (left, right) = (truth(left, world)?, truth(right, world)?);
            Some((left == right) == (*operator == "=="))
        }
        Truth::Not(inner) => Some(!truth(inner, world)?),
        Truth::All(list) => decided_by(false, list, world),
        Truth::Any(list) => decided_by(true, list, world),
        Truth::Choose(condition, yes, no) => {
            truth(if truth(condition, world)? { yes } else { no }, world)
        }
    }
}

/// `deciding` where one of the list is that, whatever the others are; else unknown where one is unknown.
fn decided_by(deciding: bool, list: &[Truth], world: &World) -> Option<bool> {
    let values: Vec<Option<bool>> = list.iter().map(|tree| truth(tree, world)).collect();
    if values.contains(&Some(deciding)) {
        return Some(deciding);
    }
    values
        .into_iter()
        .all(|value| value.is_some())
        .then_some(!deciding)
}
