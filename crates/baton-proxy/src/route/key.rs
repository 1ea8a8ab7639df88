//! The hash of what `balance` looks at.

use baton_http::{Method, RequestView};
use baton_model::{Algorithm, Proxy};

use crate::balance::keys;
use crate::client::Input;
use crate::exchange::Exchange;

/// The hash of what `balance` looks at in an HTTP request; `None` when it looks at nothing or it is not there.
pub fn of_request(proxy: &Proxy, exchange: &Exchange<'_>) -> Option<u32> {
    let (kind, messages) = (&proxy.balance.hash, &exchange.messages);
    let request = messages.request();
    match &proxy.balance.algorithm {
        Algorithm::Source => exchange.source().map(|source| keys::source(kind, source.ip())),
        Algorithm::Uri(what) => Some(keys::uri(kind, what, request.target())),
        Algorithm::UrlParam { name, .. } => {
            let query = request.query().unwrap_or_default();
            let is_there = is_in_body(proxy, request);
            let of_body = || is_there.then(|| keys::url_param(kind, name, messages.body_begun())).flatten();
            keys::url_param(kind, name, query).or_else(of_body)
        }
        Algorithm::Hdr { name, domain_only } => {
            let field = request.fields().find(name.as_bytes())?;
            keys::header(kind, *domain_only, field.value)
        }
        Algorithm::RoundRobin
        | Algorithm::StaticRr
        | Algorithm::LeastConn
        | Algorithm::First
        | Algorithm::Random { .. }
        | Algorithm::RdpCookie(_)
        | Algorithm::Hash(_) => None,
    }
}

/// Whether the body is looked at, and has to be there, before a server can be chosen (`balance url_param … check_post`).
pub fn is_in_body(proxy: &Proxy, request: RequestView<'_>) -> bool {
    matches!(proxy.balance.algorithm, Algorithm::UrlParam { check_post: Some(_), .. })
        && request.method() == Method::Post
}

/// The balancing key of a connection in `mode tcp`.
pub fn of_connection(proxy: &Proxy, exchange: &Exchange<'_, Input>) -> Option<u32> {
    match &proxy.balance.algorithm {
        Algorithm::Source => exchange.source().map(|source| keys::source(&proxy.balance.hash, source.ip())),
        _ => None,
    }
}
