//! What the reader of a configuration is told: one fault or remark, with its place and the words it is about.
//!
//! A diagnostic is data; [`Diagnostic::render`] gives it HAProxy's shape, which scripts grep.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use unicode_width::UnicodeWidthChar as _;

use crate::missing::{self, MissingFeature};

/// How serious a diagnostic is, from harmless to fatal.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Only of interest to somebody who looks for trouble (`-dD`).
    Diag,
    /// Information.
    Notice,
    /// Works, probably not as meant.
    Warning,
    /// The configuration is refused.
    Alert,
}

impl Severity {
    /// HAProxy's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Diag => "DIAG",
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
            Severity::Alert => "ALERT",
        }
    }
}

/// One fault or remark.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// How serious it is.
    pub severity: Severity,
    /// A stable name for the kind of fault, such as `unknown-keyword`, meant for scripts.
    pub id: &'static str,
    /// The file as it was named; empty when no file is to blame.
    pub file: Arc<str>,
    /// The line, from 1; 0 when no line is to blame.
    pub line: u32,
    /// The bytes of `text` that are at fault; `None` when the whole line or no line is.
    pub columns: Option<Range<usize>>,
    /// The line as it stands in the file (bytes that are no UTF-8 replaced), without its end.
    pub text: String,
    /// What is wrong, in a sentence that may have several lines.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The feature of HAProxy that Baton lacks, when that is what is wrong.
    pub feature: Option<&'static MissingFeature>,
    /// Whether it was found after all lines had been read; those come last.
    pub(crate) late: bool,
}

impl Diagnostic {
    /// A diagnostic that belongs to no line.
    pub fn plain(severity: Severity, id: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity,
            id,
            file: Arc::from(""),
            line: 0,
            columns: None,
            text: String::new(),
            message: message.into(),
            hint: None,
            feature: None,
            late: false,
        }
    }

    /// The first line of [`render`](Self::render) without its prefix: `parsing [a.cfg:3] : …`.
    pub fn summary(&self) -> String {
        match self.line {
            0 => self.message.clone(),
            line => format!("parsing [{}:{line}] : {}", self.file, self.message),
        }
    }

    /// HAProxy's line, then the line of the file with the words at fault underlined, then the hint. Ends with a newline.
    pub fn render(&self, pid: u32) -> String {
        let label = format!("[{}]", self.severity.word());
        let summary = self.summary();
        let summary = printable(&summary);
        let mut lines = summary.lines();
        let mut out = format!("{label:<10} ({pid}) : config : {}\n", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(out, "   | {line}");
        }
        if let Some(columns) = &self.columns {
            self.underline(columns, &mut out);
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "   | help: {}", printable(hint));
        }
        out
    }

    /// The line and its marks. Of a long line, what is around the error is shown.
    fn underline(&self, columns: &Range<usize>, out: &mut String) {
        const WIDTH: usize = 160;
        let start = floor(&self.text, columns.start);
        let end = floor(&self.text, columns.end).max(start);
        let lead = Shown::end_of(&self.text[..start], WIDTH / 2);
        let marked = Shown::start_of(&self.text[start..end], WIDTH / 2);
        let rest = match marked.is_cut {
            true => Shown::default(),
            false => Shown::start_of(&self.text[end..], WIDTH - lead.width - marked.width),
        };
        let _ = writeln!(out, "   | {}{}{}", lead.text, marked.text, rest.text);
        let _ = writeln!(out, "   | {}{}", " ".repeat(lead.width), "^".repeat(marked.width.max(1)));
    }

    /// The diagnostic as plain fields, in the order of a JSON object: names and values as text.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let columns = self.columns.clone().unwrap_or(0..0);
        vec![
            ("severity", self.severity.word().to_ascii_lowercase()),
            ("id", self.id.to_string()),
            ("file", self.file.to_string()),
            ("line", self.line.to_string()),
            ("column", if self.columns.is_some() { (columns.start + 1).to_string() } else { String::new() }),
            ("end", if self.columns.is_some() { (columns.end + 1).to_string() } else { String::new() }),
            ("text", self.text.clone()),
            ("message", self.message.clone()),
            ("hint", self.hint.clone().unwrap_or_default()),
            ("feature", self.feature.map(|feature| feature.name.to_string()).unwrap_or_default()),
        ]
    }
}

/// A part of a line as a terminal shows it.
#[derive(Default)]
struct Shown {
    text: String,
    /// Columns of the terminal that `text` takes.
    width: usize,
    /// Whether the part was longer than shown, which `…` says.
    is_cut: bool,
}

impl Shown {
    /// The beginning of a text, no wider than `most` columns.
    fn start_of(text: &str, most: usize) -> Shown {
        let mut shown = Shown::default();
        for (at, char) in text.char_indices() {
            let (piece, width) = visible(char);
            let needed = if at + char.len_utf8() == text.len() { width } else { width + 1 };
            if shown.width + needed > most {
                shown.is_cut = true;
                break;
            }
            shown.text.push_str(&piece);
            shown.width += width;
        }
        if shown.is_cut {
            shown.text.push('…');
            shown.width += 1;
        }
        shown
    }

    /// The end of a text, no wider than `most` columns.
    fn end_of(text: &str, most: usize) -> Shown {
        let (mut width, mut from) = (0, text.len());
        for (at, char) in text.char_indices().rev() {
            width += visible(char).1;
            let needed = if at == 0 { width } else { width + 1 };
            if needed > most {
                break;
            }
            from = at;
        }
        // What belongs to a character that is left out goes with it.
        let kept = text[from..].trim_start_matches(|char| visible(char).1 == 0);
        let mut shown = Shown { is_cut: kept.len() < text.len(), ..Shown::default() };
        if shown.is_cut {
            shown.text.push('…');
            shown.width = 1;
        }
        for char in kept.chars() {
            let (piece, width) = visible(char);
            shown.text.push_str(&piece);
            shown.width += width;
        }
        shown
    }
}

/// What a terminal is given for a character, and how many columns that takes: a blank for a tab, and in the place of what
/// would move the cursor or turn the direction of the text, its number.
fn visible(char: char) -> (Cow<'static, str>, usize) {
    match char {
        '\t' => (" ".into(), 1),
        char if is_unprintable(char) => {
            let number = match u32::from(char) {
                byte @ 0..=0xff => format!("\\x{byte:02x}"),
                number => format!("\\u{{{number:x}}}"),
            };
            let width = number.len();
            (number.into(), width)
        }
        char => (String::from(char).into(), char.width().unwrap_or(0)),
    }
}

/// Whether a terminal does something else with a character than show it: control characters of both sets, and those that turn the
/// direction of the text or cannot be seen.
pub fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A message, which may quote what the file has, as one that moves no cursor.
fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |char: char| char == '\n' || !is_unprintable(char);
    match text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => {
            let spelled = text.chars().map(|char| if char == '\n' { "\n".into() } else { visible(char).0 });
            Cow::Owned(spelled.collect::<String>())
        }
    }
}

/// The nearest character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Most alerts, and most diagnostics of other kinds, that are kept of one reading.
pub const MAX_DIAGNOSTICS: usize = 1000;

/// Collects diagnostics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    list: Vec<Diagnostic>,
    alerts: usize,
    others: usize,
}

impl Report {
    pub fn add(&mut self, mut diagnostic: Diagnostic) {
        missing::mark(&mut diagnostic);
        let alert = diagnostic.severity == Severity::Alert;
        let count = if alert { &mut self.alerts } else { &mut self.others };
        *count += 1;
        if *count <= MAX_DIAGNOSTICS {
            self.list.push(diagnostic);
        } else if *count == MAX_DIAGNOSTICS + 1 {
            let (severity, what) =
                if alert { (Severity::Alert, "errors") } else { (Severity::Notice, "other messages") };
            let message = format!("more than {MAX_DIAGNOSTICS} {what}; the others are not shown");
            let mut last = Diagnostic::plain(severity, "too-many-messages", message);
            last.late = true;
            self.list.push(last);
        }
    }

    /// Whether so much is wrong that reading on is no use.
    pub fn is_full(&self) -> bool {
        self.alerts > MAX_DIAGNOSTICS
    }

    /// How many alerts there are.
    pub fn alerts(&self) -> usize {
        self.alerts
    }

    pub fn has_alert(&self) -> bool {
        self.alerts > 0
    }

    pub fn has_warning(&self) -> bool {
        self.list.iter().any(|diagnostic| diagnostic.severity == Severity::Warning)
    }

    /// Adds what sums up the missing features, when there are any.
    pub fn sum_up(&mut self) {
        self.list.extend(missing::summary(&self.list));
    }

    /// What has been added so far.
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }

    /// In the order of `files` and their lines; what no line is to blame for, and what was found late, follows.
    pub fn sorted(mut self, files: &[Arc<str>]) -> Vec<Diagnostic> {
        let place = |diagnostic: &Diagnostic| {
            let file = files.iter().position(|file| *file == diagnostic.file).unwrap_or(usize::MAX);
            if diagnostic.late { (true, 0, 0) } else { (false, file, diagnostic.line) }
        };
        self.list.sort_by_key(place);
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_like_haproxy_with_the_words_underlined() {
        let mut diagnostic = Diagnostic::plain(Severity::Warning, "x", "unknown keyword 'blance'");
        diagnostic.file = Arc::from("a.cfg");
        diagnostic.line = 3;
        diagnostic.text = "\tblance é".into();
        diagnostic.columns = Some(1..7);
        diagnostic.hint = Some("write it so".into());
        let expect = "[WARNING]  (7) : config : parsing [a.cfg:3] : unknown keyword 'blance'\n   |  blance é\n   |  ^^^^^^\n   | help: write it so\n";
        assert_eq!(diagnostic.render(7), expect);
    }

    /// The shown line and its marks: `marked` is what the marks are about.
    #[track_caller]
    fn check(text: &str, marked: &str, expect: &str) {
        let start = text.find(marked).expect("the marked words are in the text");
        let mut diagnostic = Diagnostic::plain(Severity::Alert, "x", "y");
        diagnostic.text = text.into();
        diagnostic.columns = Some(start..start + marked.len());
        let rendered = diagnostic.render(1);
        let shown: Vec<&str> = rendered.lines().skip(1).map(|line| line.strip_prefix("   | ").unwrap()).collect();
        assert_eq!(shown.join("\n"), expect, "{text}");
    }

    #[test]
    fn marks_stand_below_what_they_are_about() {
        check("mode htp", "htp", "mode htp\n     ^^^");
        check("\tmode\thtp", "htp", " mode htp\n      ^^^");
        check("acl é_ü hdr(x) é", "hdr(x)", "acl é_ü hdr(x) é\n        ^^^^^^");
        // Wide characters take two columns, marks that combine with the one before none.
        check("name 日本語 x", "x", "name 日本語 x\n            ^");
        check("name 日本語 x", "日本語", "name 日本語 x\n     ^^^^^^");
        check("name e\u{301}e x", "x", "name e\u{301}e x\n        ^");
    }

    #[test]
    fn what_moves_the_cursor_is_spelled_out() {
        check("name \u{1b}[31mred x", "x", "name \\x1b[31mred x\n                 ^");
        check("name a\u{1b}b x", "a\u{1b}b", "name a\\x1bb x\n     ^^^^^^");
        check("name \r x", "x", "name \\x0d x\n          ^");
        check("name \u{85} x", "x", "name \\x85 x\n          ^");
        check("name \u{202e} x", "x", "name \\u{202e} x\n              ^");
        let diagnostic = Diagnostic::plain(Severity::Alert, "x", "unknown keyword '\u{1b}[2J'\nsecond\r");
        assert_eq!(diagnostic.render(1), "[ALERT]    (1) : config : unknown keyword '\\x1b[2J'\n   | second\\x0d\n");
        let diagnostic = Diagnostic::plain(Severity::Alert, "x", "unknown keyword 'a\u{202e}b'");
        assert_eq!(diagnostic.render(1), "[ALERT]    (1) : config : unknown keyword 'a\\u{202e}b'\n");
    }

    #[test]
    fn long_lines_are_cut_around_the_marks() {
        let long = "a".repeat(500);
        let (before, after) = ("a".repeat(78), "a".repeat(75));
        check(&format!("{long} odd {long}"), "odd", &format!("…{before} odd {after}…\n{}^^^", " ".repeat(80)));
        check(&format!("x {long}"), &long, &format!("x {}…\n  {}", "a".repeat(79), "^".repeat(80)));
        check(&format!("{long} x"), "x", &format!("…{before} x\n{}^", " ".repeat(80)));
        // What fits to the last column is not cut.
        let fits = "a".repeat(158);
        check(&format!("x {fits}"), "x", &format!("x {fits}\n^"));
        let wide = "語".repeat(300);
        check(&format!("{wide} x"), "x", &format!("…{} x\n{}^", "語".repeat(39), " ".repeat(80)));
    }

    #[test]
    fn columns_beyond_the_line_do_no_harm() {
        let mut diagnostic = Diagnostic::plain(Severity::Alert, "x", "y");
        diagnostic.text = "é".into();
        diagnostic.columns = Some(1..99);
        assert!(diagnostic.render(1).starts_with("[ALERT]    (1) : config : y\n"));
    }
}
