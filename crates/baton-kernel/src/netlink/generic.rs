//! Generic netlink: parts of the kernel that are asked for by a name, such as `IPVS` (`include/uapi/linux/genetlink.h`).

use std::io;

use super::{Attributes, NetlinkError, Protocol, Reader, Reply, Request, Socket};

/// The family that knows the others by name (`GENL_ID_CTRL`), its question (`CTRL_CMD_GETFAMILY`), and its version.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const CONTROL_VERSION: u8 = 2;
/// `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const ATTR_ID: u16 = 1;
const ATTR_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`: command, version and two that are reserved.
const FIXED: usize = 4;

/// A socket that speaks to one family.
#[derive(Debug)]
pub struct Generic {
    socket: Socket,
    family: u16,
    version: u8,
}

impl Generic {
    /// Finds a family by its name. The kernel loads the module that has it, where there is one.
    ///
    /// # Errors
    /// `ENOENT` for a kernel without it.
    pub fn open(name: &str, version: u8) -> Result<Generic, NetlinkError> {
        let mut control =
            Generic { socket: Socket::open(Protocol::Generic)?, family: CONTROL, version: CONTROL_VERSION };
        let replies = control.ask(GET_FAMILY, &Attributes::new().text(ATTR_NAME, name))?;
        let number = replies.iter().find_map(|reply| attributes(reply).find(ATTR_ID)?.u16());
        let Some(family) = number else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel names a family without a number").into());
        };
        Ok(Generic { socket: control.socket, family, version })
    }

    /// Sends one command and waits until it is done; gives what was answered.
    ///
    /// # Errors
    /// As [`Socket::ask`].
    pub fn ask(&mut self, command: u8, body: &Attributes) -> Result<Vec<Reply>, NetlinkError> {
        self.socket.ask(&self.request(command, body))
    }

    /// Asks for a list.
    ///
    /// # Errors
    /// As [`Socket::list`].
    pub fn list(&mut self, command: u8, body: &Attributes) -> Result<Vec<Reply>, NetlinkError> {
        self.socket.list(&self.request(command, body))
    }

    fn request(&self, command: u8, body: &Attributes) -> Request {
        Request::new(self.family, 0, &[command, self.version, 0, 0], body)
    }
}

/// The attributes of an answer of a family.
pub(crate) fn attributes(reply: &Reply) -> Reader<'_> {
    reply.attributes(FIXED)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn families_are_found_by_name_or_said_to_be_missing() {
        // Every kernel has the family of families.
        let mut control = Generic::open("nlctrl", CONTROL_VERSION).unwrap();
        assert_eq!(control.family, CONTROL);
        let families = control.list(GET_FAMILY, &Attributes::new()).unwrap();
        let is_it = |reply: &Reply| attributes(reply).find(ATTR_NAME).and_then(|name| name.text()) == Some("nlctrl");
        assert!(families.iter().any(is_it));
        let missing = Generic::open("baton-none", 1).unwrap_err();
        assert_eq!(missing.errno(), Some(Errno::ENOENT), "{missing}");
    }
}
