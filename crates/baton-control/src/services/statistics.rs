//! The statistics page: what a request to it asks for by the words behind its URI, as HAProxy has them (`;csv`, `;json`, `;up`,
//! `;norefresh` …) and a few of Baton's own: the page's script and style, and the stream of events that keeps it live.

use std::sync::Arc;

use baton_model::{ShownText, StatsPage};
use baton_proxy::desk::{Cursor, Piece, ServiceRequest, ServiceResponse};

use super::LIVE_MAX;
use super::events::Events;
use crate::control::Control;
use crate::runtime::field::{Form, Format};
use crate::runtime::schema;
use crate::runtime::stat::{StatFilter, StatTable};

/// The longest part of a name that `;scope=` may ask for, as in HAProxy.
const SCOPE_BYTES_MAX: usize = 20;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Nothing is loaded but what comes from here, nothing is inline, and nobody may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Who looks at which page.
pub(super) struct Viewer<'a> {
    /// The page.
    pub page: &'a Arc<StatsPage>,
    /// Whether they may change servers.
    pub is_admin: bool,
}

/// What a request asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Wanted {
    /// Which resource.
    what: Resource,
    /// `;up`: servers that are not up are left out.
    pub is_up: bool,
    /// `;no-maint`: servers in maintenance are left out.
    pub no_maintenance: bool,
    /// `;norefresh`.
    no_refresh: bool,
    /// `;scope=`: a part of the names of proxies.
    pub scope: String,
    /// `;st=`: what came of a change.
    outcome: String,
}

/// The resources below the URI.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Resource {
    /// The page itself.
    #[default]
    Page,
    /// `;csv`.
    Csv,
    /// `;json`.
    Json,
    /// `;json-schema`.
    Schema,
    /// `;events`: the stream of events.
    Events,
    /// `;page.css`.
    Style,
    /// `;page.js`.
    Script,
}

impl Wanted {
    /// Reads the words behind the URI of the page.
    pub(super) fn of(page: &StatsPage, target: &[u8]) -> Wanted {
        let words = String::from_utf8_lossy(target.get(page.uri.len()..).unwrap_or_default());
        let mut wanted = Wanted::default();
        for word in words.split(';').skip(1) {
            // As in HAProxy, what follows a word is no matter.
            let begins = |with: &str| word.starts_with(with);
            match () {
                () if begins("csv") => wanted.what = Resource::Csv,
                () if begins("json-schema") => wanted.what = Resource::Schema,
                () if begins("json") => wanted.what = Resource::Json,
                () if begins("events") => wanted.what = Resource::Events,
                () if begins("page.css") => wanted.what = Resource::Style,
                () if begins("page.js") => wanted.what = Resource::Script,
                () if begins("up") => wanted.is_up = true,
                () if begins("no-maint") => wanted.no_maintenance = true,
                () if begins("norefresh") => wanted.no_refresh = true,
                () => match word.split_once('=') {
                    Some(("scope", part)) => {
                        let fits = |char: &char| char.is_ascii_alphanumeric() || "-_.:".contains(*char);
                        wanted.scope = part.chars().take_while(fits).take(SCOPE_BYTES_MAX).collect();
                    }
                    Some(("st", outcome)) => {
                        wanted.outcome = outcome.chars().take_while(char::is_ascii_uppercase).take(4).collect();
                    }
                    Some(_) | None => {}
                },
            }
        }
        wanted
    }

    /// The words that a change keeps: HAProxy drops all but these.
    pub(super) fn kept(&self) -> String {
        let mut words = String::new();
        if self.is_up {
            words.push_str(";up");
        }
        if self.no_maintenance {
            words.push_str(";no-maint");
        }
        if !self.scope.is_empty() {
            words.push_str(&format!(";scope={}", self.scope));
        }
        words
    }
}

/// The proxies that a page shows: its scope, of which `.` is the section that it stands in.
pub(super) fn names(page: &StatsPage, proxy: &str) -> Vec<String> {
    page.scopes.iter().map(|name| if name == "." { proxy.to_owned() } else { name.clone() }).collect()
}

/// The response to GET and HEAD.
pub(super) fn respond(
    control: &Control,
    live: &Arc<()>,
    viewer: &Viewer<'_>,
    request: &ServiceRequest,
) -> ServiceResponse {
    let page = viewer.page;
    let wanted = Wanted::of(page, &request.target);
    let filter = StatFilter::of_page(names(page, &request.proxy), wanted.scope.clone(), page.shows_legends)
        .only(wanted.is_up, wanted.no_maintenance);
    match wanted.what {
        Resource::Csv => table(control, page, &wanted, filter, (Form::Plain, "text/plain")),
        Resource::Json => table(control, page, &wanted, filter, (Form::Json, "application/json")),
        Resource::Schema => asset("application/json", &schema::text()),
        Resource::Style => asset("text/css; charset=utf-8", STYLE),
        Resource::Script => asset("text/javascript; charset=utf-8", SCRIPT),
        Resource::Page => protected(ServiceResponse::new(200, "text/html; charset=utf-8", html(viewer, &wanted))),
        Resource::Events if Arc::strong_count(live) > LIVE_MAX => {
            let text = "Too many pages are live: try again later.\n";
            asset("text/plain", text).with("retry-after", "10").status(503)
        }
        Resource::Events => {
            let events = Events::new(control, viewer, request.proxy.clone(), filter, live.clone());
            asset("text/event-stream", "").in_pieces(Box::new(events))
        }
    }
}

/// The next piece of a table.
pub(super) fn go_on(control: &Control, mut table: Box<StatTable>) -> Piece {
    let mut out = String::new();
    let has_more = table.piece(control, &mut out);
    Piece { bytes: out.into_bytes(), next: has_more.then(|| Cursor(table)) }
}

fn table(
    control: &Control,
    page: &StatsPage,
    wanted: &Wanted,
    filter: StatFilter,
    (form, content_type): (Form, &str),
) -> ServiceResponse {
    let response = ServiceResponse::new(200, content_type, "");
    let response = match page.refresh.filter(|_| !wanted.no_refresh) {
        Some(interval) => response.with("refresh", interval.as_secs().to_string()),
        None => response,
    };
    let format = Format { form, ..Format::default() };
    response.in_pieces(Box::new(StatTable::new(control, filter, format)))
}

fn asset(content_type: &str, text: &str) -> ServiceResponse {
    ServiceResponse::new(200, content_type, text).with("x-content-type-options", "nosniff")
}

fn protected(response: ServiceResponse) -> ServiceResponse {
    response
        .with("content-security-policy", POLICY)
        .with("x-content-type-options", "nosniff")
        .with("x-frame-options", "DENY")
        .with("referrer-policy", "same-origin")
        .with("cross-origin-resource-policy", "same-origin")
}

/// The page: a frame, which its script fills.
fn html(viewer: &Viewer<'_>, wanted: &Wanted) -> String {
    let base = escaped(&viewer.page.uri);
    let flag = |is: bool| if is { "yes" } else { "no" };
    PAGE.replace("{base}", &base)
        .replace("{words}", &escaped(&wanted.kept()))
        .replace("{admin}", flag(viewer.is_admin))
        .replace("{outcome}", &escaped(&wanted.outcome))
}

/// A text that may stand in an attribute or between tags.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // It would be taken for a placeholder of the page.
            '{' => out.push_str("&#123;"),
            char => out.push(char),
        }
    }
    out
}

/// A text that a page shows if it is asked to.
pub(super) fn shown<'a>(asked: Option<&'a ShownText>, global: Option<&'a str>) -> Option<&'a str> {
    match asked? {
        ShownText::Global => global,
        ShownText::Own(text) => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(uri: &str, target: &str) -> Wanted {
        Wanted::of(&StatsPage { uri: uri.into(), ..StatsPage::default() }, target.as_bytes())
    }

    #[test]
    fn words_behind_the_uri_say_what_is_asked_for() {
        let check = |target: &str, what: Resource| assert_eq!(wanted("/st?x", target).what, what, "{target}");
        check("/st?x", Resource::Page);
        check("/st?x;csv", Resource::Csv);
        check("/st?x;norefresh;csv;up", Resource::Csv);
        check("/st?xyz;json", Resource::Json);
        check("/st?x;json-schema", Resource::Schema);
        check("/st?xcsv", Resource::Page);
        check("/st?x;events", Resource::Events);
        check("/st?x;page.js", Resource::Script);
        let all = wanted("/", "/;up;no-maint;norefresh;scope=web<b>;st=DONE\"x");
        assert_eq!((all.is_up, all.no_maintenance, all.no_refresh), (true, true, true));
        assert_eq!((&*all.scope, &*all.outcome), ("web", "DONE"));
        assert_eq!(all.kept(), ";up;no-maint;scope=web");
        assert_eq!(wanted("/", "/;st=<script>").outcome, "");
        assert_eq!(wanted("/", "/;scope=abcdefghijklmnopqrstuvwxyz").scope.len(), SCOPE_BYTES_MAX);
    }

    #[test]
    fn what_the_configuration_says_is_text_on_the_page() {
        let page = Arc::new(StatsPage { uri: "/\"><script>'{admin}".into(), ..StatsPage::default() });
        let viewer = Viewer { page: &page, is_admin: true };
        let html = html(&viewer, &Wanted { outcome: "<b>".into(), ..Wanted::default() });
        assert!(html.contains("/&quot;&gt;&lt;script&gt;&#39;&#123;admin}") && html.contains("&lt;b&gt;"), "{html}");
        assert!(!html.contains("<script>'") && !html.contains("<b>"), "{html}");
        assert!(!html.contains("{base}") && !html.contains("{words}"), "{html}");
    }
}
