//! Inputs of converters by kind. A kind with a form has inputs of that form and ones that were damaged.

use super::messages;
use super::random::Random;

/// The input number `number`; the first ones of most kinds are the edges.
pub fn one(kind: &str, number: usize, random: &mut Random) -> Result<Vec<u8>, String> {
    Ok(match kind {
        "text" => edge(TEXTS, number).unwrap_or_else(|| text(random)),
        "bytes" => edge(TEXTS, number).unwrap_or_else(|| random.bytes(40)),
        "long" => {
            let most = 60 + random.below(2000);
            random.bytes(most)
        }
        "numbers" => edge(NUMBERS, number).unwrap_or_else(|| self::number(random)),
        "addresses" => edge(ADDRESSES, number).unwrap_or_else(|| address(random)),
        "hex" => damaged(random, |random| random.text(b"0123456789abcdefABCDEF", 20)),
        "base64" => damaged(random, |random| {
            let mut text = random.text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_", 12);
            text.extend_from_slice(random.of::<&[u8]>(&[b"", b"=", b"==", b"==="]));
            text
        }),
        "urls" => damaged(random, |random| random.text(b"/ab?c=d&e%41%2F%3d%zz+;#", 30)),
        "hosts" => edge(HOSTS, number).unwrap_or_else(|| random.text(b"aB.:[]0189-", 14)),
        "languages" => damaged(random, languages),
        "refusals" => format!("en;q=0,fr;q=0.{number}").into_bytes(),
        "json" => damaged(random, |random| messages::json(random, 3).into_bytes()),
        "documents" => messages::document(random).into_bytes(),
        "jwt" => damaged(random, messages::jwt),
        "protobuf" => damaged(random, |random| messages::protobuf(random, 3)),
        "rectangles" => messages::rectangle(random),
        "grpc" => damaged(random, messages::grpc),
        "fix" => damaged(random, messages::fix),
        "mqtt" => {
            let mut packet = messages::mqtt(random);
            packet.truncate(if random.once_in(5) { random.below(packet.len()) } else { packet.len() });
            packet
        }
        "utf8" => {
            damaged(random, |random| (0..random.below(12)).flat_map(|_| random.of(CHARACTERS).to_vec()).collect())
        }
        other => return Err(format!("no input is called `{other}`")),
    })
}

fn edge(edges: &[&[u8]], number: usize) -> Option<Vec<u8>> {
    edges.get(number).map(|edge| edge.to_vec())
}

/// Two of three as they were made; of the others a byte was changed, dropped or added, or the end was cut off.
fn damaged(random: &mut Random, make: impl Fn(&mut Random) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = make(random);
    if !random.once_in(3) || bytes.is_empty() {
        return bytes;
    }
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes[at] = random.next() as u8,
        1 => _ = bytes.remove(at),
        2 => bytes.insert(at, random.next() as u8),
        _ => bytes.truncate(at),
    }
    bytes
}

fn text(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => random.text(b"aAbBcC:/_. -", 24),
        1 => random.text(b"abcxyz0129 /:;,=&?._-\"'<>\\%\r\n\t", 30),
        _ => (0..random.below(24)).map(|_| b' ' + random.below(95) as u8).collect(),
    }
}

fn number(random: &mut Random) -> Vec<u8> {
    let number = random.next() as i64 >> random.below(63);
    match random.below(5) {
        0 => format!("{number} {}", random.below(9)).into_bytes(),
        _ => number.to_string().into_bytes(),
    }
}

fn address(random: &mut Random) -> Vec<u8> {
    let four = std::net::Ipv4Addr::from(random.next() as u32);
    match random.below(5) {
        0 | 1 => four.to_string(),
        2 => format!("::ffff:{four}"),
        3 => std::net::Ipv6Addr::from(u128::from(random.next()) << 64 | u128::from(random.next())).to_string(),
        _ => format!("{four}{}", random.of(&[".1", ":80", " ", "x", "/8"])),
    }
    .into_bytes()
}

fn languages(random: &mut Random) -> Vec<u8> {
    let mut list = Vec::new();
    for _ in 0..random.below(6) {
        let language = random.of(&["en", "en-us", "fr", "fr-CH", "de", "es", "EN", "*", "e", ""]);
        let weight = random
            .of(&["", ";q=0.5", ";q=0.0", ";q=1", "; q=0.8", ";q=0.123", ";q=1.0", ";x=2", ";q=", ";q=.5", " ;q=0.7"]);
        list.push(format!("{language}{weight}"));
    }
    list.join(*random.of(&[",", ", ", " , "])).into_bytes()
}

const TEXTS: &[&[u8]] =
    &[b"", b"a", b" ", b"a:b", b":", b"::", b"/a/b/c", b"a\0b", b"\0", b"a\r\nb", b"\xff\xfe", b"a_b__c_", b"0", b"-1"];

const NUMBERS: &[&[u8]] = &[
    b"",
    b"0",
    b"-0",
    b"1",
    b"-1",
    b"+5",
    b" 7",
    b"7 ",
    b"12abc",
    b"abc",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775807",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"99999999999999999999999",
    b"4294967295",
    b"4294967296",
    b"2147483648",
    b"1700000000",
    b"0x10",
    b"1.5",
    b"00012",
    b"--1",
];

const ADDRESSES: &[&[u8]] = &[
    b"",
    b"1.2.3.4",
    b"127.0.0.1",
    b"255.255.255.255",
    b"0.0.0.0",
    b"1.2.3",
    b"1.2.3.4.5",
    b"256.1.1.1",
    b"::",
    b"::1",
    b"2001:db8::1",
    b"::ffff:10.1.2.3",
    b"::10.1.2.3",
    b"fe80::1%eth0",
    b"[::1]",
    b"host",
    b"01.2.3.4",
];

const HOSTS: &[&[u8]] = &[
    b"",
    b"example.com",
    b"Example.COM:8080",
    b"1.2.3.4:80",
    b"[::1]",
    b"[::1]:443",
    b"[::1",
    b"::1",
    b"a:",
    b":80",
    b"a:b",
    b"a:80x",
    b"a:99999",
    b"a:0080",
    b"[]:1",
    b"a:1:2",
];

/// Characters of one to four bytes, and bytes that are none: overlong, surrogates, lone ones.
const CHARACTERS: &[&[u8]] = &[
    b"a",
    b"\"",
    b"\\",
    b"/",
    b"\n",
    b"\t",
    b"\x08",
    b"\x0c",
    b"\x01",
    b"\x7f",
    "é".as_bytes(),
    "€".as_bytes(),
    "😀".as_bytes(),
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xed\xa0\x80",
    b"\xef\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xfc\x84\x80\x80\x80\x80",
    b"\x80",
    b"\xc3",
    b"\xff",
];
