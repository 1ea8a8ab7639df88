//! The kinds of rows the keyword tables have.

use super::{Apply, Keyword, Sections, Status};
use crate::lower::{Call, Draft};

/// A keyword of a proxy that works.
pub(super) const fn row(
    name: &'static str,
    sections: Sections,
    args: &'static str,
    apply: fn(&mut Draft, &mut Call<'_, '_>),
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections, args, status: Status::Done, doc, apply: Apply::Proxy(apply) }
}

/// A keyword without an effect that traffic could notice.
pub(super) const fn none(name: &'static str, sections: Sections, args: &'static str, why: &'static str) -> Keyword {
    Keyword { name, sections, args, status: Status::NoEffect(why), doc: "", apply: Apply::Nothing }
}

/// A keyword that Baton refuses because it cannot do it yet.
pub(super) const fn later(name: &'static str, sections: Sections) -> Keyword {
    Keyword { name, sections, args: "…", status: Status::NotYet, doc: "", apply: Apply::Nothing }
}

/// A keyword that HAProxy 2.6 refuses as well; `text` says what to write instead.
pub(super) const fn gone(name: &'static str, sections: Sections, text: &'static str) -> Keyword {
    Keyword { name, sections, args: "", status: Status::Removed(text), doc: "", apply: Apply::Nothing }
}
