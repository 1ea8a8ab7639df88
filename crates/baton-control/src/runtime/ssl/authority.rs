//! `show`, `new`, `set`, `commit`, `abort` and `del` of `ssl ca-file` and `ssl crl-file`: two kinds of the same thing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{CrtSource, Model, ServerTls, TlsOptions};
use baton_tls::authorities::{Authority, AuthorityFile};
use baton_tls::{Description, RevocationList};

use super::super::altering::{Altering, Staging};
use super::{EMPTY_MAX, facts, ongoing, servers, too_many};
use crate::certificates::{Pending, PendingAuthorities};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, ChangeLine};

/// What the two kinds do not have in common.
pub(in super::super) struct Kind {
    /// `ca-file`.
    word: &'static str,
    /// In `show` and `del`.
    name: &'static str,
    /// In `set`: created.
    short: &'static str,
    /// In `set`: expected.
    payload: &'static str,
    pending: fn(&Pending) -> &PendingAuthorities,
    pending_mut: fn(&mut Pending) -> &mut PendingAuthorities,
    /// How many of its things a file has.
    count: fn(&Authority) -> usize,
    /// The things themselves, as text.
    things: fn(&Authority) -> Vec<String>,
}

/// `ca-file`.
pub(in super::super) static AUTHORITIES: Kind = Kind {
    word: "ca-file",
    name: "CA file",
    short: "CA",
    payload: "CAs",
    pending: |pending| &pending.authorities,
    pending_mut: |pending| &mut pending.authorities,
    count: |authority| authority.certificates.len(),
    things: certificates,
};

/// `crl-file`.
pub(in super::super) static REVOCATIONS: Kind = Kind {
    word: "crl-file",
    name: "CRL file",
    short: "CRL",
    payload: "CRLs",
    pending: |pending| &pending.revocations,
    pending_mut: |pending| &mut pending.revocations,
    count: |authority| authority.lists.len(),
    things: lists,
};

fn certificates(authority: &Authority) -> Vec<String> {
    let described = authority.certificates.iter().map(|der| Description::of(der));
    described.map(|described| described.map(|described| facts(&described)).unwrap_or_default()).collect()
}

fn lists(authority: &Authority) -> Vec<String> {
    authority
        .lists
        .iter()
        .map(|der| RevocationList::read(der).map(|list| list_facts(&list)).unwrap_or_default())
        .collect()
}

fn list_facts(list: &RevocationList) -> String {
    let next = list.next_update.as_deref().unwrap_or("NONE");
    let mut out = format!(
        "Version {}\nSignature Algorithm: {}\nIssuer: {}\nLast Update: {}\nNext Update: {next}\n",
        list.version, list.algorithm, list.issuer, list.last_update
    );
    match list.revoked.is_empty() {
        true => out.push_str("No Revoked Certificates.\n"),
        false => out.push_str("Revoked Certificates:\n"),
    }
    for (serial, since) in &list.revoked {
        out.push_str(&format!("    Serial Number: {serial}\n        Revocation Date: {since}\n"));
    }
    out
}

impl Kind {
    /// Files of this kind that are in use or were committed, by name.
    fn files(&self, line: &ChangeLine) -> Vec<Arc<AuthorityFile>> {
        let all = line.authority_files();
        all.into_iter().filter(|file| (self.count)(&file.content()) > 0).collect()
    }

    fn find(&self, line: &ChangeLine, name: &str) -> Option<Arc<AuthorityFile>> {
        let file = line.authority_file(Path::new(name))?;
        ((self.count)(&file.content()) > 0).then_some(file)
    }

    fn line(&self, path: &Path, content: &Authority) -> String {
        match self.word {
            "ca-file" => format!("{} - {} certificate(s)\n", path.display(), content.certificates.len()),
            _ => format!("{}\n", path.display()),
        }
    }

    fn title(&self) -> &'static str {
        match self.word {
            "ca-file" => "Certificate",
            _ => "Certificate Revocation List",
        }
    }
}

/// `show ssl ca-file [NAME[:NUMBER]]`.
pub(in super::super) fn show(control: &Control, call: &Call, kind: &Kind) -> CommandResponse {
    let name = call.arg(0);
    if name.is_empty() {
        let files = kind.files(&control.line);
        let pending = (kind.pending)(&control.certificates.pending);
        let mut out = String::new();
        if let Some((path, content)) = &pending.set {
            out.push_str(&format!("# transaction\n*{}", kind.line(path, content)));
        }
        out.push_str("# filename\n");
        let mut lines: Vec<String> = files.iter().map(|file| kind.line(file.path(), &file.content())).collect();
        lines.extend(pending.empty.iter().map(|path| kind.line(path, &Authority::default())));
        lines.sort();
        return CommandResponse::Data(out + &lines.concat());
    }
    let numbered = name.rsplit_once(':').and_then(|(name, number)| Some((name, number.parse::<usize>().ok()?)));
    let (name, number) = numbered.map_or((name, None), |(name, number)| (name, Some(number)));
    let found = match name.strip_prefix('*') {
        Some(set) => {
            let pending = &(kind.pending)(&control.certificates.pending).set;
            let set = pending.as_ref().filter(|(path, _)| path.as_os_str() == set);
            set.map(|(_, content)| (content.clone(), "Unused"))
        }
        None if (kind.pending)(&control.certificates.pending).empty.contains(Path::new(name)) => {
            Some((Arc::default(), "Empty"))
        }
        None => kind.find(&control.line, name).map(|file| {
            let status = if is_used(&control.line, &file) { "Used" } else { "Unused" };
            (file.content(), status)
        }),
    };
    let Some((content, status)) = found else {
        return CommandResponse::error(format!("Can't display the {} : Not found!\n", kind.name));
    };
    let things = (kind.things)(&content);
    if kind.word == "ca-file" && number.map_or(things.is_empty(), |number| number == 0 || number > things.len()) {
        // As HAProxy: nothing of nothing.
        return CommandResponse::Done;
    }
    let mut out = format!("Filename: {name}\nStatus: {status}\n");
    for (at, thing) in (1..).zip(things) {
        if number.is_none_or(|number| number == at) {
            // A blank, for an empty line would end the answer.
            out.push_str(&format!(" \n{} #{at}:\n{thing}", kind.title()));
        }
    }
    CommandResponse::Data(out)
}

/// `new ssl ca-file NAME`.
pub(in super::super) fn create(staging: &mut Staging<'_>, call: &Call, kind: &Kind) -> CommandResponse {
    let name = call.arg(0);
    if name.is_empty() {
        return CommandResponse::error(format!("'new ssl {}' expects a filename\n", kind.word));
    }
    let is_known = staging.line.authority_file(Path::new(name)).is_some();
    let empty = &mut (kind.pending_mut)(staging.pending).empty;
    if is_known || empty.contains(Path::new(name)) {
        return CommandResponse::error(format!("{} '{name}' already exists!\n", kind.name));
    }
    if empty.len() >= EMPTY_MAX {
        return too_many();
    }
    empty.insert(name.into());
    CommandResponse::info(format!("New {} created '{name}'!\n", kind.name))
}

/// `set ssl ca-file NAME <<`.
pub(in super::super) fn set(staging: &mut Staging<'_>, call: &Call, kind: &Kind) -> CommandResponse {
    let name = call.arg(0);
    let (false, Some(payload)) = (name.is_empty(), call.payload.as_deref().filter(|payload| !payload.is_empty()))
    else {
        let (word, payload) = (kind.word, kind.payload);
        return CommandResponse::error(format!("'set ssl {word} expects a filename and {payload} as a payload\n"));
    };
    let cannot = |reason: String| CommandResponse::error(format!("{reason}Can't update {name}!\n"));
    let is_known = kind.find(staging.line, name).is_some();
    let pending = (kind.pending_mut)(staging.pending);
    if !is_known && !pending.empty.contains(Path::new(name)) {
        return cannot(format!("Can't replace a {} which is not referenced by the configuration!\n", kind.name));
    }
    let word = match &pending.set {
        Some((about, _)) if about.as_os_str() != name => return cannot(ongoing(about, "set", name)),
        Some(_) => "updated",
        None => "created",
    };
    match Authority::read(payload) {
        Ok(content) if (kind.count)(&content) > 0 => {
            pending.set = Some((name.into(), Arc::new(content)));
            CommandResponse::info(format!("transaction {word} for {} {name}!\n", kind.short))
        }
        Ok(_) | Err(_) => cannot("Invalid payload\n".into()),
    }
}

/// `commit ssl ca-file NAME`.
pub(in super::super) fn commit(
    staging: &mut Staging<'_>,
    call: &Call,
    kind: &Kind,
) -> Result<Altering, CommandResponse> {
    let name = call.arg(0);
    if name.is_empty() {
        return Err(CommandResponse::error(format!("'commit ssl {} expects a filename\n", kind.word)));
    }
    let uses = uses(staging.line.model(), Path::new(name));
    let pending = (kind.pending_mut)(staging.pending);
    let cannot = |reason: String| CommandResponse::error(format!("{reason}Can't commit {name}!\n"));
    match pending.set.take() {
        None => Err(cannot("No ongoing transaction! !\n".into())),
        Some((about, content)) if about.as_os_str() != name => {
            let answer = cannot(ongoing(&about, "set", name));
            pending.set = Some((about, content));
            Err(answer)
        }
        Some((path, content)) => match Arc::try_unwrap(content) {
            Ok(content) => {
                pending.empty.remove(&path);
                let done = CommandResponse::info(format!("Committing {name}{}\nSuccess!\n", ".".repeat(uses)));
                Ok(Altering::new(Change::Authority { path, content: Some(content) }, done))
            }
            Err(content) => {
                pending.set = Some((path, content));
                Err(cannot("Another command is reading it: try again.\n".into()))
            }
        },
    }
}

/// `abort ssl ca-file NAME`.
pub(in super::super) fn abort(staging: &mut Staging<'_>, call: &Call, kind: &Kind) -> CommandResponse {
    let name = call.arg(0);
    let pending = (kind.pending_mut)(staging.pending);
    match &pending.set {
        _ if name.is_empty() => CommandResponse::error(format!("'abort ssl {}' expects a filename\n", kind.word)),
        None => CommandResponse::error("No ongoing transaction!\n"),
        Some((about, _)) if about.as_os_str() != name => {
            CommandResponse::error(ongoing(about, "abort a transaction for", name))
        }
        Some(_) => {
            pending.set = None;
            CommandResponse::info(format!("Transaction aborted for certificate '{name}'!\n"))
        }
    }
}

/// `del ssl ca-file NAME`.
pub(in super::super) fn delete(
    staging: &mut Staging<'_>,
    call: &Call,
    kind: &Kind,
) -> Result<Altering, CommandResponse> {
    let name = call.arg(0);
    if name.is_empty() {
        let word = if kind.word == "ca-file" { "CA" } else { "CRL" };
        return Err(CommandResponse::error(format!("'del ssl {}' expects a {word} file name\n", kind.word)));
    }
    let deleted = CommandResponse::info(format!("{} '{name}' deleted!\n", kind.name));
    if (kind.pending_mut)(staging.pending).empty.remove(Path::new(name)) {
        return Err(deleted);
    }
    let reason = match kind.find(staging.line, name) {
        None => "doesn't exist!",
        Some(file) if is_used(staging.line, &file) => "in use, can't be deleted!",
        Some(_) => return Ok(Altering::new(Change::Authority { path: name.into(), content: None }, deleted)),
    };
    Err(CommandResponse::error(format!("Can't remove the {}: {} '{name}' {reason}\n", kind.name, kind.name)))
}

/// Whether the configuration names a file, or somebody checks clients by it: besides the list of all and us.
fn is_used(line: &ChangeLine, file: &Arc<AuthorityFile>) -> bool {
    Arc::strong_count(file) > 2 || uses(line.model(), file.path()) > 0
}

/// In how many lines a configuration names a file.
fn uses(model: &Model, path: &Path) -> usize {
    let is_it = |own: &Option<PathBuf>| own.as_deref() == Some(path);
    let of_options =
        |options: &TlsOptions| is_it(&options.ca_file) || is_it(&options.ca_verify_file) || is_it(&options.crl_file);
    let binds = model.with_peers().flat_map(|proxy| &proxy.binds).filter_map(|bind| bind.options.tls.as_ref());
    let of_bind = |tls: &Arc<baton_model::BindTls>| {
        let lines = tls.certificates.iter().flat_map(|source| match source {
            CrtSource::List { lines, .. } => &lines[..],
            CrtSource::Line(line) => std::slice::from_ref(line),
            CrtSource::Crt { .. } => &[],
        });
        // A line of a list may say otherwise; what it does not say is the address's.
        let own = lines.filter(|line| of_options(&line.options)).count();
        own + if of_options(&tls.options) { tls.certificates.len() } else { 0 }
    };
    let of_server = |tls: &ServerTls| is_it(&tls.ca_file) || is_it(&tls.crl_file);
    binds.map(of_bind).sum::<usize>() + servers(model, of_server)
}
