//! Commands about what operators set at run time: `show overrides`, `save overrides`, `clear overrides`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use baton_model::{Author, Field, Object};
use nix::unistd::geteuid;

use super::altering::{Altering, Staging};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::overrides::{self, fragment};
use crate::reload::Change;

/// Writes a file, on a thread where that may take its time.
pub(super) type FileWork = Box<dyn FnOnce() -> CommandResponse + Send>;

/// `show overrides [json]`.
pub(super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let records = overrides::records(&control.line.registry().overrides());
    match call.arg(0) {
        "" => {
            let mut out = String::new();
            for one in &records {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{one} by {} at {}", one.by(), one.at());
            }
            for (title, count) in control.line.entry_counts() {
                let _ = writeln!(out, "{title}: {count} entries changed at run time");
            }
            CommandResponse::Data(out)
        }
        "json" => match serde_json::to_string(&records) {
            Ok(text) => CommandResponse::Data(text + "\n"),
            Err(error) => CommandResponse::error(error.to_string()),
        },
        _ => CommandResponse::error("'show overrides' expects 'json' or no argument."),
    }
}

/// `save overrides [<file>]`: without a file, the lines are the reply.
pub(super) fn save(control: &Control, call: &Call) -> Result<FileWork, CommandResponse> {
    let overrides = control.line.registry().overrides();
    let text = fragment::of(&overrides, control.line.asked());
    if call.arg(0).is_empty() {
        return Err(CommandResponse::Data(text));
    }
    let path = permitted(Path::new(call.arg(0)), &call.by, geteuid().as_raw()).map_err(CommandResponse::error)?;
    let count = overrides.len();
    Ok(Box::new(move || match fragment::write(&path, &text) {
        Ok(()) => CommandResponse::info(format!("{count} overrides written to {}.", path.display())),
        Err(reason) => CommandResponse::error(format!("{}: {reason}", path.display())),
    }))
}

/// A file is written with the rights of the process, so only for those who have them anyway.
fn permitted(path: &Path, by: &Author, runs_as: u32) -> Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err("'save overrides' expects an absolute path.".into());
    }
    match by.uid {
        Some(uid) if uid == 0 || uid == runs_as => Ok(path.to_owned()),
        Some(_) | None => Err(format!(
            "Only root and user {runs_as} can have a file written, over a unix socket: use 'save overrides' without a file and \
             redirect the output."
        )),
    }
}

/// `clear overrides [<backend>/<server>|<frontend>|global [<field>]]`.
pub(super) fn clear(_: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let object = match call.arg(0) {
        "" => None,
        words => Some(
            Object::of_words(words)
                .ok_or_else(|| CommandResponse::error("Require 'backend/server', a frontend, or 'global'."))?,
        ),
    };
    let field = match call.arg(1) {
        "" => None,
        word => Some(Field::of_word(word).ok_or_else(|| {
            let known = Field::ALL.map(Field::word).join(", ");
            CommandResponse::error(format!("Unknown field '{word}'; the fields are: {known}."))
        })?),
    };
    Ok(Change::OverridesCleared { object, field }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_for_those_with_the_rights_of_the_process() {
        let check = |path: &str, uid: Option<u32>, expect: bool| {
            let by = Author { uid, ..Author::default() };
            assert_eq!(permitted(Path::new(path), &by, 99).is_ok(), expect, "{path} {uid:?}");
        };
        check("/tmp/x", Some(0), true);
        check("/tmp/x", Some(99), true);
        check("/tmp/x", Some(7), false);
        check("/tmp/x", None, false);
        check("x", Some(0), false);
    }
}
