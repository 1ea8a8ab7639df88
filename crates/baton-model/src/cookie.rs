//! Persistence by cookie (configuration manual, 4.2 `cookie`).

use std::time::Duration;

/// A backend's `cookie` line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// `insert`, `rewrite` or `prefix`.
    pub mode: CookieMode,
    /// `indirect`: the server never sees it; not sent again to a client that has a valid one.
    pub indirect: bool,
    /// `nocache`: responses that set it get `Cache-Control: private`.
    pub nocache: bool,
    /// `postonly`: set only in answers to POST.
    pub postonly: bool,
    /// `preserve`: a cookie set by the server is left as it is.
    pub preserve: bool,
    /// `httponly`.
    pub httponly: bool,
    /// `secure`.
    pub secure: bool,
    /// `domain`, each with its leading dot as written.
    pub domains: Vec<String>,
    /// `maxidle`.
    pub max_idle: Option<Duration>,
    /// `maxlife`.
    pub max_life: Option<Duration>,
    /// `dynamic` with `dynamic-cookie-key`: values are computed from server address and key.
    pub dynamic_key: Option<String>,
    /// `attr`: added as they are.
    pub attributes: Vec<String>,
}

/// What is done with the cookie.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CookieMode {
    /// Neither word: only read.
    #[default]
    Passive,
    /// `insert`.
    Insert,
    /// `rewrite`.
    Rewrite,
    /// `prefix`.
    Prefix,
}
