//! `stats …` of the proxy sections: the statistics page (configuration manual, 4.2). As in HAProxy, what follows the arguments of a line
//! is ignored, and a section with a `stats` line of its own begins with none of its defaults.

use std::sync::Arc;
use std::time::Duration;

use baton_model::{Proxy, Ruleset, ShownText, StatsPage, StatsUser};

use super::rows::row;
use super::rule::{conditional, rule};
use super::{BACK, DEFAULTS, FRONT, Keyword, STRICT, Sections};
use crate::diagnostic::Severity;
use crate::lower::{Call, Context, Draft, late};
use crate::syntax::Line;

const ALL: Sections = DEFAULTS | FRONT | BACK;
const OWN: Sections = FRONT | BACK | STRICT;

/// The longest interval that HAProxy accepts, in seconds.
const REFRESH_MAX_S: u64 = i32::MAX as u64;

pub(crate) static KEYWORDS: &[Keyword] = &[
    row("stats admin", OWN, "if|unless CONDITION", admin, "When the statistics page may change servers."),
    row("stats auth", ALL, "USER:PASSWORD", auth, "A user of the statistics page."),
    row("stats enable", ALL, "", enable, "Statistics page."),
    row(
        "stats hide-version",
        ALL,
        "",
        |d, c| flag(d, c, |page| &mut page.hides_version),
        "Version not shown on the statistics page.",
    ),
    row(
        "stats http-request",
        OWN,
        "allow|deny|auth [realm REALM] [if|unless CONDITION]",
        http_request,
        "Rules for requests to the statistics page.",
    ),
    row("stats realm", ALL, "REALM", realm, "Realm of the statistics page's users."),
    row("stats refresh", ALL, "TIME", refresh, "Interval of updates of the statistics page (s)."),
    row("stats scope", ALL, "NAME|.", scope, "A proxy that the statistics page shows, '.' for its own."),
    row("stats show-desc", ALL, "[TEXT]", description, "Description on the statistics page."),
    row(
        "stats show-legends",
        ALL,
        "",
        |d, c| flag(d, c, |page| &mut page.shows_legends),
        "Ids, addresses and cookies on the statistics page.",
    ),
    row(
        "stats show-modules",
        ALL,
        "",
        |d, c| flag(d, c, |page| &mut page.shows_modules),
        "Counters of TLS on the statistics page.",
    ),
    row("stats show-node", ALL, "[NAME]", node, "Name of the node on the statistics page."),
    row("stats uri", ALL, "PREFIX", uri, "What targets of requests to the statistics page begin with."),
];

/// What HAProxy says of a line `stats` with another word, or without one.
pub(crate) fn unknown(word: &str) -> String {
    let expects = "expects 'admin', 'uri', 'realm', 'auth', 'scope', 'enable', 'hide-version', 'show-node', 'show-desc' or \
                   'show-legends'.";
    match word {
        "" => format!("missing keyword in 'stats', {expects}"),
        _ => format!("unknown stats parameter '{word}', {expects}"),
    }
}

/// The page of the section, which is there from its first line on.
fn page(draft: &mut Draft) -> &mut StatsPage {
    let is_own = std::mem::replace(&mut draft.has_own_stats, true);
    let stats = &mut draft.proxy.stats;
    if !is_own {
        *stats = None;
    }
    Arc::make_mut(stats.get_or_insert_default())
}

/// Says of further arguments that they are ignored, as HAProxy does silently.
fn ignore_beyond(call: &mut Call<'_, '_>, used: usize) {
    if call.args() > used {
        let message = format!("'{}' ignores '{}' and what follows it", call.name, call.arg(used));
        call.notice("no-effect", message);
    }
}

/// The first argument, without control characters: it comes to stand in a header field.
fn text<'l>(call: &mut Call<'l, '_>, what: &str) -> Option<&'l str> {
    let text = call.arg(0);
    if text.is_empty() {
        let keyword = call.name.trim_start_matches("stats ");
        call.error(call.first, "missing-argument", format!("'{keyword}' needs {what}."));
        return None;
    }
    if text.chars().any(char::is_control) {
        let message = format!("'{}' cannot have a control character.", call.name);
        call.wrong(0, message);
        return None;
    }
    ignore_beyond(call, 1);
    Some(text)
}

fn enable(draft: &mut Draft, call: &mut Call<'_, '_>) {
    page(draft);
    ignore_beyond(call, 0);
}

fn flag(draft: &mut Draft, call: &mut Call<'_, '_>, field: fn(&mut StatsPage) -> &mut bool) {
    *field(page(draft)) = true;
    ignore_beyond(call, 0);
}

fn uri(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(uri) = text(call, "an URI prefix") {
        page(draft).uri = uri.into();
    }
}

fn realm(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(realm) = text(call, "an realm name") {
        page(draft).realm = Some(realm.into());
    }
}

fn auth(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let Some(account) = text(call, "a user:password account") else { return };
    let (name, password) = account.split_once(':').unwrap_or((account, ""));
    let page = page(draft);
    if page.users.iter().any(|user| user.name == name) {
        return call.warn(call.first, "duplicate-name", format!("uri auth: ignoring duplicated user '{name}'."));
    }
    page.users.push(StatsUser { name: name.into(), password: password.into() });
}

fn scope(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(name) = text(call, "a proxy name") {
        page(draft).scopes.push(name.into());
    }
}

fn refresh(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let written = call.arg(0);
    match seconds(written) {
        Ok(seconds) => {
            page(draft).refresh = Some(Duration::from_secs(seconds)).filter(|interval| !interval.is_zero());
            ignore_beyond(call, 1);
        }
        Err(Some(odd)) => {
            call.wrong(0, format!("unexpected character '{odd}' in argument to stats refresh interval."));
        }
        Err(None) if written.is_empty() => call.expects(0, "an interval such as 5s"),
        Err(None) => {
            let message = format!(
                "timer overflow in argument <{written}> to stats refresh interval, maximum value is {REFRESH_MAX_S} s \
                 (~68 years)."
            );
            call.wrong(0, message);
        }
    }
}

/// A time in whole seconds, of which it is a number without a unit. `Err`: the character that does not belong there; `None`: it is too
/// long, or empty.
fn seconds(text: &str) -> Result<u64, Option<char>> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let scale = match unit {
        _ if digits.is_empty() => return Err(text.chars().next()),
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000_u64,
        _ => return Err(unit.chars().next()),
    };
    let us = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    us.map(|us| us / 1_000_000).filter(|seconds| *seconds <= REFRESH_MAX_S).ok_or(None)
}

fn node(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let name = call.arg(0);
    if !name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_')) {
        let message = "'stats show-node' invalid node name - should be a string with digits(0-9), letters(A-Z, a-z), \
                       hyphen(-) or underscode(_).";
        return call.wrong(0, message.into());
    }
    page(draft).node = Some(if name.is_empty() { ShownText::Global } else { ShownText::Own(name.into()) });
    ignore_beyond(call, 1);
}

fn description(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let text = call.rest().join(" ");
    page(draft).description = Some(if text.is_empty() { ShownText::Global } else { ShownText::Own(text) });
}

fn admin(draft: &mut Draft, call: &mut Call<'_, '_>) {
    page(draft);
    conditional(draft, call, Ruleset::StatsAdmin);
}

fn http_request(draft: &mut Draft, call: &mut Call<'_, '_>) {
    page(draft);
    rule(draft, call, Ruleset::StatsRequest);
}

/// What only the whole section can tell: users and rules are two ways to say who may see the page.
pub(crate) fn judge(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    let Some(page) = &proxy.stats else { return };
    if proxy.rules(Ruleset::StatsRequest).is_empty() || (page.users.is_empty() && page.realm.is_none()) {
        return;
    }
    let line = draft.lines.get("stats http-request").unwrap_or(&draft.head);
    let message =
        format!("proxy '{}': stats 'auth'/'realm' and 'http-request' can't be used at the same time.", proxy.name);
    context.report.add(late(line, Severity::Alert, "bad-combination", 0, message));
}

/// The page needs HTTP: in another mode there is none.
pub(crate) fn drop_page(proxy: &mut Proxy, draft: &Draft, context: &mut Context<'_>) {
    if proxy.stats.take().is_none() {
        return;
    }
    let lines = [&draft.lines, &*draft.inherited];
    let is_about = |keyword: &&str| KEYWORDS.iter().any(|row| row.name == *keyword);
    let own = lines.into_iter().find_map(|lines| lines.iter().find(|(keyword, _)| is_about(keyword)));
    let line: &Line = own.map_or(&draft.head, |(_, line)| line);
    let message = format!("'stats' statement ignored for proxy '{}' as it requires HTTP mode.", proxy.name);
    context.report.add(late(line, Severity::Warning, "needs-http", 0, message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_in_whole_seconds() {
        let check = |text: &str, expect| assert_eq!(seconds(text), expect, "{text}");
        check("5", Ok(5));
        check("5s", Ok(5));
        check("2m", Ok(120));
        check("30d", Ok(2_592_000));
        check("1999ms", Ok(1));
        check("999ms", Ok(0));
        check("x", Err(Some('x')));
        check("5x", Err(Some('x')));
        check("5sx", Err(Some('s')));
        check("", Err(None));
        check("100000000000", Err(None));
        check("99999999999999999999", Err(None));
    }
}
