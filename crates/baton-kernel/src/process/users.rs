//! Users and groups by name, as the system's name service knows them.
//!
//! To be asked before `chroot`, which may hide `/etc/passwd`.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, User, getgrouplist};

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
}

/// The user of this name; `None` when there is none.
pub fn user(name: &str) -> io::Result<Option<Account>> {
    let found = User::from_name(name)?;
    Ok(found.map(|user| Account { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
}

/// The number of the group of this name; `None` when there is none.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// All groups of a user, its primary one included.
pub fn groups_of(user: &Account) -> io::Result<Vec<u32>> {
    let name = CString::new(user.name.as_bytes())?;
    let groups = getgrouplist(&name, Gid::from_raw(user.gid))?;
    Ok(groups.into_iter().map(Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        let root = user("root").unwrap().expect("every system has root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(group("root").unwrap(), Some(0));
        assert!(groups_of(&root).unwrap().contains(&0));
        assert_eq!(user("no-such-user-at-all").unwrap(), None);
        assert_eq!(group("no-such-group-at-all").unwrap(), None);
        assert!(!matches!(user("nul\0inside"), Ok(Some(_))));
    }
}
