//! Actions that give a request to Baton itself: `use-service`, and the question for a user and password.

use baton_model::Service;

use super::{Action, Row, RuleArguments, sets};
use crate::problem::{LocatedError, RuleError};

pub(super) const ROWS: &[Row] = &[
    Row { name: "auth", sets: sets::REQUEST | sets::STATS, parse: auth, doc: "Asks for a user and a password (401)." },
    Row {
        name: "use-service",
        sets: sets::REQUEST,
        parse: use_service,
        doc: "Returns a response of a service of Baton's own.",
    },
];

fn auth(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    if words.peek() != Some("realm") {
        return Ok(Action::Auth(None));
    }
    words.at += 1;
    let realm = words.take("the realm")?;
    match realm.bytes().find(|byte| byte.is_ascii_control()) {
        Some(byte) => Err(words.blame(RuleError::new(format!("'{}' is not allowed in a realm", byte.escape_ascii())))),
        None => Ok(Action::Auth(Some(realm.into()))),
    }
}

fn use_service(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let name = words.take("the name of a service")?;
    let Some(service) = Service::of(name) else {
        if name.starts_with(crate::later::LUA) {
            return Err(words.blame(RuleError::new(format!("the service '{name}' is not supported yet"))));
        }
        let names = Service::ALL.iter().map(|service| service.word());
        return Err(words.blame(RuleError::new(format!("'{name}' unknown service name")).suggest(name, names)));
    };
    Ok(Action::UseService(service))
}
