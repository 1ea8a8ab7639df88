//! Fetches that put together several parts of a message (configuration manual 7.3.6): all headers, hashes of host and target, and
//! parameters of a body.

use std::borrow::Cow;
use std::net::IpAddr;

use baton_http::FieldsView;

use super::Fetch;
use super::http::{NAME, as_bytes, base_and_path, base_and_query};
use crate::args::Value;
use crate::context::Context;
use crate::converter::{avalanche, sdbm};
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

#[rustfmt::skip]
pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["req.hdrs"], Type::Bin, FetchNeeds::REQUEST_HEAD, |cx, _| request(cx).map(text),
        "All headers of the request as text, each with a line end, and an empty line."),
    Fetch::new(&["res.hdrs"], Type::Bin, FetchNeeds::RESPONSE, |cx, _| response(cx).map(text),
        "All headers of the response as text, each with a line end, and an empty line."),
    Fetch::new(&["req.hdrs_bin"], Type::Bin, FetchNeeds::REQUEST_HEAD, |cx, _| request(cx).map(binary),
        "All headers of the request, names and values with their lengths in front (SPOE.txt)."),
    Fetch::new(&["res.hdrs_bin"], Type::Bin, FetchNeeds::RESPONSE, |cx, _| response(cx).map(binary),
        "All headers of the response, names and values with their lengths in front (SPOE.txt)."),
    Fetch::new(&["base32"], Type::Int, FetchNeeds::REQUEST_HEAD,
        |cx, _| Some(Sample::Int(hash(base_and_path(cx)).into())), "A hash of base."),
    Fetch::new(&["base32+src"], Type::Bin, FetchNeeds::REQUEST_HEAD, |cx, _| with_source(cx, hash(base_and_path(cx))),
        "A hash of base, and the client's address."),
    Fetch::new(&["url32"], Type::Int, FetchNeeds::REQUEST_HEAD,
        |cx, _| Some(Sample::Int(hash(base_and_query(cx)).into())), "A hash of host and target."),
    Fetch::new(&["url32+src"], Type::Bin, FetchNeeds::REQUEST_HEAD, |cx, _| with_source(cx, hash(base_and_query(cx))),
        "A hash of host and target, and the client's address."),
    Fetch::new(&["req.body_param"], Type::Bin, FetchNeeds::REQUEST_HEAD, body_param,
        "A parameter in a body of the form a=1&b=2; without a name the first.").args(NAME).each(each_body_param),
    Fetch::new(&["req.body_size"], Type::Int, FetchNeeds::REQUEST_HEAD, request_size,
        "The length of the request's body as announced; what is there of one in chunks."),
    Fetch::new(&["res.body"], Type::Bin, FetchNeeds::RESPONSE,
        |cx, _| cx.response.as_ref().map(|response| Sample::Bin(response.body.bytes())),
        "The part of the response's body that has been received."),
    Fetch::new(&["res.body_len"], Type::Int, FetchNeeds::RESPONSE,
        |cx, _| cx.response.as_ref().map(|response| Sample::Int(response.body.length() as i64)),
        "How many bytes of the response's body have been received."),
    Fetch::new(&["res.body_size"], Type::Int, FetchNeeds::RESPONSE,
        |cx, _| cx.response.as_ref().map(|response| size(response.head.view().fields(), response.body.length())),
        "The length of the response's body as announced; what is there of one without a length."),
    Fetch::new(&["res.len"], Type::Int, FetchNeeds::RESPONSE, response_length,
        "How many bytes of the response have been received."),
];

fn request<'c>(cx: &'c Context<'_>) -> Option<FieldsView<'c>> {
    cx.request.as_ref().map(|request| request.head.view().fields())
}

fn response<'c>(cx: &'c Context<'_>) -> Option<FieldsView<'c>> {
    cx.response.as_ref().map(|response| response.head.view().fields())
}

fn text<'c>(fields: FieldsView<'_>) -> Sample<'c> {
    let mut out = Vec::new();
    for field in fields.iter() {
        out.extend(field.name.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Sample::Bin(Cow::Owned(out))
}

/// Names and values, and an empty name and value at the end.
fn binary<'c>(fields: FieldsView<'_>) -> Sample<'c> {
    let mut out = Vec::new();
    for field in fields.iter() {
        write_length(field.name.len(), &mut out);
        out.extend(field.name.iter().map(u8::to_ascii_lowercase));
        write_length(field.value.len(), &mut out);
        out.extend_from_slice(field.value);
    }
    out.extend_from_slice(&[0, 0]);
    Sample::Bin(Cow::Owned(out))
}

/// An integer of variable length (SPOE.txt 3.1): below 240 a byte; else four bits in the first byte and seven in each that follows.
fn write_length(mut value: usize, out: &mut Vec<u8>) {
    if value < 240 {
        return out.push(value as u8);
    }
    out.push(value as u8 | 0xf0);
    value = (value - 240) >> 4;
    while value >= 128 {
        out.push(value as u8 | 0x80);
        value = (value - 128) >> 7;
    }
    out.push(value as u8);
}

fn hash(sample: Option<Sample<'_>>) -> u32 {
    avalanche(sdbm(&sample.map(Sample::into_text).unwrap_or_default()))
}

fn with_source<'c>(cx: &Context<'_>, hash: u32) -> Option<Sample<'c>> {
    let mut out = hash.to_be_bytes().to_vec();
    match cx.client?.ip() {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
    Some(Sample::Bin(Cow::Owned(out)))
}

/// The values of the pairs that have one, of this name if one is asked for.
fn body_values<'b>(body: &'b [u8], args: &'b [Value]) -> impl Iterator<Item = &'b [u8]> {
    body.split(|byte| *byte == b'&').filter_map(|pair| {
        let equals = memchr::memchr(b'=', pair)?;
        let is_wanted = args[0].is_absent() || *args[0].bytes() == pair[..equals];
        is_wanted.then(|| &pair[equals + 1..])
    })
}

fn body_param<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    // Declared as bytes, given as text that may have a NUL: that is how HAProxy converts it.
    Some(Sample::Str(match cx.request.as_ref()?.body.bytes() {
        Cow::Borrowed(body) => Cow::Borrowed(body_values(body, args).next()?),
        Cow::Owned(body) => Cow::Owned(body_values(&body, args).next()?.to_vec()),
    }))
}

fn each_body_param<'c>(cx: &'c Context<'_>, args: &'c [Value], take: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
    let Some(request) = &cx.request else { return false };
    let body = request.body.bytes();
    body_values(&body, args).any(|value| take(Sample::Str(Cow::Owned(value.to_vec()))))
}

fn request_size<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let request = cx.request.as_ref()?;
    Some(size(request.head.view().fields(), request.body.length()))
}

fn size<'c>(fields: FieldsView<'_>, there: usize) -> Sample<'c> {
    let announced = fields.lines(b"content-length").last().and_then(as_bytes);
    Sample::Int(announced.unwrap_or(there as i64))
}

fn response_length<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    cx.wait();
    let length = match (cx.answer, &cx.response) {
        (Some(bytes), _) => bytes.len(),
        (None, Some(response)) => response.head.view().received_len() + response.body.length(),
        (None, None) => return None,
    };
    Some(Sample::Int(length as i64))
}
