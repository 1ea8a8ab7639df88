//! Values of `global` as a configuration has them, for changes that are printed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::{
    Algorithm, Balance, BindProtocol, Capability, CpuMap, ExtraFiles, HashType, Mode, ProxyProtocol, RetryOn,
    SendProxy, ServerAddress, ServerProtocol, StateFile, Sync, WebSocketProtocol,
};

/// A value in the words that set it; what nobody has set is `unset`.
pub(super) trait Words {
    fn words(&self) -> String;
}

impl<T: Words> Words for Option<T> {
    fn words(&self) -> String {
        self.as_ref().map_or_else(|| "unset".into(), Words::words)
    }
}

impl Words for bool {
    fn words(&self) -> String {
        if *self { "on" } else { "off" }.into()
    }
}

impl Words for u32 {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for u8 {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for i32 {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for ServerAddress {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for SendProxy {
    fn words(&self) -> String {
        let version = match self.version() {
            ProxyProtocol::Off => return "off".into(),
            ProxyProtocol::V1 => return "version 1".into(),
            ProxyProtocol::V2 => "version 2",
        };
        let options = SendProxy::OPTIONS.iter().filter(|(_, flags)| self.has(*flags)).map(|(name, _)| *name);
        let options: Vec<&str> = options.collect();
        if options.is_empty() { version.into() } else { format!("{version} with {}", options.join(",")) }
    }
}

impl Words for BindProtocol {
    fn words(&self) -> String {
        match self {
            BindProtocol::H1 => "h1",
            BindProtocol::H2 => "h2",
            BindProtocol::Bytes => "none",
        }
        .into()
    }
}

impl Words for ServerProtocol {
    fn words(&self) -> String {
        match self {
            ServerProtocol::H1 => "h1",
            ServerProtocol::H2 => "h2",
        }
        .into()
    }
}

impl Words for WebSocketProtocol {
    fn words(&self) -> String {
        match self {
            WebSocketProtocol::Auto => "auto",
            WebSocketProtocol::H1 => "h1",
            WebSocketProtocol::H2 => "h2",
        }
        .into()
    }
}

impl Words for Mode {
    fn words(&self) -> String {
        match self {
            Mode::Tcp => "tcp",
            Mode::Http => "http",
            Mode::Direct => "direct",
        }
        .into()
    }
}

impl Words for StateFile {
    fn words(&self) -> String {
        match self {
            StateFile::None => "none",
            StateFile::Global => "global",
            StateFile::Local => "local",
        }
        .into()
    }
}

impl Words for Balance {
    /// The algorithm, and what differs from the defaults of hashes.
    fn words(&self) -> String {
        let mut words = match &self.algorithm {
            Algorithm::RoundRobin => "roundrobin".into(),
            Algorithm::StaticRr => "static-rr".into(),
            Algorithm::LeastConn => "leastconn".into(),
            Algorithm::First => "first".into(),
            Algorithm::Source => "source".into(),
            Algorithm::Uri(_) => "uri".into(),
            Algorithm::UrlParam { name, .. } => format!("url_param {name}"),
            Algorithm::Hdr { name, .. } => format!("hdr({name})"),
            Algorithm::Random { draws } => format!("random({draws})"),
            Algorithm::RdpCookie(name) => format!("rdp-cookie({name})"),
            Algorithm::Hash(text) => format!("hash {text}"),
        };
        if self.hash != HashType::default() {
            words += if self.hash.consistent { ", hash-type consistent" } else { ", hash-type map-based" };
        }
        if self.factor > 0 {
            words += &format!(", hash-balance-factor {}", self.factor);
        }
        words
    }
}

impl Words for RetryOn {
    fn words(&self) -> String {
        let kinds = [
            (self.conn_failure, "conn-failure"),
            (self.empty_response, "empty-response"),
            (self.junk_response, "junk-response"),
            (self.response_timeout, "response-timeout"),
        ];
        let kinds = kinds.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word.to_owned());
        let all: Vec<String> = kinds.chain(self.statuses.iter().map(u16::to_string)).collect();
        if all.is_empty() { "none".into() } else { all.join(" ") }
    }
}

impl Words for u64 {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for usize {
    fn words(&self) -> String {
        self.to_string()
    }
}

impl Words for String {
    fn words(&self) -> String {
        if self.is_empty() { "\"\"".into() } else { self.clone() }
    }
}

impl Words for PathBuf {
    fn words(&self) -> String {
        self.display().to_string()
    }
}

impl Words for Duration {
    /// Whole seconds, or the smaller unit that says it exactly.
    fn words(&self) -> String {
        match self.subsec_micros() {
            _ if *self == Duration::MAX => "infinite".into(),
            0 => format!("{}s", self.as_secs()),
            micros if micros % 1000 == 0 => format!("{}ms", self.as_millis()),
            _ => format!("{}us", self.as_micros()),
        }
    }
}

impl Words for Sync {
    fn words(&self) -> String {
        format!("{} id {}", self.interface, self.id)
    }
}

impl Words for CpuMap {
    /// `1/1 0-3` for each thread.
    fn words(&self) -> String {
        let one = |(thread, cpus): (&u32, &BTreeSet<u32>)| format!("1/{thread} {}", ranges(cpus));
        or_unset(self.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

impl Words for BTreeSet<Capability> {
    fn words(&self) -> String {
        or_unset(self.iter().map(|right| right.name()).collect::<Vec<_>>().join(","))
    }
}

impl Words for ExtraFiles {
    fn words(&self) -> String {
        let ExtraFiles { bundle, sctl, ocsp, issuer, key, replace_extension } = *self;
        let kinds = [(bundle, "bundle"), (sctl, "sctl"), (ocsp, "ocsp"), (issuer, "issuer"), (key, "key")];
        let named: Vec<&str> = kinds.into_iter().filter(|(is_read, _)| *is_read).map(|(_, word)| word).collect();
        let named = match named.len() {
            0 => "none".into(),
            5 => "all".into(),
            _ => named.join(" "),
        };
        if replace_extension { format!("{named} with ssl-load-extra-del-ext") } else { named }
    }
}

fn or_unset(words: String) -> String {
    if words.is_empty() { "unset".into() } else { words }
}

/// `0-3 6`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(" ")
}
