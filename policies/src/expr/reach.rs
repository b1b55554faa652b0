//! For which values a condition can hold: interval reasoning over its tree, for findings about conditions that are
//! valid but wrong.
//!
//! A condition becomes a list of cases, one of which must apply. A case bounds terms: a signal, a fact, or a sum of
//! them with factors (`surplus - 2 * pool.training_kw`); what is not linear (`min(a, b)`, `a * b`) is a term of its
//! own, free to take any value. So "it can never hold" is always right, and "it can" may be wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use super::parser::{Comparison, Node, Operator, Syntax, name_of};
use super::{CALENDAR_PREFIX, lexer, parser};

/// The most cases that are told apart; a condition with more of them is taken to hold for anything.
pub(crate) const CASES_MAX: usize = 512;

/// An interval of the numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    low: f64,
    low_open: bool,
    high: f64,
    high_open: bool,
}

impl Interval {
    const ALL: Interval = Interval {
        low: f64::NEG_INFINITY,
        low_open: true,
        high: f64::INFINITY,
        high_open: true,
    };

    fn is_empty(self) -> bool {
        self.low > self.high || (self.low == self.high && (self.low_open || self.high_open))
    }

    fn meet(self, other: Interval) -> Interval {
        let (low, low_open) = if self.low == other.low {
            (self.low, self.low_open || other.low_open)
        } else if self.low > other.low {
            (self.low, self.low_open)
        } else {
            (other.low, other.low_open)
        };
        let (high, high_open) = if self.high == other.high {
            (self.high, self.high_open || other.high_open)
        } else if self.high < other.high {
            (self.high, self.high_open)
        } else {
            (other.high, other.high_open)
        };
        Interval {
            low,
            low_open,
            high,
            high_open,
        }
    }

    fn above(low: f64, open: bool) -> Interval {
        Interval {
            low,
            low_open: open,
            ..Interval::ALL
        }
    }

    fn below(high: f64, open: bool) -> Interval {
        Interval {
            high,
            high_open: open,
            ..Interval::ALL
        }
    }
}

/// One way in which a condition can hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Case {
    terms: BTreeMap<String, Interval>,
    flags: BTreeMap<String, bool>,
}

impl Case {
    /// Both at once, unless that is impossible.
    fn and(&self, other: &Case) -> Option<Case> {
        let mut both = self.clone();
        for (flag, value) in &other.flags {
            if both.flags.insert(flag.clone(), *value) == Some(!*value) {
                return None;
            }
        }
        for (term, interval) in &other.terms {
            let known = both.terms.entry(term.clone()).or_insert(Interval::ALL);
            *known = known.meet(*interval);
            if known.is_empty() {
                return None;
            }
        }
        Some(both)
    }
}

/// When a condition holds.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// `None`: more cases than are told apart.
    cases: Option<Vec<Case>>,
}

/// A name that is compared with a number that is written out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Against {
    /// The name, as written.
    pub(crate) name: String,
    /// The number.
    pub(crate) value: f64,
    /// Where the number stands, in bytes of the expression.
    pub(crate) span: Range<usize>,
}

/// A condition's tree, for questions about what it says.
pub(crate) struct Study<'a> {
    text: &'a str,
    tree: Node,
}

impl<'a> Study<'a> {
    /// `None` for a text that does not compile.
    pub(crate) fn new(text: &'a str) -> Option<Study<'a>> {
        let mut findings = Vec::new();
        let tokens = lexer::tokens(text, &mut findings);
        let tree = parser::parse(text, &tokens, &mut findings).ok()?;
        findings.is_empty().then_some(Study { text, tree })
    }

    /// When it holds (`true`), or when it does not. `rename` says what a name stands for, so that two policies that
    /// call one stream by two names can be compared.
    pub(crate) fn reach(&self, holds: bool, rename: &dyn Fn(&str) -> String) -> Reach {
        let builder = Builder {
            text: self.text,
            rename,
        };
        Reach {
            cases: builder.cases(&self.tree, holds),
        }
    }

    /// Every name that it reads.
    pub(crate) fn names(&self) -> BTreeSet<&'a str> {
        let mut names = BTreeSet::new();
        visit(&self.tree, &mut |node| {
            if matches!(node.syntax, Syntax::Name) {
                names.insert(name_of(self.text, node));
            }
        });
        names
    }

    /// Every comparison of a name with a number that is written out.
    pub(crate) fn against_numbers(&self) -> Vec<Against> {
        let mut found = Vec::new();
        visit(&self.tree, &mut |node| {
            let Syntax::Binary(Operator::Compare(_), left, right) = &node.syntax else {
                return;
            };
            for (name, number) in [(left, right), (right, left)] {
                if !matches!(name.syntax, Syntax::Name) {
                    continue;
                }
                if let Some(value) = constant(number) {
                    found.push(Against {
                        name: name_of(self.text, name).to_owned(),
                        value,
                        span: number.span.clone(),
                    });
                }
            }
        });
        found
    }
}

impl Reach {
    /// Whether it can never be.
    pub(crate) fn is_never(&self) -> bool {
        self.cases.as_ref().is_some_and(Vec::is_empty)
    }

    /// When both are.
    pub(crate) fn and(&self, other: &Reach) -> Reach {
        Reach {
            cases: match (&self.cases, &other.cases) {
                (Some(a), Some(b)) => product(a, b),
                _ => None,
            },
        }
    }

    /// Whether some case of each applies together, with a term or calendar that both of them speak of.
    pub(crate) fn meets_on_common_ground(&self, other: &Reach) -> bool {
        let (Some(ours), Some(theirs)) = (&self.cases, &other.cases) else {
            return false;
        };
        ours.iter().any(|a| {
            theirs.iter().any(|b| {
                let common = a.terms.keys().any(|term| b.terms.contains_key(term))
                    || a.flags.keys().any(|flag| b.flags.contains_key(flag));
                common && a.and(b).is_some()
            })
        })
    }

    /// Whether both certainly can be together: by cases that bound signals and facts alone, which are independent of
    /// one another.
    pub(crate) fn certainly_meets(&self, other: &Reach) -> bool {
        let Some(both) = self.and(other).cases else {
            return false;
        };
        let plain = |term: &String| {
            let inner = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
            term.starts_with(|c: char| !c.is_ascii_digit() && c != '-') && term.chars().all(inner)
        };
        both.iter()
            .any(|case| case.terms.keys().all(plain) && case.flags.keys().all(plain))
    }

    /// The highest value of a term for which it can be; `None` where there is no highest.
    pub(crate) fn highest(&self, term: &str) -> Option<f64> {
        let cases = self.cases.as_ref()?;
        let of = |case: &Case| {
            let interval = case.terms.get(term)?;
            interval.high.is_finite().then_some(interval.high)
        };
        let highs: Option<Vec<f64>> = cases.iter().map(of).collect();
        highs?.into_iter().reduce(f64::max)
    }
}

fn product(a: &[Case], b: &[Case]) -> Option<Vec<Case>> {
    let mut both = Vec::new();
    for left in a {
        for case in b.iter().filter_map(|right| left.and(right)) {
            if both.len() == CASES_MAX {
                return None;
            }
            both.push(case);
        }
    }
    Some(both)
}

fn visit<'n>(node: &'n Node, see: &mut dyn FnMut(&'n Node)) {
    see(node);
    match &node.syntax {
        Syntax::Number(_) | Syntax::Bool(_) | Syntax::Name => {}
        Syntax::Negate(inner) | Syntax::Not(inner) => visit(inner, see),
        Syntax::Binary(_, left, right) => [left, right].into_iter().for_each(|n| visit(n, see)),
        Syntax::All(list)
        | Syntax::Any(list)
        | Syntax::Call {
            arguments: list, ..
        } => list.iter().for_each(|n| visit(n, see)),
        Syntax::Choose(a, b, c) => [a, b, c].into_iter().for_each(|n| visit(n, see)),
    }
}

/// The number that a node is, a sign included.
fn constant(node: &Node) -> Option<f64> {
    match &node.syntax {
        Syntax::Number(value) => Some(*value),
        Syntax::Negate(inner) => constant(inner).map(|value| -value),
        _ => None,
    }
}

/// A sum of terms with factors, and a number.
struct Linear {
    terms: BTreeMap<String, f64>,
    constant: f64,
}

impl Linear {
    fn number(constant: f64) -> Linear {
        Linear {
            terms: BTreeMap::new(),
            constant,
        }
    }

    fn term(name: String) -> Linear {
        Linear {
            terms: BTreeMap::from([(name, 1.0)]),
            constant: 0.0,
        }
    }

    fn scaled(mut self, factor: f64) -> Linear {
        self.constant *= factor;
        self.terms.values_mut().for_each(|own| *own *= factor);
        self
    }

    fn plus(mut self, other: Linear) -> Linear {
        self.constant += other.constant;
        for (term, factor) in other.terms {
            *self.terms.entry(term).or_insert(0.0) += factor;
        }
        self.terms.retain(|_, factor| *factor != 0.0);
        self
    }

    /// The sum without its number, divided by its first factor, as text; and that factor.
    fn direction(&self) -> Option<(String, f64)> {
        let lead = *self.terms.values().next()?;
        let mut text = String::new();
        for (index, (term, factor)) in self.terms.iter().enumerate() {
            let joint = if index == 0 { "" } else { " + " };
            let own = factor / lead;
            // Writing to a String can't fail.
            let _ = if own == 1.0 {
                write!(text, "{joint}{term}")
            } else {
                write!(text, "{joint}{own} * {term}")
            };
        }
        Some((text, lead))
    }
}

struct Builder<'a> {
    text: &'a str,
    rename: &'a dyn Fn(&str) -> String,
}

impl Builder<'_> {
    /// The cases in which the node is `holds`.
    fn cases(&self, node: &Node, holds: bool) -> Option<Vec<Case>> {
        match &node.syntax {
            Syntax::Bool(value) => Some(if *value == holds {
                vec![Case::default()]
            } else {
                Vec::new()
            }),
            Syntax::Not(inner) => self.cases(inner, !holds),
            Syntax::All(list) if holds => self.all(list, true),
            Syntax::Any(list) if !holds => self.all(list, false),
            Syntax::All(list) | Syntax::Any(list) => self.any(list, holds),
            Syntax::Binary(Operator::Compare(comparison), left, right) => {
                if is_truth(self.text, left) {
                    let same = (*comparison == Comparison::Equal) == holds;
                    return self.same(left, right, same);
                }
                self.compare(*comparison, left, right, holds)
            }
            Syntax::Choose(condition, yes, no) => {
                let yes = product(&self.cases(condition, true)?, &self.cases(yes, holds)?)?;
                let no = product(&self.cases(condition, false)?, &self.cases(no, holds)?)?;
                joined([yes, no])
            }
            _ => Some(vec![Case {
                flags: BTreeMap::from([(self.words(node), holds)]),
                ..Case::default()
            }]),
        }
    }

    fn all(&self, list: &[Node], holds: bool) -> Option<Vec<Case>> {
        let mut cases = vec![Case::default()];
        for node in list {
            cases = product(&cases, &self.cases(node, holds)?)?;
        }
        Some(cases)
    }

    fn any(&self, list: &[Node], holds: bool) -> Option<Vec<Case>> {
        let each: Option<Vec<_>> = list.iter().map(|node| self.cases(node, holds)).collect();
        joined(each?)
    }

    /// Two conditions that are equal, or that differ.
    fn same(&self, left: &Node, right: &Node, same: bool) -> Option<Vec<Case>> {
        let yes = product(&self.cases(left, true)?, &self.cases(right, same)?)?;
        let no = product(&self.cases(left, false)?, &self.cases(right, !same)?)?;
        joined([yes, no])
    }

    fn compare(
        &self,
        comparison: Comparison,
        left: &Node,
        right: &Node,
        holds: bool,
    ) -> Option<Vec<Case>> {
        let difference = self.linear(left).plus(self.linear(right).scaled(-1.0));
        let comparison = if holds {
            comparison
        } else {
            opposite(comparison)
        };
        let Some((term, lead)) = difference.direction() else {
            let value = difference.constant;
            let is = match comparison {
                Comparison::Equal => value == 0.0,
                Comparison::NotEqual => value != 0.0,
                Comparison::Less => value < 0.0,
                Comparison::LessEqual => value <= 0.0,
                Comparison::Greater => value > 0.0,
                Comparison::GreaterEqual => value >= 0.0,
            };
            return Some(if is {
                vec![Case::default()]
            } else {
                Vec::new()
            });
        };
        let bound = -difference.constant / lead;
        if !bound.is_finite() {
            return None;
        }
        // Divided by a negative factor, the sides change places.
        let comparison = if lead < 0.0 {
            mirrored(comparison)
        } else {
            comparison
        };
        let intervals = match comparison {
            Comparison::Equal => {
                vec![Interval::above(bound, false).meet(Interval::below(bound, false))]
            }
            Comparison::NotEqual => {
                vec![Interval::below(bound, true), Interval::above(bound, true)]
            }
            Comparison::Less => vec![Interval::below(bound, true)],
            Comparison::LessEqual => vec![Interval::below(bound, false)],
            Comparison::Greater => vec![Interval::above(bound, true)],
            Comparison::GreaterEqual => vec![Interval::above(bound, false)],
        };
        let case = |interval| Case {
            terms: BTreeMap::from([(term.clone(), interval)]),
            ..Case::default()
        };
        Some(intervals.into_iter().map(case).collect())
    }

    fn linear(&self, node: &Node) -> Linear {
        match &node.syntax {
            Syntax::Number(value) => Linear::number(*value),
            Syntax::Negate(inner) => self.linear(inner).scaled(-1.0),
            Syntax::Binary(Operator::Add, left, right) => {
                self.linear(left).plus(self.linear(right))
            }
            Syntax::Binary(Operator::Subtract, left, right) => {
                self.linear(left).plus(self.linear(right).scaled(-1.0))
            }
            Syntax::Binary(Operator::Multiply, left, right) => {
                let (left, right) = (self.linear(left), self.linear(right));
                if left.terms.is_empty() {
                    right.scaled(left.constant)
                } else if right.terms.is_empty() {
                    left.scaled(right.constant)
                } else {
                    Linear::term(self.words(node))
                }
            }
            Syntax::Binary(Operator::Divide, left, right) => {
                let right = self.linear(right);
                if right.terms.is_empty() && right.constant != 0.0 {
                    self.linear(left).scaled(1.0 / right.constant)
                } else {
                    Linear::term(self.words(node))
                }
            }
            _ => Linear::term(self.words(node)),
        }
    }

    /// The node in one spelling, whatever its blanks and brackets.
    fn words(&self, node: &Node) -> String {
        let list = |nodes: &[Node], joint: &str| {
            let words: Vec<String> = nodes.iter().map(|node| self.words(node)).collect();
            format!("({})", words.join(joint))
        };
        match &node.syntax {
            Syntax::Number(value) => value.to_string(),
            Syntax::Bool(value) => value.to_string(),
            Syntax::Name => (self.rename)(name_of(self.text, node)),
            Syntax::Negate(inner) => format!("-{}", self.words(inner)),
            Syntax::Not(inner) => format!("!{}", self.words(inner)),
            Syntax::Binary(operator, left, right) => {
                format!("({} {operator:?} {})", self.words(left), self.words(right))
            }
            Syntax::All(nodes) => list(nodes, " && "),
            Syntax::Any(nodes) => list(nodes, " || "),
            Syntax::Choose(a, b, c) => {
                format!(
                    "({} ? {} : {})",
                    self.words(a),
                    self.words(b),
                    self.words(c)
                )
            }
            Syntax::Call { name, arguments } => {
                format!("{}{}", &self.text[name.clone()], list(arguments, ", "))
            }
        }
    }
}

fn joined(lists: impl IntoIterator<Item = Vec<Case>>) -> Option<Vec<Case>> {
    let all: Vec<Case> = lists.into_iter().flatten().collect();
    (all.len() <= CASES_MAX).then_some(all)
}

fn opposite(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Less => Comparison::GreaterEqual,
        Comparison::LessEqual => Comparison::Greater,
        Comparison::Greater => Comparison::LessEqual,
        Comparison::GreaterEqual => Comparison::Less,
    }
}

fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessEqual => Comparison::GreaterEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterEqual => Comparison::LessEqual,
        same @ (Comparison::Equal | Comparison::NotEqual) => same,
    }
}

/// Whether the node is a condition and not a number.
fn is_truth(text: &str, node: &Node) -> bool {
    match &node.syntax {
        Syntax::Bool(_) | Syntax::Not(_) | Syntax::All(_) | Syntax::Any(_) => true,
        Syntax::Binary(operator, ..) => matches!(operator, Operator::Compare(_)),
        Syntax::Name => name_of(text, node).starts_with(CALENDAR_PREFIX),
        Syntax::Choose(_, yes, _) => is_truth(text, yes),
        Syntax::Number(_) | Syntax::Negate(_) | Syntax::Call { .. } => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn reach(text: &str, holds: bool) -> Reach {
        Study::new(text).unwrap().reach(holds, &str::to_owned)
    }

    #[test]
    fn what_can_never_hold_is_found() {
        for text in [
            "carbon < 100 && carbon > 200",
            "carbon < 100 && 100 <= carbon",
            "carbon == 1 && carbon != 1",
            "2 * carbon < 10 && carbon >= 5",
            "-carbon > 3 && carbon > 0",
            "1 > 2",
            "carbon - carbon > 0",
            "surplus - 2 * pool.training_kw > 0 && surplus < 2 * pool.training_kw",
            "calendar.night && !calendar.night",
            "(carbon < 1) == (carbon >= 1)",
            "calendar.night ? carbon < 1 && carbon > 1 : false",
            "min(a, b) > 1 && min( a,b ) <= 1",
            "!(carbon < 5 || carbon > 3)",
        ] {
            assert!(reach(text, true).is_never(), "{text}");
        }
        for text in [
            "carbon < 100 && carbon > 99",
            "carbon <= 100 && carbon >= 100",
            "carbon < 1 && price > 2",
            "2 * carbon < 10 && carbon >= 4",
            "min(a, b) > 1 && min(b, a) <= 1",
            "calendar.night || !calendar.night",
            "a * b > 1 && a < 0",
            "a / b > 1",
        ] {
            assert!(!reach(text, true).is_never(), "{text}");
        }
    }

    #[test]
    fn what_always_holds_never_fails_to() {
        for text in [
            "true",
            "carbon < 5 || carbon >= 5",
            "carbon < 9 || !(carbon < 8)",
            "calendar.a || !calendar.a",
        ] {
            assert!(reach(text, false).is_never(), "{text}");
        }
        assert!(!reach("carbon < 5 || carbon > 5", false).is_never());
    }

    #[test]
    fn two_conditions_meet_or_not() {
        let (low, high) = (reach("carbon < 100", true), reach("carbon >= 80", true));
        assert!(low.meets_on_common_ground(&high));
        assert!(!low.meets_on_common_ground(&reach("carbon >= 100", true)));
        // Neither says anything about what the other speaks of.
        assert!(!low.meets_on_common_ground(&reach("price > 5", true)));
        assert!(low.and(&reach("carbon > 100", true)).is_never());
        assert_eq!(low.highest("carbon"), Some(100.0));
        assert_eq!(
            reach("carbon < 1 || price < 2", true).highest("carbon"),
            None
        );
    }

    #[test]
    fn comparisons_with_numbers_are_found_on_both_sides() {
        let study = Study::new("carbon < -0.5 && 1.5 >= (share) && carbon < price").unwrap();
        let found = study.against_numbers();
        let shown: Vec<_> = found
            .iter()
            .map(|a| (a.name.as_str(), a.value, a.span.clone()))
            .collect();
        assert_eq!(shown, [("carbon", -0.5, 9..13), ("share", 1.5, 17..20)]);
        assert_eq!(
            study.names().into_iter().collect::<Vec<_>>(),
            ["carbon", "price", "share"]
        );
    }

    #[test]
    fn a_condition_of_too_many_cases_is_taken_to_hold_for_anything() {
        let text: Vec<String> = (0..12).map(|i| format!("(a{i} < 1 || b{i} < 1)")).collect();
        let reach = reach(&text.join(" && "), true);
        assert!(reach.cases.is_none() && !reach.is_never());
        assert_eq!(reach.highest("a1"), None);
    }
}
