//! Fetches from an HTTP request (configuration manual 7.3.6). Facts about HAProxy 2.6 were found by trying it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use baton_http::{FieldsView, TargetForm, Version};

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::{Context, Request, path_and_query};
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type, leading_int};

/// An optional name.
pub(super) const NAME: &[Arg] = &[Arg::opt(ArgKind::Str)];
/// An optional name and an optional occurrence: from 1 counted from the start, from -1 from the end.
pub(super) const HEADER: &[Arg] = &[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Int)];
/// A parameter's name and the character before the query.
const PARAMETER: &[Arg] = &[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Str)];
const HEAD: FetchNeeds = FetchNeeds::REQUEST_HEAD;

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["method"], Type::Method, FetchNeeds::REQUEST, method, "The method."),
    Fetch::new(&["path"], Type::Str, HEAD, |cx, _| path(cx), "The path, without the query."),
    Fetch::new(&["pathq"], Type::Str, HEAD, pathq, "The path with the query."),
    Fetch::new(
        &["url"],
        Type::Str,
        HEAD,
        |cx, _| Some(Sample::str(url(cx)?)),
        "The path and query of the target as received.",
    ),
    Fetch::new(&["url_ip"], Type::Ip, HEAD, url_ip, "The address in an absolute target."),
    Fetch::new(&["url_port"], Type::Int, HEAD, url_port, "The port in an absolute target whose host is an address."),
    Fetch::new(&["query"], Type::Str, HEAD, query, "What follows the first question mark."),
    Fetch::new(&["base"], Type::Str, HEAD, |cx, _| base(cx, path(cx)), "Host and path."),
    Fetch::new(&["baseq"], Type::Str, HEAD, |cx, args| base(cx, pathq(cx, args)), "Host, path and query."),
    Fetch::new(&["url_param", "urlp"], Type::Str, HEAD, url_param, "A parameter of the query.")
        .args(PARAMETER)
        .each(each_param),
    Fetch::new(
        &["url_param_val", "urlp_val"],
        Type::Int,
        HEAD,
        |cx, args| as_int(url_param(cx, args)),
        "A parameter of the query as an integer.",
    )
    .args(PARAMETER),
    Fetch::new(
        &["req.hdr"],
        Type::Str,
        HEAD,
        |cx, args| nth_header(fields(cx)?, args, true),
        "One of the comma-separated values of a header, the last by default.",
    )
    .args(HEADER)
    .each(|cx, args, take| fields(cx).is_some_and(|it| each_header(it, args, true, take))),
    Fetch::new(
        &["hdr"],
        Type::Str,
        FetchNeeds::EITHER_HEAD,
        |cx, args| nth_header(own_fields(cx)?, args, true),
        "Like 'req.hdr' in rules about requests, and like 'res.hdr' in rules about responses.",
    )
    .args(HEADER)
    .each(|cx, args, take| own_fields(cx).is_some_and(|it| each_header(it, args, true, take))),
    Fetch::new(
        &["req.fhdr", "fhdr"],
        Type::Str,
        HEAD,
        |cx, args| nth_header(fields(cx)?, args, false),
        "One of the whole lines of a header, the last by default.",
    )
    .args(HEADER)
    .each(|cx, args, take| fields(cx).is_some_and(|it| each_header(it, args, false, take))),
    Fetch::new(
        &["req.hdr_cnt", "hdr_cnt"],
        Type::Int,
        HEAD,
        |cx, args| header_count(fields(cx)?, args, true),
        "How many comma-separated values a header, or all headers, have.",
    )
    .args(NAME),
    Fetch::new(
        &["req.fhdr_cnt", "fhdr_cnt"],
        Type::Int,
        HEAD,
        |cx, args| header_count(fields(cx)?, args, false),
        "How many lines a header, or all headers, have.",
    )
    .args(NAME),
    Fetch::new(
        &["req.hdr_val", "hdr_val"],
        Type::Int,
        HEAD,
        |cx, args| as_int(nth_header(fields(cx)?, args, true)),
        "A header's value as an integer.",
    )
    .args(HEADER)
    .each(|cx, args, take| {
        fields(cx)
            .is_some_and(|it| each_header(it, args, true, &mut |value| as_int(Some(value)).is_some_and(&mut *take)))
    }),
    Fetch::new(
        &["req.hdr_ip", "hdr_ip"],
        Type::Ip,
        HEAD,
        |cx, args| as_ip(nth_header(fields(cx)?, args, true)),
        "A header's value as an address.",
    )
    .args(HEADER)
    .each(|cx, args, take| {
        fields(cx)
            .is_some_and(|it| each_header(it, args, true, &mut |value| as_ip(Some(value)).is_some_and(&mut *take)))
    }),
    Fetch::new(
        &["req.hdr_names"],
        Type::Str,
        HEAD,
        |cx, args| header_names(fields(cx)?, args),
        "All header names, joined by commas or the text given.",
    )
    .args(NAME),
    Fetch::new(
        &["cookie"],
        Type::Str,
        FetchNeeds::EITHER_HEAD,
        |cx, args| match cx.response {
            Some(_) => super::response::cookie(cx, args),
            None => cookie(cx, args),
        },
        "Like 'req.cook' in rules about requests, and like 'res.cook' in rules about responses.",
    )
    .args(NAME),
    Fetch::new(&["req.cook", "cook"], Type::Str, HEAD, cookie, "A cookie's value, the last by default.")
        .args(NAME)
        .each(each_cookie),
    Fetch::new(
        &["req.cook_cnt", "cook_cnt"],
        Type::Int,
        HEAD,
        |cx, args| Some(Sample::Int(cookie_count(cookies(cx), args))),
        "How many cookies there are, or with that name.",
    )
    .args(NAME),
    Fetch::new(
        &["req.cook_val", "cook_val"],
        Type::Int,
        HEAD,
        |cx, args| as_int(cookie(cx, args)),
        "A cookie's value as an integer.",
    )
    .args(NAME),
    Fetch::new(&["req.ver", "req_ver"], Type::Str, HEAD, version, "The version, such as 1.1."),
    Fetch::new(&["req.proto_http", "req_proto_http"], Type::Bool, HEAD, is_http, "Whether the request is valid HTTP."),
    Fetch::new(&["req.body"], Type::Bin, HEAD, body, "The part of the body that has been received."),
    Fetch::new(&["req.body_len"], Type::Int, HEAD, body_length, "How many bytes of the body have been received."),
    Fetch::new(&["req.len", "req_len"], Type::Int, HEAD, length, "How many bytes of the request have been received."),
    Fetch::new(
        &["capture.req.method"],
        Type::Str,
        FetchNeeds::REQUEST,
        |cx, _| Some(Sample::str(cx.received()?.method)),
        "The method as received.",
    ),
    Fetch::new(
        &["capture.req.uri"],
        Type::Str,
        FetchNeeds::REQUEST,
        |cx, _| Some(Sample::str(path_and_query(cx.received()?.target))),
        "The path and query of the target as received.",
    ),
    Fetch::new(
        &["capture.req.ver"],
        Type::Str,
        FetchNeeds::REQUEST,
        |cx, _| Some(Sample::str(cx.received()?.version)),
        "The version as received, such as HTTP/1.1.",
    ),
    Fetch::new(
        &["http_first_req"],
        Type::Bool,
        FetchNeeds::REQUEST,
        |cx, _| Some(Sample::Bool(cx.first_request)),
        "Whether this is the connection's first request.",
    ),
];

fn is_http<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    if cx.request.is_none() && cx.content.is_some_and(|content| content.may_become_http) {
        cx.wait();
    }
    Some(Sample::Bool(cx.request.is_some()))
}

fn length<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    cx.wait();
    let bytes = match &cx.content {
        Some(content) => content.bytes.len(),
        None => request(cx)?.head.view().received_len(),
    };
    Some(Sample::Int(bytes as i64))
}

fn body<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    cx.wait();
    Some(Sample::Bin(request(cx)?.body.bytes()))
}

fn body_length<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    cx.wait();
    Some(Sample::Int(request(cx)?.body.length() as i64))
}

fn request<'c, 'b>(cx: &'c Context<'b>) -> Option<&'c Request<'b>> {
    cx.request.as_ref()
}

/// Of the message that the rule is about.
fn own_fields<'c>(cx: &'c Context<'_>) -> Option<FieldsView<'c>> {
    match &cx.response {
        Some(response) => Some(response.head.view().fields()),
        None => fields(cx),
    }
}

fn fields<'c>(cx: &'c Context<'_>) -> Option<FieldsView<'c>> {
    request(cx).map(|request| request.head.view().fields())
}

fn method<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let method = match request(cx) {
        Some(request) => request.head.view().method_text(),
        None => cx.received()?.method,
    };
    Some(Sample::Method(Cow::Borrowed(method)))
}

fn version<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(version_text(request(cx)?.head.view().version()))
}

pub(super) fn version_text<'c>(version: Version) -> Sample<'c> {
    Sample::str(match version {
        Version::Http10 => b"1.0",
        Version::Http11 => b"1.1",
        Version::Http2 => b"2.0",
    })
}

fn url<'c>(cx: &'c Context<'_>) -> Option<&'c [u8]> {
    let request = request(cx)?;
    Some(request.head.view().target())
}

/// Nothing for `*` and CONNECT.
fn path<'c>(cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let request = request(cx)?;
    let path = request.head.view().path();
    (!path.is_empty()).then(|| Sample::str(path))
}

fn pathq<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let request = request(cx)?;
    let path = request.head.view().path_and_query();
    (!path.is_empty()).then(|| Sample::str(path))
}

fn query<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    // Nothing without a question mark, as in HAProxy.
    request(cx)?.head.view().query().map(Sample::str)
}

/// `base`.
pub(super) fn base_and_path<'c>(cx: &'c Context<'_>) -> Option<Sample<'c>> {
    base(cx, path(cx))
}

/// `baseq`.
pub(super) fn base_and_query<'c>(cx: &'c Context<'_>) -> Option<Sample<'c>> {
    base(cx, pathq(cx, &[]))
}

/// The number in decimal digits, and nothing else.
pub(super) fn as_bytes(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The `Host` value with the path behind it.
fn base<'c>(cx: &'c Context<'_>, path: Option<Sample<'c>>) -> Option<Sample<'c>> {
    let request = request(cx)?;
    let path = path.map(Sample::into_text).unwrap_or_default();
    let Some(host) = request.head.view().host().filter(|host| !host.is_empty()) else {
        return (!path.is_empty()).then_some(Sample::Str(path));
    };
    Some(Sample::Str(match path.is_empty() {
        true => Cow::Borrowed(host),
        false => Cow::Owned([host, &path].concat()),
    }))
}

/// Host and port of an absolute target whose host is an IPv4 address; other hosts give nothing, as in HAProxy 2.6.
fn url_address(cx: &Context<'_>) -> Option<(Ipv4Addr, u16)> {
    let request = request(cx)?;
    if request.head.view().form() != TargetForm::Absolute {
        return None;
    }
    let authority = std::str::from_utf8(request.head.view().authority()).ok()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
    Some((host.parse().ok()?, if port.is_empty() { 80 } else { port.parse().ok()? }))
}

fn url_ip<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    url_address(cx).map(|(address, _)| Sample::Ip(IpAddr::V4(address)))
}

fn url_port<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    url_address(cx).map(|(_, port)| Sample::Int(port.into()))
}

/// The parameters of the query: pairs between `&` or `;`. A name without `=` is none, as in HAProxy.
fn params<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> impl Iterator<Item = &'c [u8]> {
    let start = args[1].bytes().first().copied().unwrap_or(b'?');
    let query = url(cx).and_then(|url| memchr::memchr(start, url).map(|at| &url[at + 1..]));
    let name = (!args[0].is_absent()).then(|| args[0].bytes());
    query
        .into_iter()
        .flat_map(|query| query.split(|&byte| byte == b'&' || byte == b';'))
        .filter_map(|pair| memchr::memchr(b'=', pair).map(|equals| (&pair[..equals], &pair[equals + 1..])))
        .filter(move |&(key, _)| name.is_none_or(|name| key == name))
        .map(|(_, value)| value)
}

fn url_param<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    params(cx, args).next().map(Sample::str)
}

fn each_param<'c>(cx: &'c Context<'_>, args: &'c [Value], take: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
    params(cx, args).any(|value| take(Sample::str(value)))
}

/// The occurrence asked for, the last one by default.
pub(super) fn nth_header<'c>(fields: FieldsView<'c>, args: &'c [Value], split: bool) -> Option<Sample<'c>> {
    let name = header_name(args)?;
    let occurrence = args.get(1).and_then(Value::int).unwrap_or(-1);
    match split {
        true => occurrence_of(fields.values(name), occurrence),
        false => occurrence_of(fields.lines(name), occurrence),
    }
    .map(Sample::str)
}

fn occurrence_of<'c>(values: impl Iterator<Item = &'c [u8]> + Clone, occurrence: i64) -> Option<&'c [u8]> {
    if occurrence > 0 {
        return values.into_iter().nth(usize::try_from(occurrence - 1).ok()?);
    }
    let back = usize::try_from(-(occurrence.max(-i64::from(u32::MAX)))).ok()?.max(1);
    let count = if back == 1 { return values.last() } else { values.clone().count() };
    values.into_iter().nth(count.checked_sub(back)?)
}

/// All values; only one when the rule names an occurrence.
pub(super) fn each_header<'c>(
    fields: FieldsView<'c>,
    args: &'c [Value],
    split: bool,
    take: &mut dyn FnMut(Sample<'c>) -> bool,
) -> bool {
    if args.get(1).and_then(Value::int).is_some() {
        return nth_header(fields, args, split).is_some_and(take);
    }
    let Some(name) = header_name(args) else {
        return false;
    };
    match split {
        true => fields.values(name).any(|value| take(Sample::str(value))),
        false => fields.lines(name).any(|value| take(Sample::str(value))),
    }
}

fn header_name(args: &[Value]) -> Option<&[u8]> {
    args.first().map(Value::bytes).filter(|name| !name.is_empty())
}

pub(super) fn header_count<'c>(fields: FieldsView<'c>, args: &'c [Value], split: bool) -> Option<Sample<'c>> {
    let values = |line: &'c [u8]| if split { baton_http::values(line).count() } else { 1 };
    let count: usize = match header_name(args) {
        Some(name) => fields.lines(name).map(values).sum(),
        None => fields.iter().map(|field| values(field.value)).sum(),
    };
    Some(Sample::Int(count as i64))
}

pub(super) fn header_names<'c>(fields: FieldsView<'c>, args: &'c [Value]) -> Option<Sample<'c>> {
    let between = header_name(args).unwrap_or(b",");
    let mut out = Vec::new();
    for field in fields.iter() {
        if !out.is_empty() {
            out.extend_from_slice(between);
        }
        out.extend(field.name.iter().map(u8::to_ascii_lowercase));
    }
    Some(Sample::Str(Cow::Owned(out)))
}

/// The number a value starts with.
pub(super) fn as_int<'c>(sample: Option<Sample<'c>>) -> Option<Sample<'c>> {
    Some(Sample::Int(leading_int(&sample?.into_text()).unwrap_or(0)))
}

/// An address, with or without a port if it is IPv4.
pub(super) fn as_ip<'c>(sample: Option<Sample<'c>>) -> Option<Sample<'c>> {
    let text = sample?.into_text();
    let text = std::str::from_utf8(&text).ok()?;
    if let Ok(address) = text.parse() {
        return Some(Sample::Ip(address));
    }
    let (host, port) = text.split_once(':')?;
    let port_ok = port.bytes().all(|byte| byte.is_ascii_digit());
    Some(Sample::Ip(IpAddr::V4(host.parse().ok().filter(|_| port_ok)?)))
}

fn cookies<'c>(cx: &'c Context<'_>) -> impl Iterator<Item = Cookie<'c>> {
    fields(cx).into_iter().flat_map(|fields| fields.lines(b"cookie")).flat_map(Cookies::new)
}

fn cookie<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    pick_cookie(cookies(cx), args)
}

fn each_cookie<'c>(cx: &'c Context<'_>, args: &'c [Value], take: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
    every_cookie(cookies(cx), args, take)
}

/// The last cookie of a name; without a name the first of all.
pub(super) fn pick_cookie<'c>(mut cookies: impl Iterator<Item = Cookie<'c>>, args: &'c [Value]) -> Option<Sample<'c>> {
    let found = match header_name(args) {
        Some(name) => cookies.filter(|cookie| cookie.is_called(name)).last(),
        None => cookies.next(),
    };
    found.map(|cookie| Sample::str(cookie.value))
}

pub(super) fn every_cookie<'c>(
    mut cookies: impl Iterator<Item = Cookie<'c>>,
    args: &'c [Value],
    take: &mut dyn FnMut(Sample<'c>) -> bool,
) -> bool {
    let name = header_name(args);
    cookies.any(|cookie| name.is_none_or(|name| cookie.is_called(name)) && take(Sample::str(cookie.value)))
}

pub(super) fn cookie_count<'c>(cookies: impl Iterator<Item = Cookie<'c>>, args: &[Value]) -> i64 {
    let name = header_name(args);
    cookies.filter(|cookie| name.is_none_or(|name| cookie.is_called(name))).count() as i64
}

/// A pair of a cookie line.
#[derive(Clone, Copy)]
pub(super) struct Cookie<'c> {
    name: &'c [u8],
    value: &'c [u8],
    /// Bytes of the line from the pair on.
    left: usize,
}

impl Cookie<'_> {
    /// Whether it is found by this name: one at the end of a line must have a value, as in HAProxy.
    fn is_called(&self, name: &[u8]) -> bool {
        self.name == name && self.left > name.len() + 1
    }
}

/// The `name=value` pairs of a cookie line. A name without `=` is none, as in HAProxy.
pub(super) struct Cookies<'c> {
    rest: &'c [u8],
}

impl<'c> Cookies<'c> {
    pub fn new(line: &'c [u8]) -> Cookies<'c> {
        Cookies { rest: line }
    }
}

impl<'c> Iterator for Cookies<'c> {
    type Item = Cookie<'c>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let left = self.rest.len();
            let end = pair_end(self.rest);
            let pair = &self.rest[..end];
            self.rest = self.rest.get(end + 1..).unwrap_or(&[]);
            if let Some(equals) = memchr::memchr(b'=', pair) {
                let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
                return Some(Cookie { name, value, left });
            }
        }
        None
    }
}

/// Where a cookie's pair ends: at a `;` or `,` outside of quotes.
fn pair_end(line: &[u8]) -> usize {
    let mut quoted = false;
    let mut at = 0;
    while at < line.len() {
        match line[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b';' | b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    line.len()
}
