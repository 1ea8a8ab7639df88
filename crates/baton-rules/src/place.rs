//! Where a rule stands, and what is known there: a fetch that needs more cannot be used.

/// What a fetch needs, as a set. Empty: nothing, so that it is valid everywhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Needs(u8);

impl Needs {
    pub const NOTHING: Needs = Needs(0);
    /// The request's header, target or body, which are gone once the request was sent.
    pub const REQUEST_HEAD: Needs = Needs(1);
    /// What is kept of the request until its end: method, version.
    pub const REQUEST: Needs = Needs(2);
    /// The chosen backend.
    pub const BACKEND: Needs = Needs(4);
    /// The response's head.
    pub const RESPONSE: Needs = Needs(8);

    /// The words of what `place` lacks; `None` when it has all.
    pub fn missing_at(self, place: Place) -> Option<&'static str> {
        let lacking = self.0 & !place.has();
        [(1, "the request's head"), (2, "the request"), (4, "the backend"), (8, "the response's head")]
            .into_iter()
            .find(|(bit, _)| lacking & bit != 0)
            .map(|(_, words)| words)
    }
}

/// Where a rule stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// `tcp-request connection` and `session`: only addresses.
    Connection,
    /// Request rules of a `frontend`: `http-request`, `use_backend`, `tcp-request content` …
    FrontendRequest,
    /// Request rules of a `backend` or `listen` section, `use-server`, `balance`.
    BackendRequest,
    /// `http-response`, `http-after-response`, `tcp-response`.
    Response,
}

impl Place {
    const fn has(self) -> u8 {
        match self {
            Place::Connection => 0,
            Place::FrontendRequest => 1 | 2,
            Place::BackendRequest => 1 | 2 | 4,
            Place::Response => 2 | 4 | 8,
        }
    }

    /// How messages call it.
    pub fn words(self) -> &'static str {
        match self {
            Place::Connection => "a connection rule",
            Place::FrontendRequest => "a frontend's request rule",
            Place::BackendRequest => "a backend's request rule",
            Place::Response => "a response rule",
        }
    }
}
