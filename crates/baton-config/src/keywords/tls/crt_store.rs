//! `crt-store` sections (HAProxy 3.0) and `ssl-f-use` lines (HAProxy 3.1): where the parts of a certificate are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{CrtLine, CrtLoad, CrtStore};
use baton_rules::nearest;

use super::{ParameterNote, bind, options};
use crate::diagnostic::Severity;
use crate::lower::{Call, Context, Draft, Prefix};
use crate::syntax::{Line, Section};

/// Words of a `load` line. `ocsp-update` belongs there, too.
const PARTS: [&str; 6] = ["crt", "key", "ocsp", "issuer", "sctl", "alias"];

/// Reads a `crt-store` section.
pub(crate) fn section(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    context.limit_arguments(head, 1);
    let name = head.word(1);
    if context.tls.stores.iter().any(|store| store.name == name && !name.is_empty()) {
        let message = format!("duplicate crt-store '{name}'");
        context.report.add(head.diagnostic(Severity::Alert, "duplicate-name", 1, message));
    }
    let (mut crt_base, mut key_base) = (None, None);
    let mut loads = Vec::new();
    for line in &section.lines {
        let mut call = Call::new(line, 1, Prefix::None, "load", context);
        match line.word(0) {
            "crt-base" => crt_base = base("crt-base", &mut call).or(crt_base),
            "key-base" => key_base = base("key-base", &mut call).or(key_base),
            "load" => loads.extend(load(&mut call, crt_base.as_deref(), key_base.as_deref())),
            word => {
                let guess = nearest(word, ["crt-base", "key-base", "load"]);
                let guess = guess.map(|name| format!("; did you mean '{name}' maybe ?")).unwrap_or_default();
                call.error(0, "unknown-keyword", format!("unknown keyword '{word}' in 'crt-store' section{guess}"));
            }
        }
    }
    add(context, name, loads);
}

/// Puts loads into a store, the one without a name may be written in several places.
fn add(context: &mut Context<'_>, name: &str, loads: Vec<CrtLoad>) {
    match context.tls.stores.iter_mut().find(|store| store.name == name) {
        Some(store) => store.loads.extend(loads),
        None => context.tls.stores.push(CrtStore { name: name.into(), loads }),
    }
}

fn base(name: &'static str, call: &mut Call<'_, '_>) -> Option<PathBuf> {
    call.name = name;
    call.only("a directory path as an argument").map(PathBuf::from)
}

fn load(call: &mut Call<'_, '_>, crt_base: Option<&Path>, key_base: Option<&Path>) -> Option<CrtLoad> {
    let mut load = CrtLoad { source: call.line.source(), ..CrtLoad::default() };
    let mut at = call.first;
    while at < call.line.words.len() {
        if !part(&mut load, call, at, crt_base, key_base) {
            let word = call.line.word(at);
            let guess = nearest(word, PARTS).map(|name| format!("; did you mean '{name}' maybe ?"));
            let message = format!("'load' : unknown keyword '{word}'{}", guess.unwrap_or_default());
            call.error(at, "unknown-keyword", message);
            return None;
        }
        at += 2;
    }
    if load.crt.as_os_str().is_empty() {
        call.expects(0, "a certificate: 'crt FILE'");
        return None;
    }
    Some(load)
}

/// One part of a certificate. False when the word at `at` is none.
fn part(
    load: &mut CrtLoad,
    call: &mut Call<'_, '_>,
    at: usize,
    crt_base: Option<&Path>,
    key_base: Option<&Path>,
) -> bool {
    let (word, value) = (call.line.word(at), call.line.word(at + 1));
    if !PARTS.contains(&word) && word != "ocsp-update" {
        return false;
    }
    if value.is_empty() {
        call.error(at + 1, "missing-argument", format!("'{word}' : missing argument"));
        return true;
    }
    let crt = || {
        let base = crt_base.or(call.context.tls.bases.crt.as_deref());
        call.context.path(&call.line.file, base.map_or(PathBuf::from(value), |base| base.join(value)))
    };
    match word {
        "crt" => load.crt = crt(),
        "ocsp" => load.ocsp = Some(crt()),
        "issuer" => load.issuer = Some(crt()),
        "sctl" => load.sctl = Some(crt()),
        "alias" => load.alias = Some(value.into()),
        "key" => {
            let base = key_base.or(call.context.tls.bases.key.as_deref());
            let path = base.map_or(PathBuf::from(value), |base| base.join(value));
            load.key = Some(call.context.path(&call.line.file, path));
        }
        _ if value == "on" => {
            let text = "'ocsp-update' has no effect: OCSP responses come from files and the runtime API";
            call.notice("no-effect", text.into());
        }
        _ => {}
    }
    true
}

/// `ssl-f-use`: a certificate for all encrypted addresses of the frontend.
pub(crate) fn use_in_frontend(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut certificate = CrtLine { source: call.line.source(), ..CrtLine::default() };
    let mut load = CrtLoad { source: call.line.source(), ..CrtLoad::default() };
    let mut at = call.first;
    while at < call.line.words.len() {
        let word = call.line.word(at);
        if let Some(row) = options::find(word) {
            let value = if row.args > 0 { call.line.word(at + 1) } else { "" };
            if row.args > 0 && value.is_empty() {
                call.error(at + 1, "missing-argument", format!("'{word}' : missing {}", bind::missing(word)));
                return;
            }
            let applied = (row.apply)(&mut certificate.options, value, &call.context.places(&call.line.file));
            match applied {
                Ok(ParameterNote::Nothing) => {}
                Ok(ParameterNote::Notice(message)) => call.notice("no-effect", format!("'{word}' : {message}")),
                Ok(ParameterNote::Warning(message)) => {
                    call.warn(at + row.args, "left-out", format!("'{word}' : {message}"))
                }
                Err(fault) => return call.error(at + row.args, "bad-value", format!("'{word}' : {}", fault.message)),
            }
            at += 1 + row.args;
            continue;
        }
        if word == "alias" || !part(&mut load, call, at, None, None) {
            let known = options::words().chain(PARTS);
            let guess = nearest(word, known).map(|name| format!("; did you mean '{name}' maybe ?"));
            let message = format!("'ssl-f-use' : unknown keyword '{word}'{}", guess.unwrap_or_default());
            return call.error(at, "unknown-keyword", message);
        }
        at += 2;
    }
    if load.crt.as_os_str().is_empty() {
        return call.expects(0, "a certificate: 'crt FILE'");
    }
    certificate.crt.clone_from(&load.crt);
    if load.key.is_some() || load.ocsp.is_some() || load.issuer.is_some() || load.sctl.is_some() {
        add(call.context, "", vec![load]);
    }
    draft.uses.push(certificate);
}

/// Whether `@STORE/NAME` is in one of the stores: by its alias, or by its file's name there.
pub(super) fn has(stores: &[Arc<CrtStore>], reference: &str) -> bool {
    let Some((store, name)) = reference.trim_start_matches('@').split_once('/') else { return false };
    let loads = stores.iter().filter(|known| known.name == store).flat_map(|known| &known.loads);
    loads.into_iter().any(|load| load.alias.as_deref() == Some(name) || load.crt.ends_with(name))
}

/// Every `@NAME/ALIAS` and `@NAME/FILE` that there is.
pub(super) fn references(stores: &[Arc<CrtStore>]) -> Vec<String> {
    let named = stores.iter().flat_map(|store| store.loads.iter().map(|load| (&store.name, load)));
    named
        .map(|(store, load)| match &load.alias {
            Some(alias) => format!("@{store}/{alias}"),
            None => format!("@{store}/{}", load.crt.file_name().unwrap_or_default().to_string_lossy()),
        })
        .collect()
}

/// For complaints: the line, if there is one.
pub(super) fn line<'l>(lines: &'l [Line], number: u32, file: &str) -> Option<&'l Line> {
    lines.iter().find(|line| line.number == number && &*line.file == file)
}
