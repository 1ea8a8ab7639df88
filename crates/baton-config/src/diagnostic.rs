//! What the reader of a configuration is told: one fault or remark, with its place and the words it is about.
//!
//! A diagnostic is data; [`Diagnostic::render`] gives it HAProxy's shape, which scripts grep.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

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
        let mut lines = summary.lines();
        let mut out = format!("{label:<10} ({pid}) : config : {}\n", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(out, "   | {line}");
        }
        if let Some(columns) = &self.columns {
            self.underline(columns, &mut out);
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "   | help: {hint}");
        }
        out
    }

    /// The line and its marks. A long line is shown around the fault only.
    fn underline(&self, columns: &Range<usize>, out: &mut String) {
        const WIDTH: usize = 160;
        let start = floor(&self.text, columns.start);
        let end = floor(&self.text, columns.end).max(start);
        let before: Vec<char> = self.text[..start].chars().collect();
        let shown_from = before.len().saturating_sub(WIDTH / 2);
        let lead: String = before[shown_from..].iter().map(visible).collect();
        let fault: String = self.text[start..end].chars().take(WIDTH / 2).map(|char| visible(&char)).collect();
        let after: String = self.text[end..].chars().take(WIDTH / 2).map(|char| visible(&char)).collect();
        let _ = writeln!(out, "   | {lead}{fault}{after}");
        let marks = "^".repeat(fault.chars().count().max(1));
        let _ = writeln!(out, "   | {}{marks}", " ".repeat(lead.chars().count()));
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
        ]
    }
}

/// Tabs and control characters take one column, so that the marks stand right.
fn visible(char: &char) -> char {
    match char {
        char if char.is_control() => ' ',
        char => *char,
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
    pub fn add(&mut self, diagnostic: Diagnostic) {
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

    #[test]
    fn columns_beyond_the_line_do_no_harm() {
        let mut diagnostic = Diagnostic::plain(Severity::Alert, "x", "y");
        diagnostic.text = "é".into();
        diagnostic.columns = Some(1..99);
        assert!(diagnostic.render(1).starts_with("[ALERT]    (1) : config : y\n"));
    }
}
