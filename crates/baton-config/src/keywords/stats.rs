//! `stats …` of the `global` section: the runtime API (configuration manual, 3.1). As in HAProxy 2.6 `unix-bind` is not about
//! these sockets.

use baton_model::{AccessLevel, SeverityOutput, StatsSocket};

use super::bind::{self, BindDraft};
use crate::lower::{Call, GlobalDraft};
use crate::values::Unit;

/// What only a `stats socket` line has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatsDraft {
    pub level: Option<AccessLevel>,
    pub severity: Option<SeverityOutput>,
    pub exposes_listeners: bool,
}

/// `stats socket`.
pub(super) fn socket(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let list = call.arg(0);
    if list.is_empty() {
        return call.expects(0, "an address or a path to a UNIX socket");
    }
    let mut addresses = Vec::new();
    for text in list.strip_suffix(',').unwrap_or(list).split(',') {
        match bind::expand(text, call) {
            Ok(more) => addresses.extend(more),
            Err(message) => return call.wrong(0, format!("'stats socket' : {message}")),
        }
    }
    let Some(line) = bind::parameters(call, &format!("'stats socket {list}' : ")) else { return };
    if line.tls.ssl {
        let message = format!("'stats socket {list}' : 'ssl' is not supported here yet");
        return call.error(call.first, "not-yet", message);
    }
    let options = &line.options;
    let unfit = [(options.accept_proxy, "accept-proxy"), (options.accept_netscaler.is_some(), "accept-netscaler-cip")];
    if let Some((_, word)) = unfit.iter().find(|(is_set, _)| *is_set) {
        let message = format!("'stats socket {list}' : '{word}' is not supported here");
        return call.error(call.first, "bad-value", message);
    }
    let sockets = &mut global.model.stats.sockets;
    for address in addresses {
        let bind = line.bind(address, call);
        sockets.push(StatsSocket {
            bind,
            level: line.stats.level.unwrap_or_default(),
            severity: line.stats.severity.unwrap_or_default(),
            exposes_listeners: line.stats.exposes_listeners,
        });
    }
}

/// `stats timeout`.
pub(super) fn timeout(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let Some(time) = call.time_at(call.first, "stats timeout", Unit::Ms) else { return };
    if time.is_zero() {
        return call.wrong(0, "'stats timeout' expects a positive value.".into());
    }
    global.model.stats.timeout = time;
}

/// `stats maxconn`.
pub(super) fn maxconn(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    match call.arg(0).parse::<u32>() {
        Ok(value) if value > 0 && i32::try_from(value).is_ok() => global.model.stats.maxconn = value,
        _ => call.wrong(0, "'stats maxconn' expects a positive value.".into()),
    }
}

/// `level`.
pub(super) fn level(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    const LEVELS: [(&str, AccessLevel); 3] =
        [("user", AccessLevel::User), ("operator", AccessLevel::Operator), ("admin", AccessLevel::Admin)];
    bind.stats.level = choose(call, at, &LEVELS);
    1
}

/// `severity-output`.
pub(super) fn severity(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    const WORDS: [(&str, SeverityOutput); 3] =
        [("none", SeverityOutput::None), ("number", SeverityOutput::Number), ("string", SeverityOutput::Word)];
    bind.stats.severity = choose(call, at, &WORDS);
    1
}

/// `expose-fd listeners`.
pub(super) fn expose_fd(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.stats.exposes_listeners = choose(call, at, &[("listeners", ())]).is_some();
    1
}

/// The word behind a parameter, out of a list. The complaint begins with what [`Call::about`] says already.
fn choose<T: Copy>(call: &mut Call<'_, '_>, at: usize, choices: &[(&str, T)]) -> Option<T> {
    let name = call.line.word(at).to_owned();
    call.choose(at + 1, &name, choices)
}

/// Says of a `bind` line that these words are for others; HAProxy ignores them there too.
pub(super) fn on_a_bind(line: &BindDraft, call: &mut Call<'_, '_>, about: &str) {
    let given = [
        ("level", line.stats.level.is_some()),
        ("severity-output", line.stats.severity.is_some()),
        ("expose-fd", line.stats.exposes_listeners),
    ];
    for (word, _) in given.iter().filter(|(_, given)| *given) {
        call.notice("no-effect", format!("{about}'{word}' has no effect: it belongs on a 'stats socket' line"));
    }
}
