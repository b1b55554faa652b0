//! From text to tokens. Operators of other languages are recognised, reported, and read as what was meant.

use std::ops::Range;

use super::Finding;
use crate::codes;

/// What a token is; names and numbers are read from the text by their span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Symbol {
    Number(f64),
    /// A name; dots belong to it (`pool.max_workers`).
    Name,
    True,
    False,
    Plus,
    Minus,
    Star,
    Slash,
    Not,
    And,
    Or,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Question,
    Colon,
    Comma,
    Open,
    Close,
    /// After the last character.
    End,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) symbol: Symbol,
    pub(super) span: Range<usize>,
}

/// Operators that are CEL's, longest first.
const OPERATORS: &[(&str, Symbol)] = &[
    ("&&", Symbol::And),
    ("||", Symbol::Or),
    ("==", Symbol::Equal),
    ("!=", Symbol::NotEqual),
    ("<=", Symbol::LessEqual),
    (">=", Symbol::GreaterEqual),
    ("<", Symbol::Less),
    (">", Symbol::Greater),
    ("+", Symbol::Plus),
    ("-", Symbol::Minus),
    ("*", Symbol::Star),
    ("/", Symbol::Slash),
    ("!", Symbol::Not),
    ("?", Symbol::Question),
    (":", Symbol::Colon),
    (",", Symbol::Comma),
    ("(", Symbol::Open),
    (")", Symbol::Close),
];

/// Operators of other languages: as written, what it was read as, and how that is written here. Tried first.
const FOREIGN_OPERATORS: &[(&str, Symbol, &str)] = &[
    ("===", Symbol::Equal, "=="),
    ("!==", Symbol::NotEqual, "!="),
    ("<>", Symbol::NotEqual, "!="),
    ("~=", Symbol::NotEqual, "!="),
    ("=<", Symbol::LessEqual, "<="),
    ("=>", Symbol::GreaterEqual, ">="),
    ("≤", Symbol::LessEqual, "<="),
    ("≥", Symbol::GreaterEqual, ">="),
    ("≠", Symbol::NotEqual, "!="),
    ("×", Symbol::Star, "*"),
    ("÷", Symbol::Slash, "/"),
];

/// Single characters that are no operator here; tried after [`OPERATORS`].
const FOREIGN_CHARACTERS: &[(&str, Symbol, &str)] = &[
    ("=", Symbol::Equal, "=="),
    ("&", Symbol::And, "&&"),
    ("|", Symbol::Or, "||"),
];

const FOREIGN_WORDS: &[(&str, Symbol, &str)] = &[
    ("and", Symbol::And, "&&"),
    ("or", Symbol::Or, "||"),
    ("not", Symbol::Not, "!"),
];

/// For a unit behind a number.
pub(super) const LEAVE_UNIT_OUT: &str =
    "leave the unit out: a bare number takes the canonical unit of what it meets";

/// The tokens of `text`, the last being [`Symbol::End`]. Stops at a character that can't begin a token.
pub(super) fn tokens(text: &str, findings: &mut Vec<Finding>) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let read = if first.is_ascii_digit()
            || (first == '.' && text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            number(text, at, findings)
        } else if first.is_ascii_alphabetic() || first == '_' {
            Some(word(text, at, findings))
        } else {
            operator(text, at, findings)
        };
        let Some(token) = read else {
            findings.push(stray(text, at, first));
            return Vec::new();
        };
        at = token.span.end;
        tokens.push(token);
    }
    tokens.push(Token {
        symbol: Symbol::End,
        span: text.trim_end().len()..text.len().max(text.trim_end().len() + 1),
    });
    tokens
}

fn operator(text: &str, at: usize, findings: &mut Vec<Finding>) -> Option<Token> {
    let rest = &text[at..];
    let foreign = FOREIGN_OPERATORS.iter().find(|row| rest.starts_with(row.0));
    let own = OPERATORS.iter().find(|row| rest.starts_with(row.0));
    let slip = foreign.or_else(|| {
        if own.is_some() {
            None
        } else {
            FOREIGN_CHARACTERS
                .iter()
                .find(|row| rest.starts_with(row.0))
        }
    });
    if let Some((written, symbol, ours)) = slip {
        let span = at..at + written.len();
        findings.push(foreign_operator(written, ours, span.clone()));
        return Some(Token {
            symbol: *symbol,
            span,
        });
    }
    own.map(|(written, symbol)| Token {
        symbol: *symbol,
        span: at..at + written.len(),
    })
}

fn foreign_operator(written: &str, ours: &str, span: Range<usize>) -> Finding {
    let help = match ours {
        "==" => "use `==` to compare; nothing can be assigned here".to_owned(),
        _ => format!("write `{ours}`"),
    };
    Finding::new(
        codes::FOREIGN_OPERATOR,
        span,
        format!("`{written}` is not an operator"),
    )
    .with_help(help)
}

fn word(text: &str, at: usize, findings: &mut Vec<Finding>) -> Token {
    let length = text[at..]
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
        .count();
    let span = at..at + length;
    let written = &text[span.clone()];
    let symbol = match written {
        "true" => Symbol::True,
        "false" => Symbol::False,
        _ => match FOREIGN_WORDS
            .iter()
            .find(|row| row.0.eq_ignore_ascii_case(written))
        {
            Some((_, symbol, ours)) => {
                findings.push(foreign_operator(written, ours, span.clone()));
                *symbol
            }
            None => Symbol::Name,
        },
    };
    Token { symbol, span }
}

fn number(text: &str, at: usize, findings: &mut Vec<Finding>) -> Option<Token> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from.min(bytes.len())..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let mut end = at + digits(at);
    if bytes.get(end) == Some(&b'.') {
        let decimals = digits(end + 1);
        end += 1 + decimals;
        if decimals == 0 {
            let found = Finding::new(
                codes::EXPRESSION_SYNTAX,
                at..end,
                "a digit must follow the point of a number",
            );
            let whole = &text[at..end - 1];
            findings.push(found.with_help(format!("write `{whole}` or `{whole}.0`")));
        }
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let value: f64 = text[at..end].parse().ok()?;
    if !value.is_finite() {
        findings.push(Finding::new(
            codes::EXPRESSION_SYNTAX,
            at..end,
            "this number is too large to be one",
        ));
    }
    let suffix = unit_suffix(&text[end..]);
    if suffix > 0 {
        let span = end..end + suffix;
        let message = format!("a number is followed by `{}`", &text[span.clone()]);
        findings
            .push(Finding::new(codes::EXPRESSION_SYNTAX, span, message).with_help(LEAVE_UNIT_OUT));
        end += suffix;
    }
    Some(Token {
        symbol: Symbol::Number(value),
        span: at..end,
    })
}

/// How many bytes of a unit stand right after a number: `kW`, `%`, `g/kWh`.
fn unit_suffix(rest: &str) -> usize {
    let mut length = 0;
    let mut part_begins = true;
    for c in rest.chars() {
        let begins_next =
            c == '/' && length > 0 && rest[length + 1..].starts_with(char::is_alphabetic);
        if !(c.is_alphabetic() || c == '_' || c == '%' && part_begins || begins_next) {
            break;
        }
        part_begins = begins_next;
        length += c.len_utf8();
    }
    // `10 % 3` has a blank and is no suffix; `10%3` is a remainder, too.
    if rest.starts_with('%') && rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
        0
    } else {
        length
    }
}

fn stray(text: &str, at: usize, first: char) -> Finding {
    let span = at..at + first.len_utf8();
    match first {
        '"' | '\'' => {
            let end = text[span.end..].find(first).map_or(text.len(), |close| span.end + close + 1);
            Finding::new(codes::EXPRESSION_SYNTAX, at..end, "an expression holds no text, only numbers and conditions")
                .with_help("a signal's source, kind and zone are set under `signals`; use its name here")
        }
        '%' => Finding::new(codes::EXPRESSION_SYNTAX, span, "`%` is not an operator")
            .with_help("a share is a number from 0 to 1: write 0.3 for 30 %"),
        '^' => Finding::new(codes::EXPRESSION_SYNTAX, span, "`^` is not an operator")
            .with_help("write a power as a product"),
        blank if blank.is_whitespace() || blank == '\u{200b}' || blank == '\u{feff}' => {
            let message = format!("an invisible character, U+{:04X}, is no space", u32::from(blank));
            Finding::new(codes::EXPRESSION_SYNTAX, span, message).with_help("delete it, and type a plain space")
        }
        '[' | ']' | '{' | '}' => {
            Finding::new(codes::EXPRESSION_SYNTAX, span, format!("lists and maps have no place here: `{first}`"))
                .with_help("group with parentheses")
        }
        _ => Finding::new(codes::EXPRESSION_SYNTAX, span, format!("`{first}` has no meaning in an expression"))
            .with_help("an expression is made of signal names, numbers, + - * / < <= == != >= > && || ! ?: and ( )"),
    }
}
