//! The fields of a head, in order: parsed ones as spans of the read buffer, ours in an `added` area.
//!
//! The read buffer is not held but passed in where bytes are needed, so that it can come from a pool. Removing marks a
//! field, adding appends one; nothing moves, and an index stays valid until [`Headers::clear`].

use crate::name::Name;
use crate::scan::is_blank;
use crate::span::{Span, Text};

/// One field of a head.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Field<'a> {
    /// Its place among all fields, for [`Headers::remove_at`] and [`Headers::replace_value`].
    pub index: usize,
    /// The known name, or [`Name::Other`].
    pub id: Name,
    /// The name as received (any case).
    pub name: &'a [u8],
    /// The whole value, without blanks at its ends.
    pub value: &'a [u8],
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
struct Slot {
    name: Text,
    value: Text,
    id: Name,
    removed: bool,
}

/// Ordered header fields (or trailer fields). Reuse one for many heads: it keeps its memory.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct Headers {
    slots: Vec<Slot>,
    added: Vec<u8>,
    /// The known names that were ever put in; a missing bit says that there is no such field.
    seen: u64,
    /// Up to which byte of the read buffer the last field was unfolded.
    unfolded_to: usize,
}

impl Headers {
    /// No fields.
    pub fn new() -> Headers {
        Headers::default()
    }

    /// Forgets all fields and added bytes, keeps the memory.
    pub fn clear(&mut self) {
        let Headers { slots, added, seen, unfolded_to } = self;
        slots.clear();
        added.clear();
        *seen = 0;
        *unfolded_to = 0;
    }

    /// The area that holds the bytes of [`Text::Added`].
    pub fn added(&self) -> &[u8] {
        &self.added
    }

    /// The bytes of `text`, which must belong to the same head.
    #[inline]
    pub fn text<'a>(&'a self, buf: &'a [u8], text: Text) -> &'a [u8] {
        text.of(buf, &self.added)
    }

    /// Number of fields that are not removed.
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.removed).count()
    }

    /// Bytes of all names and values.
    pub fn bytes(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.removed).map(|slot| slot.name.len() + slot.value.len()).sum()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.removed)
    }

    /// All fields in order.
    pub fn iter<'a>(&'a self, buf: &'a [u8]) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        self.slots.iter().enumerate().filter(|(_, slot)| !slot.removed).map(move |(index, slot)| Field {
            index,
            id: slot.id,
            name: slot.name.of(buf, &self.added),
            value: slot.value.of(buf, &self.added),
        })
    }

    /// The fields called `name` (any case), in order.
    pub fn all<'a>(&'a self, buf: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        let id = Name::of(name);
        let slots = if self.may_have(id) { &self.slots[..] } else { &[] };
        slots.iter().enumerate().filter(move |(_, slot)| !slot.removed && slot.id == id).filter_map(
            move |(index, slot)| {
                let found = slot.name.of(buf, &self.added);
                (id != Name::Other || found.eq_ignore_ascii_case(name)).then(|| Field {
                    index,
                    id,
                    name: found,
                    value: slot.value.of(buf, &self.added),
                })
            },
        )
    }

    /// The first field called `name` (any case).
    pub fn find<'a>(&'a self, buf: &'a [u8], name: &'a [u8]) -> Option<Field<'a>> {
        self.all(buf, name).next()
    }

    /// The fields with the known name `id`, in order. [`Name::Other`] gives all fields with unknown names.
    pub fn all_known<'a>(&'a self, buf: &'a [u8], id: Name) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        let slots = if self.may_have(id) { &self.slots[..] } else { &[] };
        slots.iter().enumerate().filter(move |(_, slot)| !slot.removed && slot.id == id).map(move |(index, slot)| {
            Field { index, id, name: slot.name.of(buf, &self.added), value: slot.value.of(buf, &self.added) }
        })
    }

    /// The first field with the known name `id`; costs one test of a bit when there is none.
    #[inline]
    pub fn known<'a>(&'a self, buf: &'a [u8], id: Name) -> Option<Field<'a>> {
        self.all_known(buf, id).next()
    }

    /// The full-line values of the fields called `name`, in order (HAProxy's `fhdr`).
    pub fn lines<'a>(&'a self, buf: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        self.all(buf, name).map(|field| field.value)
    }

    /// The comma-separated values of the fields called `name`, in order (HAProxy's `hdr`); see [`values()`](crate::values()).
    pub fn values<'a>(&'a self, buf: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        self.all(buf, name).flat_map(|field| crate::values::values(field.value))
    }

    /// Appends a field. The bytes are copied as they are: the caller answers for their being a token and a value
    /// without CR, LF and NUL.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let id = Name::of(name);
        let name = self.keep(name);
        let value = self.keep(value);
        self.push(id, name, value);
    }

    /// Removes all fields called `name`; returns how many there were.
    pub fn remove(&mut self, buf: &[u8], name: &[u8]) -> usize {
        let id = Name::of(name);
        if id != Name::Other {
            return self.remove_known(id);
        }
        let added = &self.added;
        let mut removed = 0;
        for slot in self.slots.iter_mut().filter(|slot| !slot.removed && slot.id == id) {
            if slot.name.of(buf, added).eq_ignore_ascii_case(name) {
                slot.removed = true;
                removed += 1;
            }
        }
        removed
    }

    /// Removes all fields with the known name `id`; returns how many there were.
    pub fn remove_known(&mut self, id: Name) -> usize {
        let mut removed = 0;
        if self.may_have(id) {
            for slot in self.slots.iter_mut().filter(|slot| !slot.removed && slot.id == id) {
                slot.removed = true;
                removed += 1;
            }
        }
        removed
    }

    /// Removes all fields called `name` and appends one, like HAProxy's `set-header`.
    pub fn set(&mut self, buf: &[u8], name: &[u8], value: &[u8]) {
        self.remove(buf, name);
        self.add(name, value);
    }

    /// Removes the field at `index`. An index that is not one of a field does nothing.
    pub fn remove_at(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.removed = true;
        }
    }

    /// Changes the value of the field at `index` in its place.
    pub fn replace_value(&mut self, index: usize, value: &[u8]) {
        let value = self.keep(value);
        self.set_value(index, value);
    }

    /// Appends `name: value\r\n` for each field to `out`, names in lower case as HAProxy 2.6 forwards them.
    pub fn write(&self, buf: &[u8], out: &mut Vec<u8>) {
        for slot in &self.slots {
            if slot.removed {
                continue;
            }
            if slot.id == Name::Other {
                let start = out.len();
                out.extend_from_slice(slot.name.of(buf, &self.added));
                out[start..].make_ascii_lowercase();
            } else {
                out.extend_from_slice(slot.id.text().as_bytes());
            }
            if let (Text::Read(name), Text::Read(value)) = (slot.name, slot.value)
                && let Some(rest) = plain_rest(buf, name, value)
            {
                out.extend_from_slice(rest);
                continue;
            }
            out.extend_from_slice(b": ");
            out.extend_from_slice(slot.value.of(buf, &self.added));
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Whether a field with this name was ever put in. Never false for a field that is there.
    #[inline]
    pub(crate) fn may_have(&self, id: Name) -> bool {
        self.seen & id.bit() != 0
    }

    /// Number of fields, removed ones included.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The name and value at `index`, unless removed or out of range.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> Option<(Name, Text)> {
        self.slots.get(index).filter(|slot| !slot.removed).map(|slot| (slot.id, slot.value))
    }

    #[inline]
    pub(crate) fn set_value(&mut self, index: usize, value: Text) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.value = value;
        }
    }

    /// Where the name of the field at `index` starts in the read buffer; 0 for an added one.
    pub(crate) fn offset(&self, index: usize) -> usize {
        match self.slots.get(index).map(|slot| slot.name) {
            Some(Text::Read(span)) => span.start as usize,
            _ => 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, id: Name, name: Text, value: Text) {
        self.seen |= id.bit();
        self.slots.push(Slot { name, value, id, removed: false });
    }

    /// Copies `bytes` into the added area.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Text {
        let start = self.added.len();
        self.added.extend_from_slice(bytes);
        Text::Added(Span::new(start, self.added.len()))
    }

    /// Copies `text` to the end of the added area.
    pub(crate) fn append(&mut self, buf: &[u8], text: Text) {
        match text {
            Text::Read(span) => self.added.extend_from_slice(span.of(buf)),
            Text::Added(span) => {
                if span.end as usize <= self.added.len() {
                    self.added.extend_from_within(span.start as usize..span.end as usize);
                }
            }
        }
    }

    /// All that was added since the area was `start` bytes long.
    pub(crate) fn added_since(&self, start: usize) -> Text {
        Text::Added(Span::new(start, self.added.len()))
    }

    /// Appends a continuation line, which ends at `end` of `buf`, to the last field: each CR and LF between becomes a
    /// space, as in HAProxy 2.6. False when there is no field before. Each byte is copied once, however many lines.
    pub(crate) fn unfold(&mut self, buf: &[u8], end: usize) -> bool {
        let Some(slot) = self.slots.last_mut() else {
            return false;
        };
        let copied = self.added.len();
        let (from, mut span) = match slot.value {
            Text::Read(span) => (span.start as usize, Span::new(copied, copied)),
            Text::Added(span) => (self.unfolded_to, span),
        };
        let raw = &buf[from..end];
        self.added.extend(raw.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        let new = &self.added[copied..];
        if let Some(first) = new.iter().position(|&byte| !is_blank(byte)) {
            let last = new.iter().rposition(|&byte| !is_blank(byte)).unwrap_or(first);
            let start = if span.is_empty() { copied + first } else { span.start as usize };
            span = Span::new(start, copied + last + 1);
        }
        slot.value = Text::Added(span);
        self.unfolded_to = end;
        true
    }
}

/// What follows a field's name, line end included, if it came as we would write it: one copy instead of three.
#[inline]
fn plain_rest(buf: &[u8], name: Span, value: Span) -> Option<&[u8]> {
    let rest = buf.get(name.end as usize..value.end as usize + 2)?;
    (value.start == name.end + 2 && rest.starts_with(b": ") && rest.ends_with(b"\r\n")).then_some(rest)
}
