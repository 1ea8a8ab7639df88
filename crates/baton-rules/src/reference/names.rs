//! Names of hosts in patterns of addresses. They are resolved when patterns are read, once; HAProxy takes the first IPv4 address, too.

use std::borrow::Cow;
use std::net::IpAddr;

use super::file;
use crate::outside::Files;

/// A host's name as its address, and whatever else follows it; all else as it is.
pub(crate) fn resolved<'p>(pattern: Cow<'p, str>, files: &dyn Files) -> Cow<'p, str> {
    let (host, mask) = pattern.split_once('/').map_or((&*pattern, None), |(host, mask)| (host, Some(mask)));
    let is_name = host.parse::<IpAddr>().is_err() && host.contains(|char: char| char.is_ascii_alphabetic());
    match is_name.then(|| files.resolve(host)).flatten() {
        None => pattern,
        Some(address) => Cow::Owned(match mask {
            None => address.to_string(),
            Some(mask) => format!("{address}/{mask}"),
        }),
    }
}

/// The content of a file with addresses in the place of names. Names that are not found stay.
pub(super) fn resolved_file(content: Vec<u8>, is_map: bool, files: &dyn Files) -> Vec<u8> {
    let mut written = Vec::new();
    let mut copied = 0;
    for (_, key, _) in file::entries(&content, is_map) {
        // An IPv4 address has no letter, and an IPv6 address a colon.
        if !key.iter().any(u8::is_ascii_alphabetic) || key.contains(&b':') {
            continue;
        }
        let Ok(name) = std::str::from_utf8(key) else { continue };
        if let Cow::Owned(address) = resolved(Cow::Borrowed(name), files) {
            let start = key.as_ptr().addr() - content.as_ptr().addr();
            written.extend_from_slice(&content[copied..start]);
            written.extend_from_slice(address.as_bytes());
            copied = start + key.len();
        }
    }
    if copied == 0 {
        return content;
    }
    written.extend_from_slice(&content[copied..]);
    written
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::Ipv4Addr;

    use super::*;

    struct OneHost;

    impl Files for OneHost {
        fn read(&self, _: &str) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn resolve(&self, host: &str) -> Option<Ipv4Addr> {
            (host == "gateway.example").then_some(Ipv4Addr::new(192, 0, 2, 7))
        }
    }

    #[test]
    fn names_in_files_become_addresses_and_all_else_stays() {
        let check = |text: &str, is_map: bool, expected: &str| {
            let read = resolved_file(text.into(), is_map, &OneHost);
            assert_eq!(String::from_utf8_lossy(&read), expected);
        };
        let text = "# gateway.example\n10.0.0.1\ngateway.example\n gateway.example/24\n::ab\nother.example\n";
        check(text, false, "# gateway.example\n10.0.0.1\n192.0.2.7\n 192.0.2.7/24\n::ab\nother.example\n");
        check("gateway.example gateway.example\n10.0.0.1 a", true, "192.0.2.7 gateway.example\n10.0.0.1 a");
        check("10.0.0.1\n", false, "10.0.0.1\n");
        check("", true, "");
    }
}
