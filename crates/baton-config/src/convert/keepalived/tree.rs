//! Words as statements: a line, and the block behind it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::convert::{ConvertError, ConvertNote};

use super::words::KeepalivedToken;

/// How deep blocks may lie in each other. keepalived knows five levels.
const DEPTH_MAX: usize = 16;

/// A line of words, with what stands in brackets behind it. It remembers what was read of it, so that the rest can be reported.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub line: u32,
    /// Never empty.
    words: Vec<String>,
    block: Option<Vec<Statement>>,
    /// The places of the words that were read; the first word needs no entry, for whoever looks at a block reads it or says why not.
    read: RefCell<BTreeSet<usize>>,
    is_block_read: Cell<bool>,
}

impl Statement {
    /// A word, or nothing where there is none.
    pub fn word(&self, index: usize) -> &str {
        if index > 0 {
            self.read.borrow_mut().insert(index);
        }
        self.words.get(index).map(String::as_str).unwrap_or_default()
    }

    /// What is in its block.
    pub fn inside(&self) -> &[Statement] {
        self.is_block_read.set(true);
        self.block.as_deref().unwrap_or_default()
    }

    /// As people call it; an empty word is a pair of quotes.
    pub fn text(&self) -> String {
        let words = self.words.iter().map(|word| if word.is_empty() { "\"\"" } else { word });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The words behind the first one.
    pub fn value(&self) -> String {
        self.rest(1).join(" ")
    }

    /// The words from this place on.
    pub fn rest(&self, from: usize) -> &[String] {
        self.read.borrow_mut().extend(from..self.words.len());
        self.words.get(from..).unwrap_or_default()
    }

    /// Reports what nobody has read of this statement and of those in its block, unless it is on a line that was reported already.
    pub fn report_unread(&self, reported: &BTreeSet<u32>, remarks: &mut Vec<ConvertNote>) {
        if reported.contains(&self.line) {
            return;
        }
        let read = self.read.borrow();
        let unread: Vec<&str> =
            (1..self.words.len()).filter(|place| !read.contains(place)).map(|place| &*self.words[place]).collect();
        if !unread.is_empty() {
            let why = format!("not read: unknown keyword `{}` here", super::super::shown(&unread.join(" ")));
            remarks.push(ConvertNote::new(self.line, &self.text(), why));
        }
        match &self.block {
            Some(block) if !self.is_block_read.get() && !block.is_empty() => {
                remarks.push(ConvertNote::new(self.line, &self.text(), "not read: unexpected block here"));
            }
            block => {
                let repeated = report_repeated(block.as_deref().unwrap_or_default(), reported, remarks);
                let rest = block.iter().flatten().filter(|inner| !repeated.contains(&inner.line));
                rest.for_each(|inner| inner.report_unread(reported, remarks));
            }
        }
    }
}

/// Puts blocks into their statements.
pub(super) fn build(lines: Vec<(u32, Vec<KeepalivedToken>)>) -> Result<Vec<Statement>, ConvertError> {
    // Blocks that are open, the file itself first.
    let mut open: Vec<Vec<Statement>> = vec![Vec::new()];
    let mut last_line = 0;
    for (line, tokens) in lines {
        last_line = line;
        let mut words = Vec::new();
        for token in tokens {
            match token {
                KeepalivedToken::Word(word) => words.push(word),
                KeepalivedToken::Open => {
                    end(&mut open, line, &mut words);
                    let is_free = open.last().and_then(|block| block.last()).is_some_and(|last| last.block.is_none());
                    if !is_free {
                        return Err(ConvertError::at(line, "a block begins here without a keyword"));
                    }
                    if open.len() > DEPTH_MAX {
                        return Err(ConvertError::at(
                            line,
                            format!("blocks are nested deeper than {DEPTH_MAX} levels"),
                        ));
                    }
                    open.push(Vec::new());
                }
                KeepalivedToken::Close => {
                    end(&mut open, line, &mut words);
                    close(&mut open, line)?;
                }
            }
        }
        end(&mut open, line, &mut words);
    }
    if open.len() > 1 {
        let begun = open.get(open.len() - 2).and_then(|block| block.last());
        let (line, what) = begun.map_or((last_line, String::new()), |begun| (begun.line, begun.text()));
        return Err(ConvertError::at(
            line,
            format!("the block of `{}` is not closed (`}}`)", super::super::shown(&what)),
        ));
    }
    Ok(open.pop().unwrap_or_default())
}

/// A statement ends with its line and at a bracket.
fn end(open: &mut [Vec<Statement>], line: u32, words: &mut Vec<String>) {
    let words = std::mem::take(words);
    if let (Some(block), false) = (open.last_mut(), words.is_empty()) {
        block.push(Statement { line, words, ..Statement::default() });
    }
}

fn close(open: &mut Vec<Vec<Statement>>, line: u32) -> Result<(), ConvertError> {
    let block = open.pop().unwrap_or_default();
    match open.last_mut().and_then(|block| block.last_mut()) {
        Some(statement) => {
            statement.block = Some(block);
            Ok(())
        }
        None => Err(ConvertError::at(line, "a block is closed here (`}`) but none is open")),
    }
}

/// Of several lines of a block that say the same thing, the last one counts; the others are reported. Gives their numbers.
fn report_repeated(block: &[Statement], reported: &BTreeSet<u32>, remarks: &mut Vec<ConvertNote>) -> BTreeSet<u32> {
    let mut repeated = BTreeSet::new();
    for (at, statement) in block.iter().enumerate() {
        let word = setting(statement.word(0));
        let Some(word) = word.filter(|_| !reported.contains(&statement.line)) else { continue };
        let again = block[at + 1..].iter().find(|later| setting(later.word(0)) == Some(word));
        if let Some(later) = again {
            let why = format!("not read: repeated in line {}, which counts", later.line);
            remarks.push(ConvertNote::new(statement.line, &statement.text(), why));
            repeated.insert(statement.line);
        }
    }
    repeated
}

/// What a word sets, under one name for all its spellings; `None` for what may stand several times.
fn setting(word: &str) -> Option<&str> {
    Some(match word {
        "lb_algo" => "lvs_sched",
        "lb_kind" => "lvs_method",
        "nb_get_retry" => "retry",
        "lvs_sched"
        | "lvs_method"
        | "retry"
        | "protocol"
        | "ip_family"
        | "sorry_server"
        | "sorry_server_lvs_method"
        | "persistence_timeout"
        | "persistence_granularity"
        | "virtualhost"
        | "snmp_name"
        | "delay_loop"
        | "delay_before_retry"
        | "connect_timeout"
        | "alpha"
        | "weight"
        | "uthreshold"
        | "lthreshold"
        | "connect_ip"
        | "connect_port"
        | "http_protocol"
        | "path"
        | "status_code"
        | "regex" => word,
        _ => return None,
    })
}
