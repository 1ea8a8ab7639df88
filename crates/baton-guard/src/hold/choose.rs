//! `--method auto`: which method fits the targets, and why.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use super::method::{HoldOrder, MethodName};
use super::plug;
use super::settle::listening;
use super::target::Targets;
use crate::KernelError;

/// A method, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How.
    pub method: MethodName,
    /// Why; empty when it was asked for.
    pub why: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why.is_empty() {
            true => write!(f, "method {}, as requested", self.method),
            false => write!(f, "method {}: {}", self.method, self.why),
        }
    }
}

/// The method that was asked for, or the best one that fits. Changes nothing.
///
/// # Errors
/// When that one, or all, cannot be used here.
pub fn method(asked: Option<MethodName>, order: &HoldOrder) -> Result<Choice, KernelError> {
    judge_interfaces(order)?;
    if let Some(method) = asked {
        method.usable(order)?;
        return Ok(Choice { method, why: String::new() });
    }
    let mut against = Vec::new();
    for method in MethodName::ALL {
        let sharing = match method {
            MethodName::Migrate => shared(&order.targets),
            MethodName::Plug => plug::suits(order).map(|()| String::new()),
            MethodName::Queue | MethodName::Drop => Ok(String::new()),
        };
        match sharing.and_then(|why| method.usable(order).map(|()| why).map_err(|fault| fault.reason)) {
            Ok(why) if method == MethodName::Migrate => return Ok(Choice { method, why }),
            Ok(_) => return Ok(Choice { method, why: against.join("; ") }),
            Err(reason) => against.push(format!("not {method}, because {reason}")),
        }
    }
    Err(KernelError::new("every method", against.join("; "), "run it as root, on a kernel with netfilter"))
}

/// A rule for an interface that is not there would hold nothing, and nobody would know.
fn judge_interfaces(order: &HoldOrder) -> Result<(), KernelError> {
    let missing = order.interfaces.iter().find(|name| if_nametoindex(name.as_str()).is_err());
    missing.map_or(Ok(()), |name| {
        let remedy = "`ip link` lists the interfaces of this network namespace";
        Err(KernelError::new(format!("--interface {name}"), "there is no such interface", remedy))
    })
}

/// Whether all sockets that listen at the targets share their addresses (SO_REUSEPORT), so that a new process can listen beside
/// them; with the reason for either.
fn shared(targets: &Targets) -> Result<String, String> {
    let listeners = listening(targets).map_err(|fault| format!("cannot find the listeners ({fault})"))?;
    let mut count = 0;
    for target in targets.iter() {
        let serving: Vec<_> = listeners.iter().filter(|listener| target.is_served_by(listener.local)).collect();
        if serving.is_empty() {
            return Err(format!("nothing listens on {target}"));
        }
        count += serving.len();
        for listener in serving {
            let at = listener.local;
            let is_group = listeners.iter().filter(|other| other.local == at).count() > 1;
            if !is_group {
                try_beside(at, listener.user)?;
            }
        }
    }
    Ok(format!(
        "{count} listening socket{} on {targets} share{} the address (SO_REUSEPORT, tested with a second socket), so that the \
         kernel can move waiting connections to a newer one",
        if count == 1 { "" } else { "s" },
        if count == 1 { "s" } else { "" },
    ))
}

/// Binds beside a listening socket, without listening: no connection can come here. The kernel allows it when both share the
/// address and belong to the same user.
fn try_beside(at: SocketAddr, user: u32) -> Result<(), String> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM.cloexec(), Some(Protocol::TCP))?;
        if at.is_ipv6() {
            // Sockets of IPv4 at the port are not the question.
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_port(true)?;
        socket.bind(&at.into())
    };
    match bind() {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AddrInUse && user == nix::unistd::geteuid().as_raw() => {
            Err(format!("the socket on {at} does not share its address (no SO_REUSEPORT)"))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(format!(
            "the socket on {at} belongs to user {user}; only this user and root can test whether it shares its \
                address"
        )),
        Err(error) => Err(format!("cannot test whether the socket on {at} shares its address ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn targets(at: SocketAddr) -> Targets {
        Targets::new(vec![at.to_string().parse().unwrap()]).unwrap()
    }

    fn sharing(at: &str) -> Socket {
        let at: SocketAddr = at.parse().unwrap();
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&at.into()).unwrap();
        socket.listen(8).unwrap();
        socket
    }

    #[test]
    fn who_shares_an_address_is_found_out() {
        let alone = TcpListener::bind("127.0.0.1:0").unwrap();
        let reason = shared(&targets(alone.local_addr().unwrap())).unwrap_err();
        assert!(reason.contains("does not share its address"), "{reason}");
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let one = sharing(at);
            let at = one.local_addr().unwrap().as_socket().unwrap();
            let why = shared(&targets(at)).unwrap();
            assert!(why.starts_with("1 listening socket on"), "{why}");
            let _other = sharing(&at.to_string());
            let why = shared(&targets(at)).unwrap();
            assert!(why.starts_with("2 listening sockets on"), "{why}");
        }
        drop(alone);
        let nobody = Targets::new(vec!["127.0.0.1:1".parse().unwrap()]).unwrap();
        assert!(shared(&nobody).unwrap_err().contains("nothing listens on 127.0.0.1:1"));
    }
}
