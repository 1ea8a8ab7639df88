//! Commands about frontends and limits: `disable|enable|shutdown frontend`, `set maxconn`, `set rate-limit`. HAProxy's words and answers.

use std::sync::Arc;

use baton_model::{Field, Object, Setting};
use baton_proxy::{FrontendPlan, FrontendService};

use super::altering::{Altering, Staging};
use super::stat::leading_number;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, ChangeLine};

const RATE_LIMITS: &str = "'set rate-limit' only supports :\n   \
    - 'connections global' to set the per-process maximum connection rate\n   \
    - 'sessions global' to set the per-process maximum session rate\n   \
    - 'ssl-sessions global' to set the per-process maximum SSL session rate";

/// `disable frontend <frontend>`.
pub(super) fn disable(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    serve(staging, call, FrontendService::Paused)
}

/// `enable frontend <frontend>`.
pub(super) fn enable(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    serve(staging, call, FrontendService::Open)
}

/// `shutdown frontend <frontend>`.
pub(super) fn shut_down(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    serve(staging, call, FrontendService::Stopped)
}

fn serve(staging: &Staging<'_>, call: &Call, service: FrontendService) -> Result<Altering, CommandResponse> {
    Ok(Change::FrontendService(find(staging.line, call.arg(0))?, service, call.by.clone()).into())
}

/// The frontend of that name, or `#` and its number.
fn find(line: &ChangeLine, word: &str) -> Result<Arc<FrontendPlan>, CommandResponse> {
    if word.is_empty() {
        return Err(CommandResponse::error("A frontend name is expected."));
    }
    let generation = line.generation();
    let found = match word.strip_prefix('#').map(str::parse::<u32>) {
        Some(Ok(id)) => generation.and_then(|all| all.frontends.iter().find(|plan| plan.proxy.id == id)),
        Some(Err(_)) => None,
        None => generation.and_then(|all| all.frontend(word)),
    };
    found.cloned().ok_or_else(|| CommandResponse::error("No such frontend."))
}

/// `set maxconn frontend <frontend> <value>`.
pub(super) fn set_maxconn(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let frontend = find(staging.line, call.arg(0))?;
    let value = number(call.arg(1), "Integer value expected.")?;
    let (object, value) = (Object::frontend(&frontend.proxy.name), Some(Setting::Maxconn(value)));
    Ok(Change::Limited { object, field: Field::Maxconn, value, by: call.by.clone() }.into())
}

/// `set maxconn global <value>`; zero is what the configuration, or the descriptors, allow.
pub(super) fn set_maxconn_global(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let value = number(call.arg(0), "Expects an integer value.")?;
    let most = staging.line.generation().map_or(0, |generation| generation.maxconn);
    if value > most {
        return Err(CommandResponse::error("Value out of range."));
    }
    let value = (value > 0).then_some(Setting::Maxconn(value));
    Ok(Change::Limited { object: Object::Process, field: Field::Maxconn, value, by: call.by.clone() }.into())
}

/// `set rate-limit <which> global <value>`; zero is no limit.
pub(super) fn set_rate_limit(_: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let limit: fn(u32) -> Setting = match (call.arg(0), call.arg(1)) {
        ("connections", "global") => Setting::ConnectionRate,
        ("sessions", "global") => Setting::SessionRate,
        ("ssl-sessions", "global") => Setting::TlsRate,
        ("http-compression", "global") => {
            return Err(CommandResponse::error("Compression is not supported: there is nothing to limit."));
        }
        _ => return Err(CommandResponse::error(RATE_LIMITS)),
    };
    let value = limit(number(call.arg(2), "Expects an integer value.")?);
    Ok(Change::Limited { object: Object::Process, field: value.field(), value: Some(value), by: call.by.clone() }
        .into())
}

/// A number as HAProxy reads it, but for words that are none.
fn number(word: &str, missing: &str) -> Result<u32, CommandResponse> {
    match leading_number(word) {
        None => Err(CommandResponse::error(missing)),
        Some(value) => u32::try_from(value).map_err(|_| CommandResponse::error("Value out of range.")),
    }
}
