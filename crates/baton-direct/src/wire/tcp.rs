//! The three segments of a probe: SYN, what answers it, and the RST that ends it (RFC 9293).

use std::net::IpAddr;

use super::{Packet, Path, TCP, frame};

/// Bits of the flags.
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Bytes of a header without options.
const HEADER: usize = 20;
/// The window of a SYN. Nothing is ever sent into it.
const WINDOW: u16 = 1024;

/// Both ports, and the number of the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Ours.
    pub source: u16,
    /// The one that is asked.
    pub destination: u16,
}

/// The reply to a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynReply {
    /// A process listens; the number is what an RST needs to be believed.
    Listens(u32),
    /// No process listens.
    Refuses,
}

/// "Is somebody there?"
pub fn syn(path: &Path, ports: Ports, sequence: u32) -> Vec<u8> {
    segment(path, ports, sequence, SYN)
}

/// "Never mind."
pub fn reset(path: &Path, ports: Ports, sequence: u32) -> Vec<u8> {
    segment(path, ports, sequence, RST)
}

fn segment(path: &Path, ports: Ports, sequence: u32, flags: u8) -> Vec<u8> {
    let mut bytes = [ports.source.to_be_bytes(), ports.destination.to_be_bytes()].concat();
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(0u32.to_be_bytes());
    bytes.extend([(HEADER as u8 / 4) << 4, flags]);
    bytes.extend(WINDOW.to_be_bytes());
    bytes.extend([0; 4]);
    frame(path, TCP, bytes, 16)
}

/// Whether a packet answers our SYN with this number, which went from `ports` to `asked`. Checksums are not looked at: between
/// machines of one host nobody has computed them, and nobody else knows the number.
pub fn answer(packet: &Packet<'_>, asked: IpAddr, ports: Ports, sequence: u32) -> Option<SynReply> {
    let half = |at: usize| Some(u16::from_be_bytes(*packet.payload.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_be_bytes(*packet.payload.get(at..)?.first_chunk()?));
    packet.payload.first_chunk::<HEADER>()?;
    let is_ours = packet.protocol == TCP
        && packet.source == asked
        && half(0)? == ports.destination
        && half(2)? == ports.source
        && word(8)? == sequence.wrapping_add(1);
    let flags = packet.payload.get(13)? & (SYN | RST | ACK);
    match flags {
        _ if !is_ours => None,
        flags if flags == SYN | ACK => Some(SynReply::Listens(sequence.wrapping_add(1))),
        flags if flags == RST | ACK => Some(SynReply::Refuses),
        _ => None,
    }
}
