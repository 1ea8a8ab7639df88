//! Addresses for servers of tests, which bind them later, in other processes.

use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Below the ports that the kernel gives to connections (`ip_local_port_range`), and to who binds port 0: those may be taken by
/// anything that runs meanwhile. Below those of experiments, too (`baton-prove`).
const PORTS: std::ops::Range<u16> = 2_000..8_000;

/// A port of 127.0.0.1 that nothing listens on, and that no other test gets, in this process or in another one, until this process ends: two
/// servers that got the same one would share its clients (SO_REUSEPORT), or one would be refused it.
///
/// A port is reserved by an abstract unix socket of its number, which the kernel gives to one process, and frees when that ends.
pub fn free_address() -> SocketAddr {
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    // Processes begin at different ports, so that each finds one at once.
    let first = std::process::id().wrapping_mul(137);
    for _ in 0..count {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (first.wrapping_add(step) % count) as u16;
        let name = UnixAddress::from_abstract_name(format!("baton-test-port-{port}")).expect("a short name");
        let Ok(reserved) = UnixListener::bind_addr(&name) else { continue };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reserved);
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("loopback has no port left in {PORTS:?}");
}
