//! Carbon and training of the sites as lines of text, at most [`WIDTH`] columns wide.

use std::fmt::Write as _;

use sunward_core::time::{Span, Timestamp};

use super::score::{CELLS, Cell, Score, Site};

/// Columns that a line takes at most.
pub const WIDTH: usize = 78;
/// Columns of a site's name; a longer one is cut.
const NAME_WIDTH: usize = 8;
/// The level that fills a bar, in gCO2e/kWh; higher ones look the same.
const LEVEL_FULL: f64 = 900.0;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Whether lines are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// With ANSI colours.
    Ansi,
    /// Without.
    Plain,
}

impl Colour {
    /// Colours on a terminal, unless `NO_COLOR` is set (no-color.org) or the terminal is dumb.
    pub fn on(terminal: bool) -> Colour {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if terminal && !set("NO_COLOR") && !dumb {
            Colour::Ansi
        } else {
            Colour::Plain
        }
    }

    /// `text` in bright green: training.
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// `text` in yellow: on its way.
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// `text` set back: legend and rest.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// `text` in bold: headings.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Colour::Ansi if !text.trim().is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// What stands beside the charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The present level, workers, energy and emissions: while it runs.
    Present,
    /// Nothing: a table says more.
    Nothing,
}

/// The charts of all sites, with the hours above and the legend below.
pub fn charts(score: &Score, beside: Beside, colour: Colour) -> Vec<String> {
    let mut lines = vec![colour.dim(&format!("{:NAME_WIDTH$} {}", "", hours(score)))];
    for site in &score.sites {
        let [mut carbon, mut trained] = site_lines(site, colour);
        if beside == Beside::Present {
            let [level, workers] = present(site, colour);
            carbon.push_str(&level);
            trained.push_str(&workers);
        }
        lines.extend([carbon, trained]);
    }
    lines.push(colour.dim(&format!(
        "{:NAME_WIDTH$} ▁ clean █ dirty grid (marginal carbon)   ━ GPUs train",
        ""
    )));
    lines
}

/// The hours of the day above the charts, one mark every three hours.
fn hours(score: &Score) -> String {
    let cell = Span::from_millis(score.length().as_millis() / CELLS as i64);
    let mut line = String::new();
    let mut at = score.start();
    for index in 0..CELLS {
        if line.chars().count() <= index {
            // A mark is five columns: `20:00`.
            let mark = index % 6 == 0 && index + 5 <= CELLS;
            line.push_str(&if mark { clock(at) } else { " ".to_owned() });
        }
        at += cell;
    }
    line.trim_end().to_owned()
}

/// Two lines of one site: the carbon levels, and where it trained.
fn site_lines(site: &Site, colour: Colour) -> [String; 2] {
    let carbon: String = site.cells.iter().map(bar).collect();
    let trained: String = site.cells.iter().map(trained).collect();
    let name: String = site.name.chars().take(NAME_WIDTH).collect();
    [
        format!("{name:NAME_WIDTH$} {carbon}"),
        format!("{:NAME_WIDTH$} {}", "", colour.green(&trained)),
    ]
}

/// What stands beside the two lines of a site while it runs.
fn present(site: &Site, colour: Colour) -> [String; 2] {
    let figures = site.figures();
    let emissions = if site.follows_average() {
        figures.emissions_average_kg()
    } else {
        figures.emissions_marginal_kg()
    };
    let level = site
        .level
        .map_or_else(|| "-".to_owned(), |level| format!("{level:.1}"));
    let workers = site.workers;
    let word = format!("{:>8}", workers.word());
    let word = match workers.word() {
        "training" => colour.green(&word),
        "resting" => colour.dim(&word),
        _ => colour.yellow(&word),
    };
    let kg = emissions.map_or_else(|| "-".to_owned(), |kg| format!("{kg:.3}"));
    [
        format!(" {level:>7} g/kWh  {:>9.2} kWh", figures.energy_kwh()),
        // Ready of wanted workers.
        format!(
            " {word} {}/{}  {kg:>9} kgCO2e",
            workers.ready, workers.wanted
        ),
    ]
}

fn bar(cell: &Cell) -> char {
    cell.level().map_or(' ', |level| {
        let share = (level / LEVEL_FULL).clamp(0.0, 1.0);
        BARS[(share * (BARS.len() - 1) as f64).floor() as usize]
    })
}

fn trained(cell: &Cell) -> char {
    if cell.ready_ms > 0 { '━' } else { ' ' }
}

/// `17:05` of an instant, in UTC.
pub fn clock(at: Timestamp) -> String {
    // The form is fixed: 2026-01-11T17:05:00Z.
    at.to_string().get(11..16).unwrap_or_default().to_owned()
}

/// `2026-01-11 17:05` of an instant, in UTC.
pub fn date_and_clock(at: Timestamp) -> String {
    at.to_string()
        .get(..16)
        .unwrap_or_default()
        .replace('T', " ")
}

/// A bar of `width` columns that is filled to `share`.
pub fn progress(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    let mut bar = String::new();
    for column in 0..width {
        let _ = write!(bar, "{}", if column < filled { '█' } else { '░' });
    }
    bar
}
