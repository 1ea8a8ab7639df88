//! Fields to field blocks (RFC 7541 6).
//!
//! What both sides know by number costs a byte or two. A field that is likely to come again is added to the table, Huffman-coded; one that
//! is not is sent as it is, which costs the least time.

use serde::{Deserialize, Serialize};

use super::statics::{STATIC, index_of_name, index_of_value};
use super::table::Table;
use super::{ENTRY_OVERHEAD, huffman, integer};

/// The largest table of ours, whatever the peer allows.
const TABLE_SIZE_MAX: usize = 4096;
/// Larger fields than this part of the table are not added: few of them would take the room of all others.
const ENTRY_PART: usize = 4;
/// Longer names are copied before they are lower case; those up to this length lie on the stack.
const NAME_STACK_MAX: usize = 64;

/// What the table makes of a field.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Indexing {
    /// It is added.
    Add,
    /// It is not.
    Without,
    /// It is not, and nobody on the way may do so (RFC 7541 7.1.3).
    Never,
}

/// Encodes the field blocks of one direction of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Encoder {
    table: Table,
    /// The smallest limit since the last block, if the peer changed it (RFC 7541 4.2).
    lowest: Option<usize>,
}

impl Encoder {
    /// An encoder with the initial table size of RFC 9113, 4,096 bytes.
    pub fn new() -> Encoder {
        Encoder { table: Table::new(TABLE_SIZE_MAX), lowest: None }
    }

    /// Whether the state is valid: that of another process need not be.
    pub fn is_sound(&self) -> bool {
        self.table.is_sound()
            && self.table.size_max() <= TABLE_SIZE_MAX
            && self.lowest.is_none_or(|lowest| lowest <= TABLE_SIZE_MAX)
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_limit(&mut self, limit: u32) {
        let limit = (limit as usize).min(TABLE_SIZE_MAX);
        if limit != self.table.size_max() || self.lowest.is_some() {
            self.lowest = Some(self.lowest.unwrap_or(limit).min(limit));
            self.table.set_size_max(limit);
        }
    }

    /// Begins a field block: it comes before the first field of each.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(lowest) = self.lowest.take() {
            let size = self.table.size_max();
            if lowest < size {
                integer::write(lowest, 5, 0x20, out);
            }
            integer::write(size, 5, 0x20, out);
        }
    }

    /// Appends a field, as is best for its name. The name is written in lower case.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if !name.iter().any(u8::is_ascii_uppercase) {
            return self.lower(name, value, indexing(name, value), out);
        }
        let mut short = [0; NAME_STACK_MAX];
        match short.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                self.lower(lower, value, indexing(lower, value), out);
            }
            None => {
                let lower = name.to_ascii_lowercase();
                self.lower(&lower, value, indexing(&lower, value), out);
            }
        }
    }

    /// Appends a field, whose name is in lower case, as it is wanted.
    pub fn lower(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let first = index_of_name(name);
        if first != 0 {
            let whole = index_of_value(first, value);
            if whole != 0 {
                return integer::write(whole, 7, 0x80, out);
            }
        }
        match indexing {
            Indexing::Add => {
                let hash = hash(name, value);
                if let Some(at) = self.table.find(hash, name, value) {
                    return integer::write(STATIC.len() + 1 + at, 7, 0x80, out);
                }
                let len = name.len() + value.len();
                if len + ENTRY_OVERHEAD > self.table.size_max() / ENTRY_PART {
                    return self.literal(first, name, value, 4, 0x00, out);
                }
                self.literal(first, name, value, 6, 0x40, out);
                let start = out.len();
                out.extend_from_slice(name);
                out.extend_from_slice(value);
                self.table.insert(&out[start..], name.len(), hash);
                out.truncate(start);
            }
            Indexing::Without => self.literal(first, name, value, 4, 0x00, out),
            Indexing::Never => self.literal(first, name, value, 4, 0x10, out),
        }
    }

    /// `:status`, of which the table has the usual ones.
    #[inline]
    pub(crate) fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
                return self.lower(b":status", &digits, Indexing::Add, out);
            }
        };
        out.push(0x80 | index);
    }

    /// Bytes of the table, as RFC 7541 4.1 counts them.
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// Gives back memory that an idle connection has no use for.
    pub fn shrink(&mut self) {
        self.table.shrink();
    }

    fn literal(&mut self, index: usize, name: &[u8], value: &[u8], bits: u32, pattern: u8, out: &mut Vec<u8>) {
        let is_added = pattern == 0x40;
        let index = match index {
            0 => self.table.find_name(name).map_or(0, |at| STATIC.len() + 1 + at),
            index => index,
        };
        integer::write(index, bits, pattern, out);
        if index == 0 {
            string(name, is_added, out);
        }
        string(value, is_added, out);
    }
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

fn string(text: &[u8], is_coded: bool, out: &mut Vec<u8>) {
    if is_coded {
        let len = huffman::encoded_len(text);
        if len < text.len() {
            integer::write(len, 7, 0x80, out);
            return huffman::encode(text, out);
        }
    }
    integer::write(text.len(), 7, 0x00, out);
    out.extend_from_slice(text);
}

/// What is best for a field: values that differ with each message are not worth an entry, and short secrets must not be guessed by their
/// size (RFC 7541 7.1).
#[inline]
fn indexing(name: &[u8], value: &[u8]) -> Indexing {
    match name {
        b"authorization" | b"proxy-authorization" => Indexing::Never,
        b"cookie" | b"set-cookie" if value.len() < SECRET_SHORT => Indexing::Never,
        b":path" | b"age" | b"content-length" | b"content-range" | b"etag" | b"if-modified-since"
        | b"if-none-match" | b"last-modified" | b"location" | b"range" | b"set-cookie" | b"x-request-id"
        | b"traceparent" => Indexing::Without,
        _ => Indexing::Add,
    }
}

/// Cookies shorter than this may be guessed.
const SECRET_SHORT: usize = 20;

/// FNV over words, to tell entries apart before their bytes are compared; never 0.
#[inline]
fn hash(name: &[u8], value: &[u8]) -> u32 {
    let mut hash = (name.len() as u64) << 32 | value.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    for text in [name, value] {
        let (words, rest) = text.as_chunks::<8>();
        words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        mix(u64::from_le_bytes(last));
    }
    (hash >> 32) as u32 | 1
}
