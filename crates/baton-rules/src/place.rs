//! Where a rule stands, and what is known there: a fetch that needs more cannot be used.

/// What a fetch needs, as a set. Empty: nothing, so that it is valid everywhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FetchNeeds(u8);

impl FetchNeeds {
    pub const NOTHING: FetchNeeds = FetchNeeds(0);
    /// The request's header, target or body, which are gone once the request was sent.
    pub const REQUEST_HEAD: FetchNeeds = FetchNeeds(1);
    /// What is kept of the request until its end: method, version.
    pub const REQUEST: FetchNeeds = FetchNeeds(2);
    /// The chosen backend.
    pub const BACKEND: FetchNeeds = FetchNeeds(4);
    /// The response's head.
    pub const RESPONSE: FetchNeeds = FetchNeeds(8);
    /// The chosen server, and the connection to it.
    pub const SERVER: FetchNeeds = FetchNeeds(16);
    /// What is kept of the response until its end.
    pub const RESPONSE_KEPT: FetchNeeds = FetchNeeds(32);
    /// The head of the message that a rule is about, request or response.
    pub const EITHER_HEAD: FetchNeeds = FetchNeeds(64);

    /// The words of what `place` lacks; `None` when it has all.
    pub fn missing_at(self, place: RulePosition) -> Option<&'static str> {
        let lacking = self.0 & !place.has();
        const WORDS: [(u8, &str); 7] = [
            (1, "the request's head"),
            (2, "the request"),
            (4, "the backend"),
            (8, "the response's head"),
            (16, "the server"),
            (32, "the response"),
            (64, "the head of a message"),
        ];
        WORDS.into_iter().find(|(bit, _)| lacking & bit != 0).map(|(_, words)| words)
    }
}

/// Where a rule stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RulePosition {
    /// `tcp-request connection` and `session`: only addresses.
    Connection,
    /// Request rules of a `frontend`: `http-request`, `use_backend`, `tcp-request content` …
    FrontendRequest,
    /// Request rules of a `backend` or `listen` section, `use-server`, `balance`.
    BackendRequest,
    /// `http-response`, `http-after-response`, `tcp-response`.
    Response,
    /// `http-error`: whatever was there when the error was found.
    ErrorPage,
    /// Log lines, written when all is over.
    Log,
    /// `set-var` of the `global` section: there is no connection, and nothing else of the file is known yet.
    Process,
    /// `set var` at run time: there is no connection.
    Command,
    /// Health checks, which have a server and what it sent, and no client.
    Check,
}

impl RulePosition {
    const fn has(self) -> u8 {
        match self {
            RulePosition::Connection | RulePosition::Process | RulePosition::Command => 0,
            RulePosition::FrontendRequest => 1 | 2 | 64,
            RulePosition::BackendRequest => 1 | 2 | 4 | 64,
            RulePosition::Response => 2 | 4 | 8 | 16 | 32 | 64,
            RulePosition::ErrorPage => 1 | 2 | 4 | 8 | 16 | 32 | 64,
            RulePosition::Log => 2 | 4 | 16 | 32,
            RulePosition::Check => 4 | 8 | 16 | 32,
        }
    }

    /// How messages call it.
    pub fn words(self) -> &'static str {
        match self {
            RulePosition::Connection => "a connection rule",
            RulePosition::FrontendRequest => "a frontend's request rule",
            RulePosition::BackendRequest => "a backend's request rule",
            RulePosition::Response => "a response rule",
            RulePosition::ErrorPage => "an error page",
            RulePosition::Log => "a log line",
            RulePosition::Process => "a setting of the process",
            RulePosition::Command => "a command",
            RulePosition::Check => "a health check",
        }
    }
}
