//! Whose it is to change the kernel, and what a process before this one left there.
//!
//! ```text
//!   Undecided ── this process serves ──▶ Serving ── another one serves, or the end ──▶ Resting
//! ```

use baton_direct::KernelError;

use super::keeper::Keeper;

/// Whether it is ours to change the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Charge {
    /// It is not decided yet who serves.
    #[default]
    Undecided,
    /// This process does.
    Serving {
        /// Of the addresses that are here.
        announcement: Announcement,
    },
    /// Another one does, or nobody any more: nothing is touched.
    Resting,
}

/// Whether addresses are announced that were here before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Announcement {
    /// With the next work.
    Due,
    /// They were.
    Made,
}

impl Charge {
    /// It is decided: this process serves.
    pub fn begin(self) -> Charge {
        Charge::Serving { announcement: Announcement::Due }
    }

    /// Another process serves, or the end has come.
    pub fn rest(self) -> Charge {
        Charge::Resting
    }

    /// Whether this process serves.
    pub fn is_serving(self) -> bool {
        match self {
            Charge::Serving { .. } => true,
            Charge::Undecided | Charge::Resting => false,
        }
    }

    /// Work is given: what it announces, and the charge after it.
    pub fn announce(self) -> (Announcement, Charge) {
        match self {
            Charge::Serving { announcement } => (announcement, Charge::Serving { announcement: Announcement::Made }),
            Charge::Undecided | Charge::Resting => (Announcement::Made, self),
        }
    }
}

/// What the process that we took over from left in the kernel.
#[derive(Default)]
pub(super) enum Inheritance {
    /// Nothing that we know of.
    #[default]
    Nothing,
    /// Services.
    Services,
    /// Services, and what removes them was opened while we had the rights to.
    Opened(Result<Keeper, KernelError>),
}

impl Inheritance {
    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        match self {
            Inheritance::Nothing => false,
            Inheritance::Services | Inheritance::Opened(_) => true,
        }
    }

    /// Another process had services.
    pub fn with_services(self) -> Inheritance {
        match self {
            Inheritance::Nothing | Inheritance::Services => Inheritance::Services,
            opened @ Inheritance::Opened(_) => opened,
        }
    }
}

/// What the process has given up since it began; no other engine can be opened without it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum GivenUp {
    /// Nothing.
    #[default]
    Nothing,
    /// It became another user.
    User,
    /// It has another root, and may be another user.
    Root,
}

impl GivenUp {
    /// Whether the rights of what can be opened only at the start cannot be seen from here. `is_open`: the thread has them.
    pub fn hides_rights(self, is_open: bool) -> bool {
        match self {
            GivenUp::Nothing => false,
            GivenUp::User => is_open,
            GivenUp::Root => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_announced_with_the_first_work_of_who_serves() {
        let check = |charge: Charge, expect: Announcement| {
            let (announcement, after) = charge.announce();
            assert_eq!((announcement, after.announce().0), (expect, Announcement::Made), "{charge:?}");
            assert_eq!(charge.is_serving(), after.is_serving());
        };
        check(Charge::Undecided, Announcement::Made);
        check(Charge::Undecided.begin(), Announcement::Due);
        check(Charge::Undecided.begin().rest(), Announcement::Made);
    }

    #[test]
    fn what_hides_rights() {
        let of = |given_up: GivenUp| [false, true].map(|is_open| given_up.hides_rights(is_open));
        assert_eq!(of(GivenUp::Nothing), [false, false]);
        assert_eq!(of(GivenUp::User), [false, true]);
        assert_eq!(of(GivenUp::Root), [true, true]);
    }
}
