//! `stick` rules (configuration manual, 4.2): what of a request or a response is a key, and in which stick table.

use std::sync::Arc;

use crate::acl::Acl;
use crate::condition::{Condition, Surroundings};
use crate::context::Context;
use crate::expr::Expr;
use crate::outside::{NameReference, ReferenceKind};
use crate::place::RulePosition;
use crate::problem::{LocatedError, RuleError};
use crate::sample::Sample;

/// A `stick` line.
#[derive(Clone, Debug)]
pub struct StickRule {
    kind: StickKind,
    key: Expr,
    table: Arc<str>,
    condition: Option<Condition>,
}

/// What a `stick` rule does with its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum StickKind {
    /// `on`: looks it up, and stores it.
    On,
    /// `match`: looks it up.
    Match,
    /// `store-request`: stores it.
    StoreRequest,
    /// `store-response`: stores it, of the response.
    StoreResponse,
}

impl StickKind {
    const WORDS: [(&'static str, StickKind); 4] = [
        ("on", StickKind::On),
        ("match", StickKind::Match),
        ("store-request", StickKind::StoreRequest),
        ("store-response", StickKind::StoreResponse),
    ];
}

impl StickRule {
    /// Compiles the words behind `stick`, of a proxy of that name. The table is reported to the caller, who knows which there are.
    pub(crate) fn compile(
        words: &[String],
        proxy: &str,
        around: &mut Surroundings<'_>,
    ) -> Result<StickRule, LocatedError> {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let known = StickKind::WORDS.into_iter().find(|(name, _)| *name == word(0));
        let Some((_, kind)) = known else {
            let wanted = "'stick' expects 'on', 'match', 'store-request' or 'store-response'";
            return Err(RuleError::new(wanted).suggest(word(0), StickKind::WORDS.map(|(name, _)| name)).at(0));
        };
        around.place = match kind {
            StickKind::StoreResponse => RulePosition::Response,
            StickKind::On | StickKind::Match | StickKind::StoreRequest => RulePosition::BackendRequest,
        };
        if word(1).is_empty() {
            return Err(RuleError::new("'stick' expects a fetch method").hint("for example 'src'").at(1));
        }
        let key = Expr::compile(word(1), around.place, around.files).map_err(|fault| fault.at(1))?;
        let (table, at) = match word(2) {
            "table" if word(3).is_empty() => return Err(RuleError::new("the name of the stick table is missing").at(3)),
            "table" => (word(3), 4),
            _ => (proxy, 2),
        };
        around.files.refers(NameReference {
            by: "stick rule".into(),
            proxy: table.to_owned(),
            kind: ReferenceKind::TableOfKey(key.gives()),
            asks_for_rate: false,
        });
        let table = table.into();
        let condition = Condition::compile(words, at, around)?;
        Ok(StickRule { kind, key, table, condition })
    }

    /// The name of the table.
    pub fn table(&self) -> &Arc<str> {
        &self.table
    }

    /// Whether the key is looked up when a request comes.
    pub fn matches_requests(&self) -> bool {
        matches!(self.kind, StickKind::On | StickKind::Match)
    }

    /// Whether the key, which is one of the request, is stored.
    pub fn stores_requests(&self) -> bool {
        matches!(self.kind, StickKind::On | StickKind::StoreRequest)
    }

    /// Whether it is about responses.
    pub fn stores_responses(&self) -> bool {
        self.kind == StickKind::StoreResponse
    }

    /// The key, if the condition holds and there is one.
    pub(crate) fn key<'c>(&'c self, acls: &[Acl], cx: &'c Context<'_>) -> Option<Sample<'c>> {
        let applies = self.condition.as_ref().is_none_or(|condition| condition.holds(acls, cx));
        if applies { self.key.eval(cx) } else { None }
    }
}
