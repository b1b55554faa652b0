//! Writes figures, for every benchmark and long test; a file that measures includes this one by its path.
//!
//! One figure is one JSON line in `target/figures.jsonl` (or the file that `SUNWARD_FIGURES` names), in the form that
//! `tests/figures` prints as a table: `{name, value, unit, goal, holds, against, command}`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// What a figure is measured by.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each benchmark uses its own part")]
pub enum Goal {
    /// A figure that falls short lies above it.
    AtMost(f64),
    /// A figure that falls short lies below it.
    AtLeast(f64),
    /// Nothing was promised.
    None,
}

/// One measured number that we promise.
#[derive(Clone, Copy, Debug)]
pub struct Figure<'a> {
    /// What was measured; says so where it is not the median. No quotes, no backslashes.
    pub name: &'a str,
    /// The number, in `unit`.
    pub value: f64,
    /// For example `ns`.
    pub unit: &'a str,
    /// What it should be.
    pub goal: Goal,
    /// The peer or the bare form, measured in the same run.
    pub against: Option<f64>,
    /// How to measure it again.
    pub command: &'a str,
}

impl Figure<'_> {
    /// Prints it and keeps it.
    pub fn report(&self) {
        let (goal, holds, sign) = match self.goal {
            Goal::AtMost(goal) => (Some(goal), self.value <= goal, "<="),
            Goal::AtLeast(goal) => (Some(goal), self.value >= goal, ">="),
            Goal::None => (None, true, ""),
        };
        let against = self.against.map_or(String::new(), |against| {
            format!(", against {}", number(against))
        });
        let said = goal.map_or(String::new(), |goal| {
            format!(
                " (goal {sign} {goal}: {})",
                if holds { "holds" } else { "FALLS SHORT" }
            )
        });
        println!(
            "{}: {} {}{against}{said}",
            self.name,
            number(self.value),
            self.unit
        );
        let or_null = |value: Option<f64>| value.map_or("null".to_owned(), number);
        let line = format!(
            "{{\"name\":\"{}\",\"value\":{},\"unit\":\"{}\",\"goal\":{},\"holds\":{holds},\"against\":{},\"command\":\"{}\"}}\n",
            self.name,
            number(self.value),
            self.unit,
            or_null(goal),
            or_null(self.against),
            self.command,
        );
        let path = path();
        std::fs::create_dir_all(path.parent().expect("the file lies in a folder"))
            .expect("the folder can be made");
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("the figures can be written");
        file.write_all(line.as_bytes())
            .expect("the figures can be written");
    }
}

/// One decimal, and two more where the number is small.
fn number(value: f64) -> String {
    assert!(value.is_finite(), "a figure is a number");
    if value.abs() < 10.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.1}")
    }
}

fn path() -> PathBuf {
    std::env::var_os("SUNWARD_FIGURES").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/../figures.jsonl")),
        PathBuf::from,
    )
}
