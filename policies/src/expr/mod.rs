//! Conditions and numbers: CEL syntax, checked for types and units at load, evaluated in three values.
//!
//! The language is a subset of CEL (<https://github.com/google/cel-spec>): numbers, `true`, `false`, names,
//! `+ - * /`, unary `-` and `!`, `== != < <= > >=`, `&&`, `||`, `?:`, parentheses, and the functions `min`, `max`,
//! `abs`, `floor`, `ceil`. All numbers are doubles. Beside CEL stand two rules of our own:
//!
//! - **Units.** A signal carries the canonical unit of its kind. Numbers of different units can't be added or
//!   compared; a bare number takes the unit of what it meets.
//! - **Unknown.** A signal that is missing or stale, a fact that is not given and a result that is not finite are
//!   unknown, and so is what is computed from them, except `true || unknown` = true and `false && unknown` = false.
//!
//! A calendar is a condition of its own, `calendar.NAME`, and never unknown.
//!
//! Nothing here knows about YAML: places are bytes of the expression's own text.

use std::ops::Range;

use crate::codes;
use crate::facts::Facts;
use crate::rules::{CalendarSet, SignalSet};
use crate::units::Unit;

mod checker;
mod eval;
mod lexer;
mod parser;
pub(crate) mod reach;

/// The most bytes of an expression.
pub const EXPRESSION_MAX: usize = 4 * 1024;
/// The most levels of an expression: brackets, operators and calls within one another.
pub const EXPRESSION_DEPTH_MAX: usize = 32;
/// The functions, with the least and the most arguments.
pub const FUNCTIONS: &[(&str, usize, usize)] = &[
    ("min", 2, 16),
    ("max", 2, 16),
    ("abs", 1, 1),
    ("floor", 1, 1),
    ("ceil", 1, 1),
];
/// Words that can't be names of signals: they mean something in CEL, or are slips for what does.
pub const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "and",
    "or",
    "not",
    "pool",
    "site",
    "calendar",
    "min",
    "max",
    "abs",
    "floor",
    "ceil",
    "has",
];

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One of [`crate::codes`].
    pub code: &'static str,
    /// Bytes of the expression.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: Option<String>,
}

impl Finding {
    pub(crate) fn new(code: &'static str, span: Range<usize>, message: impl Into<String>) -> Self {
        Finding {
            code,
            span,
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// What a calendar's variable begins with: the calendar `night` is the condition `calendar.night`, which is true while
/// one of its windows is open.
pub const CALENDAR_PREFIX: &str = "calendar.";

/// The names that an expression may use beside [`crate::facts::TABLE`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// Signals with the unit of their kind; the index is that of the policy's binding.
    pub signals: &'a [(&'a str, Unit)],
    /// Names of calendars, without [`CALENDAR_PREFIX`]; the index is that of the policy's calendar.
    pub calendars: &'a [&'a str],
}

/// What a number is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A count of workers: its unit is the worker, or none.
    Workers,
    /// Any number, such as a score.
    Any,
}

/// What an expression reads.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    signals: SignalSet,
    calendars: CalendarSet,
}

/// The tree of a text, and the slips that were mended on the way.
fn parsed(text: &str) -> Result<(parser::Node, Vec<Finding>), Vec<Finding>> {
    if text.len() > EXPRESSION_MAX {
        let message = format!(
            "the expression has {} bytes; {EXPRESSION_MAX} are allowed",
            text.len()
        );
        let finding = Finding::new(codes::EXPRESSION_TOO_LARGE, 0..text.len(), message);
        return Err(vec![finding.with_help("split it over several rules")]);
    }
    let mut findings = Vec::new();
    let tokens = lexer::tokens(text, &mut findings);
    match parser::parse(text, &tokens, &mut findings) {
        Ok(tree) => Ok((tree, findings)),
        Err(finding) => {
            findings.push(finding);
            Err(findings)
        }
    }
}

/// A condition, checked and ready to evaluate.
#[derive(Clone, Debug)]
pub struct Condition {
    text: String,
    root: eval::Truth,
    reads: Reads,
}

impl Condition {
    /// Compiles a text, or says everything that is wrong with it (a syntax error ends the search).
    pub fn compile(text: &str, scope: Scope<'_>) -> Result<Condition, Vec<Finding>> {
        let (tree, mut findings) = parsed(text)?;
        let (root, reads) = checker::condition(text, &tree, scope, &mut findings);
        match root {
            Some(root) if findings.is_empty() => Ok(Condition {
                text: text.to_owned(),
                root,
                reads,
            }),
            _ => Err(findings),
        }
    }

    /// Whether it holds; `None` where that is unknown. Allocates nothing.
    #[inline]
    pub fn evaluate(&self, facts: &Facts<'_>) -> Option<bool> {
        self.root.evaluate(facts)
    }

    /// The bindings that it reads.
    pub const fn signals(&self) -> SignalSet {
        self.reads.signals
    }

    /// The calendars that it reads.
    pub const fn calendars(&self) -> CalendarSet {
        self.reads.calendars
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// An expression whose value is a number, checked and ready to evaluate.
#[derive(Clone, Debug)]
pub struct Quantity {
    text: String,
    root: eval::Number,
    reads: Reads,
}

impl Quantity {
    /// Compiles a text, or says everything that is wrong with it (a syntax error ends the search).
    pub fn compile(
        text: &str,
        scope: Scope<'_>,
        expected: Expected,
    ) -> Result<Quantity, Vec<Finding>> {
        let (tree, mut findings) = parsed(text)?;
        let (root, reads) = checker::quantity(text, &tree, scope, expected, &mut findings);
        match root {
            Some(root) if findings.is_empty() => Ok(Quantity {
                text: text.to_owned(),
                root,
                reads,
            }),
            _ => Err(findings),
        }
    }

    /// Its value, in its unit; `None` where that is unknown. Allocates nothing.
    #[inline]
    pub fn evaluate(&self, facts: &Facts<'_>) -> Option<f64> {
        Some(self.root.evaluate(facts)).filter(|value| value.is_finite())
    }

    /// The bindings that it reads.
    pub const fn signals(&self) -> SignalSet {
        self.reads.signals
    }

    /// The calendars that it reads.
    pub const fn calendars(&self) -> CalendarSet {
        self.reads.calendars
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod grammar_tests;
#[cfg(test)]
mod tests;
