//! What hostile peers may send, as checks for the fuzz targets: nothing panics, every bound holds, and it makes no
//! difference in which pieces it comes.
//!
//! Compiled for fuzzing (the feature of that name) and for the test that runs the targets' corpora.

use crate::{
    origin::hostile as origin,
    websocket::{BadFrame, Frame, Incoming, MESSAGE_MAX, ReceivedFrame},
    wire::{self, Body, LastHead, Malformed, ResponseHead},
};

/// The most bytes of an input that are looked at; a head that is too long is another test's.
const INPUT_MAX: usize = 8192;

/// Any bytes as an answer to the load client, or as requests to an origin.
pub fn http(input: &[u8]) {
    let [piece, flags, bytes @ ..] = input else { return };
    let bytes = &bytes[..bytes.len().min(INPUT_MAX)];
    let piece = usize::from(*piece).max(1);
    if flags & 1 == 0 {
        let bodyless = flags & 2 != 0;
        let whole = answer(bytes, bytes.len().max(1), bodyless);
        assert_eq!(answer(bytes, piece, bodyless), whole, "in pieces of {piece}");
        remembered(bytes, piece, bodyless);
    } else {
        origin::requests(bytes, piece);
    }
}

/// How reading an answer ended: its head and body (`None`: more is needed), and how many bytes belong to it.
type ReadOutcome = Result<(Option<ResponseHead>, Vec<u8>, bool, usize), Malformed>;

/// Reads an answer as the client does, from pieces of this size.
fn answer(bytes: &[u8], piece: usize, bodyless: bool) -> ReadOutcome {
    let (mut buffer, mut head, mut content, mut used) = (Vec::new(), None, Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        if head.is_none() {
            let Some((read, length)) = wire::response(&buffer, bodyless)? else { continue };
            assert!(length <= buffer.len(), "a head ends within what came");
            let names = wire::headers(&buffer[..length]).map(|(name, value)| name.len() + value.len());
            assert!(names.sum::<usize>() < length);
            head = Some((read, Body::new(read.framing)));
            (used, _) = (length, buffer.drain(..length));
        }
        let Some((_, body)) = &mut head else { continue };
        let length = body.read(&buffer, &mut |data| content.extend_from_slice(data))?;
        assert!(length <= buffer.len() && (length == buffer.len() || body.is_done()), "it takes all, or is done");
        used += length;
        buffer.drain(..length);
    }
    let done = head.as_ref().is_some_and(|(_, body)| body.is_done());
    Ok((head.map(|(head, _)| head), content, done, used))
}

/// A head that was remembered says what it would say anew.
fn remembered(bytes: &[u8], piece: usize, bodyless: bool) {
    let mut last = LastHead::default();
    let (first, second) = bytes.split_at(piece.min(bytes.len()));
    for (bytes, bodyless) in
        [(bytes, bodyless), (first, bodyless), (second, !bodyless), (bytes, !bodyless), (bytes, bodyless)]
    {
        assert_eq!(last.response(bytes, bodyless), wire::response(bytes, bodyless));
    }
}

/// Any bytes as what a server says in a WebSocket, and as what a client says to an origin.
pub fn websocket(input: &[u8]) {
    let [piece, bytes @ ..] = input else { return };
    let piece = usize::from(*piece).max(1);
    let whole = messages(bytes, bytes.len().max(1));
    assert_eq!(messages(bytes, piece), whole, "in pieces of {piece}");

    // What an origin answers is right in a client's eyes, whatever it was asked.
    let answers = origin::frames(bytes, bytes.len().max(1));
    assert_eq!(origin::frames(bytes, piece), answers, "in pieces of {piece}");
    let mut rest = answers.as_slice();
    while !rest.is_empty() {
        let (frame, head) = Frame::read(rest).expect("an origin sends frames").expect("whole ones");
        assert!(frame.mask.is_none() && frame.length <= MESSAGE_MAX);
        rest = rest.get(head + frame.length..).expect("whole ones");
    }
}

/// What a client makes of what a server says, message by message.
fn messages(bytes: &[u8], piece: usize) -> (Vec<(ReceivedFrame, Vec<u8>)>, Option<BadFrame>) {
    let (mut incoming, mut input, mut all) = (Incoming::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match incoming.next(&mut input) {
                Err(bad) => return (all, Some(bad)),
                Ok(None) => break,
                Ok(Some(came)) => {
                    assert!(incoming.message.len() <= MESSAGE_MAX);
                    let message =
                        if came == ReceivedFrame::Message { std::mem::take(&mut incoming.message) } else { Vec::new() };
                    all.push((came, message));
                }
            }
        }
    }
    (all, None)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use proptest::{collection::vec, num::u8};

    use super::*;

    fn corpus(target: &str, check: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files = fs::read_dir(folder).expect("it is in the tree");
        let count = files.map(|file| check(&fs::read(file.expect("an entry").path()).expect("a file"))).count();
        assert!(count >= 20, "{target}: {count}");
    }

    #[test]
    fn the_corpora_of_the_fuzz_targets_pass() {
        corpus("prove_http", http);
        corpus("prove_websocket", websocket);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_pass(input in vec(u8::ANY, 0..200)) {
            http(&input);
            websocket(&input);
        }
    }
}
