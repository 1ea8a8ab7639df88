//! Any bytes as the start of what a TLS client sends: no panic, an answer that more bytes do not change, and the same one for
//! the same message in other records.
#![no_main]

use baton_tls::Hello;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(answer) = Hello::read(input) else { return };
    let longer = [input, &[0; 8]].concat();
    let later = Hello::read(&longer).expect("what was complete stays so");
    assert_eq!(answer.is_some(), later.is_some());
    let Some(hello) = answer else { return };
    let _ = (hello.sni(), hello.session_id(), hello.groups(), hello.point_formats(), hello.ticket());
    let _ = (hello.versions().count(), hello.signatures().count());
    assert!(hello.alpn().count() <= hello.bytes().len() && hello.extensions().count() <= hello.bytes().len() / 4);
    let length = u32::try_from(hello.bytes().len()).expect("a hello is short");
    let message = [&[1], &length.to_be_bytes()[1..], hello.bytes()].concat();
    let mut records = Vec::new();
    for part in message.chunks(9) {
        records.extend_from_slice(&[22, 3, 1, 0, part.len() as u8]);
        records.extend_from_slice(part);
    }
    let again = Hello::read(&records).expect("all of it is there").expect("it is the same");
    assert_eq!((again.bytes(), again.sni(), again.ciphers()), (hello.bytes(), hello.sni(), hello.ciphers()));
});
