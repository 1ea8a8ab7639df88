//! Changes that belong together.

use super::numbers;
use super::{Chain, Element, NftablesError, Rule, Set, Table};
use crate::netlink::{Attributes, NetlinkError, Protocol, Request, Socket};

/// Elements of one message: an attribute, which holds the list, has at most 64 KiB, and an element less than 80 bytes.
const ELEMENTS_MAX: usize = 512;

/// Changes to tables of our own. All of them are done, at one moment for every packet, or none is.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    requests: Vec<Request>,
    /// What each request is, for messages.
    what: Vec<String>,
    sets: u32,
    rules: usize,
}

impl Transaction {
    /// No changes yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(mut self, kind: libc::c_int, flags: libc::c_int, table: &Table, body: &Attributes, what: String) -> Self {
        self.requests.push(request(kind, flags, table, body));
        self.what.push(what);
        self
    }

    /// Makes a table. One that is there stays as it is, with all it has.
    #[must_use]
    pub fn table(self, table: &Table) -> Self {
        let body = Attributes::new().text(numbers::table::NAME, &table.name);
        self.add(libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, table, &body, table.to_string())
    }

    /// Makes a table that must not be there.
    #[must_use]
    pub fn new_table(self, table: &Table) -> Self {
        let body = Attributes::new().text(numbers::table::NAME, &table.name);
        self.add(libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, table, &body, table.to_string())
    }

    /// Makes a table that must not be there, and that the kernel deletes when the socket of [`commit_by`](Self::commit_by) is
    /// closed, however that comes about. Nobody else can change it. Linux 5.12.
    #[must_use]
    pub fn passing_table(self, table: &Table) -> Self {
        /// `NFT_TABLE_F_OWNER`.
        const OWNER: u32 = 1 << 1;
        let body = Attributes::new().text(numbers::table::NAME, &table.name).u32_be(numbers::table::FLAGS, OWNER);
        self.add(libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, table, &body, table.to_string())
    }

    /// Deletes a table and all it has, whether it was there or not.
    #[must_use]
    pub fn delete_table(self, table: &Table) -> Self {
        // What makes sure that there is one is part of the transaction, so that it is not seen.
        let body = Attributes::new().text(numbers::table::NAME, &table.name);
        self.table(table).add(libc::NFT_MSG_DELTABLE, 0, table, &body, format!("removal of {table}"))
    }

    /// Makes a chain.
    #[must_use]
    pub fn chain(self, table: &Table, chain: &Chain) -> Self {
        let hook = Attributes::new()
            .u32_be(numbers::chain::HOOK_NUMBER, chain.hook.number(table.family))
            .u32_be(numbers::chain::HOOK_PRIORITY, chain.priority as u32);
        let body = Attributes::new()
            .text(numbers::chain::TABLE, &table.name)
            .text(numbers::chain::NAME, &chain.name)
            .nest(numbers::chain::HOOK, &hook)
            .text(numbers::chain::TYPE, chain.kind.word());
        let what = format!("chain `{}` of type {} in {table}", chain.name, chain.kind.word());
        self.add(libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, table, &body, what)
    }

    /// Makes a chain that packets enter only by a jump.
    #[must_use]
    pub fn plain_chain(self, table: &Table, name: &str) -> Self {
        let body = Attributes::new().text(numbers::chain::TABLE, &table.name).text(numbers::chain::NAME, name);
        self.add(libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, table, &body, format!("chain `{name}` in {table}"))
    }

    /// Adds a rule after those that the chain has.
    #[must_use]
    pub fn rule(mut self, table: &Table, chain: &str, rule: &Rule) -> Self {
        self.rules += 1;
        let body = Attributes::new().text(numbers::rule::TABLE, &table.name).text(numbers::rule::CHAIN, chain);
        let hint = if rule.has_step("queue") { " (queue)" } else { "" };
        let what = format!("rule {}{hint} of chain `{chain}` in {table}, made of {}", self.rules, rule.steps());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
        self.add(libc::NFT_MSG_NEWRULE, flags, table, &rule.attributes(body), what)
    }

    /// Deletes all rules of a chain.
    #[must_use]
    pub fn flush_chain(self, table: &Table, chain: &str) -> Self {
        let body = Attributes::new().text(numbers::rule::TABLE, &table.name).text(numbers::rule::CHAIN, chain);
        self.add(libc::NFT_MSG_DELRULE, 0, table, &body, format!("flush of chain `{chain}` in {table}"))
    }

    /// Deletes a chain, which must be there, with its rules.
    #[must_use]
    pub fn delete_chain(self, table: &Table, chain: &str) -> Self {
        let body = Attributes::new().text(numbers::chain::TABLE, &table.name).text(numbers::chain::NAME, chain);
        let what = format!("removal of chain `{chain}` in {table}");
        self.flush_chain(table, chain).add(libc::NFT_MSG_DELCHAIN, 0, table, &body, what)
    }

    /// Makes a set or a map.
    #[must_use]
    pub fn set(mut self, table: &Table, set: &Set) -> Self {
        self.sets += 1;
        let body = Attributes::new().text(numbers::set::TABLE, &table.name).text(numbers::set::NAME, &set.name);
        let body = set.attributes(body, self.sets);
        self.add(libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE, table, &body, format!("set `{}` in {table}", set.name))
    }

    /// Adds elements. One whose key is there must be there with the same value.
    #[must_use]
    pub fn elements(mut self, table: &Table, set: &str, elements: &[Element]) -> Self {
        for some in elements.chunks(ELEMENTS_MAX) {
            let what = format!("elements of set `{set}` in {table}");
            let body = list(table, set, Some(some));
            self = self.add(libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE, table, &body, what);
        }
        self
    }

    /// Removes elements, which must be there.
    #[must_use]
    pub fn remove(mut self, table: &Table, set: &str, elements: &[Element]) -> Self {
        for some in elements.chunks(ELEMENTS_MAX) {
            let what = format!("removal of elements from set `{set}` in {table}");
            self = self.add(libc::NFT_MSG_DELSETELEM, 0, table, &list(table, set, Some(some)), what);
        }
        self
    }

    /// Removes all elements.
    #[must_use]
    pub fn flush_set(self, table: &Table, set: &str) -> Self {
        let body = list(table, set, None);
        self.add(libc::NFT_MSG_DELSETELEM, 0, table, &body, format!("flush of set `{set}` in {table}"))
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Does it, in the network namespace of this thread.
    ///
    /// # Errors
    /// The first thing that was refused; then nothing was done.
    pub fn commit(&self) -> Result<(), NftablesError> {
        let mut socket =
            Socket::open(Protocol::Netfilter).map_err(|error| NftablesError::new("netlink socket", error))?;
        self.commit_by(&mut socket)
    }

    /// As [`commit`](Self::commit), by a socket of [`Protocol::Netfilter`] that was opened before, perhaps elsewhere.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_by(&self, socket: &mut Socket) -> Result<(), NftablesError> {
        if self.is_empty() {
            return Ok(());
        }
        match socket.transact(libc::NFNL_SUBSYS_NFTABLES as u16, &self.requests) {
            Ok(_) => Ok(()),
            Err(fault) => {
                let message = if let NetlinkError::Refused { message, .. } = &fault { *message } else { 0 };
                let what = self.what.get(message).cloned().unwrap_or_default();
                Err(NftablesError::new(what, fault))
            }
        }
    }
}

/// A message to nftables about something in a table.
pub(super) fn request(kind: libc::c_int, flags: libc::c_int, table: &Table, body: &Attributes) -> Request {
    let kind = (libc::NFNL_SUBSYS_NFTABLES << 8) as u16 | kind as u16;
    // `struct nfgenmsg`: family, version 0, no resource.
    Request::new(kind, flags as u16, &[table.family.number(), 0, 0, 0], body)
}

/// What names a set, with elements of it.
pub(super) fn list(table: &Table, set: &str, elements: Option<&[Element]>) -> Attributes {
    let body = Attributes::new().text(numbers::set::LIST_TABLE, &table.name).text(numbers::set::LIST_SET, set);
    let Some(elements) = elements else { return body };
    let elements = elements
        .iter()
        .fold(Attributes::new(), |list, element| list.nest(numbers::rule::LIST_ELEMENT, &element.attributes()));
    body.nest(numbers::set::LIST_ELEMENTS, &elements)
}
