//! One message: its header, and what the kernel answers.

use std::io;

use netlink_packet_core::{Emitable, NetlinkBuffer, NetlinkHeader};
use nix::errno::Errno;

use super::{Attributes, Reader};

/// Bytes of a header, and what messages are aligned to.
const HEADER: usize = 16;
const ALIGNMENT: usize = 4;
/// What is before the number of a refusal that is none of the system's.
pub(crate) const UNNAMED: &str = "number ";
/// The kernel's words in an acknowledgement (`NLMSGERR_ATTR_MSG`).
const SAID: u16 = 1;

/// A message to the kernel.
#[derive(Clone, Debug)]
pub struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// A message of a kind (its number in the kernel's headers) with flags besides `NLM_F_REQUEST`, a fixed part (`struct tcmsg`,
    /// `struct nfgenmsg` …) and attributes.
    pub fn new(kind: u16, flags: u16, fixed: &[u8], attributes: &Attributes) -> Self {
        let mut body = fixed.to_vec();
        body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
        body.extend_from_slice(attributes.bytes());
        Self { kind, flags, body }
    }

    /// A message as if it came from the kernel.
    #[cfg(test)]
    pub(crate) fn reply(self) -> Reply {
        Reply { kind: self.kind, body: self.body }
    }

    /// As it goes to the kernel.
    pub(super) fn framed(&self, flags: u16, number: u32) -> Vec<u8> {
        let length = HEADER + self.body.len();
        let mut header = NetlinkHeader::default();
        header.length = length as u32;
        header.message_type = self.kind;
        header.flags = self.flags | flags | libc::NLM_F_REQUEST as u16;
        header.sequence_number = number;
        let mut bytes = vec![0; length.next_multiple_of(ALIGNMENT)];
        header.emit(&mut bytes[..HEADER]);
        bytes[HEADER..length].copy_from_slice(&self.body);
        bytes
    }
}

/// A message from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its kind.
    pub kind: u16,
    /// The fixed part and the attributes.
    pub body: Vec<u8>,
}

impl Reply {
    /// The attributes after a fixed part of so many bytes.
    pub fn attributes(&self, fixed: usize) -> Reader<'_> {
        Reader::new(self.body.get(fixed.next_multiple_of(ALIGNMENT)..).unwrap_or_default())
    }
}

/// What a message of the kernel means for the request with its number.
pub(super) enum ReplyKind {
    Reply(Reply),
    Done,
    Refused(Errno, Option<String>),
}

/// The messages in what was read at once, each with its number.
pub(super) fn answers(datagram: &[u8]) -> io::Result<impl Iterator<Item = io::Result<(u32, ReplyKind)>>> {
    let mut rest = datagram;
    Ok(std::iter::from_fn(move || {
        if rest.len() < HEADER {
            return None;
        }
        let message = match NetlinkBuffer::new_checked(rest) {
            Ok(message) => message,
            Err(error) => {
                rest = &[];
                return Some(Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())));
            }
        };
        let length = message.length() as usize;
        let number = message.sequence_number();
        let answer = judge(message.message_type(), message.flags(), rest.get(HEADER..length).unwrap_or_default());
        let length = length.max(HEADER);
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(answer.map(|answer| (number, answer)))
    }))
}

fn judge(kind: u16, flags: u16, body: &[u8]) -> io::Result<ReplyKind> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "a reply of the kernel is too short");
    match i32::from(kind) {
        libc::NLMSG_ERROR | libc::NLMSG_DONE => {
            // The end of a list may carry an error too; without one it may be empty.
            let code = match body.first_chunk::<4>() {
                Some(code) => i32::from_ne_bytes(*code),
                None if i32::from(kind) == libc::NLMSG_DONE => 0,
                None => return Err(short()),
            };
            if i32::from(flags) & libc::NLM_F_DUMP_INTR != 0 {
                return Ok(ReplyKind::Refused(Errno::EINTR, None));
            }
            if code == 0 {
                return Ok(ReplyKind::Done);
            }
            let number = code.saturating_neg();
            let errno = Errno::from_raw(number);
            // Parts of the kernel have numbers of their own, beyond the system's; then the number is what was said.
            let unnamed = || (errno == Errno::UnknownErrno).then(|| format!("{UNNAMED}{number}"));
            Ok(ReplyKind::Refused(errno, said(flags, body).or_else(unnamed)))
        }
        libc::NLMSG_OVERRUN => Err(io::Error::other("the kernel lost a reply")),
        _ => Ok(ReplyKind::Reply(Reply { kind, body: body.to_vec() })),
    }
}

/// The kernel's words, after the code and the header of the refused message (`NLM_F_ACK_TLVS`).
fn said(flags: u16, body: &[u8]) -> Option<String> {
    const ACK_TLVS: u16 = 0x200;
    const CAPPED: u16 = 0x100;
    if flags & ACK_TLVS == 0 {
        return None;
    }
    let echoed = u32::from_ne_bytes(*body.get(4..)?.first_chunk::<4>()?) as usize;
    let before = if flags & CAPPED == 0 { echoed.next_multiple_of(ALIGNMENT) } else { HEADER };
    let text = Reader::new(body.get(4 + before..)?).find(SAID)?.text()?;
    Some(text.to_owned())
}
