//! Amounts with a unit: the limits of budgets and the work of deadlines, read exactly, without floating point.

use super::Compiler;
use crate::codes;
use crate::policy::{Budget, Measure};
use crate::units::is_currency;
use crate::words::{LIMIT_UNITS, WORK_UNITS};
use crate::yaml::{Spanned, suggestion};

/// The largest limit or work, in the measure's integer unit: a thousand of them can still be added up.
const AMOUNT_MAX: i64 = i64::MAX / 1_000;
/// The most digits behind the point that are read.
const FRACTION_DIGITS_MAX: u32 = 9;

/// Thousandths.
const MONEY_PER_UNIT: i64 = 1_000;
const MS_PER_HOUR: i64 = 3_600_000;

/// A limit as it is compiled.
pub(super) struct Limit {
    pub(super) measure: Measure,
    /// In the measure's integer unit.
    pub(super) amount: i64,
    /// As the file wrote it.
    pub(super) unit: String,
}

/// Which part of an amount is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Number,
    Unit,
    Whole,
}

/// Where an amount is wrong, why in words, and how to mend it.
type Problem = (Part, String, String);

impl Compiler<'_> {
    pub(super) fn limit(&mut self, text: &Spanned<String>) -> Option<Limit> {
        let read = limit(&text.value);
        read.map_err(|problem| self.amount_problem(codes::BAD_LIMIT, text, problem))
            .ok()
    }

    /// Work in worker-milliseconds.
    pub(super) fn work(&mut self, text: &Spanned<String>) -> Option<i64> {
        let read = work(&text.value);
        read.map_err(|problem| self.amount_problem(codes::BAD_WORK, text, problem))
            .ok()
    }

    fn amount_problem(
        &mut self,
        code: &'static str,
        text: &Spanned<String>,
        (part, message, help): Problem,
    ) {
        let (number, unit) = split(&text.value);
        let range = match part {
            Part::Number => self.source.range_within(text, 0..number.len()),
            Part::Unit => {
                let start = text.value.find(unit).unwrap_or_default();
                self.source.range_within(text, start..start + unit.len())
            }
            Part::Whole => self.source.range_of(text),
        };
        self.error(code, range, message, help);
    }
}

/// The number and the unit of an amount; between them may stand white space.
pub(super) fn split(text: &str) -> (&str, &str) {
    let number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '_' | '\'' | '+' | '-');
    let end = text.find(|c| !number(c)).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn limit(text: &str) -> Result<Limit, Problem> {
    let (number, unit) = split(text);
    if number.is_empty() {
        return Err((
            Part::Whole,
            format!("`{text}` is no limit: it does not begin with a number"),
            "write an amount with its unit, such as `60 kW`".to_owned(),
        ));
    }
    if unit.is_empty() {
        return Err((
            Part::Whole,
            format!("`{text}` has no unit, which would say what is counted"),
            format!(
                "write `{number} kW`, `{number} workers`, or with `per`: `{number} kWh`, `{number} kgCO2e`, `{number} EUR`"
            ),
        ));
    }
    let known = LIMIT_UNITS.iter().find(|row| row.0 == unit);
    let (measure, factor) = match known {
        Some((_, counted)) => *counted,
        None if is_currency(unit) => (Measure::Money, MONEY_PER_UNIT),
        None => {
            return Err((
                Part::Unit,
                format!("`{unit}` is not a unit of a limit"),
                unit_help(unit),
            ));
        }
    };
    let zero = (
        "a limit of 0 lets nothing run, for ever",
        "write an amount above 0; to stop pools for a time, use an operator's override",
    );
    let amount = scaled(number, factor, zero)?;
    Ok(Limit {
        measure,
        amount,
        unit: unit.to_owned(),
    })
}

/// What a budget has spent, as an operator says it: an amount with a unit of what the budget counts, 0 allowed.
pub(in crate::policy) fn spent(text: &str, budget: &Budget) -> Result<i64, String> {
    let (number, unit) = split(text);
    let nothing = !number.is_empty() && number.bytes().all(|b| matches!(b, b'0' | b'.'));
    // The unit is read with an amount that there can be.
    let read = if nothing {
        limit(&format!("1 {unit}"))
    } else {
        limit(text)
    };
    let read = read.map_err(|(_, message, help)| format!("{message}: {help}"))?;
    let other_currency = read.measure == Measure::Money && read.unit != budget.unit;
    if read.measure != budget.measure || other_currency {
        return Err(format!(
            "`{unit}` is not what this budget counts, which is {}: write the amount in {}",
            budget.measure.counts(),
            budget.unit
        ));
    }
    Ok(if nothing { 0 } else { read.amount })
}

/// How much an integer amount is in a unit of a limit; `None` where there is no such unit.
pub(in crate::policy) fn in_unit(amount: i64, unit: &str) -> Option<f64> {
    let known = LIMIT_UNITS.iter().find(|row| row.0 == unit);
    let factor = match known {
        Some((_, (_, factor))) => *factor,
        None if is_currency(unit) => MONEY_PER_UNIT,
        None => return None,
    };
    Some(amount as f64 / factor as f64)
}

fn unit_help(unit: &str) -> String {
    let currency = unit.to_ascii_uppercase();
    if is_currency(&currency) {
        return format!("write `{currency}`: currencies are written as in ISO 4217");
    }
    let slip = match unit {
        "€" => Some("EUR"),
        "$" | "US$" => Some("USD"),
        "£" => Some("GBP"),
        "kg" | "kgCO2" | "kgCO2eq" => Some("kgCO2e"),
        "t" | "tCO2" | "tCO2eq" => Some("tCO2e"),
        "nodes" | "machines" | "gpus" | "GPUs" => Some("workers"),
        _ => None,
    };
    if let Some(meant) = slip {
        return format!("write `{meant}`");
    }
    let known: Vec<&str> = LIMIT_UNITS.iter().map(|row| row.0).collect();
    suggestion(unit, &known, "units") + ", and currencies such as `EUR`"
}

fn work(text: &str) -> Result<i64, Problem> {
    const UNIT: &str = WORK_UNITS[0];
    let (number, unit) = split(text);
    if number.is_empty() || unit.is_empty() {
        let example = if number.is_empty() { "400" } else { number };
        return Err((
            Part::Whole,
            format!("`{text}` is no amount of work"),
            format!("write a number of worker-hours, such as `{example} {UNIT}`"),
        ));
    }
    if !WORK_UNITS.contains(&unit) {
        let joined: String = unit
            .to_ascii_lowercase()
            .chars()
            .filter(char::is_ascii_alphabetic)
            .collect();
        let help = if matches!(
            joined.as_str(),
            "workerhours" | "workerhour" | "workershours"
        ) {
            format!("write `{number} {UNIT}`")
        } else {
            format!("work is counted in hours of ready workers: write `{number} {UNIT}`")
        };
        return Err((Part::Unit, format!("`{unit}` is not a unit of work"), help));
    }
    let zero = (
        "no work at all is done already",
        "write an amount above 0, or remove the deadline",
    );
    scaled(number, MS_PER_HOUR, zero)
}

/// A decimal number times a factor, exactly; `zero` is what is wrong with 0, and how to mend it.
fn scaled(number: &str, factor: i64, zero: (&str, &str)) -> Result<i64, Problem> {
    if number.contains([',', '_', '\'']) {
        let plain = number.replace([',', '_', '\''], "");
        return Err((
            Part::Number,
            format!("`{number}` has a separator, which is a point to some and a comma to others"),
            format!("write it without, such as `{plain}`, with a `.` before a fraction"),
        ));
    }
    if number.starts_with('-') {
        return Err((
            Part::Number,
            format!("`{number}` is below 0"),
            "write an amount above 0".to_owned(),
        ));
    }
    let malformed = || {
        (
            Part::Number,
            format!("`{number}` is not a number"),
            "write digits, and a `.` before a fraction".to_owned(),
        )
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let dangling = number.ends_with('.');
    if whole.is_empty() || dangling || !digits(whole) || !digits(fraction) {
        return Err(malformed());
    }
    let too_fine = || {
        (
            Part::Number,
            format!("`{number}` is finer than what is counted"),
            "write fewer digits behind the point".to_owned(),
        )
    };
    let places = u32::try_from(fraction.len()).unwrap_or(u32::MAX);
    if places > FRACTION_DIGITS_MAX {
        return Err(too_fine());
    }
    let too_large = || {
        (
            Part::Number,
            format!("`{number}` is more than can be counted"),
            "write a smaller amount, or leave it out where there is no limit".to_owned(),
        )
    };
    // At most 38 digits fit; longer ones are too large in any unit.
    let joined: i128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| too_large())?;
    let product = joined
        .checked_mul(i128::from(factor))
        .ok_or_else(too_large)?;
    let divisor = 10_i128.pow(places);
    if product % divisor != 0 {
        return Err(too_fine());
    }
    match i64::try_from(product / divisor) {
        Ok(0) => Err((Part::Number, zero.0.to_owned(), zero.1.to_owned())),
        Ok(amount) if amount <= AMOUNT_MAX => Ok(amount),
        _ => Err(too_large()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn budget(limit: &str) -> Budget {
        let read = super::limit(limit)
            .map_err(|(_, message, _)| message)
            .unwrap();
        Budget {
            name: "b".into(),
            measure: read.measure,
            limit: read.amount,
            unit: read.unit,
            period: None,
            scope: crate::policy::BudgetScope::Fleet,
            weight: None,
            range: crate::diagnostic::TextRange::START,
        }
    }

    #[test]
    fn what_was_spent_is_read_in_what_the_budget_counts() {
        let carbon = budget("2 tCO2e");
        assert_eq!(carbon.read_spent("12.5 kgCO2e"), Ok(12_500_000));
        assert_eq!(
            carbon.read_spent("3 tCO2e"),
            Ok(3_000_000_000),
            "more than the limit, too"
        );
        assert_eq!(carbon.read_spent("0 kgCO2e"), Ok(0));
        assert_eq!(carbon.read_spent("0.0kgCO2e"), Ok(0));
        for text in [
            "12.5",
            "12.5 kWh",
            "-1 kgCO2e",
            "kgCO2e",
            "0",
            "0 EUR",
            "1,5 kgCO2e",
            "",
        ] {
            let refused = carbon.read_spent(text).unwrap_err();
            assert!(refused.len() > 20, "{text}: {refused}");
        }
        assert_eq!(Budget::amount_in(12_500_000, "kgCO2e"), Some(12.5));
        assert_eq!(Budget::amount_in(-500, "EUR"), Some(-0.5));
        assert_eq!(Budget::amount_in(1, "furlong"), None);
        let money = budget("1000 EUR");
        assert_eq!(money.read_spent("19.99 EUR"), Ok(19_990));
        assert!(
            money
                .read_spent("19.99 USD")
                .unwrap_err()
                .contains("in EUR")
        );
    }

    #[test]
    fn limits_are_exact() {
        for (text, measure, amount) in [
            ("60 kW", Measure::Power, 60_000),
            ("0.1 MW", Measure::Power, 100_000),
            ("12 workers", Measure::Workers, 12),
            ("1 worker", Measure::Workers, 1),
            ("0.1 kWh", Measure::Energy, 100_000),
            ("2MWh", Measure::Energy, 2_000_000_000),
            ("500 kgCO2e", Measure::Carbon, 500_000_000),
            ("0.29 tCO2e", Measure::Carbon, 290_000_000),
            ("1000 EUR", Measure::Money, 1_000_000),
            ("19.99 USD", Measure::Money, 19_990),
        ] {
            let Ok(limit) = limit(text) else {
                panic!("{text}")
            };
            assert_eq!((limit.measure, limit.amount), (measure, amount), "{text}");
            assert!(text.ends_with(&limit.unit));
        }
        assert_eq!(work("400 worker-hours"), Ok(1_440_000_000));
        assert_eq!(work("0.5 worker-hours"), Ok(1_800_000));
    }

    #[test]
    fn what_is_no_amount_says_how_to_mend_it() {
        for (text, help) in [
            ("500", "`500 kgCO2e`"),
            ("kW 5", "`60 kW`"),
            ("60 kw", "did you mean `kW`?"),
            ("60 KWH", "did you mean `kWh`?"),
            ("60 eur", "write `EUR`"),
            ("60 €", "write `EUR`"),
            ("60 kg", "write `kgCO2e`"),
            ("1,000 EUR", "`1000`"),
            ("-5 kW", "above 0"),
            ("0 kW", "override"),
            ("1.5 workers", "fewer digits"),
            ("0.0000000001 kW", "fewer digits"),
            ("5. kW", "digits"),
            ("1.2.3 kW", "digits"),
            ("99999999999999999999999999999999999999999999 kW", "smaller"),
            ("99999999999999999 kW", "smaller"),
        ] {
            let (_, _, found) = limit(text).err().unwrap();
            assert!(found.contains(help), "{text}: {found}");
        }
        for (text, help) in [
            ("400", "`400 worker-hours`"),
            ("400 worker hours", "write `400 worker-hours`"),
            ("400 Worker-Hours", "write `400 worker-hours`"),
            ("400 hours", "hours of ready workers"),
            ("lots", "`400 worker-hours`"),
            ("0 worker-hours", "above 0"),
        ] {
            let (_, _, found) = work(text).unwrap_err();
            assert!(found.contains(help), "{text}: {found}");
        }
    }
}
