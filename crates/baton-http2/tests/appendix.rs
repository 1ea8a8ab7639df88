//! The examples of RFC 7541 appendix C, decoded, and encoded again by a peer that makes the choices of the appendix.

use baton_http::Span;
use baton_http2::hpack::{Decoder, FieldSink};

#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl FieldSink for Fields {
    fn field(&mut self, arena: &[u8], name: Span, value: Span) -> bool {
        let text = |span: Span| String::from_utf8(span.of(arena).to_vec()).expect("text");
        self.0.push((text(name), text(value)));
        true
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// A block, its fields, and the size of the table after it.
type Example<'e> = (&'e str, &'e [(&'e str, &'e str)], usize);

/// Decodes blocks of one connection.
fn check(table_size: u32, blocks: &[Example]) {
    let mut decoder = Decoder::new();
    let mut resize = Vec::new();
    if table_size != 4096 {
        // What the appendix takes as agreed upon is told by an update first.
        resize = vec![0x3f, 0xe1, 0x01];
        assert_eq!(table_size, 256);
    }
    for (hex, fields, size) in blocks {
        let (mut arena, mut decoded) = (Vec::new(), Fields::default());
        let block = [std::mem::take(&mut resize), bytes(hex)].concat();
        decoder.decode(&block, 4096, &mut arena, &mut decoded).expect("an example");
        let expected: Vec<_> = fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert_eq!(decoded.0, expected);
        assert_eq!(decoder.table_size(), *size, "{hex}");
    }
}

#[test]
fn c_2_representations() {
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check(4096, &[(custom, &[("custom-key", "custom-header")], 55)]);
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")], 0)]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")], 0)]);
    check(4096, &[("82", &[(":method", "GET")], 0)]);
}

const REQUESTS: [&[(&str, &str)]; 3] = [
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

#[test]
fn c_3_requests_without_huffman_coding() {
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUESTS[0], 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", REQUESTS[1], 110),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", REQUESTS[2], 164),
        ],
    );
}

#[test]
fn c_4_requests_with_huffman_coding() {
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUESTS[0], 57),
            ("8286 84be 5886 a8eb 1064 9cbf", REQUESTS[1], 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", REQUESTS[2], 164),
        ],
    );
}

const RESPONSES: [&[(&str, &str)]; 3] = [
    &[
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "307"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
];

#[test]
fn c_5_responses_without_huffman_coding_in_a_small_table() {
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e 1768 \
                 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                RESPONSES[0],
                222,
            ),
            ("4803 3330 37c1 c0bf", RESPONSES[1], 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d 4153 \
                 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
                 3d31",
                RESPONSES[2],
                215,
            ),
        ],
    );
}

#[test]
fn c_6_responses_with_huffman_coding_in_a_small_table() {
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 \
                 e9ae 82ae 43d3",
                RESPONSES[0],
                222,
            ),
            ("4883 640e ffc1 c0bf", RESPONSES[1], 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b \
                 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                RESPONSES[2],
                215,
            ),
        ],
    );
}
