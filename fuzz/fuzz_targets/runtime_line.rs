//! Any bytes of an operator: no panic, the same lines however they are cut, and never more held than a line may be long.
#![no_main]

use baton_control::operators::line::{COMMANDS_MAX, Input, Line, Step, commands};
use libfuzzer_sys::fuzz_target;

/// The most bytes of a line with its payload, small so that the fuzzer gets there.
const LIMIT: usize = 64;

/// The lines, how many lines of payloads were taken, and whether it ended in a line that is too long.
fn lines(input: &[u8], piece: usize) -> (Vec<Line>, usize, bool) {
    let (mut lines, mut payloads) = (Vec::new(), 0);
    let mut reader = Input::new(LIMIT);
    for bytes in input.chunks(piece) {
        reader.push(bytes);
        loop {
            match reader.step() {
                Step::Wait => break,
                Step::Line(line) => lines.push(line),
                Step::Payload => payloads += 1,
                Step::TooLong => return (lines, payloads, true),
            }
        }
    }
    (lines, payloads, false)
}

fuzz_target!(|input: &[u8]| {
    let whole = lines(input, input.len().max(1));
    for piece in [1, 3, 7] {
        assert_eq!(lines(input, piece), whole, "cut in pieces of {piece}");
    }
    for line in &whole.0 {
        let held = line.text.len() + line.payload.as_ref().map_or(0, Vec::len);
        assert!(held <= LIMIT, "{held}");
    }
    let text = &input[..input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len())];
    match commands(text) {
        Some(commands) => {
            let semicolons = text.iter().filter(|byte| **byte == b';').count();
            assert!((1..=COMMANDS_MAX).contains(&commands.len()) && commands.len() <= semicolons + 1);
            assert!(commands.iter().flatten().all(|word| !word.is_empty()));
        }
        None => assert!(text.iter().filter(|byte| **byte == b';').count() >= COMMANDS_MAX),
    }
});
