//! `show tls-keys` and `set ssl tls-key`. Who may see keys can read what clients of TLS 1.2 say: both ask for an admin.

use std::path::{Path, PathBuf};

use baton_model::AccessLevel;
use baton_tls::tickets::{BadKey, TicketKey};

use super::super::altering::{Altering, Staging};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;

/// `show tls-keys [ID|*]`.
pub(in super::super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let id = call.arg(0);
    let tickets = control.line.tickets();
    let files = tickets.files();
    if id.is_empty() {
        let lines = files.iter().enumerate().map(|(number, path)| format!("{number} ({})\n", path.display()));
        return CommandResponse::Data("# id (file)\n".to_owned() + &lines.collect::<String>());
    }
    if call.level < AccessLevel::Admin {
        return CommandResponse::error("Permission denied");
    }
    let wanted = find(&files, id);
    if id != "*" && wanted.is_none() {
        return CommandResponse::error("'show tls-keys' unable to locate referenced filename\n");
    }
    let mut out = String::from("# id secret\n");
    for (number, path) in files.iter().enumerate() {
        if id != "*" && wanted != Some(number) {
            continue;
        }
        out.push_str(&format!("# {number} ({})\n", path.display()));
        for (at, key) in tickets.shown(number).iter().enumerate() {
            out.push_str(&format!("{number}.{at} {}\n", key.as_str()));
        }
    }
    CommandResponse::Data(out)
}

/// `set ssl tls-key ID KEY`.
pub(in super::super) fn set(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let (id, key) = (call.arg(0), call.arg(1));
    if id.is_empty() || key.is_empty() {
        let text = "'set ssl tls-key' expects a filename and the new TLS key in base64 encoding.\n";
        return Err(CommandResponse::error(text));
    }
    let mut files = staging.line.tickets().files();
    let Some(number) = find(&files, id) else {
        return Err(CommandResponse::error("'set ssl tls-key' unable to locate referenced filename\n"));
    };
    match TicketKey::of_text(key) {
        Ok(key) => {
            let change = Change::TicketKey { file: files.swap_remove(number), key };
            Ok(Altering::new(change, CommandResponse::info("TLS ticket key updated!\n")))
        }
        Err(BadKey::Encoding) => {
            Err(CommandResponse::error("'set ssl tls-key' received invalid base64 encoded TLS key.\n"))
        }
        Err(BadKey::Length | BadKey::System) => {
            Err(CommandResponse::error("'set ssl tls-key' received a key of wrong size.\n"))
        }
    }
}

/// The place of a file, by `#N`, `N` or its name.
fn find(files: &[PathBuf], id: &str) -> Option<usize> {
    let number = id.strip_prefix('#').and_then(|number| number.parse().ok()).filter(|number| *number < files.len());
    number.or_else(|| files.iter().position(|path| path == Path::new(id)))
}
