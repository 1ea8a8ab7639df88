//! `show`, `new`, `set`, `commit`, `abort`, `del` and `dump ssl cert`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use baton_tls::store::{Entry, Transaction};
use baton_tls::{CertificateError, OcspResponse, Parts};

use super::super::altering::{Altering, Staging};
use super::{EMPTY_MAX, facts, ocsp, ongoing, servers, too_many};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;

/// What a payload is, by the suffix of the name it is sent for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Bundle,
    Key,
    Issuer,
    Ocsp,
    Timestamps,
}

/// `show ssl cert [NAME]`; `*NAME` is what was set and not committed.
pub(in super::super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let name = call.arg(0);
    let pending = &control.certificates.pending;
    if name.is_empty() {
        let mut out = String::new();
        if let Some((path, _)) = &pending.certificate {
            out.push_str(&format!("# transaction\n*{}\n", path.display()));
        }
        let mut names: Vec<PathBuf> = control.line.store().entries().iter().map(|entry| entry.path().into()).collect();
        names.extend(pending.empty.iter().cloned());
        names.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
        if !names.is_empty() {
            out.push_str("# filename\n");
        }
        names.iter().for_each(|name| out.push_str(&format!("{}\n", name.display())));
        return CommandResponse::Data(out);
    }
    if let Some(set) = name.strip_prefix('*') {
        return match &pending.certificate {
            Some((path, parts)) if path.as_os_str() == set => CommandResponse::Data(uncommitted(path, parts)),
            _ => unknown(),
        };
    }
    if pending.empty.contains(Path::new(name)) {
        return CommandResponse::Data(format!("Filename: {name}\nStatus: Empty\nOCSP Response Key: \n"));
    }
    if let Some(entry) = control.line.store().entry(Path::new(name)) {
        return CommandResponse::Data(details(control, &entry));
    }
    let response = name.strip_suffix(".ocsp").and_then(|name| control.line.store().entry(Path::new(name)));
    match response.and_then(|entry| OcspResponse::read(&entry.certificate().ocsp()?).ok()) {
        Some(response) => CommandResponse::Data(ocsp::text(&response)),
        None => unknown(),
    }
}

fn unknown() -> CommandResponse {
    CommandResponse::error("Can't display the certificate: Not found or the certificate is a bundle!\n")
}

fn details(control: &Control, entry: &Arc<Entry>) -> String {
    let certificate = entry.certificate();
    let described = certificate.describe();
    let status = if control.line.store().is_used(entry) { "Used" } else { "Unused" };
    let mut out = format!("Filename: {}\nStatus: {status}\n{}", entry.path().display(), facts(&described));
    for (subject, issuer) in &described.chain {
        out.push_str(&format!("Chain Subject: {subject}\nChain Issuer: {issuer}\n"));
    }
    let response = certificate.ocsp().and_then(|response| OcspResponse::read(&response).ok());
    out.push_str(&format!(
        "OCSP Response Key: {}\n",
        response.map(|response| ocsp::key(&response)).unwrap_or_default()
    ));
    if let Some(problem) = entry.problem() {
        out.push_str(&format!("Problem: {problem}: {}\n", problem.remedy()));
    }
    out
}

fn uncommitted(path: &Path, parts: &Parts) -> String {
    let described = parts.describe();
    let mut out = format!("Filename: *{}\nStatus: Unused\n", path.display());
    if let Some(described) = described {
        out.push_str(&facts(&described));
        for (subject, issuer) in &described.chain {
            out.push_str(&format!("Chain Subject: {subject}\nChain Issuer: {issuer}\n"));
        }
    }
    out + "OCSP Response Key: \n"
}

/// `new ssl cert NAME`.
pub(in super::super) fn create(staging: &mut Staging<'_>, call: &Call) -> CommandResponse {
    let name = call.arg(0);
    if name.is_empty() {
        return CommandResponse::error("'new ssl cert' expects a filename\n");
    }
    let path = PathBuf::from(name);
    let pending = &mut *staging.pending;
    if staging.line.store().entry(&path).is_some() || pending.empty.contains(&path) {
        return CommandResponse::error(format!("Certificate '{name}' already exists!\n"));
    }
    if pending.empty.len() >= EMPTY_MAX {
        return too_many();
    }
    pending.empty.insert(path);
    CommandResponse::info(format!("New empty certificate store '{name}'!\n"))
}

/// `set ssl cert NAME <<`: the certificate, or the part that a suffix names.
pub(in super::super) fn set(staging: &mut Staging<'_>, call: &Call) -> CommandResponse {
    let name = call.arg(0);
    let (false, Some(payload)) = (name.is_empty(), call.payload.as_deref().filter(|payload| !payload.is_empty()))
    else {
        return CommandResponse::error("'set ssl cert expects a filename and a certificate as a payload\n");
    };
    match try_set(staging, name, payload) {
        Ok(answer) => answer,
        Err(reason) => CommandResponse::error(format!("{reason}Can't update {name}!\n")),
    }
}

fn try_set(staging: &mut Staging<'_>, name: &str, payload: &[u8]) -> Result<CommandResponse, String> {
    let store = staging.line.store();
    let pending = &mut *staging.pending;
    let is_known = |path: &Path| store.entry(path).is_some() || pending.empty.contains(path);
    let Some((path, part)) = meaning(name, is_known) else {
        return Err("Can't replace a certificate which is not referenced by the configuration!\n".into());
    };
    let (mut parts, word) = match &pending.certificate {
        Some((about, _)) if *about != path => return Err(ongoing(about, "set", &path.display().to_string())),
        Some((_, parts)) => (parts.clone(), "updated"),
        None => (store.entry(&path).map(|entry| Parts::of(&entry.certificate())).unwrap_or_default(), "created"),
    };
    let of = path.display();
    let load = "Can't load the payload\n";
    match part {
        Part::Bundle => parts
            .replace_bundle(payload, store.chains())
            .map_err(|_| format!("unable to load certificate from file '{of}'.\n{load}"))?,
        Part::Key => {
            parts.read_key(payload).map_err(|_| format!("unable to load private key from file '{of}'.\n{load}"))?;
        }
        Part::Issuer => {
            let read = parts.read_issuer(payload, store.chains());
            read.map_err(|_| format!("'{of}' cannot be read or parsed'.\n{load}"))?;
        }
        Part::Ocsp => {
            let response = decode(payload).ok_or(load)?;
            parts.set_ocsp(&response).map_err(|_| load)?;
        }
        Part::Timestamps => parts.set_timestamps(payload).map_err(|_| load)?,
    }
    let answer = format!("Transaction {word} for certificate {of}!\n");
    pending.certificate = Some((path, parts));
    Ok(CommandResponse::info(answer))
}

/// Which certificate a name means, and which part of it.
fn meaning(name: &str, is_known: impl Fn(&Path) -> bool) -> Option<(PathBuf, Part)> {
    let path = Path::new(name);
    if is_known(path) {
        return Some((path.into(), Part::Bundle));
    }
    let part = match path.extension().and_then(OsStr::to_str)? {
        "key" => Part::Key,
        "issuer" => Part::Issuer,
        "ocsp" => Part::Ocsp,
        "sctl" => Part::Timestamps,
        _ => return None,
    };
    // With ssl-load-extra-del-ext the other files have a name of their own, without .crt.
    let base = path.with_extension("");
    let candidates = [base.clone(), with_crt(&base)];
    candidates.into_iter().find(|base| is_known(base)).map(|base| (base, part))
}

fn with_crt(base: &Path) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(".crt");
    name.into()
}

/// Base64, in however many lines.
pub(super) fn decode(payload: &[u8]) -> Option<Vec<u8>> {
    let text: Vec<u8> = payload.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64_STANDARD.decode(text).ok()
}

/// `commit ssl cert NAME`.
pub(in super::super) fn commit(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let name = call.arg(0);
    if name.is_empty() {
        return Err(CommandResponse::error("'commit ssl cert expects a filename\n"));
    }
    match try_commit(staging, name) {
        Ok((transaction, uses)) => {
            let done = CommandResponse::info(format!("Committing {name}{}\nSuccess!\n", ".".repeat(uses)));
            Ok(Altering::new(Change::Certificates(transaction), done))
        }
        Err(reason) => Err(CommandResponse::error(format!("{reason}Can't commit {name}!\n"))),
    }
}

/// What puts it in use, and in how many places it is used.
fn try_commit(staging: &mut Staging<'_>, name: &str) -> Result<(Transaction, usize), String> {
    let store = staging.line.store();
    let pending = &mut *staging.pending;
    let Some((path, parts)) = &pending.certificate else { return Err("No ongoing transaction! !\n".into()) };
    if path.as_os_str() != name {
        return Err(ongoing(path, "set", name));
    }
    let certificate = parts.build(store.chains()).and_then(|certificate| {
        certificate.check_signer()?;
        Ok(certificate)
    });
    let certificate = certificate.map_err(|fault| match fault {
        CertificateError::NoKey | CertificateError::NoCertificate => {
            "The transaction must contain at least a certificate and a private key!\n".to_owned()
        }
        CertificateError::Mismatch(_) => {
            format!("inconsistencies between private key and certificate loaded '{name}'.\n")
        }
        other => format!("certificate '{name}' {other}: {}.\n", other.remedy()),
    })?;
    let now = i64::try_from(crate::tickets::wall_seconds()).unwrap_or(i64::MAX);
    let path = path.clone();
    let mut transaction = store.transaction();
    transaction.set(&path, certificate.without_stale_ocsp(now));
    pending.certificate = None;
    pending.empty.remove(&path);
    let of_servers = servers(staging.line.model(), |tls| tls.crt.as_deref() == Some(&*path));
    let uses = store.entry(&path).map_or(0, |entry| store.uses(&entry)) + of_servers;
    Ok((transaction, uses))
}

/// `abort ssl cert NAME`.
pub(in super::super) fn abort(staging: &mut Staging<'_>, call: &Call) -> CommandResponse {
    let name = call.arg(0);
    let pending = &mut *staging.pending;
    match &pending.certificate {
        _ if name.is_empty() => CommandResponse::error("'abort ssl cert' expects a filename\n"),
        None => CommandResponse::error("No ongoing transaction!\n"),
        Some((about, _)) if about.as_os_str() != name => {
            CommandResponse::error(ongoing(about, "abort a transaction for", name))
        }
        Some(_) => {
            pending.certificate = None;
            CommandResponse::info(format!("Transaction aborted for certificate '{name}'!\n"))
        }
    }
}

/// `del ssl cert NAME`.
pub(in super::super) fn delete(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let name = call.arg(0);
    if name.is_empty() {
        return Err(CommandResponse::error("'del ssl cert' expects a certificate name\n"));
    }
    let deleted = CommandResponse::info(format!("Certificate '{name}' deleted!\n"));
    if staging.pending.empty.remove(Path::new(name)) {
        return Err(deleted);
    }
    let store = staging.line.store();
    let reason = match store.entry(Path::new(name)) {
        None => "doesn't exist!",
        Some(entry) if store.is_used(&entry) => "in use, can't be deleted!",
        Some(entry) => {
            drop(entry);
            let mut transaction = store.transaction();
            match transaction.remove(Path::new(name)) {
                Ok(()) => return Ok(Altering::new(Change::Certificates(transaction), deleted)),
                Err(_) => "in use, can't be deleted!",
            }
        }
    };
    Err(CommandResponse::error(format!("Can't remove the certificate: certificate '{name}' {reason}\n")))
}

/// `dump ssl cert NAME`: as a file, with its key.
pub(in super::super) fn dump(control: &Control, call: &Call) -> CommandResponse {
    match control.line.store().entry(Path::new(call.arg(0))) {
        Some(entry) => CommandResponse::Data(entry.certificate().to_pem().to_string()),
        None => CommandResponse::error("Can't dump the certificate: Not found!\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_name_parts() {
        let known = ["a.pem", "b.crt", "c.key"];
        let check = |name: &str, expect: Option<(&str, Part)>| {
            let found = meaning(name, |path| known.iter().any(|known| Path::new(known) == path));
            assert_eq!(found, expect.map(|(path, part)| (path.into(), part)), "{name}");
        };
        check("a.pem", Some(("a.pem", Part::Bundle)));
        check("a.pem.key", Some(("a.pem", Part::Key)));
        check("a.pem.ocsp", Some(("a.pem", Part::Ocsp)));
        check("b.issuer", Some(("b.crt", Part::Issuer)));
        check("c.key", Some(("c.key", Part::Bundle)));
        check("a.pem.txt", None);
        check("x.pem.key", None);
    }
}
