//! Asking a link who has an address, by ARP or by neighbour discovery: all who say so, by hardware address.
//!
//! Two answers are one too many: beside the director, a real server answers for the virtual address, and whoever hears it first sends
//! past the director. This machine itself never answers its own question. Takes CAP_NET_RAW. The calls block until their
//! deadline.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use baton_kernel::Fault;
use baton_kernel::packet::{EtherType, PacketSocket};
use baton_kernel::route::{Mac, Routing};

use crate::station::Station;
use crate::wire::{arp, ndp};

/// How often is asked: questions and answers may be lost.
const QUESTIONS: u32 = 3;
/// Answers kept at most; a link with more for one address has other troubles.
const ANSWERS_MAX: usize = 64;

/// All who say within this time that they have the address, in the order of their first answer.
///
/// # Errors
/// Without CAP_NET_RAW, or on an interface without neighbours.
pub fn who_has(interface: &str, address: IpAddr, within: Duration) -> Result<Vec<Mac>, Fault> {
    let station = Station::of(&mut Routing::open()?, interface)?;
    ask(&station, address, within, ANSWERS_MAX)
}

/// The first one who says within this time that they have the address.
///
/// # Errors
/// As [`who_has`].
pub(crate) fn first(station: &Station, address: IpAddr, within: Duration) -> Result<Option<Mac>, Fault> {
    Ok(ask(station, address, within, 1)?.first().copied())
}

/// The addresses under which this machine knows hardware addresses of that interface, to call them by name.
///
/// # Errors
/// Of the kernel.
pub fn known_as(interface: &str, macs: &[Mac]) -> Result<BTreeMap<Mac, Vec<IpAddr>>, Fault> {
    let mut routing = Routing::open()?;
    let index = routing.link(interface)?.index;
    let mut known: BTreeMap<Mac, Vec<IpAddr>> = BTreeMap::new();
    for neighbour in routing.neighbours()?.into_iter().filter(|neighbour| neighbour.interface == index) {
        if let Some(mac) = neighbour.mac.filter(|mac| macs.contains(mac)) {
            known.entry(mac).or_default().push(neighbour.address);
        }
    }
    known.values_mut().for_each(|addresses| addresses.sort_unstable());
    Ok(known)
}

fn ask(station: &Station, address: IpAddr, within: Duration, enough: usize) -> Result<Vec<Mac>, Fault> {
    let own = station.own_address(address);
    let (socket, question) = match address {
        IpAddr::V4(target) => {
            let sender = if let Some(IpAddr::V4(own)) = own { own } else { Ipv4Addr::UNSPECIFIED };
            let socket = PacketSocket::open(station.link.index, EtherType::Arp, &arp::claims(target))?;
            (socket, arp::request(station.mac, sender, target))
        }
        IpAddr::V6(target) => {
            let source = if let Some(IpAddr::V6(own)) = own { own } else { Ipv6Addr::UNSPECIFIED };
            let socket = PacketSocket::open(station.link.index, EtherType::Ipv6, &ndp::claims(target))?;
            (socket, ndp::solicitation(station.mac, source, target))
        }
    };
    let fault = |error: io::Error| Fault::io(format!("question for {address} on {}", station.link.name), &error);
    let mut answers: Vec<Mac> = Vec::new();
    let start = Instant::now();
    for question_number in 1..=QUESTIONS {
        socket.send(&question).map_err(fault)?;
        let until = start + within * question_number / QUESTIONS;
        // However many frames come, the time ends.
        while let Some(frame) = socket.receive(until).map_err(fault)?.filter(|_| start.elapsed() < within) {
            let Some(mac) = claimed(&frame, address).filter(|mac| *mac != station.mac) else { continue };
            if !answers.contains(&mac) {
                answers.push(mac);
            }
            if answers.len() >= enough {
                return Ok(answers);
            }
        }
    }
    Ok(answers)
}

/// Who says in this frame that they have the address.
fn claimed(frame: &[u8], address: IpAddr) -> Option<Mac> {
    match address {
        IpAddr::V4(address) => arp::read(frame).filter(|said| said.sender == address).map(|said| said.mac),
        IpAddr::V6(address) => ndp::read(frame).filter(|said| said.target == address).map(|said| said.mac),
    }
}
