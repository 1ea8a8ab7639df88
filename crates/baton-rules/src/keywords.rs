//! The tables as a list, for help texts and manuals.

use crate::action::sets;
use crate::args::{Arg, ArgKind};
use crate::sample::Type;
use crate::{action, converter, fetch};

/// A word of the rule language.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// `sample fetch`, `converter` or `action`.
    pub kind: &'static str,
    /// The word; the first one where there are several.
    pub name: &'static str,
    /// Other names of the same sample fetch.
    pub aliases: &'static [&'static str],
    /// What it gives or does, in a sentence.
    pub doc: &'static str,
    /// The type of its result; `None` for an action.
    pub gives: Option<Type>,
    args: &'static [Arg],
    sets: u8,
}

impl Keyword {
    /// Its arguments in parentheses, optional ones in brackets; empty when it takes none. Those of actions are not in the tables.
    pub fn arguments(&self) -> String {
        let one = |arg: &Arg| match arg.required {
            true => shape(arg.kind),
            false => format!("[{}]", shape(arg.kind)),
        };
        let list: Vec<String> = self.args.iter().map(one).collect();
        if list.is_empty() { String::new() } else { format!("({})", list.join(",")) }
    }

    /// The rule sets that an action may stand in.
    pub fn rule_sets(&self) -> impl Iterator<Item = &'static str> + use<> {
        const NAMES: [(u8, &str); 8] = [
            (sets::CONNECTION, "tcp-request connection"),
            (sets::SESSION, "tcp-request session"),
            (sets::CONTENT, "tcp-request content"),
            (sets::REQUEST, "http-request"),
            (sets::TCP_RESPONSE, "tcp-response content"),
            (sets::RESPONSE, "http-response"),
            (sets::AFTER, "http-after-response"),
            (sets::STATS, "stats http-request"),
        ];
        let sets = self.sets;
        NAMES.into_iter().filter(move |(bit, _)| sets & bit != 0).map(|(_, name)| name)
    }
}

/// What an argument looks like.
fn shape(kind: ArgKind) -> String {
    match kind {
        ArgKind::Int => "INTEGER".into(),
        ArgKind::Str => "STRING".into(),
        ArgKind::Ipv4 => "IPV4".into(),
        ArgKind::Ipv6 => "IPV6".into(),
        ArgKind::Mask4 => "IPV4-MASK".into(),
        ArgKind::Mask6 => "IPV6-MASK".into(),
        ArgKind::Variable => "VARIABLE".into(),
        ArgKind::IntOrVariable => "INTEGER|VARIABLE".into(),
        ArgKind::StrOrVariable => "STRING|VARIABLE".into(),
        ArgKind::Word(words) => words.join("|"),
        ArgKind::Users => "USERLIST".into(),
        ArgKind::Frontend => "FRONTEND".into(),
        ArgKind::Backend => "BACKEND".into(),
        ArgKind::Server => "[BACKEND/]SERVER".into(),
        ArgKind::Map => "MAP".into(),
        ArgKind::Table | ArgKind::OtherTable => "TABLE".into(),
        ArgKind::Sink => "stdout|stderr|RING".into(),
    }
}

/// All words that are supported.
pub fn keywords() -> impl Iterator<Item = Keyword> {
    let fetches = fetch::rows().map(|row| Keyword {
        kind: "sample fetch",
        name: row.names[0],
        aliases: &row.names[1..],
        doc: row.doc,
        gives: Some(row.gives),
        args: row.args,
        sets: 0,
    });
    let converters = converter::rows().map(|row| Keyword {
        kind: "converter",
        name: row.name,
        aliases: &[],
        doc: row.doc,
        gives: Some(row.gives),
        args: row.args,
        sets: 0,
    });
    let actions = action::rows().map(|row| Keyword {
        kind: "action",
        name: row.name,
        aliases: &[],
        doc: row.doc,
        gives: None,
        args: &[],
        sets: row.sets,
    });
    fetches.chain(converters).chain(actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, name: &str, arguments: &str, rule_sets: &[&str]) {
        let keyword = keywords().find(|keyword| (keyword.kind, keyword.name) == (kind, name)).expect(name);
        assert_eq!(
            (keyword.arguments().as_str(), keyword.rule_sets().collect::<Vec<_>>()),
            (arguments, rule_sets.to_vec())
        );
    }

    #[test]
    fn arguments_and_rule_sets_come_from_the_rows() {
        check("sample fetch", "src", "", &[]);
        check("sample fetch", "req.hdr", "([STRING],[INTEGER])", &[]);
        check("converter", "add", "(INTEGER|VARIABLE)", &[]);
        check("action", "set-path", "", &["http-request"]);
        check("action", "set-header", "", &["http-request", "http-response", "http-after-response"]);
    }
}
