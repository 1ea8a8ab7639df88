//! Errors of a verification by OpenSSL's numbers (`X509_V_ERR_…`).

pub(super) const UNSPECIFIED: u32 = 1;
pub(super) const NO_ISSUER: u32 = 2;
pub(super) const NO_LIST: u32 = 3;
pub(super) const BAD_SIGNATURE: u32 = 7;
pub(super) const NOT_YET: u32 = 9;
pub(super) const EXPIRED: u32 = 10;
pub(super) const LIST_EXPIRED: u32 = 12;
pub(super) const SIGNS_ITSELF: u32 = 18;
pub(super) const SIGNS_ITSELF_IN_CHAIN: u32 = 19;
pub(super) const NO_LOCAL_ISSUER: u32 = 20;
pub(super) const LEAF_UNVERIFIED: u32 = 21;
pub(super) const CHAIN_TOO_LONG: u32 = 22;
pub(super) const REVOKED: u32 = 23;
pub(super) const PATH_TOO_LONG: u32 = 25;
pub(super) const PURPOSE: u32 = 26;
pub(super) const NOT_FOR_SIGNING: u32 = 32;
pub(super) const NOT_PERMITTED: u32 = 47;
pub(super) const NO_AUTHORITY: u32 = 79;
