//! From whose processes listening sockets are taken.
//!
//! A socket serves clients for whoever has it, and a process that gives one away may keep it: who takes it from somebody else's
//! process lets that user answer his clients. So sockets come from root's processes and from those of our own user. A process that
//! root started and that became the `user` of the configuration before it listened (as Baton did up to 0.1) cannot be told from
//! another one of that user; of his, only those sockets are taken that root or we opened, which the kernel knows of each.

use std::os::fd::AsFd;

use nix::sys::stat::fstat;
use nix::unistd::geteuid;

/// Whose processes are believed. Root's and our own are, without a limit.
#[derive(Clone, Debug, Default)]
pub struct Believed {
    /// The `user` of our configuration.
    user: Option<u32>,
    /// Whoever it is: our master has named it, and it is a worker of his.
    everybody: bool,
}

/// How far a process is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// In everything.
    Whole,
    /// It is the `user`'s: sockets are looked at one by one, and no secret is taken from it.
    Bounded {
        /// Who that is.
        uid: u32,
    },
}

impl Believed {
    /// Root, we, and within bounds the `user` of our configuration.
    pub fn with_user(user: Option<u32>) -> Believed {
        Believed { user, everybody: false }
    }

    /// Whoever it is.
    pub fn everybody() -> Believed {
        Believed { user: None, everybody: true }
    }

    /// How far a process of that user is believed.
    ///
    /// # Errors
    /// Not at all: a clause about the process.
    pub fn judge(&self, uid: u32) -> Result<Belief, String> {
        if uid == 0 || uid == geteuid().as_raw() || self.everybody {
            return Ok(Belief::Whole);
        }
        if self.user == Some(uid) {
            return Ok(Belief::Bounded { uid });
        }
        Err(format!(
            "it belongs to user {uid}, which is not root, this user or the 'user' of this configuration; stop it first"
        ))
    }
}

impl Belief {
    /// Whether a socket from such a process may be used.
    ///
    /// # Errors
    /// Not: a clause about the socket.
    pub fn may_take(self, socket: &impl AsFd) -> Result<(), String> {
        let Belief::Bounded { uid } = self else { return Ok(()) };
        let opened_by = fstat(socket).map_err(|error| error.to_string())?.st_uid;
        match opened_by == 0 || opened_by == geteuid().as_raw() {
            true => Ok(()),
            false => Err(format!("it was opened by user {opened_by}, and the process belongs to user {uid}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_we_are_believed_and_the_user_within_bounds() {
        let own = geteuid().as_raw();
        let other = own + 4711;
        let check = |believed: Believed, uid: u32, expect: Result<Belief, &str>| match (believed.judge(uid), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(found), Err(expect)) => assert!(found.contains(expect), "{found}"),
            (found, _) => panic!("{found:?}"),
        };
        check(Believed::default(), 0, Ok(Belief::Whole));
        check(Believed::default(), own, Ok(Belief::Whole));
        check(Believed::default(), other, Err("stop it first"));
        check(Believed::with_user(Some(other)), other, Ok(Belief::Bounded { uid: other }));
        check(Believed::with_user(Some(other)), other + 1, Err("stop it first"));
        check(Believed::everybody(), other, Ok(Belief::Whole));
    }

    #[test]
    fn the_kernel_knows_who_opened_a_socket() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bounded = Belief::Bounded { uid: 4711 };
        bounded.may_take(&socket).unwrap();
        if geteuid().is_root() {
            nix::unistd::fchown(&socket, Some(4711.into()), None).unwrap();
            assert!(bounded.may_take(&socket).unwrap_err().contains("opened by user 4711"));
            Belief::Whole.may_take(&socket).unwrap();
        }
    }
}
