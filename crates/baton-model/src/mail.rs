//! Mail about servers (configuration manual, 3.6 "Mailers", 4.2 `email-alert`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::Level;

/// `email-alert` of a proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EmailAlert {
    /// `from`.
    pub from: String,
    /// `to`.
    pub to: String,
    /// `level`: what is less urgent is not mailed.
    pub level: Level,
    /// `myhostname`; `None`: the machine's.
    pub myhostname: Option<String>,
    /// `mailers`: the section with the mail servers.
    pub mailers: Arc<str>,
}

impl Default for EmailAlert {
    fn default() -> EmailAlert {
        EmailAlert { from: String::new(), to: String::new(), level: Level(1), myhostname: None, mailers: "".into() }
    }
}

/// A `mailers` section.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mailers {
    /// Its name.
    pub name: Arc<str>,
    /// `mailer` lines: each gets every mail.
    pub mailers: Vec<Mailer>,
    /// `timeout mail`: for the whole delivery of a mail.
    pub timeout: Duration,
}

/// `mailer NAME ADDRESS`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mailer {
    /// Its name.
    pub name: Arc<str>,
    /// Where it takes mail.
    pub address: SocketAddr,
}
