//! From a `bind` line to the options of its sockets.

use std::time::Duration;

use baton_kernel::listen::BACKLOG_DEFAULT;
use baton_kernel::{Endpoint, ListenOptions};
use baton_model::{Address, Bind, Model, Proxy};

/// How long the kernel waits for the first data with `defer-accept`; HAProxy waits one second too.
const DEFER_ACCEPT: Duration = Duration::from_secs(1);

/// The kernel's form of an address.
pub(super) fn endpoint(address: &Address) -> Endpoint {
    match address {
        Address::Inet(address) => Endpoint::Inet(*address),
        Address::Unix(path) => Endpoint::Unix(path.clone()),
        Address::Abstract(name) => Endpoint::Abstract(name.clone().into_bytes()),
        Address::Fd(number) => Endpoint::Fd(*number),
    }
}

/// The options of the sockets of a bind line, defaults of its frontend applied; a `stats socket` has none.
pub(crate) fn of(model: &Model, frontend: Option<&Proxy>, bind: &Bind) -> ListenOptions {
    let options = &bind.options;
    let is_inet = matches!(bind.address, Address::Inet(_));
    let by_frontend = frontend.and_then(|proxy| proxy.backlog.or(proxy.maxconn).or(model.global.maxconn));
    let backlog = options.backlog.or(by_frontend).unwrap_or(BACKLOG_DEFAULT);
    ListenOptions {
        backlog,
        reuse_port: is_inet,
        exclusive: is_inet,
        v6only: options.v6only,
        interface: options.interface.clone(),
        namespace: options.namespace.clone(),
        transparent: options.transparent,
        defer_accept: options.defer_accept.then_some(DEFER_ACCEPT),
        tfo: options.tfo.then_some(backlog),
        mss: options.mss,
        user_timeout: options.tcp_user_timeout_ms.map(|ms| Duration::from_millis(ms.into())),
        keepalive: None,
        nodelay: true,
        mode: options.socket.mode,
        uid: options.socket.uid,
        gid: options.socket.gid,
    }
}
