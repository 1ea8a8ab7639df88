//! Fetches from an HTTP response (configuration manual 7.3.6).

use baton_http::{FieldsView, Version};

use super::Fetch;
use super::http::{Cookie, Cookies, HEADER, NAME, cookie_count, each_header, header_count, header_names, nth_header};
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["status"], Type::Int, FetchNeeds::RESPONSE_KEPT, status, "The status code."),
    Fetch::new(&["res.ver", "resp_ver"], Type::Str, FetchNeeds::RESPONSE, version, "The version, such as 1.1."),
    Fetch::new(
        &["res.hdr", "shdr"],
        Type::Str,
        FetchNeeds::RESPONSE,
        |cx, args| nth_header(response(cx)?, args, true),
        "One of the comma-separated values of a header, the last by default.",
    )
    .args(HEADER)
    .each(|cx, args, take| response(cx).is_some_and(|it| each_header(it, args, true, take))),
    Fetch::new(
        &["res.fhdr"],
        Type::Str,
        FetchNeeds::RESPONSE,
        |cx, args| nth_header(response(cx)?, args, false),
        "One of the whole lines of a header, the last by default.",
    )
    .args(HEADER)
    .each(|cx, args, take| response(cx).is_some_and(|it| each_header(it, args, false, take))),
    Fetch::new(
        &["res.hdr_cnt", "shdr_cnt"],
        Type::Int,
        FetchNeeds::RESPONSE,
        |cx, args| header_count(response(cx)?, args, true),
        "How many comma-separated values a header has.",
    )
    .args(NAME),
    Fetch::new(
        &["res.fhdr_cnt"],
        Type::Int,
        FetchNeeds::RESPONSE,
        |cx, args| header_count(response(cx)?, args, false),
        "How many lines a header has.",
    )
    .args(NAME),
    Fetch::new(
        &["res.hdr_val", "shdr_val"],
        Type::Int,
        FetchNeeds::RESPONSE,
        |cx, args| super::http::as_int(nth_header(response(cx)?, args, true)),
        "A header's value as an integer.",
    )
    .args(HEADER)
    .each(|cx, args, take| {
        response(cx).is_some_and(|it| {
            each_header(it, args, true, &mut |value| super::http::as_int(Some(value)).is_some_and(&mut *take))
        })
    }),
    Fetch::new(
        &["res.hdr_ip", "shdr_ip"],
        Type::Ip,
        FetchNeeds::RESPONSE,
        |cx, args| super::http::as_ip(nth_header(response(cx)?, args, true)),
        "A header's value as an address.",
    )
    .args(HEADER)
    .each(|cx, args, take| {
        response(cx).is_some_and(|it| {
            each_header(it, args, true, &mut |value| super::http::as_ip(Some(value)).is_some_and(&mut *take))
        })
    }),
    Fetch::new(
        &["res.hdr_names"],
        Type::Str,
        FetchNeeds::RESPONSE,
        |cx, args| header_names(response(cx)?, args),
        "All header names, joined by commas or the text given.",
    )
    .args(NAME),
    Fetch::new(
        &["res.cook", "scook"],
        Type::Str,
        FetchNeeds::RESPONSE,
        cookie,
        "The value of a Set-Cookie cookie, the last by default.",
    )
    .args(NAME)
    .each(each_cookie),
    Fetch::new(
        &["res.cook_cnt", "scook_cnt"],
        Type::Int,
        FetchNeeds::RESPONSE,
        |cx, args| Some(Sample::Int(set_cookie_count(cx, args))),
        "How often a cookie is set.",
    )
    .args(NAME),
    Fetch::new(
        &["res.cook_val", "scook_val"],
        Type::Int,
        FetchNeeds::RESPONSE,
        |cx, args| super::http::as_int(cookie(cx, args)),
        "The value of a Set-Cookie cookie as an integer.",
    )
    .args(&[Arg::opt(ArgKind::Str)]),
];

fn response<'c>(cx: &'c Context<'_>) -> Option<FieldsView<'c>> {
    cx.response.as_ref().map(|response| response.head.view().fields())
}

fn status<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Int(cx.response.as_ref()?.head.view().status().into()))
}

fn version<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(super::http::version_text(match &cx.response {
        Some(response) => response.head.view().version(),
        None => Version::default(),
    }))
}

/// The first pair of each Set-Cookie line.
fn set_cookies<'c>(cx: &'c Context<'_>) -> impl Iterator<Item = Cookie<'c>> {
    response(cx).into_iter().flat_map(|fields| fields.lines(b"set-cookie")).filter_map(|line| Cookies::new(line).next())
}

/// How often a cookie is set. Without a name attributes with a value are counted too, as HAProxy does.
fn set_cookie_count(cx: &Context<'_>, args: &[Value]) -> i64 {
    match args.first().is_none_or(Value::is_absent) {
        true => {
            let lines = response(cx).into_iter().flat_map(|fields| fields.lines(b"set-cookie"));
            lines.flat_map(Cookies::new).count() as i64
        }
        false => cookie_count(set_cookies(cx), args),
    }
}

pub(super) fn cookie<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    super::http::pick_cookie(set_cookies(cx), args)
}

fn each_cookie<'c>(cx: &'c Context<'_>, args: &'c [Value], take: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
    super::http::every_cookie(set_cookies(cx), args, take)
}
