//! Giving up rights.

use baton_control::Messages;
use baton_kernel::process::capabilities::{self, Capability};
use baton_kernel::process::privileges::{Credentials, DropError, change_root, drop_to, supplementary_groups};
use baton_kernel::process::{allow_core_files, forbid_new_rights};
use baton_model::Global;

use super::{Stop, plain};

/// `chroot`, `group`, `user`, `setcap`, and that nothing started from here regains what is given up. What stays as it is: a
/// user or group 0 that is asked for, as in HAProxy.
pub(super) fn give_up(global: &Global, messages: &Messages) -> Result<(), Stop> {
    if let Some(directory) = &global.chroot {
        change_root(directory).map_err(|error| {
            let (directory, error) = (directory.display(), plain(&error));
            format!("[haproxy.main()] Cannot chroot({directory}). {error}: it needs root, and a directory that exists.")
        })?;
    }
    let is_root = nix::unistd::geteuid().is_root();
    let (uid, gid) = (global.uid.filter(|&uid| uid != 0), global.gid.filter(|&gid| gid != 0));
    let becomes_user = uid.is_some() || !is_root;
    let capabilities = kept(global, messages).filter(|_| becomes_user);
    if let Some(gid) = gid
        && !is_root
        && supplementary_groups().is_ok_and(|groups| groups.iter().any(|&group| group != gid))
    {
        messages.warning(
            "[haproxy.main()] Failed to drop supplementary groups. Using 'gid'/'group' without 'uid'/'user' is generally \
             useless.",
        );
    }
    drop_to(&Credentials { uid, gid, groups: None, capabilities })
        .map_err(|error| format!("[haproxy.main()] {}", because(&error, uid, gid)))?;
    if !global.process.may_gain_rights {
        forbid_new_rights().map_err(|error| format!("cannot set no_new_privs: {}", plain(&error)))?;
    }
    if global.process.dumpable
        && let Err(error) = allow_core_files()
    {
        messages.warning(&format!("[haproxy.main()] set-dumpable: core files cannot be enabled: {}", plain(&error)));
    }
    Ok(())
}

/// `setcap`; `None` when it says nothing. What we do not have cannot be kept, and is told.
fn kept(global: &Global, messages: &Messages) -> Option<Vec<Capability>> {
    let names = global.process.capabilities.iter().map(|capability| capability.name());
    let wanted: Vec<Capability> = names.filter_map(capabilities::named).collect();
    if wanted.is_empty() {
        return None;
    }
    let missing = capabilities::missing(&wanted).unwrap_or_default();
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(|capability| capability.to_string().to_lowercase()).collect();
        messages.warning(&format!(
            "setcap: cannot keep {}, which this process does not have: start as root, or grant it (AmbientCapabilities= in \
             systemd).",
            missing.join(" and ")
        ));
    }
    Some(wanted)
}

/// HAProxy's words, with the reason.
fn because(error: &DropError, uid: Option<u32>, gid: Option<u32>) -> String {
    let why = plain(&error.source);
    let id = |id: Option<u32>| id.unwrap_or_default();
    match error.step {
        "setuid" => format!("Cannot set uid {}. {why}: start as root, or leave out 'user' and 'uid'.", id(uid)),
        "setgid" => format!("Cannot set gid {}. {why}: start as root, or leave out 'group' and 'gid'.", id(gid)),
        _ => error.to_string(),
    }
}
