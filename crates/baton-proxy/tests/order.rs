//! The modules of this crate stand in an order: each uses those below it only.

#[path = "../../../tests/module_order.rs"]
mod module_order;

/// From what accepts connections down to what uses no other module.
const ORDER: [&str; 56] = [
    "workers",
    "accept",
    "http1",
    "mux",
    "request",
    "tcp",
    "attempt",
    "relay",
    "service",
    "route",
    "respond",
    "record",
    "rules",
    "live",
    "handshake",
    "parse",
    "sink",
    "preference",
    "client",
    "exchange",
    "logged",
    "connection",
    "session",
    "progress",
    "core",
    "pool",
    "view",
    "generation",
    "state",
    "desk",
    "messages",
    "balance",
    "flow",
    "transport",
    "upstream",
    "pipes",
    "sums",
    "stream",
    "log",
    "buffer",
    "facts",
    "captures",
    "times",
    "clock",
    "supervise",
    "runner",
    "spare",
    "ended",
    "deadline",
    "netscaler",
    "proxy_protocol",
    "passwords",
    "patience",
    "body",
    "pages",
    "lib",
];

#[test]
fn each_module_uses_those_below_it() {
    module_order::check(env!("CARGO_MANIFEST_DIR"), &ORDER);
}
