//! From tokens to a tree, by precedence climbing (Pratt). Precedence and associativity are CEL's.

use std::ops::Range;

use super::lexer::{LEAVE_UNIT_OUT, Symbol, Token};
use super::{EXPRESSION_DEPTH_MAX, Finding};
use crate::codes;

/// A node with its place in the text.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) syntax: Syntax,
    depth: usize,
}

#[derive(Debug)]
pub(super) enum Syntax {
    Number(f64),
    Bool(bool),
    /// The name is [`name_of`] the node.
    Name,
    Negate(Box<Node>),
    Not(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    /// `a && b && c`, two or more.
    All(Vec<Node>),
    /// `a || b || c`, two or more.
    Any(Vec<Node>),
    Choose(Box<Node>, Box<Node>, Box<Node>),
    Call {
        name: Range<usize>,
        arguments: Vec<Node>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Compare(Comparison),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// The name of a name's node; parentheses around it belong to the node's span.
pub(super) fn name_of<'a>(text: &'a str, node: &Node) -> &'a str {
    text[node.span.clone()].trim_matches(|c: char| c == '(' || c == ')' || c.is_ascii_whitespace())
}

/// Binding powers, weakest first; `?:` is weaker than all.
const OR: u8 = 1;
const AND: u8 = 2;
const RELATION: u8 = 3;
const SUM: u8 = 4;
const PRODUCT: u8 = 5;

/// The whole text as one tree. Slips that were mended on the way are added to `findings`.
pub(super) fn parse(
    text: &str,
    tokens: &[Token],
    findings: &mut Vec<Finding>,
) -> Result<Node, Finding> {
    if tokens.is_empty() {
        // The lexer gave up and has said why.
        return Err(findings.pop().unwrap_or_else(|| empty(text)));
    }
    let mut parser = Parser {
        text,
        tokens,
        at: 0,
        nesting: 0,
    };
    if parser.peek().symbol == Symbol::End {
        return Err(empty(text));
    }
    let tree = parser.choice()?;
    let next = parser.peek();
    match next.symbol {
        Symbol::End => Ok(tree),
        Symbol::Close => {
            Err(syntax(next.span.clone(), "this `)` closes nothing").with_help("remove it"))
        }
        _ => Err(parser.no_operator(next, "an operator")),
    }
}

fn empty(text: &str) -> Finding {
    syntax(0..text.len(), "the expression is empty")
        .with_help("write a condition such as `carbon < 100`")
}

fn syntax(span: Range<usize>, message: impl Into<String>) -> Finding {
    Finding::new(codes::EXPRESSION_SYNTAX, span, message)
}

struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a Token {
        // The last token is End and is never passed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> &'a Token {
        let token = self.peek();
        if token.symbol != Symbol::End {
            self.at += 1;
        }
        token
    }

    fn text_of(&self, token: &Token) -> &'a str {
        self.text.get(token.span.clone()).unwrap_or_default()
    }

    fn node(span: Range<usize>, syntax: Syntax) -> Result<Node, Finding> {
        let below = match &syntax {
            Syntax::Number(_) | Syntax::Bool(_) | Syntax::Name => 0,
            Syntax::Negate(a) | Syntax::Not(a) => a.depth,
            Syntax::Binary(_, a, b) => a.depth.max(b.depth),
            Syntax::Choose(a, b, c) => a.depth.max(b.depth).max(c.depth),
            Syntax::All(list)
            | Syntax::Any(list)
            | Syntax::Call {
                arguments: list, ..
            } => list.iter().map(|node| node.depth).max().unwrap_or(0),
        };
        if below >= EXPRESSION_DEPTH_MAX {
            return Err(too_deep(span));
        }
        Ok(Node {
            span,
            syntax,
            depth: below + 1,
        })
    }

    /// Runs `inner` one bracket, sign or choice deeper, so that no text can exhaust the stack.
    fn deeper(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<Node, Finding>,
    ) -> Result<Node, Finding> {
        if self.nesting >= EXPRESSION_DEPTH_MAX {
            return Err(too_deep(self.peek().span.clone()));
        }
        self.nesting += 1;
        let node = inner(self);
        self.nesting -= 1;
        node
    }

    fn choice(&mut self) -> Result<Node, Finding> {
        let condition = self.binary(OR)?;
        if self.peek().symbol != Symbol::Question {
            return Ok(condition);
        }
        self.next();
        // As in CEL, a choice is no branch of another before the `:`.
        let yes = self.deeper(|parser| parser.binary(OR))?;
        let colon = self.peek();
        if colon.symbol == Symbol::Question {
            let found = syntax(colon.span.clone(), "a choice between `?` and `:` needs ( )");
            return Err(found.with_help("put parentheses around the inner `?:`"));
        }
        if colon.symbol != Symbol::Colon {
            let found = syntax(colon.span.clone(), "the `:` of this `?` is missing");
            return Err(found.with_help("write `condition ? value if so : value if not`"));
        }
        self.next();
        let no = self.deeper(Self::choice)?;
        let span = condition.span.start..no.span.end;
        Self::node(
            span,
            Syntax::Choose(Box::new(condition), Box::new(yes), Box::new(no)),
        )
    }

    fn binary(&mut self, least: u8) -> Result<Node, Finding> {
        let mut left = self.prefix()?;
        loop {
            let Some((power, operator)) = infix(self.peek().symbol) else {
                return Ok(left);
            };
            if power < least {
                return Ok(left);
            }
            self.next();
            let right = self.binary(power + 1)?;
            let span = left.span.start..right.span.end;
            let syntax = match operator {
                Some(operator) => Syntax::Binary(operator, Box::new(left), Box::new(right)),
                None => self.chain(power, left, right)?,
            };
            left = Self::node(span, syntax)?;
        }
    }

    /// `a && b` and then `&& c` make one node, so that a long list of conditions is not a deep one.
    fn chain(&mut self, power: u8, left: Node, right: Node) -> Result<Syntax, Finding> {
        let mut list = vec![left, right];
        while infix(self.peek().symbol).is_some_and(|(next, _)| next == power) {
            self.next();
            list.push(self.binary(power + 1)?);
        }
        Ok(if power == AND {
            Syntax::All(list)
        } else {
            Syntax::Any(list)
        })
    }

    fn prefix(&mut self) -> Result<Node, Finding> {
        let token = self.next();
        let start = token.span.start;
        match token.symbol {
            Symbol::Number(value) => Self::node(token.span.clone(), Syntax::Number(value)),
            Symbol::True => Self::node(token.span.clone(), Syntax::Bool(true)),
            Symbol::False => Self::node(token.span.clone(), Syntax::Bool(false)),
            Symbol::Name if self.peek().symbol == Symbol::Open => self.call(token),
            Symbol::Name => Self::node(token.span.clone(), Syntax::Name),
            Symbol::Minus => {
                let operand = self.deeper(Self::prefix)?;
                let span = start..operand.span.end;
                Self::node(span, Syntax::Negate(Box::new(operand)))
            }
            Symbol::Not => {
                let operand = self.deeper(Self::prefix)?;
                let span = start..operand.span.end;
                Self::node(span, Syntax::Not(Box::new(operand)))
            }
            Symbol::Open => {
                let mut inner = self.deeper(Self::choice)?;
                let end = self.close(&token.span)?;
                inner.span = start..end;
                Ok(inner)
            }
            Symbol::End => Err(syntax(
                token.span.clone(),
                "the expression ends where a value was expected",
            )
            .with_help("remove the last operator, or write what it applies to")),
            _ => Err(syntax(
                token.span.clone(),
                format!("a value was expected before `{}`", self.text_of(token)),
            )
            .with_help(
                "a value is a number, a signal's name, a fact such as `pool.max_workers`, or ( )",
            )),
        }
    }

    fn call(&mut self, name: &Token) -> Result<Node, Finding> {
        let open = self.next().span.clone();
        let mut arguments = Vec::new();
        if self.peek().symbol != Symbol::Close {
            arguments.push(self.deeper(Self::choice)?);
            while self.peek().symbol == Symbol::Comma {
                self.next();
                arguments.push(self.deeper(Self::choice)?);
            }
        }
        let end = self.close(&open)?;
        Self::node(
            name.span.start..end,
            Syntax::Call {
                name: name.span.clone(),
                arguments,
            },
        )
    }

    /// The end of the `)` that belongs to the bracket at `open`.
    fn close(&mut self, open: &Range<usize>) -> Result<usize, Finding> {
        let token = self.peek();
        match token.symbol {
            Symbol::Close => Ok(self.next().span.end),
            Symbol::End => {
                Err(syntax(open.clone(), "this `(` is never closed").with_help("add a `)`"))
            }
            _ => Err(self.no_operator(token, "an operator or `)`")),
        }
    }

    /// Two values follow one another.
    fn no_operator(&self, token: &Token, expected: &str) -> Finding {
        let message = format!("{expected} was expected before `{}`", self.text_of(token));
        let before = self
            .at
            .checked_sub(1)
            .and_then(|before| self.tokens.get(before));
        let behind_number = before.is_some_and(|before| matches!(before.symbol, Symbol::Number(_)));
        let help = match token.symbol {
            Symbol::Name if behind_number => LEAVE_UNIT_OUT,
            Symbol::Comma if behind_number => {
                "write a number without separators, and a point before its decimals: 1000, 0.5"
            }
            _ => "join two conditions with `&&` or `||`",
        };
        syntax(token.span.clone(), message).with_help(help)
    }
}

fn too_deep(span: Range<usize>) -> Finding {
    let message = format!("the expression goes more than {EXPRESSION_DEPTH_MAX} levels deep");
    Finding::new(codes::EXPRESSION_TOO_LARGE, span, message)
        .with_help("split it over several rules")
}

/// The binding power, and the operator; `None` for `&&` and `||`, which make chains.
fn infix(symbol: Symbol) -> Option<(u8, Option<Operator>)> {
    let compare = |comparison| Some((RELATION, Some(Operator::Compare(comparison))));
    match symbol {
        Symbol::Or => Some((OR, None)),
        Symbol::And => Some((AND, None)),
        Symbol::Equal => compare(Comparison::Equal),
        Symbol::NotEqual => compare(Comparison::NotEqual),
        Symbol::Less => compare(Comparison::Less),
        Symbol::LessEqual => compare(Comparison::LessEqual),
        Symbol::Greater => compare(Comparison::Greater),
        Symbol::GreaterEqual => compare(Comparison::GreaterEqual),
        Symbol::Plus => Some((SUM, Some(Operator::Add))),
        Symbol::Minus => Some((SUM, Some(Operator::Subtract))),
        Symbol::Star => Some((PRODUCT, Some(Operator::Multiply))),
        Symbol::Slash => Some((PRODUCT, Some(Operator::Divide))),
        _ => None,
    }
}
