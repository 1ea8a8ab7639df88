//! Files to sections and lines: reads every file of the command line, cuts the lines into words, and follows `.if` blocks,
//! messages and variables (configuration manual, 2). What a keyword means is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_rules::nearest;

use crate::condition;
use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::environment::{Environment, LINES_PER_PAUSE, reason};
use crate::keywords::SECTIONS;
use crate::unquoted;
use crate::words::{self, MAX_LINE_BYTES, Token};

/// Deepest nesting of `.if` blocks.
pub const MAX_BLOCKS: usize = 1024;

/// Most files of one configuration.
pub const MAX_FILES: usize = 10_000;

/// A configuration as sections of lines of words; everything that `.if` left out is gone.
#[derive(Clone, Debug, Default)]
pub struct Syntax {
    /// The files that were read, as they are called in messages.
    pub files: Vec<Arc<str>>,
    /// The sections in order.
    pub sections: Vec<Section>,
    /// What `setenv`, `presetenv`, `unsetenv` and `resetenv` did: a value, or `None` for a variable that was removed.
    pub variables: BTreeMap<String, Option<String>>,
}

/// A section: its first line and the lines that belong to it.
#[derive(Clone, Debug)]
pub struct Section {
    /// `frontend www from base`.
    pub head: Line,
    /// The others.
    pub lines: Vec<Line>,
}

/// A line that is not empty.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its file as named on the command line.
    pub file: Arc<str>,
    /// Its number, from 1.
    pub number: u32,
    /// The text it stands in, its file's or its own, and where; see [`Line::text`].
    content: Arc<str>,
    at: (u32, u32),
    /// Its words, at least one. Shared, because whoever may have to complain about the line later keeps a copy of it.
    pub words: Arc<[Token]>,
}

impl Line {
    /// Its text without the end of line; bytes that are no UTF-8 are replaced, which may shift the marks below it.
    pub fn text(&self) -> &str {
        self.content.get(self.at.0 as usize..self.at.1 as usize).unwrap_or_default()
    }

    /// The word at an index; empty when the line is shorter, as the manual treats missing arguments.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map(|word| word.text(self.text())).unwrap_or_default()
    }

    /// The words in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|word| word.text(self.text()))
    }

    /// The bytes of a word, or of the line's end when there is no such word.
    pub fn columns(&self, index: usize) -> Range<usize> {
        match (self.words.get(index), self.words.last()) {
            (Some(word), _) => word.at(),
            (None, Some(last)) => last.at().end..last.at().end + 1,
            (None, None) => 0..self.text().len(),
        }
    }

    /// The line's place for the model.
    pub fn source(&self) -> baton_model::Source {
        baton_model::Source { file: self.file.clone(), line: self.number }
    }

    /// A diagnostic about one of the words.
    pub fn diagnostic(&self, severity: Severity, id: &'static str, word: usize, message: String) -> Diagnostic {
        self.marked(severity, id, self.columns(word), message)
    }

    /// A line of another file than a configuration's, without words.
    pub(crate) fn alone(file: Arc<str>, number: u32, text: &str) -> Line {
        let at = (0, u32::try_from(text.len()).unwrap_or_default());
        Line { file, number, content: Arc::from(text), at, words: Arc::default() }
    }

    pub(crate) fn marked(&self, severity: Severity, id: &'static str, at: Range<usize>, message: String) -> Diagnostic {
        Diagnostic {
            file: self.file.clone(),
            line: self.number,
            columns: Some(at),
            text: self.text().to_string(),
            ..Diagnostic::plain(severity, id, message)
        }
    }
}

/// Room for the lines of most sections.
const USUAL_LINES: usize = 8;

/// What the reader needs besides the files.
pub(crate) struct Reader<'a> {
    pub env: &'a dyn Environment,
    pub report: &'a mut Report,
    /// `-dD`: `.diag` messages are shown.
    pub diag: bool,
    /// `-L`, else the host name.
    pub local_peer: String,
    /// `-L` says it: `localpeer` has no effect.
    pub has_local_peer: bool,
    pub syntax: Syntax,
    /// After a `resetenv`: the inherited variables that are still there.
    pub kept: Option<BTreeSet<String>>,
    /// `;`-separated names for HAPROXY_CFGFILES.
    pub file_list: String,
}

impl Reader<'_> {
    /// Reads all files and directories in order.
    pub fn read(&mut self, paths: &[PathBuf]) {
        let mut files = Vec::new();
        for path in paths {
            self.expand(path, &mut files);
        }
        self.file_list = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(";");
        for file in &files {
            match self.env.read(file) {
                Ok(content) => self.read_file(file, &content),
                Err(error) => self.cannot_open(file, &error),
            }
        }
    }

    fn expand(&mut self, path: &Path, files: &mut Vec<PathBuf>) {
        if !self.env.is_dir(path) {
            files.push(path.into());
        } else {
            match self.env.list(path) {
                Ok(list) => files.extend(list),
                Err(error) => self.cannot_open(path, &error),
            }
        }
        if files.len() > MAX_FILES {
            files.truncate(MAX_FILES);
            let message = format!("more than {MAX_FILES} configuration files");
            self.report.add(Diagnostic::plain(Severity::Alert, "too-many-files", message));
        }
    }

    fn cannot_open(&mut self, path: &Path, error: &std::io::Error) {
        let reason = reason(error);
        let message = format!("Cannot open configuration file/directory {} : {reason}", path.display());
        self.report.add(Diagnostic::plain(Severity::Alert, "cannot-open", message));
    }

    fn read_file(&mut self, path: &Path, content: &[u8]) {
        let name: Arc<str> = match path {
            path if path == Path::new("-") => Arc::from("<STDIN>"),
            path => Arc::from(path.display().to_string()),
        };
        self.syntax.files.push(name.clone());
        // Ranges of lines are 32 bits wide; no file comes near that (see `MAX_FILE_BYTES`).
        let text = std::str::from_utf8(content).ok().filter(|text| u32::try_from(text.len()).is_ok()).map(Arc::from);
        let mut file = FileState { name, text, at: 0, blocks: Vec::new(), section: None, none: Arc::default() };
        let mut lines = content.split(|&byte| byte == b'\n').peekable();
        let mut number = 0;
        let mut place = file.place(0, b"");
        file.at = 0;
        while let Some(bytes) = lines.next() {
            if self.report.is_full() {
                return;
            }
            if lines.peek().is_none() {
                // What follows the last line feed: nothing, in a file that is complete.
                if !bytes.is_empty() {
                    number += 1;
                    place = file.place(number, bytes);
                    self.line(&mut file, place.clone(), bytes);
                    let position = bytes.len() + 1;
                    let message =
                        format!("Missing LF on last line, file might have been truncated at position {position}.");
                    self.alert(&place, "missing-lf", bytes.len()..bytes.len() + 1, message);
                }
                break;
            }
            number += 1;
            if number.is_multiple_of(LINES_PER_PAUSE) {
                self.env.pause();
            }
            place = file.place(number, bytes);
            self.line(&mut file, place.clone(), bytes);
        }
        if !file.blocks.is_empty() {
            let columns = 0..place.text().len();
            self.alert(&place, "open-block", columns, "non-terminated '.if' block.".into());
        }
    }

    fn alert(&mut self, place: &Line, id: &'static str, at: Range<usize>, message: String) {
        self.report.add(place.marked(Severity::Alert, id, at, message));
    }

    fn line(&mut self, file: &mut FileState, mut line: Line, bytes: &[u8]) {
        if bytes.contains(&0) {
            let position = bytes.iter().position(|&byte| byte == 0).unwrap_or_default();
            let message = format!("Stray NUL character at position {}.", position + 1);
            return self.alert(&line, "stray-nul", shown_at(bytes, position..position + 1), message);
        }
        if bytes.len() > MAX_LINE_BYTES {
            let message = format!("the line is longer than {MAX_LINE_BYTES} bytes");
            return self.alert(&line, "line-too-long", 0..1, message);
        }
        match words::split(bytes, &|name| self.variable(file, line.number, name)) {
            Ok(words) if words.is_empty() => return,
            Ok(mut words) => {
                if file.text.is_none() {
                    words.iter_mut().for_each(|word| word.shift(|at| shown_at(bytes, at)));
                }
                unquoted::expand(line.text(), &mut words, &|name| self.variable(file, line.number, name));
                line.words = Arc::from(words);
            }
            Err(fault) => {
                let message = format!("{} at position {}", fault.message, fault.at.start + 1);
                return self.alert(&line, fault.id, shown_at(bytes, fault.at), message);
            }
        }
        let first = line.word(0);
        let is_section = SECTIONS.iter().any(|section| section.name == first);
        if first.starts_with('.') {
            return self.directive(file, &line);
        }
        if file.skipped() {
            return;
        }
        if is_section {
            file.section = Some(self.syntax.sections.len());
            self.syntax.sections.push(Section { head: line, lines: Vec::with_capacity(USUAL_LINES) });
            return;
        }
        match file.section {
            Some(index) => {
                self.set_variables(index, &line);
                self.syntax.sections[index].lines.push(line);
            }
            None => {
                let known = SECTIONS.iter().map(|section| section.name);
                let guess = nearest(line.word(0), known).map(|name| format!("; did you mean '{name}' maybe ?"));
                let message =
                    format!("unknown keyword '{}' out of section{}", line.word(0), guess.unwrap_or(".".into()));
                let mut diagnostic = line.diagnostic(Severity::Alert, "out-of-section", 0, message);
                diagnostic.hint = Some("a file starts with a section such as 'global' or 'frontend NAME'".into());
                self.report.add(diagnostic);
            }
        }
    }

    /// The environment, what the file itself has set, and the pseudo-variables.
    fn variable(&self, file: &FileState, number: u32, name: &str) -> Option<String> {
        match name {
            ".FILE" => return Some(file.name.to_string()),
            ".LINE" => return Some(number.to_string()),
            ".SECTION" => {
                let head = file.section.and_then(|index| self.syntax.sections.get(index)).map(|section| &section.head);
                return Some(match head {
                    Some(head) if head.word(1).is_empty() => head.word(0).into(),
                    Some(head) => head.word(1).into(),
                    None => String::new(),
                });
            }
            _ => {}
        }
        if let Some(value) = self.syntax.variables.get(name) {
            return value.clone();
        }
        if self.kept.as_ref().is_some_and(|kept| !kept.contains(name)) {
            return None;
        }
        match name {
            "HAPROXY_LOCALPEER" => Some(self.local_peer.clone()),
            "HAPROXY_CFGFILES" => Some(self.file_list.clone()),
            "HAPROXY_STARTUP_VERSION" => Some(condition::COMPATIBLE_VERSION.into()),
            _ => self.env.var(name),
        }
    }

    /// `setenv` and its relatives take effect on the lines below them; their arguments are judged with the other keywords.
    fn set_variables(&mut self, section: usize, line: &Line) {
        if self.syntax.sections[section].head.word(0) != "global" {
            return;
        }
        let (name, value) = (line.word(1).to_string(), line.word(2).to_string());
        match line.word(0) {
            "localpeer" if !self.has_local_peer && !name.is_empty() => self.local_peer = name,
            "setenv" if line.words.len() > 2 => {
                self.syntax.variables.insert(name, Some(value));
            }
            "presetenv" if line.words.len() > 2 => {
                let present = match self.syntax.variables.get(&name) {
                    Some(value) => value.is_some(),
                    None => self.env.var(&name).is_some(),
                };
                if !present {
                    self.syntax.variables.insert(name, Some(value));
                }
            }
            "unsetenv" => {
                for word in line.texts().skip(1) {
                    self.syntax.variables.insert(word.to_string(), None);
                }
            }
            "resetenv" => {
                // What the process inherited cannot be listed, so from here on only the named ones are looked up.
                let kept = |name: &String| line.texts().skip(1).any(|word| word == name);
                for (name, value) in &mut self.syntax.variables {
                    if !kept(name) {
                        *value = None;
                    }
                }
                self.kept = Some(line.texts().skip(1).map(str::to_string).collect());
            }
            _ => {}
        }
    }

    fn directive(&mut self, file: &mut FileState, line: &Line) {
        match line.word(0) {
            ".if" => {
                let state = if file.skipped() { Block::Done } else { self.judge(file, line) };
                if file.blocks.len() == MAX_BLOCKS {
                    let message = format!("'.if' blocks nested deeper than {MAX_BLOCKS} levels");
                    return self.alert(line, "too-many-blocks", line.columns(0), message);
                }
                file.blocks.push((state, false));
            }
            ".elif" => match file.blocks.last().copied() {
                None => self.alert(line, "stray-block", line.columns(0), "lone '.elif' with no matching '.if'.".into()),
                Some((_, true)) => {
                    self.alert(line, "stray-block", line.columns(0), "'.elif' after '.else' is not permitted.".into());
                }
                Some((state, false)) => {
                    file.blocks.pop();
                    let next = match state {
                        Block::Taken | Block::Done => Block::Done,
                        Block::Waiting => self.judge(file, line),
                    };
                    file.blocks.push((next, false));
                }
            },
            ".else" => {
                self.no_arguments(line);
                match file.blocks.pop() {
                    None => {
                        self.alert(line, "stray-block", line.columns(0), "lone '.else' with no matching '.if'.".into());
                    }
                    Some((state, true)) => {
                        let message = "'.else' after '.else' is not permitted.".into();
                        self.alert(line, "stray-block", line.columns(0), message);
                        file.blocks.push((state, true));
                    }
                    Some((Block::Waiting, false)) => file.blocks.push((Block::Taken, true)),
                    Some((Block::Taken | Block::Done, false)) => file.blocks.push((Block::Done, true)),
                }
            }
            ".endif" => {
                self.no_arguments(line);
                if file.blocks.pop().is_none() {
                    let message = "lone '.endif' with no matching '.if'.".into();
                    self.alert(line, "stray-block", line.columns(0), message);
                }
            }
            word @ (".alert" | ".warning" | ".notice" | ".diag") if !file.skipped() => self.message(word, line),
            _ if file.skipped() => {}
            other => {
                let known = [".if", ".elif", ".else", ".endif", ".alert", ".warning", ".notice", ".diag"];
                let guess = nearest(other, known).map(|name| format!("; did you mean '{name}' maybe ?"));
                let message = format!("unknown directive '{other}'{}", guess.unwrap_or_default());
                self.alert(line, "unknown-keyword", line.columns(0), message);
            }
        }
    }

    fn no_arguments(&mut self, line: &Line) {
        if line.words.len() > 1 {
            let message = format!("Unexpected argument '{}' for '{}'.", line.word(1), line.word(0));
            self.alert(line, "extra-argument", line.columns(1), message);
        }
    }

    fn message(&mut self, word: &str, line: &Line) {
        if line.words.len() > 2 {
            let message = format!(
                "Unexpected argument '{}' for '{word}'. Use quotes if the message should contain spaces.",
                line.word(2)
            );
            return self.alert(line, "extra-argument", line.columns(2), message);
        }
        let severity = match word {
            ".alert" => Severity::Alert,
            ".warning" => Severity::Warning,
            ".notice" => Severity::Notice,
            _ if self.diag => Severity::Diag,
            _ => return,
        };
        let mut diagnostic = line.diagnostic(severity, "message", 1, format!("'{}'.", line.word(1)));
        diagnostic.columns = None;
        self.report.add(diagnostic);
    }

    /// The condition of an `.if` or `.elif`. One that cannot be read counts as false.
    fn judge(&mut self, file: &FileState, line: &Line) -> Block {
        let text = line.texts().skip(1).collect::<Vec<_>>().join(" ");
        match condition::evaluate(&text, &|name| self.variable(file, line.number, name).is_some()) {
            Ok(true) => Block::Taken,
            Ok(false) => Block::Waiting,
            Err(message) => {
                let at = line.columns(1).start..line.columns(line.words.len() - 1).end;
                self.alert(line, "bad-condition", at, format!("{message} in '{}'", line.word(0)));
                Block::Waiting
            }
        }
    }
}

/// Where bytes of a line are in its text, in which each sequence that is no UTF-8 is replaced by a character of three bytes.
fn shown_at(bytes: &[u8], at: Range<usize>) -> Range<usize> {
    if std::str::from_utf8(bytes).is_ok() {
        return at;
    }
    let length = |end: usize| String::from_utf8_lossy(&bytes[..end.min(bytes.len())]).len();
    length(at.start)..length(at.end)
}

/// One open `.if`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Block {
    /// The lines count.
    Taken,
    /// They do not, but a later branch may.
    Waiting,
    /// A branch was taken before, or the whole block is inside one that is skipped.
    Done,
}

struct FileState {
    name: Arc<str>,
    /// All of it, if it is UTF-8, and where its next line begins.
    text: Option<Arc<str>>,
    at: usize,
    /// Open blocks and whether their `.else` was seen.
    blocks: Vec<(Block, bool)>,
    /// The current section. Each file begins outside of any.
    section: Option<usize>,
    /// The words of a line that was not cut yet.
    none: Arc<[Token]>,
}

impl FileState {
    fn skipped(&self) -> bool {
        self.blocks.iter().any(|(block, _)| *block != Block::Taken)
    }

    /// The next line, without its words.
    fn place(&mut self, number: u32, bytes: &[u8]) -> Line {
        let begin = self.at;
        self.at += bytes.len() + 1;
        let shown = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let (content, at) = match &self.text {
            Some(text) => (text.clone(), begin..begin + shown.len()),
            None => {
                let own: Arc<str> = String::from_utf8_lossy(shown).into();
                let end = own.len();
                (own, 0..end)
            }
        };
        let at = if at.len() > MAX_LINE_BYTES { 0..0 } else { at };
        Line {
            file: self.name.clone(),
            number,
            content,
            at: (at.start as u32, at.end as u32),
            words: self.none.clone(),
        }
    }
}
