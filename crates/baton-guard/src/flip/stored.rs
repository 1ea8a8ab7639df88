//! What is remembered of a flip.

use serde::{Deserialize, Serialize};

use super::{Colour, FlipMethodKind, Setting};

/// The file of a flip. What it says of the kernel is what was asked for; what is there, only the kernel says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// What was asked for.
    pub setting: Setting,
    /// By which method.
    pub method: FlipMethodKind,
    /// Which instance was made active last.
    pub active: Colour,
    /// A change to this was begun, and it is not known that it ended: what the kernel has may be of the setting before.
    #[serde(default)]
    pub is_begun: bool,
}
