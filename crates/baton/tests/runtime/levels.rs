//! Who may give which command: every command of the table, at each level.

use crate::peers::{Both, socat};
use crate::support::free_address;

/// The level at which a command is permitted, and the command, so that it changes nothing.
const LEVELS: &[(&str, &[&str])] = &[
    (
        "user",
        &[
            "show info",
            "show stat",
            "show version",
            "show backend",
            "show servers state",
            "show servers conn",
            "show pools",
            "show activity",
            "show events",
            "show threads",
            "show map",
            "show acl",
            "show table",
            "show resolvers x",
            "show peers",
            "show schema json",
            "show cli level",
            "show cli sockets",
            "show tls-keys",
            "show ssl ocsp-response",
            "show ssl providers",
            "show stat domain resolvers",
            "get weight x/x",
            "add map x a b",
            "add acl x a",
            "clear map x",
            "clear acl x",
            "clear table x",
            "commit map @1 x",
            "commit acl @1 x",
            "del map x a",
            "del acl x a",
            "get map x a",
            "get acl x a",
            "prepare map x",
            "prepare acl x",
            "set map x a b",
            "set table x key a",
            "set var proc.x int(1)",
            "set timeout cli 10s",
            "set severity-output none",
            "help",
            "quit",
        ],
    ),
    (
        "operator",
        &[
            "show sess",
            "show fd",
            "show libs",
            "show env HOME",
            "show errors",
            "show startup-logs",
            "get var proc.x",
            "clear counters",
        ],
    ),
    (
        "admin",
        &[
            "show profiling",
            "show cache",
            "set profiling",
            "shutdown session 0x1",
            "shutdown sessions server x/x",
            "shutdown frontend x",
            "disable frontend x",
            "enable frontend x",
            "disable server x/x",
            "enable server x/x",
            "disable health x/x",
            "enable health x/x",
            "disable agent x/x",
            "disable dynamic-cookie backend x",
            "enable dynamic-cookie backend x",
            "set dynamic-cookie-key backend x y",
            "enable agent x/x",
            "set maxconn frontend x 1",
            "set maxconn server x/x 1",
            "set maxconn global 999999999",
            "set rate-limit connections global -1",
            "set weight x/x 1",
            "set server x/x addr 127.0.0.1",
            "add server x/x 127.0.0.1:1",
            "del server x/x",
        ],
    ),
];

/// Commands of Baton that are stricter than HAProxy's, or that it does not have, and their levels.
const OWN: &[(&str, &str)] = &[
    ("user", "wait 1"),
    ("operator", "show overrides"),
    ("admin", "save overrides"),
    ("admin", "clear overrides x/x"),
    ("operator", "show ssl cert"),
    ("operator", "show ssl ca-file"),
    ("operator", "show ssl crl-file"),
    ("admin", "show ssl crt-list"),
    ("admin", "dump ssl cert x"),
    ("admin", "new ssl cert"),
    ("admin", "set ssl ocsp-response"),
    ("admin", "set ssl tls-key"),
    ("admin", "abort ssl cert x"),
    ("admin", "commit ssl cert x"),
    ("admin", "del ssl cert x"),
    ("admin", "add ssl crt-list x y"),
    ("admin", "del ssl crt-list x y"),
];

const SOCKETS: [&str; 3] = ["user", "operator", "admin"];

#[test]
fn every_command_needs_its_level_and_no_more() {
    let both = Both::start(|folder| {
        let (folder, web) = (folder.display(), free_address());
        let socket = |level: &str| format!(" stats socket {folder}/{level}.sock mode 600 level {level}\n");
        format!(
            "global\n stats timeout 20s\n{}defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
             frontend web\n bind {web}\n",
            SOCKETS.map(socket).concat()
        )
    });
    let is_permitted = |socket: &std::path::Path, command: &str| {
        !socat(socket, format!("{command}\n")).starts_with("Permission denied")
    };
    let common =
        LEVELS.iter().flat_map(|(level, commands)| commands.iter().map(move |command| (*level, *command, true)));
    for (level, command, is_common) in common.chain(OWN.iter().map(|(level, command)| (*level, *command, false))) {
        let needed = SOCKETS.iter().position(|socket| *socket == level).expect("a level");
        for (at, socket) in SOCKETS.iter().enumerate() {
            let name = format!("{socket}.sock");
            assert_eq!(is_permitted(&both.baton(&name), command), at >= needed, "{command}, {socket}");
            if is_common {
                assert_eq!(is_permitted(&both.haproxy(&name), command), at >= needed, "haproxy: {command}, {socket}");
            }
        }
    }
    // Every command of the help is one of these, by its first words.
    let known: Vec<&str> =
        LEVELS.iter().flat_map(|(_, all)| all.iter().copied()).chain(OWN.iter().map(|(_, command)| *command)).collect();
    let help = socat(&both.baton("admin.sock"), "help\n");
    for line in help.lines().skip(1).filter(|line| !line.is_empty()) {
        let name: Vec<&str> =
            line.split(':').next().unwrap_or_default().split_whitespace().take_while(|word| is_name(word)).collect();
        let name = name.join(" ");
        let is_tried = known.iter().any(|command| *command == name || command.starts_with(&format!("{name} ")));
        let is_session = ["operator", "prompt", "user"].contains(&name.as_str());
        let is_ssl = name.contains(" ssl ");
        assert!(is_tried || is_session || is_ssl, "no level of '{name}' is tested");
    }
}

/// Whether a word of the help belongs to the name of a command.
fn is_name(word: &str) -> bool {
    !word.starts_with(['<', '[', '@']) && word.chars().all(|char| char.is_ascii_lowercase() || char == '-')
}
