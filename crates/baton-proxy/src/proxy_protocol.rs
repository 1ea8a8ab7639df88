//! The PROXY protocol, versions 1 and 2 (proxy-protocol.txt of the package `haproxy-doc`): reading it from a client,
//! writing it to a server. Pure functions on bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use baton_model::{ProxyProtocol, SendProxy};
use baton_tls::{Description, Facts, View, names};

/// Who talks to whom; `None` on unix sockets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// The client's address, or what a PROXY header says it is.
    pub source: Option<SocketAddr>,
    /// The address the client connected to.
    pub destination: Option<SocketAddr>,
}

/// What a PROXY header says of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Introduction<'a> {
    /// The ends of its connection.
    pub addresses: Addresses,
    /// What its connection agreed on by TLS.
    pub client_tls: Option<&'a Facts>,
    /// The unique ID of the exchange.
    pub unique_id: Option<&'a [u8]>,
}

/// The first bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, line end included.
const V1_MAX: usize = 107;
/// Length of the fixed part of version 2.
const V2_FIXED: usize = 16;
/// Lengths of the blocks of addresses that follow it.
const V2_INET: usize = 12;
const V2_INET6: usize = 36;
const V2_UNIX: usize = 216;
/// Types of what may follow the addresses.
const TLV_ALPN: u8 = 1;
const TLV_AUTHORITY: u8 = 2;
const TLV_CRC32C: u8 = 3;
const TLV_PADDING: u8 = 4;
const TLV_UNIQUE_ID: u8 = 5;
const TLV_SSL: u8 = 0x20;
const TLV_SSL_VERSION: u8 = 0x21;
const TLV_SSL_CN: u8 = 0x22;
const TLV_SSL_CIPHER: u8 = 0x23;
const TLV_SSL_SIGNATURE: u8 = 0x24;
const TLV_SSL_KEY: u8 = 0x25;
/// The longest common name that is sent; RFC 5280 allows 64 characters.
const CN_MAX: usize = 4096;
/// What the value of [`TLV_SSL`] says about the client: it came by TLS, and showed a certificate on this connection, or in this session.
const CLIENT_SSL: u8 = 1;
const CLIENT_CERT_CONNECTION: u8 = 2;
const CLIENT_CERT_SESSION: u8 = 4;
/// The longest identification.
const UNIQUE_ID_MAX: usize = 128;

/// What stands at the start of the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Header {
    /// More bytes are needed to tell.
    Partial,
    /// A whole header.
    Complete {
        /// Its length in bytes.
        len: usize,
        /// Who it says talks to whom; `None`: `UNKNOWN` or `LOCAL`, the connection's own addresses hold.
        addresses: Option<Addresses>,
    },
}

/// Why there is no PROXY header, as HAProxy tells it apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// The bytes begin like neither version.
    NotProxy,
    /// A family of addresses that version 1 does not have.
    Protocol,
    /// A header whose content is wrong.
    Invalid,
    /// The client stopped before the header's end, or version 1 has no end within its length.
    Truncated,
    /// The client closed without a byte.
    Closed,
    /// The header did not come in time.
    Late,
}

impl Malformed {
    /// The log's words.
    pub fn text(self) -> &'static str {
        match self {
            Malformed::NotProxy => "Received something which does not look like a PROXY protocol header",
            Malformed::Protocol => "Received an unhandled protocol in the PROXY protocol header",
            Malformed::Invalid => "Received an invalid PROXY protocol header",
            Malformed::Truncated => "Truncated PROXY protocol header received",
            Malformed::Closed => "Connection closed while waiting for PROXY protocol header",
            Malformed::Late => "Timeout while waiting for PROXY protocol header",
        }
    }
}

/// Reads a header of either version.
pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
    let start = &bytes[..bytes.len().min(SIGNATURE.len())];
    if start == &SIGNATURE[..start.len()] {
        parse_v2(bytes)
    } else if bytes.starts_with(b"PROXY ") || b"PROXY ".starts_with(bytes) {
        parse_v1(bytes)
    } else {
        Err(Malformed::NotProxy)
    }
}

/// Version 1, byte by byte as its text has it: what is nearly right may mean something else to the next reader.
fn parse_v1(bytes: &[u8]) -> Result<Header, Malformed> {
    let bytes = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = memchr::memchr(b'\n', bytes) else {
        return if bytes.len() < V1_MAX { Ok(Header::Partial) } else { Err(Malformed::Truncated) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Malformed::Invalid)?;
    let mut words = line.split(|&byte| byte == b' ').skip(1);
    let family = words.next().ok_or(Malformed::Protocol)?;
    let len = end + 1;
    if family == b"UNKNOWN" {
        // Whatever stands before CRLF is to be ignored.
        return Ok(Header::Complete { len, addresses: None });
    }
    if !matches!(family, b"TCP4" | b"TCP6") {
        return Err(Malformed::Protocol);
    }
    let mut next = || words.next().and_then(|word| std::str::from_utf8(word).ok()).ok_or(Malformed::Invalid);
    let (source, destination, source_port, destination_port) = (next()?, next()?, next()?, next()?);
    let ip = |text: &str| -> Result<IpAddr, Malformed> {
        let address = if family == b"TCP4" { text.parse().map(IpAddr::V4) } else { text.parse().map(IpAddr::V6) };
        address.map_err(|_| Malformed::Invalid)
    };
    let addresses = Addresses {
        source: Some(SocketAddr::new(ip(source)?, v1_port(source_port)?)),
        destination: Some(SocketAddr::new(ip(destination)?, v1_port(destination_port)?)),
    };
    if words.next().is_some() {
        return Err(Malformed::Invalid);
    }
    Ok(Header::Complete { len, addresses: Some(addresses) })
}

/// Digits alone, without a zero in front.
fn v1_port(text: &str) -> Result<u16, Malformed> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_decimal).ok_or(Malformed::Invalid)
}

fn parse_v2(bytes: &[u8]) -> Result<Header, Malformed> {
    let Some(fixed) = bytes.get(..V2_FIXED) else { return Ok(Header::Partial) };
    let (command, family) = (fixed[12], fixed[13]);
    let rest = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let len = V2_FIXED + rest;
    if command >> 4 != 2 {
        return Err(Malformed::NotProxy);
    }
    let local = match command & 15 {
        0 => true,
        1 => false,
        _ => return Err(Malformed::Invalid),
    };
    // What comes before a block that cannot be right need not be waited for. The family of LOCAL is to be ignored.
    let block_len = match (local, block_len(family)) {
        (true, _) => 0,
        (false, Some(len)) => len,
        // Families and protocols without a meaning "must be rejected as invalid by receivers".
        (false, None) => return Err(Malformed::Invalid),
    };
    if rest < block_len {
        return Err(Malformed::Invalid);
    }
    let Some(body) = bytes.get(V2_FIXED..len) else { return Ok(Header::Partial) };
    if local || family == 0 {
        // The connection's own addresses hold, and the block is skipped: nobody knows where addresses end in it.
        return Ok(Header::Complete { len, addresses: None });
    }
    check_tlvs(&bytes[..len], V2_FIXED + block_len)?;
    let addresses = match family >> 4 {
        1 => body.first_chunk().map(|block: &[u8; V2_INET]| {
            let ip = |at: usize| IpAddr::V4(Ipv4Addr::new(block[at], block[at + 1], block[at + 2], block[at + 3]));
            (ip(0), ip(4), [block[8], block[9]], [block[10], block[11]])
        }),
        2 => body.first_chunk().map(|block: &[u8; V2_INET6]| {
            let ip = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&block[at..at + 16]);
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            (ip(0), ip(16), [block[32], block[33]], [block[34], block[35]])
        }),
        // Paths of unix sockets are of no use here.
        _ => None,
    };
    let addresses = addresses.map(|(source, destination, source_port, destination_port)| Addresses {
        source: Some(SocketAddr::new(source, u16::from_be_bytes(source_port))),
        destination: Some(SocketAddr::new(destination, u16::from_be_bytes(destination_port))),
    });
    Ok(Header::Complete { len, addresses })
}

/// The length of a block of addresses of version 2.
fn block_len(family: u8) -> Option<usize> {
    match family {
        0x00 => Some(0),
        0x11 | 0x12 => Some(V2_INET),
        0x21 | 0x22 => Some(V2_INET6),
        0x31 | 0x32 => Some(V2_UNIX),
        _ => None,
    }
}

/// The values with types (TLV) of a header, without its checksum and padding.
#[derive(Debug, Eq, PartialEq)]
pub struct HeaderValues(Box<[u8]>);

impl HeaderValues {
    /// Those of a whole header that was read; `None`: it has none, as most. They do not count behind addresses that do not hold.
    pub fn of(header: &[u8]) -> Option<Box<HeaderValues>> {
        let fixed = header.get(..V2_FIXED)?;
        if !(fixed.starts_with(SIGNATURE) && fixed[12] & 15 == 1 && fixed[13] != 0) {
            return None;
        }
        let mut rest = header.get(V2_FIXED + block_len(fixed[13]).unwrap_or_default()..)?;
        let mut kept = Vec::new();
        while let &[kind, high, low, ..] = rest {
            let len = 3 + usize::from(u16::from_be_bytes([high, low]));
            let Some((value, next)) = rest.split_at_checked(len) else { break };
            if !matches!(kind, TLV_CRC32C | TLV_PADDING) {
                kept.extend_from_slice(value);
            }
            rest = next;
        }
        (!kept.is_empty()).then(|| Box::new(HeaderValues(kept.into())))
    }

    /// All of them, as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Those that were kept of a header elsewhere.
    pub fn of_bytes(bytes: Vec<u8>) -> Box<HeaderValues> {
        Box::new(HeaderValues(bytes.into()))
    }

    /// The value of this type.
    pub fn value(&self, wanted: u8) -> Option<&[u8]> {
        let mut values = &*self.0;
        while let [kind, high, low, rest @ ..] = values {
            let (value, next) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
            if *kind == wanted {
                return Some(value);
            }
            values = next;
        }
        None
    }
}

/// Type, length and value, one after the other to the header's end, which the last one must meet. The checksum is verified where there
/// is one; the others are not used.
fn check_tlvs(header: &[u8], mut at: usize) -> Result<(), Malformed> {
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else { return Err(Malformed::Invalid) };
        let value = at + 3;
        let end = value + usize::from(u16::from_be_bytes([high, low]));
        if end > header.len() || (kind == TLV_UNIQUE_ID && end - value > UNIQUE_ID_MAX) {
            return Err(Malformed::Invalid);
        }
        if kind == TLV_CRC32C && (end - value != 4 || checksum(header, value..end).to_be_bytes() != header[value..end])
        {
            return Err(Malformed::Invalid);
        }
        at = end;
    }
    Ok(())
}

/// The checksum over a header in which the checksum itself is zero.
fn checksum(header: &[u8], itself: Range<usize>) -> u32 {
    let mut blank = header.to_vec();
    blank[itself].fill(0);
    baton_rules::crc32c(&blank)
}

/// Appends the header that `send-proxy` or `send-proxy-v2` puts first on a server's connection.
pub fn write_header(wanted: SendProxy, introduction: &Introduction<'_>, out: &mut Vec<u8>) {
    match wanted.version() {
        ProxyProtocol::Off => {}
        ProxyProtocol::V1 => write_v1(&introduction.addresses, out),
        ProxyProtocol::V2 => write_v2(wanted, introduction, out),
    }
}

fn write_v1(addresses: &Addresses, out: &mut Vec<u8>) {
    let (Some(source), Some(destination)) = (addresses.source, addresses.destination) else {
        out.extend_from_slice(b"PROXY UNKNOWN\r\n");
        return;
    };
    let (from, to) = same_family(source.ip(), destination.ip());
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    let line = format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
    out.extend_from_slice(line.as_bytes());
}

fn write_v2(wanted: SendProxy, introduction: &Introduction<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    write_v2_addresses(&introduction.addresses, out);
    let checksum_at = wanted.has(SendProxy::CRC32C).then(|| {
        write_tlv(TLV_CRC32C, &[0; 4], out);
        out.len() - 4 - start..out.len() - start
    });
    write_tlvs(wanted, introduction, out);
    let header = &mut out[start..];
    let len = u16::try_from(header.len() - V2_FIXED).unwrap_or(u16::MAX);
    header[V2_FIXED - 2..V2_FIXED].copy_from_slice(&len.to_be_bytes());
    if let Some(itself) = checksum_at {
        let sum = checksum(header, itself.clone());
        header[itself].copy_from_slice(&sum.to_be_bytes());
    }
}

/// What HAProxy puts behind the addresses, in its order.
fn write_tlvs(wanted: SendProxy, introduction: &Introduction<'_>, out: &mut Vec<u8>) {
    let Introduction { client_tls, unique_id, .. } = *introduction;
    if let Some(alpn) = client_tls.and_then(|tls| tls.alpn.as_deref()) {
        write_tlv(TLV_ALPN, alpn, out);
    }
    if let Some(name) = client_tls.and_then(|tls| tls.sni.as_deref()).filter(|_| wanted.has(SendProxy::AUTHORITY)) {
        write_tlv(TLV_AUTHORITY, name.as_bytes(), out);
    }
    if let Some(id) = unique_id.filter(|_| wanted.has(SendProxy::UNIQUE_ID)) {
        write_tlv(TLV_UNIQUE_ID, &id[..id.len().min(UNIQUE_ID_MAX)], out);
    }
    if wanted.has(SendProxy::SSL) {
        let value = client_tls.map_or_else(|| vec![0; 5], |tls| tls_value(wanted, tls));
        write_tlv(TLV_SSL, &value, out);
    }
}

/// The value of [`TLV_SSL`] for a client that came by TLS.
fn tls_value(wanted: SendProxy, tls: &Facts) -> Vec<u8> {
    let client = match (tls.peer.is_empty(), tls.resumed) {
        (true, _) => CLIENT_SSL,
        (false, true) => CLIENT_SSL | CLIENT_CERT_SESSION,
        (false, false) => CLIENT_SSL | CLIENT_CERT_CONNECTION | CLIENT_CERT_SESSION,
    };
    let mut value = vec![client];
    value.extend_from_slice(&tls.verification.result.to_be_bytes());
    if let Some(version) = tls.version {
        write_tlv(TLV_SSL_VERSION, names::version_name(version).as_bytes(), &mut value);
    }
    let peer = tls.peer.first().filter(|_| wanted.has(SendProxy::CERT_CN));
    if let Some(name) = peer.and_then(|der| View::read(der)?.subject().entry("CN", 1)) {
        write_name(name, &mut value);
    }
    let ours = tls.ours.as_ref().and_then(|ours| ours.der());
    if let Some(key) = ours.filter(|_| wanted.has(SendProxy::CERT_KEY)).and_then(|der| Description::of(der)) {
        write_tlv(TLV_SSL_KEY, key.algorithm.as_bytes(), &mut value);
    }
    if let Some(view) = ours.filter(|_| wanted.has(SendProxy::CERT_SIG)).and_then(|der| View::read(der)) {
        write_tlv(TLV_SSL_SIGNATURE, view.signature_algorithm().as_bytes(), &mut value);
    }
    let cipher = tls.suite.and_then(|suite| names::cipher_name(suite.suite()));
    if let Some(cipher) = cipher.filter(|_| wanted.has(SendProxy::SSL_CIPHER)) {
        write_tlv(TLV_SSL_CIPHER, cipher.as_bytes(), &mut value);
    }
    value
}

/// The common name of a client's certificate.
fn write_name(name: &[u8], out: &mut Vec<u8>) {
    if name.len() <= CN_MAX {
        write_tlv(TLV_SSL_CN, name, out);
    }
}

/// A type, a length and a value. All values together are far shorter than the 64 KiB that a header has room for.
fn write_tlv(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&value[..usize::from(len)]);
}

/// Command, family, the length that is filled in later, and the addresses.
fn write_v2_addresses(addresses: &Addresses, out: &mut Vec<u8>) {
    let (Some(source), Some(destination)) = (addresses.source, addresses.destination) else {
        // LOCAL, unspecified family.
        out.extend_from_slice(&[0x20, 0, 0, 0]);
        return;
    };
    out.push(0x21);
    match same_family(source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[0x11, 0, 0]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            out.extend_from_slice(&[0x21, 0, 0]);
            out.extend_from_slice(&wide(from).octets());
            out.extend_from_slice(&wide(to).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Both as they are when they are of one family, else both as IPv6.
fn same_family(from: IpAddr, to: IpAddr) -> (IpAddr, IpAddr) {
    if from.is_ipv4() == to.is_ipv4() { (from, to) } else { (wide(from).into(), wide(to).into()) }
}

fn wide(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests {
    use baton_tls::{Verification, rustls};

    use super::*;

    fn check(bytes: &[u8], expect: &str) {
        let text = match parse(bytes) {
            Err(fault) => format!("{fault:?}"),
            Ok(Header::Partial) => "partial".to_owned(),
            Ok(Header::Complete { len, addresses: None }) => format!("{len} own"),
            Ok(Header::Complete { len, addresses: Some(Addresses { source, destination }) }) => {
                let show = |address: Option<SocketAddr>| address.map_or("?".to_owned(), |address| address.to_string());
                format!("{len} {} {}", show(source), show(destination))
            }
        };
        assert_eq!(text, expect, "{}", bytes.escape_ascii());
    }

    #[test]
    fn values_are_kept_without_checksum_and_padding() {
        let header = |tlvs: &[u8]| {
            let len = u16::try_from(12 + tlvs.len()).expect("short").to_be_bytes();
            [SIGNATURE.as_slice(), &[0x21, 0x11], &len, &[0; 12], tlvs].concat()
        };
        assert_eq!(HeaderValues::of(&header(b"")), None);
        assert_eq!(HeaderValues::of(&header(b"\x04\0\x02\0\0\x03\0\x04abcd")), None);
        let kept =
            HeaderValues::of(&header(b"\x04\0\x02\0\0\x02\0\x01a\x03\0\x04abcd\x05\0\x02id")).expect("there are some");
        assert_eq!(&*kept.0, b"\x02\0\x01a\x05\0\x02id");
        assert_eq!((kept.value(5), kept.value(3)), (Some(&b"id"[..]), None));
    }

    #[test]
    fn version_1() {
        check(b"PROXY TCP4 192.0.2.1 198.51.100.2 5000 80\r\nGET", "43 192.0.2.1:5000 198.51.100.2:80");
        check(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n", "40 [2001:db8::1]:1 [2001:db8::2]:2");
        check(b"PROXY UNKNOWN ffff:f... whatever\r\n", "34 own");
        check(b"PRO", "partial");
        check(b"PROXY TCP4 192.0.2.1", "partial");
        check(b"PROXY TCP4 192.0.2.1 198.51.100.2 5000\r\n", "Invalid");
        check(b"PROXY TCP4 2001:db8::1 198.51.100.2 5000 80\r\n", "Invalid");
        check(b"PROXY TCP4 192.0.2.1 198.51.100.2 5000 80 9\r\n", "Invalid");
        check(b"PROXY TCP4 192.0.2.1 198.51.100.2 5000 80\n", "Invalid");
        check(b"GET / HTTP/1.1\r\n\r\n", "NotProxy");
        check(&[b"PROXY ".as_slice(), &[b'x'; 101]].concat(), "Truncated");
        check(b"PROXY TCP5 10.1.2.3 10.4.5.6 4567 80\r\n", "Protocol");
        check(b"", "partial");
        check(b"PROXY UNKNOWN\r\n", "15 own");
        check(b"PROXY UNKNOWN \xff\0\r\n", "18 own");
        check(b"PROXY UNKNOWNX\r\n", "Protocol");
        check(b"PROXY TCP4 1.2.3.4 5.6.7.8 0 65535\r\n", "36 1.2.3.4:0 5.6.7.8:65535");
        for ports in [
            "+80 80", "80 +80", "-1 80", "080 80", "80 00", "0x50 80", "65536 80", "80 80x", " 80 80", "80  80",
            "80 80 ",
        ] {
            check(format!("PROXY TCP4 1.2.3.4 5.6.7.8 {ports}\r\n").as_bytes(), "Invalid");
        }
        for address in ["01.2.3.4", "1.2.3", "1.2.3.256", "1.2.3.4.5", "+1.2.3.4", "0x1.2.3.4", "", "::1"] {
            check(format!("PROXY TCP4 {address} 5.6.7.8 80 80\r\n").as_bytes(), "Invalid");
        }
        for address in ["1.2.3.4", "[::1]", "::1%1", "1::2::3", "::12345", "::1 "] {
            check(format!("PROXY TCP6 {address} ::1 80 80\r\n").as_bytes(), "Invalid");
        }
        check(b"PROXY TCP4 1.2.3.4 5.6.7.8 80 80\r\r\n", "Invalid");
        check(b"PROXY TCP4\t1.2.3.4 5.6.7.8 80 80\r\n", "Protocol");
        // 107 bytes are the longest line, whatever is in it.
        let long = |len: usize| [b"PROXY UNKNOWN ".as_slice(), &vec![b'f'; len - 16], b"\r\n"].concat();
        check(&long(107), "107 own");
        check(&long(108), "Truncated");
    }

    #[test]
    fn version_2() {
        let with = |rest: &[u8]| [SIGNATURE.as_slice(), rest].concat();
        check(&with(b"\x21\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\x13\x88\0\x50"), "28 1.2.3.4:5000 5.6.7.8:80");
        check(&with(b"\x20\0\0\0"), "16 own");
        check(&with(b"\x21\x31\0\x01x"), "Invalid");
        check(&with(&[b"\x21\x31\0\xd8".as_slice(), &[b'x'; 216]].concat()), "232 own");
        check(&with(b"\x21\0\0\x03abc"), "19 own");
        check(&with(b"\x20\xff\0\x03abc"), "19 own");
        check(&with(b"\x21\x11\0\x0b12345678901"), "Invalid");
        check(&with(b"\x31\x11\0\0"), "NotProxy");
        check(&with(b"\x22\x11\0\0"), "Invalid");
        check(&with(b"\x21\x11\0\x0c\x01"), "partial");
        check(&SIGNATURE[..5], "partial");
    }

    /// "Other values are unspecified and must not be emitted and must be rejected as invalid by receivers."
    #[test]
    fn families_and_protocols_without_a_meaning() {
        let known = [0x00, 0x11, 0x12, 0x21, 0x22, 0x31, 0x32];
        for family in 0..=255u8 {
            let header = [SIGNATURE.as_slice(), &[0x21, family, 0, 216], &[0; 216]].concat();
            assert_eq!(parse(&header).is_ok(), known.contains(&family), "{family:#x}");
        }
    }

    #[test]
    fn what_follows_the_addresses() {
        let with = |tlvs: &[u8]| {
            let len = (12 + tlvs.len()) as u16;
            let fixed = [SIGNATURE.as_slice(), &[0x21, 0x11], &len.to_be_bytes()].concat();
            [&fixed[..], b"\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\0\x51", tlvs].concat()
        };
        check(&with(b"\x04\0\x01x"), "32 1.2.3.4:80 5.6.7.8:81");
        check(&with(b"\x04\0\0\xe0\0\x02ab"), "36 1.2.3.4:80 5.6.7.8:81");
        for tlvs in
            [&b"\x04"[..], b"\x04\0", b"\x04\0\x01", b"\x04\0\x02x", b"\x04\0\0x", b"\x04\xff\xffx", b"\x03\0\x03abc"]
        {
            check(&with(tlvs), "Invalid");
        }
        check(&with(&[b"\x05\0\x80".as_slice(), &[b'x'; 128]].concat()), "159 1.2.3.4:80 5.6.7.8:81");
        check(&with(&[b"\x05\0\x81".as_slice(), &[b'x'; 129]].concat()), "Invalid");
        let mut summed = with(b"\x03\0\x04\0\0\0\0");
        let crc = checksum(&summed, 0..0);
        let at = summed.len() - 4;
        summed[at..].copy_from_slice(&crc.to_be_bytes());
        check(&summed, "35 1.2.3.4:80 5.6.7.8:81");
        summed[20] ^= 1;
        check(&summed, "Invalid");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let cases = [("192.0.2.1:1", "192.0.2.2:2"), ("[2001:db8::1]:1", "[::1]:65535"), ("192.0.2.1:1", "[::1]:2")];
        for (source, destination) in cases {
            let options = SendProxy::V2 | SendProxy::CRC32C | SendProxy::SSL_CIPHER | SendProxy::UNIQUE_ID;
            for wanted in [SendProxy::V1, SendProxy::V2, options] {
                let addresses = Addresses { source: source.parse().ok(), destination: destination.parse().ok() };
                let tls = Facts { version: None, ..tls() };
                let introduction = Introduction { addresses, client_tls: Some(&tls), unique_id: Some(b"an id") };
                let mut out = Vec::new();
                write_header(wanted, &introduction, &mut out);
                let Ok(Header::Complete { len, addresses: Some(read) }) = parse(&out) else {
                    panic!("{}", out.escape_ascii());
                };
                assert_eq!(len, out.len());
                let plain = |address: Option<SocketAddr>| address.map(|a| (a.ip().to_canonical(), a.port()));
                assert_eq!(plain(read.source), plain(addresses.source));
                assert_eq!(plain(read.destination), plain(addresses.destination));
                let id = HeaderValues::of(&out).and_then(|values| values.value(TLV_UNIQUE_ID).map(<[u8]>::to_vec));
                assert_eq!(id.as_deref(), (wanted == options).then_some(&b"an id"[..]));
            }
        }
    }

    fn tls() -> Facts {
        Facts {
            version: Some(rustls::ProtocolVersion::TLSv1_3),
            suite: None,
            alpn: Some(b"h2".as_slice().into()),
            sni: Some("a.example".into()),
            resumed: false,
            peer: Box::default(),
            verification: Verification::default(),
            ours: None,
            captured: None,
        }
    }

    /// As HAProxy 2.6 writes them.
    #[test]
    fn what_stands_behind_the_addresses_is_what_was_asked_for() {
        let check = |wanted, unique_id: Option<&[u8]>, client_tls: Option<&Facts>, expect: &[u8]| {
            let mut out = Vec::new();
            write_header(
                SendProxy::V2 | wanted,
                &Introduction { client_tls, unique_id, ..Default::default() },
                &mut out,
            );
            assert_eq!(&out[..14], b"\r\n\r\n\0\r\nQUIT\n\x20\0");
            assert_eq!(usize::from(u16::from_be_bytes([out[14], out[15]])), out.len() - 16);
            assert_eq!(out[16..].escape_ascii().to_string(), expect.escape_ascii().to_string());
        };
        let tls = tls();
        check(SendProxy::OFF, Some(b"id"), None, b"");
        check(SendProxy::OFF, Some(b"id"), Some(&tls), b"\x01\0\x02h2");
        check(SendProxy::AUTHORITY, None, Some(&tls), b"\x01\0\x02h2\x02\0\x09a.example");
        check(SendProxy::UNIQUE_ID, None, None, b"");
        check(SendProxy::UNIQUE_ID, Some(b"id"), None, b"\x05\0\x02id");
        check(SendProxy::UNIQUE_ID, Some(&[b'x'; 129]), None, &[b"\x05\0\x80".as_slice(), &[b'x'; 128]].concat());
        check(SendProxy::SSL, None, None, b"\x20\0\x05\0\0\0\0\0");
        let expect = b"\x01\0\x02h2\x20\0\x0f\x01\0\0\0\0\x21\0\x07TLSv1.3";
        check(SendProxy::CERT_CN | SendProxy::CERT_KEY, None, Some(&tls), expect);
    }

    /// A header that the length could not describe would be read as the client's bytes.
    #[test]
    fn a_name_of_any_length_leaves_a_header_that_can_be_read() {
        for len in [0, 64, CN_MAX, CN_MAX + 1, 70_000] {
            let mut value = Vec::new();
            write_name(&vec![b'n'; len], &mut value);
            assert_eq!(value.len(), if len <= CN_MAX { len + 3 } else { 0 }, "{len}");
        }
    }
}
