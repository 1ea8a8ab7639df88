//! The words of TLS on a `bind` line.

use std::sync::Arc;

use baton_model::{BindTls, CrtSource, IgnoredErrors, TlsVersion};

use super::{Defaults, DisabledVersions, FilePaths, ParameterError, ParameterNote, crt_list, ignored, options};
use crate::keywords::bind::BindDraft;
use crate::keywords::{Parameter, Status};
use crate::lower::Call;

/// What a `bind` line says about TLS so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsDraft {
    /// `ssl`: without it the other words mean nothing.
    pub ssl: bool,
    /// Some other word of TLS stands on the line.
    named: Option<String>,
    model: BindTls,
    without: DisabledVersions,
}

const fn row(
    name: &'static str,
    args: usize,
    apply: fn(&mut BindDraft, &mut Call<'_, '_>, usize) -> usize,
    doc: &'static str,
) -> Parameter<BindDraft> {
    Parameter { name, args, status: Status::Done, doc, apply }
}

/// A word that a `crt-list` may have too.
const fn shared(name: &'static str, args: usize, doc: &'static str) -> Parameter<BindDraft> {
    row(name, args, option, doc)
}

const fn none(name: &'static str, args: usize, why: &'static str) -> Parameter<BindDraft> {
    Parameter { name, args, status: Status::NoEffect(why), doc: "", apply: |_, _, _| 0 }
}

const fn later(name: &'static str, args: usize) -> Parameter<BindDraft> {
    Parameter { name, args, status: Status::NotYet, doc: "", apply: |_, _, _| 0 }
}

const NEVER: &str = "only TLSv1.2 and TLSv1.3 are supported";

/// The rows.
pub(crate) static ROWS: &[Parameter<BindDraft>] = &[
    row("ssl", 0, ssl, "TLS with the clients of this address (see [tls.md](tls.md))."),
    shared("allow-0rtt", 0, "Accepted for compatibility: early data (0-RTT) is never accepted."),
    shared("alpn", 1, "ALPN protocols, in order of preference, such as `h2,http/1.1`."),
    shared(
        "ca-file",
        1,
        "CA certificates that client certificates are verified with; `@system-ca` is the system's \
                          list.",
    ),
    row("ca-ignore-err", 1, ca_ignore_err, "Errors in the chain of a client certificate that are ignored."),
    shared("ca-verify-file", 1, "As 'ca-file', but its names are not sent to clients."),
    shared("ciphers", 1, "Cipher suites of TLSv1.2, by OpenSSL's names."),
    shared("ciphersuites", 1, "Cipher suites of TLSv1.3, by OpenSSL's names."),
    shared("client-sigalgs", 1, "Signature algorithms allowed for clients (as in HAProxy 2.8)."),
    shared("crl-file", 1, "Revocation lists (CRL) for client certificates."),
    row("crt", 1, crt, "A certificate with its key: a file, or a directory of them; may be repeated."),
    row("crt-ignore-err", 1, crt_ignore_err, "Errors of a client certificate that are ignored."),
    row("crt-list", 1, list, "A file that lists certificates, each with its own settings and names."),
    shared("curves", 1, "Key exchange groups, by OpenSSL's names."),
    row("default-crt", 1, default_crt, "Default certificate, for names without a certificate (as in HAProxy 3.0)."),
    shared("ecdhe", 1, "Key exchange group if there is no 'curves'."),
    row("force-sslv3", 0, too_old, "Refused."),
    row("force-tlsv10", 0, too_old, "Refused."),
    row("force-tlsv11", 0, too_old, "Refused."),
    row("force-tlsv12", 0, |bind, _, _| force(bind, TlsVersion::Tls12), "Only this version."),
    row("force-tlsv13", 0, |bind, _, _| force(bind, TlsVersion::Tls13), "Only this version."),
    shared("no-alpn", 0, "Disables ALPN (as in HAProxy 2.8)."),
    shared("no-ca-names", 0, "The names of accepted CAs are not sent to clients."),
    row("no-tls-tickets", 0, |bind, _, _| flag(&mut bind.tls.model.no_tickets), "No session tickets."),
    row("no-tlsv12", 0, |bind, _, _| flag(&mut bind.tls.without.tls12), "Not this version."),
    row("no-tlsv13", 0, |bind, _, _| flag(&mut bind.tls.without.tls13), "Not this version."),
    row(
        "prefer-client-ciphers",
        0,
        |bind, _, _| flag(&mut bind.tls.model.prefer_client_ciphers),
        "The client's preference of cipher suites applies.",
    ),
    shared("sigalgs", 1, "Signature algorithms, by OpenSSL's names (as in HAProxy 2.8)."),
    shared("ssl-max-ver", 1, "Maximum version: TLSv1.2 or TLSv1.3."),
    shared("ssl-min-ver", 1, "Minimum version: TLSv1.2 or TLSv1.3."),
    row(
        "strict-sni",
        0,
        |bind, _, _| flag(&mut bind.tls.model.strict_sni),
        "Refuse handshakes for names without a certificate.",
    ),
    row("tls-ticket-keys", 1, ticket_keys, "File with session ticket keys, to share among machines."),
    shared("verify", 1, "Client certificates: 'none', 'optional' or 'required'."),
    row(
        "watch",
        0,
        |bind, _, _| flag(&mut bind.tls.model.watch),
        "Changes in directories of 'crt' take effect automatically.",
    ),
    none("no-sslv3", 0, NEVER),
    none("no-tlsv10", 0, NEVER),
    none("no-tlsv11", 0, NEVER),
    none("npn", 1, "NPN is obsolete: use 'alpn'"),
    later("ca-sign-file", 1),
    later("ca-sign-pass", 1),
    later("generate-certificates", 0),
];

/// What is missing behind a word, as HAProxy says it.
pub(crate) fn missing(word: &str) -> &str {
    match word {
        "alpn" | "npn" => "the comma-delimited ALPN protocol suite",
        "ca-file" | "ca-verify-file" => "CAfile path",
        "crl-file" => "CRLfile path",
        "ciphers" | "ciphersuites" => "cipher suite",
        "crt" | "crt-list" | "default-crt" => "certificate location",
        "curves" | "ecdhe" => "curve suite",
        "ssl-min-ver" | "ssl-max-ver" => "the ssl/tls version",
        "tls-ticket-keys" => "TLS ticket keys file path",
        "verify" => "verify method",
        word => word,
    }
}

/// Puts a line's settings together with those of `global`. Without `ssl` there are none.
pub(crate) fn finish(bind: &mut BindDraft, call: &mut Call<'_, '_>, about: &str) {
    let tls = &mut bind.tls;
    if !tls.ssl {
        if let Some(word) = &tls.named {
            call.notice("no-effect", format!("{about}'{word}' has no effect: 'ssl' is missing"));
        }
        return;
    }
    let Defaults { options: default, without, no_tickets, prefer_client_ciphers, .. } = &call.context.tls;
    let (oldest, newest) = (default.oldest, default.newest);
    let options = &mut tls.model.options;
    options.ciphers = options.ciphers.take().or_else(|| default.ciphers.clone());
    options.ciphersuites = options.ciphersuites.take().or_else(|| default.ciphersuites.clone());
    options.curves = options.curves.take().or_else(|| default.curves.clone());
    options.sigalgs = options.sigalgs.take().or_else(|| default.sigalgs.clone());
    options.client_sigalgs = options.client_sigalgs.take().or_else(|| default.client_sigalgs.clone());
    tls.model.no_tickets |= no_tickets;
    tls.model.prefer_client_ciphers |= prefer_client_ciphers;
    tls.without.tls12 |= without.tls12;
    tls.without.tls13 |= without.tls13;
    options.oldest = options.oldest.or(oldest);
    options.newest = options.newest.or(newest);
    let without = tls.without;
    let ranged = options.oldest.is_some() || options.newest.is_some();
    if ranged && (without.tls12 || without.tls13) {
        let message = format!("{about}'no-tlsv12' and 'no-tlsv13' are ignored beside 'ssl-min-ver' and 'ssl-max-ver'");
        call.warn(call.first, "without-effect", message);
    } else if !ranged {
        options.oldest = without.tls12.then_some(TlsVersion::Tls13);
        options.newest = without.tls13.then_some(TlsVersion::Tls12);
    }
    if options.oldest > options.newest && options.newest.is_some() {
        let message = format!("{about}all SSL/TLS versions are disabled");
        call.error(call.first, "no-version", message);
    }
    bind.options.tls = Some(Arc::new(std::mem::take(&mut tls.model)));
}

fn ssl(bind: &mut BindDraft, _: &mut Call<'_, '_>, _: usize) -> usize {
    bind.tls.ssl = true;
    0
}

fn flag(field: &mut bool) -> usize {
    *field = true;
    0
}

fn force(bind: &mut BindDraft, version: TlsVersion) -> usize {
    bind.tls.model.options.oldest = Some(version);
    bind.tls.model.options.newest = Some(version);
    0
}

fn too_old(_: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    call.error(at, "too-old", format!("'{}' {}", call.line.word(at), options::TOO_OLD));
    0
}

/// A word of [`options`].
fn option(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let word = call.line.word(at);
    bind.tls.named.get_or_insert_with(|| word.into());
    let Some(row) = options::find(word) else { return 0 };
    let value = if row.args > 0 { call.line.word(at + 1) } else { "" };
    if row.args > 0 && value.is_empty() {
        call.error(at + 1, "missing-argument", format!("missing {}", missing(word)));
        return 1;
    }
    let places = call.context.places(&call.line.file);
    match (row.apply)(&mut bind.tls.model.options, value, &places) {
        Ok(ParameterNote::Nothing) => {}
        Ok(ParameterNote::Notice(message)) => call.notice("no-effect", message),
        Ok(ParameterNote::Warning(message)) => call.warn(at + row.args, "left-out", message),
        Err(fault) => refuse(call, at + row.args, fault),
    }
    row.args
}

fn refuse(call: &mut Call<'_, '_>, at: usize, fault: ParameterError) {
    let message = format!("{}{}", call.about, fault.message);
    let mut diagnostic = call.line.diagnostic(crate::Severity::Alert, "bad-value", at, message);
    diagnostic.hint = fault.hint;
    call.context.report.add(diagnostic);
}

/// The value behind a word, which must not be empty.
fn value<'l>(bind: &mut BindDraft, call: &mut Call<'l, '_>, at: usize) -> Option<&'l str> {
    let (word, value) = (call.line.word(at), call.line.word(at + 1));
    bind.tls.named.get_or_insert_with(|| word.into());
    if value.is_empty() {
        call.error(at + 1, "missing-argument", format!("missing {}", missing(word)));
        return None;
    }
    Some(value)
}

fn places<'c>(call: &'c Call<'_, '_>) -> FilePaths<'c> {
    call.context.places(&call.line.file)
}

fn crt(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(name) = value(bind, call, at) {
        let path = places(call).crt(name);
        bind.tls.model.certificates.push(CrtSource::Crt { path, default: false });
    }
    1
}

fn default_crt(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(name) = value(bind, call, at) {
        let path = places(call).crt(name);
        bind.tls.model.certificates.push(CrtSource::Crt { path, default: true });
    }
    1
}

fn list(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(name) = value(bind, call, at)
        && let Some(list) = crt_list::read(name, call, at + 1)
    {
        bind.tls.model.certificates.push(list);
    }
    1
}

fn ticket_keys(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    if let Some(name) = value(bind, call, at) {
        bind.tls.model.ticket_keys = Some(call.context.path(&call.line.file, name));
    }
    1
}

fn errors(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> IgnoredErrors {
    let parsed = value(bind, call, at).map(ignored::parse);
    match parsed {
        Some(Ok(errors)) => return errors,
        Some(Err(error)) => call.error_with(at + 1, "bad-value", error.message, error.hint),
        None => {}
    }
    IgnoredErrors::None
}

fn ca_ignore_err(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.tls.model.options.ca_ignore_err = errors(bind, call, at);
    1
}

fn crt_ignore_err(bind: &mut BindDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    bind.tls.model.options.crt_ignore_err = errors(bind, call, at);
    1
}
