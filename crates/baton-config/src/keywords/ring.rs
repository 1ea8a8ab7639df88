//! `ring` sections: buffers of log lines (configuration manual, 3.9).

use std::net::SocketAddr;
use std::sync::Arc;

use baton_model::{Address, LogAddress, LogTarget, Ring, RingServer, SyslogFraming};
use baton_rules::{nearest, suggestion};

use crate::address::{self, Port, Text};
use crate::diagnostic::Severity;
use crate::lower::{Call, Context, LOG_FORMATS, Prefix, late};
use crate::syntax::{Line, Section};
use crate::values::Unit;

/// Keywords of a section.
const KEYWORDS: [&str; 7] = ["description", "format", "maxlen", "size", "server", "timeout connect", "timeout server"];

/// What `ring` sections and the targets of `log` lines say.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    sections: Vec<Ring>,
    /// `ring@NAME` in `log` lines: the name, the line and the word.
    pub named: Vec<(Arc<str>, Line, usize)>,
}

/// Reads a `ring` section.
pub(crate) fn section(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    let name = head.word(1);
    let complaint = match name {
        "" => Some("missing ring name.".to_owned()),
        name => match name.chars().find(|char| !is_name_character(*char)) {
            Some(char) => Some(format!("invalid ring name '{name}' (character '{char}' is not permitted).")),
            None => {
                let is_known = context.rings.sections.iter().any(|draft| &*draft.name == name);
                is_known.then(|| format!("sink named '{name}' already exists."))
            }
        },
    };
    if let Some(message) = complaint {
        context.report.add(head.diagnostic(Severity::Alert, "bad-name", 1, message));
    }
    context.limit_arguments(head, 1);
    let mut draft = Ring::new(name.into());
    for line in &section.lines {
        let word = line.word(0);
        match word {
            "timeout" => timeout(&mut draft, &mut Call::new(line, 2, Prefix::None, "timeout", context)),
            "server" => {
                let server = server(&draft, &mut Call::new(line, 1, Prefix::None, "server", context));
                draft.servers.extend(server);
            }
            _ => setting(&mut draft, word, &mut Call::new(line, 1, Prefix::None, "ring", context)),
        }
    }
    let (maxlen, size) = (draft.line_len, draft.size);
    if maxlen > size {
        let message = format!("ring '{name}' event max length '{maxlen}' exceeds size, forced to size '{size}'.");
        context.report.add(head.diagnostic(Severity::Warning, "out-of-range", 1, message));
        draft.line_len = size;
    }
    context.rings.sections.push(draft);
}

fn is_name_character(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-_.:".contains(char)
}

fn setting(draft: &mut Ring, word: &str, call: &mut Call<'_, '_>) {
    let value = call.arg(0);
    match word {
        "description" if value.is_empty() => call.wrong(0, "missing ring description text.".into()),
        "description" => draft.description = call.rest().join(" "),
        "format" if LOG_FORMATS.contains(&value) => draft.format = value.into(),
        "format" => call.not_one_of(0, format!("unknown format '{value}'."), LOG_FORMATS),
        "maxlen" => match value.parse() {
            Ok(0) | Err(_) => call.wrong(0, format!("invalid size '{value}' for new sink buffer.")),
            Ok(maxlen) => draft.line_len = maxlen,
        },
        "size" => match value.parse::<usize>() {
            Ok(size @ Ring::SIZE_MIN..=Ring::SIZE_MAX) => draft.size = size,
            Ok(size) => {
                let (least, most) = (Ring::SIZE_MIN, Ring::SIZE_MAX);
                call.wrong(0, format!("size '{size}' of ring '{}' must be between {least} and {most}.", draft.name));
            }
            Err(_) => call.wrong(0, format!("invalid size '{value}' for new sink buffer.")),
        },
        "backing-file" => {
            let message =
                "'backing-file' is not supported: a ring is kept in memory; to keep its lines, send them to a 'server'";
            call.error(0, "not-supported", message.into());
            return;
        }
        _ => {
            let guess =
                nearest(word, KEYWORDS).map(|name| format!("; did you mean '{name}' maybe ?")).unwrap_or_default();
            call.error(
                0,
                "unknown-keyword",
                format!("unknown statement '{word}'{}", if guess.is_empty() { "." } else { &guess }),
            );
            return;
        }
    }
    if word != "description" {
        call.at_most(1);
    }
}

fn timeout(ring: &mut Ring, call: &mut Call<'_, '_>) {
    let which = call.line.word(1);
    let name = match which {
        "connect" => "timeout connect",
        "server" => "timeout server",
        _ => {
            let message = format!("'timeout' of a ring is 'connect' or 'server' (got '{which}')");
            return call.error_with(1, "bad-value", message, suggestion(which, ["connect", "server"]));
        }
    };
    if call.arg(0).is_empty() {
        return call.error(2, "missing-argument", format!("'{name}' expects <time> as argument."));
    }
    let Some(time) = call.time_at(2, name, Unit::Ms) else { return };
    let time = Some(time).filter(|time| !time.is_zero());
    match which {
        "connect" => ring.connect_timeout = time,
        _ => ring.server_timeout = time,
    }
}

fn server(ring: &Ring, call: &mut Call<'_, '_>) -> Option<RingServer> {
    let (name, place) = (call.arg(0), call.arg(1));
    if place.is_empty() {
        call.wrong(call.args(), "'server' expects <name> and <addr>[:<port>] as arguments.".into());
        return None;
    }
    let about = format!("'server {}/{name}' : ", ring.name);
    if ring.servers.iter().any(|server| &*server.name == name) {
        call.wrong(0, format!("{about}the ring has a server of this name already."));
        return None;
    }
    let address = match address(call, place) {
        Ok(address) => address,
        Err(message) => {
            call.wrong(1, format!("{about}{message}"));
            return None;
        }
    };
    let mut framing = SyslogFraming::Legacy;
    let mut at = 2;
    while !call.arg(at).is_empty() {
        match (call.arg(at), call.arg(at + 1)) {
            ("log-proto", "legacy") => framing = SyslogFraming::Legacy,
            ("log-proto", "octet-count") => framing = SyslogFraming::OctetCount,
            ("log-proto", other) => {
                let message = format!("{about}'log-proto' expects one of 'legacy' or 'octet-count' but got '{other}'.");
                call.not_one_of(at + 1, message, ["legacy", "octet-count"]);
                return None;
            }
            (word, _) => {
                let message = format!("{about}'{word}' is not supported for a server of a ring: only 'log-proto' is");
                call.error(call.first + at, "not-yet", message);
                return None;
            }
        }
        at += 2;
    }
    Some(RingServer { name: name.into(), address, framing })
}

fn address(call: &mut Call<'_, '_>, text: &str) -> Result<Address, String> {
    match address::parse(text)? {
        Text::Unix(path) => Ok(Address::Unix(path)),
        Text::Abstract(_) => Err(format!("an abstract socket is not acceptable here in '{text}'")),
        Text::Fd(_) => Err(format!("a descriptor is not acceptable here in '{text}'")),
        Text::Inet { host, family, port } => {
            let Port::One(port @ 1..) = port else { return Err(format!("missing port number in '{text}'")) };
            let ip = address::literal(&host, family).or_else(|| call.context.resolve(&host, family));
            let ip = ip.ok_or_else(|| format!("invalid address: '{host}' in '{text}'"))?;
            Ok(Address::Inet(SocketAddr::new(ip, port)))
        }
    }
}

/// The rings for the model.
pub(crate) fn finish(rings: &mut Rings) -> Vec<Arc<Ring>> {
    std::mem::take(&mut rings.sections).into_iter().map(Arc::new).collect()
}

/// A log target as its ring wants it: lines that have no format of their own have the ring's, and are no longer than the ring's.
pub(crate) fn settle(target: &mut LogTarget, rings: &Rings) {
    let LogAddress::Ring(name) = &target.address else { return };
    let draft = rings.sections.iter().find(|draft| draft.name == *name);
    if target.format.is_empty() {
        let unknown = if &**name == Ring::BUILT_IN { Ring::BUILT_IN_FORMAT } else { "raw" };
        target.format = draft.map_or(unknown, |draft| &draft.format).into();
    }
    // The end of a line is not kept.
    target.len = target.len.min(draft.map_or(usize::MAX, |draft| draft.line_len + 1));
}

impl Rings {
    /// The names of the sections.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().map(|ring| &*ring.name)
    }
}

/// Names in `log` lines are those of sections.
pub(crate) fn check_names(context: &mut Context<'_>) {
    for (name, line, word) in std::mem::take(&mut context.rings.named) {
        let sections = &context.rings.sections;
        if &*name == Ring::BUILT_IN || sections.iter().any(|draft| draft.name == name) {
            continue;
        }
        let message =
            format!("there is no section 'ring {name}': lines are kept in memory alone, for 'show events {name}'");
        let mut diagnostic = late(&line, Severity::Warning, "unknown-ring", word, message);
        diagnostic.hint = suggestion(&name, sections.iter().map(|draft| &*draft.name));
        context.report.add(diagnostic);
    }
}
