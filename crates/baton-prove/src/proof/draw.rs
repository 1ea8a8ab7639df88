//! Drawing: scales with their ticks, and SVG as text. It knows nothing of what is drawn.

mod scale;
mod svg;

pub(super) use scale::Scale;
pub(super) use svg::{Anchor, Path, Svg, escape};
