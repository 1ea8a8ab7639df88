//! Servers that come and go at run time: `add server`, `del server`, `enable health`, `disable health`. HAProxy's words and replies
//! (management guide, 9.3).

use std::sync::Arc;

use baton_config::quoted;

use super::altering::{Altering, Staging};
use super::servers::{find, find_backend};
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;

/// `add server <backend>/<server> <address> …`.
pub(super) fn add(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let words = call.arg(0).split_once('/').filter(|(backend, server)| !backend.is_empty() && !server.is_empty());
    let (backend, server) = words.ok_or_else(|| CommandResponse::error("Require 'backend/server'."))?;
    let backend: Arc<str> = find_backend(staging.line, backend)?.name.clone();
    let line = quoted(call.args().iter().skip(1).map(String::as_str));
    let change = Change::ServerAdded { backend, server: server.into(), line, by: call.by.clone() };
    Ok(Altering::new(change, CommandResponse::info("New server registered.")))
}

/// `del server <backend>/<server>`.
pub(super) fn delete(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let change = Change::ServerDeleted { server: find(staging.line, call.arg(0))?, by: call.by.clone() };
    Ok(Altering::new(change, CommandResponse::info("Server deleted.")))
}

/// `enable health <backend>/<server>`.
pub(super) fn enable_health(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    Ok(Change::Health { server: find(staging.line, call.arg(0))?, is_checked: true, by: call.by.clone() }.into())
}

/// `disable health <backend>/<server>`.
pub(super) fn disable_health(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    Ok(Change::Health { server: find(staging.line, call.arg(0))?, is_checked: false, by: call.by.clone() }.into())
}
