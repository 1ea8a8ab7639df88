//! Captures: parts of messages that are kept for the log line (configuration manual, `capture`, `declare capture`).

use std::ops::Range;

use baton_http::{FieldsView, Name};
use baton_model::{Proxy, Rule, Ruleset, Source};

use crate::problem::{LocatedError, RuleError};

/// What a frontend captures.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct CaptureSlots {
    /// Slots of the request and of the response.
    pub slots: [Vec<Slot>; 2],
    /// `capture cookie`: how its text begins, and the longest part that is kept.
    pub cookie: Option<(Box<[u8]>, usize)>,
}

/// A slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    /// The header that it is filled from; `None`: by rules.
    pub header: Option<Box<[u8]>>,
    /// The most bytes it takes.
    pub len: usize,
}

/// Of which message a capture is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CaptureSide {
    /// The request.
    Request,
    /// The response.
    Response,
}

/// What was captured of one exchange. Without slots it holds no memory.
#[derive(Debug, Default, PartialEq)]
pub struct Captures {
    slots: [Vec<Filled>; 2],
    cookies: [Option<Range<usize>>; 2],
    bytes: Vec<u8>,
}

/// What was captured of one exchange, as values on their own: for another process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CapturedValues {
    /// The slots of the request and of the response: the most bytes that each takes, and what is in it.
    pub slots: [Vec<(usize, Option<Vec<u8>>)>; 2],
    /// The cookies of the request and of the response.
    pub cookies: [Option<Vec<u8>>; 2],
}

/// A slot of an exchange.
#[derive(Clone, Debug, PartialEq)]
struct Filled {
    /// The most bytes it takes.
    len: usize,
    /// Where they are.
    room: Range<usize>,
    /// How many there are; `None`: nothing was captured.
    used: Option<usize>,
}

impl Filled {
    fn range(&self) -> Option<Range<usize>> {
        self.used.map(|used| self.room.start..self.room.start + used)
    }
}

/// More bytes than these are not kept for the next exchange.
const BYTES_KEPT_MAX: usize = 4096;

impl CaptureSlots {
    /// Whether nothing is captured.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Vec::is_empty) && self.cookie.is_none()
    }

    /// Fills the slots of one side from the fields of its message. Those of the request come first.
    pub fn fill(&self, side: CaptureSide, fields: FieldsView<'_>, captures: &mut Captures) {
        // Rules may have captured already, before the connection was served as HTTP.
        if side == CaptureSide::Request && captures.slots.iter().all(Vec::is_empty) {
            captures.begin(self);
        }
        for (index, slot) in self.slots[side as usize].iter().enumerate() {
            if let Some(field) = slot.header.as_deref().and_then(|name| fields.all(name).last()) {
                captures.set(side, index, field.value);
            }
        }
    }

    /// Captures the cookie of one side from the fields of its message.
    pub fn fill_cookie(&self, side: CaptureSide, fields: FieldsView<'_>, captures: &mut Captures) {
        let Some((name, len)) = &self.cookie else { return };
        let header = match side {
            CaptureSide::Request => Name::Cookie,
            CaptureSide::Response => Name::SetCookie,
        };
        let found = fields.all_known(header).find_map(|field| {
            let mut cookies = field.value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            match side {
                CaptureSide::Request => cookies.find(|cookie| cookie.starts_with(name)),
                // What follows are the cookie's attributes.
                CaptureSide::Response => cookies.next().filter(|cookie| cookie.starts_with(name)),
            }
        });
        if let Some(cookie) = found {
            captures.cookies[side as usize] = Some(captures.keep(&cookie[..cookie.len().min(*len)]));
        }
    }
}

impl Captures {
    /// Nothing is captured yet of a new exchange.
    pub(crate) fn begin(&mut self, slots: &CaptureSlots) {
        self.clear();
        for (mine, theirs) in self.slots.iter_mut().zip(&slots.slots) {
            mine.extend(theirs.iter().map(|slot| Filled { len: slot.len, room: 0..0, used: None }));
        }
    }

    /// What was captured, on its own.
    pub fn values(&self) -> CapturedValues {
        let slots = [CaptureSide::Request, CaptureSide::Response].map(|side| {
            let lens = self.slots[side as usize].iter().map(|slot| slot.len);
            lens.zip(self.all(side).map(|value| value.map(<[u8]>::to_vec))).collect()
        });
        let cookies = [CaptureSide::Request, CaptureSide::Response].map(|side| self.cookie(side).map(<[u8]>::to_vec));
        CapturedValues { slots, cookies }
    }

    /// Goes on with what was captured in another process.
    pub fn resumed(values: CapturedValues) -> Captures {
        let mut captures = Captures::default();
        for (side, slots) in [CaptureSide::Request, CaptureSide::Response].into_iter().zip(values.slots) {
            for (index, (len, value)) in slots.into_iter().enumerate() {
                captures.slots[side as usize].push(Filled { len, room: 0..0, used: None });
                if let Some(value) = value {
                    captures.set(side, index, &value);
                }
            }
        }
        captures.cookies = values.cookies.map(|cookie| cookie.map(|cookie| captures.keep(&cookie)));
        captures
    }

    /// Forgets all, and keeps the memory for another exchange.
    pub fn clear(&mut self) {
        self.slots.iter_mut().for_each(Vec::clear);
        self.cookies = [const { None }; 2];
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT_MAX);
    }

    fn keep(&mut self, value: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        start..self.bytes.len()
    }

    /// Fills a slot, as far as it has room, or again: rules that wait for data capture the same many times. One that does not exist
    /// takes nothing.
    pub fn set(&mut self, side: CaptureSide, index: usize, value: &[u8]) {
        let Some(slot) = self.slots[side as usize].get_mut(index) else { return };
        let value = &value[..value.len().min(slot.len)];
        if value.len() > slot.room.len() {
            let room = if slot.room.is_empty() { value.len() } else { (2 * value.len()).min(slot.len) };
            let start = self.bytes.len();
            slot.room = start..start + room;
            self.bytes.resize(slot.room.end, 0);
        }
        self.bytes[slot.room.start..][..value.len()].copy_from_slice(value);
        slot.used = Some(value.len());
    }

    /// What was captured in a slot.
    pub fn get(&self, side: CaptureSide, index: usize) -> Option<&[u8]> {
        let range = self.slots[side as usize].get(index)?.range()?;
        self.bytes.get(range)
    }

    /// What was captured in all slots of a side, in order.
    pub fn all(&self, side: CaptureSide) -> impl ExactSizeIterator<Item = Option<&[u8]>> {
        self.slots[side as usize].iter().map(|slot| self.bytes.get(slot.range()?))
    }

    /// The cookie captured.
    pub fn cookie(&self, side: CaptureSide) -> Option<&[u8]> {
        self.bytes.get(self.cookies[side as usize].clone()?)
    }
}

/// The lines of a proxy that make slots, in the order of the file: that of their numbers.
#[derive(Debug, Default)]
pub(crate) struct SlotLines {
    lines: Vec<SlotLine>,
    cookie: Option<(Box<[u8]>, usize)>,
    is_frontend: bool,
}

#[derive(Debug)]
struct SlotLine {
    source: Source,
    side: CaptureSide,
    slot: Slot,
}

impl SlotLines {
    /// Those of a proxy: `capture`, `declare capture`, and rules `capture … len N`. What is wrong about a line is found later, when it is
    /// judged or compiled.
    pub fn of(proxy: &Proxy) -> SlotLines {
        let mut all = SlotLines { is_frontend: proxy.role.is_frontend(), ..SlotLines::default() };
        for line in proxy.rules(Ruleset::Capture) {
            match capture_line(line) {
                Ok(CaptureLine::Slot(side, slot)) => all.add(line, side, slot),
                Ok(CaptureLine::Cookie(name, len)) => all.cookie = Some((name, len)),
                Err(_) => {}
            }
        }
        let sets = [(Ruleset::TcpContent, CaptureSide::Request), (Ruleset::HttpRequest, CaptureSide::Request)];
        for (set, side) in if all.is_frontend { &sets[..] } else { &[] } {
            for line in proxy.rules(*set) {
                if let Some(len) = rule_len(&line.words) {
                    all.add(line, *side, Slot { header: None, len });
                }
            }
        }
        // What is inherited of a `defaults` section, which may stand in another file, comes first.
        all.lines.sort_by_key(|line| (line.source.file == proxy.source.file, line.source.line));
        all
    }

    fn add(&mut self, line: &Rule, side: CaptureSide, slot: Slot) {
        self.lines.push(SlotLine { source: line.source.clone(), side, slot });
    }

    /// Whether a `capture` line is valid.
    pub fn judge(&self, line: &Rule) -> Result<(), LocatedError> {
        capture_line(line).map(drop)
    }

    /// The slots.
    pub fn slots(&self) -> CaptureSlots {
        let of = |side| self.lines.iter().filter(move |line| line.side == side).map(|line| line.slot.clone()).collect();
        CaptureSlots { slots: [of(CaptureSide::Request), of(CaptureSide::Response)], cookie: self.cookie.clone() }
    }

    /// The number of the slot that the rule at `source` made.
    pub fn made_at(&self, source: &Source, side: CaptureSide) -> Option<usize> {
        // Sources are all equal to each other: what counts is where they are.
        let is_there = |line: &SlotLine| line.source.line == source.line && line.source.file == source.file;
        self.lines.iter().filter(|line| line.side == side).position(is_there)
    }

    /// Whether a rule may name this slot: one of a backend fills those of the frontend that it is used by.
    pub fn has(&self, side: CaptureSide, index: usize) -> bool {
        !self.is_frontend || index < self.lines.iter().filter(|line| line.side == side).count()
    }

    /// Whether slots can be made here.
    pub fn is_frontend(&self) -> bool {
        self.is_frontend
    }
}

/// A valid `capture` line.
enum CaptureLine {
    Slot(CaptureSide, Slot),
    Cookie(Box<[u8]>, usize),
}

/// `cookie NAME len N`, `request|response header NAME len N`, `declare request|response len N`.
fn capture_line(line: &Rule) -> Result<CaptureLine, LocatedError> {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let usage = |text: &str, at: usize| Err(RuleError::new(text).at(at));
    let side = |word: &str| match word {
        "request" => Some(CaptureSide::Request),
        _ => (word == "response").then_some(CaptureSide::Response),
    };
    match words[..] {
        ["declare", _, "len", "0"] => usage("length must be > 0", 3),
        ["declare", word, "len", len] if side(word).is_some() => {
            let slot = Slot { header: None, len: length(len, 3)? };
            Ok(CaptureLine::Slot(side(word).unwrap_or(CaptureSide::Request), slot))
        }
        ["declare", ..] => {
            usage("'declare capture' requires a direction ('request' or 'response'), 'len' and a length", 1)
        }
        ["cookie", name, "len", len] => Ok(CaptureLine::Cookie(name.as_bytes().into(), length(len, 3)?)),
        ["cookie", ..] => usage("'capture' expects 'cookie' <cookie_name> 'len' <len>.", 1),
        [word, "header", name, "len", len] => {
            let slot = Slot { header: Some(name.as_bytes().into()), len: length(len, 4)? };
            Ok(CaptureLine::Slot(side(word).unwrap_or(CaptureSide::Request), slot))
        }
        [word, ..] => usage(&format!("'capture {word}' expects 'header' <header_name> 'len' <len>."), 1),
        [] => usage("'capture' needs arguments", 0),
    }
}

fn length(text: &str, at: usize) -> Result<usize, LocatedError> {
    match text.parse() {
        Err(_) => Err(RuleError::new(format!("'{text}' is not a length")).at(at)),
        Ok(len) => Ok(len),
    }
}

/// The `len` of a rule `capture EXPRESSION len N`.
fn rule_len(words: &[String]) -> Option<usize> {
    let ("capture", rest) = (words.first()?.as_str(), &words[1..]) else { return None };
    let at = (1..rest.len()).find(|&at| rest[at] == "len" && !rest[at - 1].ends_with(','))?;
    rest.get(at + 1)?.parse().ok().filter(|len| *len > 0)
}

#[cfg(test)]
mod tests {
    use baton_model::Role;

    use super::*;

    #[test]
    fn rules_of_two_files_fill_their_own_slots() {
        let mut proxy = Proxy::new("f", Role::Frontend);
        proxy.source = Source { file: "second.cfg".into(), line: 1 };
        let place = |file: &str, line| Source { file: file.into(), line };
        let rule = |file, line, len: &str| Rule {
            words: ["capture", "path", "len", len].map(str::to_owned).to_vec(),
            source: place(file, line),
            ruleset: Ruleset::HttpRequest,
        };
        let lines = vec![rule("first.cfg", 7, "7"), rule("second.cfg", 3, "3"), rule("second.cfg", 7, "8")];
        proxy.rules.insert(Ruleset::HttpRequest, lines);
        let slots = SlotLines::of(&proxy);
        let lens: Vec<usize> = slots.slots().slots[0].iter().map(|slot| slot.len).collect();
        assert_eq!(lens, [7, 3, 8]);
        let made = |file, line| slots.made_at(&place(file, line), CaptureSide::Request);
        let all = [made("first.cfg", 7), made("second.cfg", 3), made("second.cfg", 7), made("first.cfg", 3)];
        assert_eq!(all, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn what_was_captured_goes_on_elsewhere() {
        let slot = |len| Slot { header: None, len };
        let slots = CaptureSlots { slots: [vec![slot(4), slot(9)], vec![slot(3)]], cookie: None };
        let mut captures = Captures::default();
        captures.begin(&slots);
        captures.set(CaptureSide::Request, 1, b"second");
        captures.set(CaptureSide::Response, 0, b"");
        captures.cookies[1] = Some(captures.keep(b"a=b"));
        let mut resumed = Captures::resumed(captures.values());
        assert_eq!(resumed.values(), captures.values());
        assert_eq!(resumed.get(CaptureSide::Request, 0), None);
        assert_eq!(resumed.get(CaptureSide::Response, 0), Some(&b""[..]));
        resumed.set(CaptureSide::Request, 0, b"longer");
        assert_eq!(resumed.get(CaptureSide::Request, 0), Some(&b"long"[..]), "as far as it has room");
        assert_eq!(Captures::resumed(CapturedValues::default()), Captures::default());
    }

    #[test]
    fn a_slot_that_is_filled_again_takes_no_more_room() {
        let slot = || Slot { header: None, len: 64 };
        let slots = CaptureSlots { slots: [vec![slot(), slot()], Vec::new()], cookie: None };
        let mut captures = Captures::default();
        captures.begin(&slots);
        for round in 0..10_000 {
            for index in 0..2 {
                let value = vec![b'a' + index as u8; round % 100];
                captures.set(CaptureSide::Request, index, &value);
                let expect = &value[..value.len().min(64)];
                assert_eq!(captures.get(CaptureSide::Request, index), Some(expect));
            }
        }
        assert!(captures.bytes.len() <= 2 * 4 * 64, "{}", captures.bytes.len());
    }
}
