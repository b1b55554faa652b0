//! What is wrong with a text, where, and how to mend it. Rendering lives here and nowhere else.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// The most characters of a source line that a rendering shows; the part around the marked span is kept.
const RENDERED_LINE_MAX: usize = 140;
/// The longest name for which a nearest known name is sought.
const SUGGESTION_NAME_MAX: usize = 64;

/// The fewest characters that make a name's beginning a hint at the whole.
const PREFIX_MIN: usize = 4;

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file loads, but probably does not do what was meant.
    Warning,
}

/// A range of a text: lines and columns from 1, columns counted in characters, the end one past the last character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TextRange {
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
}

/// One finding about one place of one file. The JSON form is the promise of `policy validate --output json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Stable code, such as `SUN-P012`; [`crate::codes`] lists those of this crate.
    pub code: &'static str,
    /// Whether the file is refused.
    pub severity: Severity,
    /// The path as the caller named it.
    pub file: String,
    /// First line, from 1.
    pub line: u32,
    /// First column, from 1, in characters.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: Option<String>,
}

impl TextRange {
    /// The first character of a text: for what concerns the whole file.
    pub const START: TextRange = TextRange {
        line: 1,
        column: 1,
        end_line: 1,
        end_column: 2,
    };
}

impl Severity {
    /// The name in JSON and in renderings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

impl Diagnostic {
    /// An error at a place; the file is refused.
    pub fn error(
        code: &'static str,
        file: &str,
        range: TextRange,
        message: impl Into<String>,
    ) -> Self {
        Diagnostic::new(code, Severity::Error, file, range, message.into())
    }

    /// A warning at a place; the file loads.
    pub fn warning(
        code: &'static str,
        file: &str,
        range: TextRange,
        message: impl Into<String>,
    ) -> Self {
        Diagnostic::new(code, Severity::Warning, file, range, message.into())
    }

    fn new(
        code: &'static str,
        severity: Severity,
        file: &str,
        range: TextRange,
        message: String,
    ) -> Self {
        Diagnostic {
            code,
            severity,
            file: file.to_owned(),
            line: range.line,
            column: range.column,
            end_line: range.end_line,
            end_column: range.end_column,
            message,
            help: None,
        }
    }

    /// The same with a way to mend it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The place.
    pub const fn range(&self) -> TextRange {
        TextRange {
            line: self.line,
            column: self.column,
            end_line: self.end_line,
            end_column: self.end_column,
        }
    }

    /// The finding for people, with the marked source line when the text is at hand. Ends with a newline. Control
    /// characters of the source are not passed on to the terminal.
    pub fn render(&self, source: Option<&str>, colour: bool) -> String {
        let paint = Paint {
            colour,
            severity: self.severity,
        };
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let mut out = String::new();
        let title = format!("{}[{}]", self.severity.as_str(), self.code);
        let message = printable(&self.message);
        let file = printable(&self.file);
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "{}{}",
            paint.title(&title),
            paint.bold(&format!(": {message}"))
        );
        let _ = writeln!(
            out,
            "{margin}{} {file}:{}:{}",
            paint.frame("-->"),
            self.line,
            self.column
        );
        let line = source.and_then(|text| text.lines().nth(self.line.saturating_sub(1) as usize));
        if let Some(line) = line {
            let (shown, before, marks) = self.marked(line);
            let bar = paint.frame("|");
            let _ = writeln!(out, "{margin} {bar}");
            let _ = writeln!(out, "{} {bar} {shown}", paint.frame(&number));
            let _ = writeln!(out, "{margin} {bar} {before}{}", paint.mark(&marks));
        }
        if let Some(help) = &self.help {
            let mut lines = help.lines();
            let first = printable(lines.next().unwrap_or_default());
            let _ = writeln!(out, "{margin} {} help: {first}", paint.frame("="));
            for line in lines {
                let _ = writeln!(out, "{margin}         {}", printable(line));
            }
        }
        out
    }

    /// The source line as shown, what stands before the marks beneath it, and the marks.
    fn marked(&self, line: &str) -> (String, String, String) {
        let chars: Vec<char> = line.chars().collect();
        let start = (self.column.saturating_sub(1) as usize).min(chars.len());
        let end = if self.end_line > self.line {
            chars.len()
        } else {
            self.end_column.saturating_sub(1) as usize
        };
        let end = end.clamp(start, chars.len());
        let first = if chars.len() <= RENDERED_LINE_MAX {
            0
        } else {
            start
                .saturating_sub(RENDERED_LINE_MAX / 3)
                .min(chars.len() - RENDERED_LINE_MAX)
        };
        let last = (first + RENDERED_LINE_MAX).min(chars.len());
        let (before, after) = (
            if first > 0 { "..." } else { "" },
            if last < chars.len() { "..." } else { "" },
        );
        let shown: String = chars[first..last]
            .iter()
            .map(|c| if c.is_control() { ' ' } else { *c })
            .collect();
        let width = end.min(last).saturating_sub(start).max(1);
        let indent = " ".repeat(before.len() + start - first);
        (format!("{before}{shown}{after}"), indent, "^".repeat(width))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}[{}]: {}",
            self.file,
            self.line,
            self.column,
            self.severity.as_str(),
            self.code,
            self.message
        )?;
        match &self.help {
            Some(help) => write!(f, " (help: {})", help.replace('\n', " ")),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

struct Paint {
    colour: bool,
    severity: Severity,
}

impl Paint {
    fn with(&self, sgr: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{sgr}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn title(&self, text: &str) -> String {
        self.with(
            if self.severity == Severity::Error {
                "1;31"
            } else {
                "1;33"
            },
            text,
        )
    }

    fn mark(&self, text: &str) -> String {
        self.title(text)
    }

    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    fn frame(&self, text: &str) -> String {
        self.with("1;34", text)
    }
}

/// The known name nearest to a misspelt one, if any is near enough to be what was meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > SUGGESTION_NAME_MAX {
        return None;
    }
    let allowed = (length / 3).max(1);
    known
        .into_iter()
        .filter(|candidate| *candidate != name)
        .map(|candidate| {
            let same_letters = candidate
                .replace(['_', '-'], "")
                .eq_ignore_ascii_case(&name.replace(['_', '-'], ""));
            let begins_with = name.len() >= PREFIX_MIN && candidate.starts_with(name);
            let distance = if same_letters {
                0
            } else {
                edit_distance(name, candidate)
            };
            (
                if begins_with {
                    distance.min(1)
                } else {
                    distance
                },
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().take(2 * SUGGESTION_NAME_MAX).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_what_was_meant() {
        let known = ["min_run", "min_rest", "priority", "signals"];
        assert_eq!(nearest("minRun", known), Some("min_run"));
        assert_eq!(nearest("pirority", known), Some("priority"));
        assert_eq!(nearest("signal", known), Some("signals"));
        assert_eq!(nearest("tolerations", known), None);
        assert_eq!(edit_distance("ab", "ba"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
    }

    #[test]
    fn a_rendering_marks_the_span_and_passes_no_control_characters_on() {
        let text = "a: 1\nb: \u{1b}[31mred < 3\n";
        let range = TextRange {
            line: 2,
            column: 4,
            end_line: 2,
            end_column: 8,
        };
        let found = Diagnostic::error("SUN-P004", "x.yaml", range, "no").with_help("one\ntwo");
        let expected = "error[SUN-P004]: no\n --> x.yaml:2:4\n  |\n2 | b:  [31mred < 3\n  |    ^^^^\n  = help: one\n          two\n";
        assert_eq!(found.render(Some(text), false), expected);
        assert_eq!(
            found.to_string(),
            "x.yaml:2:4: error[SUN-P004]: no (help: one two)"
        );
        assert!(
            found
                .render(Some(text), true)
                .contains("\u{1b}[1;31m^^^^\u{1b}[0m")
        );
    }

    #[test]
    fn a_long_line_is_shown_around_its_mark() {
        let text = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let range = TextRange {
            line: 1,
            column: 501,
            end_line: 1,
            end_column: 502,
        };
        let shown = Diagnostic::warning("SUN-P040", "x", range, "m").render(Some(&text), false);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[3].len() < 160);
        assert_eq!(lines[3].find('X'), lines[4].find('^'));
    }
}
