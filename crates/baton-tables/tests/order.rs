//! The modules of this crate stand in an order: each uses those below it only.

#[path = "../../../tests/module_order.rs"]
mod module_order;

/// From all tables of a process down to what uses no other module.
const ORDER: [&str; 18] = [
    "stress",
    "tables",
    "table",
    "tracked",
    "moving",
    "shared",
    "record",
    "names",
    "processes",
    "entries",
    "shard",
    "store",
    "cells",
    "layout",
    "key",
    "rate",
    "now",
    "lib",
];

#[test]
fn each_module_uses_those_below_it() {
    module_order::check(env!("CARGO_MANIFEST_DIR"), &ORDER);
}
