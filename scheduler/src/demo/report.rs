//! The demo's result: the JSON form whose field names are a promise, and the table for people.

use serde::Serialize;
use sunward_simulations::accounting::{Figures, hours};
use sunward_simulations::report::SiteRow;

use super::chart::{Beside, Colour, WIDTH, charts, clock, date_and_clock};
use super::scenario::Scenario;
use super::score::{Score, Site};

/// Happenings that the table shows at most; a quiet run has a dozen.
const HAPPENINGS_SHOWN_MAX: usize = 40;

/// The result of a run, or of the part that was played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// In the order of the scenario.
    pub sites: Vec<SiteRow>,
    /// Over all sites.
    pub totals: Totals,
    /// Readings accepted.
    pub signals: u64,
    /// Decisions taken.
    pub decisions: u64,
    /// Federation events issued.
    pub events: u64,
}

/// Over all sites.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// The length of the series, or of the part that was played.
    pub hours: f64,
    /// The sum of the sites' hours.
    pub site_hours: f64,
    /// The sum of the sites'.
    pub energy_kwh: f64,
    /// The sum of the sites'; null where one is.
    pub emissions_kg: Option<f64>,
    /// The sum of the sites'; null where one is.
    pub emissions_average_kg: Option<f64>,
    /// The sum of the sites'; null where one is.
    pub emissions_marginal_kg: Option<f64>,
    /// The sum of the sites'.
    pub starts: u32,
}

impl Report {
    /// The report of a run as far as it went.
    pub fn new(score: &Score) -> Report {
        let rows: Vec<SiteRow> = score.sites.iter().map(row).collect();
        let sum = Figures::sum(score.sites.iter().map(Site::figures));
        let followed = rows.iter().map(|row| row.emissions_kg);
        Report {
            totals: Totals {
                hours: hours(score.at - score.start()),
                site_hours: sum.hours(),
                energy_kwh: sum.energy_kwh(),
                emissions_kg: followed_total(&score.sites, followed, &sum),
                emissions_average_kg: sum.emissions_average_kg(),
                emissions_marginal_kg: sum.emissions_marginal_kg(),
                starts: sum.starts,
            },
            sites: rows,
            signals: score.signals,
            decisions: score.decisions,
            events: score.events,
        }
    }
}

/// The total by the followed streams: the integers where all sites follow the same accounting.
fn followed_total(
    sites: &[Site],
    mut followed: impl Iterator<Item = Option<f64>>,
    sum: &Figures,
) -> Option<f64> {
    if sites.iter().all(|site| !site.follows_average()) {
        return sum.emissions_marginal_kg();
    }
    if sites.iter().all(Site::follows_average) {
        return sum.emissions_average_kg();
    }
    followed.try_fold(0.0, |total, kg| Some(total + kg?))
}

fn row(site: &Site) -> SiteRow {
    let figures = site.figures();
    let average = figures.emissions_average_kg();
    let marginal = figures.emissions_marginal_kg();
    SiteRow {
        site: site.name.to_string(),
        hours: figures.hours(),
        energy_kwh: figures.energy_kwh(),
        emissions_kg: if site.follows_average() {
            average
        } else {
            marginal
        },
        emissions_average_kg: average,
        emissions_marginal_kg: marginal,
        starts: figures.starts,
    }
}

/// The whole result for people: what was played, what happened, and the figures.
pub fn table(scenario: &Scenario, score: &Score, colour: Colour) -> String {
    let report = Report::new(score);
    let mut lines = vec![
        colour.bold("sunward demo: GPU training follows clean energy over three sites"),
        format!(
            "{} to {} UTC, by {}:",
            date_and_clock(scenario.start),
            date_and_clock(score.at),
            scenario.policy_file.path
        ),
    ];
    lines.extend(
        scenario
            .conditions()
            .map(|line| colour.dim(&format!("  {line}"))),
    );
    lines.push(String::new());
    lines.extend(
        charts(score, Beside::Nothing, colour)
            .iter()
            .map(|line| line.trim_end().to_owned()),
    );
    lines.push(String::new());
    lines.extend(happenings(score, colour));
    lines.push(String::new());
    lines.extend(figures(&report, colour));
    lines.push(String::new());
    lines.extend(comparison(scenario, score, &report));
    let played = if score.at < scenario.end {
        format!("{:.1} h of the series were played", report.totals.hours)
    } else {
        format!("the series is {:.0} h long", report.totals.hours)
    };
    lines.push(format!(
        "{} readings in, {} decisions, {} events out; {played}.",
        report.signals, report.decisions, report.events
    ));
    lines.join("\n")
}

/// What happened, one line each.
pub fn happenings(score: &Score, colour: Colour) -> Vec<String> {
    let all = &score.happenings;
    let mut lines: Vec<String> = all
        .iter()
        .take(HAPPENINGS_SHOWN_MAX)
        .map(|happening| happening_line(happening, colour))
        .collect();
    if let Some(more) = all
        .len()
        .checked_sub(HAPPENINGS_SHOWN_MAX)
        .filter(|more| *more > 0)
    {
        lines.push(colour.dim(&format!("and {more} more")));
    }
    lines
}

/// One happening as a line.
pub fn happening_line(happening: &super::score::Happening, colour: Colour) -> String {
    let what = format!("{:6}", happening.what);
    let what = match happening.what {
        "trains" => colour.green(&what),
        "pushed" => colour.bold(&what),
        _ => colour.yellow(&what),
    };
    format!(
        "{}  {:8} {what}  {}",
        clock(happening.at),
        happening.site,
        happening.why
    )
}

fn figures(report: &Report, colour: Colour) -> Vec<String> {
    let kg = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |kg| format!("{kg:.3}"));
    let line = |site: &str, hours: f64, kwh: f64, emissions: Option<f64>, starts: u32| {
        format!(
            "{site:10} {hours:>10.2} {kwh:>10.2} {:>12} {starts:>8}",
            kg(emissions)
        )
    };
    let heading = format!(
        "{:10} {:>10} {:>10} {:>12} {:>8}",
        "site", "site-hours", "kWh", "kgCO2e", "starts"
    );
    let mut lines = vec![colour.bold(&heading)];
    for row in &report.sites {
        lines.push(line(
            &row.site,
            row.hours,
            row.energy_kwh,
            row.emissions_kg,
            row.starts,
        ));
    }
    let totals = &report.totals;
    let all = line(
        "all",
        totals.site_hours,
        totals.energy_kwh,
        totals.emissions_kg,
        totals.starts,
    );
    lines.push(colour.bold(&all));
    lines
}

/// What the same energy would have emitted without following anything: each site's energy at the
/// mean level of its whole series. Left out when someone pushed readings, since the series alone
/// then no longer says what the grid was.
fn comparison(scenario: &Scenario, score: &Score, report: &Report) -> Option<String> {
    let emissions_kg = report.totals.emissions_kg?;
    if score.pushed > 0 || score.at < scenario.end || report.totals.energy_kwh <= 0.0 {
        return None;
    }
    let mut evenly_kg = 0.0;
    for row in &report.sites {
        evenly_kg += row.energy_kwh * scenario.mean_level(&row.site)? / 1_000.0;
    }
    let line = format!(
        "The same energy at the same sites, drawn evenly: {evenly_kg:.2} kg. Following: {emissions_kg:.2} kg."
    );
    debug_assert!(line.chars().count() <= WIDTH, "{line}");
    Some(line)
}
