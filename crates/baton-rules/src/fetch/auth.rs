//! Fetches from the credentials of a request (RFC 7617 for Basic, RFC 6750 for Bearer; configuration manual 7.3.6).

use std::borrow::Cow;
use std::sync::Arc;

use baton_model::{Password, User, UserList};

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::converter::from_base64;
use crate::passwords::is_equal;
use crate::place::FetchNeeds;
use crate::sample::{Sample, Type};

const HEAD: FetchNeeds = FetchNeeds::REQUEST_HEAD;
const USERS: &[Arg] = &[Arg::req(ArgKind::Users)];

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(
        &["http_auth"],
        Type::Bool,
        HEAD,
        |cx, args| basic(cx).map(|_| Sample::Bool(user(cx, args).is_some())),
        "Whether the credentials are those of a user of the userlist.",
    )
    .args(USERS),
    Fetch::new(
        &["http_auth_group"],
        Type::Str,
        HEAD,
        |cx, args| user(cx, args).map(|user| Sample::str(user.name.as_bytes())),
        "In ACLs the groups of the user, if the credentials are those of one of the userlist; elsewhere its name.",
    )
    .args(USERS)
    .each(each_group),
    Fetch::new(&["http_auth_type"], Type::Str, HEAD, scheme, "The authentication scheme of the credentials."),
    Fetch::new(
        &["http_auth_user"],
        Type::Str,
        HEAD,
        |cx, _| basic(cx).map(|(name, _)| Sample::Str(Cow::Owned(name))),
        "The user of the credentials, whoever it is.",
    ),
    Fetch::new(
        &["http_auth_pass"],
        Type::Str,
        HEAD,
        |cx, _| basic(cx).map(|(_, password)| Sample::Str(Cow::Owned(password))),
        "The password of the credentials.",
    ),
    Fetch::new(
        &["http_auth_bearer"],
        Type::Str,
        HEAD,
        bearer,
        "The token of Bearer credentials, of a header if one is named.",
    )
    .args(&[Arg::opt(ArgKind::Str)]),
];

const AUTHORIZATION: &[u8] = b"authorization";

/// Scheme and credentials of a header's first line. The schemes that HAProxy knows are the only ones.
fn credentials<'c>(cx: &'c Context<'_>, name: &'c [u8]) -> Option<(Scheme, &'c [u8])> {
    let value = cx.request.as_ref()?.head.view().fields().lines(name).next()?;
    let end = memchr::memchr(b' ', value)?;
    let scheme = [Scheme::Basic, Scheme::Bearer]
        .into_iter()
        .find(|it| value[..end].eq_ignore_ascii_case(it.name().as_bytes()))?;
    Some((scheme, value[end..].trim_ascii()))
}

/// An authentication scheme.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Scheme {
    Basic,
    Bearer,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Scheme::Basic => "Basic",
            Scheme::Bearer => "Bearer",
        }
    }
}

/// The scheme of credentials that can be read.
fn scheme<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let (scheme, _) = credentials(cx, AUTHORIZATION)?;
    (scheme == Scheme::Bearer || basic(cx).is_some()).then_some(Sample::str(scheme.name().as_bytes()))
}

/// User and password of Basic credentials.
fn basic(cx: &Context<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (Scheme::Basic, text) = credentials(cx, AUTHORIZATION)? else { return None };
    let mut name = from_base64(text)?;
    let colon = memchr::memchr(b':', &name)?;
    let password = name.split_off(colon + 1);
    name.truncate(colon);
    Some((name, password))
}

fn bearer<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let name = if args[0].is_absent() { AUTHORIZATION } else { args[0].bytes() };
    let (Scheme::Bearer, token) = credentials(cx, name)? else { return None };
    Some(Sample::str(token))
}

/// The user whose credentials these are.
fn user<'c>(cx: &Context<'_>, args: &'c [Value]) -> Option<&'c User> {
    let Some(Value::Users(list)) = args.first() else { return None };
    let (name, password) = basic(cx)?;
    let user = list.user(&name)?;
    let is_right = match user.password.as_ref()? {
        Password::Plain(right) => is_equal(right.as_bytes(), &password),
        Password::Hash(hash) => (cx.matches_hash)(hash, &password),
    };
    is_right.then_some(user)
}

/// The user's groups.
fn each_group<'c>(cx: &'c Context<'_>, args: &'c [Value], take: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
    let Some(user) = user(cx, args) else { return false };
    user.groups.iter().any(|group| take(Sample::str(group.as_bytes())))
}

/// The hashes that the request's password is to be compared with, of the user that it names in each list.
pub(crate) fn hashes_to_compare(cx: &Context<'_>, lists: &[Arc<UserList>]) -> Vec<(Arc<str>, Vec<u8>)> {
    let Some((name, password)) = basic(cx) else { return Vec::new() };
    let hash = |list: &Arc<UserList>| match list.user(&name)?.password.as_ref()? {
        Password::Hash(hash) => Some((Arc::clone(hash), password.clone())),
        Password::Plain(_) => None,
    };
    lists.iter().filter_map(hash).collect()
}
