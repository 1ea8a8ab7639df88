//! `enable|disable dynamic-cookie backend`, `set dynamic-cookie-key backend`. HAProxy's words and answers.

use super::altering::{Altering, Staging};
use super::servers::find_backend;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, DynamicCookie};

/// `enable dynamic-cookie backend <backend>`.
pub(super) fn enable(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    set(staging, call, DynamicCookie::Enabled)
}

/// `disable dynamic-cookie backend <backend>`.
pub(super) fn disable(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    set(staging, call, DynamicCookie::Disabled)
}

/// `set dynamic-cookie-key backend <backend> <key>`.
pub(super) fn set_key(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let altering = set(staging, call, DynamicCookie::Key(call.arg(1).to_owned()))?;
    match call.arg(1) {
        "" => Err(CommandResponse::error("String value expected.")),
        _ => Ok(altering),
    }
}

fn set(staging: &Staging<'_>, call: &Call, wanted: DynamicCookie) -> Result<Altering, CommandResponse> {
    if call.arg(0).is_empty() {
        return Err(CommandResponse::error("A backend name is expected."));
    }
    let backend = find_backend(staging.line, call.arg(0))?.name.clone();
    Ok(Change::DynamicCookie { backend, wanted }.into())
}
