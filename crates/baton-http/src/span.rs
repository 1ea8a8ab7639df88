//! Places in a read buffer, and text that is either there or among what we added.
//!
//! A head never copies what a peer sent: it keeps spans. Only what we write ourselves (an added field, a changed
//! target, an unfolded value) is kept as bytes, in the `added` area of [`Headers`](crate::Headers).

/// A range of bytes, `start..end`, in some buffer of at most 4 GiB.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span `start..end`. Positions above 4 GiB do not occur: heads are bounded by [`Limits`](crate::Limits).
    #[inline]
    pub fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        Span { start: start as u32, end: end as u32 }
    }

    /// The bytes of the span in `buf`; empty when `buf` is not the buffer it was made for.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether the span has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// A piece of text: in the read buffer, or among what we added.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Text {
    /// A span of the read buffer.
    Read(Span),
    /// A span of the head's `added` area.
    Added(Span),
}

impl Default for Text {
    fn default() -> Text {
        Text::Read(Span::default())
    }
}

impl Text {
    /// The bytes, given the read buffer and the added area.
    #[inline]
    pub fn of<'a>(self, buf: &'a [u8], added: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Read(span) => span.of(buf),
            Text::Added(span) => span.of(added),
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Text::Read(span) | Text::Added(span) => span.len(),
        }
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Cuts the text from its byte `from` up to byte `to` (both counted from its start and clamped to it).
    #[inline]
    pub fn slice(self, from: usize, to: usize) -> Text {
        let cut = |span: Span| {
            let end = span.start as usize + to.min(span.len());
            Span::new((span.start as usize + from).min(end), end)
        };
        match self {
            Text::Read(span) => Text::Read(cut(span)),
            Text::Added(span) => Text::Added(cut(span)),
        }
    }
}
