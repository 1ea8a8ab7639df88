//! Errors of a verification by OpenSSL's numbers (`X509_V_ERR_…`), and in words.

pub(crate) const UNSPECIFIED: u32 = 1;
pub(crate) const NO_ISSUER: u32 = 2;
pub(crate) const NO_LIST: u32 = 3;
pub(crate) const BAD_SIGNATURE: u32 = 7;
pub(crate) const LIST_SIGNATURE: u32 = 8;
pub(crate) const NOT_YET: u32 = 9;
pub(crate) const EXPIRED: u32 = 10;
pub(crate) const LIST_EXPIRED: u32 = 12;
pub(crate) const SIGNS_ITSELF: u32 = 18;
pub(crate) const SIGNS_ITSELF_IN_CHAIN: u32 = 19;
pub(crate) const NO_LOCAL_ISSUER: u32 = 20;
pub(crate) const LEAF_UNVERIFIED: u32 = 21;
pub(crate) const CHAIN_TOO_LONG: u32 = 22;
pub(crate) const REVOKED: u32 = 23;
pub(crate) const PATH_TOO_LONG: u32 = 25;
pub(crate) const PURPOSE: u32 = 26;
pub(crate) const NOT_FOR_SIGNING: u32 = 32;
pub(crate) const NOT_PERMITTED: u32 = 47;
pub(crate) const NO_AUTHORITY: u32 = 79;

/// What an error means.
pub(crate) fn text(code: u32) -> &'static str {
    match code {
        NO_ISSUER => "the issuer of a CA in ca-file is unknown",
        NO_LIST => "crl-file has no revocation list for it",
        BAD_SIGNATURE => "its signature is invalid",
        LIST_SIGNATURE => "the revocation list in crl-file is not signed by its issuer",
        NOT_YET => "it is not valid yet",
        EXPIRED => "it has expired",
        LIST_EXPIRED => "the revocation list of its issuer in crl-file is out of date",
        SIGNS_ITSELF => "it is self-signed and not in ca-file",
        SIGNS_ITSELF_IN_CHAIN => "the root CA of the chain is not in ca-file",
        NO_LOCAL_ISSUER | LEAF_UNVERIFIED => "its issuer is neither in ca-file nor in the chain",
        CHAIN_TOO_LONG => "the chain is too long",
        REVOKED => "it was revoked",
        PATH_TOO_LONG => "its chain exceeds its path length",
        PURPOSE => "it is not allowed for this purpose",
        NOT_FOR_SIGNING => "it may not sign certificates",
        NOT_PERMITTED => "the name constraints of a CA forbid its name",
        NO_AUTHORITY => "it is not a CA certificate",
        _ => "it cannot be read or verified",
    }
}
