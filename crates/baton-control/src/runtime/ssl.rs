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

use std::path::Path;

use baton_model::{Model, ServerTls};
use baton_tls::Description;

use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// Names made by `new …` that nothing was committed to, of each kind.
const EMPTY_MAX: usize = 1024;

/// `show ssl providers`: what HAProxy shows of OpenSSL.
pub(super) fn providers(_: &Control, _: &Call) -> CommandResponse {
    CommandResponse::Data("Loaded providers : \n\t- aws-lc\n".into())
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
fn too_many() -> CommandResponse {
    CommandResponse::error(format!(
        "There are {EMPTY_MAX} new and empty ones already: commit something to them, or delete them.\n"
    ))
}
