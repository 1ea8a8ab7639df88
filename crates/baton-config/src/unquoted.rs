//! Variables outside of double quotes: HAProxy replaces them in addresses, and nowhere else.
//!
//! Addresses have a grammar of their own for it: `$NAME` or `${NAME}`, whose closing brace may be missing; an unset variable is empty;
//! there are no defaults, lists, escapes or pseudo-variables.

use crate::words::Token;

/// Words of a `server` line that an address follows.
const BEFORE_ADDRESSES: [&str; 4] = ["addr", "source", "socks4", "usesrc"];

/// Replaces the variables in the addresses of a line. A word of which nothing is left stays as it is, for a message that names it.
pub(crate) fn expand(text: &str, words: &mut [Token], variable: &dyn Fn(&str) -> Option<String>) {
    if !words.iter().any(|word| word.text(text).contains('$')) {
        return;
    }
    for at in 1..words.len() {
        let before: Vec<&str> = words[..at].iter().map(|word| word.text(text)).collect();
        if !is_address(&before) {
            continue;
        }
        let replaced = replace(words[at].text(text), variable);
        if !replaced.is_empty() {
            words[at].set_text(replaced);
        }
    }
}

/// Whether what follows these words is an address.
fn is_address(before: &[&str]) -> bool {
    match before {
        ["bind" | "log" | "source" | "dispatch"] => true,
        ["server" | "peer" | "mailer" | "nameserver", _] | ["stats", "socket"] | ["server-template", _, _] => true,
        ["server" | "server-template", _, _, .., last] | ["default-server", .., last] => {
            BEFORE_ADDRESSES.contains(last)
        }
        ["source", .., last] => *last == "usesrc",
        _ => false,
    }
}

fn replace(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split('$');
    let mut replaced = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (braced, rest) = match part.strip_prefix('{') {
            Some(rest) => (true, rest),
            None => (false, part),
        };
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let (name, rest) = rest.split_at(length);
        replaced += &variable(name).unwrap_or_default();
        replaced += if braced { rest.strip_prefix('}').unwrap_or(rest) } else { rest };
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    fn variable(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("h".into()),
            "PORT" => Some("81".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn check(line: &str, expect: &str) {
        let mut words = words::split(line.as_bytes(), &variable).expect("a line of words");
        expand(line, &mut words, &variable);
        let shown: Vec<&str> = words.iter().map(|word| word.text(line)).collect();
        assert_eq!(shown.join(" "), expect, "{line}");
    }

    /// What `haproxy -c` says about each.
    #[test]
    fn the_grammar_of_addresses() {
        check("bind ${HOST}:$PORT", "bind h:81");
        check("bind a$-b a", "bind a-b a");
        check("bind a${-b}:80", "bind a-b}:80");
        check("bind a${}b$$PORTb$", "bind ab");
        check("bind a${PORT:80", "bind a81:80");
        check("bind a${PORT}}:80", "bind a81}:80");
        check("bind '$PORT b' \"\\$PORT\"", "bind 81 b $PORT");
        check("bind a${.LINE}", "bind a.LINE}");
        check("bind ${NONE}:${EMPTY}", "bind :");
        check("bind ${NONE}", "bind ${NONE}");
    }

    #[test]
    fn addresses_and_nothing_else() {
        check("bind :80 name ${HOST}", "bind :80 name ${HOST}");
        check("log ${HOST}:$PORT len 100 ${HOST}", "log h:81 len 100 ${HOST}");
        check("source ${HOST}:0 usesrc ${HOST} interface ${HOST}", "source h:0 usesrc h interface ${HOST}");
        check(
            "server ${HOST} ${HOST}:1 addr ${HOST} name $HOST source $HOST",
            "server ${HOST} h:1 addr h name $HOST source h",
        );
        check("server-template $HOST 3 $HOST:1 addr $HOST", "server-template $HOST 3 h:1 addr h");
        check("default-server addr $HOST id $PORT", "default-server addr h id $PORT");
        check("stats socket ${HOST} user ${HOST}", "stats socket h user ${HOST}");
        check("stats uri ${HOST}", "stats uri ${HOST}");
        check("acl a src ${HOST}", "acl a src ${HOST}");
        check("chroot ${HOST}", "chroot ${HOST}");
        check("timeout client ${PORT}", "timeout client ${PORT}");
    }
}
