//! Reads the Prometheus text format.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

/// The samples of one scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    samples: Vec<Sample>,
}

/// One line of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric's name, with `_bucket`, `_sum`, `_count` where it has one.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value; `+Inf`, `-Inf` and `NaN` are read.
    pub value: f64,
}

impl Metrics {
    /// Reads the text format 0.0.4. Comments are skipped, a time stamp after the value is dropped.
    ///
    /// # Errors
    /// The first line that is neither a comment nor a sample, with its number.
    pub fn parse(text: &str) -> Result<Self> {
        let mut samples = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            samples.push(sample(line).with_context(|| format!("line {}: {line}", index + 1))?);
        }
        Ok(Self { samples })
    }

    /// The value of the one sample with exactly these labels, in any order.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.matching(name, labels)
            .find(|sample| sample.labels.len() == labels.len())
            .map(|sample| sample.value)
    }

    /// The sum over all samples that have at least these labels; 0 when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// All samples that have at least these labels.
    pub fn matching<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(*key).is_some_and(|have| have == value))
        })
    }

    /// Every sample under one text, `name{a="1",b="2"}` with the labels in order.
    pub fn to_map(&self) -> BTreeMap<String, f64> {
        self.samples
            .iter()
            .map(|sample| (sample.to_string(), sample.value))
            .collect()
    }

    /// Every sample, as it came.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        for (index, (key, value)) in self.labels.iter().enumerate() {
            write!(f, "{}{key}={value:?}", if index == 0 { "{" } else { "," })?;
        }
        f.write_str(if self.labels.is_empty() { "" } else { "}" })
    }
}

fn sample(line: &str) -> Result<Sample> {
    let end = line.find(['{', ' ', '\t']).context("no value")?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next().context("no value")?;
    // Rust reads the format's `+Inf`, `-Inf` and `NaN` as well.
    let value = value
        .parse()
        .with_context(|| format!("{value} is no number"))?;
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// Reads up to the closing brace; returns the labels and what follows.
fn labels(text: &str) -> Result<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let (key, after) = rest.split_once("=\"").context("a label without a value")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let close = loop {
            match chars.next().context("a label value without an end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next().context("a label value without an end")?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(key.trim().to_owned(), value);
        rest = &after[close + 1..];
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_labels_escapes_and_numbers() {
        let text = "# HELP a b\n# TYPE a counter\na_total 3\nb{x=\"1\",y=\"a,\\\"}\\n\\\\\"} 2.5 1700000000\n\
                    c_bucket{le=\"+Inf\"} +Inf\nb{y=\"z\",x=\"1\",} 1e3\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.get("a_total", &[]), Some(3.0));
        assert_eq!(
            metrics.get("b", &[("y", "a,\"}\n\\"), ("x", "1")]),
            Some(2.5)
        );
        assert_eq!(metrics.get("b", &[("x", "1")]), None);
        assert_eq!(metrics.sum("b", &[("x", "1")]), 1002.5);
        assert_eq!(
            metrics.get("c_bucket", &[("le", "+Inf")]),
            Some(f64::INFINITY)
        );
        assert_eq!(metrics.to_map()["b{x=\"1\",y=\"z\"}"], 1000.0);
    }

    #[test]
    fn names_the_line_that_it_cannot_read() {
        let error = Metrics::parse("a 1\nb{x=\"1} 2\n").unwrap_err();
        assert!(format!("{error:#}").starts_with("line 2: "), "{error:#}");
        assert!(Metrics::parse("a one\n").is_err());
    }
}
