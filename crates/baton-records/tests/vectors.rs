//! Records that others made: of RFC 8448 3, and of OpenSSL 3.0 with itself in TLS 1.2.

use baton_records::{Cipher, Content, Keys, Layer, PLAIN_MAX, Role, Secret, Violation};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn secret(hex: &str) -> Secret {
    Secret::new(&bytes(hex)).expect("a secret")
}

/// What is in a record.
fn open(layer: &mut Layer, record: &str, expect: Result<&[u8], &str>) {
    let mut record = bytes(record);
    for end in 0..record.len() {
        assert_eq!(layer.open(&mut record[..end], &mut [], &mut |_| false), Ok(None), "{end}");
    }
    let mut tickets = Vec::new();
    let opened = layer.open(&mut record, &mut [], &mut |ticket| {
        tickets.push(ticket.to_vec());
        true
    });
    let opened = opened.expect("a record").expect("all of it");
    assert_eq!(opened.used, record.len());
    match (expect, opened.content) {
        (Ok(plain), Content::InPlace(range)) => assert_eq!(&record[range], plain),
        (Err("end"), Content::End) => {}
        (Err(ticket), Content::Control) => assert_eq!(tickets, [bytes(ticket)]),
        (expect, content) => panic!("{content:?} instead of {expect:?}"),
    }
}

fn seal(layer: &mut Layer, plain: &[u8], expect: &str) {
    let mut out = vec![0; layer.sealed_len(plain.len())];
    let count = match plain {
        b"" => layer.seal_end(&mut out),
        plain => layer.seal(plain, &mut out),
    };
    assert_eq!(out[..count.expect("a record")], bytes(expect));
}

#[test]
fn records_of_rfc_8448() {
    let secrets = || {
        let client = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
        let server = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
        [client, server].map(|hex| Keys::Tls13(secret(hex), 0))
    };
    let [sealing, opening] = secrets();
    let mut client = Layer::new(Role::Client, Cipher::Aes128Gcm, sealing, opening, PLAIN_MAX).unwrap();
    let [opening, sealing] = secrets();
    let mut server = Layer::new(Role::Server, Cipher::Aes128Gcm, sealing, opening, PLAIN_MAX).unwrap();
    let plain: Vec<u8> = (0..50).collect();
    // The server's session ticket, its data and its end; each proves by its tag that it is what was written there.
    open(&mut client, TICKET, Err(TICKET_BODY));
    let (ups, downs) = (UP, DOWN);
    seal(&mut client, &plain, ups[0]);
    open(&mut server, ups[0], Ok(&plain));
    open(&mut client, downs[0], Ok(&plain));
    open(&mut server, ups[1], Err("end"));
    open(&mut client, downs[1], Err("end"));
    seal(&mut client, b"", ups[1]);
}

const TICKET: &str = "17 03 03 00 de 3a 6b 8f 90 41 4a 97 d6 95 9c 34 87 68 0d e5 13 4a 2b 24 0e 6c ff ac 11 6e 95 d4 1d 6a f8 f6
    b5 80 dc f3 d1 1d 63 c7 58 db 28 9a 01 59 40 25 2f 55 71 3e 06 1d c1 3e 07 88 91 a3 8e fb cf 57 53 ad 8e f1 70 ad 3c 73 53 d1
    6d 9d a7 73 b9 ca 7f 2b 9f a1 b6 c0 d4 a3 d0 3f 75 e0 9c 30 ba 1e 62 97 2a c4 6f 75 f7 b9 81 be 63 43 9b 29 99 ce 13 06 46 15
    13 98 91 d5 e4 c5 b4 06 f1 6e 3f c1 81 a7 7c a4 75 84 00 25 db 2f 0a 77 f8 1b 5a b0 5b 94 c0 13 46 75 5f 69 23 2c 86 51 9d 86
    cb ee ac 87 aa c3 47 d1 43 f9 60 5d 64 f6 50 db 4d 02 3e 70 e9 52 ca 49 fe 51 37 12 1c 74 bc 26 97 68 7e 24 87 46 d6 df 35 30
    05 f3 bc e1 86 96 12 9c 81 53 55 6b 3b 6c 67 79 b3 7b f1 59 85 68 4f";
const TICKET_BODY: &str = "00 00 00 1e fa d6 aa c5 02 00 00 00 b2 2c 03 5d 82 93 59 ee 5f f7 af 4e c9 00 00 00 00 26 2a 64 94 dc 48
    6d 2c 8a 34 cb 33 fa 90 bf 1b 00 70 ad 3c 49 88 83 c9 36 7c 09 a2 be 78 5a bc 55 cd 22 60 97 a3 a9 82 11 72 83 f8 2a 03 a1 43
    ef d3 ff 5d d3 6d 64 e8 61 be 7f d6 1d 28 27 db 27 9c ce 14 50 77 d4 54 a3 66 4d 4e 6d a4 d2 9e e0 37 25 a6 a4 da fc d0 fc 67
    d2 ae a7 05 29 51 3e 3d a2 67 7f a5 90 6c 5b 3f 7d 8f 92 f2 28 bd a4 0d da 72 14 70 f9 fb f2 97 b5 ae a6 17 64 6f ac 5c 03 27
    2e 97 07 27 c6 21 a7 91 41 ef 5f 7d e6 50 5e 5b fb c3 88 e9 33 43 69 40 93 93 4a e4 d3 57 00 08 00 2a 00 04 00 00 04 00";
const UP: [&str; 2] = [
    "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc ab 3f 2b 98 19 a8 a5 b4 6b 39 5b
        d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd 1e 3d ea e6 3a ee bb 21 69 49 15 e4",
    "17 03 03 00 13 c9 87 27 60 65 56 66 b7 4d 7f f1 15 3e fd 6d b6 d0 b0 e3",
];
const DOWN: [&str; 2] = [
    "17 03 03 00 43 2e 93 7e 11 ef 4a c7 40 e5 38 ad 36 00 5f c4 a4 69 32 fc 32 25 d0 5f 82 aa 1b 36 e3 0e fa f9 7d 90 e6 df fc
        60 2d cb 50 1a 59 a8 fc c4 9c 4b f2 e5 f0 a2 1c 00 47 c2 ab f3 32 54 0d d0 32 e1 67 c2 95 5d",
    "17 03 03 00 13 b5 8f d6 71 66 eb f5 99 d2 47 20 cf be 7e fa 7a 88 64 a9",
];

/// Keys of client and server, the server's nonce, and records of each: data and the end.
struct Old {
    cipher: Cipher,
    keys: [&'static str; 2],
    ivs: [&'static str; 2],
    records: [[&'static str; 2]; 2],
}

const OLD: [Old; 3] = [
    Old {
        cipher: Cipher::Aes128Gcm,
        keys: ["e9219fe759f57eda8d286cf73b98b639", "d7fb3cf5840b80ecaa544be777633bc1"],
        // What is behind the first four bytes is what OpenSSL began with.
        ivs: ["0437fbac3fabf099c572f4be", "7be334e9e5f3c4882383cd64"],
        records: [
            [
                "170303002b3fabf099c572f4bf7b21168496f7677a6fd625521949592e7854a20a8b3c644e6c164b783932e7b08824b8",
                "150303001a3fabf099c572f4c01c4e6657019fdb26a324100320d5c12595b3",
            ],
            [
                "170303002be5f3c4882383cd65050bc880c708caadc443d24db9918607f937f4028c19247877e2c9a35375f1c85e9c4b",
                "150303001ae5f3c4882383cd66827b75f4e9c6169aa75945c8ee2a06c4aa4f",
            ],
        ],
    },
    Old {
        cipher: Cipher::Aes256Gcm,
        keys: [
            "8a6c3cf88d5434bee38500a7009afb5f667e45a4dd97caf163ea5e09d38a3620",
            "4b0998f9fb0d730203e70ceed0dfb2710c3ef509dfb56a4d315f873c3a46d41b",
        ],
        ivs: ["76f7d0b8ebacc298e40f241a", "5b1aa876fb6f385aea755651"],
        records: [
            [
                "170303002bebacc298e40f241b66cd1dc031e4f7d4ae568acf7dffc2ae16c16e1bce9fcb5c20c60ed71b68f9d49e5ad9",
                "150303001aebacc298e40f241ce159fa3c892a70e26c946d4d7591c368032f",
            ],
            [
                "170303002bfb6f385aea7556524ff09c312b20782c4dc11aa759505ef03a045cc27e11a2954a64d5f58683a02492091b",
                "150303001afb6f385aea7556536346869777629db3abc0ae5c752bd0b452f8",
            ],
        ],
    },
    Old {
        cipher: Cipher::Chacha20Poly1305,
        keys: [
            "1d490043f1dde1dcf6c37cc8f4c03bb943496079a0d28c3654ef21aeb1f39e32",
            "7fed32f61866d719ed7d16245dde1e7edca662d73b9f59fa2186e10167ae6d9d",
        ],
        ivs: ["f046049766e6a62b202feb8c", "e8966d4e6a6db71f282ffbf6"],
        records: [
            [
                "1703030023b25379f594a19efe0325fa688edcd55bb53e6600182902af5a20c381836d493406d837",
                "15030300127005d29b816342651906c6451b8ec911eb2c",
            ],
            [
                "17030300239a2b9022add84f4d8330eb0f6412c25705241d75ea73b456ecb538d9e6eb6a719382e2",
                "150303001216738f56375d99415d53a4ced0eaf61efc76",
            ],
        ],
    },
];

#[test]
fn records_of_openssl_in_tls_1_2() {
    for Old { cipher, keys, ivs, records } in OLD {
        // Each end has sent Finished as its record 0.
        let key = |at: usize| {
            let iv = bytes(ivs[at]).try_into().expect("a nonce");
            Keys::Tls12(secret(keys[at]), iv, 1)
        };
        for (role, own) in [(Role::Client, 0), (Role::Server, 1)] {
            let other = 1 - own;
            let plains = [&b"records of TLS 1.2\n"[..], b"2.1 SLT fo sdrocer\n"];
            let mut layer = Layer::new(role, cipher, key(own), key(other), PLAIN_MAX).unwrap();
            open(&mut layer, records[other][0], Ok(plains[other]));
            open(&mut layer, records[other][1], Err("end"));
            // OpenSSL counts its explicit nonces up; ours are the number XOR the first: as good for those that begin with an even number.
            let begins_even = cipher == Cipher::Chacha20Poly1305 || bytes(ivs[own])[11] & 3 == 0;
            if begins_even {
                seal(&mut layer, plains[own], records[own][0]);
                seal(&mut layer, b"", records[own][1]);
            }
            let mut bent = bytes(records[other][0]);
            *bent.last_mut().unwrap() ^= 1;
            let mut layer = Layer::new(role, cipher, key(own), key(other), PLAIN_MAX).unwrap();
            assert_eq!(layer.open(&mut bent, &mut [], &mut |_| false), Err(Violation::BadRecord));
        }
    }
}
