//! Prints a libFuzzer dictionary of all keywords: `cargo run --example dictionary > fuzz/dictionaries/config.dict`.

use std::collections::BTreeSet;

use baton_config::keywords;

fn main() {
    let mut words = BTreeSet::new();
    for row in keywords::global_keywords().chain(keywords::proxy_keywords()) {
        words.extend(row.name.split(' ').map(str::to_string));
    }
    words.extend(keywords::bind_parameters().chain(keywords::server_parameters()).map(|(name, ..)| name.to_string()));
    words.extend(keywords::SECTIONS.iter().map(|kind| kind.name.to_string()));
    let language = ["${", "[*]", "fd@", "unix@", "abns@", "ipv4@", "ipv6@", ".if ", ".elif ", ".else\n", ".endif\n"];
    words.extend(language.map(str::to_string));
    for word in words {
        println!("\"{}\"", word.replace('\\', "\\\\").replace('\n', "\\x0a"));
    }
}
