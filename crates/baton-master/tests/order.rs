//! The modules of this crate stand in an order: each uses those below it only.

#[path = "../../../tests/module_order.rs"]
mod module_order;

/// From the loop of the running master down to what uses no other module.
const ORDER: [&str; 9] = ["run", "cli", "conversation", "process", "opening", "held", "state", "supervisor", "lib"];

#[test]
fn each_module_uses_those_below_it() {
    module_order::check(env!("CARGO_MANIFEST_DIR"), &ORDER);
}
