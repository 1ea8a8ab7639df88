//! What is there.

use nix::errno::Errno;

use super::numbers;
use super::transaction::{list, request};
use super::{Element, Family, NftablesError, Table};
use crate::netlink::{Attributes, Protocol, Socket};

/// Bytes of `struct nfgenmsg`, before the attributes.
const FIXED: usize = 4;

/// Questions to nftables of one network namespace.
#[derive(Debug)]
pub struct Nftables(Socket);

impl Nftables {
    /// Asks in the network namespace of this thread.
    ///
    /// # Errors
    /// A kernel without netfilter's netlink.
    pub fn open() -> Result<Self, NftablesError> {
        Socket::open(Protocol::Netfilter).map(Self).map_err(|error| NftablesError::new("netlink socket", error))
    }

    /// The tables whose names begin so.
    ///
    /// # Errors
    /// Of the kernel, such as a missing right. A kernel without nftables has no tables.
    pub fn tables(&mut self, prefix: &str) -> Result<Vec<Table>, NftablesError> {
        let any = Table { family: Family::Inet, name: String::new() };
        let mut found = Vec::new();
        for family in [Family::Inet, Family::Ipv4, Family::Ipv6, Family::Arp] {
            let asked = Table { family, ..any.clone() };
            let asked = request(libc::NFT_MSG_GETTABLE, 0, &asked, &Attributes::new());
            let replies = match self.0.list(&asked) {
                // What no module has registered.
                Err(fault) if matches!(fault.errno(), Some(Errno::EINVAL | Errno::EOPNOTSUPP)) => return Ok(found),
                other => other.map_err(|fault| NftablesError::new("list of tables", fault))?,
            };
            let names = replies.iter().filter_map(|reply| {
                let name = reply.attributes(FIXED).find(numbers::table::NAME)?.text()?;
                // The family that was asked for is only a wish to some kernels.
                (reply.body.first() == Some(&family.number()) && name.starts_with(prefix)).then(|| name.to_owned())
            });
            found.extend(names.map(|name| Table { family, name }));
        }
        Ok(found)
    }

    /// Whether the table is there.
    ///
    /// # Errors
    /// As [`tables`](Self::tables).
    pub fn has(&mut self, table: &Table) -> Result<bool, NftablesError> {
        Ok(self.tables(&table.name)?.contains(table))
    }

    /// The elements of a set or a map. `None`: there is no such set, or no such table.
    ///
    /// # Errors
    /// Of the kernel, such as a missing right.
    pub fn elements(&mut self, table: &Table, set: &str) -> Result<Option<Vec<Element>>, NftablesError> {
        let asked = request(libc::NFT_MSG_GETSETELEM, 0, table, &list(table, set, None));
        let replies = match self.0.list(&asked) {
            Err(fault) if fault.errno() == Some(Errno::ENOENT) => return Ok(None),
            other => other.map_err(|fault| NftablesError::new(format!("elements of set `{set}` in {table}"), fault))?,
        };
        let elements = replies
            .iter()
            .filter_map(|reply| reply.attributes(FIXED).find(numbers::set::LIST_ELEMENTS))
            .flat_map(|elements| elements.nested().iter())
            .filter_map(Element::read);
        Ok(Some(elements.collect()))
    }

    /// How many rules each chain of a table has, in the order of the rules. Chains without a rule are not among them.
    ///
    /// # Errors
    /// Of the kernel, such as a missing right.
    pub fn rules(&mut self, table: &Table) -> Result<Vec<(String, usize)>, NftablesError> {
        let body = Attributes::new().text(numbers::rule::TABLE, &table.name);
        let asked = request(libc::NFT_MSG_GETRULE, 0, table, &body);
        let replies = match self.0.list(&asked) {
            Err(fault) if fault.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            other => other.map_err(|fault| NftablesError::new(format!("rules of {table}"), fault))?,
        };
        let mut chains: Vec<(String, usize)> = Vec::new();
        for reply in &replies {
            let attributes = reply.attributes(FIXED);
            let text = |kind| attributes.find(kind).and_then(|found| found.text());
            // Kernels that do not know the filter list all tables.
            if text(numbers::rule::TABLE) != Some(&table.name) || attributes.find(numbers::rule::HANDLE).is_none() {
                continue;
            }
            let Some(chain) = text(numbers::rule::CHAIN) else { continue };
            match chains.iter_mut().find(|(known, _)| known == chain) {
                Some((_, count)) => *count += 1,
                None => chains.push((chain.to_owned(), 1)),
            }
        }
        Ok(chains)
    }

    /// How many packets the counters of a table's rules counted, all together.
    ///
    /// # Errors
    /// Of the kernel, such as a missing right.
    pub fn packets(&mut self, table: &Table) -> Result<u64, NftablesError> {
        let body = Attributes::new().text(numbers::rule::TABLE, &table.name);
        let asked = request(libc::NFT_MSG_GETRULE, 0, table, &body);
        let replies = self.0.list(&asked).map_err(|fault| NftablesError::new(format!("rules of {table}"), fault))?;
        let rules = replies.iter().map(|reply| reply.attributes(FIXED)).filter(|rule| {
            // Kernels that do not know the filter list all tables.
            rule.find(numbers::rule::TABLE).and_then(|name| name.text()) == Some(&table.name)
        });
        let steps =
            rules.filter_map(|rule| rule.find(numbers::rule::EXPRESSIONS)).flat_map(|steps| steps.nested().iter());
        let counted = steps.filter_map(|step| {
            let step = step.nested();
            let is_counter = step.find(numbers::expression::NAME)?.text()? == "counter";
            let data = is_counter.then(|| step.find(numbers::expression::DATA)).flatten()?;
            data.nested().find(numbers::expression::COUNTER_PACKETS)?.u64_be()
        });
        Ok(counted.sum())
    }
}
