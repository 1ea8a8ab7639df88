//! What hostile clients may send to an origin (see [`crate::hostile`]).

use super::{
    answer::Ask,
    socket::{self, FrameOutcome},
};
use crate::{
    websocket::BadFrame,
    wire::{self, Body, Malformed},
};

/// Reads requests as an origin does, whole and from pieces of this size.
pub(crate) fn requests(bytes: &[u8], piece: usize) {
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(read(bytes, piece), whole, "in pieces of {piece}");
}

/// What a request asks for, its headers' bytes and its body.
type PiecewiseRequest = (Ask, usize, Vec<u8>);

fn read(bytes: &[u8], piece: usize) -> Result<Vec<PiecewiseRequest>, (Vec<PiecewiseRequest>, Malformed)> {
    let (mut buffer, mut body, mut all) = (Vec::new(), None::<(Body, PiecewiseRequest)>, Vec::new());
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            if body.is_none() {
                match wire::request(&buffer) {
                    Err(bad) => return Err((all, bad)),
                    Ok(None) => break,
                    Ok(Some((head, length))) => {
                        assert!(length <= buffer.len(), "a head ends within what came");
                        let headers = head.headers.clone().map(|(name, value)| name.len() + value.len()).sum();
                        let _ = socket::accept(&head);
                        body = Some((Body::new(head.framing), (Ask::new(head.target), headers, Vec::new())));
                        buffer.drain(..length);
                    }
                }
            }
            let Some((place, request)) = &mut body else { break };
            match place.read(&buffer, &mut |data| request.2.extend_from_slice(data)) {
                Err(bad) => return Err((all, bad)),
                Ok(length) => drop(buffer.drain(..length)),
            }
            if !place.is_done() {
                break;
            }
            all.extend(body.take().map(|(_, request)| request));
        }
    }
    Ok(all)
}

/// What an origin answers to these bytes in a WebSocket, up to the first that are no frame.
pub(crate) fn frames(bytes: &[u8], piece: usize) -> Vec<u8> {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match socket::answer(&mut input, &mut out) {
                Ok(FrameOutcome::Again) => {}
                Ok(FrameOutcome::More) => break,
                Ok(FrameOutcome::Closed) | Err(BadFrame) => return out,
            }
        }
    }
    out
}
