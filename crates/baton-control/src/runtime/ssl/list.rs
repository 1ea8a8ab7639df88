//! `show`, `add` and `del ssl crt-list`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_config::crt_list_line;
use baton_model::{Bind, ClientVerify, CrtLine, CrtSource, Model, Source, TlsOptions, TlsVersion};
use baton_tls::Acceptor;
use baton_tls::store::{ADDED, ListLine, Transaction};

use super::super::altering::{Altering, Staging};
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::{Change, ChangeLine};

/// `show ssl crt-list [-n] [LIST]`.
pub(in super::super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let has_numbers = call.arg(0) == "-n";
    let name = call.arg(usize::from(has_numbers));
    let store = control.line.store();
    let lists = store.lists();
    if name.is_empty() && has_numbers {
        return CommandResponse::error("'show ssl crt-list -n' expects a filename or a directory\n");
    }
    if name.is_empty() {
        return CommandResponse::Data(lists.iter().map(|(path, _)| format!("{}\n", plain(path))).collect());
    }
    let Some((path, is_directory)) = lists.iter().find(|(path, _)| path == Path::new(name)) else {
        return CommandResponse::error("didn't find the specified filename\n");
    };
    let mut out = format!("# {}\n", plain(path));
    let last = last_line(control.line.model(), path);
    for line in store.lines(path) {
        let number = (has_numbers && !is_directory).then(|| number(&line, last));
        out.push_str(&shown(&line, number));
    }
    CommandResponse::Data(out)
}

/// A directory may be named with a slash behind it.
fn plain(path: &Path) -> String {
    let text = path.display().to_string();
    match text.trim_end_matches('/') {
        "" => text,
        trimmed => trimmed.to_owned(),
    }
}

/// The number of a list's last line in its file.
fn last_line(model: &Model, list: &Path) -> u32 {
    let binds = model.with_peers().flat_map(|proxy| &proxy.binds).filter_map(|bind| bind.options.tls.as_ref());
    let lines = binds.flat_map(|tls| &tls.certificates).filter_map(|source| match source {
        CrtSource::List { path, lines } if path == list => lines.last(),
        _ => None,
    });
    lines.map(|line| line.source.line).max().unwrap_or_default()
}

/// The number by which a line is known to operators: added ones come behind those of the file.
fn number(line: &ListLine, last: u32) -> u32 {
    if line.number > ADDED { line.number - ADDED + last } else { line.number }
}

fn shown(line: &ListLine, number: Option<u32>) -> String {
    let mut out = line.entry.path().display().to_string();
    if let Some(number) = number {
        out.push_str(&format!(":{number}"));
    }
    let options = options(&line.options);
    if !options.is_empty() {
        out.push_str(&format!(" [{}]", options.join(" ")));
    }
    for filter in line.filters.iter().flat_map(|filters| filters.iter()) {
        out.push(' ');
        out.push_str(filter);
    }
    out.push('\n');
    out
}

/// Settings as a `crt-list` has them.
fn options(options: &TlsOptions) -> Vec<String> {
    let version = |version: &TlsVersion| match version {
        TlsVersion::Tls12 => "TLSv1.2",
        TlsVersion::Tls13 => "TLSv1.3",
    };
    let verify = options.verify.map(|verify| match verify {
        ClientVerify::None => "none",
        ClientVerify::Optional => "optional",
        ClientVerify::Required => "required",
    });
    let path = |path: &PathBuf| path.display().to_string();
    let mut words = Vec::new();
    let mut word = |name: &str, value: Option<String>| words.extend(value.map(|value| format!("{name} {value}")));
    match options.alpn.as_deref() {
        Some([]) => word("no-alpn", Some(String::new())),
        alpn => word("alpn", alpn.map(|alpn| alpn.join(","))),
    }
    word("verify", verify.map(Into::into));
    word("ca-file", options.ca_file.as_ref().map(path));
    word("ca-verify-file", options.ca_verify_file.as_ref().map(path));
    word("crl-file", options.crl_file.as_ref().map(path));
    word("no-ca-names", options.no_ca_names.then(String::new));
    word("allow-0rtt", options.allow_0rtt.then(String::new));
    word("ciphers", options.ciphers.clone());
    word("ciphersuites", options.ciphersuites.clone());
    word("curves", options.curves.clone());
    word("sigalgs", options.sigalgs.clone());
    word("client-sigalgs", options.client_sigalgs.clone());
    word("ssl-min-ver", options.oldest.as_ref().map(version).map(Into::into));
    word("ssl-max-ver", options.newest.as_ref().map(version).map(Into::into));
    words.into_iter().map(|word| word.trim_end().to_owned()).collect()
}

/// `add ssl crt-list LIST CERTIFICATE`, or with a line as payload.
pub(in super::super) fn add(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let (list, certificate) = (call.arg(0), call.arg(1));
    let payload = call.payload.as_deref().filter(|payload| !payload.is_empty());
    if list.is_empty() || certificate.is_empty() && payload.is_none() {
        return Err(CommandResponse::error("'add ssl crtlist' expects a filename and a certificate name\n"));
    }
    match try_add(staging, Path::new(list), certificate, payload) {
        Ok((transaction, name, dots)) => {
            let dots = ".".repeat(dots);
            let done = format!("Inserting certificate '{name}' in crt-list '{list}'{dots}\nSuccess!\n");
            Ok(Altering::new(Change::Certificates(transaction), CommandResponse::info(done)))
        }
        Err(reason) => Err(CommandResponse::error(format!("Can't edit the crt-list: {reason}\n"))),
    }
}

fn try_add(
    staging: &Staging<'_>,
    list: &Path,
    certificate: &str,
    payload: Option<&[u8]>,
) -> Result<(Transaction, String, usize), String> {
    let in_use = staging.line;
    let store = in_use.store();
    let lists = store.lists();
    let found = lists.iter().find(|(path, _)| path == list);
    let Some((_, is_directory)) = found else {
        return Err(format!("crt-list '{}' does not exist!", list.display()));
    };
    let line = match payload {
        None => {
            let base = in_use.model().global.tls.crt_base.as_deref().filter(|_| !certificate.starts_with('@'));
            let crt = base.map_or_else(|| certificate.into(), |base| base.join(certificate));
            CrtLine { crt, ..CrtLine::default() }
        }
        Some(payload) => {
            let text = String::from_utf8_lossy(payload);
            let text = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let source = Source { file: "CLI".into(), line: 1 };
            let read = crt_list_line(text, source, &in_use.model().global.tls);
            match read.map_err(|fault| format!("parsing [CLI:1]: {}", fault.message))? {
                Some(read) => read.line,
                None => return Err("the line is empty".into()),
            }
        }
    };
    let name = line.crt.display().to_string();
    if *is_directory && line.crt.parent() != Some(list) && Path::new(&plain(list)) != line.crt.parent().unwrap_or(list)
    {
        let list = plain(list);
        return Err(format!("'{list}' is a directory, certificate path '{name}' must contain the directory path"));
    }
    if staging.pending.empty.contains(&line.crt) {
        return Err(format!("certificate '{name}' is empty!"));
    }
    if store.entry(&line.crt).is_none() {
        return Err(format!("certificate '{name}' does not exist!"));
    }
    if *is_directory && store.lines(list).iter().any(|known| known.entry.path() == line.crt) {
        return Err("file already exists in this directory!".into());
    }
    let binds = using(in_use, list);
    if line.options != TlsOptions::default() {
        for acceptor in &binds {
            acceptor.judge(&line.options)?;
        }
    }
    let mut transaction = store.transaction();
    transaction.add(list, &line).map_err(|refused| refused.to_string())?;
    Ok((transaction, name, binds.len()))
}

/// The acceptors of the addresses that use a list.
fn using(line: &ChangeLine, list: &Path) -> Vec<Arc<Acceptor>> {
    let listeners = line.generation().into_iter().flat_map(|generation| &generation.listeners);
    listeners.filter(|plan| names(&plan.bind, list)).filter_map(|plan| plan.tls.clone()).collect()
}

/// Whether an address uses a list.
fn names(bind: &Bind, list: &Path) -> bool {
    let is_it = |source: &CrtSource| match source {
        CrtSource::Crt { path, .. } | CrtSource::List { path, .. } => path == list,
        CrtSource::Line(_) => false,
    };
    bind.options.tls.as_ref().is_some_and(|tls| tls.certificates.iter().any(is_it))
}

/// `del ssl crt-list LIST CERTIFICATE[:LINE]`.
pub(in super::super) fn delete(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let (list, certificate) = (call.arg(0), call.arg(1));
    if list.is_empty() || certificate.is_empty() {
        return Err(CommandResponse::error("'del ssl crtlist' expects a filename and a certificate name\n"));
    }
    match try_delete(staging.line, Path::new(list), certificate) {
        Ok((transaction, name)) => {
            let done = CommandResponse::info(format!("Entry '{name}' deleted in crtlist '{list}'!\n"));
            Ok(Altering::new(Change::Certificates(transaction), done))
        }
        Err(reason) => Err(CommandResponse::error(format!("Can't delete the entry: {reason}\n"))),
    }
}

fn try_delete(in_use: &ChangeLine, list: &Path, certificate: &str) -> Result<(Transaction, String), String> {
    let store = in_use.store();
    if !store.lists().iter().any(|(path, _)| path == list) {
        return Err(format!("crt-list '{}' does not exist!", list.display()));
    }
    let numbered = certificate.rsplit_once(':').and_then(|(name, line)| Some((name, line.parse::<u32>().ok()?)));
    let (name, number) = numbered.map_or((certificate, None), |(name, line)| (name, Some(line)));
    let lines: Vec<ListLine> =
        store.lines(list).into_iter().filter(|line| line.entry.path() == Path::new(name)).collect();
    let last = last_line(in_use.model(), list);
    let wanted = number;
    let numbers = || lines.iter().map(|line| self::number(line, last).to_string()).collect::<Vec<_>>().join(", ");
    let line = match (&lines[..], wanted) {
        ([], _) => {
            let list = list.display();
            return Err(format!("certificate '{name}' can't be found in crt-list '{list}'!"));
        }
        ([only], None) => only,
        (_, None) => {
            return Err(format!(
                "found the certificate '{name}' in several entries, please specify a line number preceded by colons ({})!",
                numbers()
            ));
        }
        (_, Some(number)) => lines.iter().find(|line| self::number(line, last) == number).ok_or_else(|| {
            format!(
                "found a certificate '{name}' but the line number is incorrect, please specify a correct line number \
                 preceded by colons ({})!",
                numbers()
            )
        })?,
    };
    if line.is_default {
        let mut defaults = store.defaults(&line.entry);
        let model = in_use.model();
        let using = || model.with_peers().flat_map(|proxy| &proxy.binds).filter(|bind| names(bind, list));
        defaults.dedup();
        defaults.retain(|source| using().any(|bind| bind.source == *source));
        let binds: String = defaults.iter().map(|source| format!("\n\t- {}:{}", source.file, source.line)).collect();
        return Err(format!(
            "certificate '{name}' cannot be deleted, it is used as default certificate by the following frontends:{binds}"
        ));
    }
    let mut transaction = store.transaction();
    let number = (line.number > 0).then_some(line.number);
    transaction.del(list, Path::new(name), number).map_err(|refused| refused.to_string())?;
    Ok((transaction, name.to_owned()))
}
