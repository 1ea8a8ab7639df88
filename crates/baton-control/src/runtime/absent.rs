//! Commands about what no configuration has here: caches, resolvers. They answer as HAProxy does when there are none.

use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// `show resolvers [<section>]`.
pub(super) fn resolvers(_: &Control, call: &Call) -> CommandResponse {
    nothing_or(call, "Can't find that resolvers section")
}

/// `show cache`.
pub(super) fn caches(_: &Control, _: &Call) -> CommandResponse {
    CommandResponse::Done
}

fn nothing_or(call: &Call, missing: &str) -> CommandResponse {
    if call.arg(0).is_empty() { CommandResponse::Done } else { CommandResponse::error(missing) }
}
