//! Commands about maps and the patterns of ACLs (management guide, 9.3): `show`, `get`, `add`, `set`, `del`, `clear`, `prepare`, `commit`.
//! A reference is named by its file or by `#` and its number, an entry by its key or by `#` and its own number, which `show` lists.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use baton_rules::{PatternChange, Reference};

use super::altering::{Altering, Staging};
use super::{Begun, Pieces};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, ChangeLine};

/// Entries of one piece of a listing.
const ENTRIES_PER_PIECE: usize = 512;

const UNKNOWN_MAP: &str = "Unknown map identifier. Please use #<id> or <file>.";
const UNKNOWN_ACL: &str = "Unknown ACL identifier. Please use #<id> or <file>.";
const ADD_MAP: &str = "'add map' expects three parameters (map identifier, key and value) or one parameter (map identifier) and a payload";
const ADD_ACL: &str = "'add acl' expects two parameters: ACL identifier and pattern.";

type Altered = Result<Altering, CommandResponse>;

/// `show map`, `show acl`: all references, or the entries of one.
pub(super) fn show(control: &Control, call: &Call) -> Begun {
    let (version, at) = version(call);
    if call.arg(at).is_empty() && version.is_none() {
        let references = control.line.references().list().into_iter().filter(|one| fits(one, call)).collect();
        return Ok(Box::new(ReferenceListing { head: Some("# id (file) description\n".into()), references }));
    }
    let reference = named(&control.line, call, call.arg(at))?;
    Ok(Box::new(EntryListing { reference, version, after: 0 }))
}

/// `get map`, `get acl`: what matches a value.
pub(super) fn get(control: &Control, call: &Call) -> CommandResponse {
    if call.arg(1).is_empty() {
        return CommandResponse::error(format!("Missing {} identifier and/or key.", kind(call)));
    }
    let Some(reference) = find(&control.line, call.arg(0)) else { return CommandResponse::error(unknown(call)) };
    let is_map = call.words[1] == "map";
    let mut out = String::new();
    for found in reference.find(call.arg(1)) {
        let case = if found.ignore_case { "insensitive" } else { "sensitive" };
        // Writing to a string cannot fail.
        let _ = write!(out, "type={}, case={case}, {}=", found.method, if is_map { "found" } else { "match" });
        let Some(entry) = &found.entry else {
            out.push_str("no\n");
            continue;
        };
        let place = if found.in_tree { "tree" } else { "list" };
        let key = String::from_utf8_lossy(entry.key());
        let name = if is_map { "key" } else { "pattern" };
        let _ = write!(out, "yes, idx={place}, {name}=\"{key}\"");
        if is_map {
            let value = String::from_utf8_lossy(entry.value().unwrap_or_default());
            let _ = match found.output {
                None => write!(out, ", value=none"),
                Some("addr") => {
                    let kind = if value.contains(':') { "ipv6" } else { "ipv4" };
                    write!(out, ", value=\"{value}\", type=\"{kind}\"")
                }
                Some(kind) => write!(out, ", value=\"{value}\", type=\"{kind}\""),
            };
        }
        out.push('\n');
    }
    CommandResponse::Data(out)
}

/// `add map`, `add acl`: an entry, or the lines of a payload.
pub(super) fn add(staging: &mut Staging<'_>, call: &Call) -> Altered {
    let is_map = call.words[1] == "map";
    let (version, at) = version(call);
    let (name, key, value) = (call.arg(at), call.arg(at + 1), call.arg(at + 2));
    let usage = || CommandResponse::error(if is_map { ADD_MAP } else { ADD_ACL });
    let entries = match &call.payload {
        None if key.is_empty() || is_map && value.is_empty() => return Err(usage()),
        None => vec![(key.as_bytes().to_vec(), is_map.then(|| value.as_bytes().to_vec()))],
        Some(_) if name.is_empty() || !is_map => return Err(usage()),
        Some(payload) => lines(payload)?,
    };
    let reference = find(staging.line, name).ok_or_else(|| CommandResponse::error(unknown(call)))?;
    if !is_map && reference.is_map() {
        return Err(CommandResponse::error(
            "This ACL is shared with a map containing samples. You must use the command 'add map' to add values.",
        ));
    }
    if version.is_some_and(|version| version > reference.live().versions().1) {
        return Err(CommandResponse::error(format!(
            "Version number in the future, please use 'prepare {}' before.",
            call.words[1]
        )));
    }
    Ok(Change::Patterns(reference, PatternChange::Add { version, entries }).into())
}

/// `set map`: another value.
pub(super) fn set(staging: &mut Staging<'_>, call: &Call) -> Altered {
    if call.arg(2).is_empty() {
        return Err(CommandResponse::error("'set map' expects three parameters: map identifier, key and value."));
    }
    let reference = named(staging.line, call, call.arg(0))?;
    let (key, value) = (call.arg(1), call.arg(2).as_bytes().to_vec());
    let change = match number(key) {
        Some(number) if !has_number(&reference, number) => {
            return Err(CommandResponse::error("key or pattern not found."));
        }
        Some(number) => PatternChange::SetNumber(number, value),
        None if !reference.live().has_key(key.as_bytes()) => return Err(CommandResponse::error("entry not found.")),
        None => PatternChange::Set(key.as_bytes().to_vec(), value),
    };
    Ok(Change::Patterns(reference, change).into())
}

/// `del map`, `del acl`.
pub(super) fn delete(staging: &mut Staging<'_>, call: &Call) -> Altered {
    let kind = kind(call);
    if call.arg(1).is_empty() {
        return Err(CommandResponse::error(format!("This command expects two parameters: {kind} identifier and key.")));
    }
    // So HAProxy says of either.
    let reference = named(staging.line, call, call.arg(0)).map_err(|_| CommandResponse::error(UNKNOWN_MAP))?;
    let change = match number(call.arg(1)) {
        Some(number) => PatternChange::DeleteNumber(number),
        None => PatternChange::Delete(call.arg(1).as_bytes().to_vec()),
    };
    Ok(Change::Patterns(reference, change).into())
}

/// `clear map`, `clear acl`.
pub(super) fn clear(staging: &mut Staging<'_>, call: &Call) -> Altered {
    let (version, at) = version(call);
    if call.arg(at).is_empty() {
        return Err(CommandResponse::error(format!("Missing {} identifier.", kind(call))));
    }
    let reference = named(staging.line, call, call.arg(at))?;
    Ok(Change::Patterns(reference, PatternChange::Clear(version)).into())
}

/// `prepare map`, `prepare acl`.
pub(super) fn prepare(staging: &mut Staging<'_>, call: &Call) -> Altered {
    let reference = named(staging.line, call, call.arg(0))?;
    Ok(Change::Patterns(reference, PatternChange::Prepare).into())
}

/// `commit map`, `commit acl`.
pub(super) fn commit(staging: &mut Staging<'_>, call: &Call) -> Altered {
    let (Some(version), at) = version(call) else { return Err(CommandResponse::error("Missing version number.")) };
    if call.arg(at).is_empty() {
        return Err(CommandResponse::error(format!("Missing {} identifier.", kind(call))));
    }
    let reference = named(staging.line, call, call.arg(at))?;
    Ok(Change::Patterns(reference, PatternChange::Commit(version)).into())
}

/// The version in front of the reference, and where the reference is. What is no number is version 0, as in HAProxy.
fn version(call: &Call) -> (Option<u32>, usize) {
    match call.arg(0).strip_prefix('@') {
        Some(text) => (Some(text.parse().unwrap_or(0)), 1),
        None => (None, 0),
    }
}

fn kind(call: &Call) -> &'static str {
    if call.words[1] == "map" { "map" } else { "ACL" }
}

fn unknown(call: &Call) -> &'static str {
    if call.words[1] == "map" { UNKNOWN_MAP } else { UNKNOWN_ACL }
}

/// Whether a reference is of the kind that the command is about.
fn fits(reference: &Reference, call: &Call) -> bool {
    if call.words[1] == "map" { reference.is_map() } else { reference.is_acl() }
}

/// The reference of that kind, by its file or `#ID`.
fn named(line: &ChangeLine, call: &Call, name: &str) -> Result<Arc<Reference>, CommandResponse> {
    let found = find(line, name).filter(|reference| fits(reference, call));
    found.ok_or_else(|| CommandResponse::error(unknown(call)))
}

fn find(line: &ChangeLine, name: &str) -> Option<Arc<Reference>> {
    let id = name.strip_prefix('#').and_then(|id| id.parse::<u32>().ok());
    line.references().list().into_iter().find(|one| match id {
        Some(id) => one.id() == id,
        None => !name.is_empty() && one.file() == Some(name),
    })
}

/// `#REF`: the number of an entry.
fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('#')?;
    u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

fn has_number(reference: &Reference, number: u64) -> bool {
    let page = reference.live().page(None, number.saturating_sub(1), 1);
    page.first().is_some_and(|entry| entry.number() == number)
}

/// A key, and its value in a map.
type Line = (Vec<u8>, Option<Vec<u8>>);

/// The lines of a payload as keys with values.
fn lines(payload: &[u8]) -> Result<Vec<Line>, CommandResponse> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let lines = payload.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_start).filter(|line| !line.is_empty());
    lines
        .map(|line| match line.iter().position(is_blank) {
            Some(end) => Ok((line[..end].to_vec(), Some(line[end..].trim_ascii().to_vec()))),
            None => {
                let text = format!("Missing value for key '{}'.", String::from_utf8_lossy(line));
                Err(CommandResponse::error(text))
            }
        })
        .collect()
}

struct ReferenceListing {
    head: Option<String>,
    references: VecDeque<Arc<Reference>>,
}

impl Pieces for ReferenceListing {
    fn next(&mut self, _: &Control) -> Option<String> {
        let mut out = self.head.take().unwrap_or_default();
        for one in self.references.drain(..self.references.len().min(ENTRIES_PER_PIECE)) {
            let (version, last, count) = one.live().versions();
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{} ({}) {}. curr_ver={version} next_ver={last} entry_cnt={count}",
                one.id(),
                one.file().unwrap_or_default(),
                one.description()
            );
        }
        (!out.is_empty()).then_some(out)
    }
}

struct EntryListing {
    reference: Arc<Reference>,
    version: Option<u32>,
    after: u64,
}

impl Pieces for EntryListing {
    fn next(&mut self, _: &Control) -> Option<String> {
        let page = self.reference.live().page(self.version, self.after, ENTRIES_PER_PIECE);
        self.after = page.last()?.number();
        let mut out = String::new();
        for entry in page {
            let _ = write!(out, "0x{:012x} {}", entry.number(), String::from_utf8_lossy(entry.key()));
            if let Some(value) = entry.value() {
                let _ = write!(out, " {}", String::from_utf8_lossy(value));
            }
            out.push('\n');
        }
        Some(out)
    }
}
