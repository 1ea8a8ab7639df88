//! `_getsocks`: a successor asks for the listening sockets, in HAProxy's own way (see `baton_kernel::transfer`).

use std::time::Instant;

use baton_kernel::transfer;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::Socket;

use crate::control::Control;
use crate::listeners::Gift;

/// Gives one listening socket of each address, the runtime API's among them. They stay ours too: the successor tells by a
/// signal when it serves. The other side sets the pace, so this happens on a thread of its own.
pub(super) fn sockets(control: &mut Control, socket: Socket) {
    // In another PID namespace it has no number here.
    let is_visible = getsockopt(&socket, PeerCredentials).is_ok_and(|peer| peer.pid() > 0);
    // Without descriptors to spare nothing is given at all: a part would be worse. Whether the successor keeps what it gets is looked
    // at when the addresses are retired.
    let Ok(gifts) = control.line.lend_sockets(is_visible, Instant::now()) else { return };
    tokio::task::spawn_blocking(move || {
        let gifts: Vec<_> = gifts.iter().map(Gift::to_give).collect();
        // A successor that left, or is too slow, has nothing, and nothing has changed.
        let _ = transfer::give(&socket, &gifts);
    });
}
