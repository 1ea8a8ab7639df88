//! Giving up rights.

use std::path::PathBuf;

use baton_kernel::process::privileges::{Identity, change_root, drop_to};
use baton_model::Global;

use super::{Stop, plain};

/// `chroot`, `group`, `user`.
pub(super) fn give_up(global: &Global) -> Result<(), Stop> {
    if let Some(directory) = &global.chroot {
        let directory: &PathBuf = directory;
        change_root(directory)
            .map_err(|error| format!("[haproxy.main()] Cannot chroot({}): {}", directory.display(), plain(&error)))?;
    }
    if global.uid.is_none() && global.gid.is_none() {
        return Ok(());
    }
    let identity = Identity { uid: global.uid, gid: global.gid, groups: None };
    Ok(drop_to(&identity).map_err(|error| format!("[haproxy.main()] {error}"))?)
}
