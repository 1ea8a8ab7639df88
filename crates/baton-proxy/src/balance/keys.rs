//! The balance key of a request, from its bytes.

use std::net::IpAddr;

use baton_model::{HashType, Server, UriHash};

use super::hash;
use super::xxh64::xxh64;

/// `balance source`: the client's address, an IPv6 address folded into 32 bits.
pub fn source(kind: &HashType, address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => hash::mix(kind, u32::from(address)),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            hash::mix(kind, (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32)
        }
    }
}

/// `balance uri`: the request target as it was sent.
pub fn uri(kind: &HashType, what: &UriHash, target: &[u8]) -> u32 {
    hash::key(kind, uri_part(what, target))
}

/// `balance url_param NAME`: the parameter's value in the query string (or, for `check_post`, in the body: pass it as
/// `query`). `None` without the parameter.
pub fn url_param(kind: &HashType, name: &str, query: &[u8]) -> Option<u32> {
    let value = query.split(|byte| *byte == b'&').find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (&pair[..at] == name.as_bytes()).then(|| &pair[at + 1..])
    })?;
    Some(hash::key(kind, value))
}

/// `balance hdr(NAME)`: the header's value. `None` when it is empty.
pub fn header(kind: &HashType, domain_only: bool, value: &[u8]) -> Option<u32> {
    if value.is_empty() {
        return None;
    }
    Some(hash::key(kind, if domain_only { main_domain(value) } else { value }))
}

/// `balance hash EXPR`, `balance rdp-cookie`: the bytes of the sample.
pub fn bytes(kind: &HashType, value: &[u8]) -> u32 {
    hash::key(kind, value)
}

fn uri_part<'a>(what: &UriHash, target: &'a [u8]) -> &'a [u8] {
    let mut part = target;
    if what.path_only {
        part = path(part);
    }
    if what.len > 0 {
        part = &part[..part.len().min(what.len as usize)];
    }
    let mut slashes = 0;
    let end = part.iter().position(|byte| {
        slashes += u32::from(*byte == b'/');
        (*byte == b'?' && !what.whole) || (what.depth > 0 && slashes > what.depth)
    });
    &part[..end.unwrap_or(part.len())]
}

/// From the first slash of the path of an absolute URI.
fn path(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let Some(scheme) = target.windows(3).position(|three| three == b"://") else { return &[] };
    let authority = &target[scheme + 3..];
    authority.iter().position(|byte| *byte == b'/').map_or(&[], |at| &authority[at..])
}

/// The label before the last dot of a host name; all of it without a dot, a port included, as HAProxy does.
fn main_domain(value: &[u8]) -> &[u8] {
    let mut labels = value.rsplit(|byte| *byte == b'.');
    let last = labels.next();
    labels.next().or(last).unwrap_or(value)
}

/// The value of a server's dynamic cookie: the XXH64 of key, address and port as 16 hexadecimal digits, as HAProxy writes
/// it. `None` for a server without an IP address.
pub fn dynamic_cookie(key: &str, server: &Server) -> Option<String> {
    let address = server.address.inet()?;
    let mut input = key.as_bytes().to_vec();
    match address.ip() {
        IpAddr::V4(address) => input.extend(address.octets()),
        IpAddr::V6(address) => input.extend(address.octets()),
    }
    input.extend(server.address.service_port().to_be_bytes());
    Some(format!("{:016x}", xxh64(&input)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_uri(what: UriHash, target: &str, expect: &str) {
        assert_eq!(uri_part(&what, target.as_bytes()), expect.as_bytes(), "{what:?} {target}");
    }

    #[test]
    fn uri_parts_are_haproxys() {
        let plain = UriHash::default;
        check_uri(plain(), "/abc/def/ghi?x=1/2", "/abc/def/ghi");
        check_uri(plain(), "http://host.ex/abc/def?q=1", "http://host.ex/abc/def");
        check_uri(plain(), "*", "*");
        check_uri(UriHash { whole: true, ..plain() }, "/abc?x=1/2", "/abc?x=1/2");
        check_uri(UriHash { len: 6, ..plain() }, "/abc/def?x", "/abc/d");
        check_uri(UriHash { len: 6, ..plain() }, "/a?bcdef", "/a");
        check_uri(UriHash { depth: 2, ..plain() }, "/a/b/c/d/?z", "/a/b");
        check_uri(UriHash { depth: 3, ..plain() }, "http://host.ex/abc/def", "http://host.ex/abc");
        check_uri(UriHash { len: 6, depth: 1, ..plain() }, "//a/b", "/");
        check_uri(UriHash { path_only: true, ..plain() }, "http://host.ex/abc/def?q", "/abc/def");
        check_uri(UriHash { path_only: true, ..plain() }, "http://host.ex", "");
        check_uri(UriHash { path_only: true, depth: 1, whole: true, ..plain() }, "/abc/", "/abc");
    }

    #[test]
    fn an_ipv6_address_is_folded() {
        let fold = |text: &str| source(&HashType::default(), text.parse().expect("a test's address"));
        assert_eq!([fold("::1"), fold("::ffff:127.0.0.2"), fold("127.0.0.2")], [1, 0x7f00_fffd, 0x7f00_0002]);
    }

    fn check_param(query: &str, expect: Option<&str>) {
        let kind = HashType::default();
        assert_eq!(
            url_param(&kind, "k", query.as_bytes()),
            expect.map(|value| bytes(&kind, value.as_bytes())),
            "{query}"
        );
    }

    #[test]
    fn the_first_parameter_with_a_value_counts() {
        check_param("k=val", Some("val"));
        check_param("a=1&k=val&k=w", Some("val"));
        check_param("k&k=3", Some("3"));
        check_param("k=a%20b", Some("a%20b"));
        check_param("K=val", None);
        check_param("kk=1", None);
        check_param("a;k=5", None);
        check_param("x=1?k=9", None);
        check_param("k=", Some(""));
        check_param("", None);
    }

    #[test]
    fn use_domain_only_takes_the_label_before_the_last_dot() {
        let check = |value: &str, expect: &str| assert_eq!(main_domain(value.as_bytes()), expect.as_bytes());
        check("www.haproxy.1wt.eu", "1wt");
        check("1wt.eu", "1wt");
        check("localhost", "localhost");
        check("host:80", "host:80");
        check("www.x.org:8080", "x");
        check("10.1.2.3", "2");
        check("a.b.", "b");
    }

    #[test]
    fn an_ipv4_source_is_its_number() {
        let address = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(source(&HashType::default(), address), 0x7f00_0001);
    }
}
