//! Commands about TLS (management guide, 9.3): certificates, lists of them, authorities, revocations, OCSP and keys of tickets.
//!
//! What is set is kept in a transaction, one of each kind for the whole process, and is in use after `commit`, for every
//! handshake from then on and for no connection before. Words and order of answers are HAProxy's.

mod authority;
pub(super) mod certificate;
pub(super) mod list;
pub(super) mod ocsp;
pub(super) mod tickets;

pub(super) use authority::{AUTHORITIES, REVOCATIONS, abort, commit, create, delete, set, show};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{Model, ServerTls};
use baton_tls::authorities::Authority;
use baton_tls::{Description, Parts};

use super::answer::Answer;

/// Names made by `new …` that nothing was committed to, of each kind.
const EMPTY_MAX: usize = 1024;

/// What operators have set and not committed.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    certificate: Option<(PathBuf, Parts)>,
    /// Certificates made by `new ssl cert` to which nothing was committed.
    empty: BTreeSet<PathBuf>,
    authorities: Authorities,
    revocations: Authorities,
}

/// What `set ssl ca-file` or `set ssl crl-file` prepared and nobody committed yet.
#[derive(Debug, Default)]
struct Authorities {
    set: Option<(PathBuf, Arc<Authority>)>,
    empty: BTreeSet<PathBuf>,
}

/// The lines that HAProxy shows of a certificate.
fn facts(described: &Description) -> String {
    format!(
        "Serial: {}\nnotBefore: {}\nnotAfter: {}\nSubject Alternative Name: {}\nAlgorithm: {}\nSHA1 FingerPrint: {}\n\
         Subject: {}\nIssuer: {}\n",
        described.serial,
        described.not_before,
        described.not_after,
        described.alternative_names,
        described.algorithm,
        described.sha1,
        described.subject,
        described.issuer,
    )
}

/// How many servers are spoken to by settings of which `is` is true.
fn servers(model: &Model, is: impl Fn(&ServerTls) -> bool) -> usize {
    let servers = model.proxies.iter().flat_map(|proxy| &proxy.servers);
    servers.filter(|server| server.any_tls().is_some_and(|tls| is(tls))).count()
}

/// Another transaction is under way.
fn ongoing(about: &Path, what: &str, name: &str) -> String {
    format!("The ongoing transaction is about '{}' but you are trying to {what} '{name}'\n", about.display())
}

/// Why an object of the same kind cannot be made.
fn too_many() -> Answer {
    Answer::error(format!(
        "There are {EMPTY_MAX} new and empty ones already: commit something to them, or delete them.\n"
    ))
}
