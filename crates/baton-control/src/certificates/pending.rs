//! Certificates, authorities and revocations that operators have set over the runtime API and not committed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use baton_tls::Parts;
use baton_tls::authorities::Authority;

/// What operators have set and not committed.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub certificate: Option<(PathBuf, Parts)>,
    /// Certificates made by `new ssl cert` to which nothing was committed.
    pub empty: BTreeSet<PathBuf>,
    pub authorities: PendingAuthorities,
    pub revocations: PendingAuthorities,
}

/// What `set ssl ca-file` or `set ssl crl-file` prepared and nobody committed yet.
#[derive(Debug, Default)]
pub(crate) struct PendingAuthorities {
    pub set: Option<(PathBuf, Arc<Authority>)>,
    pub empty: BTreeSet<PathBuf>,
}
