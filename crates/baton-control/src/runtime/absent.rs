//! Commands about what no configuration has here: caches. They answer as HAProxy does when there are none.

use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;

/// `show cache`.
pub(super) fn caches(_: &Control, _: &Call) -> CommandResponse {
    CommandResponse::Done
}
