//! `show tls-keys` and `set ssl tls-key`. Who may see keys can read what clients of TLS 1.2 say: both ask for an admin.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::AccessLevel;
use baton_tls::tickets::{BadKey, TicketKey, TicketKeys};

use super::super::answer::Answer;
use super::super::session::Call;
use crate::control::Control;

/// `show tls-keys [ID|*]`.
pub(in super::super) fn show(control: &mut Control, call: &Call) -> Answer {
    let id = call.arg(0);
    let files = control.line.tickets.files();
    if id.is_empty() {
        let lines = files.iter().enumerate().map(|(number, (path, _))| format!("{number} ({})\n", path.display()));
        return Answer::Data("# id (file)\n".to_owned() + &lines.collect::<String>());
    }
    if call.level < AccessLevel::Admin {
        return Answer::error("Permission denied");
    }
    let wanted = find(&files, id);
    if id != "*" && wanted.is_none() {
        return Answer::error("'show tls-keys' unable to locate referenced filename\n");
    }
    let mut out = String::from("# id secret\n");
    for (number, (path, keys)) in files.iter().enumerate() {
        if id != "*" && wanted != Some(number) {
            continue;
        }
        out.push_str(&format!("# {number} ({})\n", path.display()));
        for (at, key) in keys.shown().iter().enumerate() {
            out.push_str(&format!("{number}.{at} {}\n", key.as_str()));
        }
    }
    Answer::Data(out)
}

/// `set ssl tls-key ID KEY`.
pub(in super::super) fn set(control: &mut Control, call: &Call) -> Answer {
    let (id, key) = (call.arg(0), call.arg(1));
    if id.is_empty() || key.is_empty() {
        return Answer::error("'set ssl tls-key' expects a filename and the new TLS key in base64 encoding.\n");
    }
    let files = control.line.tickets.files();
    let Some(number) = find(&files, id) else {
        return Answer::error("'set ssl tls-key' unable to locate referenced filename\n");
    };
    match TicketKey::of_text(key).and_then(|key| files[number].1.push(key)) {
        Ok(()) => Answer::info("TLS ticket key updated!\n"),
        Err(BadKey::Encoding) => Answer::error("'set ssl tls-key' received invalid base64 encoded TLS key.\n"),
        Err(BadKey::Length | BadKey::System) => Answer::error("'set ssl tls-key' received a key of wrong size.\n"),
    }
}

/// The place of a file, by `#N`, `N` or its name.
fn find(files: &[(PathBuf, Arc<TicketKeys>)], id: &str) -> Option<usize> {
    let number = id.strip_prefix('#').and_then(|number| number.parse().ok()).filter(|number| *number < files.len());
    number.or_else(|| files.iter().position(|(path, _)| path == Path::new(id)))
}
