//! What the kernel refused, and what to do about it.

use std::fmt;

use nix::errno::Errno;

use crate::netlink::{self, NetlinkError};

/// Why a transaction or a question about nftables failed. Of a transaction, nothing was done.
#[derive(Debug)]
pub struct NftablesError {
    /// What was refused, as "rule 2 of chain `output` in table inet baton".
    pub what: String,
    /// How.
    pub fault: NetlinkError,
}

impl NftablesError {
    pub(super) fn new(what: impl Into<String>, fault: impl Into<NetlinkError>) -> Self {
        Self { what: what.into(), fault: fault.into() }
    }

    /// The number of the refusal, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        self.fault.errno()
    }

    /// What an operator can do, if we know.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.fault.is_no_right() {
            return Some(netlink::NO_RIGHT);
        }
        match (&self.fault, self.errno()) {
            (NetlinkError::Socket(error), _) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
                Some("this kernel has no netfilter netlink (CONFIG_NETFILTER_NETLINK)")
            }
            (_, Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT)) if self.what.contains("table arp ") => Some(
                "this kernel has no nf_tables for ARP: it takes CONFIG_NF_TABLES and CONFIG_NF_TABLES_ARP; --method sysctl does without",
            ),
            (_, Some(Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT)) => Some(
                "this kernel has no nf_tables for it: it takes CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET (modprobe nf_tables), \
                 and Linux 5.2 for translation of both families in one table",
            ),
            (_, Some(Errno::EINVAL)) if self.what.starts_with("table ") => {
                Some("this kernel may have no nf_tables: it takes CONFIG_NF_TABLES (modprobe nf_tables)")
            }
            (_, Some(Errno::ENOENT)) if self.what.starts_with("chain ") => Some(
                "the table is gone, or this kernel has no chains of this type: translation takes CONFIG_NFT_NAT (modprobe nft_nat)",
            ),
            (_, Some(Errno::ENOENT)) if self.what.contains("(queue") => Some(
                "this kernel has no `queue` statement (CONFIG_NFT_QUEUE, modprobe nft_queue): iptables' NFQUEUE may be there",
            ),
            (_, Some(Errno::ENOENT)) if self.what.starts_with("rule ") => {
                Some("this kernel lacks one of these statements (CONFIG_NFT_…), or the chain or the set is gone")
            }
            (_, Some(Errno::ENOSPC)) => Some("the set is full"),
            _ => None,
        }
    }
}

impl fmt::Display for NftablesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nftables: {}: {}", self.what, self.fault)?;
        match self.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NftablesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.fault)
    }
}
