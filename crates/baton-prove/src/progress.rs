//! One live line: rewritten in place on a terminal, a line every few seconds elsewhere (a log, a pipe).

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// How often the line is rewritten on a terminal, at most.
const REWRITE_EVERY: Duration = Duration::from_millis(100);

/// How often a line is printed elsewhere.
const PRINT_EVERY: Duration = Duration::from_secs(5);

/// The longest line on a terminal, in characters.
const WIDTH_MAX: usize = 250;

/// A terminal cuts what follows at its margin (DECAWM off): a line that wraps could not be rewritten.
const CUT: &str = "\x1b[?7l";

/// It wraps again.
const WRAP: &str = "\x1b[?7h";

/// Clears what a longer line left behind.
const CLEAR: &str = "\x1b[K";

/// Shows how something is going.
///
/// The caller passes the time, and a closure that is called only when the line is really shown. A line that cannot be written
/// is forgotten: nothing fails because nobody looks.
#[derive(Debug)]
pub struct Progress<W: Write> {
    out: W,
    terminal: bool,
    shown: Option<Instant>,
    /// Whether an unfinished line stands on the terminal.
    open: bool,
}

impl Progress<io::Stderr> {
    /// Progress on standard error.
    pub fn stderr() -> Progress<io::Stderr> {
        let out = io::stderr();
        let terminal = out.is_terminal();
        Progress::new(out, terminal)
    }
}

impl<W: Write> Progress<W> {
    /// Progress on `out`, which is a terminal or not.
    pub fn new(out: W, terminal: bool) -> Progress<W> {
        Progress { out, terminal, shown: None, open: false }
    }

    /// Shows the line if it is time to.
    pub fn show<D: fmt::Display>(&mut self, now: Instant, line: impl FnOnce() -> D) {
        let every = if self.terminal { REWRITE_EVERY } else { PRINT_EVERY };
        if self.shown.is_some_and(|shown| now.saturating_duration_since(shown) < every) {
            return;
        }
        self.shown = Some(now);
        let line = line().to_string();
        let _ = if self.terminal {
            let cut: String = line.chars().filter(|letter| !letter.is_control()).take(WIDTH_MAX).collect();
            self.open = true;
            write!(self.out, "\r{CUT}{cut}{CLEAR}{WRAP}").and_then(|()| self.out.flush())
        } else {
            writeln!(self.out, "{line}")
        };
    }

    /// Prints a line that stays, above the live one.
    pub fn note(&mut self, line: impl fmt::Display) {
        self.clear();
        let _ = writeln!(self.out, "{line}");
        // The live line comes back at the next call.
        if self.terminal {
            self.shown = None;
        }
    }

    /// Removes the live line from the terminal, so that other text can follow.
    pub fn clear(&mut self) {
        if self.open {
            self.open = false;
            let _ = write!(self.out, "\r{CLEAR}").and_then(|()| self.out.flush());
        }
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows `lines` of (milliseconds, text); gives what was written.
    fn check(terminal: bool, lines: &[(u64, &str)], expect: &str) {
        let (mut out, base) = (Vec::new(), Instant::now());
        {
            let mut progress = Progress::new(&mut out, terminal);
            for (at, line) in lines {
                progress.show(base + Duration::from_millis(*at), || line);
            }
        }
        assert_eq!(String::from_utf8(out).expect("text"), expect);
    }

    #[test]
    fn a_terminal_has_one_line_rewritten_at_most_ten_times_a_second() {
        let shown = |line: &str| format!("\r{CUT}{line}{CLEAR}{WRAP}");
        let expect = format!("{}{}\r{CLEAR}", shown("a"), shown("d"));
        check(true, &[(0, "a"), (50, "b"), (99, "c"), (100, "d")], &expect);
        check(true, &[], "");
    }

    #[test]
    fn elsewhere_a_line_is_printed_every_few_seconds() {
        check(false, &[(0, "a"), (100, "b"), (4_999, "c"), (5_000, "d")], "a\nd\n");
    }

    #[test]
    fn a_note_stays_above_the_line() {
        let (mut out, now) = (Vec::new(), Instant::now());
        let mut progress = Progress::new(&mut out, true);
        progress.show(now, || "live");
        progress.note("kept");
        progress.show(now, || "live");
        drop(progress);
        let live = format!("\r{CUT}live{CLEAR}{WRAP}\r{CLEAR}");
        assert_eq!(String::from_utf8(out).expect("text"), format!("{live}kept\n{live}"));
    }
}
