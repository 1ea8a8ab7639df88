//! The limit of open files.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many descriptors this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// In force now.
    pub soft: u64,
    /// What we may raise it to without asking.
    pub hard: u64,
}

impl OpenFiles {
    /// The limits now.
    pub fn now() -> io::Result<OpenFiles> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        Ok(OpenFiles { soft, hard })
    }

    /// Raises the soft limit to at least `wanted`, the hard one too if it must and we may; never lowers one.
    /// Gives the limits in force afterwards: `soft` below `wanted` means that the system would not give more.
    pub fn raise(wanted: u64) -> io::Result<OpenFiles> {
        let now = OpenFiles::now()?;
        if now.soft >= wanted {
            return Ok(now);
        }
        let asked = setrlimit(Resource::RLIMIT_NOFILE, wanted, now.hard.max(wanted));
        if asked.is_err() && now.soft < now.hard {
            setrlimit(Resource::RLIMIT_NOFILE, now.hard.min(wanted), now.hard)?;
        }
        OpenFiles::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_rises_and_never_falls() {
        let before = OpenFiles::now().unwrap();
        assert_eq!(OpenFiles::raise(1).unwrap(), before, "lower than now: nothing to do");
        let raised = OpenFiles::raise(before.hard).unwrap();
        assert_eq!(raised, OpenFiles { soft: before.hard, hard: before.hard });
        assert!(OpenFiles::raise(u64::MAX - 1).unwrap().soft >= before.hard, "as much as the system gives");
    }
}
