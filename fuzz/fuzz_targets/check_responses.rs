//! Any bytes as what a server sends to a health check: of HTTP and of each protocol with an option of its own. No panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| baton_health::judge_bytes(bytes));
