//! Options of protocols.

use baton_model::CheckProtocol;

use super::CheckKind;
use crate::lower::{Call, Draft};

fn plain(draft: &mut Draft, call: &mut Call<'_, '_>, protocol: CheckProtocol) {
    if call.at_most(0) {
        draft.check.kind = CheckKind::Protocol(protocol);
    }
}

pub(super) fn ldap(draft: &mut Draft, call: &mut Call<'_, '_>) {
    plain(draft, call, CheckProtocol::Ldap);
}

/// `option grpc-check [service NAME]`
pub(super) fn grpc(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let service = match (call.arg(0), call.arg(1)) {
        ("", _) => String::new(),
        ("service", "") => {
            let message = "'option grpc-check service' expects <name> as argument.";
            return call.error(call.first + 1, "missing-argument", message.into());
        }
        ("service", name) => name.to_owned(),
        (odd, _) => {
            let message = format!("'option grpc-check' only supports optional values: 'service' (got '{odd}').");
            return call.not_one_of(0, message, ["service"]);
        }
    };
    if call.at_most(2) {
        draft.check.kind = CheckKind::Protocol(CheckProtocol::Grpc { service });
    }
}

pub(super) fn redis(draft: &mut Draft, call: &mut Call<'_, '_>) {
    plain(draft, call, CheckProtocol::Redis);
}

pub(super) fn spop(draft: &mut Draft, call: &mut Call<'_, '_>) {
    plain(draft, call, CheckProtocol::Spop);
}

pub(super) fn ssl_hello(draft: &mut Draft, call: &mut Call<'_, '_>) {
    plain(draft, call, CheckProtocol::SslHello);
}

pub(super) fn mysql(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut user = None;
    let mut is_before_41 = false;
    match call.arg(0) {
        "" => {}
        "user" => {
            if call.arg(1).is_empty() {
                let message = "'option mysql-check user' expects <username> as argument.";
                return call.error(call.first + 1, "missing-argument", message.into());
            }
            user = Some(call.arg(1).to_owned());
            match call.arg(2) {
                "" | "post-41" => {}
                "pre-41" => is_before_41 = true,
                odd => {
                    let message = format!("keyword 'user' only supports 'post-41' and 'pre-41' (got '{odd}').");
                    return call.not_one_of(2, message, ["post-41", "pre-41"]);
                }
            }
        }
        odd => {
            let message = format!("'option mysql-check' only supports optional values: 'user' (got '{odd}').");
            return call.not_one_of(0, message, ["user"]);
        }
    }
    if call.at_most(3) {
        draft.check.kind = CheckKind::Protocol(CheckProtocol::MySql { user, is_before_41 });
    }
}

pub(super) fn pgsql(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() || call.arg(1).is_empty() {
        let message = "'option pgsql-check' expects 'user <username>' as argument.";
        return call.error(call.first + call.args().min(1), "missing-argument", message.into());
    }
    if call.arg(0) != "user" {
        let message = "'option pgsql-check' only supports optional values: 'user'.";
        return call.not_one_of(0, message.into(), ["user"]);
    }
    if call.at_most(2) {
        let user = call.arg(1).to_owned();
        draft.check.kind = CheckKind::Protocol(CheckProtocol::PostgreSql { user });
    }
}

pub(super) fn smtp(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if !call.at_most(2) {
        return;
    }
    // As in HAProxy, what is no greeting with a name is one without.
    let hello = match (call.arg(0), call.arg(1)) {
        (verb @ ("HELO" | "EHLO"), domain) if !domain.is_empty() => format!("{verb} {domain}"),
        _ => "HELO localhost".to_owned(),
    };
    draft.check.kind = CheckKind::Protocol(CheckProtocol::Smtp { hello });
}
