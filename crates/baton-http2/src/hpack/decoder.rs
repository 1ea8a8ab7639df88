//! Field blocks to fields (RFC 7541 3 and 6).
//!
//! The decoder writes names and values, one behind the other, to an arena that the caller keeps, and names their places to a sink.
//! When the sink has no use for more, blocks are still decoded, because the table depends on them, but nothing is kept.

use baton_http::Span;
use serde::{Deserialize, Serialize};

use super::statics::STATIC;
use super::table::Table;
use super::{huffman, integer};

/// Takes decoded fields.
pub trait FieldSink {
    /// A field, whose name and value are there in `arena`. False: no more of this block are wanted; what the arena has
    /// gained by this one is cut off again.
    fn field(&mut self, arena: &[u8], name: Span, value: Span) -> bool;
}

/// Why a field block is not decoded: the connection is lost, because both tables may differ from now on.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum BlockError {
    /// It is malformed.
    Invalid,
    /// It grows beyond the limit while it is decoded: few bytes refer to large entries again and again.
    TooLarge,
}

use BlockError::Invalid;

/// Decodes the field blocks of one direction of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decoder {
    table: Table,
    /// The largest size that the peer may set: our SETTINGS_HEADER_TABLE_SIZE, as far as it was acknowledged.
    limit: u32,
    /// The limit was lowered below the size of the table: the next block has to begin with an update (RFC 7541 4.2).
    must_shrink: bool,
}

impl Decoder {
    /// A decoder with the initial table size of RFC 9113, 4,096 bytes.
    pub fn new() -> Decoder {
        Decoder { table: Table::new(4096), limit: 4096, must_shrink: false }
    }

    /// Whether the state is valid: that of another process need not be.
    pub fn is_sound(&self) -> bool {
        self.table.is_sound()
    }

    /// Our SETTINGS_HEADER_TABLE_SIZE was acknowledged.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.must_shrink = (limit as usize) < self.table.size_max();
    }

    /// Decodes a whole block, to at most `bytes_max` bytes of names and values. They are appended to `arena`.
    ///
    /// # Errors
    /// The block is malformed, or larger; what was decoded before is of no use.
    pub fn decode(
        &mut self,
        block: &[u8],
        bytes_max: usize,
        arena: &mut Vec<u8>,
        sink: &mut impl FieldSink,
    ) -> Result<(), BlockError> {
        let (mut input, mut bytes) = (block, 0);
        // Updates come first only (RFC 7541 4.2).
        while let Some(0x20..=0x3f) = input.first() {
            let size = integer::read(&mut input, 5).ok_or(Invalid)?;
            if size > self.limit {
                return Err(Invalid);
            }
            self.table.set_size_max(size as usize);
            self.must_shrink = false;
        }
        if self.must_shrink {
            return Err(Invalid);
        }
        let mut is_wanted = true;
        while let Some(&first) = input.first() {
            let start = arena.len();
            let name_end = match first {
                0x80.. => self.indexed(integer::read(&mut input, 7), arena)?,
                0x40..=0x7f => {
                    let name_end = self.literal(&mut input, 6, arena)?;
                    self.table.insert(&arena[start..], name_end - start, 0);
                    name_end
                }
                0x20..=0x3f => return Err(Invalid),
                // Without indexing, or never indexed: what is passed on is encoded anew, by our own choice of what is indexed.
                0x00..=0x1f => self.literal(&mut input, 4, arena)?,
            };
            bytes += arena.len() - start;
            if bytes > bytes_max {
                return Err(BlockError::TooLarge);
            }
            if is_wanted {
                is_wanted = sink.field(arena, Span::new(start, name_end), Span::new(name_end, arena.len()));
            }
            if !is_wanted {
                arena.truncate(start);
            }
        }
        Ok(())
    }

    /// Bytes of the table, as RFC 7541 4.1 counts them.
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// Gives back memory that an idle connection has no use for.
    pub fn shrink(&mut self) {
        self.table.shrink();
    }

    /// An entry of either table; where its name ends in the arena.
    #[inline]
    fn indexed(&self, index: Option<u32>, arena: &mut Vec<u8>) -> Result<usize, BlockError> {
        let (name, value) = self.entry(index)?;
        arena.extend_from_slice(name);
        let name_end = arena.len();
        arena.extend_from_slice(value);
        Ok(name_end)
    }

    /// A literal, whose name may be that of an entry; where its name ends in the arena.
    #[inline]
    fn literal(&self, input: &mut &[u8], bits: u32, arena: &mut Vec<u8>) -> Result<usize, BlockError> {
        match integer::read(input, bits) {
            Some(0) => string(input, arena)?,
            index => arena.extend_from_slice(self.entry(index)?.0),
        }
        let name_end = arena.len();
        string(input, arena)?;
        Ok(name_end)
    }

    #[inline]
    fn entry(&self, index: Option<u32>) -> Result<(&[u8], &[u8]), BlockError> {
        let index = index.ok_or(Invalid)? as usize;
        match STATIC.get(index.wrapping_sub(1)) {
            Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
            None => self.table.get(index.wrapping_sub(1 + STATIC.len())).ok_or(Invalid),
        }
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

/// A string literal (RFC 7541 5.2).
#[inline]
fn string(input: &mut &[u8], arena: &mut Vec<u8>) -> Result<(), BlockError> {
    let is_huffman = input.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::read(input, 7).ok_or(Invalid)?;
    let (text, rest) = input.split_at_checked(len as usize).ok_or(Invalid)?;
    *input = rest;
    if is_huffman {
        return huffman::decode(text, arena).map_err(|_| Invalid);
    }
    arena.extend_from_slice(text);
    Ok(())
}
