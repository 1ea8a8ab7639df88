//! `h1-case-adjust` and `h1-case-adjust-file`: the spelling of header names for bogus peers (configuration manual, 3.1).

use std::sync::Arc;

use baton_model::BadSpelling;

use crate::lower::{Call, GlobalDraft};

/// `h1-case-adjust FROM TO`.
pub(super) fn adjust(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.arg(1).is_empty() {
        return call.expects(0, "<from> and <to> as argument");
    }
    if call.at_most(2)
        && let Err(reason) = add(global, call.arg(0), call.arg(1))
    {
        call.wrong(1, reason);
    }
}

/// `h1-case-adjust-file FILE`: a name and its spelling in each line; what begins with `#` is a comment.
pub(super) fn adjust_file(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let Some(name) = call.only("<file> as argument") else { return };
    let path = call.context.path(&call.line.file, name);
    let content = match call.context.env.read(&path) {
        Ok(content) => content,
        Err(error) => {
            let message = format!("'{}' : error opening file '{}' ({error}).", call.name, path.display());
            return call.error(call.first, "cannot-open", message);
        }
    };
    for (number, line) in String::from_utf8_lossy(&content).lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let added = match words[..] {
            [] => continue,
            [from, to] => add(global, from, to),
            [_] => Err("expect <to>".into()),
            [_, _, extra, ..] => Err(format!("unexpected argument '{extra}'")),
        };
        if let Err(reason) = added {
            let message = format!("'{}' : '{}' : {reason} at line {}.", call.name, path.display(), number + 1);
            return call.wrong(0, message);
        }
    }
}

/// Adds a spelling. The text of HAProxy, its misspelling included, for programs that read it.
fn add(global: &mut GlobalDraft, from: &str, to: &str) -> Result<(), String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !to.bytes().all(is_name) {
        return Err(format!("'{to}' is not a header name"));
    }
    Arc::make_mut(&mut global.header_cases).add(from, to).map_err(|why| match why {
        BadSpelling::Other => "<from> and <to> must not differ execpt the case".into(),
        BadSpelling::Duplicate => format!("duplicate entry '{from}'"),
    })
}
