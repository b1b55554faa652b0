//! `docs/expressions.md` is true: every example on it is tried, and its tables are those of the code.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cel::{Env, Program};
use sunward_policies::expr::{
    Condition, EXPRESSION_DEPTH_MAX, EXPRESSION_MAX, Expected, FUNCTIONS, Finding, Quantity,
};
use sunward_policies::facts::CalendarFact;
use sunward_policies::{Kind, PolicySet, PoolFacts, Reading, SourceFile, Span, codes};

use super::reference::World;
use super::tree::{CALENDARS, SIGNALS};
use super::{SCOPE, TABLE, oracle};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/expressions.md")
}

fn page() -> String {
    fs::read_to_string(path()).unwrap()
}

/// The lines of the fenced block of that language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

/// The rows of the table with that header, as cells; code marks and escapes are taken off.
fn table(page: &str, header: &str) -> Vec<Vec<String>> {
    let start = page.find(header).unwrap_or_else(|| panic!("no {header}"));
    let rows: Vec<Vec<String>> = page[start..]
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let line = line.replace("\\|", "\u{1}");
            let cells = line.trim_matches('|').split(" | ");
            let plain = |cell: &str| cell.trim().trim_matches('`').replace('\u{1}', "|");
            cells.map(plain).collect()
        })
        .collect();
    assert!(rows.len() > 4, "{header}");
    rows
}

fn compile(text: &str) -> Result<Condition, Vec<Finding>> {
    Condition::compile(text, SCOPE)
}

/// What the page says is known.
fn world() -> World {
    let reading = |name: &str| match name {
        "carbon" => Reading::Fresh { value: 90.0 },
        "curtailed" => Reading::Fresh { value: 3.0 },
        "price" => Reading::Fresh { value: -5.0 },
        "rank" => Reading::Stale { value: 10.0 },
        "surplus" => Reading::Fresh { value: 12.0 },
        _ => Reading::Missing,
    };
    World {
        readings: SIGNALS.iter().map(|signal| reading(signal.0)).collect(),
        calendars: vec![
            CalendarFact {
                open: true,
                until: None,
            };
            CALENDARS.len()
        ],
        pool: PoolFacts {
            wanted: 2,
            ready: 1,
            min: 0,
            max: 3,
            training_kw: 2.0,
            ready_after: Span::ZERO,
            site_power_limit_kw: None,
        },
    }
}

/// The answer as the page writes it.
fn answer(text: &str) -> &'static str {
    let Ok(condition) = compile(text) else {
        return "refused";
    };
    match condition.evaluate(&world().facts()) {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    }
}

#[test]
fn the_policy_loads_and_declares_the_signals_of_the_examples() {
    let file = SourceFile {
        path: "example.yaml".to_owned(),
        text: block(&page(), "yaml").to_owned(),
    };
    let set = PolicySet::compile(&[file]).unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!(set.warnings(), []);
    let signals = &set.policies()[0].signals;
    let declared: Vec<_> = signals
        .iter()
        .map(|signal| (signal.name.as_str(), signal.kind.unit()))
        .collect();
    assert_eq!(declared, SIGNALS);
    let calendars = set.policies()[0].calendars.iter();
    let calendars: Vec<&str> = calendars.map(|calendar| calendar.name.as_str()).collect();
    assert_eq!(calendars, CALENDARS);
}

#[test]
fn every_example_loads() {
    let page = page();
    let examples: Vec<&str> = block(&page, "cel").lines().collect();
    assert!(examples.len() > 10);
    for example in examples {
        compile(example).unwrap_or_else(|found| panic!("{example}: {found:?}"));
    }
    let examples: Vec<&str> = block(&page, "workers").lines().collect();
    assert!(examples.len() > 3);
    for example in examples {
        Quantity::compile(example, SCOPE, Expected::Workers)
            .unwrap_or_else(|found| panic!("{example}: {found:?}"));
    }
}

#[test]
fn every_answer_is_given() {
    for row in table(&page(), "| expression | answer |") {
        assert_eq!(answer(&row[0]), row[1], "{}", row[0]);
    }
}

#[test]
fn what_is_accepted_and_refused_for_its_units_is() {
    for row in table(&page(), "| accepted | refused |") {
        compile(&row[0]).unwrap_or_else(|found| panic!("{}: {found:?}", row[0]));
        let found = compile(&row[1]).unwrap_err();
        assert_eq!(found[0].code, codes::UNIT_MISMATCH, "{}", row[1]);
    }
}

#[test]
fn what_differs_from_cel_differs() {
    let rows = table(&page(), "| expression | here | in CEL | because |");
    oracle::on_a_large_stack(move || {
        let context = oracle::context(&Arc::new(Env::stdlib()), &world());
        for row in rows {
            assert_eq!(answer(&row[0]), row[1], "{}", row[0]);
            let program = Program::compile(&row[0]).unwrap();
            let theirs = match oracle::evaluate(&program, &context) {
                Ok(true) => "true",
                Ok(false) => "false",
                Err(_) => "error",
            };
            assert_eq!(theirs, row[2], "{} in CEL", row[0]);
        }
    });
}

#[test]
fn every_slip_is_recognised_and_can_be_mended() {
    for row in table(&page(), "| written | code | meant |") {
        let found = compile(&row[0]).expect_err(&row[0]);
        assert_eq!(found[0].code, row[1], "{}: {found:?}", row[0]);
        assert!(found[0].help.is_some(), "{}: {found:?}", row[0]);
        compile(&row[2]).unwrap_or_else(|found| panic!("{}: {found:?}", row[2]));
    }
}

#[test]
fn the_grammar_is_the_one_that_the_parser_is_tried_against() {
    let tried = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/expr/grammar_tests.rs");
    let tried = fs::read_to_string(tried).unwrap();
    let page = page();
    let productions: Vec<&str> = block(&page, "ebnf").lines().collect();
    assert_eq!(tried.matches("/// `").count(), productions.len());
    for production in productions {
        assert!(
            tried.contains(&format!("/// `{production}`")),
            "{production}"
        );
    }
}

#[test]
fn the_functions_and_limits_are_those_of_the_compiler() {
    let page = page();
    let written: Vec<(String, String)> = table(&page, "| function | takes | gives |")
        .into_iter()
        .map(|mut row| (row.remove(0), row.remove(0)))
        .collect();
    let functions = FUNCTIONS.iter().map(|(name, least, most)| {
        let takes = match (least, most) {
            (1, 1) => "1 number".to_owned(),
            _ => format!("{least} to {most} numbers"),
        };
        ((*name).to_owned(), takes)
    });
    assert_eq!(written, functions.collect::<Vec<_>>());
    let limits = format!("at most {EXPRESSION_MAX} bytes and {EXPRESSION_DEPTH_MAX} levels");
    assert!(page.contains(&limits), "{limits}");
}

/// The tables that the code has: `SUNWARD_BLESS=1` writes them anew.
#[test]
fn the_tables_of_names_are_those_of_the_code() {
    let mut kinds = "| kind | unit |\n| --- | --- |\n".to_owned();
    for kind in Kind::ALL {
        writeln!(kinds, "| `{kind}` | {} |", kind.unit()).unwrap();
    }
    let mut variables = "| name | unit | what it is |\n| --- | --- | --- |\n".to_owned();
    for row in TABLE {
        writeln!(variables, "| `{}` | {} | {} |", row.name, row.unit, row.doc).unwrap();
    }
    let before = page();
    let mut page = before.clone();
    for (name, generated) in [("kinds", kinds), ("variables", variables)] {
        let begin = format!("<!-- {name} -->\n");
        let start = page.find(&begin).unwrap() + begin.len();
        let end = start + page[start..].find("<!-- end -->").unwrap();
        page.replace_range(start..end, &generated);
    }
    if std::env::var_os("SUNWARD_BLESS").is_some() {
        fs::write(path(), &page).unwrap();
    }
    assert!(
        before == page || std::env::var_os("SUNWARD_BLESS").is_some(),
        "bless with SUNWARD_BLESS=1 if this is right:\n{page}"
    );
}
