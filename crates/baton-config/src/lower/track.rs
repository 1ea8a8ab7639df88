//! `track`: which server's state another server copies.

use std::collections::{BTreeSet, HashMap};

use baton_model::Role;
use baton_rules::suggestion;

use super::judge::late;
use super::{Context, Draft, ServerDraft};
use crate::diagnostic::Severity;

/// `track`: the tracked server exists, is checked itself, and the chain has an end.
pub(crate) fn tracking(drafts: &[Draft], context: &mut Context<'_>) {
    let mut servers = drafts.iter().flat_map(|draft| &draft.servers);
    if servers.all(|server| server.server.check.track.is_none()) {
        return;
    }
    let mut all: HashMap<ServerName<'_>, &ServerDraft> = HashMap::new();
    let backends: BTreeSet<&str> =
        drafts.iter().filter(|draft| draft.proxy.role != Role::Frontend).map(|draft| &*draft.proxy.name).collect();
    for draft in drafts {
        for server in &draft.servers {
            all.entry((&draft.proxy.name, &server.server.name)).or_insert(server);
        }
    }
    for draft in drafts {
        for server in &draft.servers {
            let own: ServerName<'_> = (&draft.proxy.name, &server.server.name);
            let Some(first) = tracked(own.0, server) else { continue };
            let Some(line) = &server.line else { continue };
            let mut hint = None;
            let fault = match all.contains_key(&first) {
                false if backends.contains(first.0) => {
                    let servers = all.keys().filter(|(backend, _)| *backend == first.0);
                    hint = suggestion(first.1, servers.map(|(_, server)| *server));
                    format!("unable to find required server '{}'", first.1)
                }
                false => {
                    hint = suggestion(first.0, backends.iter().copied());
                    format!("unable to find required proxy '{}'", first.0)
                }
                true => match chain_end(own, first, &all) {
                    // Of a circle, only the server that closes it is told.
                    ChainEnd::Circle(last) if last > line.number => continue,
                    ChainEnd::Circle(_) => {
                        format!("unable to use {}/{}, whose chain leads back to this server,", first.0, first.1)
                    }
                    ChainEnd::Unchecked(place) => {
                        format!(
                            "unable to use {}/{}, which does not have any check nor agent enabled,",
                            place.0, place.1
                        )
                    }
                    ChainEnd::Good => continue,
                },
            };
            let message = format!("'server {}/{}' : {fault} for tracking.", own.0, own.1);
            let word = line.texts().position(|word| word == "track").unwrap_or(0) + 1;
            let mut diagnostic = late(line, Severity::Alert, "bad-track", word, message);
            diagnostic.hint = hint;
            context.report.add(diagnostic);
        }
    }
}

/// A backend's and a server's name.
type ServerName<'a> = (&'a str, &'a str);

/// What a server tracks; without a backend's name it is one of its own backend.
fn tracked<'a>(backend: &'a str, server: &'a ServerDraft) -> Option<ServerName<'a>> {
    let track = server.server.check.track.as_deref()?;
    Some(track.split_once('/').unwrap_or((backend, track)))
}

/// How a chain of tracked servers ends.
enum ChainEnd<'a> {
    /// At a server that is checked, or that is missing, which is told elsewhere.
    Good,
    /// At a server that is not checked.
    Unchecked(ServerName<'a>),
    /// Nowhere; the last line of the servers in the circle.
    Circle(u32),
}

fn chain_end<'a>(
    own: ServerName<'a>,
    first: ServerName<'a>,
    all: &HashMap<ServerName<'a>, &'a ServerDraft>,
) -> ChainEnd<'a> {
    let mut at = first;
    let mut last = 0;
    for _ in 0..MAX_TRACK {
        let Some(server) = all.get(&at) else { return ChainEnd::Good };
        last = last.max(server.line.as_ref().map_or(0, |line| line.number));
        if at == own {
            return ChainEnd::Circle(last);
        }
        match tracked(at.0, server) {
            Some(next) => at = next,
            None if server.server.check.enabled || server.server.agent().is_some() => return ChainEnd::Good,
            None => return ChainEnd::Unchecked(at),
        }
    }
    ChainEnd::Circle(0)
}

/// Longest chain of tracked servers.
const MAX_TRACK: usize = 64;
