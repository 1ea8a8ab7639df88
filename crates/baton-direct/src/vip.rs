//! The virtual address on the director's interface: put there, announced, and taken away again when it was we who put it there.
//!
//! Who put it there is known twice. The kernel keeps a number with each address (`IFA_PROTO`, Linux 5.18; `ip -d address` shows it),
//! ours is [`PROTOCOL`]; and a record in `/run/baton-direct`, written before the address is, survives a crash of ours. An address
//! counts as ours when the record has it and, where the kernel keeps such numbers, ours is on it. Any other address stays, and that is
//! said; also one of the same network, which the kernel would remove together with ours ([`Routing::promote_secondaries`]). keepalived moves addresses by itself: use one or the other.
//!
//! All calls block, for microseconds; [`announce`] sends one round, and who has a clock sends [`ANNOUNCEMENTS`] of them. Takes
//! CAP_NET_ADMIN for the address and CAP_NET_RAW for the announcement.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use baton_kernel::KernelError;
use baton_kernel::packet::{EtherType, FrameFilter, PacketSocket};
use baton_kernel::route::{Address, Link, Routing};
use baton_kernel::state::{NamespaceId, State};
use serde::{Deserialize, Serialize};

use crate::station::Station;
use crate::sysctl::Sysctl;
use crate::wire::{arp, ndp};

/// The number on addresses that Baton put there. The kernel has 1 to 3 for itself.
pub const PROTOCOL: u8 = 0xba;
/// How often a taken address is announced (RFC 4861 7.2.6: at most three times; RFC 5227 1.1: twice).
pub const ANNOUNCEMENTS: u32 = 3;
/// How long after each other (RFC 5227 1.1; RFC 4861 7.2.6 wants a second at least).
pub const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(2);
/// How long another process may have the record; a reconciliation takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where records are, and what they are called.
const RUN: &str = "/run/baton-direct";
const KIND: &str = "vip";
/// The record's name where nobody gave one.
const NAME: &str = "baton";

/// A virtual address that is to be on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vip {
    /// The address.
    pub address: IpAddr,
    /// The interface.
    pub interface: String,
    /// How many of its bits are its network's: 32 or 128 is the address alone.
    pub prefix: u8,
}

impl fmt::Display for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}", self.address, self.prefix, self.interface)
    }
}

/// What is remembered of an address that we put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PlacedVip {
    vip: Vip,
    /// The kernel was seen to keep our number with it.
    is_marked: bool,
}

/// The record. One of another boot or of a network namespace that is gone is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct VipFile {
    place: NamespaceId,
    put: Vec<PlacedVip>,
}

/// What [`Vips::reconcile`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipReport {
    /// Put there just now: these want an announcement.
    pub added: Vec<Vip>,
    /// Were there, and are ours.
    pub kept: Vec<Vip>,
    /// Were there, and are not ours: they will stay when they are not wanted any more.
    pub foreign: Vec<Vip>,
    /// Taken away.
    pub removed: Vec<Vip>,
    /// What could not be done; the rest was.
    pub faults: Vec<KernelError>,
}

/// The virtual addresses of one owner in this network namespace.
#[derive(Debug)]
pub struct Vips {
    routing: Routing,
    state: State,
    place: NamespaceId,
    owner: String,
}

impl Vips {
    /// Opens the record of an owner, such as one of two Batons on a machine. An empty name is `baton`.
    ///
    /// # Errors
    /// Without the right to the record's folder.
    pub fn open(owner: &str) -> Result<Vips, KernelError> {
        Vips::open_in(RUN, owner)
    }

    /// Opens the record of an owner in another folder.
    pub(crate) fn open_in(run: &str, owner: &str) -> Result<Vips, KernelError> {
        let owner = if owner.is_empty() { NAME } else { owner }.to_owned();
        Ok(Vips { routing: Routing::open()?, state: State::open(run)?, place: NamespaceId::here(), owner })
    }

    /// Gives the record to a user and a group. To be called by a program that gives up root, before it does so; it keeps
    /// CAP_NET_ADMIN and this.
    ///
    /// # Errors
    /// Without the right to.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), KernelError> {
        self.state.give_to(user, group)
    }

    /// Puts those that are wanted where they are missing, and takes away what is ours and not wanted any more.
    ///
    /// # Errors
    /// When the record cannot be read or written, or addresses cannot be listed. What goes wrong with one address is in the report.
    pub fn reconcile(&mut self, wanted: &[Vip]) -> Result<VipReport, KernelError> {
        let lock = self.state.lock_within(KIND, &self.owner, PATIENCE)?;
        let report = self.reconcile_alone(wanted);
        drop(lock);
        report
    }

    /// Those that are there and ours.
    ///
    /// # Errors
    /// When the record cannot be read, or addresses cannot be listed.
    pub fn ours(&mut self) -> Result<Vec<Vip>, KernelError> {
        let record = self.read()?;
        let mut ours = Vec::new();
        for put in record {
            let Some(link) = self.routing.find_link(&put.vip.interface)? else { continue };
            if self.there(&put.vip, &link)?.is_some_and(|there| is_ours(&there, &put)) {
                ours.push(put.vip);
            }
        }
        Ok(ours)
    }

    fn reconcile_alone(&mut self, wanted: &[Vip]) -> Result<VipReport, KernelError> {
        let mut record = self.read()?;
        let mut report = VipReport::default();
        for vip in wanted {
            if let Err(fault) = self.put(vip, &mut record, &mut report) {
                report.faults.push(fault);
            }
        }
        for put in record.clone().into_iter().filter(|put| !wanted.contains(&put.vip)) {
            match self.take_away(&put) {
                Ok(was_there) => {
                    record.retain(|known| known.vip != put.vip);
                    if was_there {
                        report.removed.push(put.vip);
                    }
                }
                Err(fault) => report.faults.push(fault),
            }
        }
        self.save(&record)?;
        Ok(report)
    }

    fn put(&mut self, vip: &Vip, record: &mut Vec<PlacedVip>, report: &mut VipReport) -> Result<(), KernelError> {
        let link = self.routing.link(&vip.interface)?;
        let known = record.iter().find(|put| put.vip == *vip);
        match (self.there(vip, &link)?, known) {
            (Some(there), Some(put)) if is_ours(&there, put) => report.kept.push(vip.clone()),
            (Some(_), known) => {
                if known.is_some() {
                    record.retain(|put| put.vip != *vip);
                }
                report.foreign.push(vip.clone());
            }
            (None, _) if self.is_otherwise(vip, &link, record)? => report.foreign.push(vip.clone()),
            (None, _) => {
                // First the record: what is in it and not there does no harm, the other way round it would stay for ever.
                record.retain(|put| put.vip != *vip);
                record.push(PlacedVip { vip: vip.clone(), is_marked: false });
                self.save(record)?;
                let added = self.routing.add_address(&address(vip, &link)).and_then(|added| {
                    let there = self.there(vip, &link)?;
                    Ok((added, there.is_some_and(|there| there.protocol == PROTOCOL)))
                });
                match added {
                    Ok((true, is_marked)) => {
                        record.retain(|put| put.vip != *vip);
                        record.push(PlacedVip { vip: vip.clone(), is_marked });
                        report.added.push(vip.clone());
                    }
                    // Somebody else was faster.
                    Ok((false, _)) => {
                        record.retain(|put| put.vip != *vip);
                        report.foreign.push(vip.clone());
                    }
                    Err(fault) => {
                        record.retain(|put| put.vip != *vip);
                        return Err(KernelError::new(format!("virtual address {vip}"), fault.reason, fault.remedy));
                    }
                }
            }
        }
        Ok(())
    }

    fn take_away(&mut self, put: &PlacedVip) -> Result<bool, KernelError> {
        let Some(link) = self.routing.find_link(&put.vip.interface)? else { return Ok(false) };
        match self.there(&put.vip, &link)? {
            Some(there) if is_ours(&there, put) => self.remove(&there),
            // Another one has put it there again since.
            Some(_) | None => Ok(false),
        }
    }

    /// Removes this address alone: the kernel would take others of its network along.
    fn remove(&mut self, there: &Address) -> Result<bool, KernelError> {
        let (interface, IpAddr::V4(_)) = (there.interface, there.address) else {
            return self.routing.remove_address(there);
        };
        let is_on = self.routing.promotes_secondaries(interface).unwrap_or(false);
        if !is_on
            && let Err(fault) = self.routing.promote_secondaries(interface, true)
            && self.has_company(there)?
        {
            let place = format!("virtual address {}/{}", there.address, there.prefix);
            let reason =
                format!("it is kept, because other addresses of its network would be removed with it: {fault}");
            return Err(KernelError::new(place, reason, "set net.ipv4.conf.all.promote_secondaries=1"));
        }
        let removed = self.routing.remove_address(there);
        if !is_on {
            // As it was. Where that fails, it is on an interface that is gone.
            let _ = self.routing.promote_secondaries(interface, false);
        }
        removed
    }

    /// Whether its interface has other addresses of its network.
    fn has_company(&mut self, of: &Address) -> Result<bool, KernelError> {
        let network = |address: &Address| match address.address {
            IpAddr::V4(bits) => u32::from(bits).checked_shr(32 - u32::from(address.prefix.min(32))),
            IpAddr::V6(_) => None,
        };
        let is_other = |known: &Address| {
            known.interface == of.interface
                && known.address != of.address
                && (known.prefix, network(known)) == (of.prefix, network(of))
        };
        Ok(self.routing.addresses()?.iter().any(is_other))
    }

    /// Whether somebody else has put the address on the interface with another prefix.
    fn is_otherwise(&mut self, vip: &Vip, link: &Link, record: &[PlacedVip]) -> Result<bool, KernelError> {
        let of_ours = |known: &Address| {
            let is_it = |put: &&PlacedVip| put.vip == Vip { prefix: known.prefix, ..vip.clone() };
            record.iter().find(is_it).is_some_and(|put| is_ours(known, put))
        };
        let addresses = self.routing.addresses()?;
        let mut there = addresses.iter().filter(|known| (known.interface, known.address) == (link.index, vip.address));
        Ok(there.any(|known| !of_ours(known)))
    }

    fn there(&mut self, vip: &Vip, link: &Link) -> Result<Option<Address>, KernelError> {
        let is_it =
            |known: &Address| (known.interface, known.address, known.prefix) == (link.index, vip.address, vip.prefix);
        Ok(self.routing.addresses()?.into_iter().find(is_it))
    }

    fn read(&self) -> Result<Vec<PlacedVip>, KernelError> {
        let written: Option<VipFile> = self.state.read(KIND, &self.owner)?;
        Ok(written.filter(|written| written.place == self.place).map(|written| written.put).unwrap_or_default())
    }

    fn save(&self, record: &[PlacedVip]) -> Result<(), KernelError> {
        match record {
            [] => self.state.remove(KIND, &self.owner),
            some => {
                let written = VipFile { place: self.place.clone(), put: some.to_vec() };
                self.state.write(KIND, &self.owner, &written)
            }
        }
    }
}

fn is_ours(there: &Address, put: &PlacedVip) -> bool {
    there.protocol == PROTOCOL || !put.is_marked
}

fn address(vip: &Vip, link: &Link) -> Address {
    Address {
        protocol: PROTOCOL,
        // A director that takes over cannot wait for a second until the address can be used (RFC 4862 5.4), and the one
        // that had it may still answer.
        without_detection: true,
        // Alone, it is for clients: this machine's own connections, such as health checks, must not begin under it, for a real server
        // would answer to itself. (For IPv4 the kernel chooses an address of the network anyway.)
        is_deprecated: vip.address.is_ipv6() && vip.prefix == 128,
        ..Address::within(link.index, vip.address, vip.prefix)
    }
}

/// Tells everybody on the link that the address is here now, once: ARP announcements (RFC 5227 3), as request and as reply, or an
/// unsolicited neighbour advertisement (RFC 4861 7.2.6). Gives what could not be told.
pub fn announce(vips: &[Vip]) -> Vec<KernelError> {
    let mut routing = match Routing::open() {
        Ok(routing) => routing,
        Err(fault) => return vec![fault],
    };
    vips.iter().filter_map(|vip| announce_one(&mut routing, vip).err()).collect()
}

fn announce_one(routing: &mut Routing, vip: &Vip) -> Result<(), KernelError> {
    let station = Station::of(routing, &vip.interface)?;
    let frames = match vip.address {
        IpAddr::V4(address) => {
            vec![arp::announcement(station.mac, address), arp::unasked_reply(station.mac, address)]
        }
        IpAddr::V6(address) => {
            let is_router = Sysctl::ipv6(&vip.interface, "forwarding").number().is_some_and(|found| found != 0);
            vec![ndp::announcement(station.mac, address, is_router)]
        }
    };
    let kind = if vip.address.is_ipv4() { EtherType::Arp } else { EtherType::Ipv6 };
    // It only sends: nothing has that kind at that place.
    let socket = PacketSocket::open(station.link.index, kind, &FrameFilter::new().half(12, 0))?;
    let send =
        |frame: &Vec<u8>| socket.send(frame).map_err(|error| KernelError::io(format!("announcement of {vip}"), &error));
    frames.iter().try_for_each(send)
}
