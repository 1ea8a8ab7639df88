//! Messages of the formats that converters read: JSON, JSON web tokens, protocol buffers, gRPC, FIX, MQTT.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::random::Random;

/// A JSON value, often an object with the names that the cases ask for.
pub fn json(random: &mut Random, depth: usize) -> String {
    let gap = if random.once_in(8) { " " } else { "" };
    match if depth == 0 { random.below(7) } else { random.below(12) } {
        0 => random.of(&["true", "false", "null"]).to_string(),
        1 => (random.next() as i64 >> random.below(63)).to_string(),
        2 => random.of(&["0", "-1", "1.5", "-0.25", "1e3", "12E-2", "9223372036854775808", "1.0", "0.1e1"]).to_string(),
        3..=6 => json_text(random),
        7 | 8 => {
            let items: Vec<String> = (0..random.below(4)).map(|_| json(random, depth - 1)).collect();
            format!("[{gap}{}{gap}]", items.join(&format!("{gap},{gap}")))
        }
        _ => {
            let members: Vec<String> = (0..random.below(5))
                .map(|_| {
                    let name = random.of(&["a", "b", "c", "a.b", "iss", "alg", "", "x y", "\\u0061"]);
                    format!("\"{name}\"{gap}:{gap}{}", json(random, depth - 1))
                })
                .collect();
            format!("{{{gap}{}{gap}}}", members.join(&format!("{gap},{gap}")))
        }
    }
}

/// An object of which each part is of a known kind: `o`, an object with `b`, `c` and `m`, a list `l`, and `last`.
pub fn document(random: &mut Random) -> String {
    let mut inner = [
        format!("\"b\":{}", json(random, 0)),
        format!("\"c\":{{\"d\":{},\"e\":{}}}", json(random, 0), json(random, 1)),
        format!("\"m\":[[{}],[{},{}]]", json(random, 0), json(random, 0), json(random, 1)),
    ];
    inner.swap(0, random.below(3));
    let item = format!("{{\"a\":{},\"b\":{}}}", json(random, 0), json(random, 0));
    let list = format!("[{},{item},{}]", json(random, 0), json(random, 0));
    let mut parts = [format!("\"o\":{{{}}}", inner.join(",")), format!("\"l\":{list}")];
    parts.swap(0, random.below(2));
    format!("{{{},\"last\":{}}}", parts.join(","), json(random, 0))
}

fn json_text(random: &mut Random) -> String {
    let parts = [
        "a", "B", "1", " ", "\\\"", "\\\\", "\\/", "\\n", "\\t", "\\b", "\\u0041", "\\u00e9", "\\u20ac", "é", "",
        "\\r", "\\f",
    ];
    let text: String = (0..random.below(5)).map(|_| *random.of(&parts)).collect();
    format!("\"{text}\"")
}

/// A token that is signed with the key `secret`, or with another one.
pub fn jwt(random: &mut Random) -> Vec<u8> {
    use aws_lc_rs::hmac;
    let (name, algorithm) =
        *random.of(&[("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]);
    let header = match random.below(8) {
        0 => "{}".to_string(),
        1 => format!("{{\"alg\":\"{}\"}}", random.of(&["none", "hs256", "RS256", "PS256", "ES512", "XX"])),
        2 => format!("{{ \"typ\" : \"JWT\", \"alg\" : \"{name}\" }}"),
        _ => format!("{{\"alg\":\"{name}\",\"typ\":\"JWT\"}}"),
    };
    let payload = match random.below(4) {
        0 => json(random, 2),
        1 => "{\"iss\":\"me\",\"exp\":1700000000,\"admin\":true}".to_string(),
        _ => format!("{{\"iss\":{},\"a\":{}}}", json_text(random), json(random, 1)),
    };
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let key = if random.once_in(5) { "other" } else { "secret" };
    let signature = hmac::sign(&hmac::Key::new(algorithm, key.as_bytes()), signed.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(signature.as_ref());
    match random.below(10) {
        0 => signed,
        1 => format!("{signed}."),
        2 => format!("{signed}.{signature}.more"),
        _ => format!("{signed}.{signature}"),
    }
    .into_bytes()
}

/// A message of fields 1 to 4 with all wire types, messages in fields of bytes.
pub fn protobuf(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.below(5) {
        let field = random.of(&[1_u64, 2, 3, 4, 48, 300]);
        match random.below(6) {
            0 | 1 => {
                varint(field << 3, &mut out);
                let wide = random.next();
                varint(*random.of(&[0, 1, 127, 128, wide >> 40, wide, u64::MAX]), &mut out);
            }
            2 => {
                varint(field << 3 | 1, &mut out);
                out.extend_from_slice(&random.next().to_le_bytes());
            }
            3 => {
                varint(field << 3 | 5, &mut out);
                out.extend_from_slice(&(random.next() as u32).to_le_bytes());
            }
            _ => {
                let inner = match depth {
                    0 => random.text(b"abc", 8),
                    depth if random.once_in(2) => protobuf(random, depth - 1),
                    _ => random.text(b"abcdef", 12),
                };
                varint(field << 3 | 2, &mut out);
                varint(inner.len() as u64, &mut out);
                out.extend_from_slice(&inner);
            }
        }
    }
    out
}

/// A message of two corners (48 and 49), each with a point (59) of two numbers (1 and 2).
pub fn rectangle(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for corner in [48, 49] {
        let mut point = Vec::new();
        for number in [1, 2] {
            varint(number << 3, &mut point);
            varint(random.next() >> random.below(64), &mut point);
        }
        let mut inner = Vec::new();
        varint(59 << 3 | 2, &mut inner);
        varint(point.len() as u64, &mut inner);
        inner.extend_from_slice(&point);
        varint(corner << 3 | 2, &mut out);
        varint(inner.len() as u64, &mut out);
        out.extend_from_slice(&inner);
    }
    out
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// One or two messages of gRPC: a flag, a length, the message.
pub fn grpc(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + random.below(2) {
        let message = protobuf(random, 2);
        out.push(u8::from(random.once_in(6)));
        out.extend_from_slice(&(message.len() as u32).to_be_bytes());
        out.extend_from_slice(&message);
    }
    out
}

/// A message of FIX with its length and checksum.
pub fn fix(random: &mut Random) -> Vec<u8> {
    let mut body = format!("35={}\x01", random.of(&["A", "0", "D", "AE"]));
    let mut fields =
        vec!["49=ME", "56=YOU", "34=1", "52=20260101-00:00:00", "98=0", "108=30", "58=text = more", "58=", "1=a"];
    for _ in 0..random.below(6) {
        let field = fields.remove(random.below(fields.len()));
        body.push_str(&format!("{field}\x01"));
    }
    let version = random.of(&["FIX.4.0", "FIX.4.1", "FIX.4.2", "FIX.4.3", "FIX.4.4", "FIXT.1.1", "FIX.5.0", "FIX.4.9"]);
    let length = if random.once_in(10) { body.len() + 1 } else { body.len() };
    let mut message = format!("8={version}\x019={length}\x01{body}").into_bytes();
    let sum = message.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    let sum = if random.once_in(10) { sum.wrapping_add(1) } else { sum };
    message.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    if random.once_in(8) {
        message.extend_from_slice(b"8=FIX.4.4\x01");
    }
    message
}

/// CONNECT or CONNACK of MQTT 3.1, 3.1.1 or 5.0.
pub fn mqtt(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    let kind = if random.once_in(3) {
        body.push(u8::from(random.once_in(2)));
        body.push(random.below(6) as u8);
        if random.once_in(2) {
            properties(random, &[17, 33, 36, 37, 39, 18, 34, 31, 40, 41, 42, 19, 26, 28, 21, 22, 38], &mut body);
        }
        0x20
    } else {
        let (name, version) =
            *random.of(&[("MQTT", 4_u8), ("MQTT", 5), ("MQTT", 4), ("MQTT", 3), ("MQTT", 4), ("MQTT", 5), ("mqtt", 4)]);
        string(name.as_bytes(), &mut body);
        body.push(version);
        let flags = *random.of(&[0_u8, 2, 0x80, 0xc0, 0xc2, 0x04, 0x0e, 0x16, 0xf6, 0x40, 1, 0x26, 0x1c]);
        body.push(flags);
        body.extend_from_slice(&(random.next() as u16).to_be_bytes());
        if version == 5 {
            properties(random, &[17, 33, 39, 34, 25, 23, 21, 22, 38], &mut body);
        }
        string(&random.text(b"abc019", 8), &mut body);
        if flags & 4 != 0 {
            if version == 5 {
                properties(random, &[24, 1, 2, 3, 8, 9, 38], &mut body);
            }
            string(&random.text(b"topic/", 8), &mut body);
            string(&random.text(b"payload", 8), &mut body);
        }
        if flags & 0x80 != 0 {
            string(&random.text(b"user", 8), &mut body);
        }
        if flags & 0x40 != 0 {
            string(&random.text(b"password", 8), &mut body);
        }
        0x10
    };
    let mut out = vec![kind | if random.once_in(20) { 1 } else { 0 }];
    varint(body.len() as u64 + u64::from(random.once_in(20)), &mut out);
    out.extend_from_slice(&body);
    out
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

/// Some properties of MQTT 5.0, by their numbers.
fn properties(random: &mut Random, known: &[u8], out: &mut Vec<u8>) {
    let mut list = Vec::new();
    for _ in 0..random.below(4) {
        let property = *random.of(known);
        list.push(property);
        match property {
            1 | 23 | 25 | 36 | 37 | 40 | 41 | 42 => list.push(random.below(3) as u8),
            19 | 33 | 34 => list.extend_from_slice(&(random.next() as u16).to_be_bytes()),
            2 | 17 | 24 | 39 => list.extend_from_slice(&(random.next() as u32).to_be_bytes()),
            38 => {
                string(&random.text(b"name", 5), &mut list);
                string(&random.text(b"value", 5), &mut list);
            }
            _ => string(&random.text(b"abcdef", 8), &mut list),
        }
    }
    varint(list.len() as u64, out);
    out.extend_from_slice(&list);
}
