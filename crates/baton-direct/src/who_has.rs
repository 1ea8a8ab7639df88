//! Asking a link who has an address, by ARP or by neighbour discovery: all who say so, by hardware address.
//!
//! Two answers are one too many: beside the director, a real server answers for the virtual address, and whoever hears it first sends
//! past the director. This machine itself never answers its own question. Takes CAP_NET_RAW. The calls block until their
//! deadline.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use baton_kernel::KernelError;
use baton_kernel::packet::{EtherType, FrameFilter, PacketSocket};
use baton_kernel::route::{Mac, Routing};

use crate::station::Station;
use crate::wire::{arp, ndp};

/// How often is asked: questions and answers may be lost.
const QUESTIONS: u32 = 3;
/// Answers kept at most; a link with more for one address has other troubles.
const ANSWERS_MAX: usize = 64;
/// Addresses that are asked for at once at most.
const ADDRESSES_MAX: usize = 1024;

/// All who say within this time that they have the address, in the order of their first answer.
///
/// # Errors
/// Without CAP_NET_RAW, or on an interface without neighbours.
pub fn who_has(interface: &str, address: IpAddr, within: Duration) -> Result<Vec<Mac>, KernelError> {
    let station = Station::of(&mut Routing::open()?, interface)?;
    Ok(ask(&station, &[address], within, ANSWERS_MAX)?.into_iter().map(|(_, mac)| mac).collect())
}

/// The first one who says within this time that they have the address.
///
/// # Errors
/// As [`who_has`].
pub(crate) fn first(station: &Station, address: IpAddr, within: Duration) -> Result<Option<Mac>, KernelError> {
    Ok(ask(station, &[address], within, 1)?.first().map(|(_, mac)| *mac))
}

/// The addresses under which this machine knows hardware addresses of that interface, to call them by name.
///
/// # Errors
/// Of the kernel.
pub fn known_as(interface: &str, macs: &[Mac]) -> Result<BTreeMap<Mac, Vec<IpAddr>>, KernelError> {
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

/// Another machine that answers for a virtual address of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherOwner {
    /// The virtual address.
    pub vip: IpAddr,
    /// The interface that has it here, and on which the other one answers.
    pub interface: String,
    /// The other one's hardware address.
    pub mac: Mac,
    /// Addresses under which it is known here.
    pub known: Vec<IpAddr>,
}

/// All who answer for those of these addresses that this machine has on an interface where they are asked for, whoever put them there.
/// All are asked at once; it takes this time for each family on each interface.
///
/// # Errors
/// Without CAP_NET_RAW. An interface that is down has nobody who answers.
pub fn others(vips: &[IpAddr], within: Duration) -> Result<Vec<OtherOwner>, KernelError> {
    let mut routing = Routing::open()?;
    let mut here: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    for address in routing.addresses()?.into_iter().filter(|address| vips.contains(&address.address)) {
        here.entry(address.interface).or_default().push(address.address);
    }
    let mut others = Vec::new();
    for (interface, addresses) in here {
        let Ok(station) = Station::by_index(&mut routing, interface) else { continue };
        for of_ipv4 in [true, false] {
            let family = addresses.iter().copied().filter(|address| address.is_ipv4() == of_ipv4);
            let asked: Vec<IpAddr> = family.take(ADDRESSES_MAX).collect();
            if asked.is_empty() {
                continue;
            }
            let answers = ask(&station, &asked, within, ANSWERS_MAX)?;
            let macs: Vec<Mac> = answers.iter().map(|(_, mac)| *mac).collect();
            let known = known_as(&station.link.name, &macs)?;
            others.extend(answers.into_iter().map(|(vip, mac)| {
                let known = known.get(&mac).into_iter().flatten().copied().filter(|known| *known != vip).collect();
                OtherOwner { vip, interface: station.link.name.clone(), mac, known }
            }));
        }
    }
    Ok(others)
}

impl fmt::Display for OtherOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherOwner { vip, interface, mac, known } = self;
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        write!(
            f,
            "{mac}{known} also responds for the virtual address {vip} on {interface}: clients may bypass this director; if it \
             is a real server, run `baton real-server up --vip {vip}` there"
        )
    }
}

/// Who says of which address that they have it. The addresses are of one family.
fn ask(
    station: &Station,
    addresses: &[IpAddr],
    within: Duration,
    enough: usize,
) -> Result<Vec<(IpAddr, Mac)>, KernelError> {
    let questions: Vec<Vec<u8>> = addresses.iter().map(|address| question(station, *address)).collect();
    let (kind, filter) = match addresses {
        [IpAddr::V4(one)] => (EtherType::Arp, arp::claims(*one)),
        [IpAddr::V6(one)] => (EtherType::Ipv6, ndp::claims(*one)),
        [IpAddr::V6(_), ..] => (EtherType::Ipv6, ndp::all_claims()),
        [IpAddr::V4(_), ..] | [] => (EtherType::Arp, FrameFilter::new()),
    };
    let socket = PacketSocket::open(station.link.index, kind, &filter)?;
    let fault =
        |error: io::Error| KernelError::io(format!("address resolution requests on {}", station.link.name), &error);
    let mut answers: Vec<(IpAddr, Mac)> = Vec::new();
    let start = Instant::now();
    for number in 1..=QUESTIONS {
        questions.iter().try_for_each(|question| socket.send(question)).map_err(fault)?;
        let until = start + within * number / QUESTIONS;
        // However many frames come, the time ends.
        while let Some(frame) = socket.receive(until).map_err(fault)?.filter(|_| start.elapsed() < within) {
            let Some(answer) = claimed(&frame).filter(|(_, mac)| *mac != station.mac) else { continue };
            if addresses.contains(&answer.0) && !answers.contains(&answer) {
                answers.push(answer);
            }
            if answers.len() >= enough {
                return Ok(answers);
            }
        }
    }
    Ok(answers)
}

/// "Who has it?", under an address of our own where there is one.
fn question(station: &Station, address: IpAddr) -> Vec<u8> {
    let own = station.own_address(address);
    match address {
        IpAddr::V4(target) => {
            let sender = if let Some(IpAddr::V4(own)) = own { own } else { Ipv4Addr::UNSPECIFIED };
            arp::request(station.mac, sender, target)
        }
        IpAddr::V6(target) => {
            let source = if let Some(IpAddr::V6(own)) = own { own } else { Ipv6Addr::UNSPECIFIED };
            ndp::solicitation(station.mac, source, target)
        }
    }
}

/// Who says in this frame that they have which address.
fn claimed(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    let by_arp = arp::read(frame).map(|said| (said.sender.into(), said.mac));
    by_arp.or_else(|| ndp::read(frame).map(|said| (said.target.into(), said.mac)))
}
