//! Other programs' tables of virtual services as haproxy.cfg: `ipvsadm -S` and keepalived's `virtual_server`.
//!
//! Text in, text out. Each source is read to the same data (`service`), judged there by what the kernel and Baton make of it, and
//! written as sections with `mode direct` (`write`). What has no counterpart is a [`ConvertNote`] with its line and the reason, which is
//! also a comment of the section: nothing is left out without a word. Files that are included are not read, and names are not
//! resolved, for the answer would be another one tomorrow.
//!
//! References: ipvsadm(8), keepalived.conf(5).

mod ipvsadm;
mod keepalived;
mod service;
mod settle;
mod write;

use std::fmt;

use service::Table;

/// Longest input, in bytes.
pub const MAX_CONVERT_BYTES: usize = 8 * 1024 * 1024;

/// Most addresses, marks and real servers of one input, after ranges and groups are written out.
pub const MAX_CONVERT_ENTRIES: usize = 65_536;

/// Whose words the input is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// What `ipvsadm -S` and `ipvsadm-save` write, and `ipvsadm -R` reads.
    Ipvsadm,
    /// `keepalived.conf`.
    Keepalived,
}

/// What became of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// As which it was read.
    pub source: Source,
    /// The text of a configuration file.
    pub config: String,
    /// What was not carried over, or not as it was, in the order of the input.
    pub remarks: Vec<ConvertNote>,
    /// How many sections there are.
    pub sections: usize,
}

/// Something that was not converted, or only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertNote {
    /// The line of the input, from 1.
    pub line: u32,
    /// The words it is about, shortened where they are long.
    pub what: String,
    /// What became of them and why.
    pub why: String,
}

/// Why an input cannot be converted at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertError {
    /// The line, from 1; 0 is the whole input.
    pub line: u32,
    /// What is wrong, and what would help.
    pub message: String,
}

/// Converts an input. `name` is how people call it; `source` is found out when it is not given.
///
/// # Errors
/// Nothing in it can be carried over, it cannot be read as what it is, or it is too large.
pub fn convert(name: &str, text: &[u8], source: Option<Source>) -> Result<Converted, ConvertError> {
    if text.len() > MAX_CONVERT_BYTES {
        return Err(ConvertError::whole(format!("the input is larger than {MAX_CONVERT_BYTES} bytes")));
    }
    let text = String::from_utf8_lossy(text);
    let Some(source) = source.or_else(|| detect(&text)) else {
        let message = "unknown format, neither output of `ipvsadm -Sn` nor a keepalived.conf: use --from ipvsadm or --from \
             keepalived";
        return Err(ConvertError::whole(message));
    };
    let mut table = match source {
        Source::Ipvsadm => ipvsadm::read(&text)?,
        Source::Keepalived => keepalived::read(&text)?,
    };
    settle::settle(&mut table)?;
    if table.services.is_empty() {
        return Err(ConvertError::whole(nothing(&table, source)));
    }
    let config = write::write(name, source, &table);
    let sections = table.services.len();
    let mut remarks = table.remarks;
    remarks.extend(table.services.into_iter().flat_map(|service| service.remarks));
    remarks.sort_by_key(|remark| remark.line);
    Ok(Converted { source, config, remarks, sections })
}

/// Whose words these are, by the first line that says something.
pub fn detect(text: &str) -> Option<Source> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '!']));
    let first = lines.next()?;
    let word = first.split_whitespace().next().unwrap_or_default();
    if word.starts_with('-') || word == "ipvsadm" {
        return Some(Source::Ipvsadm);
    }
    let is_keepalived = first.contains('{') || first.starts_with(['$', '@', '~']) || first.starts_with("include");
    (is_keepalived || lines.any(|line| line.contains('{'))).then_some(Source::Keepalived)
}

/// Why there is nothing to write.
fn nothing(table: &Table, source: Source) -> String {
    let what = match source {
        Source::Ipvsadm => "no virtual service (`-A`)",
        Source::Keepalived => "no virtual_server",
    };
    let first = table.remarks.iter().min_by_key(|remark| remark.line);
    match first {
        Some(remark) => format!("{what} in it can be converted; first reason: {remark}"),
        None => format!("there is {what} in it"),
    }
}

impl Source {
    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Source::Ipvsadm => "ipvsadm",
            Source::Keepalived => "keepalived",
        }
    }
}

impl ConvertNote {
    /// Longest text that is quoted from an input, in characters.
    const QUOTED_MAX: usize = 80;

    fn new(line: u32, what: &str, why: impl Into<String>) -> ConvertNote {
        ConvertNote { line, what: shown(what), why: why.into() }
    }

    /// Whether it says that something was not understood, and not what was decided about it.
    pub fn is_unread(&self) -> bool {
        self.why.starts_with("not read")
    }

    /// Whether the whole line, with the block behind it, is missing in what is written.
    fn is_about_loss(&self) -> bool {
        self.is_unread() || self.why.starts_with("left out")
    }
}

impl fmt::Display for ConvertNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: `{}`: {}", self.line, self.what, self.why)
    }
}

impl ConvertError {
    fn whole(message: impl Into<String>) -> ConvertError {
        ConvertError { line: 0, message: message.into() }
    }

    fn at(line: u32, message: impl Into<String>) -> ConvertError {
        ConvertError { line, message: message.into() }
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for ConvertError {}

/// A text of the input as it may stand in a message and in a comment: one line, of bounded length, nothing that a terminal obeys.
fn shown(text: &str) -> String {
    let mut short: String =
        text.chars().take(ConvertNote::QUOTED_MAX).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if text.chars().nth(ConvertNote::QUOTED_MAX).is_some() {
        short.push('…');
    }
    short
}
