//! What is shown while the demo runs: redrawn in place on a terminal, plain lines elsewhere.
//!
//! It writes to standard error, since standard output holds the result alone.

use std::fmt::Write as _;
use std::io::{self, Write};

use sunward_core::time::Timestamp;

use super::chart::{Beside, Colour, charts, date_and_clock, progress};
use super::report::happening_line;
use super::score::Score;

/// Happenings below the charts.
const LAST_SHOWN: usize = 5;
/// Columns of the progress bar.
const PROGRESS_WIDTH: usize = 30;
/// Hide the cursor, and cut lines that are wider than the terminal instead of wrapping them, so
/// that the number of rows is known.
const ENTER: &str = "\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h";

/// The screen of one run.
pub struct Screen<W: Write> {
    out: W,
    colour: Colour,
    in_place: bool,
    /// The terminal is not as it was found.
    entered: bool,
    /// Rows of the last frame.
    rows: usize,
    /// Happenings that were written as lines.
    written: usize,
}

impl<W: Write> Screen<W> {
    /// A screen on `out`; `in_place` where it is a terminal.
    pub fn new(out: W, in_place: bool, colour: Colour) -> Screen<W> {
        Screen {
            out,
            colour,
            in_place,
            entered: false,
            rows: 0,
            written: 0,
        }
    }

    /// What is said once, before the first frame.
    pub fn introduce(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        if self.in_place {
            self.entered = true;
            write!(self.out, "{ENTER}")?;
        }
        self.out.flush()
    }

    /// Shows `score` as it is at `now`.
    pub fn show(&mut self, score: &Score, now: Timestamp) -> io::Result<()> {
        if self.in_place {
            self.redraw(score, now)
        } else {
            self.lines(score)
        }
    }

    fn redraw(&mut self, score: &Score, now: Timestamp) -> io::Result<()> {
        let frame = frame(score, now, self.colour);
        let mut text = String::new();
        if self.rows > 0 {
            let _ = write!(text, "\x1b[{}A", self.rows);
        }
        for line in &frame {
            text.push_str(line);
            // Clear what an earlier, longer line left behind.
            text.push_str("\x1b[K\r\n");
        }
        self.rows = frame.len();
        // One write, so that no half frame is ever seen.
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn lines(&mut self, score: &Score) -> io::Result<()> {
        for happening in score.happenings.iter().skip(self.written) {
            writeln!(self.out, "{}", happening_line(happening, self.colour))?;
        }
        self.written = score.happenings.len();
        self.out.flush()
    }

    /// Gives the terminal back; the last frame is wiped, since the result follows.
    pub fn leave(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.entered) {
            return Ok(());
        }
        if self.rows > 0 {
            write!(self.out, "\x1b[{}A\x1b[J", self.rows)?;
        }
        self.rows = 0;
        write!(self.out, "{LEAVE}")?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // On the way out of an error there is nobody left to tell.
        let _ = self.leave();
    }
}

fn frame(score: &Score, now: Timestamp, colour: Colour) -> Vec<String> {
    let share = (now - score.start()).as_millis() as f64 / score.length().as_millis() as f64;
    let share = share.clamp(0.0, 1.0);
    let mut lines = vec![
        format!(
            "{} UTC  {} {:>3.0} %",
            colour.bold(&date_and_clock(now)),
            progress(share, PROGRESS_WIDTH),
            share * 100.0
        ),
        String::new(),
    ];
    lines.extend(charts(score, Beside::Present, colour));
    lines.push(String::new());
    let first = score.happenings.len().saturating_sub(LAST_SHOWN);
    let shown: Vec<String> = score.happenings[first..]
        .iter()
        .map(|happening| happening_line(happening, colour))
        .collect();
    let empty = LAST_SHOWN - shown.len();
    lines.extend(shown);
    // Always as many rows, so that nothing below jumps.
    lines.extend(std::iter::repeat_n(String::new(), empty));
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::chart::WIDTH;
    use super::super::fast;
    use super::super::scenario::Scenario;
    use super::*;

    fn played() -> Score {
        fast::run(&Scenario::t1()).unwrap().score
    }

    #[test]
    fn a_frame_fits_an_old_terminal_and_always_has_as_many_rows() {
        let scenario = Scenario::t1();
        let before = frame(&Score::new(&scenario), scenario.start, Colour::Plain);
        let after = frame(&played(), scenario.end, Colour::Plain);
        assert_eq!(before.len(), after.len());
        for line in before.iter().chain(&after) {
            assert!(line.chars().count() <= WIDTH, "{line}");
            assert!(!line.contains('\x1b'), "{line}");
        }
        let coloured = frame(&played(), scenario.end, Colour::Ansi);
        assert!(coloured.iter().any(|line| line.contains("\x1b[32m")));
    }

    #[test]
    fn in_place_each_frame_goes_back_over_the_last_one_and_the_terminal_is_given_back() {
        let score = played();
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, true, Colour::Plain);
        screen.introduce(&["hello".to_owned()]).unwrap();
        screen.show(&score, score.at).unwrap();
        let rows = screen.rows;
        screen.show(&score, score.at).unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        let up = format!("\x1b[{rows}A");
        assert_eq!(text.matches(&up).count(), 2, "once to redraw, once to wipe");
        assert!(text.starts_with("hello\n") && text.contains(ENTER) && text.ends_with(LEAVE));
    }

    #[test]
    fn elsewhere_every_happening_is_one_line_once() {
        let score = played();
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false, Colour::Plain);
        screen.introduce(&[]).unwrap();
        screen.show(&score, score.at).unwrap();
        screen.show(&score, score.at).unwrap();
        drop(screen);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), score.happenings.len());
        assert!(!text.contains('\x1b'));
    }
}
