//! What `iptables-save` prints, read: tables, chains, and the rules that jump to a chain.

/// The text of all tables.
pub(super) struct Saved<'a> {
    tables: Vec<Table<'a>>,
}

/// One of them.
pub(super) struct Table<'a> {
    pub name: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Saved<'a> {
    pub fn new(text: &'a str) -> Saved<'a> {
        let mut tables: Vec<Table<'a>> = Vec::new();
        for line in text.lines() {
            match (line.strip_prefix('*'), tables.last_mut()) {
                (Some(name), _) => tables.push(Table { name: name.trim(), lines: Vec::new() }),
                (None, Some(table)) => table.lines.push(line),
                (None, None) => {}
            }
        }
        Saved { tables }
    }

    pub fn tables(&self) -> &[Table<'a>] {
        &self.tables
    }
}

impl<'a> Table<'a> {
    /// Names of all chains, the built-in ones too.
    pub fn chains(&self) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(|line| line.strip_prefix(':')?.split(' ').next())
    }

    /// The rules of other chains that jump or go to this one, as they follow `-A`: `INPUT -p tcp -j CHAIN`.
    pub fn jumps_to(&self, chain: &str) -> Vec<&'a str> {
        let goes_there = |rule: &&&str| match words(rule)[..] {
            [from, .., "-j" | "-g", to] => to == chain && from != chain,
            _ => false,
        };
        // Counters stand before the rule with -c, which nobody asked for here.
        let rules: Vec<_> = self.lines.iter().filter_map(|line| line.strip_prefix("-A ")).collect();
        rules.iter().filter(goes_there).copied().collect()
    }
}

/// A rule's words; a comment in quotes is one.
fn words(rule: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = rule.trim();
    while !rest.is_empty() {
        let end = match rest.strip_prefix('"') {
            Some(quoted) => end_of_quotes(quoted) + 1,
            None => rest.find(' ').unwrap_or(rest.len()),
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

/// Behind the closing quotes; the end of the text if there are none.
fn end_of_quotes(quoted: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in quoted.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    quoted.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "# Generated\n*mangle\n:INPUT ACCEPT [1:2]\n:BATON-HOLD-1 - [0:0]\n\
        -A INPUT -j BATON-HOLD-1\n-A INPUT -m comment --comment \"say \\\" -j BATON-HOLD-1\" -j ACCEPT\n\
        -A INPUT -p tcp -m comment --comment \"a -j b\" -g BATON-HOLD-1\n-A BATON-HOLD-1 -j NFQUEUE --queue-num 4\nCOMMIT\n\
        *nat\n:INPUT ACCEPT [0:0]\nCOMMIT\n";

    #[test]
    fn finds_tables_chains_and_jumps() {
        let saved = Saved::new(SAVED);
        let names: Vec<_> = saved.tables().iter().map(|table| table.name).collect();
        assert_eq!(names, ["mangle", "nat"]);
        let mangle = &saved.tables()[0];
        assert_eq!(mangle.chains().collect::<Vec<_>>(), ["INPUT", "BATON-HOLD-1"]);
        let jumps = mangle.jumps_to("BATON-HOLD-1");
        assert_eq!(jumps, ["INPUT -j BATON-HOLD-1", "INPUT -p tcp -m comment --comment \"a -j b\" -g BATON-HOLD-1"]);
        assert!(saved.tables()[1].jumps_to("BATON-HOLD-1").is_empty());
    }

    #[test]
    fn a_comment_without_end_is_no_trouble() {
        assert_eq!(words("INPUT --comment \"open -j X"), ["INPUT", "--comment", "\"open -j X"]);
        assert_eq!(words(""), Vec::<&str>::new());
        assert_eq!(words("\"\\"), ["\"\\"]);
    }
}
