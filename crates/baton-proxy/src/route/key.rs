//! The hash of what `balance` looks at.

use baton_http::Method;
use baton_model::{Algorithm, Proxy};

use crate::balance::keys;
use crate::connection::Connection;
use crate::parse;
use crate::work::Work;

/// The hash of what `balance` looks at in an HTTP request; `None` when it looks at nothing or it is not there.
pub fn of_request(proxy: &Proxy, connection: &Connection, work: &Work) -> Option<u32> {
    let kind = &proxy.balance.hash;
    let buf = work.input.pinned();
    let head = &work.request;
    match &proxy.balance.algorithm {
        Algorithm::Source => connection.addresses.source.map(|source| keys::source(kind, source.ip())),
        Algorithm::Uri(what) => Some(keys::uri(kind, what, head.target(buf))),
        Algorithm::UrlParam { name, .. } => {
            let query = head.query(buf).unwrap_or_default();
            let is_there = is_in_body(proxy, work);
            let of_body = || is_there.then(|| keys::url_param(kind, name, parse::body_begun(work))).flatten();
            keys::url_param(kind, name, query).or_else(of_body)
        }
        Algorithm::Hdr { name, domain_only } => {
            let field = head.headers.find(buf, name.as_bytes())?;
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
pub fn is_in_body(proxy: &Proxy, work: &Work) -> bool {
    matches!(proxy.balance.algorithm, Algorithm::UrlParam { check_post: Some(_), .. })
        && work.request.method == Method::Post
}

/// The balancing key of a connection in `mode tcp`.
pub fn of_connection(proxy: &Proxy, connection: &Connection) -> Option<u32> {
    match &proxy.balance.algorithm {
        Algorithm::Source => connection.addresses.source.map(|source| keys::source(&proxy.balance.hash, source.ip())),
        _ => None,
    }
}
