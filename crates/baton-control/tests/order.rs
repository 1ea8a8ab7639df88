//! The modules of this crate stand in an order: each uses those below it only.

#[path = "../../../tests/module_order.rs"]
mod module_order;

/// From the loop of the running process down to what uses no other module.
const ORDER: [&str; 44] = [
    "run",
    "services",
    "metrics",
    "runtime",
    "status",
    "control",
    "servant",
    "endpoint",
    "history",
    "sayings",
    "reload",
    "encryption",
    "certificates",
    "tickets",
    "state_file",
    "handover",
    "operators",
    "ask",
    "rights",
    "verdict",
    "protocol",
    "plan",
    "overrides",
    "discovery",
    "direct",
    "peers",
    "listeners",
    "retirement",
    "drain",
    "capacity",
    "table_care",
    "tidy",
    "losses",
    "rings",
    "messages",
    "mail",
    "environment",
    "apart",
    "control_socket",
    "early_signals",
    "service_manager",
    "start_command",
    "printable",
    "lib",
];

#[test]
fn each_module_uses_those_below_it() {
    module_order::check(env!("CARGO_MANIFEST_DIR"), &ORDER);
}
