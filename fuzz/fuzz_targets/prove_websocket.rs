//! Any bytes as what a server says in a WebSocket, and as what a client says to an origin: no panic, the same in any pieces,
//! and what the origin answers is made of whole frames.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| baton_prove::hostile::websocket(input));
