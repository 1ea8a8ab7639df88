//! What certificates of a chain may be used for, by their extensions and as OpenSSL judges it: webpki does not look at
//! `keyUsage`, and does not say at which certificate it found the others wrong.

use super::code;
use super::faults::VerifyError;
use super::judge::Purpose;
use crate::certificate::X509;

/// The certificate at `depth` of a chain that begins with a peer's own one: what is wrong with its use. `before` are the
/// authorities between it and the peer's, those that signed themselves left out.
pub(super) fn faults(read: &X509<'_>, purpose: Purpose, depth: u32, before: u32) -> impl Iterator<Item = VerifyError> {
    let is_authority = read.is_authority();
    let no_authority = (depth > 0 && !is_authority).then_some(code::NO_AUTHORITY);
    let is_for_it = match depth {
        0 => purpose.may_sign(read),
        _ => is_authority,
    };
    let wrong_use = (!is_for_it || purpose.is_named(read) == Some(false)).then_some(code::PURPOSE);
    let is_too_deep = depth > 0 && read.path_length().is_some_and(|most| before > most);
    let too_deep = is_too_deep.then_some(code::PATH_TOO_LONG);
    [no_authority, wrong_use, too_deep].into_iter().flatten().map(move |code| VerifyError { depth, code })
}
