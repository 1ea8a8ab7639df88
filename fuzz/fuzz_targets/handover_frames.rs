//! Any bytes of another process in a handover: no panic, the same however they are cut, and what was understood can be written and is
//! understood alike.
#![no_main]

use baton_control::handover::message::Message;
use baton_control::handover::wire::{Encoder, Incoming, Malformed, WireVersion};
use libfuzzer_sys::fuzz_target;

/// Messages, kinds that were skipped, and how it ended.
type Understood = (Vec<Message>, Vec<(String, u64)>, Result<bool, Malformed>);

fn understand(version: WireVersion, input: &[u8], piece: usize) -> Understood {
    let mut incoming = Incoming::of(version);
    let mut messages = Vec::new();
    for bytes in input.chunks(piece) {
        incoming.bytes().extend_from_slice(bytes);
        loop {
            match incoming.arrival() {
                Ok(None) => break,
                Ok(Some(arrival)) => messages.extend(arrival.message),
                Err(malformed) => return (messages, incoming.skipped(), Err(malformed)),
            }
        }
    }
    let is_between = incoming.is_between_frames();
    (messages, incoming.skipped(), Ok(is_between))
}

fuzz_target!(|input: &[u8]| {
    for version in [WireVersion::Messages, WireVersion::Frames] {
        let whole = understand(version, input, input.len().max(1));
        for piece in [1, 3, 7] {
            assert_eq!(understand(version, input, piece), whole, "cut in pieces of {piece}");
        }
        let (mut encoder, mut written) = (Encoder::default(), Vec::new());
        encoder.speak(version);
        let known = whole.0.into_iter().filter(|message| *message != Message::Unknown);
        let messages: Vec<Message> = known.collect();
        for message in &messages {
            let mut outgoing = encoder.message(message.clone());
            while let Some(part) = encoder.next(&mut outgoing, 0).expect("it was short enough to be read") {
                written.extend_from_slice(&part.bytes);
            }
        }
        let (again, skipped, end) = understand(version, &written, written.len().max(1));
        assert_eq!((again, skipped, end), (messages, Vec::new(), Ok(true)));
    }
});
