//! Dictionaries: texts that recur are sent once, and by their number from then on. Each direction of a link has one, empty at its start.

use std::sync::Arc;

use crate::frame::{Fields, Violation};
use crate::varint;

/// Numbers of a dictionary: 1 to this.
pub const TEXTS_MAX: usize = 128;

/// What the other side knows.
#[derive(Clone, Debug)]
pub struct SentTexts {
    texts: Vec<Option<Arc<str>>>,
    /// The place that is given out next.
    next: usize,
}

impl Default for SentTexts {
    fn default() -> SentTexts {
        SentTexts { texts: vec![None; TEXTS_MAX], next: 0 }
    }
}

impl SentTexts {
    /// Appends a text, or that there is none.
    pub fn write(&mut self, out: &mut Vec<u8>, text: Option<&Arc<str>>) {
        let Some(text) = text else { return varint::write(out, 0) };
        let known = self.texts.iter().position(|known| known.as_ref() == Some(text));
        let place = known.unwrap_or(self.next);
        let mut value = Vec::with_capacity(2 * varint::BYTES_MAX + text.len());
        varint::write(&mut value, place as u64 + 1);
        if known.is_none() {
            self.texts[place] = Some(text.clone());
            self.next = (place + 1) % TEXTS_MAX;
            varint::write(&mut value, text.len() as u64);
            value.extend_from_slice(text.as_bytes());
        }
        varint::write(out, value.len() as u64);
        out.extend_from_slice(&value);
    }

    /// All texts by their number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<str>)> {
        numbered(&self.texts)
    }
}

/// What the other side has sent.
#[derive(Clone, Debug)]
pub struct ReceivedTexts {
    texts: Vec<Option<Arc<str>>>,
}

impl Default for ReceivedTexts {
    fn default() -> ReceivedTexts {
        ReceivedTexts { texts: vec![None; TEXTS_MAX] }
    }
}

impl ReceivedTexts {
    /// Reads a text; `None` where there is none, or it is not known.
    ///
    /// # Errors
    /// Fields are missing, or the number is none of a dictionary.
    pub fn read(&mut self, fields: &mut Fields<'_>) -> Result<Option<Arc<str>>, Violation> {
        let mut value = Fields::of(fields.counted()?);
        if value.is_empty() {
            return Ok(None);
        }
        let number = value.varint()?;
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let known = place.and_then(|place| self.texts.get_mut(place)).ok_or(Violation::Protocol)?;
        if !value.is_empty() {
            let text = std::str::from_utf8(value.counted()?).map_err(|_| Violation::Protocol)?;
            *known = Some(text.into());
        }
        Ok(known.clone())
    }

    /// All texts by their number.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<str>)> {
        numbered(&self.texts)
    }
}

fn numbered(texts: &[Option<Arc<str>>]) -> impl Iterator<Item = (usize, &Arc<str>)> {
    texts.iter().enumerate().filter_map(|(place, text)| Some((place + 1, text.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &mut ReceivedTexts, bytes: &[u8]) -> Result<Option<Arc<str>>, Violation> {
        let mut fields = Fields::of(bytes);
        let text = texts.read(&mut fields);
        assert!(text.is_err() || fields.is_empty());
        text
    }

    #[test]
    fn a_text_is_sent_once() {
        let (mut sent, mut received) = (SentTexts::default(), ReceivedTexts::default());
        let mut check = |text: Option<&str>, expect: &[u8]| {
            let mut out = Vec::new();
            let text: Option<Arc<str>> = text.map(Into::into);
            sent.write(&mut out, text.as_ref());
            assert_eq!(out, expect);
            assert_eq!(read(&mut received, &out), Ok(text));
        };
        check(None, &[0]);
        check(Some("s1"), &[4, 1, 2, b's', b'1']);
        check(Some("s1"), &[1, 1]);
        for number in 2..=128 {
            let name = format!("t{number}");
            let bytes = [&[name.len() as u8 + 2, number, name.len() as u8], name.as_bytes()].concat();
            check(Some(&name), &bytes);
        }
        check(Some("s129"), &[6, 1, 4, b's', b'1', b'2', b'9']);
        check(Some("t2"), &[1, 2]);
        check(Some("s1"), &[4, 2, 2, b's', b'1']);
    }

    #[test]
    fn numbers_are_bounded() {
        let mut texts = ReceivedTexts::default();
        assert_eq!(read(&mut texts, &[1, 5]), Ok(None), "never sent");
        for bytes in
            [&[1, 0][..], &[1, 129], &[3, 129, 1, b'x'], &[3, 1, 2, b'x'], &[2, 1], &[2, 0xff, 0xff], &[3, 1, 1, 0xff]]
        {
            assert_eq!(read(&mut texts, bytes), Err(Violation::Protocol), "{bytes:02x?}");
        }
    }
}
