//! The first lines of a link: three of the side that dialled, one of the side that accepted.

/// Bytes of the dialler's lines that are read, at most.
pub const HELLO_MAX: usize = 1024;
/// Bytes of the acceptor's line that are read, at most.
pub const STATUS_MAX: usize = 128;
/// What the first line begins with.
const PROTOCOL: &str = "HAProxyS ";
/// The newest minor version of the protocol, 2.1, that both sides of HAProxy 2.6 to 3.5 speak.
pub const MINOR_MAX: u32 = 1;
/// The major version.
const MAJOR: u32 = 2;

/// What the side that accepted says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// The session begins.
    Accepted,
    /// Another session of the same kind is there: try again.
    TryAgain,
    /// The lines are no hello.
    Malformed,
    /// A version that is not spoken here.
    Version,
    /// The dialler wants to speak with another peer.
    WrongPeer,
    /// The section has no such peer as the dialler.
    UnknownPeer,
}

impl Status {
    /// Its number.
    pub fn code(self) -> u32 {
        match self {
            Status::Accepted => 200,
            Status::TryAgain => 300,
            Status::Malformed => 501,
            Status::Version => 502,
            Status::WrongPeer => 503,
            Status::UnknownPeer => 504,
        }
    }

    /// Its line.
    pub fn line(self) -> String {
        format!("{}\n", self.code())
    }
}

/// What a dialler said, and how many bytes it was.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Minor version.
    pub minor: u32,
    /// Who dialled.
    pub sender: String,
    /// Bytes of the three lines.
    pub length: usize,
}

/// The lines of a dialler.
pub fn hello(minor: u32, target: &str, local: &str, pid: u32) -> String {
    format!("{PROTOCOL}{MAJOR}.{minor}\n{target}\n{local} {pid} 1\n")
}

/// Reads the lines of a dialler; `None` while some are missing. Each is judged as soon as it is whole. `local` is the name of this side, `knows`
/// tells whether there is a peer of a name.
///
/// # Errors
/// What the dialler is told before its connection is closed.
pub fn judge(bytes: &[u8], local: &str, knows: impl Fn(&str) -> bool) -> Result<Option<Hello>, Status> {
    let mut rest = bytes;
    let Some(first) = line(&mut rest) else { return too_long(bytes) };
    let version = text(first)?.strip_prefix(PROTOCOL).ok_or(Status::Malformed)?;
    let (major, minor) = version.split_once('.').ok_or(Status::Version)?;
    let minor = match (number(major), number(minor)) {
        (Some(MAJOR), Some(minor @ 0..=MINOR_MAX)) => minor,
        _ => return Err(Status::Version),
    };
    let Some(second) = line(&mut rest) else { return too_long(bytes) };
    if second != local.as_bytes() {
        return Err(Status::WrongPeer);
    }
    let Some(third) = line(&mut rest) else { return too_long(bytes) };
    let (sender, _) = text(third)?.split_once(' ').ok_or(Status::Malformed)?;
    if !knows(sender) {
        return Err(Status::UnknownPeer);
    }
    Ok(Some(Hello { minor, sender: sender.into(), length: bytes.len() - rest.len() }))
}

/// Reads the line of the side that accepted: the number, and the bytes of the line; `None` while it is not whole.
///
/// # Errors
/// It is no such line.
pub fn status(bytes: &[u8]) -> Result<Option<(u32, usize)>, Status> {
    let mut rest = bytes;
    let Some(line) = line(&mut rest) else {
        return if bytes.len() >= STATUS_MAX { Err(Status::Malformed) } else { Ok(None) };
    };
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let code = text(&line[..digits])?.parse().map_err(|_| Status::Malformed)?;
    Ok(Some((code, bytes.len() - rest.len())))
}

fn too_long(bytes: &[u8]) -> Result<Option<Hello>, Status> {
    if bytes.len() >= HELLO_MAX { Err(Status::Malformed) } else { Ok(None) }
}

/// The next line, without its end.
fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

fn text(line: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(line).map_err(|_| Status::Malformed)
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judged(bytes: &str) -> Result<Option<Hello>, u32> {
        judge(bytes.as_bytes(), "hA", |name| name == "hB").map_err(Status::code)
    }

    #[test]
    fn the_lines_of_a_dialler() {
        let lines = hello(1, "hA", "hB", 496);
        assert_eq!(lines, "HAProxyS 2.1\nhA\nhB 496 1\n");
        let heard = |minor, length| Ok(Some(Hello { minor, sender: "hB".into(), length }));
        assert_eq!(judged(&lines), heard(1, lines.len()));
        assert_eq!(judged("HAProxyS 2.0\r\nhA\r\nhB whatever\r\nmore"), heard(0, 31));
        for end in 0..lines.len() {
            assert_eq!(judged(&lines[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn a_wrong_line_is_refused_at_once() {
        let check = |bytes, code| assert_eq!(judged(bytes), Err(code), "{bytes:?}");
        check("GET / HTTP/1.1\n", 501);
        check("HAProxyS 2.1\nhA\nhB\n", 501);
        check("HAProxyS 2.1.1\n", 502);
        check("HAProxyS 2.2\n", 502);
        check("HAProxyS 3.0\n", 502);
        check("HAProxyS +2.1\n", 502);
        check("HAProxyS 2\n", 502);
        check("HAProxyS 2.1\nhC\n", 503);
        check("HAProxyS 2.1\nhA\nhC 1 1\n", 504);
        check(&"x".repeat(HELLO_MAX), 501);
    }

    #[test]
    fn the_line_of_the_acceptor() {
        assert_eq!(status(b"200\n\0\x04"), Ok(Some((200, 4))));
        assert_eq!(status(b"200 ok\r\n"), Ok(Some((200, 8))));
        assert_eq!(status(b"20"), Ok(None));
        assert_eq!(status(b"ok\n"), Err(Status::Malformed));
        assert_eq!(status(b"99999999999\n"), Err(Status::Malformed));
        assert_eq!(status(&[b'2'; STATUS_MAX]), Err(Status::Malformed));
        assert_eq!(Status::TryAgain.line(), "300\n");
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes: Vec<u8>) {
            let _ = judge(&bytes, "hA", |_| true);
            let _ = status(&bytes);
        }
    }
}
