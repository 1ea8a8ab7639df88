//! DNS messages (RFC 1035, 2782, 3596, 6891): queries as bytes, and what a response says. Reading is strict about what makes a response the
//! one to a query: its id, its one question, and owners of records that follow from that question.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name, RecordSection, ToName};
use domain::rdata::{A, Aaaa, Srv};

use crate::name::DomainName;

/// The shortest message that can be one.
pub const HEADER: usize = 12;
/// Records of a response that are looked at.
const RECORDS_MAX: usize = 8192;
/// Addresses of a host of a service that are kept.
const HOST_ADDRESSES_MAX: usize = 64;

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RecordType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Services: hosts with ports and weights.
    Srv,
}

/// A question with the id under which it is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Query {
    /// The id, chosen at random.
    pub id: u16,
    /// The name.
    pub name: DomainName,
    /// The type.
    pub kind: RecordType,
}

/// A response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Addresses, in the order of the response; at least one.
    Addresses(Vec<IpAddr>),
    /// Services, in the order of the response; at least one.
    Services(Vec<Service>),
    /// The name does not exist.
    Nx,
    /// The name server refuses.
    Refused,
    /// It has the name, and nothing of the type.
    Empty,
    /// The name is an alias of one of which the response has nothing.
    CnameError,
    /// It does not fit into a datagram.
    Truncated,
    /// It is longer than accepted.
    TooBig,
    /// Another error that the name server reports.
    Other,
    /// It is malformed.
    Invalid,
}

/// A service of an SRV record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    /// The host.
    pub host: DomainName,
    /// The port.
    pub port: u16,
    /// The weight, as HAProxy counts it: 0 to 256.
    pub weight: u32,
    /// Addresses of the host among the additional records.
    pub addresses: Vec<IpAddr>,
}

/// Bytes that are no response to the query.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unrelated {
    /// Too short, or a query.
    NoResponse,
    /// Another id, or another question: of somebody who guesses.
    OtherQuestion,
}

impl Query {
    /// The query as bytes, with the longest response that is accepted.
    pub fn write(&self, payload: u16) -> Vec<u8> {
        let name: Name<Vec<u8>> = match self.name.as_str().parse() {
            Ok(name) => name,
            // A `DomainName` is within the bounds of one.
            Err(_) => Name::root_vec(),
        };
        let mut message = MessageBuilder::new_vec();
        let header = message.header_mut();
        header.set_id(self.id);
        header.set_rd(true);
        let mut question = message.question();
        // Nothing limits the vector.
        let _ = question.push((&name, self.kind.rtype()));
        let mut additional = question.additional();
        if payload > 512 {
            let _ = additional.opt(|opt| {
                opt.set_udp_payload_size(payload);
                Ok(())
            });
        }
        additional.finish()
    }

    /// What a response to it says.
    ///
    /// # Errors
    /// It is no response to it. One goes on waiting then.
    pub fn read(&self, bytes: &[u8]) -> Result<Outcome, Unrelated> {
        let message = Message::from_octets(bytes).map_err(|_| Unrelated::NoResponse)?;
        let header = message.header();
        if !header.qr() {
            return Err(Unrelated::NoResponse);
        }
        if header.id() != self.id {
            return Err(Unrelated::OtherQuestion);
        }
        // An error may come without the question: a name server that cannot read it has none to repeat.
        let is_bare = message.header_counts().qdcount() == 0;
        if is_bare && header.rcode() != Rcode::NOERROR && header.rcode() != Rcode::NXDOMAIN {
            return Ok(Outcome::of_code(header.rcode()));
        }
        let question = message.sole_question().map_err(|_| Unrelated::OtherQuestion)?;
        if question.qtype() != self.kind.rtype() || !is_name(question.qname(), &self.name) {
            return Err(Unrelated::OtherQuestion);
        }
        if header.tc() {
            return Ok(Outcome::Truncated);
        }
        if header.rcode() != Rcode::NOERROR {
            return Ok(Outcome::of_code(header.rcode()));
        }
        Ok(self.records(&message).unwrap_or(Outcome::Invalid))
    }

    fn records(&self, message: &Message<&[u8]>) -> Option<Outcome> {
        let owner = message.canonical_name()?;
        let is_alias = !is_name(&owner, &self.name);
        let answers = message.answer().ok()?;
        let found = match self.kind {
            RecordType::A | RecordType::Aaaa => {
                let addresses = addresses(answers, self.kind, &owner)?;
                (!addresses.is_empty()).then_some(Outcome::Addresses(addresses))
            }
            RecordType::Srv => {
                let services = services(message, answers, &owner)?;
                (!services.is_empty()).then_some(Outcome::Services(services))
            }
        };
        Some(found.unwrap_or(if is_alias { Outcome::CnameError } else { Outcome::Empty }))
    }
}

impl RecordType {
    fn rtype(self) -> Rtype {
        match self {
            RecordType::A => Rtype::A,
            RecordType::Aaaa => Rtype::AAAA,
            RecordType::Srv => Rtype::SRV,
        }
    }
}

impl Outcome {
    fn of_code(code: Rcode) -> Outcome {
        match code {
            Rcode::NXDOMAIN => Outcome::Nx,
            Rcode::REFUSED => Outcome::Refused,
            _ => Outcome::Other,
        }
    }
}

/// The id of a message; `None`: it is too short for one.
pub fn id(bytes: &[u8]) -> Option<u16> {
    (bytes.len() >= HEADER).then(|| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Whether a name of a message is this one.
fn is_name(name: &impl ToName, expected: &DomainName) -> bool {
    text(name).is_some_and(|text| text == *expected)
}

fn text(name: &impl ToName) -> Option<DomainName> {
    DomainName::parse(&name.to_name::<Vec<u8>>().to_string())
}

/// Addresses of a type and an owner; `None`: the section is malformed.
fn addresses(section: RecordSection<'_, &[u8]>, kind: RecordType, owner: &impl ToName) -> Option<Vec<IpAddr>> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for record in section.take(RECORDS_MAX) {
        let record = record.ok()?;
        if record.rtype() != kind.rtype() || !record.owner().name_eq(owner) {
            continue;
        }
        let address = match kind {
            RecordType::A => record.to_record::<A>().ok()?.map(|record| IpAddr::V4(record.data().addr())),
            RecordType::Aaaa => record.to_record::<Aaaa>().ok()?.map(|record| IpAddr::V6(record.data().addr())),
            RecordType::Srv => None,
        };
        found.extend(address.filter(|address| known.insert(*address)));
    }
    Some(found)
}

fn services(message: &Message<&[u8]>, answers: RecordSection<'_, &[u8]>, owner: &impl ToName) -> Option<Vec<Service>> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for record in answers.take(RECORDS_MAX) {
        let record = record.ok()?;
        if record.rtype() != Rtype::SRV || !record.owner().name_eq(owner) {
            continue;
        }
        let Some(record) = record.to_record::<Srv<_>>().ok()? else { continue };
        let srv = record.data();
        // A target of `.` says that there is no such service (RFC 2782).
        let Some(host) = text(srv.target()) else { continue };
        if !known.insert((host.clone(), srv.port())) {
            continue;
        }
        let weight = weight(srv.weight());
        found.push(Service { host, port: srv.port(), weight, addresses: Vec::new() });
    }
    add_addresses(message, &mut found);
    Some(found)
}

/// The addresses of hosts among the additional records. They are a favour: a malformed one ends the look at them.
fn add_addresses(message: &Message<&[u8]>, services: &mut [Service]) {
    let Ok(additional) = message.additional() else { return };
    let mut by_host: HashMap<DomainName, Vec<IpAddr>> = HashMap::new();
    let mut hosts: HashSet<&str> = HashSet::new();
    hosts.extend(services.iter().map(|service| service.host.as_str()));
    for record in additional.take(RECORDS_MAX) {
        let Ok(record) = record else { break };
        let address = match record.rtype() {
            Rtype::A => record.to_record::<A>().ok().flatten().map(|record| IpAddr::V4(record.data().addr())),
            Rtype::AAAA => record.to_record::<Aaaa>().ok().flatten().map(|record| IpAddr::V6(record.data().addr())),
            _ => None,
        };
        let Some((address, owner)) = address.zip(text(&record.owner())) else { continue };
        if hosts.contains(owner.as_str()) {
            let known = by_host.entry(owner).or_default();
            if known.len() < HOST_ADDRESSES_MAX && !known.contains(&address) {
                known.push(address);
            }
        }
    }
    drop(hosts);
    for service in services {
        service.addresses = by_host.get(&service.host).cloned().unwrap_or_default();
    }
}

/// A weight of DNS, 0 to 65535, as one of HAProxy's.
fn weight(weight: u16) -> u32 {
    if weight == 0 { 0 } else { u32::from(weight) / 256 + 1 }
}

impl fmt::Display for RecordType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RecordType::A => "A",
            RecordType::Aaaa => "AAAA",
            RecordType::Srv => "SRV",
        })
    }
}
