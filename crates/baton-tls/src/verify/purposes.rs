//! What certificates of a chain may be used for, by their extensions and as OpenSSL judges it: webpki does not look at
//! `keyUsage`, and does not say at which certificate it found the others wrong.

use super::{Fault, code};
use crate::certificate::X509;

/// The certificate at `depth` of a chain that begins with a client's own one: what is wrong with its use. `before` are the
/// authorities between it and the client's, those that signed themselves left out.
pub(super) fn faults(read: &X509<'_>, depth: u32, before: u32) -> impl Iterator<Item = Fault> {
    let is_authority = read.is_authority();
    let no_authority = (depth > 0 && !is_authority).then_some(code::NO_AUTHORITY);
    let is_for_clients = match depth {
        0 => read.may_sign_messages(),
        _ => is_authority,
    };
    let purpose = (!is_for_clients || read.is_for_clients() == Some(false)).then_some(code::PURPOSE);
    let is_too_deep = depth > 0 && read.path_length().is_some_and(|most| before > most);
    let too_deep = is_too_deep.then_some(code::PATH_TOO_LONG);
    [no_authority, purpose, too_deep].into_iter().flatten().map(move |code| Fault { depth, code })
}
