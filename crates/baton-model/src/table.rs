//! Stick tables as they are configured (configuration manual, `stick-table`): keys, size, life of an entry, and what is stored with it. Their
//! contents are the process's, in another crate.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Source;

/// A table: a `stick-table` line of a proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StickTable {
    /// The name by which rules, commands and peers know it: that of the proxy. A table of a `peers` section is `SECTION/NAME`.
    pub name: Arc<str>,
    /// `type`.
    pub key: KeyType,
    /// `size`: most entries.
    pub size: u64,
    /// `expire`: how long an entry lives since it was last touched; `None`: until it is removed or makes room for another one.
    pub expire: Option<Duration>,
    /// `nopurge`: a full table refuses new entries, instead of removing the oldest ones.
    pub no_purge: bool,
    /// `store`, by ascending [`DataType::bit`], each type once.
    pub stored: Vec<Stored>,
    /// `srvkey`.
    pub server_key: ServerKey,
    /// `peers`: the section whose peers get and send its entries.
    pub peers: Option<Arc<str>>,
    /// `write-to`: the table that takes what peers send, too.
    pub write_to: Option<Arc<str>>,
    /// `recv-only`: nothing is sent to peers.
    pub recv_only: bool,
    /// `brates-factor`: rates of bytes count blocks of so many bytes.
    pub bytes_factor: u16,
    /// The line.
    pub source: Source,
}

impl StickTable {
    /// An empty one with HAProxy's defaults.
    pub fn new(name: impl Into<Arc<str>>, key: KeyType, size: u64) -> StickTable {
        StickTable {
            name: name.into(),
            key,
            size,
            expire: None,
            no_purge: false,
            stored: Vec::new(),
            server_key: ServerKey::Name,
            peers: None,
            write_to: None,
            recv_only: false,
            bytes_factor: 1,
            source: Source::default(),
        }
    }

    /// `brates-factor`, at most.
    pub const BYTES_FACTOR_MAX: u16 = 1024;

    /// How a type of data is stored, if it is.
    pub fn stored(&self, data: DataType) -> Option<&Stored> {
        self.stored.iter().find(|stored| stored.data == data)
    }
}

/// `type`: what its keys are.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum KeyType {
    /// IPv4 addresses.
    Ip,
    /// IPv6 addresses.
    Ipv6,
    /// Integers of 32 bits.
    Integer,
    /// Text.
    String {
        /// Bytes of it that count, at most.
        length: u32,
    },
    /// Blocks of bytes.
    Binary {
        /// Bytes of each; shorter ones are padded with zeros.
        length: u32,
    },
}

impl KeyType {
    /// Bytes of a `string` without `len`.
    pub const STRING: u32 = 31;
    /// Bytes of a `binary` without `len`.
    pub const BINARY: u32 = 32;

    /// Bytes of a key, at most.
    pub fn length(self) -> u32 {
        match self {
            KeyType::Ip | KeyType::Integer => 4,
            KeyType::Ipv6 => 16,
            KeyType::String { length } | KeyType::Binary { length } => length,
        }
    }

    /// Its name, as `show table` prints it.
    pub fn word(self) -> &'static str {
        match self {
            KeyType::Ip => "ip",
            KeyType::Ipv6 => "ipv6",
            KeyType::Integer => "integer",
            KeyType::String { .. } => "string",
            KeyType::Binary { .. } => "binary",
        }
    }
}

impl fmt::Display for KeyType {
    /// As in a configuration.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())?;
        match self {
            KeyType::String { length } | KeyType::Binary { length } => write!(out, " len {length}"),
            KeyType::Ip | KeyType::Ipv6 | KeyType::Integer => Ok(()),
        }
    }
}

/// `srvkey`: what a server is in `server_key`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ServerKey {
    /// Its name.
    #[default]
    Name,
    /// Its address and port.
    Address,
}

/// A type of data of each entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Which.
    pub data: DataType,
    /// Elements of an array; 1 of what is none.
    pub elements: u8,
    /// Of a rate, the time over which it is measured.
    pub period: Option<Duration>,
}

impl Stored {
    /// Elements of an array, at most.
    pub const ELEMENTS_MAX: u8 = 100;
}

impl fmt::Display for Stored {
    /// As in a configuration.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = |period: Option<Duration>| period.unwrap_or_default().as_millis();
        match self.data.kind() {
            DataKind::Rate => write!(out, "{}({})", self.data.name(), period(self.period)),
            DataKind::Array => write!(out, "{}({})", self.data.name(), self.elements),
            DataKind::ArrayOfRates => {
                write!(out, "{}({},{})", self.data.name(), self.elements, period(self.period))
            }
            DataKind::I32 | DataKind::U32 | DataKind::U64 | DataKind::Dictionary => out.write_str(self.data.name()),
        }
    }
}

/// What can be stored with an entry. The number of each is its bit in the definitions that peers exchange.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum DataType {
    /// Numeric ID of the server that the key is bound to.
    ServerId = 0,
    /// A tag.
    Gpt0 = 1,
    /// A counter.
    Gpc0 = 2,
    /// How fast it is incremented.
    Gpc0Rate = 3,
    /// Connections.
    ConnCnt = 4,
    /// Connections over a period.
    ConnRate = 5,
    /// Connections of now. They are the process's own: peers ignore them.
    ConnCur = 6,
    /// Connections that the rules of `tcp-request connection` accepted.
    SessCnt = 7,
    /// Such connections over a period.
    SessRate = 8,
    /// Requests.
    HttpReqCnt = 9,
    /// Requests over a period.
    HttpReqRate = 10,
    /// Requests that failed through the client.
    HttpErrCnt = 11,
    /// Requests over a period that failed through the client.
    HttpErrRate = 12,
    /// Bytes of clients.
    BytesInCnt = 13,
    /// Bytes of clients over a period.
    BytesInRate = 14,
    /// Bytes to clients.
    BytesOutCnt = 15,
    /// Bytes to clients over a period.
    BytesOutRate = 16,
    /// Another counter.
    Gpc1 = 17,
    /// How fast it is incremented.
    Gpc1Rate = 18,
    /// The server that the key is bound to, by name or address.
    ServerKey = 19,
    /// Requests that failed through the server.
    HttpFailCnt = 20,
    /// Requests over a period that failed through the server.
    HttpFailRate = 21,
    /// Tags.
    Gpt = 22,
    /// Counters.
    Gpc = 23,
    /// How fast counters are incremented.
    GpcRate = 24,
    /// Protocol errors that are not failures.
    GlitchCnt = 25,
    /// Protocol errors over a period that are not failures.
    GlitchRate = 26,
}

/// How a type of data is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataKind {
    /// An integer with a sign.
    I32,
    /// A number.
    U32,
    /// A number of 64 bits.
    U64,
    /// Events over a period.
    Rate,
    /// Several [`DataKind::U32`].
    Array,
    /// Several [`DataKind::Rate`] over the same period.
    ArrayOfRates,
    /// A text of a few that recur.
    Dictionary,
}

impl DataType {
    /// All of them, by their bit.
    pub const ALL: [DataType; 27] = [
        DataType::ServerId,
        DataType::Gpt0,
        DataType::Gpc0,
        DataType::Gpc0Rate,
        DataType::ConnCnt,
        DataType::ConnRate,
        DataType::ConnCur,
        DataType::SessCnt,
        DataType::SessRate,
        DataType::HttpReqCnt,
        DataType::HttpReqRate,
        DataType::HttpErrCnt,
        DataType::HttpErrRate,
        DataType::BytesInCnt,
        DataType::BytesInRate,
        DataType::BytesOutCnt,
        DataType::BytesOutRate,
        DataType::Gpc1,
        DataType::Gpc1Rate,
        DataType::ServerKey,
        DataType::HttpFailCnt,
        DataType::HttpFailRate,
        DataType::Gpt,
        DataType::Gpc,
        DataType::GpcRate,
        DataType::GlitchCnt,
        DataType::GlitchRate,
    ];

    /// Its bit in the definitions that peers exchange.
    pub fn bit(self) -> u8 {
        self as u8
    }

    /// The type of a name.
    pub fn of(name: &str) -> Option<DataType> {
        DataType::ALL.into_iter().find(|data| data.name() == name)
    }

    /// Its name in `store` and in `show table`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Whether it is a rate of bytes, which are counted in blocks.
    pub fn is_bytes_rate(self) -> bool {
        matches!(self, DataType::BytesInRate | DataType::BytesOutRate)
    }

    /// How it is kept.
    pub fn kind(self) -> DataKind {
        self.row().1
    }

    fn row(self) -> (&'static str, DataKind) {
        use DataKind::*;
        match self {
            DataType::ServerId => ("server_id", I32),
            DataType::Gpt0 => ("gpt0", U32),
            DataType::Gpc0 => ("gpc0", U32),
            DataType::Gpc0Rate => ("gpc0_rate", Rate),
            DataType::ConnCnt => ("conn_cnt", U32),
            DataType::ConnRate => ("conn_rate", Rate),
            DataType::ConnCur => ("conn_cur", U32),
            DataType::SessCnt => ("sess_cnt", U32),
            DataType::SessRate => ("sess_rate", Rate),
            DataType::HttpReqCnt => ("http_req_cnt", U32),
            DataType::HttpReqRate => ("http_req_rate", Rate),
            DataType::HttpErrCnt => ("http_err_cnt", U32),
            DataType::HttpErrRate => ("http_err_rate", Rate),
            DataType::BytesInCnt => ("bytes_in_cnt", U64),
            DataType::BytesInRate => ("bytes_in_rate", Rate),
            DataType::BytesOutCnt => ("bytes_out_cnt", U64),
            DataType::BytesOutRate => ("bytes_out_rate", Rate),
            DataType::Gpc1 => ("gpc1", U32),
            DataType::Gpc1Rate => ("gpc1_rate", Rate),
            DataType::ServerKey => ("server_key", Dictionary),
            DataType::HttpFailCnt => ("http_fail_cnt", U32),
            DataType::HttpFailRate => ("http_fail_rate", Rate),
            DataType::Gpt => ("gpt", Array),
            DataType::Gpc => ("gpc", Array),
            DataType::GpcRate => ("gpc_rate", ArrayOfRates),
            DataType::GlitchCnt => ("glitch_cnt", U32),
            DataType::GlitchRate => ("glitch_rate", Rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_stand_in_the_order_of_their_bits() {
        for (bit, data) in DataType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(data.bit()), bit);
            assert_eq!(DataType::of(data.name()), Some(data));
        }
    }

    #[test]
    fn what_is_stored_reads_as_it_is_written() {
        let shown = |data, elements, period| {
            Stored { data, elements, period: Option::map(period, Duration::from_millis) }.to_string()
        };
        assert_eq!(shown(DataType::ConnCur, 1, None), "conn_cur");
        assert_eq!(shown(DataType::HttpReqRate, 1, Some(10_000)), "http_req_rate(10000)");
        assert_eq!(shown(DataType::Gpt, 3, None), "gpt(3)");
        assert_eq!(shown(DataType::GpcRate, 2, Some(500)), "gpc_rate(2,500)");
        assert_eq!(KeyType::String { length: KeyType::STRING }.to_string(), "string len 31");
    }
}
