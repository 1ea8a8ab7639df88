//! `_getsocks`: a successor asks for the listening sockets, in HAProxy's own way (see `baton_kernel::transfer`).

use std::os::fd::{AsFd, OwnedFd};

use baton_kernel::transfer::{Gift, give};
use socket2::Socket;

use crate::control::Control;

/// A socket to give, held open until it was given.
struct Held {
    fd: OwnedFd,
    interface: String,
}

impl Held {
    fn gift(&self) -> Gift<'_> {
        Gift { fd: self.fd.as_fd(), namespace: "", interface: &self.interface }
    }
}

/// Gives every listening socket, the runtime API's among them. They stay ours too: the successor tells by a signal when
/// it serves. The other side sets the pace, so this happens on a thread of its own.
pub(super) fn sockets(control: &mut Control, socket: Socket) {
    let mut held = Vec::new();
    for offer in control.line.listeners.offers() {
        for listening in offer.sockets {
            // Without descriptors to spare nothing is given at all: a part would be worse.
            let Ok(fd) = listening.as_fd().try_clone_to_owned() else { return };
            held.push(Held { fd, interface: offer.interface.unwrap_or_default().to_owned() });
        }
    }
    tokio::task::spawn_blocking(move || {
        let gifts: Vec<Gift<'_>> = held.iter().map(Held::gift).collect();
        // A successor that left, or is too slow, has nothing, and nothing has changed.
        let _ = give(&socket, &gifts);
    });
}
