//! Expressions as trees, made at random: how they are printed, and how they are generated so that their units agree.
//!
//! Included by whoever tests the language: it stands on no code of the compiler but units and the table of variables.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::select;

use super::{TABLE, Unit};

/// The signals that a generated expression may read, with their units; two have the same.
pub(crate) const SIGNALS: &[(&str, Unit)] = &[
    ("carbon", Unit::GramPerKilowattHour),
    ("curtailed", Unit::Kilowatt),
    ("price", Unit::MoneyPerMegawattHour),
    ("rank", Unit::Index),
    ("share", Unit::Share),
    ("surplus", Unit::Kilowatt),
];

/// The calendars that a generated expression may ask.
pub(crate) const CALENDARS: &[&str] = &["night", "works_council"];

/// The names of conditions, in the order of [`CALENDARS`]. One that stands here is generated, printed and asked of the world.
pub(crate) const CONDITIONS: &[&str] = &["calendar.night", "calendar.works_council"];

const UNITS: [Unit; 7] = [
    Unit::Kilowatt,
    Unit::GramPerKilowattHour,
    Unit::MoneyPerMegawattHour,
    Unit::Index,
    Unit::Share,
    Unit::Worker,
    PLAIN,
];
const PLAIN: Unit = Unit::Plain;

/// How often the trees are nested; more make longer texts than an expression may have.
const LEVELS: usize = 3;

/// A number, as it is written.
#[derive(Clone, Debug)]
pub(crate) enum Number {
    /// As it stands in the text, without a sign.
    Literal(String),
    Name(&'static str),
    Negate(Box<Number>),
    /// `+ - * /`.
    Two(char, Box<Number>, Box<Number>),
    Call(&'static str, Vec<Number>),
    Choose(Box<Truth>, Box<Number>, Box<Number>),
}

/// A condition, as it is written.
#[derive(Clone, Debug)]
pub(crate) enum Truth {
    Literal(bool),
    Name(&'static str),
    /// Two numbers, by `== != < <= > >=`.
    Compare(&'static str, Box<Number>, Box<Number>),
    /// Two conditions, by `== !=`.
    Same(&'static str, Box<Truth>, Box<Truth>),
    Not(Box<Truth>),
    All(Vec<Truth>),
    Any(Vec<Truth>),
    Choose(Box<Truth>, Box<Truth>, Box<Truth>),
}

// --- Printing --------------------------------------------------------------------------------------------------------

/// How strongly an operator binds, weakest first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Power {
    Choice,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Primary,
}

impl Power {
    const fn next(self) -> Power {
        match self {
            Power::Choice => Power::Or,
            Power::Or => Power::And,
            Power::And => Power::Relation,
            Power::Relation => Power::Sum,
            Power::Sum => Power::Product,
            Power::Product => Power::Unary,
            Power::Unary | Power::Primary => Power::Primary,
        }
    }
}

/// Prints with the parentheses that the grammar needs, and with some that it does not.
struct Printer<'a> {
    out: String,
    /// What stands between two tokens, in turn. Where it is [`BRACKETED`], a part is put into parentheses for no need.
    blanks: &'a [&'static str],
    tokens: usize,
    /// Parentheses within one another for no need: few, so that the text is not too deep.
    needless: usize,
}

/// A blank that stands for needless parentheses as well.
const BRACKETED: &str = "  ";
/// The most needless parentheses within one another.
const NEEDLESS_MAX: usize = 4;

impl Printer<'_> {
    fn token(&mut self, token: &str) {
        if self.tokens > 0 {
            let blank = self.blanks[self.tokens % self.blanks.len()];
            self.out.push_str(blank);
        }
        self.out.push_str(token);
        self.tokens += 1;
    }

    /// In parentheses where the place asks for more than `has`.
    fn within(&mut self, has: Power, wanted: Power, print: impl FnOnce(&mut Self)) {
        let blank = self.blanks[self.tokens % self.blanks.len()];
        let needless = has >= wanted && blank == BRACKETED && self.needless < NEEDLESS_MAX;
        if has < wanted || needless {
            self.needless += usize::from(needless);
            self.token("(");
            print(self);
            self.token(")");
            self.needless -= usize::from(needless);
        } else {
            print(self);
        }
    }

    /// A number, a name or a word.
    fn leaf(&mut self, text: &str, wanted: Power) {
        self.within(Power::Primary, wanted, |printer| printer.token(text));
    }

    fn number(&mut self, number: &Number, wanted: Power) {
        match number {
            Number::Literal(text) => self.leaf(text, wanted),
            Number::Name(name) => self.leaf(name, wanted),
            Number::Negate(inner) => self.within(Power::Unary, wanted, |printer| {
                printer.token("-");
                printer.number(inner, Power::Unary);
            }),
            Number::Two(operator, left, right) => {
                let power = if matches!(operator, '+' | '-') {
                    Power::Sum
                } else {
                    Power::Product
                };
                self.within(power, wanted, |printer| {
                    printer.number(left, power);
                    printer.token(&operator.to_string());
                    printer.number(right, power.next());
                });
            }
            Number::Call(function, arguments) => {
                self.token(function);
                self.token("(");
                for (index, argument) in arguments.iter().enumerate() {
                    if index > 0 {
                        self.token(",");
                    }
                    self.number(argument, Power::Choice);
                }
                self.token(")");
            }
            Number::Choose(condition, yes, no) => self.within(Power::Choice, wanted, |printer| {
                printer.truth(condition, Power::Or);
                printer.token("?");
                printer.number(yes, Power::Or);
                printer.token(":");
                printer.number(no, Power::Choice);
            }),
        }
    }

    fn truth(&mut self, truth: &Truth, wanted: Power) {
        match truth {
            Truth::Literal(value) => self.leaf(&value.to_string(), wanted),
            Truth::Name(name) => self.leaf(name, wanted),
            Truth::Compare(operator, left, right) => {
                self.within(Power::Relation, wanted, |printer| {
                    printer.number(left, Power::Sum);
                    printer.token(operator);
                    printer.number(right, Power::Sum);
                });
            }
            Truth::Same(operator, left, right) => self.within(Power::Relation, wanted, |printer| {
                printer.truth(left, Power::Relation);
                printer.token(operator);
                printer.truth(right, Power::Sum);
            }),
            Truth::Not(inner) => self.within(Power::Unary, wanted, |printer| {
                printer.token("!");
                printer.truth(inner, Power::Unary);
            }),
            Truth::All(list) => self.chain("&&", Power::And, list, wanted),
            Truth::Any(list) => self.chain("||", Power::Or, list, wanted),
            Truth::Choose(condition, yes, no) => self.within(Power::Choice, wanted, |printer| {
                printer.truth(condition, Power::Or);
                printer.token("?");
                printer.truth(yes, Power::Or);
                printer.token(":");
                printer.truth(no, Power::Choice);
            }),
        }
    }

    fn chain(&mut self, operator: &str, power: Power, list: &[Truth], wanted: Power) {
        self.within(power, wanted, |printer| {
            for (index, truth) in list.iter().enumerate() {
                if index > 0 {
                    printer.token(operator);
                }
                printer.truth(truth, power.next());
            }
        });
    }
}

fn printed(blanks: &[&'static str], print: impl FnOnce(&mut Printer<'_>)) -> String {
    let mut printer = Printer {
        out: String::new(),
        blanks,
        tokens: 0,
        needless: 0,
    };
    print(&mut printer);
    printer.out
}

impl Truth {
    /// The expression; `blanks` stand between the tokens, in turn, and put parts into needless parentheses.
    pub(crate) fn text(&self, blanks: &[&'static str]) -> String {
        printed(blanks, |printer| printer.truth(self, Power::Choice))
    }

    /// The tree with every bracket, in prefix form: two trees are equal when their shapes are.
    pub(crate) fn shape(&self, out: &mut String) {
        // Writing to a String can't fail.
        let _ = match self {
            Truth::Literal(value) => write!(out, "{value}"),
            Truth::Name(name) => write!(out, "{name}"),
            Truth::Compare(operator, left, right) => {
                let _ = write!(out, "({operator} ");
                left.shape(out);
                out.push(' ');
                right.shape(out);
                write!(out, ")")
            }
            Truth::Same(operator, left, right) => prefix(out, operator, [&**left, right]),
            Truth::Not(inner) => prefix(out, "!", [&**inner]),
            Truth::All(list) => prefix(out, "&&", list),
            Truth::Any(list) => prefix(out, "||", list),
            Truth::Choose(condition, yes, no) => prefix(out, "?", [&**condition, yes, no]),
        };
    }
}

impl Number {
    /// As [`Truth::text`].
    pub(crate) fn text(&self, blanks: &[&'static str]) -> String {
        printed(blanks, |printer| printer.number(self, Power::Choice))
    }

    fn shape(&self, out: &mut String) {
        let _ = match self {
            Number::Literal(text) => write!(out, "{:?}", value_of(text)),
            Number::Name(name) => write!(out, "{name}"),
            Number::Negate(inner) => numbers(out, "-", [&**inner]),
            Number::Two(operator, left, right) => {
                numbers(out, &operator.to_string(), [&**left, right])
            }
            Number::Call(function, list) => numbers(out, function, list),
            Number::Choose(condition, yes, no) => {
                out.push_str("(? ");
                condition.shape(out);
                for branch in [yes, no] {
                    out.push(' ');
                    branch.shape(out);
                }
                write!(out, ")")
            }
        };
    }
}

fn prefix<'a>(
    out: &mut String,
    operator: &str,
    list: impl IntoIterator<Item = &'a Truth>,
) -> std::fmt::Result {
    let _ = write!(out, "({operator}");
    for truth in list {
        out.push(' ');
        truth.shape(out);
    }
    write!(out, ")")
}

fn numbers<'a>(
    out: &mut String,
    operator: &str,
    list: impl IntoIterator<Item = &'a Number>,
) -> std::fmt::Result {
    let _ = write!(out, "({operator}");
    for number in list {
        out.push(' ');
        number.shape(out);
    }
    write!(out, ")")
}

/// What a literal means.
pub(crate) fn value_of(literal: &str) -> f64 {
    literal.parse().expect("a literal is a number")
}

// --- Generating ------------------------------------------------------------------------------------------------------

/// What trees of one level are made of.
#[derive(Clone)]
struct Level {
    /// Without a unit.
    bare: BoxedStrategy<Number>,
    /// Of exactly that unit, by the index in [`UNITS`]; of `PLAIN` there is none at first.
    measured: Vec<Option<BoxedStrategy<Number>>>,
    truth: BoxedStrategy<Truth>,
}

impl Level {
    fn measured(&self, unit: Unit) -> Option<BoxedStrategy<Number>> {
        let index = UNITS.iter().position(|known| *known == unit);
        index.and_then(|index| self.measured[index].clone())
    }

    /// What may meet a number of that unit: one of it, a bare one, and a ratio where the unit is a mere number.
    fn meeting(&self, unit: Unit) -> BoxedStrategy<Number> {
        let ratio = self.measured(PLAIN).filter(|_| unit.is_dimensionless());
        any_of([Some(self.bare.clone()), self.measured(unit), ratio])
    }

    /// What a number of that unit may be multiplied or divided by and keep its unit.
    fn factor(&self, unit: Unit) -> BoxedStrategy<Number> {
        if unit.is_dimensionless() {
            self.meeting(PLAIN)
        } else {
            let mere = UNITS.into_iter().filter(|unit| unit.is_dimensionless());
            let mere = mere.map(|unit| self.measured(unit));
            any_of(mere.chain([Some(self.bare.clone())]))
        }
    }
}

fn any_of(
    strategies: impl IntoIterator<Item = Option<BoxedStrategy<Number>>>,
) -> BoxedStrategy<Number> {
    proptest::strategy::Union::new(strategies.into_iter().flatten()).boxed()
}

/// A condition whose units agree, so that it is accepted.
pub(crate) fn any_truth() -> BoxedStrategy<Truth> {
    levels(LEVELS).truth
}

/// A number whose units agree, and the unit of what it may meet.
pub(crate) fn any_number() -> impl Strategy<Value = (Number, Unit)> {
    let level = levels(LEVELS - 1);
    let of = UNITS.map(|unit| level.meeting(unit).prop_map(move |number| (number, unit)));
    proptest::strategy::Union::new(of)
}

fn levels(count: usize) -> Level {
    let mut level = Level {
        bare: literal().prop_map(Number::Literal).boxed(),
        measured: UNITS.iter().map(|unit| names(*unit)).collect(),
        truth: truth_leaf(),
    };
    for _ in 0..count {
        level = Level {
            bare: bare(&level),
            measured: UNITS.iter().map(|unit| measured(&level, *unit)).collect(),
            truth: truth(&level),
        };
    }
    level
}

/// What stands between the tokens of a text.
pub(crate) fn any_blanks() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(
        select(vec!["", "", " ", BRACKETED, "\n", "\t", "\r\n "]),
        1..8,
    )
}

fn literal() -> impl Strategy<Value = String> {
    let written = select(vec![
        "0", "1", "2", "3", "5", "10", "100", "007", "0.5", "2.50", ".25", "1e3", "1E+2", "25e-1",
        "1e308", ".1e-7", "0.0",
    ]);
    prop_oneof![
        4 => written.prop_map(str::to_owned),
        1 => (0..200_u32).prop_map(|value| value.to_string()),
        1 => (0.0..1e4_f64).prop_map(|value| value.to_string()),
        1 => (0.0..1e4_f64).prop_map(|value| format!("{value:e}")),
    ]
}

fn names(unit: Unit) -> Option<BoxedStrategy<Number>> {
    let signals = SIGNALS.iter().filter(|row| row.1 == unit).map(|row| row.0);
    let variables = TABLE.iter().filter(|row| row.unit == unit);
    let names: Vec<&str> = signals.chain(variables.map(|row| row.name)).collect();
    (!names.is_empty()).then(|| select(names).prop_map(Number::Name).boxed())
}

fn truth_leaf() -> BoxedStrategy<Truth> {
    let literal = any::<bool>().prop_map(Truth::Literal);
    let name = select(CONDITIONS).prop_map(Truth::Name);
    prop_oneof![1 => literal, 2 => name].boxed()
}

/// A divisor that is written as 0 is refused: 4 stands for it.
fn divide(left: Number, right: Number) -> Number {
    let right = match right {
        Number::Literal(text) if value_of(&text) == 0.0 => Number::Literal("4".to_owned()),
        other => other,
    };
    Number::Two('/', left.into(), right.into())
}

fn two(operator: char, left: Number, right: Number) -> Number {
    match operator {
        '/' => divide(left, right),
        _ => Number::Two(operator, left.into(), right.into()),
    }
}

fn operators(of: &'static [char]) -> impl Strategy<Value = char> {
    select(of)
}

fn one_argument() -> impl Strategy<Value = &'static str> {
    select(vec!["abs", "floor", "ceil"])
}

/// `-a` or a function of `a`.
fn of_one(number: BoxedStrategy<Number>) -> BoxedStrategy<Number> {
    prop_oneof![
        number.clone().prop_map(|a| Number::Negate(a.into())),
        (one_argument(), number).prop_map(|(function, a)| Number::Call(function, vec![a])),
    ]
    .boxed()
}

/// `min` or `max` of the first and of the others, the first at any place among them.
fn best(first: BoxedStrategy<Number>, others: BoxedStrategy<Number>) -> BoxedStrategy<Number> {
    let list = prop::collection::vec(others, 1..4);
    (select(vec!["min", "max"]), first, list, 0..4_usize)
        .prop_map(|(function, first, mut list, at)| {
            list.insert(at.min(list.len()), first);
            Number::Call(function, list)
        })
        .boxed()
}

fn choose(
    condition: BoxedStrategy<Truth>,
    yes: BoxedStrategy<Number>,
    no: BoxedStrategy<Number>,
) -> BoxedStrategy<Number> {
    (condition, yes, no)
        .prop_map(|(c, a, b)| Number::Choose(c.into(), a.into(), b.into()))
        .boxed()
}

fn bare(level: &Level) -> BoxedStrategy<Number> {
    let a = level.bare.clone();
    prop_oneof![
        3 => a.clone(),
        2 => (operators(&['+', '-', '*', '/']), a.clone(), a.clone()).prop_map(|(o, a, b)| two(o, a, b)),
        1 => of_one(a.clone()),
        1 => best(a.clone(), a.clone()),
        1 => choose(level.truth.clone(), a.clone(), a),
    ]
    .boxed()
}

fn measured(level: &Level, unit: Unit) -> Option<BoxedStrategy<Number>> {
    let ratios = (unit == PLAIN).then(|| ratio(level));
    let Some(a) = level.measured(unit) else {
        return ratios;
    };
    let (met, factor) = (level.meeting(unit), level.factor(unit));
    let sums = operators(&['+', '-']);
    let sums_turned = operators(&['+', '-']);
    let own = prop_oneof![
        3 => a.clone(),
        1 => (sums, a.clone(), met.clone()).prop_map(|(o, a, b)| two(o, a, b)),
        1 => (sums_turned, met.clone(), a.clone()).prop_map(|(o, a, b)| two(o, a, b)),
        2 => (operators(&['*', '/']), a.clone(), factor.clone()).prop_map(|(o, a, b)| two(o, a, b)),
        1 => (factor, a.clone()).prop_map(|(a, b)| two('*', a, b)),
        1 => of_one(a.clone()),
        1 => best(a.clone(), met.clone()),
        1 => choose(level.truth.clone(), a.clone(), met.clone()),
        1 => choose(level.truth.clone(), met, a),
    ]
    .boxed();
    Some(any_of([Some(own), ratios]))
}

/// A number whose unit has cancelled out.
fn ratio(level: &Level) -> BoxedStrategy<Number> {
    let same = UNITS.into_iter().filter_map(|unit| level.measured(unit));
    let same = same.map(|a| (a.clone(), a).prop_map(|(a, b)| divide(a, b)).boxed());
    let mere = [Unit::Share, Unit::Worker].map(|unit| level.measured(unit));
    let mere = any_of(mere);
    let product = (operators(&['*', '/']), mere.clone(), mere.clone())
        .prop_map(|(o, a, b)| two(o, a, b))
        .boxed();
    let under = (level.bare.clone(), mere)
        .prop_map(|(a, b)| divide(a, b))
        .boxed();
    any_of(same.map(Some).chain([Some(product), Some(under)]))
}

fn truth(level: &Level) -> BoxedStrategy<Truth> {
    let t = level.truth.clone();
    let compared = UNITS.map(|unit| {
        let side = level.meeting(unit);
        let operator = select(vec!["<", "<=", ">", ">=", "==", "!="]);
        (operator, side.clone(), side)
            .prop_map(|(o, a, b)| Truth::Compare(o, a.into(), b.into()))
            .boxed()
    });
    let list = prop::collection::vec(t.clone(), 2..5);
    prop_oneof![
        6 => proptest::strategy::Union::new(compared),
        2 => list.clone().prop_map(Truth::All),
        2 => list.prop_map(Truth::Any),
        1 => t.clone().prop_map(|a| Truth::Not(a.into())),
        1 => (select(vec!["==", "!="]), t.clone(), t.clone())
            .prop_map(|(o, a, b)| Truth::Same(o, a.into(), b.into())),
        1 => (t.clone(), t.clone(), t.clone())
            .prop_map(|(c, a, b)| Truth::Choose(c.into(), a.into(), b.into())),
        1 => t,
    ]
    .boxed()
}

/// The tokens of a text that is nearly right: one or two of a good one are lost, doubled, swapped or replaced.
pub(crate) fn any_nearly_right() -> impl Strategy<Value = Vec<String>> {
    let others = vec![
        "(", ")", "!", "-", "+", "*", "/", "<", "==", "&&", "||", "?", ":", ",", "1", "0", "2.",
        ".5", "1e", "true", "carbon", "min", "abs", "surplus", "pool", ".", "in", "%",
    ];
    let place = any::<prop::sample::Index>;
    let edit = (0..4_u8, place(), place(), select(others));
    let edits = prop::collection::vec(edit, 0..3);
    (any_truth(), edits).prop_map(|(tree, edits)| {
        let text = tree.text(&[" "]);
        let mut tokens: Vec<String> = text.split(' ').map(str::to_owned).collect();
        for (what, place, another, other) in edits {
            let (at, another) = (place.index(tokens.len()), another.index(tokens.len()));
            match what {
                0 if tokens.len() > 1 => drop(tokens.remove(at)),
                1 => tokens.insert(at, tokens[another].clone()),
                2 => tokens.swap(at, another),
                _ => other.clone_into(&mut tokens[at]),
            }
        }
        tokens
    })
}

/// The text of tokens; two that would run together are kept apart.
pub(crate) fn joined(tokens: &[String], blanks: &[&'static str]) -> String {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut out = String::new();
    for (index, token) in tokens.iter().enumerate() {
        let blank = blanks[index % blanks.len()];
        let runs_together = out.ends_with(in_word) && token.starts_with(in_word);
        out.push_str(if runs_together && blank.is_empty() {
            " "
        } else {
            blank
        });
        out.push_str(token);
    }
    out
}
