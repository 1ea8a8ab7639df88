//! The `option` family and what belongs to it (configuration manual, 4.2).

use std::sync::Arc;

use crate::HeaderCases;

/// HTTP behaviour of a proxy.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HttpOptions {
    /// `option http-keep-alive`, `http-server-close`, `httpclose`.
    pub connection: ConnectionMode,
    /// `option forwardfor`.
    pub forwarded_for: Option<ForwardedFor>,
    /// `unique-id-header`: the header that gets the request's unique ID.
    pub unique_id_header: Option<String>,
    /// `option originalto`.
    pub original_to: Option<ForwardedFor>,
    /// `http-send-name-header`: the header that gets the server's name.
    pub send_name_header: Option<String>,
    /// `option http-restrict-req-hdr-names`.
    pub restricted_names: RestrictedNames,
    /// `option http-buffer-request`.
    pub buffer_request: bool,
    /// `option http-pretend-keepalive`.
    pub pretend_keepalive: bool,
    /// `option http-ignore-probes`.
    pub ignore_probes: bool,
    /// `option accept-invalid-http-request`.
    pub accept_invalid_request: bool,
    /// `option accept-invalid-http-response`.
    pub accept_invalid_response: bool,
    /// `option disable-h2-upgrade`.
    pub disable_h2_upgrade: bool,
    /// `option h1-case-adjust-bogus-client`: the spelling of header names that clients get.
    pub client_cases: Option<Arc<HeaderCases>>,
    /// `option h1-case-adjust-bogus-server`: the spelling of header names that servers get.
    pub server_cases: Option<Arc<HeaderCases>>,
    /// `option checkcache`: a response that caches could keep, with a cookie in it, is blocked.
    pub check_cache: bool,
    /// `http-reuse`.
    pub reuse: Reuse,
    /// `monitor-uri`.
    pub monitor_uri: Option<String>,
    /// `errorfile`, `errorfiles`, `errorloc`, `errorloc302`, `errorloc303`, `http-error` by status code, ordered by code.
    pub error_pages: Vec<(u16, ErrorPage)>,
}

/// What happens to connections between two requests.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ConnectionMode {
    /// Both sides are kept alive.
    #[default]
    KeepAlive,
    /// The server's side is closed after each response.
    ServerClose,
    /// Both are closed.
    Close,
}

/// `option forwardfor` and `option originalto`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForwardedFor {
    /// `except ADDRESS[/MASK]`, as a network.
    pub except: Option<(std::net::IpAddr, u8)>,
    /// `header`.
    pub header: String,
    /// `if-none`.
    pub if_none: bool,
}

/// `option http-restrict-req-hdr-names`: what becomes of header fields whose names have other characters than letters, digits and `-`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RestrictedNames {
    /// They pass.
    #[default]
    Preserve,
    /// They are removed.
    Delete,
    /// The request is refused.
    Reject,
}

/// `http-reuse`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reuse {
    /// Each client session has its own server connection.
    Never,
    /// The first request of a session goes over a connection of its own or one that is known to work.
    #[default]
    Safe,
    /// The first request too, over connections that were reused before.
    Aggressive,
    /// Any request over any idle connection.
    Always,
}

/// The answer for an error status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ErrorPage {
    /// `errorfile`: the bytes of the file, sent as they are. Empty: the connection is closed without an answer.
    File(ErrorFile),
    /// `errorloc`/`errorloc302`.
    Found(String),
    /// `errorloc303`.
    SeeOther(String),
    /// `http-error` with content or headers of its own: the last rule of that set with this status.
    Rule,
}

/// An `http-errors` section: error files that proxies and rules take by its name.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HttpErrors {
    /// Its name.
    pub name: std::sync::Arc<str>,
    /// The content of its error files by status, ordered by status. They are valid responses, or empty.
    pub files: Vec<(u16, ErrorFile)>,
}

/// A file with a whole response.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ErrorFile {
    /// What it held.
    pub content: std::sync::Arc<[u8]>,
}

impl HttpErrors {
    /// The file for a status.
    pub fn file(&self, status: u16) -> Option<&ErrorFile> {
        self.files.iter().find(|(known, _)| *known == status).map(|(_, file)| file)
    }
}

/// Options of both modes, and of connections to servers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TcpOptions {
    /// `option clitcpka` or `tcpka`.
    pub client_keepalive: bool,
    /// `option srvtcpka` or `tcpka`.
    pub server_keepalive: bool,
    /// `option abortonclose`.
    pub abort_on_close: bool,
    /// `option nolinger`.
    pub no_linger: bool,
    /// `option allbackups`.
    pub all_backups: bool,
    /// `option prefer-last-server`.
    pub prefer_last_server: bool,
    /// `option persist`.
    pub persist: bool,
    /// `persist rdp-cookie`: the name of the cookie of RDP that names the server.
    pub rdp_cookie: Option<String>,
    /// `option redispatch`.
    pub redispatch: Redispatch,
    /// `option independent-streams`: what a side is sent does not show that it is alive.
    pub independent_streams: bool,
    /// `option splice-auto`.
    pub splice_auto: bool,
    /// `option splice-request`.
    pub splice_request: bool,
    /// `option splice-response`.
    pub splice_response: bool,
    /// `option socket-stats`: each listening socket is counted for itself too.
    pub socket_stats: bool,
}

/// `option redispatch [INTERVAL]`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Redispatch {
    /// A failed connection is tried again on the same server.
    #[default]
    Off,
    /// Every Nth retry goes to another server.
    Every(u32),
    /// The last retries: 1 is the last one (the default of the plain option), 2 the last but one.
    Last(u32),
}

/// `retry-on`: which failures may be tried again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RetryOn {
    /// `conn-failure` (the default).
    pub conn_failure: bool,
    /// `empty-response`.
    pub empty_response: bool,
    /// `junk-response`.
    pub junk_response: bool,
    /// `response-timeout`.
    pub response_timeout: bool,
    /// Status codes of responses that are thrown away and tried again.
    pub statuses: Vec<u16>,
}

impl Default for RetryOn {
    fn default() -> Self {
        RetryOn {
            conn_failure: true,
            empty_response: false,
            junk_response: false,
            response_timeout: false,
            statuses: Vec::new(),
        }
    }
}
