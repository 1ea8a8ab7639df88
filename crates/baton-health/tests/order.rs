//! The modules of this crate stand in an order: each uses those below it only.

#[path = "../../../tests/module_order.rs"]
mod module_order;

/// From the shell around checks down to what uses no other module.
const ORDER: [&str; 27] = [
    "checker",
    "agent",
    "shared",
    "following",
    "check",
    "text",
    "probe",
    "plan",
    "external",
    "live",
    "vip",
    "prober",
    "protocol",
    "script",
    "matching",
    "expect",
    "http2",
    "response",
    "orders",
    "report",
    "health",
    "proxy_header",
    "socks",
    "sockets",
    "patience",
    "tests",
    "lib",
];

#[test]
fn each_module_uses_those_below_it() {
    module_order::check(env!("CARGO_MANIFEST_DIR"), &ORDER);
}
