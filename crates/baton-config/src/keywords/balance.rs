//! `balance`, `hash-type`, `hash-balance-factor` (configuration manual, 4.2).

use baton_model::{Algorithm, Avalanche, HashFunction, Mode, UriHash};

use super::direct;
use crate::lower::{Call, Draft};

pub(crate) fn hash_type(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let hash = &mut draft.proxy.balance.hash;
    hash.consistent = match call.arg(0) {
        "consistent" => true,
        "map-based" => false,
        _ => {
            let message = "'hash-type' only supports 'consistent' and 'map-based'.";
            return call.not_one_of(0, message.into(), ["consistent", "map-based"]);
        }
    };
    // Left out, the default function is mixed by a consistent hash and not by the map.
    hash.avalanche = if call.arg(1).is_empty() { Avalanche::Default } else { Avalanche::Off };
    hash.function = match call.arg(1) {
        "" | "sdbm" => HashFunction::Sdbm,
        "djb2" => HashFunction::Djb2,
        "wt6" => {
            let message = "the 'wt6' function has no public description: another function replaces it, which chooses \
                           other servers than HAProxy. Use 'sdbm', 'djb2' or 'crc32' for the same choice";
            call.warn(call.first + 1, "not-the-same", message.into());
            HashFunction::Wt6
        }
        "crc32" => HashFunction::Crc32,
        "none" => HashFunction::None,
        _ => {
            let message = "'hash-type' only supports 'sdbm', 'djb2', 'crc32', or 'wt6' hash functions.";
            return call.not_one_of(1, message.into(), ["sdbm", "djb2", "crc32", "wt6", "none"]);
        }
    };
    match call.arg(2) {
        "" => {}
        "avalanche" => hash.avalanche = Avalanche::Full,
        _ => {
            let message = "'hash-type' only supports 'avalanche' as a modifier for hash functions.";
            return call.not_one_of(2, message.into(), ["avalanche"]);
        }
    }
    call.at_most(3);
}

pub(crate) fn hash_balance_factor(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        if value != 0 && value <= 100 {
            return call.wrong(0, "'hash-balance-factor' must be 0 or greater than 100.".into());
        }
        draft.proxy.balance.factor = value as u32;
    }
}

pub(crate) fn balance(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if direct::balance(draft, call) {
        return;
    }
    let algorithm = match called(call.arg(0)) {
        ("" | "roundrobin", None) => Algorithm::RoundRobin,
        ("static-rr", None) => Algorithm::StaticRr,
        ("first", None) => Algorithm::First,
        ("leastconn", None) => Algorithm::LeastConn,
        ("source", None) => Algorithm::Source,
        ("random", None) => Algorithm::Random { draws: 2 },
        ("random", Some(draws)) => match draws.parse::<u32>() {
            Ok(0) => return call.wrong(0, "balance random : number of draws must be at least 1.".into()),
            Ok(draws) => Algorithm::Random { draws },
            Err(_) => return call.wrong(0, format!("balance random : invalid number of draws '{draws}'.")),
        },
        ("uri", None) => match balance_uri(call) {
            Some(hash) => Algorithm::Uri(hash),
            None => return,
        },
        ("url_param", None) => match balance_url_param(call) {
            Some(algorithm) => algorithm,
            None => return,
        },
        ("hdr", Some("")) => return call.wrong(0, "balance hdr requires an http header field name.".into()),
        ("hdr", Some(name)) => {
            let domain_only = match call.arg(1) {
                "" => false,
                "use_domain_only" => true,
                odd => {
                    let message = format!("balance hdr({name}) only accepts 'use_domain_only' modifier (got '{odd}').");
                    return call.not_one_of(1, message, ["use_domain_only"]);
                }
            };
            Algorithm::Hdr { name: name.into(), domain_only }
        }
        ("hash", None) if !call.arg(1).is_empty() => Algorithm::Hash(call.arg(1).into()),
        _ if call.arg(0).starts_with("rdp-cookie") => match rdp_cookie(call.arg(0), "mstshash") {
            Some(name) => Algorithm::RdpCookie(name),
            None => return call.wrong(0, "balance rdp-cookie : missing cookie name.".into()),
        },
        _ => {
            let message = "balance only supports 'roundrobin', 'static-rr', 'leastconn', 'first', 'random', 'source', \
                           'uri', 'url_param', 'hdr(name)', 'hash' and 'rdp-cookie(name)' options.";
            let hint = direct::balance_hint(called(call.arg(0)).0, draft.proxy.mode == Mode::Direct);
            return call.error_with(call.first, "bad-value", message.into(), hint);
        }
    };
    draft.proxy.balance.algorithm = algorithm;
}

/// `persist rdp-cookie[(NAME)]`.
pub(super) fn persist(draft: &mut Draft, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "" => call.error(call.first, "missing-argument", "missing persist method.".into()),
        method if method.starts_with("rdp-cookie") => match rdp_cookie(method, "msts") {
            Some(name) => draft.proxy.tcp.rdp_cookie = Some(name),
            None => call.wrong(0, "persist rdp-cookie(name)' requires an rdp cookie name.".into()),
        },
        _ => call.not_one_of(0, "unknown persist method.".into(), ["rdp-cookie"]),
    }
}

/// The name of the cookie in `rdp-cookie` or `rdp-cookie(NAME)`: letters, as every name has, so that it is no other argument of an expression.
fn rdp_cookie(text: &str, usual: &str) -> Option<String> {
    let rest = text.strip_prefix("rdp-cookie")?;
    if rest.is_empty() {
        return Some(usual.into());
    }
    let name = rest.strip_prefix('(')?.strip_suffix(')')?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    (is_plain && !name.is_empty()).then(|| name.into())
}

fn balance_uri(call: &mut Call<'_, '_>) -> Option<UriHash> {
    let mut hash = UriHash::default();
    let mut index = 1;
    while index < call.args() {
        match call.arg(index) {
            word @ ("len" | "depth") => {
                let Some(value) = call.arg(index + 1).parse::<u32>().ok().filter(|value| *value > 0) else {
                    let message =
                        format!("balance uri : '{word}' expects a positive integer (got '{}').", call.arg(index + 1));
                    call.wrong(index + 1, message);
                    return None;
                };
                *(if word == "len" { &mut hash.len } else { &mut hash.depth }) = value;
                index += 2;
            }
            "whole" => {
                hash.whole = true;
                index += 1;
            }
            "path-only" => {
                hash.path_only = true;
                index += 1;
            }
            odd => {
                let message = format!(
                    "balance uri only accepts parameters 'len', 'depth', 'path-only', and 'whole' (got '{odd}')."
                );
                call.not_one_of(index, message, ["len", "depth", "path-only", "whole"]);
                return None;
            }
        }
    }
    Some(hash)
}

fn balance_url_param(call: &mut Call<'_, '_>) -> Option<Algorithm> {
    let name = call.arg(1);
    if name.is_empty() {
        call.wrong(1, "balance url_param requires an URL parameter name.".into());
        return None;
    }
    let check_post = match call.arg(2) {
        "" => None,
        "check_post" => Some(call.arg(3).parse().unwrap_or(48)),
        odd => {
            let message = format!("balance url_param only accepts 'check_post' modifier (got '{odd}').");
            call.not_one_of(2, message, ["check_post"]);
            return None;
        }
    };
    Some(Algorithm::UrlParam { name: name.into(), check_post })
}

/// The algorithms that modes other than `direct` have.
pub(crate) const ALGORITHMS: [&str; 11] = [
    "roundrobin",
    "static-rr",
    "leastconn",
    "first",
    "random",
    "source",
    "uri",
    "url_param",
    "hdr",
    "hash",
    "rdp-cookie",
];

/// `NAME(ARGUMENT)` or `NAME`: the name and the argument.
fn called(text: &str) -> (&str, Option<&str>) {
    match text.split_once('(') {
        Some((name, argument)) => (name, Some(argument.strip_suffix(')').unwrap_or(argument))),
        None => (text, None),
    }
}
