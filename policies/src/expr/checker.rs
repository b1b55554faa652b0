//! From a tree to a typed tree: every name exists, every operator meets what it can take, units agree.
//!
//! All mistakes of an expression are found in one pass: a part that is wrong has the type `None`, which agrees with
//! everything, so that one mistake is reported once.

use std::ops::Range;

use super::eval::{Number, Truth};
use super::parser::{Comparison, Node, Operator, Syntax, name_of};
use super::{CALENDAR_PREFIX, Expected, FUNCTIONS, Finding, Reads, Scope};
use crate::codes;
use crate::diagnostic::nearest;
use crate::facts;
use crate::rules::{CalendarSet, SignalSet};
use crate::units::Unit;

/// The unit of a number: `None` is a bare number, which takes the unit of what it meets.
type Measure = Option<Unit>;

enum Typed {
    Truth(Truth),
    Number(Number, Measure),
}

/// The typed tree where the whole is a condition, and what it reads.
pub(super) fn condition(
    text: &str,
    tree: &Node,
    scope: Scope<'_>,
    findings: &mut Vec<Finding>,
) -> (Option<Truth>, Reads) {
    let mut checker = Checker {
        text,
        scope,
        findings,
        reads: Reads::default(),
    };
    let root = checker.truth(tree);
    (root, checker.reads)
}

/// The typed tree where the whole is a number of the expected unit, and what it reads.
pub(super) fn quantity(
    text: &str,
    tree: &Node,
    scope: Scope<'_>,
    expected: Expected,
    findings: &mut Vec<Finding>,
) -> (Option<Number>, Reads) {
    let mut checker = Checker {
        text,
        scope,
        findings,
        reads: Reads::default(),
    };
    let root = match expected {
        Expected::Any => checker.number(tree).map(|(number, _)| number),
        Expected::Workers => checker.workers(tree),
    };
    (root, checker.reads)
}

struct Checker<'a> {
    text: &'a str,
    scope: Scope<'a>,
    findings: &'a mut Vec<Finding>,
    reads: Reads,
}

impl Checker<'_> {
    fn report(
        &mut self,
        code: &'static str,
        span: &Range<usize>,
        message: String,
        help: Option<String>,
    ) {
        self.findings.push(Finding {
            code,
            span: span.clone(),
            message,
            help,
        });
    }

    fn text_of(&self, node: &Node) -> &str {
        &self.text[node.span.clone()]
    }

    /// The node as a condition.
    fn truth(&mut self, node: &Node) -> Option<Truth> {
        match self.typed(node)? {
            Typed::Truth(truth) => Some(truth),
            Typed::Number(_, measure) => {
                let name = self.text_of(node).to_owned();
                let unit = measure.map_or_else(String::new, |unit| format!(" ({unit})"));
                let message = format!("a condition is needed, but `{name}` is a number{unit}");
                let help = format!("compare it, for example `{name} > 0`");
                self.report(codes::WRONG_TYPE, &node.span, message, Some(help));
                None
            }
        }
    }

    /// The node as a number.
    fn number(&mut self, node: &Node) -> Option<(Number, Measure)> {
        match self.typed(node)? {
            Typed::Number(number, measure) => Some((number, measure)),
            Typed::Truth(_) => {
                let name = self.text_of(node).to_owned();
                let message = format!("a number is needed, but `{name}` is a condition");
                let help = format!("turn it into a number with `({name} ? 1 : 0)`");
                self.report(codes::WRONG_TYPE, &node.span, message, Some(help));
                None
            }
        }
    }

    fn typed(&mut self, node: &Node) -> Option<Typed> {
        match &node.syntax {
            Syntax::Number(value) => Some(Typed::Number(Number::Constant(*value), None)),
            Syntax::Bool(value) => Some(Typed::Truth(Truth::Constant(*value))),
            Syntax::Name => self.name(node),
            Syntax::Negate(inner) => {
                let (number, measure) = self.number(inner)?;
                Some(Typed::Number(Number::Negate(Box::new(number)), measure))
            }
            Syntax::Not(inner) => Some(Typed::Truth(Truth::Not(Box::new(self.truth(inner)?)))),
            Syntax::All(list) => Some(Typed::Truth(Truth::All(self.truths(list)?))),
            Syntax::Any(list) => Some(Typed::Truth(Truth::Any(self.truths(list)?))),
            Syntax::Binary(Operator::Compare(comparison), left, right) => {
                self.compare(node, *comparison, left, right)
            }
            Syntax::Binary(operator, left, right) => self.arithmetic(node, *operator, left, right),
            Syntax::Choose(condition, yes, no) => self.choose(node, condition, yes, no),
            Syntax::Call { name, arguments } => self.call(node, name, arguments),
        }
    }

    fn truths(&mut self, list: &[Node]) -> Option<Box<[Truth]>> {
        // Collected before the question mark, so that each of them is checked.
        let truths: Vec<Option<Truth>> = list.iter().map(|node| self.truth(node)).collect();
        truths
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .map(Vec::into_boxed_slice)
    }

    fn name(&mut self, node: &Node) -> Option<Typed> {
        let name = name_of(self.text, node).to_owned();
        if let Some(index) = self
            .scope
            .signals
            .iter()
            .position(|signal| signal.0 == name)
        {
            self.reads.signals = self.reads.signals.union(SignalSet::of(index));
            let unit = self.scope.signals[index].1;
            return Some(Typed::Number(Number::Signal(index as u16), Some(unit)));
        }
        if let Some(index) = self.calendar(&name) {
            self.reads.calendars = self.reads.calendars.union(CalendarSet::of(index));
            return Some(Typed::Truth(Truth::Calendar(index as u16)));
        }
        if let Some(row) = facts::TABLE.iter().find(|row| row.name == name) {
            return Some(Typed::Number(
                Number::Variable(row.variable),
                Some(row.unit),
            ));
        }
        let message = format!("`{name}` is neither a signal of this policy nor a fact");
        let help = self.names_help(&name);
        self.report(codes::UNKNOWN_NAME, &node.span, message, Some(help));
        None
    }

    /// The index of a calendar's variable.
    fn calendar(&self, name: &str) -> Option<usize> {
        let name = name.strip_prefix(CALENDAR_PREFIX)?;
        self.scope
            .calendars
            .iter()
            .position(|calendar| *calendar == name)
    }

    fn names_help(&self, name: &str) -> String {
        let calendars: Vec<String> = self
            .scope
            .calendars
            .iter()
            .map(|calendar| format!("{CALENDAR_PREFIX}{calendar}"))
            .collect();
        let signals = self.scope.signals.iter().map(|signal| signal.0);
        let known = signals
            .chain(calendars.iter().map(String::as_str))
            .chain(facts::TABLE.iter().map(|row| row.name));
        let list = known
            .clone()
            .map(|known| format!("`{known}`"))
            .collect::<Vec<_>>()
            .join(", ");
        // Its own name is what one writes first.
        if self.scope.calendars.contains(&name) {
            return format!("`{name}` is a calendar: write `{CALENDAR_PREFIX}{name}`");
        }
        let within_prefix = name.strip_prefix(CALENDAR_PREFIX);
        let near = match within_prefix {
            // The prefix is no likeness between two names.
            Some(name) => nearest(name, self.scope.calendars.iter().copied())
                .map(|calendar| format!("{CALENDAR_PREFIX}{calendar}")),
            None => nearest(name, known).map(str::to_owned),
        };
        match near {
            Some(near) => format!("did you mean `{near}`? the names known here are {list}"),
            None if within_prefix.is_some() => {
                format!("add it under `calendars`, or use one of {list}")
            }
            None if FUNCTIONS.iter().any(|function| function.0 == name) => {
                format!("`{name}` is a function: call it as `{name}(...)`")
            }
            None => format!("add it under `signals`, or use one of {list}"),
        }
    }

    /// The node as a count of workers.
    fn workers(&mut self, node: &Node) -> Option<Number> {
        let (number, measure) = match self.typed(node)? {
            Typed::Number(number, measure) => (number, measure),
            Typed::Truth(_) => {
                let name = self.text_of(node);
                let message = format!("a number of workers is needed, but `{name}` is a condition");
                let help = format!("write `{name} ? pool.max_workers : 0`");
                self.report(codes::WRONG_TYPE, &node.span, message, Some(help));
                return None;
            }
        };
        let unit = match measure {
            None | Some(Unit::Worker | Unit::Plain) => return Some(number),
            Some(unit) => unit,
        };
        let name = self.text_of(node);
        let message = format!("a number of workers is needed, but `{name}` is in {unit}");
        let help = match unit {
            Unit::Kilowatt => {
                format!(
                    "divide by what one worker draws: `floor({} / pool.training_kw)`",
                    factor(node, name)
                )
            }
            Unit::Share => {
                format!(
                    "multiply by a count: `floor({} * pool.max_workers)`",
                    factor(node, name)
                )
            }
            _ => format!(
                "compare it and choose a count, for example `{} < 100 ? pool.max_workers : 0`",
                factor(node, name)
            ),
        };
        self.report(codes::UNIT_MISMATCH, &node.span, message, Some(help));
        None
    }

    fn compare(
        &mut self,
        node: &Node,
        comparison: Comparison,
        left: &Node,
        right: &Node,
    ) -> Option<Typed> {
        let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        let (a, b) = if equality {
            (self.typed(left), self.typed(right))
        } else if let Syntax::Binary(Operator::Compare(_), _, middle) = &left.syntax {
            let operator = self.text[left.span.end..right.span.start].trim();
            let (first, middle, last) = (
                self.text_of(left),
                self.text_of(middle),
                self.text_of(right),
            );
            let help = format!("write `{first} && {middle} {operator} {last}`");
            self.report(
                codes::WRONG_TYPE,
                &node.span,
                "comparisons do not chain".to_owned(),
                Some(help),
            );
            return None;
        } else {
            let number = |pair: (Number, Measure)| Typed::Number(pair.0, pair.1);
            (
                self.number(left).map(number),
                self.number(right).map(number),
            )
        };
        match (a?, b?) {
            (Typed::Number(a, a_unit), Typed::Number(b, b_unit)) => {
                self.meet(node, "compared", (left, a_unit), (right, b_unit))?;
                let truth = match (a, b) {
                    (Number::Signal(index), Number::Constant(value)) => {
                        Truth::SignalAgainst(comparison, index, value)
                    }
                    (a, b) => Truth::Compare(comparison, Box::new((a, b))),
                };
                Some(Typed::Truth(truth))
            }
            (Typed::Truth(a), Typed::Truth(b)) => Some(Typed::Truth(Truth::Same(
                comparison == Comparison::Equal,
                Box::new((a, b)),
            ))),
            _ => {
                let message = "a condition and a number are never equal".to_owned();
                let help = "compare two numbers, or two conditions".to_owned();
                self.report(codes::WRONG_TYPE, &node.span, message, Some(help));
                None
            }
        }
    }

    /// The unit of two numbers that are added, compared or chosen between: both have it, or a bare one takes it.
    fn meet(
        &mut self,
        node: &Node,
        verb: &str,
        a: (&Node, Measure),
        b: (&Node, Measure),
    ) -> Option<Measure> {
        match (a.1, b.1) {
            (None, other) | (other, None) => Some(other),
            (Some(x), Some(y)) if x == y => Some(Some(x)),
            // A ratio is a share or a count, as one likes.
            (Some(Unit::Plain), Some(y)) if y.is_dimensionless() => Some(Some(y)),
            (Some(x), Some(Unit::Plain)) if x.is_dimensionless() => Some(Some(x)),
            (Some(x), Some(y)) => {
                let (left, right) = (self.text_of(a.0), self.text_of(b.0));
                let message =
                    format!("`{left}` is in {x} and `{right}` in {y}: they can't be {verb}");
                let help = format!(
                    "bring both to one unit; a bare number takes the unit of what it meets ({x} or {y})"
                );
                self.report(codes::UNIT_MISMATCH, &node.span, message, Some(help));
                None
            }
        }
    }

    fn arithmetic(
        &mut self,
        node: &Node,
        operator: Operator,
        left: &Node,
        right: &Node,
    ) -> Option<Typed> {
        let (a, b) = (self.number(left), self.number(right));
        let ((a, a_unit), (b, b_unit)) = (a?, b?);
        let (a_side, b_side) = ((left, a_unit), (right, b_unit));
        let sides = |a, b| Box::new((a, b));
        let (number, unit) = match operator {
            Operator::Add => (
                Number::Add(sides(a, b)),
                self.meet(node, "added", a_side, b_side)?,
            ),
            Operator::Subtract => (
                Number::Subtract(sides(a, b)),
                self.meet(node, "subtracted", a_side, b_side)?,
            ),
            Operator::Multiply => (
                Number::Multiply(sides(a, b)),
                self.product(node, a_side, b_side)?,
            ),
            _ => {
                if matches!(b, Number::Constant(0.0)) {
                    let message = "a division by zero has no value".to_owned();
                    let help = "the condition would be unknown for ever".to_owned();
                    self.report(codes::NEVER_KNOWN, &node.span, message, Some(help));
                    return None;
                }
                (
                    Number::Divide(sides(a, b)),
                    self.quotient(node, a_side, b_side)?,
                )
            }
        };
        Some(Typed::Number(number, unit))
    }

    fn product(
        &mut self,
        node: &Node,
        a: (&Node, Measure),
        b: (&Node, Measure),
    ) -> Option<Measure> {
        match (a.1, b.1) {
            (None, other) | (other, None) => Some(other),
            (Some(Unit::Plain), Some(other)) | (Some(other), Some(Unit::Plain)) => {
                Some(Some(other))
            }
            (Some(x), Some(y)) if x.is_dimensionless() && y.is_dimensionless() => {
                Some(Some(Unit::Plain))
            }
            (Some(x), Some(y)) if x.is_dimensionless() => Some(Some(y)),
            (Some(x), Some(y)) if y.is_dimensionless() => Some(Some(x)),
            (Some(x), Some(y)) => self.no_such_unit(node, a.0, b.0, x, y, "multiplied"),
        }
    }

    fn quotient(
        &mut self,
        node: &Node,
        a: (&Node, Measure),
        b: (&Node, Measure),
    ) -> Option<Measure> {
        match (a.1, b.1) {
            (x, None | Some(Unit::Plain)) => Some(x),
            (Some(x), Some(y)) if x == y => Some(Some(Unit::Plain)),
            (None | Some(_), Some(y)) if y.is_dimensionless() => Some(Some(
                a.1.filter(|x| !x.is_dimensionless()).unwrap_or(Unit::Plain),
            )),
            (x, Some(y)) => {
                self.no_such_unit(node, a.0, b.0, x.unwrap_or(Unit::Plain), y, "divided")
            }
        }
    }

    fn no_such_unit(
        &mut self,
        node: &Node,
        a: &Node,
        b: &Node,
        x: Unit,
        y: Unit,
        verb: &str,
    ) -> Option<Measure> {
        let (left, right) = (self.text_of(a), self.text_of(b));
        let message = format!(
            "`{left}` ({x}) and `{right}` ({y}) can't be {verb}: the result has no unit we know"
        );
        let help = "divide by the same unit to get a ratio, or multiply and divide by bare numbers"
            .to_owned();
        self.report(codes::UNIT_MISMATCH, &node.span, message, Some(help));
        None
    }

    fn choose(&mut self, node: &Node, condition: &Node, yes: &Node, no: &Node) -> Option<Typed> {
        let (condition, a, b) = (self.truth(condition), self.typed(yes), self.typed(no));
        match (condition?, a?, b?) {
            (condition, Typed::Truth(a), Typed::Truth(b)) => {
                Some(Typed::Truth(Truth::Choose(Box::new((condition, a, b)))))
            }
            (condition, Typed::Number(a, a_unit), Typed::Number(b, b_unit)) => {
                let unit = self.meet(node, "chosen between", (yes, a_unit), (no, b_unit))?;
                Some(Typed::Number(
                    Number::Choose(Box::new((condition, a, b))),
                    unit,
                ))
            }
            _ => {
                let message = "one branch is a condition and the other a number".to_owned();
                self.report(
                    codes::WRONG_TYPE,
                    &node.span,
                    message,
                    Some("make both of one type".to_owned()),
                );
                None
            }
        }
    }

    fn call(&mut self, node: &Node, name: &Range<usize>, arguments: &[Node]) -> Option<Typed> {
        let called = self.text[name.clone()].to_owned();
        let numbers: Vec<Option<(Number, Measure)>> =
            arguments.iter().map(|node| self.number(node)).collect();
        let Some((_, least, most)) = FUNCTIONS.iter().find(|function| function.0 == called) else {
            let known: Vec<&str> = FUNCTIONS.iter().map(|function| function.0).collect();
            let message = format!("there is no function `{called}`");
            self.report(
                codes::BAD_CALL,
                name,
                message,
                Some(crate::yaml::suggestion(&called, &known, "functions")),
            );
            return None;
        };
        if !(*least..=*most).contains(&arguments.len()) {
            let wanted = if least == most {
                format!("{least}")
            } else {
                format!("{least} to {most}")
            };
            let message = format!("`{called}` takes {wanted} numbers, not {}", arguments.len());
            let help = format!(
                "write `{called}({})`",
                if *least == 1 { "a" } else { "a, b" }
            );
            self.report(codes::BAD_CALL, &node.span, message, Some(help));
            return None;
        }
        let numbers: Vec<(Number, Measure)> = numbers.into_iter().collect::<Option<_>>()?;
        let mut unit: Measure = None;
        let mut of = &arguments[0];
        for (argument, (_, next)) in arguments.iter().zip(&numbers) {
            unit = self.meet(node, "compared", (of, unit), (argument, *next))?;
            if next.is_some() {
                of = argument;
            }
        }
        let mut numbers: Vec<Number> = numbers.into_iter().map(|number| number.0).collect();
        let number = match called.as_str() {
            "min" => Number::Min(numbers.into_boxed_slice()),
            "max" => Number::Max(numbers.into_boxed_slice()),
            "abs" => Number::Abs(Box::new(numbers.pop()?)),
            "floor" => Number::Floor(Box::new(numbers.pop()?)),
            _ => Number::Ceil(Box::new(numbers.pop()?)),
        };
        Some(Typed::Number(number, unit))
    }
}

/// The text of a node as it can stand beside `*`, `/` or `<`.
fn factor(node: &Node, text: &str) -> String {
    match node.syntax {
        Syntax::Choose(..) => format!("({text})"),
        Syntax::Binary(Operator::Add | Operator::Subtract, ..) if !text.starts_with('(') => {
            format!("({text})")
        }
        _ => text.to_owned(),
    }
}
