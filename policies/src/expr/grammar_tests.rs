//! The parser reads exactly the grammar of `docs/expressions.md`: the same texts, into the same trees.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::parser::{Comparison, Node, Operator, Syntax, name_of};
use super::{Finding, parsed};
use crate::codes;
use crate::facts::TABLE;
use crate::units::Unit;

#[allow(dead_code, reason = "the oracles use the rest")]
#[path = "../../tests/oracle/tree.rs"]
mod tree;

use tree::{any_blanks, any_nearly_right, any_truth, joined};

/// The tree of a text that has nothing to mend.
fn parse(text: &str) -> Result<Node, Vec<Finding>> {
    match parsed(text) {
        Ok((tree, slips)) if slips.is_empty() => Ok(tree),
        Ok((_, findings)) | Err(findings) => Err(findings),
    }
}

/// A tree in prefix form, as [`tree::Truth::shape`] writes it.
fn shape(text: &str, node: &Node) -> String {
    let list = |head: &str, nodes: &[&Node]| {
        let parts: Vec<String> = nodes.iter().map(|node| shape(text, node)).collect();
        format!("({head} {})", parts.join(" "))
    };
    let all = |nodes: &'_ [Node]| -> Vec<String> { nodes.iter().map(|n| shape(text, n)).collect() };
    match &node.syntax {
        Syntax::Number(value) => format!("{value:?}"),
        Syntax::Bool(value) => value.to_string(),
        Syntax::Name => name_of(text, node).to_owned(),
        Syntax::Negate(inner) => list("-", &[inner]),
        Syntax::Not(inner) => list("!", &[inner]),
        Syntax::Binary(operator, left, right) => list(symbol(*operator), &[left, right]),
        Syntax::All(nodes) => format!("(&& {})", all(nodes).join(" ")),
        Syntax::Any(nodes) => format!("(|| {})", all(nodes).join(" ")),
        Syntax::Choose(condition, yes, no) => list("?", &[condition, yes, no]),
        Syntax::Call { name, arguments } => {
            let mut parts = vec![text[name.clone()].to_owned()];
            parts.extend(all(arguments));
            format!("({})", parts.join(" "))
        }
    }
}

fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::Compare(Comparison::Equal) => "==",
        Operator::Compare(Comparison::NotEqual) => "!=",
        Operator::Compare(Comparison::Less) => "<",
        Operator::Compare(Comparison::LessEqual) => "<=",
        Operator::Compare(Comparison::Greater) => ">",
        Operator::Compare(Comparison::GreaterEqual) => ">=",
    }
}

/// The grammar of the page, production by production, over tokens; each gives the prefix form of what it read.
struct Grammar<'a> {
    tokens: &'a [String],
    at: usize,
}

impl Grammar<'_> {
    fn whole(tokens: &[String]) -> Option<String> {
        let mut grammar = Grammar { tokens, at: 0 };
        let tree = grammar.expression()?;
        (grammar.at == tokens.len()).then_some(tree)
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self, token: &str) -> Option<()> {
        (self.peek() == token).then(|| self.at += 1)
    }

    /// `expression = or [ "?" or ":" expression ]`
    fn expression(&mut self) -> Option<String> {
        let condition = self.or()?;
        if self.take("?").is_none() {
            return Some(condition);
        }
        let yes = self.or()?;
        self.take(":")?;
        let no = self.expression()?;
        Some(format!("(? {condition} {yes} {no})"))
    }

    /// `or = and { "||" and }`
    fn or(&mut self) -> Option<String> {
        self.chain("||", Self::and)
    }

    /// `and = relation { "&&" relation }`
    fn and(&mut self) -> Option<String> {
        self.chain("&&", Self::relation)
    }

    /// One, or a list of them.
    fn chain(
        &mut self,
        operator: &str,
        part: impl Fn(&mut Self) -> Option<String>,
    ) -> Option<String> {
        let mut parts = vec![part(self)?];
        while self.take(operator).is_some() {
            parts.push(part(self)?);
        }
        Some(match parts.len() {
            1 => parts.remove(0),
            _ => format!("({operator} {})", parts.join(" ")),
        })
    }

    /// `relation = sum { ("==" | "!=" | "<" | "<=" | ">" | ">=") sum }`
    fn relation(&mut self) -> Option<String> {
        self.left_to_right(&["==", "!=", "<", "<=", ">", ">="], Self::sum)
    }

    /// `sum = product { ("+" | "-") product }`
    fn sum(&mut self) -> Option<String> {
        self.left_to_right(&["+", "-"], Self::product)
    }

    /// `product = unary { ("*" | "/") unary }`
    fn product(&mut self) -> Option<String> {
        self.left_to_right(&["*", "/"], Self::unary)
    }

    fn left_to_right(
        &mut self,
        operators: &[&str],
        part: impl Fn(&mut Self) -> Option<String>,
    ) -> Option<String> {
        let mut left = part(self)?;
        while let Some(operator) = operators.iter().find(|known| **known == self.peek()) {
            self.at += 1;
            left = format!("({operator} {left} {})", part(self)?);
        }
        Some(left)
    }

    /// `unary = [ "!" | "-" ] unary | primary`
    fn unary(&mut self) -> Option<String> {
        for operator in ["!", "-"] {
            if self.take(operator).is_some() {
                return Some(format!("({operator} {})", self.unary()?));
            }
        }
        self.primary()
    }

    /// `primary = number | "true" | "false" | name | name "(" [ arguments ] ")" | "(" expression ")"`
    fn primary(&mut self) -> Option<String> {
        if self.take("(").is_some() {
            let inner = self.expression()?;
            return self.take(")").map(|()| inner);
        }
        let token = self.peek().to_owned();
        self.at += 1;
        if is_number(&token) {
            return Some(format!("{:?}", token.parse::<f64>().ok()?));
        }
        let called = is_name(&token) && !matches!(token.as_str(), "true" | "false");
        if called && self.take("(").is_some() {
            return self.arguments(token);
        }
        is_name(&token).then_some(token)
    }

    /// `arguments = expression { "," expression }`
    fn arguments(&mut self, function: String) -> Option<String> {
        let mut parts = vec![function];
        if self.take(")").is_none() {
            parts.push(self.expression()?);
            while self.take(",").is_some() {
                parts.push(self.expression()?);
            }
            self.take(")")?;
        }
        Some(format!("({})", parts.join(" ")))
    }
}

/// `name = letter { letter | digit | "." }`, `_` being a letter.
fn is_name(token: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    token.starts_with(letter)
        && token
            .chars()
            .all(|c| letter(c) || c.is_ascii_digit() || c == '.')
}

/// `number = ( digits [ "." digits ] | "." digits ) [ ("e" | "E") [ "+" | "-" ] digits ]`
fn is_number(token: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = match token.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (token, None),
    };
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => (whole.is_empty() || digits(whole)) && digits(part),
        None => digits(mantissa),
    };
    let unsigned = |text: &'_ str| digits(text.strip_prefix(['+', '-']).unwrap_or(text));
    mantissa_fits && exponent.is_none_or(unsigned)
}

fn too_large(findings: &[Finding]) -> bool {
    findings
        .iter()
        .any(|finding| finding.code == codes::EXPRESSION_TOO_LARGE)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_that_is_printed_and_read_again_is_the_same(tree in any_truth(), blanks in any_blanks()) {
        let text = tree.text(&blanks);
        let mut expected = String::new();
        tree.shape(&mut expected);
        let node = parse(&text).map_err(|found| TestCaseError::fail(format!("{text}: {found:?}")))?;
        prop_assert_eq!(shape(&text, &node), expected, "{}", text);
    }

    #[test]
    fn what_is_read_is_the_grammar(tokens in any_nearly_right()) {
        let text = joined(&tokens, &[" "]);
        match (parse(&text), Grammar::whole(&tokens)) {
            (Ok(node), expected) => prop_assert_eq!(Some(shape(&text, &node)), expected, "{}", text),
            (Err(findings), Some(tree)) if !too_large(&findings) => {
                prop_assert!(false, "{} is {} and is refused: {:?}", text, tree, findings);
            }
            (Err(_), _) => {}
        }
    }
}

#[test]
fn operators_bind_as_in_cel() {
    for (text, tree) in [
        ("a || b && c", "(|| a (&& b c))"),
        ("a && b || c && d", "(|| (&& a b) (&& c d))"),
        ("a && b && c", "(&& a b c)"),
        ("(a && b) && c", "(&& (&& a b) c)"),
        ("a < b == c", "(== (< a b) c)"),
        ("a == b < c", "(< (== a b) c)"),
        ("a == b && c", "(&& (== a b) c)"),
        ("a + b < c - d", "(< (+ a b) (- c d))"),
        ("a - b - c + d", "(+ (- (- a b) c) d)"),
        ("a / b * c / d", "(/ (* (/ a b) c) d)"),
        ("a + b * c", "(+ a (* b c))"),
        ("-a * b", "(* (- a) b)"),
        ("- - a - -b", "(- (- (- a)) (- b))"),
        ("!a == b", "(== (! a) b)"),
        ("!!a && b", "(&& (! (! a)) b)"),
        ("a ? b : c ? d : e", "(? a b (? c d e))"),
        ("a || b ? c : d", "(? (|| a b) c d)"),
        ("a ? (b ? c : d) : e", "(? a (? b c d) e)"),
        ("min(a, b ? c : d, 1)", "(min a (? b c d) 1.0)"),
    ] {
        assert_eq!(shape(text, &parse(text).unwrap()), tree, "{text}");
    }
}

#[test]
fn what_cel_refuses_is_refused() {
    for text in [
        "a ? b ? c : d : e",
        "a ? b",
        "a ? : b",
        "15. > a",
        "15.e3 > a",
        "a\u{a0}< b",
        "a \u{b}< b",
        "a < b,",
        "min(a,)",
        "()",
        "a b",
        "a & b",
        "* a",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}
