//! Requests of all forms: targets with and without queries, several headers of a name, cookies, bodies.

use super::random::Random;

/// A request that both programs accept.
pub fn any(random: &mut Random) -> Vec<u8> {
    let body = random.once_in(3).then(|| body(random));
    let method = match &body {
        Some(_) => *random.of(&["POST", "PUT", "PATCH"]),
        None => *random.of(&["GET", "GET", "DELETE", "OPTIONS", "QUERY"]),
    };
    let mut path = String::new();
    for _ in 0..1 + random.below(3) {
        path.push('/');
        path.push_str(&ascii(random.text(b"ab.-_~12", 6)));
    }
    let query = match random.below(3) {
        0 => String::new(),
        1 => format!("?{}", ascii(random.text(b"ab=&;1%2F+", 16))),
        _ => format!("?{}", form(random)),
    };
    let host = *random.of(&["example.com", "example.com:8080", "EXAMPLE.com", "1.2.3.4", "1.2.3.4:81", "[::1]:80"]);
    let target = if random.once_in(6) { format!("http://{host}{path}{query}") } else { format!("{path}{query}") };
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    for _ in 0..random.below(6) {
        let name = random.of(&["X-A", "x-a", "X-B", "Accept-Language", "User-Agent", "X-Ip", "X-N"]);
        let value = match random.below(5) {
            0 => format!("{}, {}", ascii(random.text(b"abc", 4)), ascii(random.text(b"abc \"", 6))),
            1 => format!("{}.{}.{}.{}", random.below(300), random.below(256), random.below(256), random.below(256)),
            2 => (random.next() as i64 >> random.below(63)).to_string(),
            _ => ascii(random.text(b"abc, ;=\"/:.()", 20)),
        };
        head.push_str(&format!("{name}: {}\r\n", value.trim()));
    }
    for _ in 0..random.below(3) {
        let cookies: Vec<String> = (0..1 + random.below(3))
            .map(|_| format!("{}={}", random.of(&["a", "b", "name", "SRV"]), ascii(random.text(b"abc12", 5))))
            .collect();
        head.push_str(&format!("Cookie: {}\r\n", cookies.join("; ")));
    }
    if let Some((kind, body)) = &body {
        head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()));
    }
    let mut bytes = format!("{head}\r\n").into_bytes();
    bytes.extend(body.into_iter().flat_map(|(_, body)| body));
    bytes
}

fn body(random: &mut Random) -> (&'static str, Vec<u8>) {
    match random.below(3) {
        0 => ("application/x-www-form-urlencoded", form(random).into_bytes()),
        1 => ("application/json", super::messages::json(random, 2).into_bytes()),
        _ => ("text/plain", random.text(b"abc\r\n =&\0", 30)),
    }
}

fn form(random: &mut Random) -> String {
    let pairs: Vec<String> = (0..random.below(5))
        .map(|_| format!("{}={}", random.of(&["a", "b", "x", "name"]), ascii(random.text(b"ab1%+", 5))))
        .collect();
    pairs.join("&")
}

fn ascii(bytes: Vec<u8>) -> String {
    bytes.into_iter().map(char::from).collect()
}
