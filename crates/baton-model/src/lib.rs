//! What the proxy *is*, as data: frontends, backends, servers, rules, and the difference between two models.
//!
//! A [`Model`] is what the operator *asked* for, with every default already applied: plain values that can be compared,
//! cloned and printed. [`Overrides`] are what an operator set at run time. What we observe (health, counters) are other types in
//! other crates. There is no parsing of files here, no I/O and no clock.

#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]

mod address;
mod agent;
mod balance;
mod bind;
mod check;
mod cookie;
pub mod diff;
mod direct;
mod discovered;
mod global;
mod header_cases;
mod http2;
mod log;
mod mail;
mod options;
mod overrides;
mod peers;
mod process;
mod proxy;
mod resolvers;
mod ring;
mod rule;
mod send_proxy;
mod server;
mod share;
mod source;
mod stats;
mod table;
mod timeouts;
mod tls;
mod users;
mod variables;

pub use address::{Address, Family};
pub use agent::AgentSettings;
pub use balance::{Algorithm, Avalanche, Balance, HashFunction, HashType, UriHash};
pub use bind::{Bind, BindKey, BindOptions, BindProtocol, SocketMode};
pub use check::{
    Check, CheckConnect, CheckData, CheckExpect, CheckPort, CheckProtocol, CheckSettings, CheckStep, CheckText,
    CheckType, ExternalCheck, HttpCheckSend, InitState, MarkedDown, MarkedUp, Observe, OnError,
};
pub use cookie::{Cookie, CookieMode};
pub use diff::{ChangeSet, Effects, Impact, ObjectChange, diff};
pub use direct::{
    Direct, DirectBind, EngineChoice, Forwarding, IpvsTuning, ManageVip, OnExit, Place, Scheduler, Stickiness, Sync,
    Tunnel, XdpWhere, direct_pairs,
};
pub use discovered::{Discovered, DiscoveredServer, DiscoveredService};
pub use global::Global;
pub use header_cases::{BadSpelling, HeaderCases};
pub use http2::Http2Tuning;
pub use log::{Facility, Level, LogAddress, LogFormat, LogTarget, Logging};
pub use mail::{EmailAlert, Mailer, Mailers};
pub use options::{
    ConnectionMode, ErrorFile, ErrorPage, ForwardedFor, HttpErrors, HttpOptions, Redispatch, RestrictedNames, RetryOn,
    Reuse, TcpOptions,
};
pub use overrides::{
    AdminState, Author, EffectiveServer, EndedOverride, Field, NO_LINE, Object, Override, Overrides, Setting,
};
pub use peers::{Peer, PeersSection};
pub use process::{Capability, CpuMap, Process};
pub use proxy::{Mode, Model, PIPES_USUAL, Proxy, Role, StateFile};
pub use resolvers::{HoldTimes, NameServer, Resolution, Resolvers, constant_name};
pub use ring::{Ring, RingServer, SyslogFraming};
pub use rule::{Rule, Ruleset, Service};
pub use send_proxy::{ProxyProtocol, SendProxy};
pub use server::{NetAddress, Server, ServerAddress, ServerProtocol, ServerTarget, SourceAddress, WebSocketProtocol};
pub use source::{KeywordLines, Source, Written};
pub use stats::{AccessLevel, SeverityOutput, ShownText, Stats, StatsPage, StatsSocket, StatsUser};
pub use table::{DataKind, DataType, KeyType, ServerKey, StickTable, Stored};
pub use timeouts::Timeouts;
pub use tls::{
    BindTls, ClientVerify, CrtLine, CrtLoad, CrtSource, CrtStore, ExtraFiles, GlobalTls, IgnoredErrors, ServerTls,
    ServerTlsDefaults, TlsOptions, TlsVersion,
};
pub use users::{Password, User, UserList};
pub use variables::VariableLimits;
