//! `mailers` sections and `email-alert` lines (configuration manual, 3.6 and 4.2).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_model::{Address, EmailAlert, Level, Mailer, Mailers, Proxy};
use baton_rules::suggestion;

use crate::diagnostic::Severity;
use crate::keywords::server::check_address;
use crate::lower::{Call, Context, Draft, Prefix, late};
use crate::syntax::{Line, Section};
use crate::values::Unit;

/// `timeout mail` that nobody has set.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The levels of syslog by their numbers.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Reads a `mailers` section.
pub(crate) fn section(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    let name = head.word(1);
    let other = context.mailers.iter().find(|(_, other)| &*other.name == name);
    let complaint = match (name, other) {
        ("", _) => Some("missing name for mailers section.".to_owned()),
        (name, Some((line, _))) => Some(format!(
            "mailers section '{name}' has the same name as another mailers section declared at {}:{}.",
            line.file, line.number
        )),
        (_, None) => None,
    };
    if let Some(message) = complaint {
        context.report.add(head.diagnostic(Severity::Alert, "bad-name", 1, message));
    }
    let mut mailers = Mailers { name: name.into(), mailers: Vec::new(), timeout: TIMEOUT };
    for line in &section.lines {
        match line.word(0) {
            "mailer" => {
                let mailer = mailer(&mut Call::new(line, 1, Prefix::None, "mailer", context));
                mailers.mailers.extend(mailer);
            }
            "timeout" => timeout(&mut mailers, &mut Call::new(line, 1, Prefix::None, "timeout", context)),
            word => {
                let message = format!("unknown keyword '{word}' in 'mailers' section");
                let mut diagnostic = line.diagnostic(Severity::Alert, "unknown-keyword", 0, message);
                diagnostic.hint = suggestion(word, ["mailer", "timeout"]);
                context.report.add(diagnostic);
            }
        }
    }
    context.mailers.push((head.clone(), mailers));
}

fn mailer(call: &mut Call<'_, '_>) -> Option<Mailer> {
    let (name, text) = (call.arg(0).to_owned(), call.arg(1).to_owned());
    if name.is_empty() || text.is_empty() {
        let message = "'mailer' expects <name> and <addr>[:<port>] as arguments.";
        call.error(call.first, "missing-argument", message.into());
        return None;
    }
    let about = format!("'mailer {name}' : ");
    match check_address(&text, call.context) {
        Ok(Address::Inet(address)) if address.port() > 0 => {
            Some(Mailer { name: name.into(), address: reached(address) })
        }
        Ok(Address::Inet(_)) => {
            call.wrong(1, format!("{about}missing port specification in '{text}'"));
            None
        }
        Ok(_) => {
            call.wrong(1, format!("{about}TCP not supported for this address family."));
            None
        }
        Err(reason) => {
            call.wrong(1, format!("{about}{reason}"));
            None
        }
    }
}

/// Nobody connects to an address that stands for all of them: it means this machine.
fn reached(address: SocketAddr) -> SocketAddr {
    match (address.ip().is_unspecified(), address.is_ipv4()) {
        (true, true) => ([127, 0, 0, 1], address.port()).into(),
        (true, false) => (std::net::Ipv6Addr::LOCALHOST, address.port()).into(),
        (false, _) => address,
    }
}

fn timeout(mailers: &mut Mailers, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "mail" if call.arg(1).is_empty() => {
            call.error(2, "missing-argument", "'timeout mail' expects <time> as argument.".into());
        }
        "mail" => {
            if let Some(time) = call.time_at(2, "timeout mail", Unit::Ms) {
                mailers.timeout = if time.is_zero() { TIMEOUT } else { time };
            }
        }
        "" => call.error(1, "missing-argument", "'timeout' expects 'mail' and <time> as arguments.".into()),
        word => {
            let message = format!("'timeout' expects 'mail' and <time> as arguments got '{word}'.");
            call.error_with(1, "bad-value", message, suggestion(word, ["mail"]));
        }
    }
}

/// `email-alert from|level|mailers|myhostname|to VALUE`.
pub(super) fn email_alert(draft: &mut Draft, call: &mut Call<'_, '_>) {
    const SETTINGS: [&str; 5] = ["from", "level", "mailers", "myhostname", "to"];
    let (setting, value) = (call.arg(0).to_owned(), call.arg(1).to_owned());
    if setting.is_empty() {
        return call.error(1, "missing-argument", "missing argument after 'email-alert'.".into());
    }
    if !SETTINGS.contains(&&*setting) {
        return call.not_one_of(0, format!("email-alert: unknown argument '{setting}'."), SETTINGS);
    }
    if value.contains(char::is_control) {
        return call.wrong(1, format!("'email-alert {setting}' : a mail has no room for control characters."));
    }
    let email = Arc::make_mut(draft.proxy.email_alert.get_or_insert_default());
    match &*setting {
        "from" => email.from = value,
        "to" => email.to = value,
        "myhostname" => email.myhostname = Some(value).filter(|name| !name.is_empty()),
        "mailers" => email.mailers = value.into(),
        _ => match LEVELS.iter().position(|level| *level == value) {
            Some(level) => email.level = Level(level as u8),
            None => {
                let message = format!("unknown log level 'level' after '{value}'");
                call.not_one_of(1, message, LEVELS);
            }
        },
    }
}

/// What of `email-alert` is not whole has no effect.
pub(crate) fn finish_proxy(proxy: &mut Proxy, draft: &Draft, context: &mut Context<'_>) {
    let Some(email) = &proxy.email_alert else { return };
    let line = draft.lines.get("email-alert").or(draft.inherited.get("email-alert")).unwrap_or(&draft.head);
    let (kind, name) = (draft.kind.label(), &proxy.name);
    if email.from.is_empty() || email.to.is_empty() || email.mailers.is_empty() {
        let message = format!(
            "'email-alert' will be ignored for {kind} '{name}' (the presence any of 'email-alert from', 'email-alert level' \
             'email-alert mailers', 'email-alert myhostname', or 'email-alert to' requires each of 'email-alert from', \
             'email-alert mailers' and 'email-alert to' to be present)."
        );
        context.report.add(late(line, Severity::Warning, "incomplete", 0, message));
        proxy.email_alert = None;
        return;
    }
    let found = context.mailers.iter().any(|(_, mailers)| mailers.name == email.mailers);
    if !found {
        let message = format!("Proxy '{name}': unable to find mailers '{}'.", email.mailers);
        let mut diagnostic = late(line, Severity::Alert, "unknown-name", 0, message);
        diagnostic.hint = suggestion(&email.mailers, context.mailers.iter().map(|(_, mailers)| &*mailers.name));
        context.report.add(diagnostic);
    }
}

/// The sections that somebody uses.
pub(crate) fn finish(proxies: &[Arc<Proxy>], context: &mut Context<'_>) -> Vec<Arc<Mailers>> {
    let mut used = Vec::new();
    for (head, mailers) in std::mem::take(&mut context.mailers) {
        let uses = |proxy: &Arc<Proxy>| {
            proxy.email_alert.as_deref().is_some_and(|email: &EmailAlert| email.mailers == mailers.name)
        };
        if proxies.iter().any(uses) && !mailers.mailers.is_empty() {
            used.push(Arc::new(mailers));
            continue;
        }
        let message = format!("Removing incomplete section 'mailers {}'.", mailers.name);
        let mut diagnostic = unused(&head, message);
        diagnostic.hint = Some("no 'email-alert mailers' names it, or it has no 'mailer'".into());
        context.report.add(diagnostic);
    }
    used
}

fn unused(head: &Line, message: String) -> crate::diagnostic::Diagnostic {
    late(head, Severity::Warning, "unused", 1, message)
}
