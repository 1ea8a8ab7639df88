//! How far a request's body is in the input, before it is passed on: a state that is advanced when bytes came, and looked at as often
//! as rules ask.

use baton_http::{ChunkDecoder, ChunkStep, Framing};

/// How far a body is there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Arrived {
    /// More is to come.
    #[default]
    Partly,
    /// All of it is there.
    Whole,
    /// What is there is no body.
    Malformed,
}

/// The way through a body, as far as it is there.
#[derive(Debug, Default, PartialEq)]
pub struct BodyState {
    /// Walks through a chunked body, ahead of the decoder that passes it on.
    decoder: ChunkDecoder,
    /// Bytes of the input that were walked through; of a whole body its length there.
    walked: usize,
    /// Bytes of data in the chunks that were walked through.
    data: u64,
    arrived: Arrived,
}

impl BodyState {
    /// Before a body that this decoder is to walk through.
    pub fn before(decoder: &ChunkDecoder) -> BodyState {
        BodyState { decoder: decoder.clone(), ..BodyState::default() }
    }

    /// Looks at what is new in the input since the last time: `input` begins with the body.
    pub fn advance(&mut self, framing: Framing, input: &[u8]) {
        if self.arrived != Arrived::Partly {
            return;
        }
        match framing {
            Framing::None | Framing::Tunnel => self.arrived = Arrived::Whole,
            // Its source says where it ends.
            Framing::UntilClose => {}
            Framing::Length(length) if (input.len() as u64) < length => {}
            Framing::Length(length) => {
                self.walked = usize::try_from(length).unwrap_or(usize::MAX);
                self.arrived = Arrived::Whole;
            }
            Framing::Chunked => self.walk(input),
        }
    }

    fn walk(&mut self, input: &[u8]) {
        loop {
            match self.decoder.step(input.get(self.walked..).unwrap_or_default()) {
                Ok(ChunkStep::Data { skip, len }) => {
                    self.walked += skip + len;
                    self.data += len as u64;
                }
                Ok(ChunkStep::NeedMore { consumed }) => {
                    self.walked += consumed;
                    return;
                }
                Ok(ChunkStep::Done { consumed }) => {
                    self.walked += consumed;
                    self.arrived = Arrived::Whole;
                    return;
                }
                Err(_) => {
                    self.arrived = Arrived::Malformed;
                    return;
                }
            }
        }
    }

    /// The source has ended with these bytes in the input. Only a body whose source says where it ends is whole by that.
    pub fn end(&mut self, framing: Framing, input: &[u8]) {
        if framing == Framing::UntilClose {
            self.walked = input.len();
            self.arrived = Arrived::Whole;
        }
    }

    /// How far it is there.
    pub fn arrived(&self) -> Arrived {
        self.arrived
    }

    /// Bytes of the body's data that are there, without the framing of chunks. `input` is what [`BodyState::advance`] has seen.
    pub fn data_len(&self, framing: Framing, input: &[u8]) -> u64 {
        match framing {
            Framing::None | Framing::Tunnel => 0,
            Framing::UntilClose => input.len() as u64,
            Framing::Length(length) => length.min(input.len() as u64),
            Framing::Chunked => self.data,
        }
    }

    /// Bytes that a whole body takes in the input.
    pub fn len(&self) -> usize {
        self.walked
    }

    /// For another request.
    pub fn clear(&mut self) {
        self.decoder.clear();
        self.walked = 0;
        self.data = 0;
        self.arrived = Arrived::Partly;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pieces` come one after the other; after each the state is `expect`.
    fn check(framing: Framing, pieces: &[&str], expect: &[(Arrived, usize)]) {
        let mut body = BodyState::default();
        let mut input = Vec::new();
        let states: Vec<_> = pieces
            .iter()
            .map(|piece| {
                input.extend_from_slice(piece.as_bytes());
                body.advance(framing, &input);
                (body.arrived(), body.len())
            })
            .collect();
        assert_eq!(states, expect, "{pieces:?}");
        body.clear();
        assert_eq!(body, BodyState::default());
    }

    #[test]
    fn a_body_arrives_in_pieces_and_is_walked_through_once() {
        use Arrived::{Malformed, Partly, Whole};
        check(Framing::None, &["GET"], &[(Whole, 0)]);
        check(Framing::Length(0), &["GET"], &[(Whole, 0)]);
        check(Framing::Length(5), &["ab", "cd", "eGET", "more"], &[(Partly, 0), (Partly, 0), (Whole, 5), (Whole, 5)]);
        check(Framing::Chunked, &["3\r\nabc\r\n0\r\n\r\nGET"], &[(Whole, 13)]);
        let states = [(Partly, 1), (Partly, 5), (Partly, 6), (Whole, 13), (Whole, 13)];
        check(Framing::Chunked, &["3", "\r\nab", "c", "\r\n0\r\n\r\n", "GET"], &states);
        check(Framing::Chunked, &["3\r\nabcd"], &[(Malformed, 6)]);
        check(Framing::Chunked, &["x"], &[(Malformed, 0)]);
    }

    #[test]
    fn data_is_counted_while_it_arrives() {
        let check = |framing, pieces: &[&str], expect: &[u64]| {
            let (mut body, mut input) = (BodyState::default(), Vec::new());
            let counts: Vec<u64> = pieces
                .iter()
                .map(|piece| {
                    input.extend_from_slice(piece.as_bytes());
                    body.advance(framing, &input);
                    body.data_len(framing, &input)
                })
                .collect();
            assert_eq!(counts, expect, "{pieces:?}");
        };
        check(Framing::None, &["GET"], &[0]);
        check(Framing::Length(5), &["ab", "cdeGET"], &[2, 5]);
        check(Framing::UntilClose, &["ab", "c"], &[2, 3]);
        check(Framing::Chunked, &["3", "\r\nab", "c\r\n1;x\r", "\nd", "\r\n0\r\n\r\nGET"], &[0, 2, 3, 4, 4]);
        check(Framing::Chunked, &["3\r\nabcd"], &[3]);
    }
}
