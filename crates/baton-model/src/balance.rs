//! How a backend chooses a server (configuration manual, 4.2 `balance`, `hash-type`, `hash-balance-factor`).

use std::borrow::Cow;

/// Algorithm and its hash settings.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Balance {
    /// `balance`.
    pub algorithm: Algorithm,
    /// `hash-type`.
    pub hash: HashType,
    /// `hash-balance-factor`: percent of the average load a server may have (over 100); 0 disables it.
    pub factor: u32,
}

/// The `balance` algorithms.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Algorithm {
    /// `roundrobin`: smooth, weights may change at any time.
    #[default]
    RoundRobin,
    /// `static-rr`.
    StaticRr,
    /// `leastconn`.
    LeastConn,
    /// `first`: the first server with a free slot.
    First,
    /// `source`: hash of the client's address.
    Source,
    /// `uri`.
    Uri(UriHash),
    /// `url_param NAME [check_post]`: falls back to round robin without the parameter.
    UrlParam {
        /// The parameter's name.
        name: String,
        /// `check_post`: look into a POST body too; the most bytes to wait for.
        check_post: Option<u32>,
    },
    /// `hdr(NAME) [use_domain_only]`.
    Hdr {
        /// The header's name.
        name: String,
        /// Hash only the main part of a host name.
        domain_only: bool,
    },
    /// `random[(DRAWS)]`.
    Random {
        /// Servers drawn, of which the least loaded is taken.
        draws: u32,
    },
    /// `rdp-cookie[(NAME)]`.
    RdpCookie(String),
    /// `hash EXPR`: a sample expression (2.6's successor added it; text for `baton-rules`).
    Hash(String),
}

impl Algorithm {
    /// The sample expression whose value is hashed, of those that have one.
    pub fn expression(&self) -> Option<Cow<'_, str>> {
        match self {
            Algorithm::Hash(text) => Some(text.into()),
            Algorithm::RdpCookie(name) => Some(format!("req.rdp_cookie({name})").into()),
            Algorithm::RoundRobin
            | Algorithm::StaticRr
            | Algorithm::LeastConn
            | Algorithm::First
            | Algorithm::Source
            | Algorithm::Uri(_)
            | Algorithm::UrlParam { .. }
            | Algorithm::Hdr { .. }
            | Algorithm::Random { .. } => None,
        }
    }
}

/// What of the URI is hashed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct UriHash {
    /// `whole`: the query string too.
    pub whole: bool,
    /// `len`: at most so many characters; 0 is all.
    pub len: u32,
    /// `depth`: at most so many directories; 0 is all.
    pub depth: u32,
    /// `path-only`: without scheme and authority.
    pub path_only: bool,
}

/// `hash-type METHOD FUNCTION MODIFIER`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HashType {
    /// `consistent` instead of `map-based`.
    pub consistent: bool,
    /// The function.
    pub function: HashFunction,
    /// The modifier.
    pub avalanche: Avalanche,
}

/// Hash functions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HashFunction {
    /// `sdbm`.
    #[default]
    Sdbm,
    /// `djb2`.
    Djb2,
    /// `wt6`.
    Wt6,
    /// `crc32`.
    Crc32,
    /// `none`: the key is a number.
    None,
}

/// Whether the hash is mixed once more.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Avalanche {
    /// As written nothing: only where the algorithm does it by itself.
    #[default]
    Default,
    /// The function is written, without a modifier: not even where its default would be mixed.
    Off,
    /// `avalanche`.
    Full,
}
