//! Any bytes as a server's answer to the load client, and as a client's requests to an origin: no panic, and the same in any
//! pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| baton_prove::hostile::http(input));
