//! Changes by the statistics page: a POST names a backend, some of its servers and an action, as HAProxy's page does, and is answered by a
//! redirection that says what came of it. Each server is changed by the command that an operator would give.
//!
//! A browser sends a user's password with every request, whichever page makes it. So a request that a page of another origin makes is
//! refused: browsers say where a POST comes from, and what is no browser has no other page open.

use std::borrow::Cow;

use baton_model::{AccessLevel, Author, StatsPage};
use baton_proxy::desk::{ServiceKind, ServiceRequest, ServiceResponse};
use tokio::sync::oneshot;

use super::statistics::{self, Wanted};
use crate::control::Control;
use crate::operators::answer::{CommandResponse, Severity};
use crate::operators::{Call, Commands, Given, Kind, Question, row};
use crate::printable;
use crate::runtime;

/// Servers that one request may name.
const SERVERS_MAX: usize = 1024;

/// What came of a request, in the words of HAProxy's redirection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    /// Everything was changed.
    Done,
    /// Nothing was asked for.
    Nothing,
    /// Some servers were changed.
    Partly,
    /// Something in it is unknown, or cannot be done.
    Invalid,
    /// `stats admin` does not apply.
    Denied,
    /// It is too large.
    TooLarge,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Done => "DONE",
            Outcome::Nothing => "NONE",
            Outcome::Partly => "PART",
            Outcome::Invalid => "ERRP",
            Outcome::Denied => "DENY",
            Outcome::TooLarge => "EXCD",
        }
    }
}

/// The response to a POST.
pub(super) async fn respond(control: &mut Control, page: &StatsPage, request: &ServiceRequest) -> ServiceResponse {
    if !is_same_origin(request) {
        let text = "This request was made by a page of another origin, and is refused.\n";
        return ServiceResponse::new(403, "text/plain", text);
    }
    let ServiceKind::Statistics { is_admin, user, .. } = &request.service else {
        return ServiceResponse::new(500, "text/plain", "");
    };
    let outcome = match (is_admin, request.is_whole) {
        (false, _) => Outcome::Denied,
        (true, false) => Outcome::TooLarge,
        (true, true) => change(control, page, request, user.as_deref()).await,
    };
    let words = Wanted::of(page, &request.target).kept();
    let location = format!("{};st={}{words}", page.uri, outcome.word());
    ServiceResponse::new(303, "text/plain", "").with("location", location)
}

async fn change(control: &mut Control, page: &StatsPage, request: &ServiceRequest, user: Option<&str>) -> Outcome {
    let form = Form::read(&request.body);
    if form.servers.is_empty() {
        return Outcome::Nothing;
    }
    if control.succession.successor().is_some() || form.servers.len() > SERVERS_MAX {
        return Outcome::Invalid;
    }
    let Some(backend) = backend(control, page, request, &form.backend) else { return Outcome::Invalid };
    let by = author(request, user);
    let mut changed = 0;
    for server in &form.servers {
        let Some(words) = command(&form.action, &format!("{backend}/{server}")) else { return Outcome::Invalid };
        changed += usize::from(give(control, words, by.clone()).await);
    }
    match changed {
        0 => Outcome::Invalid,
        all if all == form.servers.len() => Outcome::Done,
        _ => Outcome::Partly,
    }
}

/// The backend of that name, or of the number behind a `#`, if the page shows it.
fn backend(control: &Control, page: &StatsPage, request: &ServiceRequest, text: &str) -> Option<String> {
    let number = text.strip_prefix('#').and_then(|number| number.parse().ok());
    let names = statistics::names(page, &request.proxy);
    let mut backends = control.line.model().proxies.iter().filter(|proxy| proxy.role.is_backend() && !proxy.disabled);
    let found = backends.find(|proxy| *proxy.name == *text || number == Some(proxy.id))?;
    (names.is_empty() || names.iter().any(|name| **name == *found.name)).then(|| found.name.to_string())
}

/// The command for an action of HAProxy's page.
fn command(action: &str, server: &str) -> Option<Vec<String>> {
    let words: &[&str] = match action {
        "ready" => &["set", "server", server, "state", "ready"],
        "drain" => &["set", "server", server, "state", "drain"],
        "maint" => &["set", "server", server, "state", "maint"],
        "ehlth" => &["enable", "health", server],
        "dhlth" => &["disable", "health", server],
        "hrunn" => &["set", "server", server, "health", "up"],
        "hnolb" => &["set", "server", server, "health", "stopping"],
        "hdown" => &["set", "server", server, "health", "down"],
        "eagent" => &["enable", "agent", server],
        "dagent" => &["disable", "agent", server],
        "arunn" => &["set", "server", server, "agent", "up"],
        "adown" => &["set", "server", server, "agent", "down"],
        "shutdown" => &["shutdown", "sessions", "server", server],
        _ => return None,
    };
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

/// Gives a command as an operator would; whether it was done.
async fn give(control: &mut Control, words: Vec<String>, by: Author) -> bool {
    let Commands(rows) = runtime::commands();
    let Some((at, row)) = row::find(rows, &words).filter(|(_, row)| matches!(row.act, Kind::Asked)) else {
        return false;
    };
    let (reply, mut answer) = oneshot::channel();
    let call = Call {
        name_words: row.words.len(),
        words,
        payload: None,
        level: AccessLevel::Admin,
        by,
        is_experimental: false,
    };
    runtime::answer(control, Question { row: at, call, rest: None, reply, socket: None }).await;
    match answer.try_recv() {
        Ok(Given::Whole(CommandResponse::Message(Severity::Error, _))) | Err(_) => false,
        Ok(Given::Whole(_) | Given::Piece(..) | Given::Sessions(_) | Given::Later(..)) => true,
    }
}

/// Who asks, as overrides and the list of changes name it.
fn author(request: &ServiceRequest, user: Option<&str>) -> Author {
    let who = user.map(|user| format!(" as {}", printable::line(user))).unwrap_or_default();
    let from = request.client.map(|client| format!(" from {}", client.ip())).unwrap_or_default();
    Author { uid: None, pid: None, socket: format!("the statistics page of {}{who}{from}", request.proxy) }
}

/// Whether no page of another origin makes the request (`Sec-Fetch-Site`, and `Origin` or `Referer` of browsers without that).
fn is_same_origin(request: &ServiceRequest) -> bool {
    if let Some(site) = request.field("sec-fetch-site") {
        return matches!(site, b"same-origin" | b"none");
    }
    let Some(source) = request.field("origin").or_else(|| request.field("referer")) else { return true };
    let host = request.field("host").unwrap_or_default();
    authority(source).is_some_and(|authority| {
        let plain = |text: &[u8]| without_port(text).to_ascii_lowercase();
        plain(authority) == plain(host)
    })
}

/// Host and port of a URL; `None` of what is none, such as `null`.
fn authority(url: &[u8]) -> Option<&[u8]> {
    let begin = url.windows(3).position(|part| part == b"://")? + 3;
    let rest = &url[begin..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Without the port that goes without saying.
fn without_port(authority: &[u8]) -> &[u8] {
    [&b":80"[..], b":443"].iter().find_map(|port| authority.strip_suffix(*port)).unwrap_or(authority)
}

/// The fields of a form that matter here.
#[derive(Debug, Default, Eq, PartialEq)]
struct Form {
    servers: Vec<String>,
    action: String,
    backend: String,
}

impl Form {
    /// Reads `application/x-www-form-urlencoded`, whatever the type is said to be.
    fn read(body: &[u8]) -> Form {
        let mut form = Form::default();
        for pair in body.split(|byte| *byte == b'&') {
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let (name, value) = (&pair[..at], pair.get(at + 1..).unwrap_or_default());
            let value = decoded(value);
            match name {
                b"s" => form.servers.push(value),
                b"action" => form.action = value,
                b"b" => form.backend = value,
                _ => {}
            }
        }
        form
    }
}

/// A value without its escapes.
fn decoded(value: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match more.split_at_checked(2).and_then(|(digits, after)| Some((hex(digits)?, after))) {
                Some((byte, after)) => {
                    bytes.push(byte);
                    rest = after;
                }
                None => bytes.push(b'%'),
            },
            byte => bytes.push(*byte),
        }
    }
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    }
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use baton_model::Service;
    use baton_proxy::desk::ServiceKind;

    use super::*;

    #[test]
    fn a_form_names_servers_an_action_and_a_backend() {
        let check = |body: &str, servers: &[&str], action: &str, backend: &str| {
            let form = Form::read(body.as_bytes());
            let expect: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
            assert_eq!(form, Form { servers: expect, action: action.into(), backend: backend.into() }, "{body}");
        };
        check("s=s1&s=s2&action=ready&b=be", &["s1", "s2"], "ready", "be");
        check("b=%234&s=a%2Bb+c&action=drain&x=y", &["a+b c"], "drain", "#4");
        check("s=%zz%4&action&b=", &["%zz%4"], "", "");
        check("", &[], "", "");
        check("s=%ff", &["\u{fffd}"], "", "");
    }

    #[test]
    fn every_action_is_a_command() {
        let actions = "ready drain maint ehlth dhlth hrunn hnolb hdown eagent dagent arunn adown shutdown";
        for action in actions.split(' ') {
            assert!(command(action, "be/s1").is_some_and(|words| words.contains(&"be/s1".to_owned())), "{action}");
        }
        assert_eq!(command("enable; show info", "be/s1"), None);
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing() {
        let check = |fields: &[(&'static str, &str)], expect: bool| {
            let request = ServiceRequest {
                service: ServiceKind::Named(Service::PrometheusExporter),
                method: Default::default(),
                target: Vec::new(),
                fields: fields.iter().map(|(name, value)| (*name, value.as_bytes().to_vec())).collect(),
                body: Vec::new(),
                is_whole: true,
                proxy: Arc::from("be"),
                client: None,
            };
            assert_eq!(is_same_origin(&request), expect, "{fields:?}");
        };
        check(&[("host", "lb:8404")], true);
        check(&[("host", "lb:8404"), ("origin", "http://lb:8404")], true);
        check(&[("host", "LB"), ("origin", "https://lb:443")], true);
        check(&[("host", "lb:8404"), ("referer", "http://lb:8404/st")], true);
        check(&[("host", "lb:8404"), ("sec-fetch-site", "same-origin")], true);
        check(&[("host", "lb:8404"), ("sec-fetch-site", "none")], true);
        for origin in ["http://evil", "http://lb:8404.evil", "http://lb", "null", "", "http://evil/lb:8404"] {
            check(&[("host", "lb:8404"), ("origin", origin)], false);
        }
        check(&[("host", "lb:8404"), ("referer", "http://evil/?http://lb:8404/")], false);
        check(&[("host", "lb"), ("origin", "http://lb"), ("sec-fetch-site", "cross-site")], false);
        check(&[("host", "lb"), ("origin", "http://lb"), ("sec-fetch-site", "same-site")], false);
    }
}
